//! Shopify: a shop that the operator names, a response that Shopify signs, and a blog that the user chooses.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_store::authorizations::{self, NewAuthorization};
use crier_store::{account_tokens, accounts};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use url::Url;
use wiremock::MockServer;

use crate::support::app::{Tenant, TestApp};
use crate::support::person::{Person, assert_page};
use crate::support::shopify::{SECRET, SHOP, Shopify, blog_id};
use crate::support::store::{TestStore, on_one};

on_one!(
    a_blog_of_a_shop_is_chosen_and_connected,
    a_response_that_shopify_did_not_sign_is_rejected,
    a_shop_is_configured_by_an_application,
);

fn settings(id: Option<&str>, server: Option<&MockServer>) -> PlatformsConfig {
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        client_id: id.map(str::to_owned),
        client_secret: Some(SECRET.into()),
        base_url: server.map(MockServer::uri),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Shopify, settings);
    config
}

async fn start(s: TestStore) -> (TestApp, Shopify, MockServer) {
    let (shopify, server) = Shopify::start(&["News", "Recipes"]).await;
    (TestApp::start_with_platforms(s, settings(Some("id"), Some(&server))).await, shopify, server)
}

/// Returns the path of a one-time URL, as `crier account connect` creates it.
async fn path(t: &Tenant<'_>) -> String {
    let instance = format!("https://{SHOP}");
    let (platform, target) = (Platform::Shopify, ConnectTarget::Default);
    let new =
        NewAuthorization { brand_id: t.brand, user_id: None, key_id: None, platform, target, instance: &instance };
    let token = t.app.write(async |tx| authorizations::create(tx, new).await).await;
    format!("/connect/{}", token.expose_secret())
}

async fn a_blog_of_a_shop_is_chosen_and_connected(s: TestStore) {
    let (app, shopify, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (path(&t).await, Person::new(&app));
    let first = person.open(&path).await.text();
    assert!(first.contains(SHOP) && first.contains("your Shopify blog") && first.contains("custom application"));
    let authorize = person.leave(&path).await;
    assert_eq!(authorize.host_str(), Some(SHOP));
    assert!(authorize.query_pairs().any(|(name, value)| name == "scope" && value == "write_content"), "{authorize}");
    let response = person.open(shopify.agree(&authorize).as_str()).await;
    let page = person.follow(&response).await.text();
    assert!(page.contains("Choose a blog") && page.contains("Recipes") && !page.contains("access-"), "{page}");
    let chosen = person.submit(response.header("location").unwrap(), &[("choice", &blog_id(2))]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");

    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_eq!((&account["external_id"], &account["kind"]), (&json!(blog_id(2)), &json!("store")));
    assert_eq!((&account["name"], &account["username"]), (&json!("Rye & Co: Recipes"), &json!(SHOP)));
    let id = account["id"].as_i64().unwrap();
    let tokens = account_tokens::find(&mut app.conn().await, id).await.unwrap().unwrap();
    assert!(tokens.renewal.renewable && tokens.renewal.rotates && tokens.check_at.is_some());
    // The API refreshes the tokens; both are replaced.
    let tokens = async || {
        let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
        let secrets: Value = serde_json::from_str(found.1.expose_secret()).unwrap();
        (secrets["access_token"].clone(), secrets["refresh_token"].clone())
    };
    let before = tokens().await;
    let refresh = t.path(&format!("/social-accounts/{id}/refresh"));
    assert_eq!(t.request("POST", &refresh).send().await.data(200)["status"], "active");
    let after = tokens().await;
    assert!(before.0 != after.0 && before.1 != after.1 && after.1.is_string());
}

async fn a_response_that_shopify_did_not_sign_is_rejected(s: TestStore) {
    let (app, shopify, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let (path, mut person) = (path(&t).await, Person::new(&app));
    let callback = shopify.agree(&person.leave(&path).await);
    let without = |name: &str| {
        let mut changed = callback.clone();
        let rest: Vec<_> = callback.query_pairs().filter(|(found, _)| found != name).collect();
        changed.query_pairs_mut().clear().extend_pairs(rest);
        changed
    };
    let replaced = |from: &str, to: &str| Url::parse(&callback.as_str().replace(from, to)).unwrap();
    for forged in [
        without("hmac"),
        without("shop"),
        without("timestamp"),
        replaced(SHOP, "evil.myshopify.com"),
        replaced("timestamp=1", "timestamp=2"),
        replaced("hmac=", "hmac=0"),
    ] {
        assert!(forged != callback);
        let page = person.open(forged.as_str()).await;
        assert_page(&page, 400, "The response came from somewhere else");
    }
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([]));
    // These responses did not use up the attempt.
    let response = person.open(callback.as_str()).await;
    assert_page(&person.follow(&response).await, 200, "Choose a blog");
}

async fn a_shop_is_configured_by_an_application(s: TestStore) {
    let app = TestApp::start_with_platforms(s, settings(None, None)).await;
    let t = app.tenant("unlimited").await;
    let platforms = t.get(&t.path("/social-accounts/platforms")).await.data(200);
    let found = platforms.as_array().unwrap().iter().find(|platform| platform["platform"] == "shopify").unwrap();
    assert_eq!((&found["configured"], &found["mode"]), (&json!(false), &json!("self_connect_oauth")));
    let page = Person::new(&app).submit(&path(&t).await, &[]).await;
    assert_page(&page, 503, "This platform is not set up");
}
