//! Videos on Pinterest, against a server that responds as its OpenAPI document specifies.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, Connector, ConnectorAccount, Image, OutgoingPost, ReconcileResult, VideoStep};
use serde_json::json;
use wiremock::{MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, is_invalid, moved, now, post, publish, send_video_step,
    storage_error, video,
};
use crate::support::forms::form_part;
use crate::support::pinterest_videos::{PinterestVideos, error};

const BYTES: &str = "bytes of a video";
const MEDIA_ID: &str = "5000000000000000001";

fn ann() -> ConnectorAccount {
    account("643", json!({ "access_token": "access-0", "client_id": "id", "client_secret": "secret" }))
}

async fn start() -> (PinterestVideos, MockServer, Arc<dyn Connector>) {
    let (fake, server) = PinterestVideos::start().await;
    let connector = connector(Platform::Pinterest, &server.uri());
    (fake, server, connector)
}

fn with_video(connector: &dyn Connector) -> OutgoingPost {
    let mut outgoing = OutgoingPost { videos: vec![video(BYTES)], ..post(connector, "Rye & more") };
    let options = json!({ "board": "77", "title": "Bread", "link": "https://example.com/" });
    outgoing.options = options.as_object().unwrap().clone();
    outgoing
}

/// Takes the next steps of the upload and expects that each ends with something to store.
async fn take_steps(connector: &dyn Connector, outgoing: &mut OutgoingPost, count: usize) {
    for _ in 0..count {
        let step = send_video_step(connector, &ann(), outgoing).await.unwrap();
        assert!(matches!(step, VideoStep::Next(_) | VideoStep::Pending(..)), "{step:?}");
    }
}

async fn step_error(connector: &dyn Connector, outgoing: &mut OutgoingPost) -> CallError {
    let before = outgoing.videos[0].upload.clone();
    let error = send_video_step(connector, &ann(), outgoing).await.unwrap_err();
    assert_eq!(outgoing.videos[0].upload, before);
    error
}

#[tokio::test]
async fn a_video_is_sent_in_a_form_processed_and_pinned() {
    let (fake, _server, connector) = start().await;
    fake.state().states.extend(["registered", "processing"]);
    let mut outgoing = with_video(connector.as_ref());
    take_steps(connector.as_ref(), &mut outgoing, 1).await;
    let mut pauses = Vec::new();
    let reference = loop {
        match send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap() {
            VideoStep::Pending(_, pause) => pauses.push(pause),
            VideoStep::Ready(reference) => break reference,
            step => panic!("{step:?}"),
        }
    };
    assert_eq!((reference, pauses), (json!(MEDIA_ID), vec![TimeDelta::seconds(10); 3]));
    assert!(!serde_json::to_string(&outgoing.videos[0].upload).unwrap().contains("signed"), "the form is forgotten");
    let published = connector.publish(&ann(), &outgoing).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://www.pinterest.com/pin/900/"));

    let state = fake.state();
    let form = &state.uploads[0].form;
    assert_eq!(form.len(), 9, "all parameters and the file");
    let file = form_part(form, "file").unwrap();
    assert_eq!((file.filename.as_deref(), file.mime_type.as_deref()), (Some("clip.mp4"), Some("video/mp4")));
    assert_eq!(file.text(), BYTES);
    let source = json!({ "source_type": "video_id", "media_id": MEDIA_ID, "cover_image_key_frame_time": 0.0 });
    let pin = &state.pins[0];
    assert_eq!((&pin["media_source"], &pin["alt_text"]), (&source, &json!("a <clip>")));
    assert_eq!((&pin["board_id"], &pin["title"]), (&json!("77"), &json!("Bread")));
}

#[tokio::test]
async fn the_cover_is_a_frame_of_the_video_or_an_image() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    outgoing.videos[0].cover_at_ms = Some(1_500);
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    outgoing.videos[0].cover = Some(Image { mime_type: "image/jpeg".to_owned(), ..image("cat") });
    connector.publish(&ann(), &outgoing).await.unwrap();
    let state = fake.state();
    let frame = json!({ "source_type": "video_id", "media_id": MEDIA_ID, "cover_image_key_frame_time": 1.5 });
    assert_eq!(state.pins[0]["media_source"], frame);
    let image = json!({
        "source_type": "video_id", "media_id": MEDIA_ID, "cover_image_content_type": "image/jpeg",
        "cover_image_data": STANDARD.encode("bytes of cat"),
    });
    assert_eq!(state.pins[1]["media_source"], image);
}

