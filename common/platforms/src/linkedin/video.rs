//! Videos: the Videos API, which receives a file in parts at URLs of its own. No part is visible before its post.
//!
//! The URLs are secrets that expire. They need no token, and get none.
//!
//! Sources: learn.microsoft.com/linkedin ("Videos API", "Posts API"), May to August 2026.

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_http::{Body, HttpResponse};
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use http::{Method, StatusCode};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::urn::encoded;
use super::{ErrorBody, Linkedin, LinkedinError, author};
use crate::call::{Effect, sanitize_message};
use crate::video::UploadProgress;
use crate::{CallError, ConnectorAccount, Image, OutgoingPost, Video, VideoStep};

/// The maximum number of parts. The progress of more parts could not be stored.
const MAX_PARTS: usize = 512;
/// The maximum size of a video, in bytes: that of these parts, each of 4 MiB. The catalogue has the same limit.
const MAX_BYTES: u64 = 2 << 30;
/// The maximum length of a URL.
const MAX_URL: usize = 2_048;
/// The maximum length of the URN of a video.
const MAX_URN: usize = 200;
/// The maximum length of the id of a part.
const MAX_PART_ID: usize = 1_024;
/// The bounds of the pause before the next check. Between them, the pause equals the time waited so far: a member has
/// only 150 calls per day.
const MIN_PAUSE: TimeDelta = TimeDelta::seconds(10);
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(5);

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    video: String,
    token: String,
    /// The parts that LinkedIn does not have, in their order.
    parts: Vec<Part>,
    /// The number of bytes that LinkedIn has.
    sent: u64,
    /// LinkedIn's ids of the parts that it has.
    part_ids: Vec<String>,
    /// The URL for the cover, until LinkedIn has it.
    cover_url: Option<String>,
    /// When the URLs expire, in Unix milliseconds.
    expires_at: Option<i64>,
    /// When LinkedIn had the whole file, as a Unix time.
    finalized_at: Option<i64>,
}

#[derive(Serialize, Deserialize)]
struct Part {
    url: String,
    /// The position in the file at which the next part begins.
    end: u64,
}

impl UploadProgress for Upload {}

#[derive(Deserialize)]
struct Initialized {
    value: Session,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Session {
    video: String,
    /// Empty for a file of one part.
    #[serde(default)]
    upload_token: String,
    upload_instructions: Vec<Instruction>,
    upload_urls_expire_at: Option<i64>,
    thumbnail_upload_url: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Instruction {
    upload_url: String,
    first_byte: u64,
    /// The position of the last byte. In the last part, it may be after the end of the file.
    last_byte: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    status: String,
    #[serde(default)]
    processing_failure_reason: Value,
}

fn strange(what: &str) -> CallError {
    let message = format!("LinkedIn returned {what} for the video.");
    CallError::Transient(Failure::of(Category::PlatformError, message))
}

/// Returns whether a URN is that of a video, so that it may become part of a URL.
fn is_video(urn: &str) -> bool {
    urn.len() <= MAX_URN
        && urn.strip_prefix("urn:li:video:").is_some_and(|id| {
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
        })
}

/// Returns the content of a post with a video.
pub(super) fn content(post: &OutgoingPost, video: &Video) -> Result<Value, CallError> {
    let mut media = json!({ "id": video.reference()? });
    if let Some(title) = post.options.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty()) {
        media["title"] = Value::from(title);
    }
    Ok(json!({ "media": media }))
}

impl Linkedin {
    /// Takes the next step of an upload.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let token = account.secrets.require("access_token")?;
        let Some(mut upload) = Upload::of(video) else { return self.begin(account, &token, video).await };
        if upload.finalized_at.is_some() {
            return self.check(&token, upload).await;
        }
        let cover = video.cover.as_ref().filter(|_| upload.parts.is_empty());
        let is_transferred = upload.parts.is_empty() && (cover.is_none() || upload.cover_url.is_none());
        if is_transferred {
            return self.finalize(&token, upload).await;
        }
        if upload.expires_at.is_some_and(|at| at <= self.client.now().timestamp_millis()) {
            return Ok(VideoStep::Expired);
        }
        match (cover, upload.cover_url.take()) {
            (Some(cover), Some(url)) => self.send_cover(upload, cover, &url).await,
            (_, url) => {
                upload.cover_url = url;
                self.send_part(upload, video).await
            }
        }
    }

