//! Videos on Bluesky, against a video service and an account's server that respond as their lexicons specify.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::failure::Category;
use crier_domain::media::VideoType;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, ConnectorRegistry, MarkerSeed, OutgoingPost, VideoStep};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{account, clients, now, post, publish, send_video_step, unused_address, video};
use crate::support::bluesky::{ACCESS, DID};
use crate::support::bluesky_video::{AUDIENCE, BlueskyVideo, PART_SIZE, blob, error, job};
use crate::support::call_faults::{CallFault, CallFaults};

/// A size that is sent in three parts, the last of which is smaller.
const LARGE: usize = (16 << 20) + 5;

fn alice() -> ConnectorAccount {
    let secrets = json!({
        "identifier": "alice.example", "app_password": "abcd-efgh", "service": "", "access_jwt": ACCESS,
        "refresh_jwt": "refresh-1",
    });
    account(DID, secrets)
}

/// The connector with a default server and a video service.
fn connector_at(base: &str, service: &str) -> Arc<dyn Connector> {
    let mut config = PlatformsConfig::default().with_base_url(Platform::Bluesky, base);
    config.platforms.entry(Platform::Bluesky).or_default().video_url = Some(service.to_owned());
    ConnectorRegistry::new(config, &clients(), &Clock::manual(now())).get(Platform::Bluesky).unwrap()
}

async fn start() -> (BlueskyVideo, Arc<CallFaults>, MockServer, Arc<dyn Connector>) {
    let fake = BlueskyVideo::default();
    let (faults, server) = CallFaults::start(fake.clone()).await;
    let connector = connector_at(&server.uri(), &server.uri());
    (fake, faults, server, connector)
}

fn bytes(size: usize) -> Vec<u8> {
    let pattern: Vec<u8> = (0..251).collect();
    let mut bytes = pattern.repeat(size / pattern.len() + 1);
    bytes.truncate(size);
    bytes
}

fn post_of(connector: &dyn Connector, size: usize) -> OutgoingPost {
    OutgoingPost { videos: vec![video(bytes(size))], ..post(connector, "Moving") }
}

fn step_name(step: &VideoStep) -> &'static str {
    match step {
        VideoStep::Next(_) => "next",
        VideoStep::Pending(..) => "pending",
        VideoStep::Ready(_) => "ready",
        VideoStep::Expired => "expired",
    }
}

/// Hands the video over, without waiting. Returns the names of the steps.
async fn hand_over(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> Vec<&'static str> {
    let mut steps = Vec::new();
    while outgoing.videos[0].uploaded.is_none() {
        steps.push(step_name(&send_video_step(connector, &alice(), outgoing).await.unwrap()));
        assert!(steps.len() < 20, "{steps:?}");
    }
    steps
}

fn written(fake: &BlueskyVideo) -> Value {
    fake.repo.records().into_values().next().unwrap()
}

#[tokio::test]
async fn a_small_video_is_sent_in_one_request_and_embedded() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    publish(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    assert_eq!(fake.files(), [bytes(1_000)]);
    assert_eq!((fake.calls("uploadVideo"), fake.calls("startUpload"), fake.calls("uploadBlob")), (1, 0, 0));
    let embed = json!({
        "$type": "app.bsky.embed.video", "video": blob(), "alt": "a <clip>",
        "aspectRatio": { "width": 720, "height": 1_280 },
    });
    assert_eq!(written(&fake)["embed"], embed);
    let query = &fake.token_queries()[0];
    assert_eq!((query["aud"].as_str(), query["lxm"].as_str()), (AUDIENCE, "com.atproto.repo.uploadBlob"));
    assert_eq!(query["exp"], (now() + TimeDelta::minutes(30)).timestamp().to_string());
}

