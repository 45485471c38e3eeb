//! Videos on Reddit, against a server that responds as PRAW expects.

use std::sync::Arc;

use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::platform::Platform;
use crier_platforms::{
    CallError, Connector, ConnectorAccount, ConnectorRegistry, Image, OutgoingPost, Published, ReconcileResult,
    VideoStep,
};
use serde_json::{Value, json};
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, clients, connector, image, is_invalid, now, post, publish, send_video_step,
    storage_error, video,
};
use crate::support::forms::form_part;
use crate::support::reddit_videos::{RedditVideos, submit_error};

const BYTES: &str = "bytes of a video";

fn ann() -> ConnectorAccount {
    let secrets = json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" });
    ConnectorAccount { username: Some("ann_b".to_owned()), ..account("4xyz", secrets) }
}

async fn start() -> (RedditVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = RedditVideos::start().await;
    let connector = connector(Platform::Reddit, &server.uri());
    (fake, server, connector)
}

/// A post with a video and its cover.
fn with_video(connector: &dyn Connector) -> OutgoingPost {
    let mut outgoing = OutgoingPost { videos: vec![video(BYTES)], ..post(connector, "Rye & more") };
    outgoing.videos[0].cover = Some(Image { mime_type: "image/jpeg".to_owned(), ..image("cat") });
    outgoing.options.insert("subreddit".to_owned(), json!("Bread"));
    outgoing.options.insert("title".to_owned(), json!("Fresh"));
    outgoing
}

/// Uploads the cover.
async fn send_cover(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    let step = send_video_step(connector, &ann(), outgoing).await.unwrap();
    assert!(matches!(step, VideoStep::Next(_)), "{step:?}");
}

async fn step_error(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> CallError {
    let before = outgoing.videos[0].upload.clone();
    let error = send_video_step(connector, &ann(), outgoing).await.unwrap_err();
    assert_eq!(outgoing.videos[0].upload, before);
    error
}

/// Publishes a post, whose name is not known yet.
async fn accept(connector: &dyn Connector, outgoing: &mut OutgoingPost) {
    let error = publish(connector, &ann(), outgoing).await.unwrap_err();
    let CallError::Accepted { post, .. } = error else { panic!("{error:?}") };
    assert_eq!((&post.marker, post.pause), (&outgoing.marker, TimeDelta::seconds(10)));
}

async fn reconcile(connector: &dyn Connector, outgoing: &OutgoingPost) -> ReconcileResult {
    connector.reconcile(&ann(), outgoing).await.unwrap()
}

fn found(id: &str) -> ReconcileResult {
    let url = format!("https://www.reddit.com/r/Bread/comments/{id}/");
    ReconcileResult::Matches(vec![Published::new(format!("t3_{id}"), Some(url))])
}

#[tokio::test]
async fn a_video_is_uploaded_with_its_cover_and_found_after_it_was_submitted() {
    let (fake, server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    accept(connector.as_ref(), &mut outgoing).await;
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, found("v1"));
    let state = fake.state();
    assert_eq!(state.leased, ["image/jpeg", "video/mp4"]);
    let (poster, clip) = ("rte_media/1-cat.png", "rte_media/2-clip.mp4");
    for (key, bytes, mime_type) in [(poster, "bytes of cat", "image/jpeg"), (clip, BYTES, "video/mp4")] {
        let file = form_part(&state.stored[key], "file").unwrap();
        assert_eq!((file.text().as_str(), file.mime_type.as_deref()), (bytes, Some(mime_type)));
    }
    let storage = format!("{}/storage", server.uri());
    let expected = json!({
        "api_type": "json", "sr": "Bread", "title": "Fresh", "kind": "video", "url": format!("{storage}/{clip}"),
        "video_poster_url": format!("{storage}/{poster}"), "text": "Rye & more", "nsfw": "false", "spoiler": "false",
        "sendreplies": "true", "resubmit": "true", "validate_on_submit": "true",
    });
    assert_eq!(json!(state.posts[0]), expected);
}

#[tokio::test]
async fn a_video_without_a_cover_or_with_a_link_is_rejected_before_anything_is_uploaded() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    outgoing.videos[0].cover = None;
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    assert!(is_invalid(&error) && error.failure().message.contains("Choose an image as the cover"), "{error:?}");
    for (name, value) in [("link", json!("https://example.com/")), ("title", Value::Null)] {
        let mut outgoing = with_video(connector.as_ref());
        outgoing.options.insert(name.to_owned(), value);
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(is_invalid(&error), "{name}: {error:?}");
    }
    assert!(fake.state().calls.is_empty());
}

