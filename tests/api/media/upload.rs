//! Uploading a picture.

use crate::support::app::{TestApp, on_both_apps};
use crate::support::picture;

on_both_apps!(a_picture_is_kept_and_described);

async fn a_picture_is_kept_and_described(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let png = picture::png(30, 20);
    let texts = [("asset_type", "logo"), ("alt_text", "A sign"), ("unknown", "is ignored")];
    let reply = t.upload("../up/the sign.jpg", &png, &texts).await;
    let asset = reply.data(201);
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{}/{}", t.path("/media"), asset["id"]).as_str()));
    assert_eq!((asset["asset_type"].as_str(), asset["alt_text"].as_str()), (Some("logo"), Some("A sign")));
    assert_eq!((asset["mime_type"].as_str(), asset["filename"].as_str()), (Some("image/png"), Some("the sign.jpg")));
    assert_eq!((asset["width"].as_i64(), asset["height"].as_i64()), (Some(30), Some(20)));
    assert!(asset["source_url"].is_null());
    assert!(asset["url"].as_str().unwrap().starts_with(&format!("{}/media/", app.url)), "{asset}");
}
