//! Uploads videos, and waits until the server has processed them.
//!
//! An upload that no status uses is not visible, and the server deletes it later.
//!
//! Source: docs.joinmastodon.org, "media": v2 upload (`file`, `thumbnail`, `description`; 200, or 202 if the server
//! processes the file later), view (206 while it does, 200, or 422 with the error of the processing).

use chrono::TimeDelta;
use http::{Method, StatusCode};
use serde_json::Value;

use super::super::call::{Effect, image_part};
use super::super::{CallError, Video, VideoStep, VideoUpload};
use super::Media;
use super::rest::{Instance, segment};

const POLL_INTERVAL: TimeDelta = TimeDelta::seconds(5);
/// The field of a stored upload with the id of its media attachment.
const ID: &str = "id";

/// Takes the next step of an upload.
pub(super) async fn take_step(instance: &Instance<'_>, video: &Video) -> Result<VideoStep, CallError> {
    match video.upload.get(ID).and_then(Value::as_str) {
        None => upload(instance, video).await,
        Some(id) => check(instance, video, id).await,
    }
}

async fn upload(instance: &Instance<'_>, video: &Video) -> Result<VideoStep, CallError> {
    let mut form = crier_http::multipart::Form::new().part("file", video.form_part().await?);
    if let Some(cover) = &video.cover {
        form = form.part("thumbnail", image_part(cover)?);
    }
    if let Some(alt) = &video.alt_text {
        form = form.text("description", alt.clone());
    }
    let request = instance.request(Method::POST, "/api/v2/media").multipart(form);
    let response = instance.client.send_bytes(Effect::Repeatable, request, video.size).await?;
    if !response.status.is_success() {
        return Err(instance.error_of(Effect::Repeatable, &response));
    }
    let uploaded: Media = instance.client.read(Effect::Repeatable, &response)?;
    let id = Value::from(uploaded.id);
    Ok(match response.status {
        StatusCode::OK => VideoStep::Ready(id),
        _ => VideoStep::Pending(VideoUpload::from_iter([(ID.to_owned(), id)]), POLL_INTERVAL),
    })
}

async fn check(instance: &Instance<'_>, video: &Video, id: &str) -> Result<VideoStep, CallError> {
    let request = instance.request(Method::GET, &format!("/api/v1/media/{}", segment(id)));
    let response = instance.client.send(Effect::Repeatable, request).await?;
    match response.status {
        StatusCode::PARTIAL_CONTENT => Ok(VideoStep::Pending(video.upload.clone(), POLL_INTERVAL)),
        StatusCode::NOT_FOUND => Ok(VideoStep::Expired),
        status if status.is_success() => Ok(VideoStep::Ready(Value::from(id))),
        _ => Err(instance.error_of(Effect::Repeatable, &response)),
    }
}
