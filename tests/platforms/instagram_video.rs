//! Videos on Instagram, and what they have in common on Instagram and Threads, against a server that creates and
//! publishes containers as Meta documents.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, OutgoingPost, ReconcileResult, StageResult, Video, VideoTransfer};
use serde_json::{Value, json};
use wiremock::ResponseTemplate;

use super::instagram::{Started, both, start};
use super::support::{image, now, video};
use crate::support::containers::INSTAGRAM;
use crate::support::facebook::error;

const CLIP: &str = "https://crier.example/media/clip.mp4";

async fn instagram() -> Started {
    start(Platform::Instagram, INSTAGRAM).await
}

/// Returns a post with a video among its images.
fn with_video(s: &Started, images: &[&str], position: usize) -> OutgoingPost {
    OutgoingPost { videos: vec![Video { position, ..video("bytes of a video") }], ..s.post(images) }
}

fn story(s: &Started) -> OutgoingPost {
    let mut outgoing = with_video(s, &[], 0);
    outgoing.options.insert("format".to_owned(), json!("story"));
    outgoing
}

/// The path that creates containers, and the one that publishes them.
fn edges(s: &Started) -> [&'static str; 2] {
    match s.connector.descriptor().platform {
        Platform::Threads => ["threads", "threads_publish"],
        _ => ["media", "media_publish"],
    }
}

fn assert_invalid(error: &CallError, text: &str) {
    let is_right = matches!(error, CallError::Permanent(failure) if failure.category == Category::InvalidContent);
    assert!(is_right && error.failure().message.contains(text), "{error:?}");
}

#[tokio::test]
async fn a_single_video_is_a_reel_that_instagram_downloads() {
    let s = instagram().await;
    assert_eq!(s.connector.video_transfer(), VideoTransfer::Fetched);
    let reel = json!({ "media_type": "REELS", "video_url": CLIP, "share_to_feed": true, "caption": "Fresh bread" });
    let with = |name: &str, value: Value| {
        let mut request = reel.clone();
        request[name] = value;
        request
    };
    for (cover, cover_at_ms, expected) in [
        (None, None, reel.clone()),
        (None, Some(1_500), with("thumb_offset", json!(1_500))),
        (Some(image("cat")), Some(1_500), with("cover_url", json!("https://crier.example/media/cat.png"))),
    ] {
        let mut outgoing = with_video(&s, &[], 0);
        (outgoing.videos[0].cover, outgoing.videos[0].cover_at_ms) = (cover, cover_at_ms);
        let published = s.publish(&mut outgoing).await.unwrap();
        assert!(published.url.is_some_and(|url| url.contains(&published.external_id)));
        assert_eq!(s.server.made().last(), Some(&expected));
    }
    assert_eq!(s.server.published().len(), 3);
}

#[tokio::test]
async fn a_story_has_one_image_or_video_and_no_text() {
    let s = instagram().await;
    s.publish(&mut story(&s)).await.unwrap();
    let mut with_image = OutgoingPost { videos: Vec::new(), ..story(&s) };
    with_image.images = vec![image("cat")];
    s.publish(&mut with_image).await.unwrap();
    let cat = "https://crier.example/media/cat.png";
    let expected =
        [json!({ "media_type": "STORIES", "video_url": CLIP }), json!({ "media_type": "STORIES", "image_url": cat })];
    assert_eq!(s.server.made(), expected);

    let mut with_both = story(&s);
    with_both.images = vec![image("cat")];
    assert_invalid(&s.stage(&mut with_both).await.unwrap_err(), "exactly one");
    assert_eq!(s.server.made().len(), 2);
}

#[tokio::test]
async fn images_and_videos_of_a_carousel_keep_their_order() {
    let s = instagram().await;
    s.publish(&mut with_video(&s, &["cat", "dog"], 1)).await.unwrap();
    let image = |name: &str| {
        json!({ "image_url": format!("https://crier.example/media/{name}.png"), "alt_text": format!("a <{name}>"),
            "is_carousel_item": true })
    };
    let expected = [
        image("cat"),
        json!({ "media_type": "VIDEO", "video_url": CLIP, "is_carousel_item": true }),
        image("dog"),
        json!({ "media_type": "CAROUSEL", "children": "100,101,102", "caption": "Fresh bread" }),
    ];
    assert_eq!(s.server.made(), expected);
    assert_eq!(s.server.published(), ["Fresh bread"]);
}

