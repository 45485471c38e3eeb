//! The media library: assets, their files, and imports.
//!
//! ```text
//!  file:   reserved ──> stored ──> doomed ──> (deleted)
//!              └───────────────────^
//!
//!                   a run begins             stored
//!  import:  pending ────────────> processing ────> completed
//!            ^ │ ^──── retry ──────┘ │
//!            │ └───────> failed <────┘      (final error, no attempts left, aborted)
//!            └─ by the operator ─┘
//! ```
//! An import whose run crashed stays `processing` until the next run starts.
//!
//! A file is bytes in the storage; an asset is a brand's reference to a file. If the same bytes are uploaded twice,
//! they are two assets of one file.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::untrusted::{self, MAX_MESSAGE};

crier_base::text_enum! {
    /// The purpose of an asset.
    pub enum AssetType { Image = "image", Icon = "icon", Logo = "logo", Video = "video" }
}

crier_base::text_enum! {
    /// The state of a file in the storage.
    pub enum FileState {
        /// Its bytes are being written.
        Reserved = "reserved",
        Stored = "stored",
        /// Its bytes will be deleted.
        Deleting = "doomed",
    }
}

crier_base::text_enum! {
    /// The state of a resumable upload.
    pub enum UploadState {
        /// It receives bytes.
        Open = "open",
        /// An asset has its bytes.
        Done = "done",
        /// No asset can have its bytes. It is kept until it expires, so that the client gets the reason.
        Rejected = "rejected",
        /// It and its pieces will be deleted.
        Deleting = "doomed",
    }
}

crier_base::text_enum! {
    /// Why the file of a resumable upload was rejected, as a code of the API.
    pub enum UploadErrorCode { Unsupported = "unsupported_media_type", TooLarge = "payload_too_large" }
}

crier_base::text_enum! {
    /// The accepted types of images. The type is detected from the bytes.
    pub enum ImageType { Jpeg = "image/jpeg", Png = "image/png", Gif = "image/gif", Webp = "image/webp" }
}

impl ImageType {
    /// Returns the extension of file names, without a dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }
}

crier_base::text_enum! {
    /// The accepted types of videos. The type is detected from the bytes.
    pub enum VideoType { Mp4 = "video/mp4", Mov = "video/quicktime", Webm = "video/webm" }
}

crier_base::text_enum! {
    /// The types of the library's files: those of images and of videos.
    pub enum MediaType {
        Jpeg = "image/jpeg",
        Png = "image/png",
        Gif = "image/gif",
        Webp = "image/webp",
        Mp4 = "video/mp4",
        Mov = "video/quicktime",
        Webm = "video/webm",
    }
}

impl MediaType {
    /// Returns the extension of file names, without a dot.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Webp => "webp",
            Self::Mp4 => "mp4",
            Self::Mov => "mov",
            Self::Webm => "webm",
        }
    }

    /// Returns the type of a file name with an extension of [`MediaType::extension`].
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        Self::ALL.iter().copied().find(|t| t.extension() == extension)
    }

    /// Returns the type of an image; `None` for a video.
    pub const fn image(self) -> Option<ImageType> {
        match self {
            Self::Jpeg => Some(ImageType::Jpeg),
            Self::Png => Some(ImageType::Png),
            Self::Gif => Some(ImageType::Gif),
            Self::Webp => Some(ImageType::Webp),
            Self::Mp4 | Self::Mov | Self::Webm => None,
        }
    }

    /// Returns the type of a video; `None` for an image.
    pub const fn video(self) -> Option<VideoType> {
        match self {
            Self::Mp4 => Some(VideoType::Mp4),
            Self::Mov => Some(VideoType::Mov),
            Self::Webm => Some(VideoType::Webm),
            Self::Jpeg | Self::Png | Self::Gif | Self::Webp => None,
        }
    }
}

impl From<ImageType> for MediaType {
    fn from(image: ImageType) -> Self {
        match image {
            ImageType::Jpeg => Self::Jpeg,
            ImageType::Png => Self::Png,
            ImageType::Gif => Self::Gif,
            ImageType::Webp => Self::Webp,
        }
    }
}

impl From<VideoType> for MediaType {
    fn from(video: VideoType) -> Self {
        match video {
            VideoType::Mp4 => Self::Mp4,
            VideoType::Mov => Self::Mov,
            VideoType::Webm => Self::Webm,
        }
    }
}

