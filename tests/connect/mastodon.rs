//! Connecting a Mastodon account, from the one-time URL to the account.

use crier_domain::access::{KeyMode, Role, Scopes};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::authorizations::NewAuthorization;
use crier_store::keys::{KeyLimits, NewKey};
use crier_store::{accounts, authorizations, brands, keys};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{mastodon_path, now};
use crate::support::app::{Tenant, TestApp, on_one_app};
use crate::support::client::until_true;
use crate::support::images;
use crate::support::mastodon::{Limits, Mastodon};
use crate::support::oauth::error;
use crate::support::person::{Person, assert_page};

on_one_app!(
    a_person_connects_an_account_through_two_replicas,
    an_application_is_registered_once_for_each_server,
    a_server_that_forgot_the_application_gets_a_new_one,
    an_older_server_is_used_without_pkce,
    connecting_again_renews_the_account,
    a_disconnect_leaves_the_account_of_another_workspace_working,
    a_colleague_cannot_replace_the_credentials_of_another_brand,
    a_server_that_does_not_check_applications_keeps_its_own,
    the_database_holds_no_secret_in_the_clear,
    posts_are_checked_by_the_limits_of_the_account_s_server,
    a_server_that_does_not_state_its_limits_is_connected,
);
on_one_app!("unlimited" => servers_on_one_host_are_different_accounts);

async fn a_person_connects_an_account_through_two_replicas(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    let replica = app.replica().await;
    let webhook = json!({ "url": "https://8.8.8.8/hook", "events": ["account.connected"] });
    let webhook = t.post("/webhooks", webhook).await.data(201)["id"].clone();
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));

    let first = person.open(&path).await;
    assert_page(&first, 200, "Connect Mastodon");
    for part in ["Bakery", "127.0.0.1", "publish posts, images and videos", "Continue to Mastodon"] {
        assert!(first.text().contains(part), "{part}: {}", first.text());
    }
    // Each step uses another replica than the step before.
    let authorize = person.leave(&format!("{replica}{path}")).await;
    let query = authorize.query_pairs().into_owned().collect::<std::collections::BTreeMap<_, _>>();
    assert_eq!(query["redirect_uri"], format!("{}/connect/callback/mastodon", app.url));
    assert_eq!(query["scope"], "profile read:statuses read:notifications write:statuses write:media");
    assert_eq!((query["code_challenge_method"].as_str(), query["state"].len()), ("S256", 43));
    let callback = mastodon.fake.agree(&authorize);
    let response = person.open(callback.as_str()).await;
    let done = person.follow(&response).await;
    assert_page(&done, 200, "Connected");
    assert!(done.text().contains("Ann &#60;b&#62;") && !done.text().contains("access-"), "{}", done.text());

    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!(account["platform"], "mastodon");
    let name = format!("ann@{}", mastodon.server.address());
    assert_eq!((&account["username"], &account["status"]), (&json!(name), &json!("active")));
    assert_eq!((&account["kind"], &account["token_expires_at"]), (&json!("profile"), &json!(null)));
    let data = json!({ "brand_id": t.brand, "social_account_id": account["id"], "platform": "mastodon" });
    let deliveries = t.get(&format!("/webhooks/{webhook}/deliveries")).await.data(200);
    assert_eq!(deliveries[0]["payload"]["data"], data);

    // The URL has been used. If the same browser loads the callback again, it still shows the result.
    assert_page(&person.open(&path).await, 410, "This link has already been used");
    assert_page(&person.submit(&path, &[]).await, 410, "This link has already been used");
    let again = person.open(callback.as_str()).await;
    assert_page(&person.follow(&again).await, 200, "Connected");
}

async fn connect(t: &crate::support::app::Tenant<'_>, mastodon: &crate::support::mastodon::RunningMastodon) {
    let (path, mut person) = (mastodon_path(t, mastodon).await, Person::new(t.app));
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    person.finish(callback.as_str()).await;
}

async fn an_application_is_registered_once_for_each_server(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    let other = app.tenant("unlimited").await;
    connect(&t, &mastodon).await;
    connect(&other, &mastodon).await;
    assert_eq!(mastodon.fake.registrations(), 1);
    let second = Mastodon::start(&now(&app)).await;
    connect(&t, &second).await;
    assert_eq!((mastodon.fake.registrations(), second.fake.registrations()), (1, 1));
}

