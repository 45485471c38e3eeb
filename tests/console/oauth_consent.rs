//! The page on which a user allows an application the access that it requests with OAuth.

use crier_store::sessions;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use url::Url;

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::console::{ConsoleUser, Page};
use crate::support::store::TestStore;

on_both_apps!(console "unlimited" =>
    an_application_gets_the_chosen_access,
    a_denied_application_gets_nothing,
);
on_one_app!(console "unlimited" =>
    invalid_choices_are_rejected,
    only_requested_access_is_offered,
    forms_of_other_sites_are_rejected,
    invalid_requests_never_redirect,
    the_page_warns_of_applications_on_this_computer,
    the_page_cannot_be_framed,
    the_page_can_be_switched_off,
    a_user_can_have_few_documents_read,
);
on_one_app!("unlimited" => a_user_who_is_not_signed_in_returns_after_the_sign_in);

const PAGE: &str = "/mcp/oauth/authorize";
pub const REDIRECT: &str = "https://client.example/callback";
/// The example of RFC 7636.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";

/// Registers an application and returns its ID.
pub async fn register(app: &TestApp, name: &str, redirect: &str) -> String {
    let body = json!({ "client_name": name, "redirect_uris": [redirect], "token_endpoint_auth_method": "none" });
    let reply = app.visit("POST", &format!("{}/mcp/oauth/register", app.url)).json(&body).send().await;
    reply.assert_status(201);
    reply.json()["client_id"].as_str().expect("an id").to_owned()
}

/// Returns the path of the page for a request with these parameters instead of the usual ones.
fn request(app: &TestApp, client: &str, changes: &[(&str, &str)]) -> String {
    let resource = format!("{}/mcp/oauth", app.url);
    let usual = [
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("resource", resource.as_str()),
        ("scope", "brands:read posts:read posts:write"),
        ("state", "x y"),
    ];
    let usual = usual.into_iter().filter(|(name, _)| changes.iter().all(|(changed, _)| changed != name));
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(usual).extend_pairs(changes);
    format!("{PAGE}?{}", query.finish())
}

/// Returns the URL to which a page leads automatically.
fn destination(page: &Page) -> Url {
    page.expect(200, "<meta http-equiv=\"refresh\" content=\"0; url=");
    assert_eq!(page.reply.header("location"), None, "the browser would block a redirect of the form");
    let (_, rest) = page.text.split_once("content=\"0; url=").expect("a refresh");
    Url::parse(rest.split('"').next().unwrap_or_default()).expect("a URL")
}

fn parameter(url: &Url, name: &str) -> Option<String> {
    url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

async fn exchange(app: &TestApp, client: &str, code: &str) -> Reply {
    let resource = format!("{}/mcp/oauth", app.url);
    let fields = [
        ("grant_type", "authorization_code"),
        ("code", code),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("code_verifier", VERIFIER),
        ("resource", resource.as_str()),
    ];
    token(app, &fields).await
}

/// Sends a form to the token endpoint.
pub async fn token(app: &TestApp, fields: &[(&str, &str)]) -> Reply {
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let request = app.visit("POST", &format!("{}/mcp/oauth/token", app.url)).raw(body);
    request.header("content-type", "application/x-www-form-urlencoded").send().await
}

/// Connects an application with these choices, and returns its ID and its tokens.
pub async fn connect(t: &Tenant<'_>, person: &ConsoleUser<'_>, access: &str, brands: &str) -> (String, Value) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let fields = [("access", access), ("brands", brands), ("decision", "allow")];
    let allowed = person.submit(&request(t.app, &client, &[]), PAGE, &fields).await;
    let code = parameter(&destination(&allowed), "code").expect("a code");
    let tokens = exchange(t.app, &client, &code).await;
    tokens.assert_status(200);
    (client, tokens.json())
}

