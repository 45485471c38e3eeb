//! `GET /brands/{brand}/jobs/{job}`

use crier_domain::access::Scope;
use crier_domain::media::{AssetType, MediaErrorCode, MediaJob, MediaJobStatus};
use crier_store::{Conn, media as assets, media_jobs};
use schemars::JsonSchema;
use serde::Serialize;

use super::{MediaAsset, TAG};
use crate::PREFIX;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply, Timestamp};

/// The reason an import failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MediaImportError {
    #[schemars(with = "TextEnum<MediaErrorCode>")]
    pub code: MediaErrorCode,
    /// The reason, as a sentence.
    pub message: String,
}

/// An import from a URL.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct MediaImport {
    pub id: i64,
    #[schemars(with = "TextEnum<MediaJobStatus>")]
    pub status: MediaJobStatus,
    #[schemars(with = "TextEnum<AssetType>")]
    pub asset_type: AssetType,
    /// The source URL from the request.
    #[schemars(url)]
    pub source_url: String,
    /// The imported image or video. Null until the import is completed, or if it has been deleted since.
    pub media: Option<MediaAsset>,
    /// The reason the import failed. While it is pending, the reason the previous attempt failed.
    pub error: Option<MediaImportError>,
    /// The path to poll for the status, starting at the root of the host.
    #[schemars(extend("format" = "uri-reference"))]
    pub poll_url: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl MediaImport {
    fn new(import: MediaJob, media: Option<MediaAsset>) -> Self {
        Self {
            id: import.id,
            status: import.status,
            asset_type: import.asset_type,
            media,
            error: import.error.map(|error| MediaImportError { code: error.code, message: error.message }),
            poll_url: format!("{PREFIX}{}", path(import.brand_id, import.id)),
            source_url: import.source_url,
            created_at: import.created_at.into(),
            updated_at: import.updated_at.into(),
        }
    }
}

/// Returns the path of an import, relative to the API's base.
pub fn path(brand_id: i64, job_id: i64) -> String {
    format!("/brands/{brand_id}/jobs/{job_id}")
}

pub fn endpoint() -> Endpoint<(), One<MediaImport>> {
    Endpoint::get("/brands/{brand}/jobs/{job}", "getMediaJob", Scope::MediaRead)
        .tag(TAG)
        .summary("Get the status of an import")
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<MediaImport>> {
    let brand_id = cx.brand()?.id;
    let found = media_jobs::find(conn, brand_id, cx.id("job")?).await?;
    let import = found.ok_or_else(|| ApiError::not_found("job"))?;
    Ok(Reply::from(load_media_import(cx, conn, import).await?))
}

/// Returns the import with its asset.
pub async fn load_media_import(cx: &Context, conn: &mut Conn, import: MediaJob) -> Result<MediaImport> {
    let asset = match import.media_id {
        Some(id) => assets::find(conn, import.brand_id, id).await?,
        None => None,
    };
    Ok(MediaImport::new(import, asset.map(|asset| MediaAsset::new(&cx.app.library, asset))))
}
