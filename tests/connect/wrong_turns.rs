//! Every wrong turn has a page that says what happened, and connects nothing.

use chrono::TimeDelta;
use url::Url;
use wiremock::ResponseTemplate;

use super::{mastodon_path, now};
use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::mastodon::{Mastodon, RunningMastodon};
use crate::support::person::{Person, assert_page, text};

on_both_apps!(a_refusal_consumes_nothing, a_state_works_once, the_second_of_two_people_is_late,);
on_one_app!(
    a_url_expires_after_half_an_hour,
    an_unknown_url_is_not_found,
    an_answer_without_its_state_is_refused,
    another_browser_cannot_finish,
    a_form_of_another_site_is_refused,
    a_missing_permission_is_named,
    a_full_brand_is_told,
    a_platform_that_is_away_is_told,
    a_refused_code_is_told,
    an_issuer_of_another_server_is_refused,
    a_flood_is_stopped,
);

async fn setting<'a>(app: &'a TestApp, plan: &str) -> (Tenant<'a>, RunningMastodon) {
    (app.tenant(plan).await, Mastodon::start(&now(app)).await)
}

async fn assert_nothing_connected(t: &Tenant<'_>) {
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), serde_json::json!([]));
}

/// The platform's answer with another parameter, or without the code.
fn changed(back: &Url, name: &str, value: &str) -> String {
    let mut url = back.clone();
    let kept: Vec<(String, String)> =
        back.query_pairs().into_owned().filter(|(n, _)| n != name && n != "code").collect();
    url.query_pairs_mut().clear().extend_pairs(kept).append_pair(name, value);
    url.into()
}

