//! Videos of Facebook pages, against a Graph API that responds as Meta documents.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult, VideoStep, VideoUpload,
};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, now, post, publish, send_video_step, unpublish_post, video,
};
use crate::support::facebook::error;
use crate::support::facebook_videos::{FacebookVideos, PAGE, TOKEN, upload_error};

const BYTES: &str = "bytes of a video";

fn page() -> ConnectorAccount {
    account(PAGE, json!({ "access_token": TOKEN, "client_id": "app", "client_secret": "secret" }))
}

async fn start() -> (FacebookVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = FacebookVideos::start().await;
    let connector = connector(Platform::Facebook, &server.uri());
    (fake, server, connector)
}

fn with_video(connector: &dyn Connector, format: &str) -> OutgoingPost {
    let mut outgoing = OutgoingPost { videos: vec![video(BYTES)], ..post(connector, "Fresh bread") };
    outgoing.options.insert("format".to_owned(), json!(format));
    outgoing.options.insert("title".to_owned(), json!("A clip"));
    outgoing
}

/// Publishes as the worker does, and expects that Facebook accepts the video. Stores the marker.
async fn publish_accepted(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    match publish(connector, &page(), outgoing).await.unwrap_err() {
        CallError::Accepted { post, .. } => outgoing.marker = post.marker,
        error => panic!("{error:?}"),
    }
}

async fn publish_error(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> CallError {
    publish(connector, &page(), outgoing).await.unwrap_err()
}

async fn step(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> Result<VideoStep, CallError> {
    send_video_step(connector, &page(), outgoing).await
}

/// Hands the video over. The next call publishes it.
async fn upload(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    while outgoing.videos[0].uploaded.is_none() {
        step(connector, outgoing).await.unwrap();
    }
}

async fn reconcile(connector: &dyn Connector, outgoing: &OutgoingPost) -> ReconcileResult {
    connector.reconcile(&page(), outgoing).await.unwrap()
}

fn found(result: ReconcileResult) -> Published {
    match result {
        ReconcileResult::Found(published) => published,
        other => panic!("{other:?}"),
    }
}

fn pause(result: &ReconcileResult) -> TimeDelta {
    match result {
        ReconcileResult::Pending(pause) => *pause,
        other => panic!("{other:?}"),
    }
}

fn assert_failure(error: &CallError, category: Category, text: &str) {
    let is_right = matches!(error, CallError::Permanent(failure) if failure.category == category);
    assert!(is_right && error.failure().message.contains(text), "{error:?}");
}

#[tokio::test]
async fn a_reel_is_uploaded_in_one_call_and_published_with_its_texts() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    {
        let state = fake.state();
        let calls = ["POST /42/video_reels", "POST /video-upload/7000", "POST /42/video_reels"];
        assert_eq!(state.writes(), calls);
        assert_eq!(state.newest().bytes, BYTES.as_bytes());
        let finish = json!({
            "upload_phase": "finish", "video_id": "7000", "video_state": "PUBLISHED",
            "title": "A clip", "description": "Fresh bread",
        });
        assert_eq!(state.newest().published, [finish]);
    }
    let published = found(reconcile(connector.as_ref(), &outgoing).await);
    assert_eq!((published.external_id.as_str(), published.other_ids), ("42_9000", vec!["7000".to_owned()]));
    assert_eq!(published.url.as_deref(), Some("https://www.facebook.com/reel/7000/"));
}

#[tokio::test]
async fn a_story_has_no_texts() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "story");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    let finish = json!({ "upload_phase": "finish", "video_id": "7000", "video_state": "PUBLISHED" });
    assert_eq!(fake.state().newest().published, [finish]);
    assert_eq!(fake.state().newest().edge, "video_stories");
    let published = found(reconcile(connector.as_ref(), &outgoing).await);
    assert_eq!(published.external_id, "42_9000", "its id is in the response to the call");
}

