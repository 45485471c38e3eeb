//! Videos on Mastodon, against a server that processes uploads as its documentation specifies.

use std::sync::Arc;

use chrono::{TimeDelta, TimeZone, Utc};
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, OutgoingPost, ReconcileResult, VideoStep};
use wiremock::ResponseTemplate;

use super::mastodon::{account_at, error, start};
use super::support::{connector, image, post, publish, send_video_step, video};
use crate::support::call_faults::{CallFault, CallFaults};
use crate::support::mastodon::Switches;

const MEDIA: &str = "/api/v1/media/100";

fn post_of(connector: &dyn Connector) -> OutgoingPost {
    OutgoingPost { videos: vec![video("moving bytes")], ..post(connector, "Moving") }
}

fn fresh() -> Arc<dyn Connector> {
    connector(Platform::Mastodon, "")
}

#[tokio::test]
async fn a_video_goes_out_with_its_description_and_its_cover_after_processing() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    outgoing.videos[0].cover = Some(image("cat"));
    mastodon.fake.process_for(2);
    for _ in 0..3 {
        let step = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
        assert!(matches!(step, VideoStep::Pending(_, pause) if pause > TimeDelta::zero()), "{step:?}");
        assert!(mastodon.fake.toots().is_empty());
    }
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(mastodon.fake.toots()[0].media, ["100"]);
    assert_eq!(mastodon.fake.files(), [b"moving bytes"]);
    let form = &mastodon.fake.media()["100"];
    for part in ["name=\"file\"; filename=\"clip.mp4\"", "Content-Type: video/mp4", "a <clip>", "bytes of cat"] {
        assert!(form.contains(part), "{part} in {form}");
    }
    assert!(form.contains("name=\"thumbnail\"; filename=\"cat.png\""), "{form}");
}

#[tokio::test]
async fn a_video_that_is_ready_is_not_waited_for() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    let step = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Ready("100".into()));
    assert!(!mastodon.fake.media()["100"].contains("thumbnail"));
}

#[tokio::test]
async fn images_and_videos_keep_their_order() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    outgoing.images = vec![image("cat"), image("dog")];
    outgoing.videos[0].position = 1;
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    // The images are uploaded first.
    assert_eq!(mastodon.fake.toots()[0].media, ["100", "102", "101"]);
}

#[tokio::test]
async fn another_process_waits_for_the_stored_upload() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    mastodon.fake.process_for(1);
    send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    mastodon.fake.script(MEDIA, ResponseTemplate::new(503));
    let failed = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(failed, CallError::Transient(_)), "{failed:?}");

    let other = fresh();
    let mut resumed = post_of(other.as_ref());
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    publish(other.as_ref(), &account, &mut resumed).await.unwrap();
    assert_eq!((mastodon.fake.files().len(), mastodon.fake.toots().len()), (1, 1));
}

#[tokio::test]
async fn a_cut_response_uploads_the_video_again_and_publishes_once() {
    let (mastodon, connector, _) = start().await;
    let (faults, server) = CallFaults::start(mastodon.fake.clone()).await;
    let account = account_at(&server.uri());
    let mut outgoing = post_of(connector.as_ref());
    faults.fail_call(0, CallFault::Break, true);
    let cut = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(&cut, CallError::Transient(failure) if failure.category == Category::Network), "{cut:?}");
    assert!(outgoing.videos[0].upload.is_empty());
    publish(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    // No status uses the first upload.
    assert_eq!((mastodon.fake.files().len(), mastodon.fake.toots().len()), (2, 1));
    assert_eq!(mastodon.fake.toots()[0].media, ["101"]);
}

