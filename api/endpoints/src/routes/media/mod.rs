//! The media library.
//!
//! Bytes are stored before the request's transaction begins; the transaction writes the asset that refers to them.
//! [`crier_media`] explains how no bytes are lost or left behind.

use crier_domain::media::{Asset, AssetType, MediaType};
use crier_media::{IngestError, Library, Owner, Refusal};
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

pub use job::MediaImportError;

pub const TAG: &str = "Media";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        upload::endpoint().erase(),
        from_url::endpoint().erase(),
        job::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
    ]
}

/// An image of the brand.
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
    #[schemars(extend("examples" = [1600]))]
    pub width: i32,
    #[schemars(extend("examples" = [1200]))]
    pub height: i32,
    /// A description of the image for people who cannot see it.
    #[schemars(extend("examples" = ["Fresh bread on a shelf"], "x-extension" = true))]
    pub alt_text: Option<String>,
    /// The public URL of the image. Needs no API key.
    #[schemars(url, extend("examples" = ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8.jpg"]))]
    pub url: String,
    /// The public URL of a thumbnail of at most 400 × 400 pixels.
    #[schemars(url)]
    #[schemars(extend("examples" = ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8-thumb.jpg"]))]
    pub thumbnail_url: Option<String>,
    /// The URL from which the image was imported. Null if it was not imported.
    #[schemars(extend("examples" = [null]))]
    pub source_url: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl MediaAsset {
    pub fn new(library: &Library, a: Asset) -> Self {
        Self {
            id: a.id,
            asset_type: a.asset_type,
            filename: a.filename,
            mime_type: a.mime_type,
            size_bytes: a.size_bytes,
            width: a.width,
            height: a.height,
            alt_text: a.alt_text,
            url: library.url(&a.key),
            thumbnail_url: a.thumbnail_key.map(|key| library.url(&key)),
            source_url: a.source_url,
            created_at: a.created_at.into(),
            updated_at: a.updated_at.into(),
        }
    }
}

pub const MAX_ALT_TEXT_CHARS: usize = 2_000;

/// Returns the owner of the images that this request stores.
pub fn owner(cx: &Context) -> Result<Owner> {
    Ok(Owner { workspace_id: cx.caller.workspace_id, brand_id: cx.brand()?.id, cap: cx.plan.storage_bytes() })
}

/// Returns the error for an image that could not be stored.
fn ingest_error(cx: &Context, error: IngestError) -> ApiError {
    match error {
        IngestError::Rejected(Refusal::Empty) => ApiError::field("file", Refusal::Empty.to_string()),
        IngestError::Rejected(Refusal::Unsupported(why)) => ApiError::new(ErrorCode::UnsupportedMediaType, why),
        IngestError::Rejected(Refusal::TooLarge(why)) => ApiError::new(ErrorCode::PayloadTooLarge, why),
        IngestError::Full => storage_full(cx.plan.storage_mib),
        IngestError::Store(error) => error.into(),
        IngestError::Storage(error) => ApiError::storage(error.to_string()),
        IngestError::Machine(why) => ApiError::storage(why),
    }
}

pub fn storage_full(storage_mib: Option<u64>) -> ApiError {
    let message = format!(
        "The workspace's plan allows {} MiB of files, and this file would exceed that. Delete files or choose a \
         larger plan.",
        storage_mib.unwrap_or_default()
    );
    ApiError::new(ErrorCode::StorageLimitExceeded, message)
}
