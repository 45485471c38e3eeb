//! Videos on LinkedIn, against a server that responds as its documentation specifies.

use std::sync::Arc;

use chrono::{TimeDelta, TimeZone, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, ConnectorRegistry, Image, OutgoingPost, VideoStep};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, clients, connector, image, moved, now, post, publish, send_video_step, video,
};
use crate::support::linkedin_videos::{LinkedinVideos, VIDEO, error};

/// The bytes of a video of three parts, of four bytes each.
const BYTES: &str = "aaaabbbbcc";

fn person() -> ConnectorAccount {
    account("782bbtaQ", json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" }))
}

/// The page of an organization.
fn page() -> ConnectorAccount {
    ConnectorAccount { external_id: "urn:li:organization:7".to_owned(), ..person() }
}

/// A server with parts of four bytes.
async fn start() -> (LinkedinVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = LinkedinVideos::start().await;
    fake.state().part_size = 4;
    let connector = connector(Platform::Linkedin, &server.uri());
    (fake, server, connector)
}

fn with_video(connector: &dyn Connector) -> OutgoingPost {
    OutgoingPost { videos: vec![video(BYTES)], ..post(connector, "Hi") }
}

fn with_cover(connector: &dyn Connector) -> OutgoingPost {
    let mut outgoing = with_video(connector);
    outgoing.videos[0].cover = Some(Image { mime_type: "image/jpeg".to_owned(), ..image("cat") });
    outgoing
}

/// Takes the next steps of the upload and expects that each ends with something to store.
async fn take_steps(connector: &dyn Connector, outgoing: &mut OutgoingPost, count: usize) {
    for _ in 0..count {
        let step = send_video_step(connector, &person(), outgoing).await.unwrap();
        assert!(matches!(step, VideoStep::Next(_) | VideoStep::Pending(..)), "{step:?}");
    }
}

async fn step_error(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> CallError {
    let before = outgoing.videos[0].upload.clone();
    let error = send_video_step(connector, &person(), outgoing).await.unwrap_err();
    assert_eq!(outgoing.videos[0].upload, before);
    error
}

fn assert_invalid(error: &CallError, text: &str) {
    let is_right = matches!(error, CallError::Permanent(f) if f.category == Category::InvalidContent);
    assert!(is_right && error.failure().message.contains(text), "{error:?}");
}

#[tokio::test]
async fn a_small_video_is_one_part_and_is_posted_with_its_title() {
    let (fake, server) = LinkedinVideos::start().await;
    let connector = connector(Platform::Linkedin, &server.uri());
    let mut outgoing = with_video(connector.as_ref());
    outgoing.options.insert("title".to_owned(), json!("A clip"));
    let published = publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(published.external_id, "urn:li:ugcPost:1");
    let state = fake.state();
    let expected = json!({
        "owner": "urn:li:person:782bbtaQ", "fileSizeBytes": 10, "uploadCaptions": false, "uploadThumbnail": false,
    });
    assert_eq!(state.initialized, [expected]);
    assert_eq!(state.parts[&0], BYTES.as_bytes(), "the last part ends with the file");
    assert_eq!(state.posts[0]["content"], json!({ "media": { "id": VIDEO, "title": "A clip" } }));
}

#[tokio::test]
async fn a_page_uploads_parts_and_a_cover_and_waits_for_the_processing() {
    let (fake, _server, connector) = start().await;
    fake.state().states.extend([json!({ "status": "PROCESSING" }), json!({ "status": "WAITING_UPLOAD" })]);
    let mut outgoing = with_cover(connector.as_ref());
    let mut pauses = Vec::new();
    let reference = loop {
        match send_video_step(connector.as_ref(), &page(), &mut outgoing).await.unwrap() {
            VideoStep::Next(_) => {}
            VideoStep::Pending(_, pause) => pauses.push(pause),
            VideoStep::Ready(reference) => break reference,
            VideoStep::Expired => panic!("expired"),
        }
    };
    assert_eq!((reference, pauses), (json!(VIDEO), vec![TimeDelta::seconds(10); 3]));
    connector.publish(&page(), &outgoing).await.unwrap();
    let state = fake.state();
    let owner = json!("urn:li:organization:7");
    assert_eq!((&state.initialized[0]["owner"], &state.initialized[0]["uploadThumbnail"]), (&owner, &json!(true)));
    let parts: Vec<_> = state.parts.values().map(|part| String::from_utf8(part.clone()).unwrap()).collect();
    assert_eq!(parts, ["aaaa", "bbbb", "cc"]);
    assert_eq!(state.cover.as_deref(), Some(&b"bytes of cat"[..]));
    assert_eq!((&state.posts[0]["author"], &state.posts[0]["content"]), (&owner, &json!({ "media": { "id": VIDEO } })));
}

/// Each part has a signed URL of its own.
#[tokio::test]
async fn the_urls_of_all_parts_of_a_gigabyte_are_stored() {
    let (fake, server, connector) = start().await;
    fake.state().base = format!("{}/{}", server.uri(), "s".repeat(1_200));
    let mut outgoing = OutgoingPost { videos: vec![video(vec![0_u8; 4 * 256])], ..post(connector.as_ref(), "Hi") };
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    assert_eq!(outgoing.videos[0].upload["parts"].as_array().unwrap().len(), 256);
}

/// A member has 150 calls per day, which checks at a constant rate would use up.
#[tokio::test]
async fn the_state_of_a_video_is_checked_less_often_the_longer_it_takes() {
    let (fake, server, first) = start().await;
    fake.state().states.extend((0..5).map(|_| json!({ "status": "PROCESSING" })));
    let mut outgoing = with_video(first.as_ref());
    take_steps(first.as_ref(), &mut outgoing, 5).await;
    for (waited, expected) in [(0, 10), (11, 11), (120, 120), (3_600, 300), (-60, 10)] {
        let config = PlatformsConfig::default().with_base_url(Platform::Linkedin, server.uri());
        let clock = Clock::manual(now() + TimeDelta::seconds(waited));
        let later = ConnectorRegistry::new(config, &clients(), &clock).get(Platform::Linkedin).unwrap();
        let step = send_video_step(later.as_ref(), &person(), &mut outgoing).await.unwrap();
        let VideoStep::Pending(_, pause) = step else { panic!("{step:?}") };
        assert_eq!(pause, TimeDelta::seconds(expected), "after {waited} seconds");
    }
}

#[tokio::test]
async fn a_video_of_more_parts_than_can_be_stored_is_rejected_before_its_upload() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    outgoing.videos[0].size = (2 << 30) + 1;
    assert_invalid(&step_error(connector.as_ref(), &mut outgoing).await, "at most 2 GiB");
    assert!(fake.state().calls.is_empty());
}

#[tokio::test]
async fn an_upload_resumes_at_the_failed_part_also_in_another_process() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_cover(first.as_ref());
    take_steps(first.as_ref(), &mut outgoing, 2).await;
    fake.state().rejected.push_back(("part/1", ResponseTemplate::new(503)));
    let error = step_error(first.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    let second = connector(Platform::Linkedin, &server.uri());
    let mut resumed = with_cover(second.as_ref());
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    publish(second.as_ref(), &person(), &mut resumed).await.unwrap();
    let state = fake.state();
    let puts: Vec<_> = state.calls.iter().filter_map(|call| call.strip_prefix("PUT /dms-uploads/")).collect();
    assert_eq!(puts, ["part/0", "part/1", "part/1", "part/2", "cover"]);
    assert_eq!((state.initialized.len(), state.posts.len()), (1, 1));
}

#[tokio::test]
async fn a_cut_response_repeats_the_part() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref());
    take_steps(first.as_ref(), &mut outgoing, 1).await;
    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Linkedin, &script.base);
    outgoing.videos[0].upload = moved(&outgoing.videos[0].upload, &server.uri(), &script.base);
    let error = step_error(broken.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    assert!(script.requests()[0].ends_with("\r\n\r\naaaa"), "{:?}", script.requests());

    outgoing.videos[0].upload = moved(&outgoing.videos[0].upload, &script.base, &server.uri());
    publish(first.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().parts.len(), 3);
}