async fn an_application_gets_the_chosen_access(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "<b>Bread helper", REDIRECT).await;
    let page = person.get(&request(t.app, &client, &[])).await;
    let email = t.app.email(t.user).await;
    page.expect(200, "calls itself").expect(200, "<strong>client.example</strong>").expect(200, &email);
    let html = page.reply.text();
    assert!(!html.contains("<b>Bread") && html.contains("&#60;b&#62;Bread helper"), "{html}");
    let brand = t.brand.to_string();
    page.expect(200, &format!("value=\"{brand}\" checked"));
    let fields = [("access", "drafts"), ("brands", brand.as_str()), ("decision", "allow")];
    let allowed = destination(&person.submit_from(&page, PAGE, &fields).await);
    assert!(allowed.as_str().starts_with("https://client.example/callback?"), "{allowed}");
    assert_eq!(parameter(&allowed, "state").as_deref(), Some("x y"));
    assert_eq!(parameter(&allowed, "iss"), Some(format!("{}/mcp/oauth", t.app.url)));
    let again = destination(&person.submit_from(&page, PAGE, &fields).await);
    assert_eq!((again, t.app.count_rows("oauth_codes").await), (allowed.clone(), 1), "a double click allows once");

    let tokens = exchange(t.app, &client, &parameter(&allowed, "code").expect("a code")).await;
    tokens.assert_status(200);
    assert_eq!(tokens.json()["scope"], "brands:read posts:read posts:write", "{}", tokens.text());
    let rows = "api_keys WHERE role_limit = 'contributor' AND NOT all_brands";
    assert_eq!((t.app.count_rows(rows).await, t.app.count_rows("key_brands").await), (1, 1));
    // A token of `/mcp/oauth` is no key of the API.
    let access = tokens.json()["access_token"].as_str().expect("a token").to_owned();
    t.app.request("GET", "/brands").key(&access).send().await.expect_error(401, "unauthorized");
}

async fn a_denied_application_gets_nothing(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let denied = person.submit(&request(t.app, &client, &[]), PAGE, &[("decision", "deny")]).await;
    let url = destination(&denied);
    assert_eq!(parameter(&url, "error").as_deref(), Some("access_denied"));
    assert_eq!((parameter(&url, "state").as_deref(), parameter(&url, "code")), (Some("x y"), None));
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

/// The user signs out everywhere while someone who uses another session allows an application.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_ended_meanwhile_allows_nothing() {
    // On SQLite, every transaction that writes waits for the previous one.
    let app = TestApp::start(TestStore::postgres().await).await;
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let page = person.get(&request(t.app, &client, &[])).await;
    let mut tx = t.app.begin().await.expect("a transaction");
    sessions::revoke_others(&mut tx, t.user, 0).await.expect("a sign-out");
    let sign_out = async {
        t.app.until_blocked(1).await;
        tx.commit().await.expect("a commit");
    };
    let fields = [("access", "drafts"), ("brands", "all"), ("decision", "allow")];
    let (rejected, ()) = tokio::join!(person.submit_from(&page, PAGE, &fields), sign_out);
    rejected.expect(403, "Your session has ended");
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

async fn invalid_choices_are_rejected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let other = t.app.tenant("unlimited").await;
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let (own, theirs) = (t.brand.to_string(), other.brand.to_string());
    let (own, theirs) = (own.as_str(), theirs.as_str());
    let allow = ("decision", "allow");
    for (fields, problem) in [
        (vec![("access", "drafts"), allow], "Choose at least one of your brands"),
        (vec![("access", "drafts"), ("brands", theirs), allow], "Choose at least one of your brands"),
        (vec![("access", "admin"), ("brands", own), allow], "Choose what the application may do."),
        (vec![("brands", "all"), allow], "Choose what the application may do."),
        (vec![("access", "drafts"), ("brands", own)], "Choose \u{201c}Allow\u{201d}"),
    ] {
        person.submit(&request(t.app, &client, &[]), PAGE, &fields).await.expect(422, problem);
    }
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

async fn only_requested_access_is_offered(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let reads = request(t.app, &client, &[("scope", "posts:read media:read")]);
    let page = person.get(&reads).await;
    page.expect(200, "Reads: posts, media.");
    assert!(!page.has("value=\"drafts\"") && !page.has("value=\"publish\""), "{}", page.text);
    let fields = [("access", "publish"), ("brands", "all"), ("decision", "allow")];
    person.submit_from(&page, PAGE, &fields).await.expect(422, "Choose what the application may do.");
    let none = person.get(&request(t.app, &client, &[("scope", "media:write")])).await;
    none.expect(400, "does not offer to applications").expect(400, "Return to client.example");
}

async fn forms_of_other_sites_are_rejected(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let page = person.get(&request(t.app, &client, &[])).await;
    let hidden = page.hidden_fields(PAGE);
    let fields = [("access", "drafts"), ("brands", "all"), ("decision", "allow")];
    let all = |is_kept: fn(&str) -> bool| {
        let hidden =
            hidden.iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.as_str(), value.as_str()));
        hidden.chain(fields).collect::<Vec<_>>()
    };
    person.post(PAGE, &all(|name| name != "_csrf")).await.expect(403, "You cannot do this");
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(all(|_| true)).finish();
    let forged = t.app.visit("POST", &format!("{}{PAGE}", t.app.url)).raw(body).header("cookie", &person.cookie);
    let forged = forged.header("content-type", "application/x-www-form-urlencoded");
    forged.header("sec-fetch-site", "cross-site").send().await.assert_status(403);
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

