//! Uploads of videos, in segments. No segment is visible before its post.
//!
//! X may reject an id in a post for two reasons, with the same error: it deleted the upload, or the video is not one
//! that it accepts. The age of the upload decides.
//!
//! Sources: docs.x.com and `openapi.json` 2.167 of August 2026 (`/2/media/upload/initialize`, `/append`, `/finalize`,
//! `/2/media/upload`, `/2/media/metadata`).

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_http::multipart::{Form, Part};
use crier_http::{HttpResponse, RequestBuilder};
use http::header::CONTENT_LENGTH;
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{ApiProblem, Created, Twitter, is_post_id};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount, Image, OutgoingPost, Video, VideoStep, VideoUpload};

const MIB: u64 = 1024 * 1024;
/// The size of a segment. X states no maximum; its former API accepted 5 MB.
pub(super) const SEGMENT: u64 = 4 * MIB;
/// The maximum number of segments, which are numbered from 0 to 999. One less than that, so that it is not reached.
const MAX_SEGMENTS: u64 = 999;
/// The pause before the next check, if X does not state one, and the maximum pause, in seconds.
const PAUSE: i64 = 5;
const MAX_PAUSE: i64 = 3_600;
/// X deletes an upload that no post references after 24 hours, and may have deleted one of this age. A post that was
/// rejected with a newer upload was rejected for its contents.
const MIN_AGE_OF_DELETED: TimeDelta = TimeDelta::hours(1);

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    id: String,
    /// The size of each segment but the last one, in bytes.
    segment: u64,
    /// The number of segments that X has.
    sent: u64,
    /// When X got all segments, as a Unix time.
    finalized_at: Option<i64>,
}

impl Upload {
    /// Returns the stored progress. `None` before the first step.
    fn of(video: &Video) -> Option<Self> {
        let upload: Self = crate::video::read_progress(&video.upload)?;
        (is_post_id(&upload.id) && upload.segment > 0).then_some(upload)
    }

    fn progress(&self) -> VideoUpload {
        crate::video::to_progress(self)
    }

    /// Returns where the next segment begins and ends. `None` if X has all of them.
    fn next_segment(&self, size: u64) -> Option<(u64, u64)> {
        let start = self.sent.saturating_mul(self.segment);
        (start < size).then(|| (start, start.saturating_add(self.segment).min(size)))
    }
}

/// Returns the size of the segments of a file.
fn segment_size(size: u64) -> u64 {
    SEGMENT.max(size.div_ceil(MAX_SEGMENTS).div_ceil(MIB).saturating_mul(MIB))
}

#[derive(Deserialize)]
pub(super) struct Media {
    /// `None` if X does not process the file.
    processing_info: Option<Processing>,
}

#[derive(Deserialize)]
struct Processing {
    state: String,
    check_after_secs: Option<i64>,
}

impl Media {
    /// Returns the pause before the next check. `None` if the processing has ended.
    pub(super) fn pause(&self) -> Option<TimeDelta> {
        let processing = self.processing_info.as_ref()?;
        let seconds = processing.check_after_secs.unwrap_or(PAUSE).clamp(1, MAX_PAUSE);
        let has_ended = matches!(processing.state.as_str(), "succeeded" | "failed");
        (!has_ended).then(|| TimeDelta::seconds(seconds))
    }

    pub(super) fn has_failed(&self) -> bool {
        self.processing_info.as_ref().is_some_and(|processing| processing.state == "failed")
    }
}