async fn a_server_that_forgot_the_application_gets_a_new_one(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    connect(&t, &mastodon).await;
    mastodon.fake.oauth.forget_clients();
    connect(&t, &mastodon).await;
    assert_eq!(mastodon.fake.registrations(), 2);
}

async fn an_older_server_is_used_without_pkce(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    mastodon.fake.set_older();
    let authorize = Person::new(&app).leave(&mastodon_path(&t, &mastodon).await).await;
    let query: Vec<_> = authorize.query_pairs().map(|(name, _)| name.into_owned()).collect();
    assert!(!query.contains(&"code_challenge".to_owned()), "{query:?}");
    assert!(authorize.query().unwrap().contains("read%3Aaccounts"), "{authorize}");
    connect(&t, &mastodon).await;
}

async fn connecting_again_renews_the_account(app: TestApp) {
    let (t, mastodon) = (app.tenant("free").await, Mastodon::start(&now(&app)).await);
    connect(&t, &mastodon).await;
    let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].as_i64().unwrap();
    for handle in ["one", "two"] {
        t.account(handle).await;
    }
    // The brand is full, but this account is one of its accounts.
    connect(&t, &mastodon).await;
    let listed = t.get(&t.path("/social-accounts")).await.data(200);
    let again = listed.as_array().unwrap().iter().filter(|account| account["platform"] == "mastodon");
    assert_eq!(again.map(|account| account["id"].as_i64().unwrap()).collect::<Vec<_>>(), [id]);
    let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
    let secrets: serde_json::Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    assert!(mastodon.fake.oauth.knows(secrets["access_token"].as_str().unwrap()));
    assert_eq!(secrets["instance"], mastodon.server.uri());
}

async fn token(t: &Tenant<'_>) -> String {
    let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].as_i64().unwrap();
    let found = accounts::with_secrets(&mut t.app.conn().await, t.app.cipher(), id).await.unwrap().unwrap();
    let secrets: serde_json::Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    secrets["access_token"].as_str().unwrap().to_owned()
}

/// Mastodon returns the same token for the same user and application.
async fn a_disconnect_leaves_the_account_of_another_workspace_working(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    mastodon.fake.oauth.reuse_tokens();
    let other = app.tenant("unlimited").await;
    for tenant in [&t, &other, &other] {
        connect(tenant, &mastodon).await;
    }
    let token = token(&other).await;
    let disconnect = async |t: &Tenant<'_>| {
        let id = t.get(&t.path("/social-accounts")).await.data(200)[0]["id"].clone();
        t.delete(&t.path(&format!("/social-accounts/{id}"))).await.data(200);
        id
    };
    disconnect(&t).await;
    let id = other.get(&other.path("/social-accounts")).await.data(200)[0]["id"].clone();
    let refreshed = other.request("POST", &other.path(&format!("/social-accounts/{id}/refresh"))).send().await;
    assert_eq!(refreshed.data(200)["status"], "active");
    disconnect(&other).await;
    until_true("the last disconnect revokes the token", || !mastodon.fake.oauth.knows(&token)).await;
    let requests = mastodon.server.received_requests().await.unwrap();
    assert_eq!(requests.iter().filter(|request| request.url.path() == "/oauth/revoke").count(), 1);
}

