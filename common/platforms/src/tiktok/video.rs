//! Videos, which Crier sends in chunks to a URL that TikTok issues.
//!
//! TikTok publishes a video when it has the last chunk, so [`Connector::send_video`] ends before it, and
//! [`Connector::publish`] sends it. An upload publishes at most one video, and its id is stored before the first chunk.
//! So whatever happens to the last chunk, the state of the upload tells whether TikTok has the whole file. Another
//! upload begins only if it does not.
//!
//! Sources: TikTok's documents "Direct Post", "Media Transfer Guide", "Query Creator Info" and "Get Post Status"; the
//! statuses of the responses to chunks and the codes of errors from open-source clients that quote them (July 2026).
//!
//! [`Connector::publish`]: crate::Connector::publish
//! [`Connector::send_video`]: crate::Connector::send_video

use std::ops::Range;

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_http::HttpResponse;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE};
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{CreatorInfo, PUBLISH_ID, PublishStatus, Tiktok, privacy_level};
use crate::call::Effect;
use crate::upload_urls::is_at;
use crate::video::UploadProgress;
use crate::{CallError, ConnectorAccount, OutgoingPost, Video, VideoStep, options};

/// The size of a chunk, in bytes. The last one also has the rest of the file. TikTok accepts 5 to 64 MB, up to 128 MB
/// in the last chunk, and a smaller file in one.
const CHUNK: u64 = 10_000_000;
/// How long TikTok accepts chunks at a URL.
const URL_LIFETIME: TimeDelta = TimeDelta::hours(1);
const MAX_URL: usize = 4_096;
const MAX_PUBLISH_ID: usize = 256;
const DOMAINS: [&str; 2] = ["tiktokapis.com", "tiktok.com"];

/// The progress of an upload.
#[derive(Serialize, Deserialize)]
struct Upload {
    publish_id: String,
    url: String,
    /// The number of chunks that TikTok has.
    sent: u64,
    /// As a Unix time.
    began_at: i64,
    /// What the post says about its video. TikTok got it at the beginning, so an edited post needs another upload.
    info: Value,
}

impl UploadProgress for Upload {}

impl Upload {
    /// Returns whether TikTok has all chunks but the last one.
    fn is_at_last_chunk(&self, size: u64) -> bool {
        self.sent.saturating_add(1) == chunk_count(size)
    }
}

/// Returns the number of chunks of a file.
fn chunk_count(size: u64) -> u64 {
    (size / CHUNK).max(1)
}

/// Returns the range of a chunk, by its number from 0.
fn chunk(number: u64, size: u64) -> Range<u64> {
    let start = number.saturating_mul(CHUNK).min(size);
    let is_last = number.saturating_add(1) >= chunk_count(size);
    start..if is_last { size } else { start.saturating_add(CHUNK) }
}

/// The outcome of the last chunk in a call to publish.
enum LastChunk {
    /// This call did not send it, because the upload had ended before.
    Unsent,
    Rejected,
    /// TikTok may have it.
    Lost(CallError),
}

/// What the status of an upload says about the file.
enum FileState {
    /// TikTok has only this many bytes of it, and so cannot publish it.
    Incomplete(u64),
    /// TikTok has it, and publishes it or has published it.
    Complete,
    /// TikTok did not and will not publish it.
    Failed(CallError),
    Unclear,
}

impl PublishStatus {
    /// Returns whether the last chunk of a file of this size is missing.
    pub(super) fn lacks_bytes_of(&self, size: u64) -> bool {
        self.status == "PROCESSING_UPLOAD" && self.uploaded_bytes.is_some_and(|bytes| bytes < size)
    }
}

/// Returns the publish id of the post's video that TikTok may have.
pub(super) fn publish_id(post: &OutgoingPost) -> Option<String> {
    let video = post.video()?;
    let reference = video.uploaded.as_ref().and_then(Value::as_str).map(str::to_owned);
    reference.or_else(|| Upload::of(video).map(|upload| upload.publish_id))
}

/// Returns what the post says about its video. The option `title` is for photo posts, which have a title and a text; a
/// video has only one of both.
fn video_info(post: &OutgoingPost, video: &Video) -> Result<Value, CallError> {
    let text = post.text.as_str();
    let title = if text.is_empty() { options::text(post, "title")?.unwrap_or_default() } else { text };
    let mut info = json!({
        "title": title,
        "privacy_level": privacy_level(post)?,
        "disable_comment": options::flag(post, "disable_comment"),
        "brand_content_toggle": options::flag(post, "brand_content"),
        "brand_organic_toggle": options::flag(post, "brand_organic"),
    });
    if let Some(at) = video.cover_at_ms {
        info["video_cover_timestamp_ms"] = Value::from(at);
    }
    Ok(info)
}

/// Returns the information with what the account does not permit.
fn restricted(mut info: Value, creator: &CreatorInfo) -> Value {
    if creator.comment_disabled {
        info["disable_comment"] = Value::from(true);
    }
    info["disable_duet"] = Value::from(creator.duet_disabled);
    info["disable_stitch"] = Value::from(creator.stitch_disabled);
    info
}