#[tokio::test]
async fn a_lost_response_to_the_last_call_is_recovered_by_the_state() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 4).await;
    fake.state().lost.push_back("finalizeUpload");
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    let state = fake.state();
    assert_eq!((state.initialized.len(), state.posts.len()), (1, 1), "nothing was uploaded again");
}

#[tokio::test]
async fn a_video_that_linkedin_cannot_process_is_rejected_with_its_reason() {
    for (failed, text) in [
        (json!({ "status": "PROCESSING_FAILED", "processingFailureReason": "Unsupported codec" }), "Unsupported codec"),
        (json!({ "status": "PROCESSING_FAILED" }), "Check that it is an MP4 file"),
    ] {
        let (fake, _server, connector) = start().await;
        fake.state().states.push_back(failed);
        let mut outgoing = with_video(connector.as_ref());
        let error = publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap_err();
        assert_invalid(&error, text);
        assert!(fake.state().posts.is_empty());
    }
}

#[tokio::test]
async fn a_rejected_file_and_a_rejected_cover_are_invalid_content() {
    let (fake, _server, connector) = start().await;
    let too_large = error(400, "INVALID_FILE_SIZE", "The file is larger than 5 GB");
    fake.state().rejected.push_back(("initializeUpload", too_large));
    let error = step_error(connector.as_ref(), &mut with_video(connector.as_ref())).await;
    assert_invalid(&error, "larger than 5 GB");

    let mut outgoing = with_cover(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 4).await;
    fake.state().rejected.push_back(("cover", ResponseTemplate::new(415)));
    assert_invalid(&step_error(connector.as_ref(), &mut outgoing).await, "cover");
}