#[tokio::test]
async fn a_large_video_is_sent_in_parts() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    let steps = hand_over(connector.as_ref(), &mut outgoing).await;
    assert_eq!(steps, ["next", "next", "next", "next", "next", "ready"]);
    assert!(fake.files() == [bytes(LARGE)], "the parts are complete and in order");
    assert_eq!((fake.calls("uploadPart"), fake.calls("uploadVideo")), (LARGE.div_ceil(PART_SIZE), 0));
    connector.publish(&alice(), &outgoing).await.unwrap();
    assert_eq!(written(&fake)["embed"]["video"], blob());
    // The service keeps the token of the last call, so that it was issued for that.
    assert_eq!(fake.finishing_tokens(), [format!("token-{}", fake.token_queries().len() - 1)]);
}

#[tokio::test]
async fn an_upload_resumes_at_the_failed_part_in_another_process() {
    let (fake, _faults, server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    for _ in 0..2 {
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    }
    fake.script("uploadPart", error(503, "ServiceOverloaded", "draining"));
    let failed = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");

    let other = connector_at(&server.uri(), &server.uri());
    let upload = outgoing.videos[0].upload.clone();
    let mut resumed = post_of(other.as_ref(), LARGE);
    resumed.videos[0].upload = upload;
    hand_over(other.as_ref(), &mut resumed).await;
    assert!(fake.files() == [bytes(LARGE)]);
    assert_eq!((fake.calls("startUpload"), fake.calls("uploadPart")), (1, 4), "one part was sent twice");
}

#[tokio::test]
async fn an_open_upload_is_aborted() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    for _ in 0..2 {
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    }
    let open = outgoing.videos[0].upload.clone();
    connector.abort_video(&alice(), &open).await.unwrap();
    assert_eq!(fake.calls("abortUpload"), 1);
    let step = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    assert_eq!(step_name(&step), "expired");

    // The service processes an upload that was finished.
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    for _ in 0..5 {
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    }
    connector.abort_video(&alice(), &outgoing.videos[0].upload).await.unwrap();
    assert_eq!(fake.calls("abortUpload"), 1);
    hand_over(connector.as_ref(), &mut outgoing).await;
    assert!(fake.files() == [bytes(LARGE)]);
}

#[tokio::test]
async fn a_cut_response_to_a_part_sends_only_that_part_again() {
    let (fake, faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    // The call for a token comes first.
    faults.fail_call(1, CallFault::Break, true);
    let cut = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&cut, CallError::Transient(failure) if failure.category == Category::Network), "{cut:?}");
    assert!(faults.has_failed());
    hand_over(connector.as_ref(), &mut outgoing).await;
    assert!(fake.files() == [bytes(LARGE)]);
    assert_eq!((fake.calls("startUpload"), fake.calls("uploadPart")), (1, 4));
}

#[tokio::test]
async fn a_cut_response_to_a_small_video_does_not_move_it_to_the_accounts_server() {
    let (fake, faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    // After the session and the token.
    faults.fail_call(2, CallFault::Break, true);
    let cut = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&cut, CallError::Transient(failure) if failure.category == Category::Network), "{cut:?}");
    publish(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    assert_eq!((fake.calls("uploadVideo"), fake.calls("uploadBlob"), fake.repo.records().len()), (2, 0, 1));
}

#[tokio::test]
async fn missing_parts_are_sent_again() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    for _ in 0..4 {
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    }
    fake.lose_part(2);
    hand_over(connector.as_ref(), &mut outgoing).await;
    assert!(fake.files() == [bytes(LARGE)]);
    assert_eq!((fake.calls("startUpload"), fake.calls("uploadPart"), fake.calls("getUploadStatus")), (1, 5, 1));
    // A service that never has all parts does not keep the upload going.
    let mut again = post_of(connector.as_ref(), LARGE);
    for _ in 0..4 {
        send_video_step(connector.as_ref(), &alice(), &mut again).await.unwrap();
    }
    fake.script("finishUpload", error(400, "MissingParts", "1"));
    fake.script("finishUpload", error(400, "MissingParts", "1"));
    let next = send_video_step(connector.as_ref(), &alice(), &mut again).await.unwrap();
    assert_eq!(step_name(&next), "next");
    let over = send_video_step(connector.as_ref(), &alice(), &mut again).await.unwrap();
    assert_eq!(over, VideoStep::Expired);
}