#[tokio::test]
async fn a_video_for_the_feed_is_downloaded_with_its_texts_and_cover() {
    for format in [json!("feed"), Value::Null] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "feed");
        outgoing.options.insert("format".to_owned(), format);
        outgoing.videos[0].cover = Some(image("cat"));
        publish_accepted(connector.as_ref(), &mut outgoing).await;
        {
            let state = fake.state();
            assert_eq!(state.writes(), ["POST /42/videos"]);
            let fields = json!({
                "file_url": "https://crier.example/media/clip.mp4", "published": "true",
                "title": "A clip", "description": "Fresh bread",
            });
            assert_eq!(state.newest().published, [fields]);
            assert_eq!(state.newest().cover.as_deref(), Some(&b"bytes of cat"[..]));
        }
        let published = found(reconcile(connector.as_ref(), &outgoing).await);
        assert_eq!(published.external_id, "42_9000");
    }
}

#[tokio::test]
async fn a_reel_gets_its_cover_and_is_published_without_a_rejected_one() {
    for is_rejected in [false, true] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "reel");
        outgoing.videos[0].cover = Some(image("cat"));
        if is_rejected {
            let too_small = error(400, 100, None, "The image is too small");
            fake.state().rejected.push_back(("thumbnails", too_small));
        }
        publish_accepted(connector.as_ref(), &mut outgoing).await;
        let cover = fake.state().newest().cover.clone();
        assert_eq!(cover.is_none(), is_rejected);
        assert_eq!(fake.state().newest().published.len(), 1);
    }
}

#[tokio::test]
async fn an_upload_resumes_at_the_position_that_facebook_states_also_in_another_process() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref(), "reel");
    step(first.as_ref(), &mut outgoing).await.unwrap();
    fake.state().breaks_after = Some(6);
    let broken = step(first.as_ref(), &mut outgoing).await.unwrap_err();
    assert!(matches!(broken, CallError::Transient(_)), "{broken:?}");

    let second = connector(Platform::Facebook, &server.uri());
    let mut resumed = with_video(second.as_ref(), "reel");
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    publish_accepted(second.as_ref(), &mut resumed).await;
    let state = fake.state();
    assert_eq!((state.videos.len(), state.newest().bytes.as_slice()), (1, BYTES.as_bytes()));
}

#[tokio::test]
async fn a_lost_response_to_the_last_bytes_is_recovered_by_the_state() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "story");
    step(connector.as_ref(), &mut outgoing).await.unwrap();
    fake.state().lost.push_back("video-upload");
    let lost = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
    assert!(matches!(lost, CallError::Transient(_)), "{lost:?}");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    let state = fake.state();
    assert_eq!(state.writes().iter().filter(|call| call.contains("video-upload")).count(), 1);
}

#[tokio::test]
async fn another_position_than_the_expected_one_is_requested_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    step(connector.as_ref(), &mut outgoing).await.unwrap();
    fake.state().states.push_back(json!({ "uploading_phase": { "status": "in_progress", "bytes_transfered": 3 } }));
    let invalid = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&invalid, CallError::Transient(f) if f.category == Category::Media), "{invalid:?}");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().newest().bytes, BYTES.as_bytes());
}

#[tokio::test]
async fn the_processing_is_waited_for_and_may_reject_the_video() {
    for format in ["reel", "story", "feed"] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), format);
        publish_accepted(connector.as_ref(), &mut outgoing).await;
        let processing = json!({ "video_status": "processing", "processing_phase": { "status": "in_progress" } });
        let not_begun = json!({ "video_status": "upload_complete" });
        fake.state().states.extend([not_begun, processing]);
        for _ in 0..2 {
            assert_eq!(pause(&reconcile(connector.as_ref(), &outgoing).await), TimeDelta::seconds(5), "{format}");
        }
        let reason = json!({ "message": "The video must be at least 540p", "code": 1_363_127 });
        fake.state().states.push_back(json!({
            "video_status": "error", "processing_phase": { "status": "error", "errors": [reason] },
        }));
        let ReconcileResult::Rejected(rejected) = reconcile(connector.as_ref(), &outgoing).await else {
            panic!("it is rejected")
        };
        assert_failure(&rejected, Category::InvalidContent, "540p");
        assert_eq!(rejected.failure().platform_code.as_deref(), Some("1363127"));
    }
}