#[tokio::test]
async fn the_processing_of_a_video_is_waited_for() {
    for s in both().await {
        s.server.set_polls(1);
        let pending = StageResult::Pending(TimeDelta::seconds(2));
        let mut single = with_video(&s, &[], 0);
        assert_eq!(s.stage(&mut single).await.unwrap(), pending);
        s.publish(&mut single).await.unwrap();

        let mut carousel = with_video(&s, &["cat"], 1);
        assert_eq!(s.stage(&mut carousel).await.unwrap(), pending, "the video of the carousel");
        let made = s.server.made().len();
        assert_eq!(s.stage(&mut carousel).await.unwrap(), pending, "the carousel");
        assert_eq!(s.server.made().len(), made + 1);
        s.publish(&mut carousel).await.unwrap();
        assert_eq!(s.server.published().len(), 2);
    }
}

#[tokio::test]
async fn a_video_may_be_processed_longer_than_an_image() {
    for s in both().await {
        s.server.set_polls(9);
        for (images, created_at) in [(vec![], "container_at"), (vec!["cat"], "children_at")] {
            let mut outgoing = with_video(&s, &images, 0);
            s.stage(&mut outgoing).await.unwrap();
            let mut stage_after = async |minutes| {
                let created = now() - TimeDelta::minutes(minutes);
                outgoing.marker.insert(created_at.to_owned(), json!(created.to_rfc3339()));
                s.connector.stage(&s.account, &outgoing).await
            };
            assert_eq!(stage_after(29).await.unwrap(), StageResult::Pending(TimeDelta::minutes(1)));
            let failed = stage_after(31).await;
            let is_right = matches!(&failed, Err(CallError::Transient(f)) if f.category == Category::Media);
            assert!(is_right, "{failed:?}");
        }
    }
}

#[tokio::test]
async fn an_expired_container_is_made_anew_a_few_times_also_that_of_an_item() {
    for s in both().await {
        let mut single = with_video(&s, &[], 0);
        assert_eq!(s.stage(&mut single).await.unwrap(), StageResult::Ready);
        s.server.set_status("100", "EXPIRED");
        s.publish(&mut single).await.unwrap();
        assert_eq!(s.server.made().len(), 2);

        s.server.set_polls(1);
        let mut carousel = with_video(&s, &["cat"], 1);
        for item in ["103", "105", "107"] {
            assert!(matches!(s.stage(&mut carousel).await.unwrap(), StageResult::Pending(_)));
            s.server.set_status(item, "EXPIRED");
        }
        assert_invalid(&s.stage(&mut carousel).await.unwrap_err(), "no reason");
        assert_eq!((s.server.made().len(), s.server.published().len()), (8, 1));
    }
}

#[tokio::test]
async fn a_video_that_instagram_does_not_accept_is_final() {
    for (reason, code, text) in [
        ("Error: Media upload has failed with error code 2207026", "2207026", "format"),
        ("Error: Media upload has failed with error code 2207057", "2207057", "cover"),
    ] {
        let s = instagram().await;
        let mut outgoing = with_video(&s, &[], 0);
        s.stage(&mut outgoing).await.unwrap();
        s.server.fail("100", reason);
        let rejected = s.stage(&mut outgoing).await.unwrap_err();
        assert_invalid(&rejected, text);
        assert_eq!(rejected.failure().platform_code.as_deref(), Some(code));
        assert_eq!(s.server.made().len(), 1, "another container would fail too");
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent);
    }
    let s = instagram().await;
    for subcode in [2_207_023, 2_207_026, 2_207_057] {
        s.server.script("media", error(400, 352, Some(subcode), "No"));
        assert_invalid(&s.stage(&mut with_video(&s, &[], 0)).await.unwrap_err(), "No");
    }
    // The video of a carousel.
    s.server.set_polls(1);
    let mut carousel = with_video(&s, &["cat"], 1);
    s.stage(&mut carousel).await.unwrap();
    s.server.fail("101", "Error: Media upload has failed with error code 2207026");
    assert_invalid(&s.stage(&mut carousel).await.unwrap_err(), "format");
    assert!(s.server.published().is_empty());
}