    async fn begin(
        &self,
        account: &ConnectorAccount,
        token: &SecretString,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        if video.size > MAX_BYTES {
            let message = "Crier can send LinkedIn videos of at most 2 GiB. Upload a smaller file.";
            return Err(CallError::invalid(message));
        }
        let body = json!({
            "initializeUploadRequest": {
                "owner": author(account),
                "fileSizeBytes": video.size,
                "uploadCaptions": false,
                "uploadThumbnail": video.cover.is_some(),
            },
        });
        let request = self.request(Method::POST, "/rest/videos?action=initializeUpload", token).json(&body);
        let response = self.send(Effect::Repeatable, request).await?;
        let session = self.client.read::<Initialized>(Effect::Repeatable, &response)?.value;
        if !is_video(&session.video) {
            return Err(strange("an invalid ID"));
        }
        let cover_url = session.thumbnail_upload_url.filter(|url| video.cover.is_some() && !url.is_empty());
        let mut urls = session.upload_instructions.iter().map(|instruction| &instruction.upload_url).chain(&cover_url);
        if !urls.all(|url| url.len() <= MAX_URL && self.is_linkedin(url)) {
            return Err(strange("an upload URL that does not belong to LinkedIn"));
        }
        let parts = parts(session.upload_instructions, video.size);
        let upload = Upload {
            video: session.video,
            token: session.upload_token,
            parts: parts.ok_or_else(|| strange("parts that do not match the file"))?,
            sent: 0,
            part_ids: Vec::new(),
            cover_url,
            expires_at: session.upload_urls_expire_at.filter(|at| *at > 0),
            finalized_at: None,
        };
        Ok(VideoStep::Next(upload.progress()))
    }

    async fn send_part(&self, mut upload: Upload, video: &Video) -> Result<VideoStep, CallError> {
        let Some(part) = upload.parts.first() else { return Ok(VideoStep::Expired) };
        let (end, length) = (part.end, part.end.saturating_sub(upload.sent));
        let body = video.part(upload.sent..end).await?;
        let response = self.put(&part.url, "application/octet-stream", None, body, length).await?;
        if !response.status.is_success() {
            return self.expired_or_error(&response);
        }
        let id = response.headers.get(ETAG).and_then(|tag| tag.to_str().ok()).map(|tag| tag.trim().trim_matches('"'));
        let id = id.filter(|id| !id.is_empty() && id.len() <= MAX_PART_ID).ok_or_else(|| strange("no part ID"))?;
        upload.part_ids.push(id.to_owned());
        upload.parts.remove(0);
        upload.sent = end;
        Ok(VideoStep::Next(upload.progress()))
    }

    async fn send_cover(&self, upload: Upload, cover: &Image, url: &str) -> Result<VideoStep, CallError> {
        let length = u64::try_from(cover.bytes.len()).unwrap_or(u64::MAX);
        let body = Body::from(cover.bytes.clone());
        let response = self.put(url, &cover.mime_type, Some("STILLIMAGE"), body, length).await?;
        match response.status {
            status if status.is_success() => Ok(VideoStep::Next(upload.progress())),
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE | StatusCode::UNSUPPORTED_MEDIA_TYPE
                if !is_expired(&response) =>
            {
                let message = "LinkedIn does not accept the cover of the video. Choose another image.";
                Err(CallError::invalid(message))
            }
            _ => self.expired_or_error(&response),
        }
    }

    /// Sends a file to a URL of a session. `family`: the kind of file, if LinkedIn does not expect a video.
    async fn put(
        &self,
        url: &str,
        mime_type: &str,
        family: Option<&'static str>,
        body: Body,
        length: u64,
    ) -> Result<HttpResponse, CallError> {
        let request = self.client.request(Method::PUT, url).header(CONTENT_TYPE, mime_type);
        let request = match family {
            Some(family) => request.header("media-type-family", family),
            None => request,
        };
        let request = request.header(CONTENT_LENGTH, length).body(body);
        self.client.send_bytes(Effect::Repeatable, request, length).await
    }

