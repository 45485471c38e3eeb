//! The videos of outgoing posts.
//!
//! A video is never in memory as a whole: a connector streams it, or a part of it, from the storage
//! ([`Video::part`]). It hands the video over in steps ([`Connector::send_video`]), and the worker stores the result of
//! each step before the next one. So an upload in parts resumes at the part that failed, also in another process, and
//! the job uses no slot while the platform processes the video.
//!
//! No step is visible on the platform. Where the last bytes publish the video, `send_video` ends before them and
//! [`Connector::publish`] sends them.
//!
//! [`Connector::send_video`]: super::Connector::send_video
//! [`Connector::publish`]: super::Connector::publish

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::media::{VideoProperties, VideoType};
use crier_http::Body;
use futures::stream::BoxStream;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{CallError, Image, OutgoingPost};

/// The progress of an upload, as a connector keeps it between its steps: the address of a session, the parts that the
/// platform has. Encrypted at rest, because it may contain URLs that accept bytes. Empty before the first step.
pub type VideoUpload = Map<String, Value>;

/// The minimum rate of a transfer, in bytes per second. A slower transfer times out.
const MIN_RATE: u64 = 64 * 1024;

/// Reads the bytes of a stored file.
#[async_trait]
pub trait FileBytes: Send + Sync {
    /// Streams a range, which is within the file. The error of a file that does not exist is
    /// [`std::io::ErrorKind::NotFound`].
    async fn read(&self, range: Range<u64>) -> std::io::Result<ByteStream>;

    /// Returns whether a stream has ended with an error. Then the request with these bytes was not sent completely.
    fn has_failed(&self) -> bool {
        false
    }
}

pub type ByteStream = BoxStream<'static, std::io::Result<Bytes>>;

/// How a platform receives the videos of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VideoTransfer {
    /// In steps before the publishing request ([`Connector::send_video`](super::Connector::send_video)).
    Uploaded,
    /// The bytes are part of the publishing request.
    Inline,
    /// The platform downloads them from Crier ([`Video::url`]).
    Fetched,
}

/// The result of a step ([`Connector::send_video`](super::Connector::send_video)).
#[derive(Clone, Debug, PartialEq)]
pub enum VideoStep {
    /// Store this progress, then take the next step.
    Next(VideoUpload),
    /// The platform is processing the video. Store this progress, and take the next step after the pause.
    Pending(VideoUpload, TimeDelta),
    /// The post can be published with this reference ([`Video::uploaded`]).
    Ready(Value),
    /// The platform no longer knows the upload. Begin it again.
    Expired,
}

/// A daily limit of uploads that accounts share ([`Connector::upload_quota`](super::Connector::upload_quota)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UploadQuota {
    /// Identifies the limit among those of all platforms.
    pub name: String,
    /// The beginning of the current day.
    pub since: DateTime<Utc>,
    /// The end of the current day.
    pub until: DateTime<Utc>,
    /// The end of each day, for a person: `midnight in the Pacific time zone`.
    pub resets_at: &'static str,
}

/// A video of an outgoing post.
#[derive(Clone)]
pub struct Video {
    /// The asset's id.
    pub id: i64,
    /// Its place among the images and videos of the post, from 0.
    pub position: usize,
    pub mime_type: VideoType,
    pub filename: String,
    pub alt_text: Option<String>,
    /// In bytes.
    pub size: u64,
    /// The width as players show it, in pixels.
    pub width: u32,
    /// The height as players show it, in pixels.
    pub height: u32,
    pub properties: VideoProperties,
    /// The URL for platforms that download videos.
    pub url: String,
    pub file: Arc<dyn FileBytes>,
    /// The image that is shown before the video plays, in a format that the platform accepts. Its bytes are empty if the
    /// platform downloads it.
    pub cover: Option<Image>,
    /// The time of the frame that is shown before the video plays.
    pub cover_at_ms: Option<u64>,
    /// The progress that the last step returned.
    pub upload: VideoUpload,
    /// The reference from [`VideoStep::Ready`]. `None` until the video is handed over.
    pub uploaded: Option<Value>,
}

