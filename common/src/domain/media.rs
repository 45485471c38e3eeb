//! The media library: assets, the files that they show, and imports.
//!
//! ```text
//!  file:   reserved ──> stored ──> doomed ──> (gone)        import:  pending ⇄ processing ──> completed
//!              └───────────────────^                                             └──────────> failed
//! ```
//!
//! A file is bytes in the storage; an asset is what a brand calls by an id. The same bytes twice are two assets on one file.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

crate::text_enum! {
    /// What an asset is for.
    pub enum AssetType { Image = "image", Icon = "icon", Logo = "logo" }
}

crate::text_enum! {
    /// What is done with a file's bytes.
    pub enum FileState {
        /// They are being brought in.
        Reserved = "reserved",
        Stored = "stored",
        /// They are to be taken away.
        Doomed = "doomed",
    }
}

crate::text_enum! {
    /// The pictures that are taken, by what the bytes are.
    pub enum ImageType { Jpeg = "image/jpeg", Png = "image/png", Gif = "image/gif", Webp = "image/webp" }
}

impl ImageType {
    /// What a file's name ends with.
    pub const fn extension(self) -> &'static str {
        match self {
            Self::Jpeg => "jpg",
            Self::Png => "png",
            Self::Gif => "gif",
            Self::Webp => "webp",
        }
    }

    /// The type that a name of ours ends with.
    pub fn of_name(name: &str) -> Option<Self> {
        let (_, extension) = name.rsplit_once('.')?;
        Self::ALL.iter().copied().find(|t| t.extension() == extension)
    }
}

crate::text_enum! {
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
}

/// A picture of a brand.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Asset {
    pub id: i64,
    pub brand_id: i64,
    pub asset_type: AssetType,
    pub filename: String,
    pub alt_text: Option<String>,
    pub source_url: Option<String>,
    /// The file's names in the storage.
    pub key: String,
    pub thumbnail_key: String,
    pub mime_type: ImageType,
    pub size_bytes: i64,
    pub width: i32,
    pub height: i32,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Why an import failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MediaError {
    pub code: String,
    pub message: String,
}

/// An import from an address.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct MediaJob {
    pub id: i64,
    pub brand_id: i64,
    pub asset_type: AssetType,
    pub source_url: String,
    pub status: MediaJobStatus,
    pub media_id: Option<i64>,
    #[sqlx(json(nullable))]
    pub error: Option<MediaError>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
