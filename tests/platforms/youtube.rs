//! YouTube, against a server that responds as its documentation specifies.

use std::sync::Arc;

use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue::descriptor;
use crier_domain::failure::Category;
use crier_domain::platform::{AccountKind, Platform};
use crier_platforms::permissions::{Action, rejection};
use crier_platforms::text::{MediaCount, check_measured, measure};
use crier_platforms::{
    CallError, ConnectError, Connector, ConnectorAccount, OutgoingPost, Published, ReconcileResult, UnpublishPost,
    VideoStep,
};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    account, comment_on, connect_in_browser, connector, image, now, post, publish, send_video_step, shown,
    unpublish_post, video,
};
use crate::support::call_faults::{CallFault, CallFaults};
use crate::support::youtube::{CHANNEL, Youtube, error, video_id};

const MIB: usize = 1 << 20;
const UPLOAD: &str = "https://www.googleapis.com/auth/youtube.upload";
const READ: &str = "https://www.googleapis.com/auth/youtube.readonly";
const MANAGE: &str = "https://www.googleapis.com/auth/youtube.force-ssl";

pub(super) fn channel() -> ConnectorAccount {
    let secrets = json!({
        "access_token": "access-0", "refresh_token": "refresh-0", "client_id": "id", "client_secret": "secret",
        "uploads": "UU-channel_1",
    });
    account(CHANNEL, secrets)
}

pub(super) async fn start() -> (Youtube, MockServer, Arc<dyn Connector>) {
    let (fake, server) = Youtube::start().await;
    let connector = connector(Platform::Youtube, &server.uri());
    (fake, server, connector)
}

fn with_options(connector: &dyn Connector, bytes: impl Into<Bytes>, options: Value) -> OutgoingPost {
    let mut outgoing = OutgoingPost { videos: vec![video(bytes)], ..post(connector, "How we bake rye bread") };
    outgoing.options = json!({ "title": "Rye bread", "made_for_kids": false }).as_object().unwrap().clone();
    outgoing.options.extend(options.as_object().unwrap().clone());
    outgoing
}

pub(super) fn with_video(connector: &dyn Connector, bytes: impl Into<Bytes>) -> OutgoingPost {
    with_options(connector, bytes, json!({}))
}

/// Takes steps until the upload is ready to be published.
async fn upload(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    while !matches!(send_video_step(connector, &channel(), outgoing).await.unwrap(), VideoStep::Ready(_)) {}
}

/// Returns bytes that differ from one mebibyte to the next.
fn large(size: usize) -> Vec<u8> {
    (0..size).map(|position| u8::try_from(position / MIB).unwrap()).collect()
}

#[tokio::test]
async fn a_channel_is_connected_with_its_list_of_uploads() {
    let (fake, _server, connector) = start().await;
    let (attempt, connected) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.authorize_url, "https://accounts.google.com/o/oauth2/v2/auth");
    let extra: Vec<_> = attempt.server.extra.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(extra, [("access_type", "offline"), ("prompt", "consent select_account")]);
    assert!(attempt.server.pkce);
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), (CHANNEL, "Rye Bakery"));
    assert_eq!((connected.username.as_deref(), connected.kind), (Some("rye-bakery"), AccountKind::Channel));
    assert_eq!(connected.profile_url, Some(format!("https://www.youtube.com/channel/{CHANNEL}")));
    assert_eq!(connected.avatar_url.as_deref(), Some("https://yt3.example/240.jpg"));
    assert_eq!(connected.token_expires_at, Some(now() + TimeDelta::seconds(3_599)));
    let renewal = connected.renewal.unwrap();
    assert!(renewal.renewable && !renewal.rotates);
    assert_eq!(shown(&connected.secrets)["uploads"], "UU-channel_1");
}

#[tokio::test]
async fn a_google_account_without_a_channel_is_rejected() {
    let (fake, _server, connector) = start().await;
    fake.state().has_channel = false;
    let rejected = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap_err();
    assert!(matches!(&rejected, ConnectError::Rejected(why) if why.contains("Create one")), "{rejected:?}");
}