#[tokio::test]
async fn a_rejected_file_or_account_is_final() {
    let too_long = || error(400, 6_000, Some(1_363_128), "The video is longer than 90 seconds");
    let restricted = || error(400, 6_000, Some(1_363_042), "This page cannot publish reels");
    let (fake, _server, connector) = start().await;
    for (response, category, text) in [
        (too_long(), Category::InvalidContent, "90 seconds"),
        (restricted(), Category::Account, "cannot publish reels"),
    ] {
        let mut outgoing = with_video(connector.as_ref(), "reel");
        upload(connector.as_ref(), &mut outgoing).await;
        fake.state().rejected.push_back(("POST /v25.0/42/video_reels", response));
        assert_failure(&publish_error(connector.as_ref(), &mut outgoing).await, category, text);
        assert!(fake.state().newest().published.is_empty());
    }
    let mut outgoing = with_video(connector.as_ref(), "reel");
    step(connector.as_ref(), &mut outgoing).await.unwrap();
    let corrupt = upload_error(400, false, "ProcessingFailedError", "The file is corrupt");
    fake.state().rejected.push_back(("video-upload", corrupt));
    let rejected = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
    assert_failure(&rejected, Category::InvalidContent, "corrupt");
}

#[tokio::test]
async fn a_video_for_the_feed_that_facebook_cannot_read_is_rejected_or_retried() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "feed");
    let format = error(400, 352, Some(1_363_024), "The video format is not supported");
    fake.state().rejected.push_back(("POST /v25.0/42/videos", format));
    assert_failure(&publish_error(connector.as_ref(), &mut outgoing).await, Category::InvalidContent, "not supported");
    let unreachable = error(400, 389, None, "Unable to fetch video file from URL.");
    fake.state().rejected.push_back(("POST /v25.0/42/videos", unreachable));
    let failed = publish_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(&failed, CallError::Transient(f) if f.category == Category::Media), "{failed:?}");
    assert!(fake.state().videos.is_empty());
}

#[tokio::test]
async fn a_lost_response_to_the_publishing_call_is_resolved_by_the_state_of_the_video() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    upload(connector.as_ref(), &mut outgoing).await;
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, ReconcileResult::Absent, "it did not arrive");

    fake.state().lost.push_back("POST /v25.0/42/video_reels");
    let unknown = publish_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    fake.state().states.push_back(json!({ "video_status": "processing" }));
    assert_eq!(pause(&reconcile(connector.as_ref(), &outgoing).await), TimeDelta::seconds(5));
    assert_eq!(found(reconcile(connector.as_ref(), &outgoing).await).external_id, "42_9000");

    // A call that is repeated nevertheless publishes nothing.
    outgoing.has_earlier_attempt = true;
    let published = publish(connector.as_ref(), &page(), &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "42_9000");
    fake.state().states.push_back(json!({ "video_status": "processing" }));
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    let state = fake.state();
    assert_eq!((state.videos.len(), state.newest().published.len()), (1, 1));
}

#[tokio::test]
async fn a_cut_connection_leaves_the_outcome_unknown_only_if_it_publishes() {
    let script = ScriptedServer::start(vec![ScriptStep::HangUp, ScriptStep::HangUp, ScriptStep::HangUp]).await;
    let broken = connector(Platform::Facebook, &script.base);
    let cut = step(broken.as_ref(), &mut with_video(broken.as_ref(), "reel")).await.unwrap_err();
    assert!(matches!(cut, CallError::Transient(_)), "{cut:?}");
    let mut reel = with_video(broken.as_ref(), "reel");
    reel.videos[0].uploaded = Some(json!({ "edge": "video_reels", "video_id": "7000" }));
    for mut outgoing in [reel, with_video(broken.as_ref(), "feed")] {
        let cut = publish_error(broken.as_ref(), &mut outgoing).await;
        assert!(matches!(cut, CallError::Unknown(_)), "{cut:?}");
    }
}