#[tokio::test]
async fn a_rejected_file_is_permanent_with_the_servers_reason() {
    let reason = "Validation failed: File is too large";
    for processing in [0, 5] {
        let (mastodon, connector, account) = start().await;
        let mut outgoing = post_of(connector.as_ref());
        mastodon.fake.process_for(processing);
        let path = if processing == 0 { "/api/v2/media" } else { MEDIA };
        mastodon.fake.script(path, error(422, reason));
        if processing > 0 {
            send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
        }
        let rejected = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
        let is_right = matches!(&rejected, CallError::Permanent(f) if f.category == Category::InvalidContent);
        assert!(is_right && rejected.failure().message.contains(reason), "{rejected:?}");
    }
    let (mastodon, connector, account) = start().await;
    mastodon.fake.script("/api/v2/media", ResponseTemplate::new(413));
    let mut outgoing = post_of(connector.as_ref());
    let rejected = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(rejected, CallError::Permanent(_)), "{rejected:?}");
}

#[tokio::test]
async fn an_upload_that_the_server_deleted_begins_again() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    mastodon.fake.process_for(1);
    send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    mastodon.fake.script(MEDIA, error(404, "Record not found"));
    let over = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(over, VideoStep::Expired);
    mastodon.fake.process_for(0);
    let step = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Ready("101".into()));

    mastodon.fake.script("/api/v1/statuses", error(422, "Validation failed: Media attachments not found"));
    mastodon.fake.set_media_status(404);
    let missing = connector.publish(&account, &outgoing).await.unwrap_err();
    assert!(matches!(missing, CallError::UploadsMissing(_)), "{missing:?}");
    assert!(missing.failure().message.contains("a video"), "{missing:?}");
}

#[tokio::test]
async fn the_limit_of_uploads_delays_the_video() {
    let (mastodon, connector, account) = start().await;
    let reset = "2026-03-01T12:30:00.000Z";
    let limited = error(429, "Too many requests").insert_header("x-ratelimit-reset", reset);
    mastodon.fake.script("/api/v2/media", limited);
    let mut outgoing = post_of(connector.as_ref());
    let limited = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    let CallError::RateLimited { until, .. } = limited else { panic!("{limited:?}") };
    assert_eq!(until, Some(Utc.with_ymd_and_hms(2026, 3, 1, 12, 30, 0).unwrap()));
}

#[tokio::test]
async fn a_revoked_token_expires_the_account_at_each_step() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    for path in ["/api/v2/media", MEDIA] {
        mastodon.fake.process_for(1);
        mastodon.fake.script(path, error(401, "The access token was revoked"));
        let revoked = send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
        assert!(matches!(revoked, CallError::Reauth(_)), "{path}: {revoked:?}");
        send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    }
    assert_eq!(mastodon.fake.files().len(), 1);
}

#[tokio::test]
async fn the_key_of_a_status_is_first_used_after_the_processing() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    mastodon.fake.process_for(1);
    while outgoing.videos[0].uploaded.is_none() {
        send_video_step(connector.as_ref(), &account, &mut outgoing).await.unwrap();
    }
    let requests = mastodon.server.received_requests().await.unwrap();
    assert!(requests.iter().all(|request| !request.headers.contains_key("idempotency-key")));
    let first = connector.publish(&account, &outgoing).await.unwrap();
    assert_eq!(connector.publish(&account, &outgoing).await.unwrap(), first);
    assert_eq!(mastodon.fake.toots().len(), 1);
}

#[tokio::test]
async fn a_lost_response_is_reconciled_by_the_number_of_media() {
    let (mastodon, connector, account) = start().await;
    let mut outgoing = post_of(connector.as_ref());
    mastodon.fake.set(Switches { loses_responses: true, ..Switches::default() });
    let lost = publish(connector.as_ref(), &account, &mut outgoing).await.unwrap_err();
    assert!(matches!(lost, CallError::Unknown(_)), "{lost:?}");
    let found = connector.reconcile(&account, &outgoing).await.unwrap();
    assert!(matches!(&found, ReconcileResult::Matches(posts) if posts[0].external_id == "1000"), "{found:?}");
    let without_video = OutgoingPost { videos: Vec::new(), ..outgoing };
    let found = connector.reconcile(&account, &without_video).await.unwrap();
    assert_eq!(found, ReconcileResult::Absent, "another post has the same text");
}