#[tokio::test]
async fn a_deselected_permission_for_comments_does_not_prevent_the_connection() {
    let (fake, _server, connector) = start().await;
    fake.oauth.set_granted_scopes(&format!("{UPLOAD} {READ}"));
    let (attempt, _) = connect_in_browser(connector.as_ref(), &fake.oauth).await.unwrap();
    assert_eq!(attempt.server.scopes, [UPLOAD, READ]);
    assert!(attempt.server.further_scopes.iter().any(|scope| scope == MANAGE));
    let granted = [UPLOAD, READ].map(str::to_owned);
    for action in [Action::FirstComment, Action::Unpublish] {
        let failure = rejection(Platform::Youtube, Some(&granted), action).unwrap();
        assert_eq!(failure.code, "missing_permission");
    }
}

#[tokio::test]
async fn a_video_is_uploaded_and_exists_with_its_last_chunk() {
    let (fake, _server, connector) = start().await;
    let options = json!({
        "privacy": "unlisted", "tags": "bread, rye ,", "category_id": "22", "notify_subscribers": false,
    });
    let mut outgoing = with_options(connector.as_ref(), "bytes of a video", options);
    upload(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.videos(), 0, "nothing is visible before the call");
    let published = connector.publish(&channel(), &outgoing).await.unwrap();
    let id = video_id(0);
    let url = format!("https://www.youtube.com/watch?v={id}");
    assert_eq!(published, Published::new(id, Some(url)));
    let state = fake.state();
    let session = &state.sessions[0];
    let expected = json!({
        "snippet": {
            "title": "Rye bread", "description": "How we bake rye bread", "categoryId": "22", "tags": ["bread", "rye"],
        },
        "status": { "privacyStatus": "unlisted", "selfDeclaredMadeForKids": false },
    });
    assert_eq!((&session.metadata, session.bytes.as_slice()), (&expected, &b"bytes of a video"[..]));
    assert!(session.query.contains("part=snippet%2Cstatus&notifySubscribers=false"), "{}", session.query);
}

#[tokio::test]
async fn a_video_is_private_unless_the_post_says_otherwise() {
    let (fake, _server, connector) = start().await;
    publish(connector.as_ref(), &channel(), &mut with_video(connector.as_ref(), "x")).await.unwrap();
    let state = fake.state();
    assert_eq!(state.sessions[0].metadata["status"]["privacyStatus"], "private");
    assert!(!state.sessions[0].query.contains("notifySubscribers"), "YouTube's default");
    assert!(state.covers.is_empty());
}

#[tokio::test]
async fn required_options_and_a_video_are_required() {
    let (fake, _server, connector) = start().await;
    for missing in ["title", "made_for_kids"] {
        let mut outgoing = with_video(connector.as_ref(), "x");
        outgoing.options.remove(missing);
        let error = publish(connector.as_ref(), &channel(), &mut outgoing).await.unwrap_err();
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
        assert!(is_right && error.failure().message.contains(missing), "{error:?}");
    }
    let mut outgoing = with_video(connector.as_ref(), "x");
    outgoing.videos.clear();
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.message.contains("requires a video")), "{error:?}");
    assert!(fake.state().calls.is_empty());
}

#[test]
fn texts_and_media_that_youtube_does_not_accept_are_reported() {
    let youtube = descriptor(Platform::Youtube);
    let problems = |text: &str, images, videos| -> Vec<(&'static str, &'static str)> {
        let checked = check_measured(youtube, &measure(youtube, text), MediaCount { images, videos });
        checked.problems.into_iter().map(|problem| (problem.field, problem.code)).collect()
    };
    assert!(problems("", 0, 1).is_empty());
    assert!(problems(&"é".repeat(2_500), 0, 1).is_empty());
    assert_eq!(problems(&"é".repeat(2_501), 0, 1), [("content", "text_too_long")]);
    assert_eq!(problems("I <3 bread", 0, 1), [("content", "angle_brackets")]);
    assert_eq!(problems("bread", 0, 0), [("media", "video_required")]);
    assert_eq!(problems("bread", 1, 0), [("media", "too_many_images")]);
    let signed = measure(youtube, "bread").with_signature(measure(youtube, "\n\n<Ann>"));
    let found = check_measured(youtube, &signed, MediaCount { images: 0, videos: 1 }).problems;
    assert_eq!(found[0].message, "YouTube does not accept < and > in a text; this text has 2.");
}

