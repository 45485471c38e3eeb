//! Images for the platforms that download them: the URL is sealed and valid for a day, and the image is converted to a
//! format that the platform accepts.

use chrono::TimeDelta;
use crier_domain::media::Asset;
use crier_domain::platform::Platform;
use crier_store::media;

use crate::support::app::{TestApp, on_one_app};
use crate::support::images;

on_one_app!(a_platform_downloads_a_supported_format, a_url_cannot_be_forged_and_expires,);

/// Uploads a PNG, and returns the asset.
async fn asset(app: &TestApp) -> Asset {
    let t = app.tenant("unlimited").await;
    let id = t.upload("a.png", &images::png(60, 50), &[]).await.data(201)["id"].as_i64().unwrap();
    media::find(&mut app.conn().await, t.brand, id).await.unwrap().unwrap()
}

/// Returns the URL from which a platform downloads an image.
fn fetch_url(app: &TestApp, asset: &Asset, platform: Platform) -> String {
    app.library(&app.url).fetch_url(app.cipher(), asset, platform, app.store.now()).unwrap()
}

async fn address(app: &TestApp, platform: Platform) -> String {
    fetch_url(app, &asset(app).await, platform)
}

async fn a_platform_downloads_a_supported_format(app: TestApp) {
    for (platform, kind) in [(Platform::Instagram, "image/jpeg"), (Platform::Threads, "image/png")] {
        let url = address(&app, platform).await;
        assert!(url.starts_with(&format!("{}/media/fetch/", app.url)), "{url}");
        let reply = app.visit("GET", &url).send().await;
        assert_eq!((reply.status, reply.header("content-type")), (200, Some(kind)));
        let shown = image::load_from_memory(&reply.body).unwrap();
        assert_eq!((shown.width(), shown.height()), (60, 50));
        assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
        assert_eq!(reply.header("x-content-type-options"), Some("nosniff"));
        let head = app.visit("HEAD", &url).send().await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(head.header("content-length"), reply.header("content-length"));
    }
}

async fn a_url_cannot_be_forged_and_expires(app: TestApp) {
    let url = address(&app, Platform::Instagram).await;
    let (path, token) = url.rsplit_once('/').unwrap();
    let changed = format!("{}{}", if token.starts_with('A') { 'B' } else { 'A' }, &token[1..]);
    for other in [changed.as_str(), "", "x", "%00", &"A".repeat(5_000)] {
        let status = app.visit("GET", &format!("{path}/{other}")).send().await.status;
        assert!(matches!(status, 404 | 414 | 431), "{status}");
    }
    app.clock.advance(TimeDelta::hours(24) - TimeDelta::seconds(1));
    assert_eq!(app.visit("GET", &url).send().await.status, 200);
    app.clock.advance(TimeDelta::seconds(1));
    assert_eq!(app.visit("GET", &url).send().await.status, 410);
    // The file is missing.
    let asset = asset(&app).await;
    let url = fetch_url(&app, &asset, Platform::Instagram);
    app.library(&app.url).storage().delete(&asset.key).await.unwrap();
    assert_eq!(app.visit("GET", &url).send().await.status, 404);
}
