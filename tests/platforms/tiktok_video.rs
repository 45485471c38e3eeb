//! Videos on TikTok, against a server that responds as its documents specify.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, Connector, ConnectorAccount, ConnectorRegistry, OutgoingPost, Published, ReconcileResult, VideoStep,
};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, clients, connector, is_invalid, now, post, publish, send_video_step, video,
};
use crate::support::tiktok::rejection;
use crate::support::tiktok_videos::TiktokVideos;

const MB: usize = 1_000_000;
const BYTES: &str = "bytes of a video";

fn bakery() -> ConnectorAccount {
    let secrets = json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" });
    ConnectorAccount { username: Some("bakery".to_owned()), ..account("723f24d7", secrets) }
}

async fn start() -> (TiktokVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = TiktokVideos::start().await;
    let connector = connector(Platform::Tiktok, &server.uri());
    (fake, server, connector)
}

/// The connector at another time.
fn connector_at(server: &MockServer, time: DateTime<Utc>) -> Arc<dyn Connector> {
    let config = PlatformsConfig::default().with_base_url(Platform::Tiktok, server.uri());
    ConnectorRegistry::new(config, &clients(), &Clock::manual(time)).get(Platform::Tiktok).unwrap()
}

fn with_video(connector: &dyn Connector, bytes: impl Into<bytes::Bytes>) -> OutgoingPost {
    let mut outgoing = OutgoingPost { videos: vec![video(bytes)], ..post(connector, "Fresh bread") };
    outgoing.options.insert("visibility".to_owned(), json!("public"));
    outgoing
}

/// Takes the next steps of the upload and expects that each ends with something to store.
async fn take_steps(connector: &dyn Connector, outgoing: &mut OutgoingPost, count: usize) {
    for _ in 0..count {
        let step = send_video_step(connector, &bakery(), outgoing).await.unwrap();
        assert!(matches!(step, VideoStep::Next(_)), "{step:?}");
    }
}

/// Takes all steps of the upload.
async fn upload(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    while outgoing.videos[0].uploaded.is_none() {
        send_video_step(connector, &bakery(), outgoing).await.unwrap();
    }
}

/// Publishes a post with an upload, and returns it with the marker that identifies it.
async fn accepted(connector: &dyn Connector, outgoing: &OutgoingPost) -> OutgoingPost {
    match connector.publish(&bakery(), outgoing).await.unwrap_err() {
        CallError::Accepted { post, .. } => OutgoingPost { marker: post.marker, ..outgoing.clone() },
        error => panic!("{error:?}"),
    }
}

async fn reconcile(connector: &dyn Connector, outgoing: &OutgoingPost) -> ReconcileResult {
    connector.reconcile(&bakery(), outgoing).await.unwrap()
}

fn published(id: &str) -> ReconcileResult {
    ReconcileResult::Found(Published::new(id, Some(format!("https://www.tiktok.com/@bakery/video/{id}"))))
}

/// Returns bytes that differ from one chunk to the next.
fn large(size: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(size);
    for number in 0..u8::try_from(size.div_ceil(MB)).unwrap() {
        bytes.resize(size.min((usize::from(number) + 1) * MB), number);
    }
    bytes
}

#[tokio::test]
async fn a_small_video_is_one_chunk_that_publishing_sends() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    outgoing.options.insert("brand_organic".to_owned(), json!(true));
    outgoing.videos[0].cover_at_ms = Some(1_500);
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let step = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Ready(json!("v_pub_file~v2-1.1")));
    assert_eq!(fake.state().count("PUT"), 0, "the last chunk publishes the video");

    let accepted = accepted(connector.as_ref(), &outgoing).await;
    let expected = json!({
        "post_info": {
            "title": "Fresh bread", "privacy_level": "PUBLIC_TO_EVERYONE", "disable_comment": false,
            "disable_duet": false, "disable_stitch": true, "brand_content_toggle": false,
            "brand_organic_toggle": true, "video_cover_timestamp_ms": 1_500,
        },
        "source_info": { "source": "FILE_UPLOAD", "video_size": 16, "chunk_size": 16, "total_chunk_count": 1 },
    });
    assert_eq!(fake.state().uploads[0].begun, expected);
    assert_eq!(fake.state().uploads[0].bytes, BYTES.as_bytes());
    assert_eq!(reconcile(connector.as_ref(), &accepted).await, published("74001"));
}