#[tokio::test]
async fn a_large_video_is_sent_in_chunks_of_8_mib() {
    let (fake, _server, connector) = start().await;
    let bytes = large(16 * MIB + 1);
    let mut outgoing = with_video(connector.as_ref(), bytes.clone());
    upload(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().sessions[0].bytes.len(), 16 * MIB);
    connector.publish(&channel(), &outgoing).await.unwrap();
    let state = fake.state();
    let sent = state.calls.iter().filter_map(|call| call.strip_prefix("PUT /upload/youtube/v3/videos bytes "));
    let sent: Vec<&str> = sent.filter(|range| !range.starts_with('*')).collect();
    let size = bytes.len();
    let expected = [(0, 8 * MIB), (8 * MIB, 16 * MIB), (16 * MIB, size)];
    assert_eq!(sent, expected.map(|(start, end)| format!("{start}-{}/{size}", end - 1)));
    assert!(state.sessions[0].bytes == bytes, "the chunks are the file");
}

#[tokio::test]
async fn an_upload_resumes_at_the_stored_byte_also_in_another_process() {
    let (fake, server, first) = start().await;
    let bytes = large(17 * MIB);
    let mut outgoing = with_video(first.as_ref(), bytes.clone());
    send_video_step(first.as_ref(), &channel(), &mut outgoing).await.unwrap();
    fake.state().cuts.push_back(3 * MIB);
    let error = send_video_step(first.as_ref(), &channel(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    let second = connector(Platform::Youtube, &server.uri());
    let mut resumed = with_video(second.as_ref(), bytes.clone());
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    publish(second.as_ref(), &channel(), &mut resumed).await.unwrap();
    let state = fake.state();
    assert_eq!(state.sessions.len(), 1);
    assert!(state.sessions[0].bytes == bytes, "the chunks are the file");
    let resumed_at = format!("bytes {}-", 3 * MIB);
    assert!(state.calls.iter().any(|call| call.contains(&resumed_at)), "{:?}", state.calls);
}

#[tokio::test]
async fn accounts_of_an_application_share_its_uploads_per_day() {
    let (_fake, _server, connector) = start().await;
    let quota = connector.upload_quota(&channel()).unwrap();
    assert_eq!((quota.name.as_str(), quota.until - quota.since), ("youtube:id", TimeDelta::days(1)));
    assert!(quota.since <= now() && now() < quota.until, "{quota:?}");
    let elsewhere = account(CHANNEL, json!({ "access_token": "access-1", "client_id": "other" }));
    assert_ne!(connector.upload_quota(&elsewhere).unwrap().name, quota.name);
}

#[tokio::test]
async fn a_session_that_loses_bytes_begins_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), large(17 * MIB));
    send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    let begun = outgoing.videos[0].upload.clone();
    send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    assert_ne!(outgoing.videos[0].upload, begun, "the worker notices the progress");
    fake.state().sessions[0].bytes.truncate(MIB);
    let step = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    assert_eq!((step, fake.state().sessions[0].bytes.len()), (VideoStep::Expired, MIB));
}

#[tokio::test]
async fn a_lost_response_to_the_last_chunk_is_recovered_by_the_session() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().lost.push_back("bytes 0-15/16");
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    let found = connector.reconcile(&channel(), &outgoing).await.unwrap();
    assert!(matches!(&found, ReconcileResult::Found(post) if post.external_id == video_id(0)), "{found:?}");
    // A call without a lookup finds the video as well.
    let again = connector.publish(&channel(), &outgoing).await.unwrap();
    assert_eq!((again.external_id, fake.videos()), (video_id(0), 1));
}

