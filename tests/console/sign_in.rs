//! Signing in with a link, and sessions.

use chrono::TimeDelta;
use crier_store::{sessions, users};
use secrecy::ExposeSecret;

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps, on_sqlite_app};
use crate::support::client::until;
use crate::support::console::{ConsoleUser, Page};
use crate::support::store::TestStore;

on_both_apps!(a_session_lives_while_it_is_used, a_session_ends_with_its_user, only_users_receive_a_link);
on_both_apps!("unlimited" =>
    a_link_signs_in_once,
    signing_out_everywhere_else_ends_unused_links,
    a_form_of_another_origin_signs_nobody_in,
    expired_sessions_and_links_are_deleted,
);
on_sqlite_app!(
    a_sign_in_leads_to_the_requested_page,
    links_cannot_be_guessed_quickly,
    the_cookie_is_bound_to_the_host_on_https,
);
on_sqlite_app!("unlimited" =>
    without_a_session_every_page_leads_to_the_sign_in_page,
    a_session_is_no_api_key,
    valid_links_work_while_wrong_ones_and_wrong_keys_are_rejected,
    large_forms_are_rejected,
    signing_out_ends_the_session,
    a_form_outlives_its_session,
    only_forms_of_this_host_outlive_their_session,
);

async fn post(app: &TestApp, path: &str) -> Reply {
    let request = app.visit("POST", &format!("{}{path}", app.url)).raw("");
    request.header("content-type", "application/x-www-form-urlencoded").send().await
}

async fn link(app: &TestApp, user: i64) -> String {
    let token = app.write(async |tx| sessions::create_link(tx, user, sessions::LINK_LIFETIME).await).await;
    format!("/sign-in/{}", token.expose_secret())
}

