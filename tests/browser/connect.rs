//! The pages under `/connect` that need no platform. `scripts/connect-flow` tests the complete flow with a third-party
//! OAuth server.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::platform::Platform;
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::driver::Driver;
use super::{DESKTOP, PHONE};
use crate::support::app::{Tenant, TestApp};
use crate::support::person::Person;
use crate::support::store::TestStore;
use crate::support::tumblr::Tumblr;

#[tokio::test]
async fn connect_pages_look_right() {
    let mut config = PlatformsConfig::default();
    for platform in [Platform::Instagram, Platform::Tiktok] {
        let settings = PlatformConfig {
            client_id: Some("app".to_owned()),
            client_secret: Some("secret".into()),
            ..PlatformConfig::default()
        };
        config.platforms.insert(platform, settings);
    }
    let app = TestApp::start_with_platforms(TestStore::sqlite().await, config).await;
    let Some(browser) = Driver::start(&app.url).await else { return };
    let t = app.tenant("unlimited").await;
    let mut urls = Vec::new();
    for (name, target) in [("instagram", "default"), ("tiktok", "default")] {
        let body = json!({ "platform": name, "target": target });
        let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
        urls.push((name, authorization["authorization_url"].as_str().unwrap().to_owned()));
    }
    for (name, url) in &urls {
        for size in [PHONE, DESKTOP] {
            let page = browser.save_screenshot(url, &format!("connect-{name}"), size).await;
            assert!(page.contains("Crier will be allowed to") && page.contains("<button>Continue to"), "{page}");
        }
    }
    app.clock.advance(chrono::TimeDelta::minutes(31));
    let unknown = format!("{}/connect/{}", app.url, "x".repeat(43));
    for (name, url) in [("expired", &urls[0].1), ("unknown", &unknown)] {
        let page = browser.save_screenshot(url, &format!("connect-{name}"), PHONE).await;
        assert!(page.contains("<h1>"), "{name}");
    }
    browser.quit().await;
}

async fn start_with_tumblr(blogs: &[(&str, &str)]) -> (TestApp, Tumblr, MockServer) {
    let (tumblr, server) = Tumblr::start(blogs).await;
    tumblr.oauth.add_client("app", "secret");
    let mut config = PlatformsConfig::default();
    let settings = PlatformConfig {
        client_id: Some("app".to_owned()),
        client_secret: Some("secret".into()),
        base_url: Some(server.uri()),
        auth_url: Some(server.uri()),
        ..PlatformConfig::default()
    };
    config.platforms.insert(Platform::Tumblr, settings);
    (TestApp::start_with_platforms(TestStore::sqlite().await, config).await, tumblr, server)
}

async fn authorize(t: &Tenant<'_>) -> String {
    let body = json!({ "platform": "tumblr", "target": "default" });
    let authorization = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    authorization["authorization_url"].as_str().unwrap().to_owned()
}

/// Tests a Tumblr account without a blog, a full brand, and an unavailable Tumblr. These pages need a platform and a
/// cookie, so the browser shows copies of the pages that a test client received.
#[tokio::test]
async fn error_pages_of_a_platform_look_right() {
    let (empty, tumblr, _server) = start_with_tumblr(&[]).await;
    let (url, mut person) = (authorize(&empty.tenant("free").await).await, Person::new(&empty));
    let callback = tumblr.oauth.agree(&person.leave(&url).await);
    let no_blog = person.open(callback.as_str()).await;

    let (app, tumblr, server) = start_with_tumblr(&[("ann", "Ann's bread")]).await;
    let t = app.tenant("free").await;
    let (url, mut person) = (authorize(&t).await, Person::new(&app));
    let callback = tumblr.oauth.agree(&person.leave(&url).await);
    for handle in ["one", "two", "three"] {
        t.account(handle).await;
    }
    let full_brand = person.open(callback.as_str()).await;
    let callback = tumblr.oauth.agree(&person.leave(&url).await);
    server.reset().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(503)).mount(&server).await;
    let unavailable = person.open(callback.as_str()).await;

    let Some(browser) = Driver::start(&app.url).await else { return };
    for (name, title, page) in [
        ("nothing", "There is nothing to connect", no_blog),
        ("full", "The brand cannot have another account", full_brand),
        ("away", "Tumblr is unavailable", unavailable),
    ] {
        let html = page.text().replace("href=\"/connect.css\"", &format!("href=\"{}/connect.css\"", app.url));
        assert!(html.contains(&format!("<h1>{title}</h1>")), "{html}");
        let file = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
        std::fs::write(file.path(), html).unwrap();
        let url = format!("file://{}", file.path().display());
        for size in [PHONE, DESKTOP] {
            browser.save_screenshot(&url, &format!("connect-{name}"), size).await;
        }
    }
    browser.quit().await;
}