#[tokio::test]
async fn a_last_chunk_that_did_not_arrive_is_sent_again_to_the_same_session() {
    let (fake, _server, first) = start().await;
    let mut outgoing = with_video(first.as_ref(), "bytes of a video");
    upload(first.as_ref(), &mut outgoing).await;
    let (faults, server) = CallFaults::start(fake.clone()).await;
    fake.state().base = server.uri();
    let connector = connector(Platform::Youtube, &server.uri());
    let session = outgoing.videos[0].upload["session"].as_str().unwrap();
    let session = format!("{}{}", server.uri(), &session[session.find("/upload").unwrap()..]);
    outgoing.videos[0].upload["session"] = json!(session);
    // The session is queried first, then the chunk is sent.
    faults.fail_call(1, CallFault::Break, false);
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)) && faults.has_failed(), "{error:?}");
    assert_eq!(connector.reconcile(&channel(), &outgoing).await.unwrap(), ReconcileResult::Absent);
    connector.publish(&channel(), &outgoing).await.unwrap();
    assert_eq!((fake.videos(), fake.state().sessions.len()), (1, 1));
}

#[tokio::test]
async fn a_partly_stored_last_chunk_is_unknown_until_the_session_is_queried() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().cuts.push_back(9);
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    assert_eq!(connector.reconcile(&channel(), &outgoing).await.unwrap(), ReconcileResult::Absent);
    connector.publish(&channel(), &outgoing).await.unwrap();
    assert_eq!(fake.state().sessions[0].bytes, b"bytes of a video");
}

#[tokio::test]
async fn a_complete_file_that_is_no_video_yet_is_waited_for() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    upload(connector.as_ref(), &mut outgoing).await;
    let complete = || ResponseTemplate::new(308).insert_header("range", "bytes=0-15");
    fake.state().rejected.push_back(("bytes */16", complete()));
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Accepted { .. }), "{error:?}");
    fake.state().rejected.push_back(("bytes */16", complete()));
    let pending = ReconcileResult::Pending(TimeDelta::minutes(1));
    assert_eq!(connector.reconcile(&channel(), &outgoing).await.unwrap(), pending);
}

#[tokio::test]
async fn an_ended_session_begins_again_unless_the_video_may_exist() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    fake.state().sessions[0].has_ended = true;
    let step = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired);
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().sessions[1].has_ended = true;
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "before the last chunk: {error:?}");

    (outgoing.videos[0].uploaded, outgoing.videos[0].upload) = Default::default();
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("bytes 0-15/16", ResponseTemplate::new(410)));
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "with the last chunk: {error:?}");
    fake.state().sessions[2].has_ended = true;
    let found = connector.reconcile(&channel(), &outgoing).await.unwrap();
    assert_eq!(found, ReconcileResult::Unsupported, "a new video may not be listed yet");
}

#[tokio::test]
async fn a_video_of_an_ended_session_is_found_by_its_title_and_description() {
    let (fake, _server, connector) = start().await;
    let mut other = with_options(connector.as_ref(), "other", json!({ "title": "White bread" }));
    publish(connector.as_ref(), &channel(), &mut other).await.unwrap();
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    upload(connector.as_ref(), &mut outgoing).await;
    fake.state().lost.push_back("bytes 0-15/16");
    connector.publish(&channel(), &outgoing).await.unwrap_err();
    fake.state().sessions[1].has_ended = true;
    let url = format!("https://www.youtube.com/watch?v={}", video_id(1));
    let expected = ReconcileResult::Matches(vec![Published::new(video_id(1), Some(url))]);
    assert_eq!(connector.reconcile(&channel(), &outgoing).await.unwrap(), expected);
    outgoing.called_at = Some(now() + TimeDelta::hours(1));
    let found = connector.reconcile(&channel(), &outgoing).await.unwrap();
    assert_eq!(found, ReconcileResult::Unsupported, "it was published before the call");
}