#[tokio::test]
async fn a_daily_limit_keeps_the_progress_until_midnight() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 4).await;
    let throttled = error(429, "TOO_MANY_REQUESTS", "Resource level throttle");
    fake.state().rejected.push_back(("finalizeUpload", throttled));
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    let midnight = Utc.with_ymd_and_hms(2026, 3, 2, 0, 0, 0).unwrap();
    assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == Some(midnight)), "{error:?}");
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().initialized.len(), 1);
}

#[tokio::test]
async fn a_limit_of_the_storage_does_not_wait_until_midnight() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let throttled = ResponseTemplate::new(429).insert_header("retry-after", "7");
    fake.state().rejected.push_back(("part/0", throttled));
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    let until = now() + TimeDelta::seconds(7);
    assert!(matches!(&error, CallError::RateLimited { until: found, .. } if *found == Some(until)), "{error:?}");
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().initialized.len(), 1);
}

#[tokio::test]
async fn an_expired_upload_begins_again() {
    let expired = || error(400, "EXPIRED_UPLOAD_URL", "The Video upload URL is expired");
    for (steps, path, response) in [
        (1, "part/0", ResponseTemplate::new(401)),
        (2, "part/1", ResponseTemplate::new(403)),
        (2, "part/1", expired()),
        (4, "cover", expired()),
        (5, "finalizeUpload", expired()),
        (6, "GET", ResponseTemplate::new(404)),
    ] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_cover(connector.as_ref());
        take_steps(connector.as_ref(), &mut outgoing, steps).await;
        fake.state().rejected.push_back((path, response));
        let step = send_video_step(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
        assert_eq!(step, VideoStep::Expired, "{path} after {steps} steps");
        publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
        let state = fake.state();
        assert_eq!((state.initialized.len(), state.posts.len()), (2, 1));
    }
}

#[tokio::test]
async fn urls_whose_time_has_passed_are_not_used() {
    let (fake, _server, connector) = start().await;
    fake.state().expires_at = now().timestamp_millis();
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let step = send_video_step(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired);
    assert_eq!(fake.state().calls.len(), 1);
    // Zero is no time.
    fake.state().expires_at = 0;
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
}