#[tokio::test]
async fn a_large_video_is_sent_in_chunks_of_10_mb_and_the_last_one_has_the_rest() {
    let (fake, _server, connector) = start().await;
    let bytes = large(25 * MB + 1);
    let mut outgoing = with_video(connector.as_ref(), bytes.clone());
    upload(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().uploads[0].chunks, [10 * MB]);
    accepted(connector.as_ref(), &outgoing).await;
    let state = fake.state();
    assert_eq!(state.uploads[0].chunks, [10 * MB, 15 * MB + 1]);
    assert!(state.uploads[0].bytes == bytes, "the chunks are the file");
}

#[tokio::test]
async fn an_upload_resumes_at_the_failed_chunk_also_in_another_process() {
    let (fake, server, first) = start().await;
    let bytes = large(30 * MB);
    let mut outgoing = with_video(first.as_ref(), bytes.clone());
    take_steps(first.as_ref(), &mut outgoing, 2).await;
    fake.state().rejected.push_back(("PUT", ResponseTemplate::new(503)));
    let error = send_video_step(first.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    let second = connector(Platform::Tiktok, &server.uri());
    let mut resumed = with_video(second.as_ref(), bytes.clone());
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    upload(second.as_ref(), &mut resumed).await;
    accepted(second.as_ref(), &resumed).await;
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.count("PUT")), (1, 4));
    assert!(state.uploads[0].bytes == bytes, "the chunks are the file");
}

#[tokio::test]
async fn a_cut_response_to_the_beginning_begins_again() {
    let creator = json!({ "data": { "privacy_level_options": [] }, "error": { "code": "ok" } });
    let script = ScriptedServer::start(vec![ScriptStep::Respond(200, creator), ScriptStep::HangUp]).await;
    let connector = connector(Platform::Tiktok, &script.base);
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    assert!(script.requests()[1].starts_with("POST /v2/post/publish/video/init/"));
    assert!(outgoing.videos[0].upload.is_empty());
}

#[tokio::test]
async fn a_lost_response_to_a_chunk_continues_after_it() {
    let (fake, _server, connector) = start().await;
    let bytes = large(30 * MB);
    let mut outgoing = with_video(connector.as_ref(), bytes.clone());
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    fake.state().lost.push_back("PUT");
    let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    upload(connector.as_ref(), &mut outgoing).await;
    accepted(connector.as_ref(), &outgoing).await;
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.uploads[0].chunks.len()), (1, 3));
    assert!(state.uploads[0].bytes == bytes, "the chunks are the file");
}

#[tokio::test]
async fn an_upload_without_progress_begins_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), large(20 * MB));
    for status in [
        json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": 0 }),
        json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": 7 }),
        json!({ "status": "PROCESSING_UPLOAD" }),
        json!({ "status": "FAILED", "fail_reason": "internal" }),
    ] {
        take_steps(connector.as_ref(), &mut outgoing, 1).await;
        fake.state().rejected.push_back(("PUT", ResponseTemplate::new(416)));
        fake.state().statuses.push_back(status.clone());
        let step = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap();
        assert_eq!(step, VideoStep::Expired, "{status}");
    }
    assert_eq!(fake.state().uploads.len(), 4);
}

#[tokio::test]
async fn a_video_longer_than_the_account_may_post_is_rejected_with_both_lengths() {
    let (fake, _server, connector) = start().await;
    fake.state().creator["max_video_post_duration_sec"] = json!(60);
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    outgoing.videos[0].properties.duration_ms = 60_001;
    let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    let message = &error.failure().message;
    assert!(is_invalid(&error) && message.contains("60 seconds") && message.contains("61 seconds"), "{error:?}");
    assert!(fake.state().uploads.is_empty());
    outgoing.videos[0].properties.duration_ms = 60_000;
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
}