#[tokio::test]
async fn a_video_is_pending_while_it_is_processed() {
    let (fake, _faults, server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    fake.process_for(2);
    assert_eq!(hand_over(connector.as_ref(), &mut outgoing).await, ["next", "pending", "pending", "ready"]);
    // A process that finds the stored job does not send the video again.
    fake.process_for(1);
    let mut other = post_of(connector.as_ref(), 1_000);
    other.videos[0].upload = outgoing.videos[0].upload.clone();
    let fresh = connector_at(&server.uri(), &server.uri());
    assert_eq!(hand_over(fresh.as_ref(), &mut other).await, ["pending", "ready"]);
    assert_eq!(fake.calls("uploadVideo"), 1);
}

#[tokio::test]
async fn a_video_that_the_service_already_has_is_used() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    let mut existing = job("JOB_STATE_FAILED");
    (existing["error"], existing["message"]) = (json!("already_exists"), json!("Video already processed"));
    fake.script("uploadVideo", ResponseTemplate::new(409).set_body_json(existing.clone()));
    existing["blob"] = blob();
    fake.script("getJobStatus", ResponseTemplate::new(200).set_body_json(json!({ "jobStatus": existing })));
    assert_eq!(hand_over(connector.as_ref(), &mut outgoing).await, ["next", "ready"]);
    assert_eq!(outgoing.videos[0].uploaded, Some(blob()));
}

#[tokio::test]
async fn an_upload_that_is_over_begins_again() {
    for name in ["UploadExpired", "UploadNotFound", "UploadAborted", "UploadFailed"] {
        let (fake, _faults, _server, connector) = start().await;
        let mut outgoing = post_of(connector.as_ref(), LARGE);
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
        fake.script("uploadPart", error(400, name, "over"));
        let over = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
        assert_eq!(over, VideoStep::Expired, "{name}");
        send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
        assert_eq!(fake.calls("startUpload"), 2, "{name}");
    }
    // A job that the service no longer knows, and one that failed at the account's server.
    let mut failed = job("JOB_STATE_FAILED");
    failed["failureCode"] = json!("pds_upload_failure");
    let failed = ResponseTemplate::new(200).set_body_json(json!({ "jobStatus": failed }));
    for response in [error(400, "InvalidRequest", "Job not found"), failed] {
        let (fake, _faults, _server, connector) = start().await;
        let mut outgoing = post_of(connector.as_ref(), 1_000);
        fake.script("getJobStatus", response);
        assert_eq!(hand_over(connector.as_ref(), &mut outgoing).await, ["next", "expired", "next", "ready"]);
    }
}

#[tokio::test]
async fn a_finish_in_progress_is_waited_for() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    fake.script("finishUpload", error(400, "UploadNotReady", "A finish is in progress"));
    let steps = hand_over(connector.as_ref(), &mut outgoing).await;
    assert_eq!(steps, ["next", "next", "next", "next", "pending", "next", "ready"]);
}

/// Returns the error of the first step, at which this method returns this response.
async fn step_error(size: usize, name: &str, response: ResponseTemplate) -> CallError {
    let (fake, _faults, _server, connector) = start().await;
    fake.script(name, response);
    let mut outgoing = post_of(connector.as_ref(), size);
    let error = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(fake.files().is_empty() && fake.calls("uploadBlob") == 0);
    error
}

#[tokio::test]
async fn a_rejected_file_is_permanent() {
    let specific = ["VideoTooLarge", "VideoTooLong", "BadAspectRatio", "UnsupportedContentType"];
    // The names of rejected images, too.
    for name in specific.into_iter().chain(["PayloadTooLarge", "InvalidMimeType"]) {
        for (size, method) in [(LARGE, "startUpload"), (1_000, "uploadVideo")] {
            let rejected = step_error(size, method, error(400, name, "no")).await;
            let is_right = matches!(&rejected, CallError::Permanent(f) if f.category == Category::InvalidContent);
            assert!(is_right && rejected.failure().platform_code.as_deref() == Some(name), "{rejected:?}");
            assert!(rejected.failure().message.contains("video"), "{rejected:?}");
        }
    }
    let forbidden = step_error(LARGE, "startUpload", error(403, "UploadForbidden", "no")).await;
    assert!(matches!(&forbidden, CallError::Permanent(f) if f.category == Category::Account), "{forbidden:?}");

    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    let mut failed = job("JOB_STATE_FAILED");
    (failed["failureCode"], failed["message"]) = (json!("validation_failure"), json!("No <b>video</b> track"));
    fake.script("getJobStatus", ResponseTemplate::new(200).set_body_json(json!({ "jobStatus": failed })));
    send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    let rejected = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(rejected, CallError::Permanent(_)), "{rejected:?}");
    assert_eq!(rejected.failure().message, "Bluesky does not accept this video: No video track");
}