    /// Converts the response to a rejected part. The URLs need no token, so a rejection is not about the account's.
    fn expired_or_error(&self, response: &HttpResponse) -> Result<VideoStep, CallError> {
        match response.status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::GONE => {
                Ok(VideoStep::Expired)
            }
            // The limit is that of the storage. The calls of the day are not used up.
            StatusCode::TOO_MANY_REQUESTS => Err(self.client.classify_status(Effect::Repeatable, response, None, None)),
            _ if is_expired(response) => Ok(VideoStep::Expired),
            _ => Err(self.classify(Effect::Repeatable, response).error),
        }
    }

    async fn finalize(&self, token: &SecretString, mut upload: Upload) -> Result<VideoStep, CallError> {
        let body = json!({
            "finalizeUploadRequest": {
                "video": upload.video,
                "uploadToken": upload.token,
                "uploadedPartIds": upload.part_ids,
            },
        });
        let request = self.request(Method::POST, "/rest/videos?action=finalizeUpload", token).json(&body);
        let response = self.client.send(Effect::Repeatable, request).await?;
        if !response.status.is_success() {
            if is_expired(&response) {
                return Ok(VideoStep::Expired);
            }
            let failed = self.classify(Effect::Repeatable, &response);
            // If the response of an earlier call was lost, LinkedIn has the whole file and may not accept a second one.
            let is_final = matches!(failed.error, CallError::Permanent(_));
            if !is_final || !self.has_file(token, &upload.video).await {
                return Err(failed.error);
            }
        }
        upload.finalized_at = Some(self.client.now().timestamp());
        Ok(VideoStep::Pending(upload.progress(), MIN_PAUSE))
    }

    async fn check(&self, token: &SecretString, upload: Upload) -> Result<VideoStep, CallError> {
        let state = match self.state(token, &upload.video).await {
            Ok(state) => state,
            Err(LinkedinError { status: Some(StatusCode::NOT_FOUND), .. }) => return Ok(VideoStep::Expired),
            // Some applications may upload videos of users, but not get them. LinkedIn rejects the post if the video is
            // not complete.
            Err(LinkedinError { status: Some(StatusCode::FORBIDDEN), .. }) => {
                return Ok(VideoStep::Ready(Value::from(upload.video)));
            }
            Err(failed) => return Err(failed.error),
        };
        match state.status.as_str() {
            "AVAILABLE" => Ok(VideoStep::Ready(Value::from(upload.video))),
            "PROCESSING_FAILED" => Err(processing_failed(&state)),
            _ => Ok(VideoStep::Pending(upload.progress(), self.pause(&upload))),
        }
    }

    /// Returns the pause before the next check.
    fn pause(&self, upload: &Upload) -> TimeDelta {
        let now = self.client.now().timestamp();
        let waited = now.saturating_sub(upload.finalized_at.unwrap_or(now));
        TimeDelta::try_seconds(waited).unwrap_or(MAX_PAUSE).clamp(MIN_PAUSE, MAX_PAUSE)
    }

    async fn has_file(&self, token: &SecretString, video: &str) -> bool {
        let state = self.state(token, video).await;
        state.is_ok_and(|state| matches!(state.status.as_str(), "PROCESSING" | "AVAILABLE"))
    }

    async fn state(&self, token: &SecretString, video: &str) -> Result<State, LinkedinError> {
        let request = self.request(Method::GET, &format!("/rest/videos/{}", encoded(video)), token);
        let response = self.send(Effect::Repeatable, request).await?;
        Ok(self.client.read(Effect::Repeatable, &response)?)
    }
}

/// Returns the parts of a file. `None` if they are not the whole file, each byte once.
fn parts(instructions: Vec<Instruction>, size: u64) -> Option<Vec<Part>> {
    if instructions.len() > MAX_PARTS {
        return None;
    }
    let mut parts = Vec::with_capacity(instructions.len());
    let mut start = 0;
    for instruction in instructions {
        let end = instruction.last_byte.checked_add(1)?.min(size);
        if instruction.first_byte != start || end <= start {
            return None;
        }
        start = end;
        parts.push(Part { url: instruction.upload_url, end });
    }
    (start == size).then_some(parts)
}

/// Returns whether LinkedIn no longer accepts the parts of an upload, or lost some.
fn is_expired(response: &HttpResponse) -> bool {
    let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
    ["EXPIRED_UPLOAD_URL", "MEDIA_ASSET_WAITING_UPLOAD", "INVALID_VIDEO_ID"].iter().any(|code| body.has_code(code))
}

fn processing_failed(state: &State) -> CallError {
    let reason = state.processing_failure_reason.as_str().and_then(|reason| sanitize_message(reason, &[]));
    let message = match reason {
        Some(reason) => format!("LinkedIn could not process the video: {reason}"),
        None => "LinkedIn could not process the video. Check that it is an MP4 file that plays.".to_owned(),
    };
    CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform("PROCESSING_FAILED"))
}

#[cfg(test)]
mod tests {
    use super::{Instruction, MAX_PARTS, is_video, parts};

    fn ends(ranges: &[(u64, u64)], size: u64) -> Option<Vec<u64>> {
        let instruction = |(first_byte, last_byte): &(u64, u64)| Instruction {
            upload_url: String::new(),
            first_byte: *first_byte,
            last_byte: *last_byte,
        };
        let parts = parts(ranges.iter().map(instruction).collect(), size)?;
        Some(parts.iter().map(|part| part.end).collect())
    }

    #[test]
    fn parts_are_the_whole_file_in_its_order() {
        assert_eq!(ends(&[(0, 3), (4, 9)], 10), Some(vec![4, 10]));
        assert_eq!(ends(&[(0, 4_194_303)], 10), Some(vec![10]), "the last part may be longer than the file");
        for wrong in [
            vec![],
            vec![(0, 3)],
            vec![(4, 9), (0, 3)],
            vec![(0, 3), (3, 9)],
            vec![(0, 3), (5, 9)],
            vec![(0, u64::MAX)],
        ] {
            assert_eq!(ends(&wrong, 10), None, "{wrong:?}");
        }
        let many: Vec<_> = (0..=MAX_PARTS as u64).map(|number| (number, number)).collect();
        assert_eq!(ends(&many, MAX_PARTS as u64 + 1), None);
    }

    #[test]
    fn only_the_id_of_a_video_becomes_part_of_a_url() {
        assert!(is_video("urn:li:video:D4D10AQE_p-P_odQhXQ"));
        for wrong in ["urn:li:video:", "urn:li:image:1", "urn:li:video:a/b", "urn:li:video:..", "1"] {
            assert!(!is_video(wrong), "{wrong}");
        }
    }
}