impl std::fmt::Debug for Video {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Video").field("id", &self.id).field("size", &self.size).finish_non_exhaustive()
    }
}

impl Video {
    /// Returns a range of the bytes as the body of a request. Only a chunk at a time is in memory.
    pub async fn part(&self, range: Range<u64>) -> Result<Body, CallError> {
        let stream = self.file.read(range).await.map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                return CallError::Permanent(deleted(self.id));
            }
            tracing::warn!(%error, media = self.id, "failed to read a video");
            unreadable()
        })?;
        Ok(Body::wrap_stream(stream))
    }

    /// Returns the whole video as the part of a form.
    pub(super) async fn form_part(&self) -> Result<crier_http::multipart::Part, CallError> {
        let part = crier_http::multipart::Part::stream_with_length(self.part(0..self.size).await?, self.size)
            .file_name(self.filename.clone())
            .mime_str(self.mime_type.as_str());
        part.map_err(|_| CallError::Permanent(Failure::of(Category::Media, "This type of video cannot be sent.")))
    }

    /// Returns the platform's reference. The worker hands every video over before it publishes.
    pub(super) fn reference(&self) -> Result<&Value, CallError> {
        self.uploaded.as_ref().ok_or_else(|| {
            CallError::Transient(Failure::of(Category::Internal, "A video was not uploaded before its post."))
        })
    }
}

/// Returns the error for a video whose bytes cannot be read.
pub fn unreadable() -> CallError {
    let message = "A video of the post cannot be loaded: the file storage does not respond.";
    CallError::Transient(Failure::of(Category::Media, message))
}

fn deleted(id: i64) -> Failure {
    let message =
        format!("Media asset {id} is no longer in the media library. Choose another one, then publish the post again.");
    Failure::with_code(Category::InvalidContent, "media_deleted", message)
}

/// The progress of an upload, as a struct.
pub(super) trait UploadProgress: Serialize + DeserializeOwned {
    /// Returns the stored progress. `None` before the first step.
    fn of(video: &Video) -> Option<Self> {
        read_progress(&video.upload)
    }

    /// Returns the progress for the store.
    fn progress(&self) -> VideoUpload {
        to_progress(self)
    }
}

/// Reads the progress of an upload. `None` before the first step.
pub(super) fn read_progress<T: DeserializeOwned>(upload: &VideoUpload) -> Option<T> {
    serde_json::from_value(Value::Object(upload.clone())).ok()
}

/// Returns the progress of an upload, a struct or an enum with fields, for the store.
pub(super) fn to_progress(progress: &impl Serialize) -> VideoUpload {
    match serde_json::to_value(progress) {
        Ok(Value::Object(fields)) => fields,
        _ => VideoUpload::new(),
    }
}

/// Returns the time that the transfer of a number of bytes may take, in addition to that of a request.
pub fn transfer_time(bytes: u64) -> Duration {
    Duration::from_secs(bytes / MIN_RATE)
}

/// An image or a video.
#[derive(Clone, Copy, Debug)]
pub enum Medium<'a> {
    Image(&'a Image),
    Video(&'a Video),
}

impl OutgoingPost {
    /// Returns the only video of the post, on platforms that accept no other media with it.
    pub fn video(&self) -> Option<&Video> {
        self.videos.first()
    }

    /// Returns the images and videos in their order.
    pub fn media(&self) -> Vec<Medium<'_>> {
        let mut media: Vec<_> = self.images.iter().map(Medium::Image).collect();
        for video in &self.videos {
            media.insert(video.position.min(media.len()), Medium::Video(video));
        }
        media
    }

    /// Returns the number of bytes that the publishing request sends, if videos are part of it.
    pub fn video_bytes(&self) -> u64 {
        self.videos.iter().map(|video| video.size).sum()
    }
}