fn check_duration(creator: &CreatorInfo, video: &Video) -> Result<(), CallError> {
    let Some(max) = creator.max_video_post_duration_sec.filter(|max| *max > 0) else { return Ok(()) };
    let duration = video.properties.duration_ms;
    if duration <= max.saturating_mul(1_000) {
        return Ok(());
    }
    let seconds = duration.saturating_add(999) / 1_000;
    Err(CallError::invalid(format!(
        "TikTok accepts videos of at most {max} seconds from this account; this video has {seconds} seconds. Shorten \
         the video."
    )))
}

fn uploads_missing(message: &str) -> CallError {
    CallError::UploadsMissing(Failure::of(Category::Media, message))
}

/// Returns whether TikTok no longer accepts chunks at a URL.
fn is_gone(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::GONE)
}

impl Tiktok {
    /// Takes the next step of an upload. The last chunk is not a step.
    pub(super) async fn send_video_step(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let Some(upload) = Upload::of(video) else { return self.begin(account, post, video).await };
        if self.is_old(&upload) || upload.info != video_info(post, video)? {
            return Ok(VideoStep::Expired);
        }
        match upload.is_at_last_chunk(video.size) {
            true => Ok(VideoStep::Ready(Value::from(upload.publish_id))),
            false => self.send_chunk(account, video, upload).await,
        }
    }

    /// Begins an upload. Without bytes, nothing is published, so a call whose response is lost can be repeated.
    async fn begin(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        #[derive(Deserialize)]
        struct Begun {
            publish_id: String,
            upload_url: String,
        }
        let token = account.secrets.require("access_token")?;
        let info = video_info(post, video)?;
        let creator = self.creator(&token, privacy_level(post)?).await?;
        check_duration(&creator, video)?;
        let count = chunk_count(video.size);
        let body = json!({
            "post_info": restricted(info.clone(), &creator),
            "source_info": {
                "source": "FILE_UPLOAD",
                "video_size": video.size,
                "chunk_size": if count == 1 { video.size } else { CHUNK },
                "total_chunk_count": count,
            },
        });
        let Begun { publish_id, upload_url: url } =
            self.post(Effect::Repeatable, "/v2/post/publish/video/init/", &token, &body).await?;
        let is_valid = !publish_id.is_empty() && publish_id.len() <= MAX_PUBLISH_ID && url.len() <= MAX_URL;
        if !is_valid || !is_at(&url, &DOMAINS, &self.api) {
            let message =
                "TikTok returned an upload URL for the video that does not belong to TikTok, or an invalid ID.";
            return Err(CallError::Transient(Failure::of(Category::PlatformError, message)));
        }
        let began_at = self.client.now().timestamp();
        Ok(VideoStep::Next(Upload { publish_id, url, sent: 0, began_at, info }.progress()))
    }

    /// Sends a chunk that is not the last one.
    async fn send_chunk(
        &self,
        account: &ConnectorAccount,
        video: &Video,
        mut upload: Upload,
    ) -> Result<VideoStep, CallError> {
        let response = self.put(Effect::Repeatable, video, &upload).await?;
        match response.status {
            status if status.is_success() => {
                upload.sent = upload.sent.saturating_add(1);
                Ok(VideoStep::Next(upload.progress()))
            }
            StatusCode::RANGE_NOT_SATISFIABLE => self.resume(account, video, upload).await,
            status if is_gone(status) => Ok(VideoStep::Expired),
            _ => Err(self.client.classify_status(Effect::Repeatable, &response, None, None)),
        }
    }

    /// Continues at the chunk that TikTok expects, if it expects another one because the response to an earlier chunk
    /// was lost.
    async fn resume(
        &self,
        account: &ConnectorAccount,
        video: &Video,
        mut upload: Upload,
    ) -> Result<VideoStep, CallError> {
        let status = self.publish_status(account, &upload.publish_id).await?;
        match self.file_state(&status, video.size) {
            FileState::Incomplete(bytes) => {
                let sent = bytes / CHUNK;
                let is_usable = bytes % CHUNK == 0 && sent != upload.sent && sent < chunk_count(video.size);
                if !is_usable {
                    return Ok(VideoStep::Expired);
                }
                upload.sent = sent;
                Ok(VideoStep::Next(upload.progress()))
            }
            // `publish` finds out what TikTok does with it.
            FileState::Complete => Ok(VideoStep::Ready(Value::from(upload.publish_id))),
            FileState::Failed(error @ CallError::Permanent(_)) => Err(error),
            FileState::Failed(_) | FileState::Unclear => Ok(VideoStep::Expired),
        }
    }