#[tokio::test]
async fn a_limit_of_the_account_delays_the_upload() {
    for (name, pause) in [("DailyLimitExceeded", 60), ("TooManyOpenUploads", 10)] {
        let limited = step_error(LARGE, "startUpload", error(400, name, "later")).await;
        let CallError::RateLimited { until, failure } = limited else { panic!("{name}: {limited:?}") };
        assert_eq!(until, Some(now() + TimeDelta::minutes(pause)), "{name}");
        // The account's posts without videos are not limited.
        assert_eq!(failure.is_daily_limit(), name == "DailyLimitExceeded");
    }
    let slow = error(429, "RateLimitExceeded", "slow down").insert_header("retry-after", "30");
    let limited = step_error(1_000, "uploadVideo", slow).await;
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(now() + TimeDelta::seconds(30)));
    let overloaded = step_error(LARGE, "startUpload", error(503, "ServiceOverloaded", "draining")).await;
    assert!(matches!(overloaded, CallError::Transient(_)), "{overloaded:?}");
}

#[tokio::test]
async fn an_expired_access_token_is_renewed_and_the_upload_goes_on() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    for name in ["getSession", "getServiceAuth"] {
        fake.script(name, error(400, "ExpiredToken", "Token has expired"));
        let expired = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
        assert!(matches!(expired, CallError::AuthExpired(_)), "{name}: {expired:?}");
    }
    send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    fake.script("getServiceAuth", error(400, "ExpiredToken", "Token has expired"));
    let expired = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(expired, CallError::AuthExpired(_)), "{expired:?}");
    hand_over(connector.as_ref(), &mut outgoing).await;
    assert_eq!((fake.calls("startUpload"), fake.calls("uploadPart")), (1, 3));
}

#[tokio::test]
async fn a_token_that_the_service_rejects_does_not_expire_the_account() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
    fake.script("uploadPart", error(401, "BadJwt", "jwt is expired"));
    let rejected = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(rejected, CallError::Transient(_)), "{rejected:?}");
    hand_over(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.calls("startUpload"), 1);
}

#[tokio::test]
async fn a_service_without_parts_receives_a_large_video_in_one_request() {
    let (fake, _faults, _server, connector) = start().await;
    fake.script("startUpload", error(501, "MethodNotImplemented", "Method Not Implemented"));
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    assert_eq!(hand_over(connector.as_ref(), &mut outgoing).await, ["next", "ready"]);
    assert!(fake.files() == [bytes(LARGE)]);
}

#[tokio::test]
async fn parts_that_do_not_fit_the_video_are_not_sent() {
    for (size, count) in [(0, 1), (PART_SIZE, 2), (PART_SIZE, 4), (1, 16_777_221)] {
        let plan = json!({ "jobId": "upload-1", "partSizeBytes": size, "partCount": count });
        let unusable = step_error(LARGE, "startUpload", ResponseTemplate::new(200).set_body_json(plan)).await;
        assert!(matches!(unusable, CallError::Transient(_)), "{size}, {count}: {unusable:?}");
    }
}

