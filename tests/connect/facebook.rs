//! Facebook: a page is chosen from a list that is read in several requests, and permissions that the user deselected
//! are named.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::platform::Platform;
use crier_store::{account_tokens, accounts};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use wiremock::MockServer;

use crate::support::app::TestApp;
use crate::support::facebook::Facebook;
use crate::support::person::{Person, assert_page};
use crate::support::request::assert_fields;
use crate::support::store::{TestStore, on_one};

on_one!(a_page_is_chosen_and_connected, a_declined_permission_is_named,);

const PAGES: &[(&str, &str)] = &[("41", "Bakery"), ("42", "Mill"), ("43", "Shop")];

async fn start(s: TestStore) -> (TestApp, Facebook, MockServer) {
    let (facebook, server) = Facebook::start("2026-03-01T12:00:05+0000", PAGES).await;
    facebook.oauth.add_client("app", "secret");
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        client_id: Some("app".to_owned()),
        client_secret: Some("secret".into()),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        scopes: vec!["read_insights".to_owned()],
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Facebook, settings);
    (TestApp::start_with_platforms(s, config).await, facebook, server)
}

async fn a_page_is_chosen_and_connected(s: TestStore) {
    let (app, facebook, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let body = json!({ "platform": "facebook", "target": "page" });
    let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    let (url, mut person) = (authorization["authorization_url"].as_str().unwrap(), Person::new(&app));
    let first = person.open(url).await;
    assert!(first.text().contains("Until Meta has reviewed"), "{}", first.text());
    assert!(first.text().contains("use the permission <code>read_insights</code>"), "{}", first.text());
    let authorize = person.leave(url).await;
    // The additional permission is requested; this Facebook server does not grant it.
    let scope = "pages_show_list,pages_manage_posts,pages_read_engagement,business_management,read_insights";
    assert!(authorize.query_pairs().any(|(name, value)| name == "scope" && value == scope), "{authorize}");
    let response = person.open(facebook.agree(&authorize).as_str()).await;
    let page = person.follow(&response).await.text();
    assert!(page.contains("Choose a page") && page.contains("Bakery") && page.contains("Shop"), "{page}");
    let chosen = person.submit(response.header("location").unwrap(), &[("choice", "43")]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");

    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_fields(&account, json!({ "external_id": "43", "kind": "page", "name": "Shop", "token_expires_at": null }));
    let id = account["id"].as_i64().unwrap();
    let found = accounts::with_secrets(&mut app.conn().await, app.cipher(), id).await.unwrap().unwrap();
    // Only those that were requested and granted.
    let granted = ["pages_show_list", "pages_manage_posts", "pages_read_engagement", "business_management"];
    assert_eq!(found.0.granted_scopes.unwrap(), granted);
    let secrets: Value = serde_json::from_str(found.1.expose_secret()).unwrap();
    assert_eq!(secrets["access_token"], "page-43", "the page's, not the person's: {secrets}");
    let tokens = account_tokens::find(&mut app.conn().await, id).await.unwrap().unwrap();
    assert_eq!((tokens.renewal.renewable, tokens.check_at), (false, None));
    let refresh = t.path(&format!("/social-accounts/{id}/refresh"));
    assert_eq!(t.request("POST", &refresh).send().await.data(200)["status"], "active");
    for url in facebook.requests() {
        assert!(!url.contains("access_token=") && !url.contains("client_secret"), "{url}");
    }
}

async fn a_declined_permission_is_named(s: TestStore) {
    let (app, facebook, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    facebook.declines(&["pages_manage_posts"]);
    let body = json!({ "platform": "facebook" });
    let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    let mut person = Person::new(&app);
    let authorize = person.leave(authorization["authorization_url"].as_str().unwrap()).await;
    let page = person.open(facebook.agree(&authorize).as_str()).await;
    assert_page(&page, 403, "A permission is missing");
    assert!(
        page.text().contains("publish posts, images and videos on the page (pages_manage_posts)"),
        "{}",
        page.text()
    );
}