#[tokio::test]
async fn a_changed_title_begins_a_new_session() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    outgoing.options.insert("title".to_owned(), json!("Bread of rye"));
    let step = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    assert_eq!(step, VideoStep::Expired);
    upload(connector.as_ref(), &mut outgoing).await;
    outgoing.options.insert("title".to_owned(), json!("Rye"));
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    assert_eq!((fake.videos(), fake.state().sessions.len()), (0, 2));
}

#[tokio::test]
async fn the_cover_is_set_and_a_rejected_one_does_not_fail_the_post() {
    for rejected in [false, true] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
        outgoing.videos[0].cover = Some(image("cat"));
        if rejected {
            fake.state().rejected.push_back(("/thumbnails/set", error(403, "forbidden")));
        }
        let published = publish(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
        let expected = if rejected { vec![] } else { vec![(published.external_id, b"bytes of cat".to_vec())] };
        assert_eq!(fake.state().covers, expected);
    }
}

#[tokio::test]
async fn an_upload_url_of_another_host_is_rejected() {
    let (fake, _server, connector) = start().await;
    for url in ["https://example.com/u", "http://www.googleapis.com/u", "https://googleapis.com.example/u", "x"] {
        let response = ResponseTemplate::new(200).insert_header("location", url);
        fake.state().rejected.push_back(("POST /upload", response));
        let mut outgoing = with_video(connector.as_ref(), "x");
        let error = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{url}: {error:?}");
        assert!(outgoing.videos[0].upload.is_empty());
    }
}

async fn begin_expecting_error(response: ResponseTemplate) -> CallError {
    let (fake, _server, connector) = start().await;
    fake.state().rejected.push_back(("POST /upload", response));
    let mut outgoing = with_video(connector.as_ref(), "x");
    let error = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap_err();
    assert!(fake.state().sessions.is_empty());
    error
}

#[tokio::test]
async fn errors_are_classified() {
    let midnight = "2026-03-02T08:00:00Z".parse::<DateTime<Utc>>().unwrap();
    for (status, reason, until) in [
        (403, "quotaExceeded", midnight),
        (400, "uploadLimitExceeded", now() + TimeDelta::hours(24)),
        (403, "rateLimitExceeded", now() + TimeDelta::minutes(1)),
        (403, "accessNotConfigured", now() + TimeDelta::hours(6)),
    ] {
        let limited = begin_expecting_error(error(status, reason)).await;
        assert!(matches!(&limited, CallError::RateLimited { until: at, .. } if *at == Some(until)), "{limited:?}");
    }
    let limited = begin_expecting_error(error(429, "rateLimitExceeded").insert_header("retry-after", "7")).await;
    let seven = Some(now() + TimeDelta::seconds(7));
    assert!(matches!(&limited, CallError::RateLimited { until, .. } if *until == seven), "{limited:?}");
    for (status, reason, category, says) in [
        (401, "youtubeSignupRequired", Category::Account, "Create one"),
        (403, "forbidden", Category::Account, "does not allow this: It is forbidden."),
        (400, "invalidTitle", Category::InvalidContent, "does not accept this: It is invalidTitle."),
    ] {
        let rejected = begin_expecting_error(error(status, reason)).await;
        let is_right = matches!(&rejected, CallError::Permanent(f) if f.category == category);
        assert!(is_right && rejected.failure().message.contains(says), "{rejected:?}");
        assert_eq!(rejected.failure().platform_code.as_deref(), Some(reason));
    }
    let unavailable = begin_expecting_error(error(503, "backendError")).await;
    assert!(matches!(unavailable, CallError::Transient(_)), "{unavailable:?}");
}

