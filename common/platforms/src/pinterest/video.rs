//! Videos: Pinterest issues a form with which a video is sent to its storage, and processes the file before the pin.
//!
//! The URL and the fields of the form are secrets that expire.
//!
//! Source: Pinterest's OpenAPI 5.23.0 of December 2025 (`/media`, `/media/{media_id}`, `PinMediaSourceVideoID`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Pinterest;
use crate::call::Effect;
use crate::upload_urls::{Delivery, MAX_FIELDS, is_at, send_form};
use crate::video::UploadProgress;
use crate::{CallError, ConnectorAccount, Video, VideoStep};

/// The pause before the next check. Pinterest does not state one.
const PAUSE: TimeDelta = TimeDelta::seconds(10);
const MAX_URL: usize = 2_048;
const MAX_MEDIA_ID: usize = 64;
const DOMAINS: [&str; 3] = ["amazonaws.com", "pinterest.com", "pinimg.com"];

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    media_id: String,
    /// How the file is sent. `None` if Pinterest has it.
    form: Option<UploadForm>,
}

#[derive(Serialize, Deserialize)]
struct UploadForm {
    url: String,
    fields: Map<String, Value>,
}

impl UploadProgress for Upload {}

/// Returns whether an id may become part of a URL.
fn is_media_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= MAX_MEDIA_ID && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

fn strange(what: &str) -> CallError {
    CallError::Transient(Failure::of(Category::PlatformError, format!("Pinterest returned {what} for the video.")))
}

fn rejected(message: &str, code: &str) -> CallError {
    CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform(code))
}

/// Returns the source of a pin with a video. Pinterest requires a cover: an image, or the time of a frame in the
/// video.
pub(super) fn media_source(video: &Video) -> Result<Value, CallError> {
    let mut source = json!({ "source_type": "video_id", "media_id": video.reference()? });
    match &video.cover {
        Some(cover) => {
            source["cover_image_content_type"] = Value::from(cover.mime_type.as_str());
            source["cover_image_data"] = Value::from(STANDARD.encode(&cover.bytes));
        }
        None => {
            let milliseconds = u32::try_from(video.cover_at_ms.unwrap_or_default()).unwrap_or(u32::MAX);
            source["cover_image_key_frame_time"] = Value::from(f64::from(milliseconds) / 1_000.0);
        }
    }
    Ok(source)
}

impl Pinterest {
    /// Takes the next step of an upload.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let token = account.secrets.require("access_token")?;
        match Upload::of(video) {
            None => self.begin(&token).await,
            Some(Upload { media_id, form: Some(form) }) => self.send_file(video, media_id, form).await,
            Some(Upload { media_id, form: None }) => self.check(&token, media_id).await,
        }
    }

    async fn begin(&self, token: &SecretString) -> Result<VideoStep, CallError> {
        #[derive(Deserialize)]
        struct Registered {
            media_id: String,
            upload_url: String,
            upload_parameters: Map<String, Value>,
        }
        let request = self.request(Method::POST, "/media", token.expose_secret());
        let Registered { media_id, upload_url: url, upload_parameters: fields } =
            self.call(Effect::Repeatable, request.json(&json!({ "media_type": "video" }))).await?;
        if !is_media_id(&media_id) {
            return Err(strange("an invalid ID"));
        }
        if url.len() > MAX_URL || !is_at(&url, &DOMAINS, &self.api) {
            return Err(strange("an upload URL that does not belong to Pinterest"));
        }
        if fields.len() > MAX_FIELDS || !fields.values().all(Value::is_string) {
            return Err(strange("an invalid form"));
        }
        let form = Some(UploadForm { url, fields });
        Ok(VideoStep::Next(Upload { media_id, form }.progress()))
    }

    /// Sends the file. Sending it again replaces it.
    async fn send_file(&self, video: &Video, media_id: String, form: UploadForm) -> Result<VideoStep, CallError> {
        let text = |(name, value): (String, Value)| Some((name, value.as_str()?.to_owned()));
        let fields: Vec<_> = form.fields.into_iter().filter_map(text).collect();
        let file = video.form_part().await?;
        match send_form(&self.client, &form.url, fields, file, video.size).await? {
            Delivery::Stored => Ok(VideoStep::Pending(Upload { media_id, form: None }.progress(), PAUSE)),
            Delivery::Expired => Ok(VideoStep::Expired),
            Delivery::TooLarge => {
                Err(rejected("Pinterest does not accept the video: it is too large.", "EntityTooLarge"))
            }
            Delivery::Rejected => Err(rejected("Pinterest does not accept the file of the video.", "400")),
            Delivery::Unavailable => {
                let message = "Pinterest's storage does not accept videos at the moment.";
                Err(CallError::Transient(Failure::of(Category::Media, message)))
            }
        }
    }

    async fn check(&self, token: &SecretString, media_id: String) -> Result<VideoStep, CallError> {
        match self.media_status(token, &media_id).await?.as_deref() {
            None => Ok(VideoStep::Expired),
            Some("succeeded") => Ok(VideoStep::Ready(Value::from(media_id))),
            Some("failed") => Err(rejected(
                "Pinterest could not process the video. Check that it is an MP4, MOV or M4V file that plays and is at \
                 least 4 seconds long.",
                "failed",
            )),
            Some(_) => Ok(VideoStep::Pending(Upload { media_id, form: None }.progress(), PAUSE)),
        }
    }

    /// Returns the status of an upload: `registered`, `processing`, `succeeded` or `failed`. `None` if Pinterest no
    /// longer knows it.
    async fn media_status(&self, token: &SecretString, media_id: &str) -> Result<Option<String>, CallError> {
        #[derive(Deserialize)]
        struct Media {
            status: String,
        }
        if !is_media_id(media_id) {
            return Ok(None);
        }
        let request = self.request(Method::GET, &format!("/media/{media_id}"), token.expose_secret());
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => Ok(Some(self.client.read::<Media>(Effect::Repeatable, &response)?.status)),
            _ => Err(self.classify(Effect::Repeatable, &response)),
        }
    }

    /// Converts the error of a pin that Pinterest rejected. If it no longer has the video, which it does not say, the
    /// video must be uploaded again.
    pub(super) async fn pin_error(&self, token: &SecretString, video: &Video, error: CallError) -> CallError {
        let CallError::Permanent(failure) = error else { return error };
        let media_id = video.uploaded.as_ref().and_then(Value::as_str).unwrap_or_default();
        match self.media_status(token, media_id).await {
            Ok(None) => CallError::UploadsMissing(failure),
            _ => CallError::Permanent(failure),
        }
    }
}
