//! For every error in a connection, a page says what happened, and no account is connected.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_store::brands;
use url::Url;
use wiremock::ResponseTemplate;

use super::{mastodon_path, mastodon_path_of, now};
use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app, on_sqlite_app};
use crate::support::mastodon::{Mastodon, RunningMastodon};
use crate::support::person::{Person, assert_page};
use crate::support::store::TestStore;

on_both_apps!(
    a_denied_or_rejected_connection_can_be_retried,
    a_state_works_once,
    only_one_of_two_people_connects,
    a_url_gives_no_more_than_its_user_may_give,
);
on_one_app!(
    a_url_expires_after_half_an_hour,
    an_unknown_url_is_not_found,
    a_response_without_its_state_is_rejected,
    another_browser_cannot_finish,
    a_form_of_another_site_is_rejected,
    a_missing_permission_is_named,
    a_full_brand_is_reported,
    an_unavailable_platform_is_reported,
    an_issuer_of_another_server_is_rejected,
    requests_are_limited,
);
on_sqlite_app!(the_cookie_is_bound_to_the_host_on_https);

/// Returns a tenant, a server, the path of a URL that connects an account of the server, and a person.
async fn start<'a>(app: &'a TestApp, plan: &str) -> (Tenant<'a>, RunningMastodon, String, Person<'a>) {
    let (t, mastodon) = (app.tenant(plan).await, Mastodon::start(&now(app)).await);
    let path = mastodon_path(&t, &mastodon).await;
    (t, mastodon, path, Person::new(app))
}

async fn assert_nothing_connected(t: &Tenant<'_>) {
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), serde_json::json!([]));
}

/// Returns the callback URL with this parameter instead, and without the code.
fn with_parameter(callback: &Url, name: &str, value: &str) -> String {
    let mut url = callback.clone();
    let remaining: Vec<(String, String)> =
        callback.query_pairs().into_owned().filter(|(n, _)| n != name && n != "code").collect();
    url.query_pairs_mut().clear().extend_pairs(remaining).append_pair(name, value);
    url.into()
}

async fn a_denied_or_rejected_connection_can_be_retried(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let denied = person.open(&with_parameter(&callback, "error", "access_denied")).await;
    assert_page(&denied, 403, "No account was connected");
    assert_nothing_connected(&t).await;
    // A configuration error has another page, which quotes the error only if it is a plain word.
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let wrong = person.open(&with_parameter(&callback, "error", "invalid_scope")).await;
    assert_page(&wrong, 502, "Mastodon rejected the connection");
    assert!(wrong.text().contains("(invalid_scope)"));
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let wrong = person.open(&with_parameter(&callback, "error", "<b>Send money</b>")).await;
    assert!(!wrong.text().contains("money"), "{}", wrong.text());
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let wrong = person.open(&with_parameter(&callback, "code", "forged")).await;
    assert_page(&wrong, 502, "Mastodon rejected the connection");
    assert_nothing_connected(&t).await;
    // The URL still works.
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
}

async fn a_url_expires_after_half_an_hour(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    app.store.clock.advance(TimeDelta::minutes(29));
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    app.store.clock.advance(TimeDelta::minutes(1));
    assert_page(&person.open(callback.as_str()).await, 410, "This link has expired");
    assert_page(&person.open(&path).await, 410, "This link has expired");
    assert_page(&person.submit(&path, &[]).await, 410, "This link has expired");
    assert_nothing_connected(&t).await;
}

