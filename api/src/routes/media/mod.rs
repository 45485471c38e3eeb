//! The media library.
//!
//! Bytes are stored before the request's transaction begins; the transaction writes the asset that refers to them.
//! [`crier_media`] explains how no bytes are lost or left behind.

use crier_domain::media::{Asset, AssetType, ImageType};
use crier_media::{IngestError, Library, Owner, Refusal};

use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::{described, record};
use crate::response::Timestamp;

mod delete;
mod from_url;
mod job;
mod list;
mod show;
mod update;
mod upload;

pub const TAG: &str = "Media";

pub fn endpoints() -> Vec<Endpoint> {
    vec![
        list::endpoint(),
        upload::endpoint(),
        from_url::endpoint(),
        job::endpoint(),
        show::endpoint(),
        update::endpoint(),
        delete::endpoint(),
    ]
}

record! {
    /// A picture of the brand.
    pub struct MediaAsset {
        pub id: i64,
        pub asset_type: AssetType,
        /// As the client named it.
        pub filename: String { "examples": ["bread.jpg"] },
        /// By what the bytes are.
        pub mime_type: ImageType,
        /// Of what is served.
        pub size_bytes: i64 { "examples": [183204] },
        pub width: i32 { "examples": [1600] },
        pub height: i32 { "examples": [1200] },
        /// What the picture shows, for those who do not see it.
        pub alt_text: Option<String> { "x-extension": true, "examples": ["Fresh bread on a shelf"] },
        /// Where it is; needs no key.
        pub url: String { "format": "uri", "examples": ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8.jpg"] },
        /// The same at 400 pixels at most.
        pub thumbnail_url: String { "format": "uri", "examples": ["https://crier.example/media/5C8Nd0RWPgQxvUtRl84cEp4YxQEivIGZlXaK5Yf8-thumb.jpg"] },
        /// Where it was imported from.
        pub source_url: Option<String> { "examples": [null] },
        pub created_at: Timestamp,
        pub updated_at: Timestamp,
    }
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
            thumbnail_url: library.url(&a.thumbnail_key),
            source_url: a.source_url,
            created_at: a.created_at.into(),
            updated_at: a.updated_at.into(),
        }
    }
}

described! {
    /// A picture to be kept.
    pub struct NewMedia {
        /// A JPEG, PNG, GIF or WebP of at most 25 MiB and 100 megapixels (the operator may set other limits).
        pub file: String { "format": "binary" },
        pub asset_type: Option<AssetType> { "default": "image" },
        /// What the picture shows, for those who do not see it.
        pub alt_text: Option<String> { "maxLength": 2000, "x-extension": true },
    }
}

pub const MAX_ALT_TEXT_CHARS: usize = 2_000;

/// Returns the owner of pictures stored by this request.
pub fn owner(cx: &Context) -> Result<Owner> {
    Ok(Owner { workspace_id: cx.caller.workspace_id, brand_id: cx.brand()?.id, cap: cx.plan.storage_bytes() })
}

/// Returns the response for a picture that could not be stored.
fn refused(cx: &Context, error: IngestError) -> ApiError {
    match error {
        IngestError::Refused(Refusal::Empty) => ApiError::field("file", Refusal::Empty.to_string()),
        IngestError::Refused(Refusal::Unsupported(why)) => ApiError::new(ErrorCode::UnsupportedMediaType, why),
        IngestError::Refused(Refusal::TooLarge(why)) => ApiError::new(ErrorCode::PayloadTooLarge, why),
        IngestError::Full => storage_full(cx.plan.storage_mib),
        IngestError::Store(error) => error.into(),
        IngestError::Storage(error) => ApiError::storage(error.to_string()),
        IngestError::Machine(why) => ApiError::storage(why),
    }
}

pub fn storage_full(storage_mib: Option<u64>) -> ApiError {
    let message = format!(
        "The workspace's plan allows {} MiB of files, and this one would not fit. Delete some or choose a larger plan.",
        storage_mib.unwrap_or_default()
    );
    ApiError::new(ErrorCode::StorageLimitExceeded, message)
}