    /// Sends the next chunk. The URL needs no token, and gets none.
    async fn put(&self, effect: Effect, video: &Video, upload: &Upload) -> Result<HttpResponse, CallError> {
        let Range { start, end } = chunk(upload.sent, video.size);
        let (length, last) = (end.saturating_sub(start), end.saturating_sub(1));
        let request = self
            .client
            .request(Method::PUT, &upload.url)
            .header(CONTENT_TYPE, video.mime_type.as_str())
            .header(CONTENT_LENGTH, length)
            .header(CONTENT_RANGE, format!("bytes {start}-{last}/{}", video.size))
            .body(video.part(start..end).await?);
        self.client.send_bytes(effect, request, length).await
    }

    /// Publishes a video by sending its last chunk. TikTok publishes it later, so the result is that of
    /// [`Tiktok::accepted`], or another error.
    pub(super) async fn publish_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<CallError, CallError> {
        let id = video.reference()?.as_str().unwrap_or_default();
        let upload = Upload::of(video).filter(|upload| upload.publish_id == id);
        let info = video_info(post, video)?;
        let has_ended = post.marker.get(PUBLISH_ID).is_some_and(|ended| ended == id);
        let is_usable = |upload: &Upload| {
            !has_ended && !self.is_old(upload) && upload.info == info && upload.is_at_last_chunk(video.size)
        };
        let Some(upload) = upload.filter(is_usable) else {
            return Ok(self.outcome(account, post, video, id, LastChunk::Unsent).await);
        };
        let chunk = match self.put(Effect::Publishes, video, &upload).await {
            Ok(response) if response.status == StatusCode::PARTIAL_CONTENT => {
                let what = "requested more than the whole video";
                LastChunk::Lost(self.client.classify_unknown_effect(Effect::Publishes, what, Some("206")))
            }
            Ok(response) if response.status.is_success() => return Ok(self.accepted(post, id)),
            Ok(response) => match self.client.classify_status(Effect::Publishes, &response, None, None) {
                CallError::Permanent(_) | CallError::Reauth(_) => LastChunk::Rejected,
                error @ CallError::Unknown(_) => LastChunk::Lost(error),
                error => return Err(error),
            },
            Err(error @ CallError::Unknown(_)) => LastChunk::Lost(error),
            Err(error) => return Err(error),
        };
        Ok(self.outcome(account, post, video, id, chunk).await)
    }

    /// Returns the outcome of a call whose last chunk TikTok did not accept, by the state of the upload.
    async fn outcome(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
        id: &str,
        chunk: LastChunk,
    ) -> CallError {
        let unproven = || {
            let what = "did not report the state of the video";
            self.client.classify_unknown_effect(Effect::Publishes, what, None)
        };
        let (status, chunk) = match (self.publish_status(account, id).await, chunk) {
            (Ok(status), chunk) => (status, chunk),
            (Err(_), LastChunk::Lost(error)) => return error,
            // An unknown upload is no proof that it was not published.
            (Err(CallError::Permanent(_)), _) => return unproven(),
            (Err(error), _) => return error,
        };
        match (self.file_state(&status, video.size), chunk) {
            (FileState::Complete, _) => self.accepted(post, id),
            (FileState::Failed(error @ CallError::Permanent(_)), LastChunk::Rejected | LastChunk::Lost(_)) => error,
            // It was reported before, or another upload may succeed.
            (FileState::Failed(error), _) => CallError::UploadsMissing(error.failure().clone()),
            (_, LastChunk::Lost(error)) => error,
            (FileState::Incomplete(_), LastChunk::Unsent | LastChunk::Rejected) => {
                uploads_missing("TikTok no longer accepts this upload of the video. Crier uploads it again.")
            }
            (FileState::Unclear, LastChunk::Unsent | LastChunk::Rejected) => unproven(),
        }
    }

    fn file_state(&self, status: &PublishStatus, size: u64) -> FileState {
        match (status.status.as_str(), status.uploaded_bytes) {
            ("FAILED", _) => FileState::Failed(self.failed(&status.fail_reason)),
            ("PROCESSING_UPLOAD", Some(bytes)) if bytes < size => FileState::Incomplete(bytes),
            ("PROCESSING_UPLOAD", None) | ("", _) => FileState::Unclear,
            _ => FileState::Complete,
        }
    }

    fn is_old(&self, upload: &Upload) -> bool {
        self.client.now().timestamp().saturating_sub(upload.began_at) >= URL_LIFETIME.num_seconds()
    }
}

#[cfg(test)]
mod tests {
    use super::{CHUNK, chunk, chunk_count};

    #[test]
    fn chunks_are_the_whole_file_and_of_the_accepted_sizes() {
        for size in [0, 1, 4_999_999, 5_000_000, CHUNK, CHUNK * 2 - 1, CHUNK * 2, 64_000_001, 4_000_000_000] {
            let mut end = 0;
            for number in 0..chunk_count(size) {
                let range = chunk(number, size);
                assert_eq!(range.start, end, "{size}");
                end = range.end;
                let length = range.end - range.start;
                assert!(length < CHUNK * 2 && (length >= 5_000_000 || size < 5_000_000), "{size}: {length}");
            }
            assert_eq!(end, size);
            assert!(chunk_count(size) <= 1_000);
        }
    }
}