async fn a_refusal_consumes_nothing(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let denied = person.open(&changed(&back, "error", "access_denied")).await;
    assert_page(&denied, 403, "No account was connected");
    assert_nothing_connected(&t).await;
    // An error of the set-up is another page, and quotes nothing but words.
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let wrong = person.open(&changed(&back, "error", "invalid_scope")).await;
    assert_page(&wrong, 502, "Mastodon rejected the connection");
    assert!(text(&wrong).contains("(invalid_scope)"));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let wrong = person.open(&changed(&back, "error", "<b>Send money</b>")).await;
    assert!(!text(&wrong).contains("money"), "{}", text(&wrong));
    // The URL still works.
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let arrived = person.open(back.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn a_url_expires_after_half_an_hour(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    app.store.clock.advance(TimeDelta::minutes(29));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    app.store.clock.advance(TimeDelta::minutes(1));
    assert_page(&person.open(back.as_str()).await, 410, "This link has expired");
    assert_page(&person.open(&path).await, 410, "This link has expired");
    assert_page(&person.submit(&path, &[]).await, 410, "This link has expired");
    assert_nothing_connected(&t).await;
}

async fn an_unknown_url_is_not_found(app: TestApp) {
    let mut person = Person::new(&app);
    for token in ["x", &"a".repeat(43), &"a".repeat(44), "..%2f"] {
        assert_page(&person.open(&format!("/connect/{token}")).await, 404, "This link does not exist");
    }
    assert_page(&person.open("/connect/choose/1").await, 403, "This is a different browser");
    assert_page(&person.open("/connect/done/1").await, 403, "This is a different browser");
}

async fn an_answer_without_its_state_is_refused(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let title = "This response does not match a connection";
    for wrong in [
        changed(&back, "state", &"a".repeat(43)),
        changed(&back, "state", ""),
        changed(&back, "x", "no code"),
        "/connect/callback/mastodon".to_owned(),
        back.as_str().replace("/callback/mastodon", "/callback/tumblr"),
        back.as_str().replace("/callback/mastodon", "/callback/nothing"),
    ] {
        assert_page(&person.open(&wrong).await, 400, title);
    }
    assert_nothing_connected(&t).await;
    // None of these was the answer, so it still counts.
    let arrived = person.open(back.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn another_browser_cannot_finish(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person, mut thief) = (mastodon_path(&t, &mastodon).await, Person::new(&app), Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    assert_page(&thief.open(back.as_str()).await, 403, "This is a different browser");
    // One with a cookie of its own is another one too.
    thief.leave(&mastodon_path(&t, &mastodon).await).await;
    assert_page(&thief.open(back.as_str()).await, 403, "This is a different browser");
    assert_nothing_connected(&t).await;
    let arrived = person.open(back.as_str()).await;
    let to = arrived.header("location").unwrap().to_owned();
    assert_page(&thief.open(&to).await, 403, "This is a different browser");
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn a_form_of_another_site_is_refused(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let path = mastodon_path(&t, &mastodon).await;
    let url = format!("{}{path}", app.url);
    let reply = app.visit("POST", &url).header("sec-fetch-site", "cross-site").send().await;
    assert_page(&reply, 403, "This form did not come from this page");
    // An older browser names only the origin.
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
    let (t, mastodon) = setting(&app, "unlimited").await;
    mastodon.fake.oauth.set_granted_scopes("profile read:statuses read:notifications");
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let page = person.open(back.as_str()).await;
    assert_page(&page, 403, "A permission is missing");
    assert!(text(&page).contains("publish posts and images (write:statuses)"), "{}", text(&page));
    assert_nothing_connected(&t).await;
}

async fn a_full_brand_is_told(app: TestApp) {
    let (t, mastodon) = setting(&app, "free").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    for handle in ["one", "two", "three"] {
        t.account(handle).await;
    }
    assert_page(&person.open(back.as_str()).await, 409, "The brand cannot have another account");
    let ids = t.get(&t.path("/social-accounts")).await.data(200);
    t.delete(&t.path(&format!("/social-accounts/{}", ids[0]["id"]))).await.expect(200);
    // Nothing was consumed.
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let arrived = person.open(back.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn a_platform_that_is_away_is_told(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    mastodon.fake.script("/.well-known/oauth-authorization-server", ResponseTemplate::new(503));
    assert_page(&person.submit(&path, &[]).await, 502, "Mastodon is unavailable");
    mastodon.fake.script("/api/v1/apps", ResponseTemplate::new(500));
    assert_page(&person.submit(&path, &[]).await, 502, "Mastodon is unavailable");
    for broken in ["/oauth/token", "/api/v1/accounts/verify_credentials"] {
        let back = mastodon.fake.agree(&person.leave(&path).await);
        mastodon.fake.script(broken, ResponseTemplate::new(503));
        assert_page(&person.open(back.as_str()).await, 502, "Mastodon is unavailable");
    }
    assert_nothing_connected(&t).await;
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let arrived = person.open(back.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn a_refused_code_is_told(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    let page = person.open(&changed(&back, "code", "forged")).await;
    assert_page(&page, 502, "Mastodon rejected the connection");
    assert_nothing_connected(&t).await;
}

async fn an_issuer_of_another_server_is_refused(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let mut back = mastodon.fake.agree(&person.leave(&path).await);
    let honest = back.clone();
    back.query_pairs_mut().append_pair("iss", "https://evil.example/");
    assert_page(&person.open(back.as_str()).await, 400, "The response came from somewhere else");
    assert_nothing_connected(&t).await;
    let mut honest = honest;
    honest.query_pairs_mut().append_pair("iss", &format!("{}/", mastodon.server.uri()));
    let arrived = person.open(honest.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
}

async fn a_state_works_once(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let back = mastodon.fake.agree(&person.leave(&path).await);
    mastodon.fake.script("/oauth/token", ResponseTemplate::new(503));
    assert_page(&person.open(back.as_str()).await, 502, "Mastodon is unavailable");
    assert_page(&person.open(back.as_str()).await, 400, "This response does not match a connection");
    // An older attempt's state is worth nothing once a new one began.
    let older = mastodon.fake.agree(&person.leave(&path).await);
    let newer = mastodon.fake.agree(&person.leave(&path).await);
    assert_page(&person.open(older.as_str()).await, 400, "This response does not match a connection");
    let arrived = person.open(newer.as_str()).await;
    assert_page(&person.follow(&arrived).await, 200, "Connected");
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200).as_array().unwrap().len(), 1);
}

async fn the_second_of_two_people_is_late(app: TestApp) {
    let (t, mastodon) = setting(&app, "unlimited").await;
    let path = mastodon_path(&t, &mastodon).await;
    let (mut first, mut second) = (Person::new(&app), Person::new(&app));
    let late = mastodon.fake.agree(&first.leave(&path).await);
    let back = mastodon.fake.agree(&second.leave(&path).await);
    let arrived = second.open(back.as_str()).await;
    assert_page(&second.follow(&arrived).await, 200, "Connected");
    assert_page(&first.open(late.as_str()).await, 400, "This response does not match a connection");
    assert_page(&first.open(&path).await, 410, "This link has already been used");
}

async fn a_flood_is_stopped(app: TestApp) {
    let mut person = Person::new(&app);
    for _ in 0..60 {
        person.open("/connect/x").await.assert_status(404);
    }
    let stopped = person.open("/connect/x").await;
    assert_page(&stopped, 429, "Too many requests");
    assert!(stopped.header("retry-after").is_some());
}