#[tokio::test]
async fn what_the_account_disabled_stays_disabled_and_a_visibility_is_required() {
    let (fake, _server, connector) = start().await;
    fake.state().creator["comment_disabled"] = json!(true);
    fake.state().creator["duet_disabled"] = json!(true);
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    outgoing.text.clear();
    outgoing.options.insert("title".to_owned(), json!("Rye"));
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let info = fake.state().uploads[0].begun["post_info"].clone();
    assert_eq!((&info["disable_comment"], &info["disable_duet"]), (&json!(true), &json!(true)));
    assert_eq!(info["title"], "Rye", "the only text");

    for visibility in [json!(null), json!("friends")] {
        let mut outgoing = with_video(connector.as_ref(), BYTES);
        outgoing.options.insert("visibility".to_owned(), visibility.clone());
        let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
        assert!(is_invalid(&error), "{visibility}: {error:?}");
    }
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn processing_is_waited_for() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    upload(connector.as_ref(), &mut outgoing).await;
    let accepted = accepted(connector.as_ref(), &outgoing).await;
    // The number of bytes may be behind. TikTok has confirmed the last chunk.
    for bytes in [0, 16] {
        fake.state().statuses.push_back(json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": bytes }));
        let waiting = reconcile(connector.as_ref(), &accepted).await;
        assert_eq!(waiting, ReconcileResult::Pending(TimeDelta::seconds(3)), "{bytes}");
    }
    assert_eq!(reconcile(connector.as_ref(), &accepted).await, published("74001"));
    // A private post has no id.
    fake.state().statuses.push_back(json!({ "status": "PUBLISH_COMPLETE" }));
    assert_eq!(reconcile(connector.as_ref(), &accepted).await, ReconcileResult::Found(Published::new("", None)));
}

#[tokio::test]
async fn a_rejected_file_is_invalid_content() {
    let (fake, _server, connector) = start().await;
    fake.state().rejected.push_back(("video/init", rejection(400, "invalid_params")));
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    assert!(is_invalid(&error), "{error:?}");

    upload(connector.as_ref(), &mut outgoing).await;
    let accepted = accepted(connector.as_ref(), &outgoing).await;
    for (reason, text) in [
        ("file_format_check_failed", "format"),
        ("duration_check_failed", "duration"),
        ("frame_rate_check_failed", "frame rate"),
        ("picture_size_check_failed", "width and height"),
    ] {
        fake.state().statuses.push_back(json!({ "status": "FAILED", "fail_reason": reason }));
        let ReconcileResult::Rejected(error) = reconcile(connector.as_ref(), &accepted).await else {
            panic!("{reason}")
        };
        assert!(is_invalid(&error) && error.failure().message.contains(text), "{reason}: {error:?}");
    }
}

#[tokio::test]
async fn a_file_that_is_rejected_with_its_last_chunk_is_invalid_content() {
    for status in [400, 403, 504] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), BYTES);
        upload(connector.as_ref(), &mut outgoing).await;
        fake.state().rejected.push_back(("PUT", ResponseTemplate::new(status)));
        let failed = json!({ "status": "FAILED", "fail_reason": "file_format_check_failed" });
        fake.state().statuses.push_back(failed);
        let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
        assert!(is_invalid(&error), "{status}: {error:?}");
    }
}

#[tokio::test]
async fn a_lost_response_to_the_last_chunk_is_recovered_by_the_status() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().lost.push_back("PUT");
    let accepted = accepted(connector.as_ref(), &outgoing).await;
    assert_eq!(reconcile(connector.as_ref(), &accepted).await, published("74001"));
    assert_eq!(fake.state().count("PUT"), 1);
}

#[tokio::test]
async fn a_lost_last_chunk_is_found_later_by_the_stored_upload() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref(), BYTES);
    upload(first.as_ref(), &mut outgoing).await;
    fake.state().lost.push_back("PUT");
    fake.state().rejected.push_back(("status/fetch", ResponseTemplate::new(502)));
    let error = first.publish(&bakery(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");

    let second = connector(Platform::Tiktok, &server.uri());
    let mut resumed = with_video(second.as_ref(), BYTES);
    let (from, to) = (&outgoing.videos[0], &mut resumed.videos[0]);
    (to.upload, to.uploaded) = (from.upload.clone(), from.uploaded.clone());
    fake.state().statuses.push_back(json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": 16 }));
    let waiting = reconcile(second.as_ref(), &resumed).await;
    assert_eq!(waiting, ReconcileResult::Pending(TimeDelta::seconds(3)));
    assert_eq!(reconcile(second.as_ref(), &resumed).await, published("74001"));
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.count("PUT")), (1, 1), "nothing was sent again");
}