async fn a_url_gives_no_more_than_its_user_may_give(app: TestApp) {
    let (t, mastodon, _, mut person) = start(&app, "unlimited").await;
    let editor = t.colleague(Role::Editor).await;
    let path = mastodon_path_of(&t, &mastodon, Some(editor.user)).await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    app.member(t.brand, editor.user, Role::Contributor).await;
    assert_page(&person.open(&path).await, 404, "This link does not exist");
    assert_page(&person.open(callback.as_str()).await, 400, "This response does not match a connection");
    let remove = async || app.write(async |tx| brands::remove_member(tx, t.brand, editor.user).await).await;
    remove().await;
    assert_page(&person.submit(&path, &[]).await, 404, "This link does not exist");
    assert_page(&person.open(callback.as_str()).await, 400, "This response does not match a connection");
    assert_nothing_connected(&t).await;
    // The page of a connected account does not depend on the user.
    app.member(t.brand, editor.user, Role::Editor).await;
    let response = person.open(callback.as_str()).await;
    remove().await;
    assert_page(&person.follow(&response).await, 200, "Connected");
}

async fn an_unknown_url_is_not_found(app: TestApp) {
    let mut person = Person::new(&app);
    for token in ["x", &"a".repeat(43), &"a".repeat(44), "..%2f"] {
        assert_page(&person.open(&format!("/connect/{token}")).await, 404, "This link does not exist");
    }
    assert_page(&person.open("/connect/choose/1").await, 403, "This is a different browser");
    assert_page(&person.open("/connect/done/1").await, 403, "This is a different browser");
}

async fn a_response_without_its_state_is_rejected(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let title = "This response does not match a connection";
    for wrong in [
        with_parameter(&callback, "state", &"a".repeat(43)),
        with_parameter(&callback, "state", ""),
        with_parameter(&callback, "x", "no code"),
        "/connect/callback/mastodon".to_owned(),
        callback.as_str().replace("/callback/mastodon", "/callback/tumblr"),
        callback.as_str().replace("/callback/mastodon", "/callback/nothing"),
    ] {
        assert_page(&person.open(&wrong).await, 400, title);
    }
    assert_nothing_connected(&t).await;
    // None of these was the real response, so that one is still valid.
    person.finish(callback.as_str()).await;
}

async fn another_browser_cannot_finish(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let mut other_browser = Person::new(&app);
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    assert_page(&other_browser.open(callback.as_str()).await, 403, "This is a different browser");
    // A browser with a cookie of another connection is a different browser, too.
    other_browser.leave(&mastodon_path(&t, &mastodon).await).await;
    assert_page(&other_browser.open(callback.as_str()).await, 403, "This is a different browser");
    assert_nothing_connected(&t).await;
    let response = person.open(callback.as_str()).await;
    let location = response.header("location").unwrap().to_owned();
    assert_page(&other_browser.open(&location).await, 403, "This is a different browser");
    assert_page(&person.follow(&response).await, 200, "Connected");
}

async fn the_cookie_is_bound_to_the_host_on_https(_: TestApp) {
    let app = TestApp::start_at(TestStore::sqlite().await, "https://crier.example").await;
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let callback = format!("{}?{}", callback.path(), callback.query().unwrap());
    // Another host of the domain can set a cookie without the prefix.
    let cookie = person.cookie.clone().unwrap();
    let unbound = cookie.strip_prefix("__Host-").expect("the prefix");
    let reply = app.visit("GET", &format!("{}{callback}", app.url)).header("cookie", unbound).send().await;
    assert_page(&reply, 403, "This is a different browser");
    assert_nothing_connected(&t).await;
    person.finish(&callback).await;
}

async fn a_form_of_another_site_is_rejected(app: TestApp) {
    let (_, _mastodon, path, _) = start(&app, "unlimited").await;
    let url = format!("{}{path}", app.url);
    let reply = app.visit("POST", &url).header("sec-fetch-site", "cross-site").send().await;
    assert_page(&reply, 403, "This form did not come from this page");
    // An older browser sends only the origin.
    for other in ["https://evil.example", "null", "http://127.0.0.1:1"] {
        let reply = app.visit("POST", &url).header("origin", other).send().await;
        assert_page(&reply, 403, "This form did not come from this page");
    }
    let reply = app.visit("POST", &url).header("origin", &app.url).send().await;
    assert_page(&reply, 200, "Redirecting to Mastodon");
    let reply = app.visit("POST", &url).header("sec-fetch-site", "same-origin").send().await;
    assert_page(&reply, 200, "Redirecting to Mastodon");
}