#[tokio::test]
async fn a_download_that_failed_is_retried_with_a_new_container() {
    let s = instagram().await;
    let mut outgoing = with_video(&s, &[], 0);
    s.server.script("media", error(400, 1, Some(2_207_052), "The media could not be fetched"));
    let failed = s.stage(&mut outgoing).await.unwrap_err();
    assert!(matches!(&failed, CallError::Transient(f) if f.category == Category::Media), "{failed:?}");
    s.stage(&mut outgoing).await.unwrap();
    s.server.fail("100", "Error: Media upload has failed with error code 2207052");
    s.publish(&mut outgoing).await.unwrap();
    assert_eq!(s.server.made().len(), 2);
}

#[tokio::test]
async fn a_cut_response_is_resolved_by_the_status_of_the_container() {
    for s in both().await {
        let mut outgoing = with_video(&s, &[], 0);
        s.stage(&mut outgoing).await.unwrap();
        s.server.script(edges(&s)[1], ResponseTemplate::new(502));
        let unknown = s.publish(&mut outgoing).await.unwrap_err();
        assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent, "it did not arrive");
        let published = s.publish(&mut outgoing).await.unwrap();
        assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::PublishedAmong(vec![published]));
        assert_eq!(s.server.made().len(), 1);
    }
}

#[tokio::test]
async fn a_story_is_only_known_by_its_container() {
    let s = instagram().await;
    let mut outgoing = story(&s);
    s.stage(&mut outgoing).await.unwrap();
    s.publish(&mut with_video(&s, &[], 0)).await.unwrap();
    s.server.forget_containers();
    assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Absent, "there are no stories");

    let mut other = story(&s);
    let published = s.publish(&mut other).await.unwrap();
    assert_eq!(s.reconcile(&other).await, ReconcileResult::PublishedAmong(vec![published.clone()]));
    assert_eq!(s.stage(&mut other).await.unwrap(), StageResult::Published(vec![published]));
    s.server.forget_containers();
    assert_eq!(s.reconcile(&outgoing).await, ReconcileResult::Unsupported, "a story without a text may be another one");
}

#[tokio::test]
async fn a_quota_and_a_revoked_token_keep_the_containers() {
    for s in both().await {
        s.server.set_quota_usage(100);
        let limited = s.stage(&mut with_video(&s, &[], 0)).await.unwrap_err();
        let until = Some(now() + TimeDelta::hours(1));
        assert!(matches!(&limited, CallError::RateLimited { until: at, .. } if *at == until), "{limited:?}");
        assert!(s.server.made().is_empty());
        s.server.set_quota_usage(0);

        let mut outgoing = with_video(&s, &[], 0);
        s.stage(&mut outgoing).await.unwrap();
        s.server.script(edges(&s)[1], error(400, 9, Some(2_207_042), "Maximum number of posts reached"));
        let limited = s.publish(&mut outgoing).await.unwrap_err();
        assert!(matches!(limited, CallError::RateLimited { .. }), "{limited:?}");

        s.server.oauth.revoke("token");
        let expired = s.stage(&mut outgoing).await.unwrap_err();
        assert!(matches!(expired, CallError::Reauth(_)), "{expired:?}");
        let expired = s.connector.publish(&s.account, &outgoing).await.unwrap_err();
        assert!(matches!(expired, CallError::Reauth(_)), "{expired:?}");
        s.server.oauth.add_token("token");
        s.publish(&mut outgoing).await.unwrap();
        assert_eq!(s.server.made().len(), 1);
    }
}
