//! Videos on X, against a server that responds as its documents specify.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, ConnectorRegistry, OutgoingPost, VideoStep};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, clients, connector, now, post, publish, send_video_step, video,
};
use crate::support::twitter_videos::{TwitterVideos, problem};

const MIB: usize = 1024 * 1024;

fn ann() -> ConnectorAccount {
    ConnectorAccount { username: Some("ann_b".to_owned()), ..account("44", json!({ "access_token": "access-0" })) }
}

async fn start() -> (TwitterVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = TwitterVideos::start().await;
    let connector = connector(Platform::Twitter, &server.uri());
    (fake, server, connector)
}

fn with_video(connector: &dyn Connector, bytes: impl Into<bytes::Bytes>) -> OutgoingPost {
    OutgoingPost { videos: vec![video(bytes)], ..post(connector, "Hi") }
}

/// Takes the next steps of the upload and expects that each ends with something to store.
async fn take_steps(connector: &dyn Connector, outgoing: &mut OutgoingPost, count: usize) {
    for _ in 0..count {
        let step = send_video_step(connector, &ann(), outgoing).await.unwrap();
        assert!(matches!(step, VideoStep::Next(_) | VideoStep::Pending(..)), "{step:?}");
    }
}

/// Returns bytes that differ from one segment to the next.
fn large(size: usize) -> Vec<u8> {
    (0..size).map(|position| u8::try_from(position / MIB).unwrap()).collect()
}

#[tokio::test]
async fn a_video_is_uploaded_processed_and_posted() {
    let (fake, _server, connector) = start().await;
    fake.state().states.push_back(json!({ "state": "in_progress", "check_after_secs": 2, "progress_percent": 8 }));
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    take_steps(connector.as_ref(), &mut outgoing, 2).await;
    let mut pauses = Vec::new();
    let reference = loop {
        match send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap() {
            VideoStep::Pending(_, pause) => pauses.push(pause),
            VideoStep::Ready(reference) => break reference,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(pauses, [TimeDelta::seconds(3), TimeDelta::seconds(2)], "as long as X asks for");
    let published = connector.publish(&ann(), &outgoing).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://x.com/ann_b/status/9001"));
    let state = fake.state();
    assert_eq!(state.tweets, [json!({ "text": "Hi", "media": { "media_ids": [reference] } })]);
    assert_eq!(state.alts, [json!({ "id": reference, "metadata": { "alt_text": { "text": "a <clip>" } } })]);
    let expected = json!({ "media_type": "video/mp4", "media_category": "tweet_video", "total_bytes": 16 });
    assert_eq!((&state.uploads[0].initialized, state.uploads[0].bytes()), (&expected, b"bytes of a video".to_vec()));
}

#[tokio::test]
async fn a_large_video_is_sent_in_segments_of_4_mib() {
    let (fake, _server, connector) = start().await;
    let bytes = large(9 * MIB + 1);
    let mut outgoing = with_video(connector.as_ref(), bytes.clone());
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    let state = fake.state();
    let sizes: Vec<_> = state.uploads[0].segments.iter().map(|(index, bytes)| (*index, bytes.len())).collect();
    assert_eq!(sizes, [(0, 4 * MIB), (1, 4 * MIB), (2, MIB + 1)]);
    assert!(state.uploads[0].bytes() == bytes, "the segments are the file");
}

#[tokio::test]
async fn an_upload_resumes_at_the_failed_segment_also_in_another_process() {
    let (fake, server, first) = start().await;
    let bytes = large(9 * MIB);
    let mut outgoing = with_video(first.as_ref(), bytes.clone());
    take_steps(first.as_ref(), &mut outgoing, 2).await;
    fake.state().rejected.push_back(("/append", problem(503, "Over capacity")));
    let error = send_video_step(first.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    let second = connector(Platform::Twitter, &server.uri());
    let upload = outgoing.videos[0].upload.clone();
    let mut resumed = with_video(second.as_ref(), bytes.clone());
    resumed.videos[0].upload = upload;
    publish(second.as_ref(), &ann(), &mut resumed).await.unwrap();
    let state = fake.state();
    let calls: Vec<_> = state.calls.iter().filter_map(|call| call.split_once("append?")).map(|(_, n)| n).collect();
    assert_eq!(calls, ["0", "1", "1", "2"]);
    assert_eq!((state.uploads.len(), state.tweets.len()), (1, 1));
    assert!(state.uploads[0].bytes() == bytes, "the segments are the file");
}

#[tokio::test]
async fn a_cut_response_repeats_the_step() {
    let id = "1900000000000000001";
    let data = |body: Value| ScriptStep::Respond(200, json!({ "data": body }));
    let script = ScriptedServer::start(vec![
        ScriptStep::HangUp,
        data(json!({ "id": id })),
        ScriptStep::HangUp,
        data(json!({ "expires_at": 1 })),
        ScriptStep::HangUp,
        data(json!({ "id": id, "processing_info": { "state": "pending" } })),
        ScriptStep::HangUp,
    ])
    .await;
    let connector = connector(Platform::Twitter, &script.base);
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    for _ in 0..3 {
        let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
        take_steps(connector.as_ref(), &mut outgoing, 1).await;
    }
    let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    let heads: Vec<_> = script.requests().iter().map(|head| head.split(" HTTP").next().unwrap().to_owned()).collect();
    let [begin, append, finalize] = ["initialize", &format!("{id}/append"), &format!("{id}/finalize")]
        .map(|end| format!("POST /2/media/upload/{end}"));
    let check = format!("GET /2/media/upload?command=STATUS&media_id={id}");
    assert_eq!(heads, [&begin, &begin, &append, &append, &finalize, &finalize, &check].map(String::clone));
}

#[tokio::test]
async fn a_lost_response_to_the_last_call_is_recovered_by_the_state() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    take_steps(connector.as_ref(), &mut outgoing, 2).await;
    fake.state().lost.push_back("/finalize");
    let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.tweets.len()), (1, 1), "nothing was uploaded again");
}