#[tokio::test]
async fn an_upload_resumes_at_the_failed_step_also_in_another_process() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref());
    take_steps(first.as_ref(), &mut outgoing, 1).await;
    fake.state().rejected.push_back(("POST /storage", storage_error(503, "SlowDown")));
    let error = step_error(first.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");

    for steps in [1, 0] {
        let next = connector(Platform::Pinterest, &server.uri());
        let mut resumed = with_video(next.as_ref());
        resumed.videos[0].upload = outgoing.videos[0].upload.clone();
        take_steps(next.as_ref(), &mut resumed, steps).await;
        outgoing = resumed;
    }
    publish(first.as_ref(), &ann(), &mut outgoing).await.unwrap();
    let state = fake.state();
    let check = format!("GET /v5/media/{MEDIA_ID}");
    assert_eq!(state.calls, ["POST /v5/media", "POST /storage", "POST /storage", check.as_str(), "POST /v5/pins"]);
}

#[tokio::test]
async fn a_cut_response_repeats_the_step() {
    let (fake, server, first) = start().await;
    let mut outgoing = with_video(first.as_ref());
    take_steps(first.as_ref(), &mut outgoing, 1).await;
    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let broken = connector(Platform::Pinterest, &script.base);
    outgoing.videos[0].upload = moved(&outgoing.videos[0].upload, &server.uri(), &script.base);
    let error = step_error(broken.as_ref(), &mut outgoing).await;
    assert!(matches!(error, CallError::Transient(_)), "{error:?}");
    assert!(script.requests()[0].contains(BYTES), "{:?}", script.requests());

    outgoing.videos[0].upload = moved(&outgoing.videos[0].upload, &script.base, &server.uri());
    publish(first.as_ref(), &ann(), &mut outgoing).await.unwrap();
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.pins.len()), (1, 1));
}

#[tokio::test]
async fn lost_responses_before_the_pin_do_no_harm() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    for part in ["POST /v5/media", "POST /storage"] {
        fake.state().lost.push_back(part);
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::Transient(_)), "{part}: {error:?}");
        take_steps(connector.as_ref(), &mut outgoing, 1).await;
    }
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().pins.len(), 1);
}

#[tokio::test]
async fn a_video_that_pinterest_cannot_process_is_invalid_content() {
    let (fake, _server, connector) = start().await;
    fake.state().states.extend(["processing", "failed"]);
    let mut outgoing = with_video(connector.as_ref());
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(is_invalid(&error) && error.failure().message.contains("could not process"), "{error:?}");
    assert!(fake.state().pins.is_empty());
}

#[tokio::test]
async fn a_rejected_file_is_invalid_content() {
    for (response, text) in [
        (storage_error(400, "EntityTooLarge"), "too large"),
        (storage_error(400, "MalformedPOSTRequest"), "does not accept the file"),
    ] {
        let (fake, _server, connector) = start().await;
        fake.state().rejected.push_back(("POST /storage", response));
        let mut outgoing = with_video(connector.as_ref());
        take_steps(connector.as_ref(), &mut outgoing, 1).await;
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(is_invalid(&error) && error.failure().message.contains(text), "{error:?}");
    }
}

#[tokio::test]
async fn an_expired_upload_begins_again() {
    for (steps, part, response) in [
        (1, "POST /storage", storage_error(403, "AccessDenied")),
        (1, "POST /storage", storage_error(400, "ExpiredToken")),
        (2, "GET /v5/media", error(404, 2402, "Media not found.")),
    ] {
        let (fake, _server, connector) = start().await;
        let mut outgoing = with_video(connector.as_ref());
        take_steps(connector.as_ref(), &mut outgoing, steps).await;
        fake.state().rejected.push_back((part, response));
        let step = send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
        assert_eq!(step, VideoStep::Expired, "{part}");
        publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
        let state = fake.state();
        assert_eq!((state.uploads.len(), state.pins.len()), (2, 1));
    }
}

#[tokio::test]
async fn a_pin_whose_video_no_longer_exists_uploads_it_again() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    fake.state().uploads[0].is_deleted = true;
    let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::UploadsMissing(_)), "{error:?}");
    // Another reason leaves the upload.
    fake.state().uploads[0].is_deleted = false;
    fake.state().rejected.push_back(("POST /v5/pins", error_of_board()));
    let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
    assert!(is_invalid(&error), "{error:?}");
    assert_eq!(fake.state().pins.len(), 1);
}