#[tokio::test]
async fn a_last_chunk_that_did_not_arrive_is_sent_again_to_the_same_upload() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("PUT", ResponseTemplate::new(502)));
    let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "the chunk may be on its way: {error:?}");
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, ReconcileResult::Absent);
    // Without a number of bytes, nothing is proven.
    fake.state().statuses.push_back(json!({ "status": "PROCESSING_UPLOAD" }));
    let unclear = reconcile(connector.as_ref(), &outgoing).await;
    assert_eq!(unclear, ReconcileResult::Pending(TimeDelta::seconds(3)));
    accepted(connector.as_ref(), &outgoing).await;
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.count("PUT")), (1, 2));
}

#[tokio::test]
async fn a_post_without_an_upload_cannot_be_found() {
    let (_fake, _server, connector) = start().await;
    let outgoing = with_video(connector.as_ref(), BYTES);
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, ReconcileResult::Unsupported);
}

#[tokio::test]
async fn an_upload_that_expired_before_its_last_chunk_begins_again() {
    for status in [403, 404] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), large(20 * MB));
        take_steps(connector.as_ref(), &mut outgoing, 1).await;
        fake.state().rejected.push_back(("PUT", ResponseTemplate::new(status)));
        let step = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap();
        assert_eq!(step, VideoStep::Expired, "{status}");
        upload(connector.as_ref(), &mut outgoing).await;
        accepted(connector.as_ref(), &outgoing).await;
        assert_eq!(fake.state().uploads.len(), 2);
    }
}

#[tokio::test]
async fn a_url_whose_hour_has_passed_is_not_used() {
    let (fake, server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let mut uploaded = outgoing.clone();
    upload(connector.as_ref(), &mut uploaded).await;

    let later = connector_at(&server, now() + TimeDelta::hours(1));
    let step = send_video_step(later.as_ref(), &bakery(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired);
    let error = later.publish(&bakery(), &uploaded).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    assert_eq!(fake.state().count("PUT"), 0);
}

#[tokio::test]
async fn an_upload_that_expired_at_its_last_chunk_begins_again_only_if_tiktok_lacks_the_chunk() {
    for status in [401, 403, 404, 416] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), BYTES);
        upload(connector.as_ref(), &mut outgoing).await;
        fake.state().rejected.push_back(("PUT", ResponseTemplate::new(status)));
        let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::UploadsMissing(_)), "{status}: {error:?}");

        fake.state().rejected.push_back(("PUT", ResponseTemplate::new(status)));
        fake.state().statuses.push_back(json!({ "status": "PROCESSING_UPLOAD", "uploaded_bytes": 16 }));
        accepted(connector.as_ref(), &outgoing).await;

        // Neither is proven.
        for response in [rejection(400, "invalid_publish_id"), ok(json!({ "status": "PROCESSING_UPLOAD" }))] {
            fake.state().rejected.push_back(("PUT", ResponseTemplate::new(status)));
            fake.state().rejected.push_back(("status/fetch", response));
            let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
            assert!(matches!(error, CallError::Unknown(_)), "{status}: {error:?}");
        }
        assert_eq!(fake.state().uploads.len(), 1);
    }
}

fn ok(data: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(json!({ "data": data, "error": { "code": "ok" } }))
}

#[tokio::test]
async fn an_upload_that_ended_without_a_post_is_not_used_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    upload(connector.as_ref(), &mut outgoing).await;
    let accepted_post = accepted(connector.as_ref(), &outgoing).await;
    let failed = || json!({ "status": "FAILED", "fail_reason": "spam_risk_user_banned_from_posting" });
    fake.state().statuses.extend([failed(), failed()]);
    let ended = reconcile(connector.as_ref(), &accepted_post).await;
    assert!(matches!(ended, ReconcileResult::Rejected(CallError::Permanent(_))), "{ended:?}");
    // A user has retried it.
    let error = connector.publish(&bakery(), &accepted_post).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    // If it was published after all, it is not published again.
    accepted(connector.as_ref(), &accepted_post).await;
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.count("PUT")), (1, 1));
}