async fn a_link_signs_in_once(t: Tenant<'_>) {
    let path = link(t.app, t.user).await;
    // An email scanner opens the link first, and the user after that.
    for _ in 0..2 {
        let page = t.app.page(&path).await;
        page.assert_status(200);
        assert!(page.text().contains("Sign in as"), "{}", page.text());
        assert!(page.header("set-cookie").is_none());
    }
    let signed_in = post(t.app, &path).await;
    signed_in.assert_status(303);
    assert_eq!(signed_in.header("location"), Some("/"));
    let cookie = signed_in.header("set-cookie").expect("a cookie");
    for part in ["crier_session=", "; Path=/;", "; Max-Age=2592000;", "; HttpOnly", "; SameSite=Lax"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    for reply in [t.app.page(&path).await, post(t.app, &path).await] {
        reply.assert_status(410);
        assert!(reply.text().contains("This link has already been used") && reply.header("set-cookie").is_none());
    }

    let last = link(t.app, t.user).await;
    t.app.clock.advance(TimeDelta::minutes(15));
    post(t.app, &last).await.assert_status(410);
}

async fn signing_out_everywhere_else_ends_unused_links(t: Tenant<'_>) {
    let (person, _) = (ConsoleUser::sign_in(&t).await, ConsoleUser::sign_in(&t).await);
    let other = t.app.tenant("unlimited").await;
    let (own_link, other_link) = (link(t.app, t.user).await, link(t.app, other.user).await);
    let path = t.path("/settings/sessions");
    person.submit(&path, &format!("{path}/revoke-others"), &[]).await.expect(200, "You have no other sessions.");
    post(t.app, &own_link).await.assert_status(410);
    post(t.app, &other_link).await.assert_status(303);
    person.get(&path).await.expect(200, "This session");
}

async fn a_session_lives_while_it_is_used(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let home = format!("/brands/{}", t.brand);
    for _ in 0..3 {
        app.clock.advance(TimeDelta::days(29));
        person.get(&home).await.expect(200, "Home");
        // The time of the last use is written in the background.
        let used = app.now();
        until("it is written", || async {
            let at = sessions::list(&mut app.conn().await, t.user, used).await.unwrap();
            (at.first()?.last_used_at == Some(used)).then_some(())
        })
        .await;
    }
    app.clock.advance(TimeDelta::days(30));
    let page = person.get(&home).await;
    assert_eq!((page.status, page.reply.header("location")), (303, Some("/sign-in")));
}

async fn a_session_ends_with_its_user(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let email = users::list(&mut app.conn().await).await.unwrap()[0].email.clone();
    app.write(async |tx| users::delete(tx, &email).await).await;
    assert_eq!(person.get(&format!("/brands/{}", t.brand)).await.status, 303);
    assert_eq!(app.count_rows("sessions").await, 0);
}

/// The response is the same if no user has the address. A user receives at most three links at a time.
async fn only_users_receive_a_link(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let url = app.replica_with_mail().await;
    let email = users::list(&mut app.conn().await).await.unwrap()[0].email.clone();
    let request_link = async |email: &str| {
        let form = url::form_urlencoded::Serializer::new(String::new()).append_pair("email", email).finish();
        let request = app.visit("POST", &format!("{url}/sign-in")).raw(form);
        request.header("content-type", "application/x-www-form-urlencoded").send().await
    };
    let page = app.visit("GET", &format!("{url}/sign-in")).send().await;
    assert!(page.text().contains("Send me a link"), "{}", page.text());
    let responses = [request_link(&email.to_uppercase()).await, request_link("stranger@example.com").await];
    for response in &responses {
        response.assert_status(200);
        assert!(response.text().contains("If this address belongs to a user"), "{}", response.text());
    }
    wait_for_mails(&app, 1).await;
    assert_eq!(app.count_rows("jobs WHERE kind = 'send_mail'").await, 1);
    let mail = app.newest_mail().await.body_text;
    let link = mail.split_whitespace().find(|word| word.starts_with(&app.url)).expect("a link").to_owned();
    let path = link.strip_prefix(&app.url).unwrap();
    assert!(app.page(path).await.text().contains(&email), "{mail}");
    post(&app, path).await.assert_status(303);

    for links in [2, 3, 4, 4, 4] {
        request_link(&email).await.assert_status(200);
        wait_for_mails(&app, links).await;
    }
    for wrong in ["", "ann", "ann@\u{7}"] {
        let rejected = request_link(wrong).await;
        rejected.assert_status(422);
        assert!(rejected.text().contains("Enter an email address"), "{}", rejected.text());
    }
    let other_site = app.visit("POST", &format!("{url}/sign-in")).raw("email=x").header("sec-fetch-site", "cross-site");
    other_site.send().await.assert_status(400);
    assert_eq!(app.count_rows("mails").await, 4, "three of them are valid");
    drop(t);
}

/// Waits for a number of emails, because they are stored after the response.
async fn wait_for_mails(app: &TestApp, number: i64) {
    until("the mails are stored", || async { (app.count_rows("mails").await == number).then_some(()) }).await;
}

/// Older browsers, and all browsers on sites without TLS, send only the origin of the form's page.
async fn a_form_of_another_origin_signs_nobody_in(t: Tenant<'_>) {
    let path = link(t.app, t.user).await;
    for (origin, status) in [("https://evil.example", 400), ("null", 400), (t.app.url.as_str(), 303)] {
        let form = t.app.visit("POST", &format!("{}{path}", t.app.url)).raw("").header("origin", origin);
        form.send().await.assert_status(status);
    }
}

async fn expired_sessions_and_links_are_deleted(t: Tenant<'_>) {
    ConsoleUser::sign_in(&t).await;
    link(t.app, t.user).await;
    t.app.clock.advance(TimeDelta::days(30));
    ConsoleUser::sign_in(&t).await;
    let deleted = t.app.write(async |tx| sessions::purge(tx, 100).await).await;
    assert_eq!(deleted, 2);
    assert_eq!(t.app.count_rows("sessions").await, 1);
    assert_eq!(t.app.count_rows("api_keys").await, 2, "the session's and the tenant's");
}

async fn without_a_session_every_page_leads_to_the_sign_in_page(t: Tenant<'_>) {
    for path in ["/", &format!("/brands/{}", t.brand), "/brands/999", "/brands/new"] {
        let reply = t.app.page(path).await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/sign-in")), "{path}");
    }
    let page = t.app.page("/sign-in").await;
    page.assert_status(200);
    assert!(page.text().contains("crier login --user EMAIL"), "no mail server is configured: {}", page.text());
    let mut forged = ConsoleUser::sign_in(&t).await;
    forged.cookie = format!("crier_session={}", "a".repeat(43));
    assert_eq!(forged.get("/brands/1").await.reply.header("location"), Some("/sign-in"));
}

async fn a_sign_in_leads_to_the_requested_page(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let next = async |request: crate::support::app::Request<'_>| {
        let reply = request.send().await;
        assert_eq!((reply.status, reply.header("location")), (303, Some("/sign-in")));
        let cookie = reply.header("set-cookie").map(|cookie| cookie.split(';').next().unwrap_or_default().to_owned());
        cookie.filter(|cookie| cookie.starts_with("crier_next="))
    };
    let wanted = format!("/brands/{}/posts?status=failed&page=2", t.brand);
    let url = format!("{}{wanted}", app.url);
    let cookie = next(app.visit("GET", &url)).await.expect("the page is kept");
    assert_eq!(cookie, format!("crier_next={wanted}"));
    let sign_in_with = async |cookie: &str| {
        let request = app.visit("POST", &format!("{}{}", app.url, link(&app, t.user).await)).raw("");
        let request = request.header("content-type", "application/x-www-form-urlencoded").header("cookie", cookie);
        request.send().await
    };
    let signed_in = sign_in_with(&cookie).await;
    assert_eq!((signed_in.status, signed_in.header("location")), (303, Some(wanted.as_str())));
    let cookies: Vec<_> = signed_in.headers.get_all("set-cookie").iter().filter_map(|c| c.to_str().ok()).collect();
    assert!(cookies.iter().any(|c| c.starts_with("crier_next=; Path=/; Max-Age=0")), "it is used once: {cookies:?}");
    // A form whose session has ended leads to its page after the sign-in.
    let form = app.visit("POST", &format!("{}/brands/{}/posts/new", app.url, t.brand)).raw("content=x");
    let form = form.header("content-type", "application/x-www-form-urlencoded").header("referer", &url);
    assert_eq!(next(form).await, Some(format!("crier_next=/brands/{}/posts", t.brand)));
    // Only pages of the console are kept as the destination.
    assert_eq!(next(app.visit("GET", &url).header("sec-fetch-dest", "image")).await, None);
    let long = format!("{url}&search={}", "x".repeat(600));
    assert_eq!(next(app.visit("GET", &long)).await, None);
    for other in ["//evil.example", "https://evil.example", "/media/1", "/brands/1\\@x y", ""] {
        let signed_in = sign_in_with(&format!("crier_next={other}")).await;
        assert_eq!((signed_in.status, signed_in.header("location")), (303, Some("/")), "{other}");
    }
}