fn error_of_board() -> ResponseTemplate {
    error(404, 40, "Board not found.")
}

#[tokio::test]
async fn a_rate_limit_keeps_the_progress() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    for (steps, part) in [(0, "POST /v5/media"), (2, "GET /v5/media")] {
        take_steps(connector.as_ref(), &mut outgoing, steps).await;
        let limited = error(429, 8, "You have exceeded your rate limit.").insert_header("X-RateLimit-Reset", "30");
        fake.state().rejected.push_back((part, limited));
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        let expected = Some(now() + TimeDelta::seconds(30));
        assert!(matches!(&error, CallError::RateLimited { until, .. } if *until == expected), "{part}: {error:?}");
    }
    publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
    assert_eq!(fake.state().uploads.len(), 1);
}

#[tokio::test]
async fn an_expired_token_is_reported_by_the_calls_that_need_it() {
    let (fake, _server, connector) = start().await;
    let mut outgoing = with_video(connector.as_ref());
    for step in ["the beginning", "the status"] {
        fake.oauth.revoke("access-0");
        let error = step_error(connector.as_ref(), &mut outgoing).await;
        assert!(matches!(error, CallError::AuthExpired(_)), "{step}: {error:?}");
        fake.oauth.add_token("access-0");
        send_video_step(connector.as_ref(), &ann(), &mut outgoing).await.unwrap();
        // The storage needs no token.
        fake.oauth.revoke("access-0");
        if outgoing.videos[0].uploaded.is_none() {
            take_steps(connector.as_ref(), &mut outgoing, 1).await;
        }
    }
    let error = connector.publish(&ann(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::AuthExpired(_)), "{error:?}");
    fake.oauth.add_token("access-0");
    connector.publish(&ann(), &outgoing).await.unwrap();
    let state = fake.state();
    assert_eq!((state.uploads.len(), state.pins.len()), (1, 1));
}

#[tokio::test]
async fn a_lost_response_to_the_pin_is_found_again() {
    let (fake, _server, connector) = start().await;
    fake.state().lost.push_back("POST /v5/pins");
    let mut outgoing = with_video(connector.as_ref());
    let error = publish(connector.as_ref(), &ann(), &mut outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    let ReconcileResult::Matches(found) = connector.reconcile(&ann(), &outgoing).await.unwrap() else {
        panic!("it was published")
    };
    assert_eq!(found.iter().map(|one| one.external_id.as_str()).collect::<Vec<_>>(), ["900"]);
    assert_eq!(fake.state().pins.len(), 1);
}

#[tokio::test]
async fn videos_go_to_pinterests_storage_alone() {
    for evil in ["https://evil.example", "http://x.amazonaws.com", "https://amazonaws.com.evil.example", "x"] {
        let (fake, _server, connector) = start().await;
        fake.state().storage = evil.to_owned();
        let error = step_error(connector.as_ref(), &mut with_video(connector.as_ref())).await;
        assert!(error.failure().message.contains("does not belong to Pinterest"), "{evil}: {error:?}");
    }
    let (fake, _server, connector) = start().await;
    fake.state().storage = "https://pinterest-media-upload.s3-accelerate.amazonaws.com/".to_owned();
    take_steps(connector.as_ref(), &mut with_video(connector.as_ref()), 1).await;
}

#[tokio::test]
async fn hostile_forms_and_ids_are_not_used() {
    let many: serde_json::Map<_, _> = (0..51).map(|number| (number.to_string(), json!("x"))).collect();
    for (id, parameters) in [
        ("../pins", json!({})),
        ("", json!({})),
        (MEDIA_ID, json!(many)),
        (MEDIA_ID, json!({ "key": { "nested": true } })),
    ] {
        let (fake, server, connector) = start().await;
        let url = format!("{}/storage", server.uri());
        let body = json!({ "media_id": id, "upload_url": url, "upload_parameters": parameters });
        let strange = ResponseTemplate::new(201).set_body_json(body);
        fake.state().rejected.push_back(("POST /v5/media", strange));
        let error = step_error(connector.as_ref(), &mut with_video(connector.as_ref())).await;
        assert!(matches!(error, CallError::Transient(_)), "{id}: {error:?}");
    }
}