async fn a_colleague_cannot_replace_the_credentials_of_another_brand(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    connect(&t, &mastodon).await;
    let before = token(&t).await;
    let colleague = t.colleague(Role::Editor).await;
    let brand = colleague.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].as_i64().unwrap();
    app.write(async |tx| brands::remove_member(tx, t.brand, colleague.user).await).await;
    let path = async |key_id: Option<i64>| {
        let new = NewAuthorization {
            brand_id: brand,
            user_id: Some(colleague.user),
            key_id,
            platform: Platform::Mastodon,
            target: ConnectTarget::Default,
            instance: &mastodon.server.uri(),
        };
        let token = app.write(async |tx| authorizations::create(tx, new).await).await;
        format!("/connect/{}", token.expose_secret())
    };
    let mut person = Person::new(&app);
    let callback = mastodon.fake.agree(&person.leave(&path(None).await).await);
    assert_page(&person.open(callback.as_str()).await, 409, "Another brand has this account");
    assert_eq!(token(&t).await, before);
    // A member of both brands may replace them, but not with a key that cannot use the other brand.
    app.member(t.brand, colleague.user, Role::Editor).await;
    let (user, scopes) = (colleague.user, Scopes::all());
    let brands = [brand];
    let limits = KeyLimits { brands: Some(&brands), role: None };
    let new = NewKey { limits, ..NewKey::new(KeyMode::Live, &scopes) };
    let created = app.write(async |tx| keys::create_within_cap(tx, user, &new).await).await;
    assert!(created.is_some());
    let limited = app.newest_id("api_keys").await;
    let callback = mastodon.fake.agree(&person.leave(&path(Some(limited)).await).await);
    assert_page(&person.open(callback.as_str()).await, 409, "Another brand has this account");
    assert_eq!(token(&t).await, before);
    let callback = mastodon.fake.agree(&person.leave(&path(None).await).await);
    person.finish(callback.as_str()).await;
    assert_ne!(token(&t).await, before);
}

async fn servers_on_one_host_are_different_accounts(t: Tenant<'_>) {
    let servers = [Mastodon::start(&now(t.app)).await, Mastodon::start(&now(t.app)).await];
    for mastodon in &servers {
        connect(&t, mastodon).await;
    }
    let listed = t.get(&t.path("/social-accounts")).await.data(200);
    let names: Vec<_> = listed.as_array().unwrap().iter().rev().map(|one| one["external_id"].clone()).collect();
    let expected = servers.each_ref().map(|mastodon| json!(format!("ann@{}", mastodon.server.address())));
    assert_eq!(names, expected);
}

/// A server may reject the check itself; a new application is registered only if the server does not know the old one.
async fn a_server_that_does_not_check_applications_keeps_its_own(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    connect(&t, &mastodon).await;
    for (code, registrations) in [("unsupported_grant_type", 1), ("invalid_client", 2), ("invalid_request", 3)] {
        mastodon.fake.script("/oauth/token", error(400, code));
        connect(&t, &mastodon).await;
        assert_eq!(mastodon.fake.registrations(), registrations, "{code}");
    }
}

async fn the_database_holds_no_secret_in_the_clear(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let authorize = person.leave(&path).await;
    let state = authorize.query_pairs().find(|(name, _)| name == "state").unwrap().1.into_owned();
    let token = path.rsplit('/').next().unwrap().to_owned();
    let contains = async |column: &str, text: &str| {
        let stored: Vec<u8> = app.value(format!("SELECT {column} FROM authorizations")).await;
        stored.windows(text.len()).any(|part| part == text.as_bytes())
    };
    assert!(!contains("token_hash", &token).await && !contains("state_hash", &state).await);
    assert!(!contains("data", "shh-1").await && !contains("data", "verifier").await);
    let ciphertext: Vec<u8> = app.value("SELECT client_secret FROM applications").await;
    assert!(!ciphertext.windows(5).any(|part| part == b"shh-1"));
    let callback = mastodon.fake.agree(&authorize);
    person.open(callback.as_str()).await;
    assert_eq!(app.count_rows("authorizations WHERE data IS NOT NULL").await, 0);
}