#[tokio::test]
async fn a_server_without_tokens_stores_the_video_itself() {
    for rejection in [
        error(501, "MethodNotImplemented", "Method Not Implemented"),
        error(400, "InvalidRequest", "insufficient access to request a service auth token"),
    ] {
        let (fake, _faults, _server, connector) = start().await;
        fake.script("getServiceAuth", rejection);
        let mut outgoing = post_of(connector.as_ref(), 1_000);
        publish(connector.as_ref(), &alice(), &mut outgoing).await.unwrap();
        assert_eq!((fake.calls("uploadBlob"), fake.calls("uploadVideo")), (1, 0));
        let stored = &written(&fake)["embed"]["video"];
        assert_eq!((&stored["mimeType"], &stored["size"]), (&json!("video/mp4"), &json!(1_000)));
    }
}

#[tokio::test]
async fn the_accounts_server_stores_the_video_if_the_service_cannot_be_reached() {
    let (fake, _faults, server, _) = start().await;
    let connector = connector_at(&server.uri(), &unused_address().await);
    for size in [1_000, LARGE] {
        let mut outgoing = post_of(connector.as_ref(), size);
        assert_eq!(hand_over(connector.as_ref(), &mut outgoing).await, ["ready"]);
        assert_eq!(outgoing.videos[0].uploaded.as_ref().unwrap()["size"], json!(size));
    }
    // The service may accept what the server does not.
    fake.script("uploadBlob", error(413, "PayloadTooLarge", "request entity too large"));
    let mut outgoing = post_of(connector.as_ref(), LARGE);
    let failed = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&failed, CallError::Transient(f) if f.category == Category::Network), "{failed:?}");
    assert!(outgoing.videos[0].upload.is_empty(), "the next attempt begins at the service");
}

#[tokio::test]
async fn the_accounts_server_has_limits_of_its_own() {
    let (fake, _faults, _server, connector) = start().await;
    let no_tokens = || error(501, "MethodNotImplemented", "Method Not Implemented");
    fake.script("getServiceAuth", no_tokens());
    fake.script("uploadBlob", error(413, "PayloadTooLarge", "request entity too large"));
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    let rejected = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&rejected, CallError::Permanent(f) if f.message.contains("smaller file")), "{rejected:?}");

    fake.script("getServiceAuth", no_tokens());
    outgoing.videos[0].mime_type = VideoType::Webm;
    let rejected = send_video_step(connector.as_ref(), &alice(), &mut outgoing).await.unwrap_err();
    assert!(matches!(&rejected, CallError::Permanent(f) if f.message.contains("only MP4")), "{rejected:?}");
    assert_eq!(fake.calls("uploadBlob"), 1);
}

#[tokio::test]
async fn a_video_that_the_server_deleted_is_uploaded_again() {
    let (fake, _faults, _server, connector) = start().await;
    let mut outgoing = post_of(connector.as_ref(), 1_000);
    hand_over(connector.as_ref(), &mut outgoing).await;
    fake.script("putRecord", error(400, "BlobNotFound", "Could not find blob: bafkrei"));
    let missing = connector.publish(&alice(), &outgoing).await.unwrap_err();
    assert!(matches!(missing, CallError::UploadsMissing(_)), "{missing:?}");
}

#[tokio::test]
async fn parts_of_a_thread_have_videos() {
    let (fake, _faults, _server, connector) = start().await;
    let seed = MarkerSeed { target_id: 7, at: now(), random: 99, reply: None, parts: 2 };
    let mut parts = [post_of(connector.as_ref(), 1_000), post_of(connector.as_ref(), 2_000)];
    for part in &mut parts {
        part.marker = connector.marker(seed);
        hand_over(connector.as_ref(), part).await;
    }
    connector.publish_thread(&alice(), &parts).await.unwrap();
    let records: Vec<Value> = fake.repo.records().into_values().collect();
    assert_eq!(records.len(), 2);
    for record in &records {
        assert_eq!(record["embed"]["video"], blob());
    }
    let parent = |record: &Value| record["reply"]["parent"]["cid"].as_str().map(str::to_owned);
    let with_video = parent(&records[1]).unwrap();
    // The CID of the first part depends on its video.
    let (other, _faults, _server, connector) = start().await;
    parts[0].videos.clear();
    connector.publish_thread(&alice(), &parts).await.unwrap();
    let others: Vec<Value> = other.repo.records().into_values().collect();
    assert_ne!(parent(&others[1]).unwrap(), with_video);
}
