//! Uploads of reels and stories. Facebook creates an unpublished video, and receives its bytes at a URL of its own. A
//! transfer that broke off is resumed at the position that Facebook states. `video.rs` publishes the video.
//!
//! Sources: "Video API: Reels Publishing", "Page Stories", "Video thumbnails" of the Graph API, March to July 2026.

use crier_domain::failure::{Category, Failure};
use crier_http::HttpResponse;
use crier_http::multipart::Form;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;

use super::Facebook;
use super::video_state::Transfer;
use crate::call::{Effect, image_part, sanitize_message};
use crate::meta::containers::is_id;
use crate::meta::graph::Access;
use crate::meta::insights::is_gone;
use crate::{CallError, ConnectorAccount, Image, Video, VideoStep, VideoUpload};

/// The maximum length of a URL.
const MAX_URL: usize = 2_048;
/// The hosts to which Crier sends videos, besides the configured one.
const HOSTS: [&str; 3] = ["rupload.facebook.com", "graph.facebook.com", "graph-video.facebook.com"];

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    /// The list to which the video is added: `video_reels` or `video_stories`.
    edge: String,
    video_id: String,
    url: String,
    is_transferred: bool,
}

impl Upload {
    /// Returns the stored progress. `None` before the first step, and if it is that of another format.
    fn of(video: &Video, edge: &str) -> Option<Self> {
        let upload: Self = crate::video::read_progress(&video.upload)?;
        (upload.edge == edge && is_id(&upload.video_id)).then_some(upload)
    }

    fn progress(&self) -> VideoUpload {
        crate::video::to_progress(self)
    }
}

#[derive(Deserialize)]
struct Started {
    video_id: String,
    upload_url: String,
}

#[derive(Deserialize)]
struct Transferred {
    #[serde(default)]
    success: bool,
}

/// An error of an upload URL, which has another form than those of the Graph API.
#[derive(Deserialize)]
struct UploadError {
    debug_info: DebugInfo,
}

#[derive(Deserialize)]
struct DebugInfo {
    retriable: Option<bool>,
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    message: String,
}

/// Returns the reference to an uploaded video.
fn reference(edge: &str, video_id: &str) -> Value {
    json!({ "edge": edge, "video_id": video_id })
}

/// Returns the id of an uploaded video. `None` if it was not uploaded for this list: the format was changed.
pub(super) fn uploaded_id<'a>(video: &'a Video, edge: &str) -> Option<&'a str> {
    let reference = video.uploaded.as_ref()?;
    let is_same_edge = reference.get("edge").and_then(Value::as_str) == Some(edge);
    let id = reference.get("video_id").and_then(Value::as_str);
    id.filter(|id| is_same_edge && is_id(id))
}

fn strange(what: &str) -> CallError {
    CallError::Transient(Failure::of(Category::PlatformError, format!("Facebook returned {what} for the video.")))
}

impl Facebook {
    /// Takes the next step of an upload.
    pub(super) async fn upload_video_step(
        &self,
        account: &ConnectorAccount,
        video: &Video,
        edge: &str,
    ) -> Result<VideoStep, CallError> {
        let access = self.access(account)?;
        let Some(upload) = Upload::of(video, edge) else { return self.begin(&access, account, edge).await };
        if !upload.is_transferred {
            return self.transfer(&access, video, upload).await;
        }
        if let Some(cover) = video.cover.as_ref().filter(|cover| !cover.bytes.is_empty()) {
            send_cover(&access, &upload.video_id, cover).await?;
        }
        Ok(VideoStep::Ready(reference(edge, &upload.video_id)))
    }

    async fn begin(&self, access: &Access<'_>, account: &ConnectorAccount, edge: &str) -> Result<VideoStep, CallError> {
        let path = format!("{}/{edge}", account.external_id);
        let request = access.request(Method::POST, &path).json(&json!({ "upload_phase": "start" }));
        let started: Started = access.call(Effect::Repeatable, request).await?;
        if !is_id(&started.video_id) {
            return Err(strange("an invalid ID"));
        }
        if started.upload_url.len() > MAX_URL || !self.is_facebook(&started.upload_url) {
            return Err(strange("an upload URL that does not belong to Facebook"));
        }
        let Started { video_id, upload_url } = started;
        let upload = Upload { edge: edge.to_owned(), video_id, url: upload_url, is_transferred: false };
        Ok(VideoStep::Next(upload.progress()))
    }