async fn posts_are_checked_by_the_limits_of_the_account_s_server(app: TestApp) {
    let (t, small, large) =
        (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await, Mastodon::start(&now(&app)).await);
    small.fake.set_limits(Limits { max_characters: 40, max_images: 1, max_alt_text: Some(10), ..Limits::default() });
    large.fake.set_limits(Limits { software: "gotosocial", max_characters: 5_000, max_images: 6, ..Limits::default() });
    connect(&t, &small).await;
    connect(&t, &large).await;
    let accounts = t.get(&t.path("/social-accounts")).await.data(200);
    let limits = json!({
        "software": "mastodon", "max_characters": 40, "url_length": 23, "max_images": 1, "max_alt_text": 10,
        "max_image_bytes": 16 << 20, "max_image_pixels": 33_177_600,
        "mime_types": ["image/jpeg", "image/png", "image/gif", "image/webp"], "max_video_bytes": 103_809_024,
        "max_video_pixels": 8_294_400, "max_frame_rate": 120, "video_types": ["video/mp4"],
        "read_at": accounts[1]["connected_at"],
    });
    let other = &accounts[0]["limits"];
    assert_eq!((&accounts[1]["limits"], &other["software"]), (&limits, &json!("gotosocial")));
    assert_eq!((&other["max_characters"], &other["url_length"]), (&json!(5_000), &json!(null)));
    let (small, large) = (&accounts[1]["id"], &accounts[0]["id"]);
    let check = async |body: Value| t.post(&t.path("/posts/validate"), body).await.data(200);
    let codes = |target: &Value| -> Vec<String> {
        target["problems"].as_array().unwrap().iter().map(|p| p["code"].as_str().unwrap().to_owned()).collect()
    };

    // Mastodon counts the link as 23 characters and the mention without its server; the other server counts the whole
    // text.
    let text = "https://example.com/a/long/path/to/bread, @bob@b.example, today";
    let checked = check(json!({ "content": text, "accounts": [small, large] })).await;
    let [one, two] = [0, 1].map(|index| checked["targets"][index].clone());
    assert_eq!((&one["length"], &one["limit"], codes(&one)), (&json!(23 + 2 + 4 + 2 + 5), &json!(40), vec![]));
    assert_eq!((&two["length"], &two["limit"], codes(&two)), (&json!(text.len()), &json!(5_000), vec![]));

    // The content warning counts towards the limit.
    let options = json!([{ "account_id": small, "options": { "spoiler_text": "Bread!" } }]);
    let body = json!({ "content": text, "accounts": [small, large], "overrides": options, "schedule_type": "now" });
    let checked = check(body.clone()).await;
    assert_eq!((&checked["targets"][0]["length"], &checked["targets"][1]["length"]), (&json!(42), &json!(text.len())));
    assert_eq!(codes(&checked["targets"][0]), ["text_too_long"]);
    let message = checked["targets"][0]["problems"][0]["message"].as_str().unwrap();
    assert!(message.ends_with("at most 40 characters; this text and its content warning have 42."), "{message}");
    let error = t.post(&t.path("/posts"), body).await.expect_error(422, "validation_failed");
    assert_eq!(error["fields"]["content"], json!([message]));

    // Images and alt texts; long alt texts are shortened.
    let upload = async |alt: &str| {
        let uploaded = t.upload("a.png", &images::png(20, 20), &[("alt_text", alt)]).await;
        uploaded.data(201)["id"].clone()
    };
    let media = [upload("Bread").await, upload("A loaf of bread").await];
    let checked = check(json!({ "content": "x", "media": media, "accounts": [small, large] })).await;
    assert_eq!(
        (codes(&checked["targets"][0]), codes(&checked["targets"][1])),
        (vec!["too_many_images".into()], vec![])
    );
    let message = "Mastodon accepts alt texts of at most 10 characters. The alt text of image 2 has 15 and will be truncated at the end of a word.";
    let warning = json!({ "field": "media", "code": "alt_text_cut", "message": message });
    assert_eq!(checked["targets"][0]["warnings"], json!([warning]));
    assert_eq!(checked["targets"][1]["warnings"], json!([]));
}

async fn a_server_that_does_not_state_its_limits_is_connected(app: TestApp) {
    let (t, mastodon) = (app.tenant("unlimited").await, Mastodon::start(&now(&app)).await);
    let (path, mut person) = (mastodon_path(&t, &mastodon).await, Person::new(&app));
    let callback = mastodon.fake.agree(&person.leave(&path).await);
    mastodon.fake.script("/api/v2/instance", wiremock::ResponseTemplate::new(500));
    person.finish(callback.as_str()).await;
    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!(account["limits"], json!(null));
    let body = json!({ "content": "x".repeat(501), "accounts": [account["id"]] });
    let checked = t.post(&t.path("/posts/validate"), body).await.data(200);
    assert_eq!((&checked["targets"][0]["limit"], &checked["valid"]), (&json!(500), &json!(false)));
}