#[tokio::test]
async fn an_upload_resumes_at_the_video_also_in_another_process() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref());
    send_cover(first.as_ref(), &mut outgoing).await;
    fake.state().rejected.push_back(("POST /storage", storage_error(503, "SlowDown")));
    let error = step_error(first.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    let second = connector(Platform::Reddit, &server.uri());
    let mut resumed = with_video(second.as_ref());
    resumed.videos[0].upload = outgoing.videos[0].upload.clone();
    accept(second.as_ref(), &mut resumed).await;
    let state = fake.state();
    assert_eq!(state.leased, ["image/jpeg", "video/mp4", "video/mp4"], "the cover is uploaded once");
    assert_eq!(state.posts.len(), 1);
}

#[tokio::test]
async fn a_cut_response_repeats_the_step() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    for part in ["POST /api/media/asset", "POST /storage"] {
        fake.state().lost.push_back(part);
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::Transient(_)), "{part}: {error:?}");
    }
    send_cover(connector.as_ref(), &mut outgoing).await;
    for part in ["POST /api/media/asset", "POST /storage"] {
        fake.state().lost.push_back(part);
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::Transient(_)), "{part}: {error:?}");
    }
    accept(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().posts.len(), 1);

    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = super::support::connector(Platform::Reddit, &script.base);
    let error = step_error(broken.as_ref(), &mut with_video(broken.as_ref())).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
}

#[tokio::test]
async fn a_location_whose_lease_has_expired_is_leased_again() {
    for response in [storage_error(403, "AccessDenied"), storage_error(400, "ExpiredToken")] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref());
        send_cover(connector.as_ref(), &mut outgoing).await;
        fake.state().rejected.push_back(("POST /storage", response));
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::Transient(_)), "{error:?}");
        accept(connector.as_ref(), &mut outgoing).await;
        let state = fake.state();
        assert!(state.stored.contains_key("rte_media/3-clip.mp4"), "a new location");
        assert_eq!(state.posts.len(), 1);
    }
}

#[tokio::test]
async fn a_rejected_file_is_invalid_content() {
    for (has_cover, noun) in [(false, "the cover"), (true, "the video")] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref());
        if has_cover {
            send_cover(connector.as_ref(), &mut outgoing).await;
        }
        fake.state().rejected.push_back(("POST /storage", storage_error(400, "EntityTooLarge")));
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(is_invalid(&error) && error.failure().message.contains(noun), "{error:?}");
    }
}

#[tokio::test]
async fn a_subreddit_without_videos_is_invalid_content() {
    let (fake, _server, connector) = start().await;
    fake.state().rejected.push_back(("/api/submit", submit_error("NO_LINKS", "No videos here.", "kind")));
    let mut outgoing = with_video(connector.as_ref());
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(is_invalid(&error) && error.failure().message.contains("No videos here"), "{error:?}");
}

