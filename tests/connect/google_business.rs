//! Google Business Profile: the page names what Google may reject before it redirects to Google, and a location is
//! chosen by a search.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::platform::Platform;
use serde_json::json;
use wiremock::MockServer;

use crate::support::app::{Tenant, TestApp};
use crate::support::google::{Google, no_quota};
use crate::support::person::{Person, assert_page};
use crate::support::request::assert_fields;
use crate::support::store::{TestStore, on_one};

on_one!(a_location_is_found_and_connected, without_quota_the_page_tells_the_operator_what_to_do,);

async fn start(s: TestStore) -> (TestApp, Google, MockServer) {
    let locations: Vec<u64> = (1..=40).collect();
    let (google, server) = Google::start(&[(1, &locations)]).await;
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        client_id: Some("id".to_owned()),
        client_secret: Some("secret".into()),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::GoogleBusiness, settings);
    (TestApp::start_with_platforms(s, config).await, google, server)
}

async fn authorization_url(t: &Tenant<'_>) -> String {
    let body = json!({ "platform": "google_business" });
    let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    authorization["authorization_url"].as_str().unwrap().to_owned()
}

async fn a_location_is_found_and_connected(s: TestStore) {
    let (app, google, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let (url, mut person) = (authorization_url(&t).await, Person::new(&app));
    let first = person.open(&url).await.text();
    for part in ["your Google Business Profile location", "a quota of 0", "after seven days"] {
        assert!(first.contains(part), "{part}: {first}");
    }
    let callback = google.agree(&person.leave(&url).await);
    let response = person.open(callback.as_str()).await;
    let page = person.follow(&response).await.text();
    assert!(page.contains("Choose a location") && page.contains("Search by name"), "{page}");
    let choice_path = response.header("location").unwrap();
    let found = person.open(&format!("{choice_path}?q=main+street+37")).await.text();
    assert_eq!(found.matches("type=\"radio\"").count(), 1, "by its address: {found}");
    let chosen = person.submit(choice_path, &[("choice", "accounts/1/locations/37")]).await;
    assert_page(&person.follow(&chosen).await, 200, "Connected");
    let account = t.get(&t.path("/social-accounts")).await.data(200)[0].clone();
    assert_fields(&account, json!({ "name": "Bakery 37", "kind": "page", "profile_url": "https://maps.example/37" }));
    let refresh = t.path(&format!("/social-accounts/{}/refresh", account["id"]));
    assert_eq!(t.request("POST", &refresh).send().await.data(200)["status"], "active");
}

async fn without_quota_the_page_tells_the_operator_what_to_do(s: TestStore) {
    let (app, google, _server) = start(s).await;
    let t = app.tenant("unlimited").await;
    let (url, mut person) = (authorization_url(&t).await, Person::new(&app));
    let callback = google.agree(&person.leave(&url).await);
    google.script(no_quota());
    let page = person.open(callback.as_str()).await;
    assert_page(&page, 502, "Google Business Profile rejected the connection");
    assert!(page.text().contains("the operator must apply for it"), "{}", page.text());
    assert_eq!(t.get(&t.path("/social-accounts")).await.data(200), json!([]));
}