    /// Sends the bytes that Facebook does not have.
    async fn transfer(&self, access: &Access<'_>, video: &Video, mut upload: Upload) -> Result<VideoStep, CallError> {
        let node = match self.video_node(access, &upload.video_id).await {
            Ok(node) => node,
            Err(failure) if is_gone(&failure) => return Ok(VideoStep::Expired),
            Err(failure) => return Err(failure.error),
        };
        match node.transfer(video.size) {
            Transfer::Expired => return Ok(VideoStep::Expired),
            Transfer::Complete => {}
            Transfer::From(offset) => {
                let response = self.send_rest(access, video, &upload.url, offset).await?;
                if !response.status.is_success() {
                    return self.upload_error(access, &response);
                }
                let transferred: Transferred = self.client.read(Effect::Repeatable, &response)?;
                if !transferred.success {
                    return Err(strange("an incomplete transfer"));
                }
            }
        }
        upload.is_transferred = true;
        Ok(VideoStep::Next(upload.progress()))
    }

    async fn send_rest(
        &self,
        access: &Access<'_>,
        video: &Video,
        url: &str,
        offset: u64,
    ) -> Result<HttpResponse, CallError> {
        let length = video.size.saturating_sub(offset);
        let request = self
            .client
            .request(Method::POST, url)
            .header(AUTHORIZATION, format!("OAuth {}", access.token.expose_secret()))
            .header("offset", offset)
            .header("file_size", video.size)
            .header(CONTENT_TYPE, "application/octet-stream")
            .header(CONTENT_LENGTH, length)
            .body(video.part(offset..video.size).await?);
        self.client.send_bytes(Effect::Repeatable, request, length).await
    }

    /// Converts the response to a rejected transfer.
    fn upload_error(&self, access: &Access<'_>, response: &HttpResponse) -> Result<VideoStep, CallError> {
        if matches!(response.status, StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(VideoStep::Expired);
        }
        let Ok(UploadError { debug_info }) = serde_json::from_slice(&response.body) else {
            return Err(match access.read_response::<Value>(Effect::Repeatable, response) {
                Err(failure) => failure.error,
                Ok(_) => strange("an unreadable error"),
            });
        };
        let detail = sanitize_message(&debug_info.message, &[access.token.expose_secret()]);
        let failure = |category, text: &str| {
            let message = match &detail {
                Some(detail) => format!("Facebook {text}: {detail}"),
                None => format!("Facebook {text}."),
            };
            Failure::of(category, message).from_platform(&debug_info.kind)
        };
        let kind = debug_info.kind.as_str();
        Err(match debug_info.retriable {
            // The next attempt requests the position.
            _ if kind.starts_with("OffsetInvalid") => {
                CallError::Transient(failure(Category::Media, "expects another part of the video"))
            }
            _ if kind.starts_with("NotAuthorized") || response.status == StatusCode::UNAUTHORIZED => {
                CallError::Reauth(failure(Category::AuthExpired, "denied access; connect the account again"))
            }
            _ if response.status == StatusCode::TOO_MANY_REQUESTS => {
                self.client.classify_status(Effect::Repeatable, response, Some(kind), detail.clone())
            }
            Some(false) if response.status.is_client_error() => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept the video"))
            }
            _ => CallError::Transient(failure(Category::PlatformError, "did not accept the video")),
        })
    }

    /// Returns whether a URL belongs to Facebook, so that it may get the token and the video.
    fn is_facebook(&self, address: &str) -> bool {
        let Ok(url) = Url::parse(address) else { return false };
        let is_own =
            url.scheme() == "https" && url.port().is_none() && url.host_str().is_some_and(|host| HOSTS.contains(&host));
        let is_configured = Url::parse(&self.graph).is_ok_and(|graph| graph.origin() == url.origin());
        is_own || is_configured
    }
}

/// Sends the image that is shown before the video plays. The same image may be sent again. Facebook does not document
/// which images it accepts, so a rejected one does not prevent the post.
async fn send_cover(access: &Access<'_>, video_id: &str, cover: &Image) -> Result<(), CallError> {
    let form = Form::new().text("is_preferred", "true").part("source", image_part(cover)?);
    let request = access.request(Method::POST, &format!("{video_id}/thumbnails")).multipart(form);
    match access.call::<Value>(Effect::Repeatable, request).await {
        Err(error @ CallError::Permanent(_)) => {
            tracing::warn!(%error, media = cover.id, "Facebook rejected the cover of a video");
            Ok(())
        }
        result => result.map(drop),
    }
}
