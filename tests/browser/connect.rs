//! The pages under `/connect` that need no platform. `scripts/connect-flow` goes the whole way, with an OAuth server that
//! is not ours.

use crier_common::domain::platform::Platform;
use crier_common::platforms::{PlatformConfig, PlatformsConfig};
use serde_json::json;

use super::{Browser, DESKTOP, PHONE};
use crate::support::app::TestApp;
use crate::support::store::TestStore;

#[tokio::test]
async fn connect_pages_look_right() {
    let Some(browser) = Browser::find() else { return };
    let mut config = PlatformsConfig::default();
    for platform in [Platform::Instagram, Platform::Tiktok] {
        let settings = PlatformConfig { client_id: Some("app".to_owned()), ..PlatformConfig::default() };
        config.platforms.insert(platform, settings);
    }
    let app = TestApp::start_with_platforms(TestStore::sqlite().await, config).await;
    let t = app.tenant("unlimited").await;
    let mut urls = Vec::new();
    for (name, target) in [("instagram", "default"), ("tiktok", "default")] {
        let body = json!({ "platform": name, "target": target });
        let grant = t.post(&t.path("/social-accounts/authorize"), body).await.data(200);
        urls.push((name, grant["authorization_url"].as_str().unwrap().to_owned()));
    }
    for (name, url) in &urls {
        for size in [PHONE, DESKTOP] {
            browser.picture(url, &format!("connect-{name}"), size).await;
        }
        let page = browser.dom(url).await;
        assert!(page.contains("Crier will be allowed to") && page.contains("<button>Continue to"), "{page}");
    }
    app.clock.advance(chrono::TimeDelta::minutes(31));
    let unknown = format!("{}/connect/{}", app.url, "x".repeat(43));
    for (name, url) in [("expired", &urls[0].1), ("unknown", &unknown)] {
        browser.picture(url, &format!("connect-{name}"), PHONE).await;
        assert!(browser.dom(url).await.contains("<h1>"), "{name}");
    }
}