#[tokio::test]
async fn a_cap_on_posts_waits_and_then_uploads_again() {
    let (fake, _server, connector) = start().await;
    let until = |error: &CallError| match error {
        CallError::RateLimited { until, .. } => until.unwrap() - now(),
        error => panic!("{error:?}"),
    };
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    for code in ["spam_risk_too_many_posts", "reached_active_user_cap"] {
        fake.state().rejected.push_back(("video/init", rejection(403, code)));
        let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
        assert_eq!(until(&error), TimeDelta::hours(6));
    }
    upload(connector.as_ref(), &mut outgoing).await;
    let accepted = accepted(connector.as_ref(), &outgoing).await;
    let failed = || json!({ "status": "FAILED", "fail_reason": "spam_risk_too_many_posts" });
    fake.state().statuses.extend([failed(), failed()]);
    match reconcile(connector.as_ref(), &accepted).await {
        ReconcileResult::Rejected(error) => assert_eq!(until(&error), TimeDelta::hours(6)),
        other => panic!("{other:?}"),
    }
    let error = connector.publish(&bakery(), &accepted).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
}

#[tokio::test]
async fn a_rate_limit_of_chunks_keeps_the_upload() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("PUT", ResponseTemplate::new(429).insert_header("retry-after", "30")));
    let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
    let expected = Some(now() + TimeDelta::seconds(30));
    assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == expected), "{error:?}");
    accepted(connector.as_ref(), &outgoing).await;
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn an_expired_token_is_reported_and_the_upload_continues_with_a_new_one() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), large(20 * MB));
    fake.oauth.revoke("access-0");
    let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    fake.oauth.add_token("access-0");
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    // Chunks need no token, but the status does.
    fake.oauth.revoke("access-0");
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("PUT", ResponseTemplate::new(403)));
    let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    let accepted = accepted(connector.as_ref(), &outgoing).await;
    let error = connector.reconcile(&bakery(), &accepted).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    fake.oauth.add_token("access-0");
    assert_eq!(reconcile(connector.as_ref(), &accepted).await, published("74001"));
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn an_edited_post_uploads_its_video_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), BYTES);
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    outgoing.text = "Fresh rye".to_owned();
    let step = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired);
    upload(connector.as_ref(), &mut outgoing).await;
    outgoing.options.insert("visibility".to_owned(), json!("private"));
    let error = connector.publish(&bakery(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    assert_eq!(fake.state().count("PUT"), 0);
}

#[tokio::test]
async fn chunks_go_to_tiktok_alone() {
    for evil in ["https://evil.example", "https://tiktokapis.com.evil.example", "http://www.tiktok.com", "file://x"] {
        let (fake, _server, connector) = start().await;
        fake.state().base = evil.to_owned();
        let mut outgoing = with_video(connector.as_ref(), BYTES);
        let error = send_video_step(connector.as_ref(), &bakery(), &mut outgoing).await.unwrap_err();
        assert!(error.failure().message.contains("does not belong to TikTok"), "{evil}: {error:?}");
        assert!(outgoing.videos[0].upload.is_empty());
    }
    let (fake, _server, connector) = start().await;
    fake.state().base = "https://open-upload-i18n.tiktokapis.com".to_owned();
    take_steps(connector.as_ref(), &mut with_video(connector.as_ref(), BYTES), 1).await;
}

#[tokio::test]
async fn nothing_but_the_last_chunk_publishes() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), large(21 * MB));
    let result = publish(connector.as_ref(), &bakery(), &mut outgoing).await;
    assert!(matches!(result, Err(CallError::Accepted { .. })), "{result:?}");
    let state = fake.state();
    let calls: Vec<&str> = state.calls.iter().map(String::as_str).collect();
    let expected = [
        "POST /v2/post/publish/creator_info/query/",
        "POST /v2/post/publish/video/init/",
        "PUT /video/ bytes 0-9999999/21000000",
        "PUT /video/ bytes 10000000-20999999/21000000",
    ];
    assert_eq!(calls, expected);
}