#[tokio::test]
async fn a_video_for_the_feed_whose_response_was_lost_is_found_by_its_text() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("POST /v25.0/42/videos");
    let mut outgoing = with_video(connector.as_ref(), "feed");
    let unknown = publish_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(unknown, CallError::Unknown(_)), "{unknown:?}");
    for edge in ["videos", "video_reels"] {
        fake.state().videos[0].as_mut().unwrap().edge = edge.to_owned();
        let ReconcileResult::Matches(found) = reconcile(connector.as_ref(), &outgoing).await else {
            panic!("it is in the list {edge}")
        };
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].external_id.as_str(), &found[0].other_ids), ("42_9000", &vec!["7000".to_owned()]));
        assert_eq!(found[0].url.as_deref(), Some("https://www.facebook.com/42/videos/7000/"));
    }
    let limited = error(400, 4, None, "Application request limit reached");
    fake.state().rejected.push_back(("GET /v25.0/42/videos", limited));
    let failed = connector.reconcile(&page(), &outgoing).await.unwrap_err();
    assert!(matches!(failed, CallError::RateLimited { .. }), "{failed:?}");
}

#[tokio::test]
async fn a_missing_video_for_the_feed_is_never_reported_as_absent() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("POST /v25.0/42/videos");
    let mut outgoing = with_video(connector.as_ref(), "feed");
    publish_error(connector.as_ref(), &mut outgoing).await;
    let other = OutgoingPost { text: "Other".to_owned(), ..outgoing.clone() };
    assert_eq!(pause(&reconcile(connector.as_ref(), &other).await), TimeDelta::minutes(1));
    fake.state().hides_videos = true;
    assert_eq!(pause(&reconcile(connector.as_ref(), &outgoing).await), TimeDelta::minutes(1));
    outgoing.called_at = Some(now() - TimeDelta::minutes(31));
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, ReconcileResult::Unsupported);
}

#[tokio::test]
async fn the_video_of_an_earlier_call_is_not_taken_for_that_of_the_last_one() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "feed");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    fake.state().hides_videos = true;
    outgoing.called_at = Some(now() + TimeDelta::seconds(1));
    assert_eq!(pause(&reconcile(connector.as_ref(), &outgoing).await), TimeDelta::minutes(1), "it is searched for");
    outgoing.called_at = None;
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, ReconcileResult::Unsupported);
}

#[tokio::test]
async fn a_limit_keeps_the_progress() {
    let (fake, _server, connector) = start().await;
    let limited = || error(400, 613, Some(1_390_008), "You have reached the limit of 30 reels per day");
    let mut outgoing = with_video(connector.as_ref(), "reel");
    fake.state().rejected.push_back(("POST /v25.0/42/video_reels", limited()));
    let error = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::RateLimited { .. }), "{error:?}");

    step(connector.as_ref(), &mut outgoing).await.unwrap();
    fake.state().rejected.push_back(("video-upload", ResponseTemplate::new(429)));
    let error = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::RateLimited { .. }), "{error:?}");

    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("POST /v25.0/42/video_reels", limited()));
    let error = publish_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::RateLimited { .. }), "{error:?}");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().videos.len(), 1);
}

#[tokio::test]
async fn an_expired_upload_begins_again() {
    let gone = || error(400, 100, Some(33), "Object does not exist");
    for case in ["the video is gone", "the video has expired", "the upload URL is gone"] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "reel");
        step(connector.as_ref(), &mut outgoing).await.unwrap();
        match case {
            "the video is gone" => fake.state().rejected.push_back(("GET", gone())),
            "the video has expired" => fake.state().states.push_back(json!({ "video_status": "expired" })),
            _ => fake.state().rejected.push_back(("video-upload", ResponseTemplate::new(404))),
        }
        assert_eq!(step(connector.as_ref(), &mut outgoing).await.unwrap(), VideoStep::Expired, "{case}");
        publish_accepted(connector.as_ref(), &mut outgoing).await;
        assert_eq!(fake.state().videos.len(), 2);
    }
}