impl Twitter {
    /// Takes the next step of an upload.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let token = account.secrets.require("access_token")?;
        let token = token.expose_secret();
        let Some(upload) = Upload::of(video) else { return self.begin(token, video).await };
        if upload.finalized_at.is_some() {
            return self.check(token, video, upload).await;
        }
        match upload.next_segment(video.size) {
            Some((start, end)) => self.append(token, video, upload, start, end).await,
            None => self.finalize(token, upload).await,
        }
    }

    async fn begin(&self, token: &str, video: &Video) -> Result<VideoStep, CallError> {
        let id = self.initialize(token, video.mime_type.as_str(), "tweet_video", video.size).await?;
        let upload = Upload { id, segment: segment_size(video.size), sent: 0, finalized_at: None };
        Ok(VideoStep::Next(upload.progress()))
    }

    /// Begins an upload in segments and returns its id.
    pub(super) async fn initialize(
        &self,
        token: &str,
        media_type: &str,
        category: &str,
        size: u64,
    ) -> Result<String, CallError> {
        let body = json!({ "media_type": media_type, "media_category": category, "total_bytes": size });
        let request = self.request(Method::POST, "/media/upload/initialize", token).json(&body);
        let Created { id } = self.call(Effect::Repeatable, request).await?;
        if is_post_id(&id) {
            return Ok(id);
        }
        let message = "X returned an invalid ID for the upload.";
        Err(CallError::Transient(Failure::of(Category::PlatformError, message)))
    }

    pub(super) fn append_request(&self, token: &str, id: &str, index: u64, file: Part) -> RequestBuilder {
        let form = Form::new().text("segment_index", index.to_string()).part("media", file);
        self.request(Method::POST, &format!("/media/upload/{id}/append"), token).multipart(form)
    }

    pub(super) fn finalize_request(&self, token: &str, id: &str) -> RequestBuilder {
        let request = self.request(Method::POST, &format!("/media/upload/{id}/finalize"), token);
        // Without a body, the length is not sent, which some servers reject.
        request.header(CONTENT_LENGTH, 0_u64)
    }

    /// Sends a segment. X accepts one that it already has.
    async fn append(
        &self,
        token: &str,
        video: &Video,
        mut upload: Upload,
        start: u64,
        end: u64,
    ) -> Result<VideoStep, CallError> {
        let length = end.saturating_sub(start);
        let file = Part::stream_with_length(video.part(start..end).await?, length).file_name(video.filename.clone());
        let request = self.append_request(token, &upload.id, upload.sent, file);
        let response = self.client.send_bytes(Effect::Repeatable, request, length).await?;
        if response.status.is_success() {
            upload.sent = upload.sent.saturating_add(1);
            return Ok(VideoStep::Next(upload.progress()));
        }
        self.expired_or_error(&response)
    }

    async fn finalize(&self, token: &str, mut upload: Upload) -> Result<VideoStep, CallError> {
        let response = self.client.send(Effect::Repeatable, self.finalize_request(token, &upload.id)).await?;
        let media: Media = if response.status.is_success() {
            self.data(Effect::Repeatable, &response)?
        } else if response.status == StatusCode::BAD_REQUEST {
            // If the response of an earlier call was lost, X has the whole file and may not accept a second one.
            match self.media(token, &upload.id).await {
                Ok(media) if media.processing_info.is_some() => media,
                _ => return self.expired_or_error(&response),
            }
        } else {
            return self.expired_or_error(&response);
        };
        upload.finalized_at = Some(self.client.now().timestamp());
        Ok(match media.pause() {
            Some(pause) => VideoStep::Pending(upload.progress(), pause),
            // The next step gets the result. This one stores the time.
            None => VideoStep::Next(upload.progress()),
        })
    }

    async fn check(&self, token: &str, video: &Video, upload: Upload) -> Result<VideoStep, CallError> {
        let response = self.client.send(Effect::Repeatable, self.status_request(token, &upload.id)).await?;
        if !response.status.is_success() {
            return self.expired_or_error(&response);
        }
        let media: Media = self.data(Effect::Repeatable, &response)?;
        if media.has_failed() {
            let message = "X could not process the video and gave no reason. Check that it is an MP4 or MOV file with \
                           H.264 video and AAC audio.";
            return Err(CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform("failed")));
        }
        if let Some(pause) = media.pause() {
            return Ok(VideoStep::Pending(upload.progress(), pause));
        }
        self.describe_video(token, video, &upload.id).await?;
        Ok(VideoStep::Ready(Value::from(upload.id)))
    }

    /// Sets the alt text. X does not document whether videos have one, so a failure does not prevent the post.
    async fn describe_video(&self, token: &str, video: &Video, id: &str) -> Result<(), CallError> {
        let Some(alt) = video.alt_text.as_deref().filter(|alt| !alt.trim().is_empty()) else { return Ok(()) };
        match self.describe(token, id, alt).await {
            Err(error @ CallError::AuthExpired(_)) => Err(error),
            Err(error) => {
                tracing::warn!(%error, media = video.id, "failed to set the alt text of a video");
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    fn status_request(&self, token: &str, id: &str) -> RequestBuilder {
        self.request(Method::GET, "/media/upload", token).query(&[("command", "STATUS"), ("media_id", id)])
    }

    pub(super) async fn media(&self, token: &str, id: &str) -> Result<Media, CallError> {
        self.call(Effect::Repeatable, self.status_request(token, id)).await
    }

    /// Converts the response to a rejected step.
    fn expired_or_error(&self, response: &HttpResponse) -> Result<VideoStep, CallError> {
        if is_upload_gone(response) { Ok(VideoStep::Expired) } else { Err(self.classify(Effect::Repeatable, response)) }
    }

    /// Converts the error of a post whose images or video X does not accept.
    pub(super) fn media_error(&self, error: CallError, post: &OutgoingPost) -> CallError {
        let failure = match error {
            CallError::Permanent(failure) if failure.message.to_lowercase().contains("media ids are invalid") => {
                failure
            }
            error => return error,
        };
        let is_old_image =
            |image: &Image| image.uploaded.as_ref().is_some_and(|uploaded| !uploaded.uploaded_in_this_run);
        match post.video() {
            Some(video) if self.is_old(video) => CallError::UploadsMissing(failure),
            Some(_) => {
                let message = "X does not accept the video. It must have at most 60 frames per second and, unless the \
                               account has X Premium, at most 1280 × 1024 pixels.";
                CallError::Permanent(Failure { message: message.to_owned(), ..failure })
            }
            None if post.images.iter().any(is_old_image) => CallError::UploadsMissing(failure),
            None => CallError::Permanent(failure),
        }
    }

    /// Returns whether X may have deleted the upload of a video.
    fn is_old(&self, video: &Video) -> bool {
        let finalized_at = Upload::of(video).and_then(|upload| upload.finalized_at);
        let age = |at: i64| self.client.now().timestamp().saturating_sub(at);
        finalized_at.is_none_or(|at| age(at) >= MIN_AGE_OF_DELETED.num_seconds())
    }
}

/// Returns whether X no longer knows an upload, which it says with a 404, or in words.
fn is_upload_gone(response: &HttpResponse) -> bool {
    let body: ApiProblem = serde_json::from_slice(&response.body).unwrap_or_default();
    let text = body.text().to_lowercase();
    let names_upload = ["invalid media", "media id", "media_id", "expired"].iter().any(|words| text.contains(words));
    match response.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => true,
        // "Invalid or unsupported media" is about the file.
        StatusCode::BAD_REQUEST => names_upload && !text.contains("unsupported"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_SEGMENTS, MIB, SEGMENT, segment_size};

    #[test]
    fn a_file_has_at_most_999_segments() {
        for size in [0, 1, SEGMENT, SEGMENT * MAX_SEGMENTS] {
            assert_eq!(segment_size(size), SEGMENT, "{size}");
        }
        assert_eq!(segment_size(SEGMENT * MAX_SEGMENTS + 1), 5 * MIB);
        for size in [8 * 1024 * MIB, 16 * 1024 * MIB] {
            assert!(size.div_ceil(segment_size(size)) <= MAX_SEGMENTS, "{size}");
        }
    }
}