/// What the headers of a video say about it. Crier reads them once, when it receives the file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VideoProperties {
    pub duration_ms: i64,
    /// The angle by which players rotate the video, in degrees clockwise: 0, 90, 180 or 270. The width and the height
    /// of the asset are those after the rotation.
    pub rotation: i32,
    /// The mean number of frames per second. `None` if the file does not contain it.
    pub frame_rate: Option<f64>,
    /// `h264`, `hevc`, `vp8`, `vp9`, `av1`, or the code of another one.
    pub video_codec: String,
    /// `aac`, `mp3`, `opus`, `vorbis`, `ac3`, or the code of another one. `None` if the video has no sound.
    pub audio_codec: Option<String>,
    /// Whether the index comes before the frames, so that a player can start before it has the whole file.
    pub index_first: bool,
}

crier_base::text_enum! {
    pub enum MediaJobStatus {
        Pending = "pending",
        Processing = "processing",
        Completed = "completed",
        Failed = "failed",
    }
}

impl MediaJobStatus {
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }

    /// Returns the next status if the diagram allows the transition.
    pub fn to(self, next: Self) -> Result<Self, MediaJobTransitionError> {
        use MediaJobStatus::{Completed, Failed, Pending, Processing};
        let allowed = match self {
            Pending => matches!(next, Processing | Failed),
            Processing => matches!(next, Pending | Processing | Completed | Failed),
            Failed => matches!(next, Pending),
            Completed => false,
        };
        allowed.then_some(next).ok_or(MediaJobTransitionError { from: self, to: next })
    }
}

/// The diagram does not allow this transition.
#[derive(Debug, thiserror::Error)]
#[error("an import that is {from} cannot become {to}")]
pub struct MediaJobTransitionError {
    pub from: MediaJobStatus,
    pub to: MediaJobStatus,
}

/// An image or a video in a brand's media library.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Asset {
    pub id: i64,
    pub brand_id: i64,
    pub asset_type: AssetType,
    pub filename: String,
    pub alt_text: Option<String>,
    pub source_url: Option<String>,
    /// The file's name in the storage.
    pub key: String,
    /// The name of the thumbnail. `None` for a video without a cover image.
    pub thumbnail_key: Option<String>,
    pub mime_type: MediaType,
    pub size_bytes: i64,
    pub width: i32,
    pub height: i32,
    /// `None` for an image.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub video: Option<VideoProperties>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

crier_base::text_enum! {
    /// The code of a failed import.
    pub enum MediaErrorCode {
        /// The URL, or one that it redirects to, is not public.
        BlockedAddress = "blocked_address",
        /// There was no response, or its status was not 2xx.
        HttpError = "http_error",
        UnsupportedMediaType = "unsupported_media_type",
        TooLarge = "too_large",
        Timeout = "timeout",
        StorageLimitExceeded = "storage_limit_exceeded",
        InternalError = "internal_error",
    }
}

/// Why an import, or its last attempt, failed. The message is for users and reveals no internals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaError {
    pub code: MediaErrorCode,
    pub message: String,
}

impl MediaError {
    pub fn new(code: MediaErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: untrusted::line(&message.into(), MAX_MESSAGE) }
    }
}

/// An import from a URL.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct MediaJob {
    pub id: i64,
    pub brand_id: i64,
    pub asset_type: AssetType,
    /// As entered by the client.
    pub source_url: String,
    pub alt_text: Option<String>,
    pub status: MediaJobStatus,
    /// The imported asset; `None` if there is none yet, or if it was deleted.
    pub media_id: Option<i64>,
    /// Why the import failed, or why its last attempt failed if it is pending.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<MediaError>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use super::MediaJobStatus::{self, Completed, Failed, Pending, Processing};

    #[test]
    fn only_allowed_import_transitions_are_accepted() {
        let arrows = [
            (Pending, Processing),
            (Pending, Failed),
            (Processing, Pending),
            (Processing, Processing),
            (Processing, Completed),
            (Processing, Failed),
            (Failed, Pending),
        ];
        for from in MediaJobStatus::ALL {
            for to in MediaJobStatus::ALL {
                assert_eq!(from.to(*to).is_ok(), arrows.contains(&(*from, *to)), "{from} to {to}");
            }
        }
    }
}