async fn a_missing_permission_is_named(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    mastodon.fake.oauth.set_granted_scopes("profile read:statuses read:notifications");
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    let page = person.open(callback.as_str()).await;
    assert_page(&page, 403, "A permission is missing");
    assert!(page.text().contains("publish posts, images and videos (write:statuses)"), "{}", page.text());
    assert_nothing_connected(&t).await;
}

async fn a_full_brand_is_reported(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "free").await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    for handle in ["one", "two", "three"] {
        t.account(handle).await;
    }
    assert_page(&person.open(callback.as_str()).await, 409, "The brand cannot have another account");
    let ids = t.get(&t.path("/social-accounts")).await.data(200);
    t.delete(&t.path(&format!("/social-accounts/{}", ids[0]["id"]))).await.expect(200);
    // The attempt did not use up the URL.
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
}

async fn an_unavailable_platform_is_reported(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    mastodon.fake.script("/.well-known/oauth-authorization-server", ResponseTemplate::new(503));
    assert_page(&person.submit(&path, &[]).await, 502, "Mastodon is unavailable");
    mastodon.fake.script("/api/v1/apps", ResponseTemplate::new(500));
    assert_page(&person.submit(&path, &[]).await, 502, "Mastodon is unavailable");
    for broken in ["/oauth/token", "/api/v1/accounts/verify_credentials"] {
        let callback = mastodon.fake.agree(&person.leave(&path).await);
        mastodon.fake.script(broken, ResponseTemplate::new(503));
        assert_page(&person.open(callback.as_str()).await, 502, "Mastodon is unavailable");
    }
    assert_nothing_connected(&t).await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
}

async fn an_issuer_of_another_server_is_rejected(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let mut genuine = mastodon.fake.agree(&person.leave(&path).await);
    let mut callback = genuine.clone();
    callback.query_pairs_mut().append_pair("iss", "https://evil.example/");
    assert_page(&person.open(callback.as_str()).await, 400, "The response came from somewhere else");
    assert_nothing_connected(&t).await;
    genuine.query_pairs_mut().append_pair("iss", &format!("{}/", mastodon.server.uri()));
    person.finish(genuine.as_str()).await;
}

async fn a_state_works_once(app: TestApp) {
    let (t, mastodon, path, mut person) = start(&app, "unlimited").await;
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    mastodon.fake.script("/oauth/token", ResponseTemplate::new(503));
    assert_page(&person.open(callback.as_str()).await, 502, "Mastodon is unavailable");
    assert_page(&person.open(callback.as_str()).await, 400, "This response does not match a connection");
    // The state of an older attempt is invalid after a new attempt has started.
    let older = mastodon.fake.agree(&person.leave(&path).await);
    let newer = mastodon.fake.agree(&person.leave(&path).await);
    assert_page(&person.open(older.as_str()).await, 400, "This response does not match a connection");
    person.finish(newer.as_str()).await;
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200).as_array().unwrap().len(), 1);
}

async fn only_one_of_two_people_connects(app: TestApp) {
    let (_, mastodon, path, mut first) = start(&app, "unlimited").await;
    let mut second = Person::new(&app);
    let first_callback = mastodon.fake.agree(&first.leave(&path).await);
    let callback = mastodon.fake.agree(&second.leave(&path).await);
    second.finish(callback.as_str()).await;
    assert_page(&first.open(first_callback.as_str()).await, 400, "This response does not match a connection");
    assert_page(&first.open(&path).await, 410, "This link has already been used");
}

async fn requests_are_limited(app: TestApp) {
    let mut person = Person::new(&app);
    for _ in 0..60 {
        person.open("/connect/x").await.assert_status(404);
    }
    let rejected = person.open("/connect/x").await;
    assert_page(&rejected, 429, "Too many requests");
    assert!(rejected.header("retry-after").is_some());
}