#[tokio::test]
async fn an_expired_token_is_reported_by_the_calls_that_need_it() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_cover(connector.as_ref());
    fake.oauth.revoke("access-0");
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    fake.oauth.add_token("access-0");
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    fake.oauth.revoke("access-0");
    take_steps(connector.as_ref(), &mut outgoing, 4).await;
    for _ in ["the end of the upload", "the state"] {
        fake.oauth.revoke("access-0");
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
        fake.oauth.add_token("access-0");
        send_video_step(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    }
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().initialized.len(), 1);
}

#[tokio::test]
async fn parts_and_covers_go_to_linkedin_alone() {
    for evil in ["https://evil.example", "https://linkedin.com.evil.example", "http://www.linkedin.com", "file:///etc"]
    {
        let (fake, _server, connector) = start().await;
        fake.state().base = evil.to_owned();
        let error = step_error(connector.as_ref(), &mut with_video(connector.as_ref())).await;
        assert!(error.failure().message.contains("does not belong to LinkedIn"), "{evil}: {error:?}");
    }
}

#[tokio::test]
async fn hostile_instructions_are_not_followed() {
    let session = |base: &str, video: &str, ranges: &[(u64, u64)]| {
        let instruction =
            |(first, last): &(u64, u64)| json!({ "uploadUrl": base, "firstByte": first, "lastByte": last });
        let instructions: Vec<Value> = ranges.iter().map(instruction).collect();
        json!({ "value": { "video": video, "uploadToken": "", "uploadInstructions": instructions } })
    };
    let bytes: Vec<_> = (0..10).map(|number| (number, number)).collect();
    let many: Vec<_> = (0..600).map(|number| (number, number)).collect();
    for (video, ranges) in [
        (VIDEO, vec![]),
        (VIDEO, vec![(0, 3)]),
        (VIDEO, vec![(0, 3), (3, 9)]),
        (VIDEO, vec![(4, 9), (0, 3)]),
        (VIDEO, vec![(0, u64::MAX)]),
        (VIDEO, many),
        ("urn:li:video:../posts", bytes.clone()),
    ] {
        let (fake, server, connector) = start().await;
        let body = session(&server.uri(), video, &ranges);
        fake.state().rejected.push_back(("initializeUpload", ResponseTemplate::new(200).set_body_json(body)));
        let error = step_error(connector.as_ref(), &mut with_video(connector.as_ref())).await;
        assert!(matches!(error, CallError::Transient(_)), "{video} {ranges:?}: {error:?}");
    }
    let (fake, server, connector) = start().await;
    let body = session(&server.uri(), VIDEO, &bytes);
    fake.state().rejected.push_back(("initializeUpload", ResponseTemplate::new(200).set_body_json(body)));
    take_steps(connector.as_ref(), &mut with_video(connector.as_ref()), 1).await;
}

#[tokio::test]
async fn a_part_without_an_id_is_sent_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    fake.state().rejected.push_back(("part/0", ResponseTemplate::new(200)));
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().parts.len(), 3);
}

#[tokio::test]
async fn a_user_whose_videos_cannot_be_read_posts_without_their_state() {
    let (fake, _server, connector) = start().await;
    let forbidden = error(403, "ACCESS_DENIED", "Accessing this video resource is forbidden.");
    fake.state().rejected.push_back(("GET", forbidden));
    let mut outgoing = with_video(connector.as_ref());
    let waiting = error(400, "MEDIA_ASSET_WAITING_UPLOAD", "Media asset is waiting upload");
    fake.state().rejected.push_back(("POST /rest/posts", waiting));
    let error = publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::Transient(f) if f.category == Category::Media), "{error:?}");
    connector.publish(&person(), &outgoing).await.unwrap();
    assert_eq!(fake.state().posts.len(), 1);
}

#[tokio::test]
async fn a_lost_response_to_the_post_leaves_its_outcome_unknown() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("POST /rest/posts");
    let mut outgoing = with_video(connector.as_ref());
    let error = publish(connector.as_ref(), &person(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    assert_eq!(fake.state().posts.len(), 1);
}