#[tokio::test]
async fn a_video_in_processing_is_searched_for_and_never_submitted_again() {
    let (fake, _server, connector) = start().await;
    fake.state().is_processing = true;
    let mut outgoing = with_video(connector.as_ref());
    accept(connector.as_ref(), &mut outgoing).await;
    for (waited, pause) in [(0, 10), (60, 60), (3_599, 300)] {
        let later = OutgoingPost { called_at: Some(now() - TimeDelta::seconds(waited)), ..outgoing.clone() };
        let expected = ReconcileResult::Pending(TimeDelta::seconds(pause));
        assert_eq!(reconcile(connector.as_ref(), &later).await, expected, "after {waited} seconds");
    }
    // Reddit does not say whether it still processes the video, so a user decides.
    for called_at in [Some(now() - TimeDelta::hours(1)), None] {
        let later = OutgoingPost { called_at, ..outgoing.clone() };
        assert_eq!(reconcile(connector.as_ref(), &later).await, ReconcileResult::Unsupported);
    }
    fake.state().is_processing = false;
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, found("v1"));
    assert_eq!(fake.state().posts.len(), 1);
}

#[tokio::test]
async fn a_lost_response_to_the_submission_is_found_again() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("/api/submit");
    let mut outgoing = with_video(connector.as_ref());
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    assert_eq!(reconcile(connector.as_ref(), &outgoing).await, found("v1"));
    assert_eq!(fake.state().posts.len(), 1);
}

#[tokio::test]
async fn old_uploads_that_reddit_deleted_are_repeated_and_new_ones_are_invalid_content() {
    let (fake, server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    accept(connector.as_ref(), &mut outgoing).await;
    let config = PlatformsConfig::default().with_base_url(Platform::Reddit, server.uri());
    let clock = Clock::manual(now() + TimeDelta::hours(1));
    let later = ConnectorRegistry::new(config, &clients(), &clock).get(Platform::Reddit).unwrap();
    for key in ["rte_media/1-cat.png", "rte_media/2-clip.mp4"] {
        fake.state().stored.remove(key);
        let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
        assert!(is_invalid(&error), "{key}: {error:?}");
        let error = later.publish(&ann(), &outgoing).await.unwrap_err();
        assert!(matches!(error, CallError::UploadsMissing(_)), "{key}: {error:?}");
    }
    assert_eq!(fake.state().posts.len(), 1);
}

#[tokio::test]
async fn a_rate_limit_keeps_the_progress() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    send_cover(connector.as_ref(), &mut outgoing).await;
    let limited = ResponseTemplate::new(429).insert_header("X-Ratelimit-Reset", "42");
    fake.state().rejected.push_back(("/api/media/asset", limited));
    let error = step_error(connector.as_ref(), &mut outgoing).await;
    let expected = Some(now() + TimeDelta::seconds(42));
    assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == expected), "{error:?}");

    let sentence = "Looks like you've been doing that a lot. Take a break for 9 minutes before trying again.";
    fake.state().rejected.push_back(("/api/submit", submit_error("RATELIMIT", sentence, "ratelimit")));
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    let expected = Some(now() + TimeDelta::minutes(9));
    assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == expected), "{error:?}");
    accept(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().leased, ["image/jpeg", "video/mp4"]);
}

#[tokio::test]
async fn an_expired_token_is_reported_by_every_step_and_the_upload_continues_with_a_new_one() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    for step in ["the cover", "the video"] {
        fake.oauth.revoke("access-0");
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::AuthExpired(_)), "{step}: {error:?}");
        fake.oauth.add_token("access-0");
        send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    }
    fake.oauth.revoke("access-0");
    let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    fake.oauth.add_token("access-0");
    accept(connector.as_ref(), &mut outgoing).await;
    assert_eq!(fake.state().leased.len(), 2);
}

#[tokio::test]
async fn videos_go_to_reddits_storage_alone() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    send_cover(connector.as_ref(), &mut outgoing).await;
    for evil in ["//evil.example", "http://x.amazonaws.com", "//amazonaws.com.evil.example", "file:///etc", "x"] {
        fake.state().storage = evil.to_owned();
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(error.failure().message.contains("on another host"), "{evil}: {error:?}");
    }
}