#[tokio::test]
async fn an_expired_token_is_reported_by_every_step_and_is_renewed() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    for _ in 0..2 {
        fake.oauth.revoke("access-0");
        let error = send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
        fake.oauth.add_token("access-0");
        send_video_step(connector.as_ref(), &channel(), &mut outgoing).await.unwrap();
    }
    fake.oauth.revoke("access-0");
    let error = connector.publish(&channel(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    let secrets = connector.refresh(&channel()).await.unwrap().secrets.unwrap();
    assert_eq!(shown(&secrets)["refresh_token"], "refresh-0");
    connector.publish(&ConnectorAccount { secrets, ..channel() }, &outgoing).await.unwrap();
    assert_eq!(fake.state().sessions.len(), 1);
}

#[tokio::test]
async fn a_disconnect_revokes_the_grant() {
    let (fake, _server, connector) = start().await;
    connector.revoke(&channel()).await.unwrap();
    assert_eq!(fake.state().revoked, ["refresh-0"]);
}

#[tokio::test]
async fn a_first_comment_is_published_below_the_video() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let video = publish(connector.as_ref(), &channel(), &mut outgoing).await.unwrap().external_id;
    let comment = comment_on(connector.as_ref(), "The recipe", &video);
    let published = connector.publish(&channel(), &comment).await.unwrap();
    let url = format!("https://www.youtube.com/watch?v={video}&lc=Ugx-1");
    assert_eq!(published, Published::new("Ugx-1", Some(url)));
    let expected = json!({
        "channelId": CHANNEL, "videoId": video, "topLevelComment": { "snippet": { "textOriginal": "The recipe" } },
    });
    assert_eq!(fake.state().comments, [expected]);

    let found = connector.reconcile(&channel(), &comment).await.unwrap();
    assert_eq!(found, ReconcileResult::Matches(vec![Published::new("Ugx-1", None)]));
    let other = comment_on(connector.as_ref(), "Another one", &video);
    assert_eq!(connector.reconcile(&channel(), &other).await.unwrap(), ReconcileResult::Absent);
    fake.state().lost.push_back("POST /youtube/v3/commentThreads");
    let error = connector.publish(&channel(), &other).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
}

#[tokio::test]
async fn a_comment_needs_its_video_and_the_permission() {
    let (fake, _server, connector) = start().await;
    let comment = comment_on(connector.as_ref(), "The recipe", "video-00007");
    let error = connector.publish(&channel(), &comment).await.unwrap_err();
    assert!(matches!(error, CallError::ParentMissing(_)), "{error:?}");
    let missing = crate::support::youtube::error(403, "insufficientPermissions");
    fake.state().rejected.push_back(("POST /youtube/v3/commentThreads", missing));
    let error = connector.publish(&channel(), &comment).await.unwrap_err();
    let is_right = matches!(&error, CallError::Permanent(f) if f.code == "missing_permission");
    assert!(is_right && error.failure().message.contains(MANAGE), "{error:?}");
}

#[tokio::test]
async fn videos_and_comments_are_deleted_and_a_deletion_can_be_repeated() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref(), "bytes of a video");
    let video = publish(connector.as_ref(), &channel(), &mut outgoing).await.unwrap().external_id;
    connector.publish(&channel(), &comment_on(connector.as_ref(), "The recipe", &video)).await.unwrap();
    let comment = UnpublishPost { is_comment: true, ..unpublish_post("Ugx-1") };
    for _ in 0..2 {
        connector.unpublish(&channel(), &comment).await.unwrap();
    }
    assert_eq!((fake.videos(), fake.state().comments.len()), (1, 0), "only the comment");
    for _ in 0..2 {
        connector.unpublish(&channel(), &unpublish_post(&video)).await.unwrap();
    }
    assert_eq!(fake.videos(), 0);
}

#[tokio::test]
async fn failed_deletions_are_classified() {
    let (fake, _server, connector) = start().await;
    let fails_with = async |status, reason: &'static str| {
        fake.state().rejected.push_back(("DELETE", error(status, reason)));
        connector.unpublish(&channel(), &unpublish_post("video-00001")).await.unwrap_err()
    };
    let denied = fails_with(403, "insufficientPermissions").await;
    assert!(matches!(&denied, CallError::Permanent(f) if f.code == "missing_permission"), "{denied:?}");
    let limited = fails_with(403, "quotaExceeded").await;
    assert!(matches!(limited, CallError::RateLimited { .. }), "{limited:?}");
    let unavailable = fails_with(503, "backendError").await;
    assert!(matches!(unavailable, CallError::Transient(_)), "{unavailable:?}");
}
