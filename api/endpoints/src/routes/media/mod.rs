//! The media library.
//!
//! Bytes are stored before the request's transaction begins; the transaction writes the asset that refers to them.
//! [`crier_media`] explains how no bytes are lost or left behind.

use crier_domain::media::{Asset, AssetType, MediaType};
use crier_media::{IngestError, Library, Owner, Rejection};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

pub mod delete;
pub mod from_url;
pub mod job;
pub mod list;
pub mod show;
pub mod update;
pub mod upload;
pub mod uploads;

pub use job::MediaImportError;

pub const TAG: &str = "Media";

pub fn endpoints() -> Vec<AnyEndpoint> {
    let own = vec![
        list::endpoint().erase(),
        upload::endpoint().erase(),
        from_url::endpoint().erase(),
        job::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
    ];
    own.into_iter().chain(uploads::endpoints()).collect()
}

/// An image or a video of the brand.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MediaAsset {
    pub id: i64,
    #[schemars(with = "TextEnum<AssetType>")]
    pub asset_type: AssetType,
    /// The name of the file.
    #[schemars(extend("examples" = ["bread.jpg"]))]
    pub filename: String,
    /// The content type, detected from the file.
    #[schemars(with = "TextEnum<MediaType>")]
    pub mime_type: MediaType,
    /// The size of the served file, in bytes.
    #[schemars(extend("examples" = [183204]))]
    pub size_bytes: i64,
    /// The width, in pixels. For a video, as players show it.
    #[schemars(extend("examples" = [1600]))]
    pub width: i32,
    /// The height, in pixels. For a video, as players show it.
    #[schemars(extend("examples" = [1200]))]
    pub height: i32,
    /// The duration of a video, in milliseconds. Null for an image.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub duration_ms: Option<i64>,
    /// The angle by which players rotate a video, in degrees clockwise: 0, 90, 180 or 270. Null for an image.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub rotation: Option<i32>,
    /// The mean number of frames per second of a video. Null for an image, or if the file does not contain it.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub frame_rate: Option<f64>,
    /// The video codec, for example `h264`, `hevc`, `vp9` or `av1`. Null for an image.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub video_codec: Option<String>,
    /// The audio codec, for example `aac` or `opus`. Null for an image or a video without sound.
    #[schemars(extend("examples" = [null], "x-extension" = true))]
    pub audio_codec: Option<String>,
    /// A description of the image or video for people who cannot see it.
    #[schemars(extend("examples" = ["Fresh bread on a shelf"], "x-extension" = true))]
    pub alt_text: Option<String>,
    /// The public URL of the file. Needs no API key.
    #[schemars(url, extend("examples" = ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8.jpg"]))]
    pub url: String,
    /// The public URL of a thumbnail of at most 400 × 400 pixels. Null for a video without a cover image.
    #[schemars(url)]
    #[schemars(extend("examples" = ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8-thumb.jpg"]))]
    pub thumbnail_url: Option<String>,
    /// The public URL of the cover image of a video, which is its thumbnail. Null for an image, or if the video has no
    /// cover image, for example because the operator has not installed ffmpeg.
    #[schemars(url, extend("examples" = [null], "x-extension" = true))]
    pub cover_url: Option<String>,
    /// The URL from which the file was imported. Null if it was not imported.
    #[schemars(extend("examples" = [null]))]
    pub source_url: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl MediaAsset {
    pub fn new(library: &Library, a: Asset) -> Self {
        let thumbnail_url = a.thumbnail_key.map(|key| library.url(&key));
        let video = a.video.as_ref();
        Self {
            id: a.id,
            asset_type: a.asset_type,
            filename: a.filename,
            mime_type: a.mime_type,
            size_bytes: a.size_bytes,
            width: a.width,
            height: a.height,
            duration_ms: video.map(|video| video.duration_ms),
            rotation: video.map(|video| video.rotation),
            frame_rate: video.and_then(|video| video.frame_rate),
            video_codec: video.map(|video| video.video_codec.clone()),
            audio_codec: video.and_then(|video| video.audio_codec.clone()),
            alt_text: a.alt_text,
            url: library.url(&a.key),
            cover_url: video.and(thumbnail_url.clone()),
            thumbnail_url,
            source_url: a.source_url,
            created_at: a.created_at.into(),
            updated_at: a.updated_at.into(),
        }
    }
}

pub const MAX_ALT_TEXT_CHARS: usize = 2_000;

/// Returns the owner of the files that this request stores.
pub fn owner(cx: &Context) -> Result<Owner> {
    Ok(Owner { workspace_id: cx.caller.workspace_id, brand_id: cx.brand()?.id, cap: cx.plan.storage_bytes() })
}

/// Returns the error for a video in a request that is not for a video.
pub fn video_without_type() -> ApiError {
    ApiError::new(
        ErrorCode::UnsupportedMediaType,
        "The file is a video. To upload a video, send `asset_type` with the value `video` before `file`.",
    )
}

/// Returns the error for another file in a request that is for a video.
pub fn not_a_video() -> ApiError {
    ApiError::new(
        ErrorCode::UnsupportedMediaType,
        "The file is not a video of a supported type. Use an MP4, MOV or WebM video. To upload an image, omit \
         `asset_type` or send the value `image`.",
    )
}

/// Returns the error for a file that could not be stored.
fn ingest_error(cx: &Context, error: IngestError) -> ApiError {
    match error {
        IngestError::Rejected(Rejection::Empty) => ApiError::field("file", Rejection::Empty.to_string()),
        IngestError::Rejected(Rejection::Unsupported(why)) => ApiError::new(ErrorCode::UnsupportedMediaType, why),
        IngestError::Rejected(Rejection::TooLarge(why)) => ApiError::new(ErrorCode::PayloadTooLarge, why),
        IngestError::Full => storage_full(cx.plan.storage_mib),
        IngestError::Store(error) => error.into(),
        IngestError::Storage(error) => ApiError::storage(error.to_string()),
        IngestError::Machine(why) => ApiError::storage(why),
    }
}

pub fn storage_full(storage_mib: Option<u64>) -> ApiError {
    let message = format!(
        "The workspace's plan allows {} MiB of files, and this file would exceed that. Delete files, or ask the \
         operator for a larger plan.",
        storage_mib.unwrap_or_default()
    );
    ApiError::new(ErrorCode::StorageLimitExceeded, message)
}