async fn a_session_is_no_api_key(t: Tenant<'_>) {
    let person = ConsoleUser::sign_in(&t).await;
    let token = person.cookie.split_once('=').expect("a token").1;
    for key in [token.to_owned(), format!("svc_live_{}", &token[..40])] {
        t.app.request("GET", "/brands").key(&key).send().await.expect_error(401, "unauthorized");
    }
    // A key is not a session either.
    let mut as_cookie = person;
    as_cookie.cookie = format!("crier_session={}", t.key);
    assert_eq!(as_cookie.get(&format!("/brands/{}", t.brand)).await.status, 303);
    let keys = crier_store::keys::list(&mut t.app.conn().await, None).await.unwrap();
    assert_eq!(keys.len(), 1, "the session's key is not listed");
}

async fn links_cannot_be_guessed_quickly(app: TestApp) {
    let mut rejected = 0;
    for n in 0..70 {
        let reply = post(&app, &format!("/sign-in/{n:043}")).await;
        match reply.status {
            410 => {}
            429 => rejected += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!(rejected, 10);
}

async fn valid_links_work_while_wrong_ones_and_wrong_keys_are_rejected(t: Tenant<'_>) {
    for _ in 0..70 {
        t.app.request("GET", "/brands").key("svc_live_nope").send().await;
    }
    t.app.request("GET", "/brands").send().await.expect_error(429, "rate_limited");
    // Wrong keys do not count towards the limit of the pages.
    post(t.app, "/sign-in/wrong").await.assert_status(410);
    t.app.page("/connect/wrong").await.assert_status(404);
    for _ in 0..70 {
        t.app.page("/sign-in/wrong").await;
    }
    t.app.page("/sign-in/wrong").await.assert_status(429);
    post(t.app, "/sign-in/wrong").await.assert_status(429);
    for _ in 0..3 {
        let path = link(t.app, t.user).await;
        t.app.page(&path).await.assert_status(200);
        post(t.app, &path).await.assert_status(303);
    }
}

async fn large_forms_are_rejected(t: Tenant<'_>) {
    let valid = link(t.app, t.user).await;
    for path in ["/sign-in", &valid, "/sign-out", "/invitation/wrong"] {
        let request = t.app.visit("POST", &format!("{}{path}", t.app.url)).raw(format!("email={}", "a".repeat(17_000)));
        let reply = request.header("content-type", "application/x-www-form-urlencoded").send().await;
        assert_eq!(reply.status, 400, "{path}");
    }
    post(t.app, &valid).await.assert_status(303);
}

async fn signing_out_ends_the_session(t: Tenant<'_>) {
    let person = ConsoleUser::sign_in(&t).await;
    let home = format!("/brands/{}", t.brand);
    person.post("/sign-out", &[("_csrf", "00")]).await;
    person.get(&home).await.expect(200, "Home");
    let page = person.submit(&home, "/sign-out", &[]).await;
    page.expect(200, "You are signed out");
    assert_eq!(person.get(&home).await.status, 303);
}

async fn the_cookie_is_bound_to_the_host_on_https(_: TestApp) {
    let app = TestApp::start_at(TestStore::sqlite().await, "https://crier.example").await;
    let t = app.tenant("unlimited").await;
    let path = link(&app, t.user).await;
    let cookie = post(&app, &path).await.header("set-cookie").expect("a cookie").to_owned();
    assert!(cookie.starts_with("__Host-crier_session=") && cookie.contains("; Secure"), "{cookie}");
}

async fn a_form_outlives_its_session(t: Tenant<'_>) {
    let mut person = ConsoleUser::sign_in(&t).await;
    let (new, origin) = (t.path("/posts/new"), t.app.url.as_str());
    let mut fields = person.get(&new).await.hidden_fields(&new);
    fields.extend([("content", "Bread\n& <butter>"), ("schedule_type", "draft")].map(|(a, b)| (a.into(), b.into())));
    t.app.clock.advance(TimeDelta::days(30));
    let ended = post_fields(&person, origin, &new, &fields).await;
    ended.expect(401, "Your session has ended").expect(401, "target=\"_blank\"");
    assert!(!ended.has("name=\"_csrf\"") && ended.reply.header("location").is_none(), "{}", ended.text);
    let again = post_fields(&person, origin, &new, &ended.hidden_fields(&new)).await;
    again.expect(401, "Your session has ended");
    person = ConsoleUser::sign_in(&t).await;
    let asked = post_fields(&person, origin, &new, &again.hidden_fields(&new)).await;
    asked.expect(403, "You are signed in as").expect(403, "Submit form");
    assert_eq!(t.app.count_rows("posts").await, 0, "the form is not from this session");
    let saved = post_fields(&person, origin, &new, &asked.hidden_fields(&new)).await;
    assert_eq!(saved.status, 303, "{}", saved.text);
    assert_eq!(t.app.count_rows("posts WHERE content = 'Bread\n& <butter>'").await, 1);
}

async fn post_fields(person: &ConsoleUser<'_>, origin: &str, path: &str, fields: &[(String, String)]) -> Page {
    let fields: Vec<(&str, &str)> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    person.post_from_origin(origin, path, &fields).await
}

async fn only_forms_of_this_host_outlive_their_session(t: Tenant<'_>) {
    let person = ConsoleUser::sign_in(&t).await;
    let signed_out = ConsoleUser::signed_out(t.app);
    let (new, origin) = (t.path("/posts/new"), t.app.url.as_str());
    let fields = [("content", "Forged"), ("_key", "key-of-a-form")];
    // Otherwise, another site could lead a signed-in user to submit its form.
    for other in ["https://evil.example", "null"] {
        let page = signed_out.post_from_origin(other, &new, &fields).await;
        assert_eq!((page.status, page.reply.header("location")), (303, Some("/sign-in")), "{other}");
        let page = person.post_from_origin(other, &new, &fields).await;
        page.expect(403, "You cannot do this");
        assert!(!page.has("Forged"), "{other}");
    }
    let secret = [("credentials.password", "hunter2")];
    let connect = t.path("/accounts/connect/bluesky");
    let page = signed_out.post_from_origin(origin, &connect, &secret).await;
    assert_eq!(page.status, 303, "a password is not kept");
    let consent = "/mcp/oauth/authorize";
    assert_eq!(signed_out.post_from_origin(origin, consent, &[("decision", "allow")]).await.status, 303);
    person.post_from_origin(origin, consent, &[("decision", "allow")]).await.expect(403, "You cannot do this");
    let many: Vec<(&str, &str)> = (0..2_001).map(|_| ("a", "")).collect();
    assert_eq!(signed_out.post_from_origin(origin, &new, &many).await.status, 303);
    assert_eq!(t.app.count_rows("posts").await, 0);
}
