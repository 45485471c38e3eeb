//! The pages under `/connect` that need no platform. `scripts/connect-flow` goes the whole way, with an OAuth server that
//! is not ours.

use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::platform::Platform;
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::driver::Driver;
use super::{DESKTOP, PHONE};
use crate::support::app::{Tenant, TestApp};
use crate::support::person::{Person, text};
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
        let grant = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
        urls.push((name, grant["authorization_url"].as_str().unwrap().to_owned()));
    }
    for (name, url) in &urls {
        for size in [PHONE, DESKTOP] {
            let page = browser.picture(url, &format!("connect-{name}"), size).await;
            assert!(page.contains("Crier will be allowed to") && page.contains("<button>Continue to"), "{page}");
        }
    }
    app.clock.advance(chrono::TimeDelta::minutes(31));
    let unknown = format!("{}/connect/{}", app.url, "x".repeat(43));
    for (name, url) in [("expired", &urls[0].1), ("unknown", &unknown)] {
        let page = browser.picture(url, &format!("connect-{name}"), PHONE).await;
        assert!(page.contains("<h1>"), "{name}");
    }
    browser.quit().await;
}

async fn with_tumblr(blogs: &[(&str, &str)]) -> (TestApp, Tumblr, MockServer) {
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
    let grant = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
    grant["authorization_url"].as_str().unwrap().to_owned()
}

/// A Tumblr without a blog, a full brand, and a Tumblr that does not answer. These pages need a platform and a cookie:
/// the browser is given what a person got.
#[tokio::test]
async fn wrong_turns_at_a_platform_look_right() {
    let (empty, tumblr, _server) = with_tumblr(&[]).await;
    let (url, mut person) = (authorize(&empty.tenant("free").await).await, Person::new(&empty));
    let back = tumblr.oauth.agree(&person.leave(&url).await);
    let nothing = person.open(back.as_str()).await;

    let (app, tumblr, server) = with_tumblr(&[("ann", "Ann's bread")]).await;
    let t = app.tenant("free").await;
    let (url, mut person) = (authorize(&t).await, Person::new(&app));
    let back = tumblr.oauth.agree(&person.leave(&url).await);
    for handle in ["one", "two", "three"] {
        t.account(handle).await;
    }
    let full = person.open(back.as_str()).await;
    let back = tumblr.oauth.agree(&person.leave(&url).await);
    server.reset().await;
    Mock::given(any()).respond_with(ResponseTemplate::new(503)).mount(&server).await;
    let away = person.open(back.as_str()).await;

    let Some(browser) = Driver::start(&app.url).await else { return };
    for (name, title, page) in [
        ("nothing", "There is nothing to connect", nothing),
        ("full", "The brand cannot have another account", full),
        ("away", "Tumblr is unavailable", away),
    ] {
        let html = text(&page).replace("href=\"/connect.css\"", &format!("href=\"{}/connect.css\"", app.url));
        assert!(html.contains(&format!("<h1>{title}</h1>")), "{html}");
        let file = tempfile::Builder::new().suffix(".html").tempfile().unwrap();
        std::fs::write(file.path(), html).unwrap();
        let url = format!("file://{}", file.path().display());
        for size in [PHONE, DESKTOP] {
            browser.picture(&url, &format!("connect-{name}"), size).await;
        }
    }
    browser.quit().await;
}
