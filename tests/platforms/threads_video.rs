//! Videos on Threads, against a server that creates and publishes containers as Meta documents. `instagram_video.rs` has
//! what they have in common with those of Instagram.

use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, OutgoingPost, ReconcileResult, StageResult, Video, VideoTransfer};
use serde_json::{Value, json};

use super::instagram::{Started, start};
use super::support::video;
use crate::support::containers::THREADS;
use crate::support::facebook::error;

async fn threads() -> Started {
    start(Platform::Threads, THREADS).await
}

/// Returns a post with a video among its images.
fn with_video(s: &Started, images: &[&str], position: usize) -> OutgoingPost {
    OutgoingPost { videos: vec![Video { position, ..video("bytes of a video") }], ..s.post(images) }
}

fn with(mut request: Value, name: &str, value: Value) -> Value {
    request[name] = value;
    request
}

fn clip() -> Value {
    json!({ "media_type": "VIDEO", "video_url": "https://crier.example/media/clip.mp4", "alt_text": "a <clip>" })
}

#[tokio::test]
async fn a_single_video_is_one_container_with_its_alt_text() {
    let s = threads().await;
    assert_eq!(s.connector.video_transfer(), VideoTransfer::Fetched);
    let mut outgoing = with_video(&s, &[], 0);
    // A post with a video has no card.
    outgoing.options.insert("link".to_owned(), json!("https://a.example/"));
    outgoing.options.insert("topic_tag".to_owned(), json!("bread"));
    let published = s.publish(&mut outgoing).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://www.example/p/800/"));
    assert_eq!(s.server.made(), [with(with(clip(), "text", json!("Fresh bread")), "topic_tag", json!("bread"))]);
    assert_eq!(s.server.published(), ["Fresh bread"]);
}

#[tokio::test]
async fn images_and_videos_of_a_carousel_keep_their_order() {
    let s = threads().await;
    let mut outgoing = with_video(&s, &["cat", "dog"], 2);
    outgoing.videos.push(Video { id: 10, position: 3, alt_text: None, ..video("other bytes") });
    s.publish(&mut outgoing).await.unwrap();
    let image = |name: &str| {
        json!({ "media_type": "IMAGE", "image_url": format!("https://crier.example/media/{name}.png"),
            "alt_text": format!("a <{name}>") })
    };
    let plain = json!({ "media_type": "VIDEO", "video_url": "https://crier.example/media/clip.mp4" });
    let items = [image("cat"), image("dog"), clip(), plain];
    let mut expected: Vec<Value> = items.into_iter().map(|item| with(item, "is_carousel_item", json!(true))).collect();
    expected.push(json!({ "media_type": "CAROUSEL", "children": "100,101,102,103", "text": "Fresh bread" }));
    assert_eq!(s.server.made(), expected);
}

#[tokio::test]
async fn a_video_that_threads_does_not_accept_is_final() {
    for (reason, text) in [
        ("INVALID_DURATION", "duration"),
        ("INVALID_ASPEC_RATIO", "aspect ratio"),
        ("FAILED_PROCESSING_AUDIO", "audio"),
        ("FAILED_PROCESSING_VIDEO", "process the video"),
        ("INVALID_SOMETHING_NEW", "does not accept the file"),
    ] {
        let s = threads().await;
        let mut outgoing = with_video(&s, &[], 0);
        s.stage(&mut outgoing).await.unwrap();
        s.server.fail("100", reason);
        let rejected = s.stage(&mut outgoing).await.unwrap_err();
        let CallError::Permanent(failure) = &rejected else { panic!("{rejected:?}") };
        assert_eq!((failure.category, failure.platform_code.as_deref()), (Category::InvalidContent, Some(reason)));
        assert!(failure.message.contains(text), "{failure:?}");
        assert_eq!(s.server.made().len(), 1, "another container would fail too");
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent);
    }
}

#[tokio::test]
async fn a_video_that_threads_could_not_download_gets_a_new_container_a_few_times() {
    let s = threads().await;
    let mut outgoing = with_video(&s, &[], 0);
    for (container, reason) in [("100", "FAILED_DOWNLOADING_VIDEO"), ("101", "UNKNOWN")] {
        assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
        s.server.fail(container, reason);
    }
    assert_eq!(s.stage(&mut outgoing).await.unwrap(), StageResult::Ready);
    s.server.fail("102", "FAILED_DOWNLOADING_VIDEO");
    let rejected = s.stage(&mut outgoing).await.unwrap_err();
    let is_right = matches!(&rejected, CallError::Permanent(f) if f.message.contains("FAILED_DOWNLOADING_VIDEO"));
    assert!(is_right, "{rejected:?}");
    assert_eq!((s.server.made().len(), s.server.published().len()), (3, 0));
}

#[tokio::test]
async fn a_container_that_is_not_found_yet_is_published_later() {
    let s = threads().await;
    let mut outgoing = with_video(&s, &["cat"], 0);
    s.stage(&mut outgoing).await.unwrap();
    s.server.script("threads_publish", error(400, 24, Some(4_279_009), "The requested resource does not exist"));
    let failed = s.publish(&mut outgoing).await.unwrap_err();
    assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");
    s.publish(&mut outgoing).await.unwrap();
    assert_eq!((s.server.made().len(), s.server.published().len()), (3, 1));
}