#[tokio::test]
async fn an_upload_that_is_lost_before_its_last_call_is_reported_as_missing() {
    for case in ["deleted", "expired", "incomplete", "of another format"] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "reel");
        upload(connector.as_ref(), &mut outgoing).await;
        {
            let mut state = fake.state();
            let rejected = error(400, 100, None, "Invalid parameter");
            match case {
                "deleted" => state.videos[0] = None,
                "expired" => {
                    state.rejected.push_back(("POST", rejected));
                    state.states.push_back(json!({ "video_status": "expired" }));
                }
                "incomplete" => state.videos[0].as_mut().unwrap().is_complete = false,
                _ => {
                    outgoing.options.insert("format".to_owned(), json!("story"));
                }
            }
        }
        let missing = publish_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(missing, CallError::UploadsMissing(_)), "{case}: {missing:?}");
        (outgoing.videos[0].upload, outgoing.videos[0].uploaded) = (VideoUpload::new(), None);
        publish_accepted(connector.as_ref(), &mut outgoing).await;
        assert_eq!(fake.state().newest().published.len(), 1);
    }
}

#[tokio::test]
async fn an_accepted_video_that_facebook_deleted_is_not_published() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    fake.state().states.push_back(json!({ "video_status": "expired" }));
    let ReconcileResult::Rejected(rejected) = reconcile(connector.as_ref(), &outgoing).await else {
        panic!("it is rejected")
    };
    assert_failure(&rejected, Category::PlatformError, "deleted the video");
    fake.state().videos[0] = None;
    assert_eq!(
        reconcile(connector.as_ref(), &outgoing).await,
        ReconcileResult::Unsupported,
        "a user may have deleted it"
    );
}

#[tokio::test]
async fn a_revoked_token_expires_the_account() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    for _ in ["begin", "transfer", "publish"] {
        fake.oauth.revoke(TOKEN);
        let error = publish_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::Reauth(_)), "{error:?}");
        fake.oauth.add_token(TOKEN);
        if outgoing.videos[0].uploaded.is_none() {
            step(connector.as_ref(), &mut outgoing).await.unwrap();
        }
    }
    let denied = upload_error(403, false, "NotAuthorizedError", "unauthorized user request");
    let mut other = with_video(connector.as_ref(), "reel");
    step(connector.as_ref(), &mut other).await.unwrap();
    fake.state().rejected.push_back(("video-upload", denied));
    let error = step(connector.as_ref(), &mut other).await.unwrap_err();
    assert!(matches!(error, CallError::Reauth(_)), "{error:?}");
}

#[tokio::test]
async fn the_token_and_the_video_go_to_facebook_alone() {
    for evil in [
        "https://evil.example",
        "https://rupload.facebook.com.evil.example",
        "http://rupload.facebook.com",
        "https://rupload.facebook.com:8443",
        "file:///etc",
    ] {
        let (fake, _server, connector) = start().await;
        fake.state().base = evil.to_owned();
        let mut outgoing = with_video(connector.as_ref(), "reel");
        let error = step(connector.as_ref(), &mut outgoing).await.unwrap_err();
        assert!(error.failure().message.contains("does not belong to Facebook"), "{evil}: {error:?}");
    }
    let (fake, _server, connector) = start().await;
    fake.state().base = "https://rupload.facebook.com".to_owned();
    step(connector.as_ref(), &mut with_video(connector.as_ref(), "reel")).await.unwrap();
    let strange = json!({ "video_id": "../me", "upload_url": "https://rupload.facebook.com/1" });
    fake.state().rejected.push_back(("POST", ResponseTemplate::new(200).set_body_json(strange)));
    let error = step(connector.as_ref(), &mut with_video(connector.as_ref(), "reel")).await.unwrap_err();
    assert!(error.failure().message.contains("invalid ID"), "{error:?}");
}

#[tokio::test]
async fn unpublishing_deletes_the_video_of_a_post() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "reel");
    publish_accepted(connector.as_ref(), &mut outgoing).await;
    let published = found(reconcile(connector.as_ref(), &outgoing).await);
    let mut deleted = unpublish_post(&published.external_id);
    deleted.other_ids = published.other_ids;
    for _ in 0..2 {
        connector.unpublish(&page(), &deleted).await.unwrap();
        assert!(fake.state().videos[0].is_none());
    }
}