#[tokio::test]
async fn a_missing_segment_is_not_taken_for_a_lost_response() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    take_steps(connector.as_ref(), &mut outgoing, 2).await;
    fake.state().uploads[0].segments.clear();
    let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.message.contains("do not add up")), "{error:?}");
}

#[tokio::test]
async fn a_video_that_x_cannot_process_is_rejected_and_the_message_says_that_x_gives_no_reason() {
    let (fake, _server, connector) = start().await;
    fake.state().states.push_back(json!({ "state": "failed" }));
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
    assert!(is_right && error.failure().message.contains("gave no reason"), "{error:?}");
    assert!(fake.state().tweets.is_empty());
}

#[tokio::test]
async fn a_rejected_file_is_invalid_content() {
    for (path, detail) in [
        ("/initialize", "The total_bytes value is too large."),
        ("/finalize", "Invalid or unsupported media, Reason: UnsupportedMedia."),
    ] {
        let (fake, _server, connector) = start().await;
        fake.state().rejected.push_back((path, problem(400, detail)));
        let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
        let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
        assert!(is_right && error.failure().message.contains(detail), "{detail}: {error:?}");
    }
}

#[tokio::test]
async fn an_upload_that_x_deleted_begins_again() {
    // Before a segment, before the end, and while X processes it.
    for steps in 1..=3 {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
        take_steps(connector.as_ref(), &mut outgoing, steps).await;
        fake.state().uploads[0].is_deleted = true;
        let step = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
        assert_eq!(step, VideoStep::Expired, "after {steps} steps");
        publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
        let state = fake.state();
        assert_eq!((state.uploads.len(), state.tweets.len()), (2, 1));
    }
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    fake.state().rejected.push_back(("/append", problem(400, "Invalid media.")));
    let step = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired, "in words");
}

#[tokio::test]
async fn a_rate_limit_keeps_the_progress_and_returns_its_reset() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let reset = now() + TimeDelta::minutes(15);
    let limited = problem(429, "Too Many Requests").insert_header("x-rate-limit-reset", reset.timestamp().to_string());
    fake.state().rejected.push_back(("/append", limited));
    let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == Some(reset)), "{error:?}");
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn an_expired_token_is_reported_by_every_step_and_the_upload_continues_with_a_new_one() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    for steps in 0..4 {
        fake.oauth.revoke("access-0");
        let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::AuthExpired(_)), "after {steps} steps: {error:?}");
        fake.oauth.add_token("access-0");
        send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    }
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn a_failed_alt_text_does_not_prevent_the_post() {
    let (fake, _server, connector) = start().await;
    fake.state().rejected.push_back(("/metadata", problem(400, "This media has no alt text.")));
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    let state = fake.state();
    assert_eq!((state.alts.len(), state.tweets.len()), (0, 1));
}

#[tokio::test]
async fn a_video_longer_than_the_account_may_post_is_invalid_content() {
    let (fake, _server, connector) = start().await;
    let detail = "This user is not allowed to post a video longer than 2 minutes";
    fake.state().rejected.push_back(("/tweets", problem(403, detail)));
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
    assert!(is_right && error.failure().message.contains(detail), "{error:?}");
}

#[tokio::test]
async fn a_post_with_an_old_upload_uploads_again_and_one_with_a_new_upload_is_invalid_content() {
    let (fake, server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    fake.state().uploads[0].is_deleted = true;
    let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
    let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
    assert!(is_right && error.failure().message.contains("60 frames per second"), "{error:?}");

    let config = PlatformsConfig::default().with_base_url(Platform::Twitter, server.uri());
    let clock = Clock::manual(now() + TimeDelta::hours(25));
    let later = ConnectorRegistry::new(config, &clients(), &clock).get(Platform::Twitter).unwrap();
    let error = later.publish(&ann(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    assert_eq!(fake.state().tweets.len(), 1);
}

#[tokio::test]
async fn a_lost_response_to_the_post_leaves_its_outcome_unknown() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("/tweets");
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    assert_eq!(fake.state().tweets.len(), 1);
}

#[tokio::test]
async fn an_id_that_is_no_number_never_becomes_part_of_a_url() {
    let (fake, server, connector) = start().await;
    let strange = ResponseTemplate::new(200).set_body_json(json!({ "data": { "id": "../tweets" } }));
    fake.state().rejected.push_back(("/initialize", strange));
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let error = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    assert!(outgoing.videos[0].upload.is_empty());
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}