async fn invalid_requests_never_redirect(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let evil = ("redirect_uri", "https://evil.example/callback");
    let csrf = person.get(&t.path("")).await.hidden_fields("/sign-out");
    let csrf = csrf.iter().find(|(name, _)| name == "_csrf").expect("a token").1.clone();
    for (path, has_link) in [
        (request(t.app, &client, &[evil]), false),
        (request(t.app, "unknown", &[]), false),
        (PAGE.to_owned(), false),
        (request(t.app, &client, &[("scope", "posts:fly")]), true),
        (request(t.app, &client, &[("code_challenge_method", "plain")]), true),
        (request(t.app, &client, &[("resource", "https://other.example/mcp")]), true),
    ] {
        let query = path.split_once('?').map_or("", |(_, query)| query);
        let fields = [
            ("_csrf", csrf.as_str()),
            ("_key", "key"),
            ("request", query),
            ("access", "drafts"),
            ("brands", "all"),
            ("decision", "allow"),
        ];
        for page in [person.get(&path).await, person.post(PAGE, &fields).await] {
            page.expect(400, "This application cannot be connected");
            assert_eq!(page.reply.header("location"), None, "{path}");
            assert!(!page.has("http-equiv") && !page.has("evil.example"), "{path}: {}", page.text);
            assert_eq!(page.has("Return to client.example"), has_link, "{path}: {}", page.text);
        }
    }
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

async fn the_page_warns_of_applications_on_this_computer(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Editor", "http://127.0.0.1/callback").await;
    // The port is that which the application got when it started.
    let path = request(t.app, &client, &[("redirect_uri", "http://127.0.0.1:41999/callback")]);
    person.get(&path).await.expect(200, "This is an application on your computer.");
    let client = register(t.app, "Editor", "com.example.editor:/callback").await;
    let path = request(t.app, &client, &[("redirect_uri", "com.example.editor:/callback")]);
    person.get(&path).await.expect(200, "This is an application on your computer.");
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let page = person.get(&request(t.app, &client, &[])).await;
    assert!(!page.has("on your computer"), "{}", page.text);
}

async fn the_page_cannot_be_framed(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let page = person.get(&request(t.app, &client, &[])).await;
    let policy = page.reply.header("content-security-policy").expect("a policy");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.reply.header("cache-control"), Some("no-store"));
    assert_eq!(page.reply.header("referrer-policy"), Some("same-origin"));
}

async fn the_page_can_be_switched_off(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    let path = request(t.app, &client, &[]);
    let page = person.get(&path).await;
    let hidden = page.hidden_fields(PAGE);
    let hidden = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let fields = [("access", "drafts"), ("brands", "all"), ("decision", "allow")];
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(hidden.chain(fields)).finish();
    let replica = t.app.replica_without_mcp().await;
    let shown = t.app.visit("GET", &format!("{replica}{path}")).header("cookie", &person.cookie).send().await;
    shown.assert_status(404);
    let sent = t.app.visit("POST", &format!("{replica}{PAGE}")).raw(body).header("cookie", &person.cookie);
    sent.header("content-type", "application/x-www-form-urlencoded").send().await.assert_status(404);
    assert_eq!(t.app.count_rows("oauth_codes").await, 0);
}

async fn a_user_can_have_few_documents_read(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = "https://10.0.0.1/client.json";
    // A second, empty parameter counts as omitted.
    let paths = [request(t.app, id, &[]), request(t.app, id, &[("client_id", id), ("client_id", "")])];
    for visits in 0..20 {
        person.get(&paths[visits % 2]).await.expect(400, "This application cannot be connected");
    }
    for path in &paths {
        person.get(path).await.expect(429, "Too many requests");
    }
    let client = register(t.app, "Bread helper", REDIRECT).await;
    person.get(&request(t.app, &client, &[])).await.expect(200, "calls itself");
}

async fn a_user_who_is_not_signed_in_returns_after_the_sign_in(t: Tenant<'_>) {
    let client = register(t.app, "Bread helper", REDIRECT).await;
    // Longer than the paths of other pages may be.
    let state = "s".repeat(500);
    let path = request(t.app, &client, &[("state", state.as_str())]);
    let reply = t.app.page(&path).await;
    assert_eq!((reply.status, reply.header("location")), (303, Some("/sign-in")));
    let cookie = reply.header("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a cookie").to_owned();
    assert_eq!(cookie, format!("crier_next={path}"));
    let token = t.app.write(async |tx| sessions::create_link(tx, t.user, sessions::LINK_LIFETIME).await).await;
    let request = t.app.visit("POST", &format!("{}/sign-in/{}", t.app.url, token.expose_secret())).raw("");
    let request = request.header("content-type", "application/x-www-form-urlencoded").header("cookie", &cookie);
    let signed_in = request.send().await;
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some(path.as_str())));
}
