//! `POST /brands/{brand}/media/from-url`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::media::AssetType;
use crier_http::SchemePolicy;
use crier_store::media_jobs::{self, NewImport};
use crier_store::{Tx, jobs};

use super::job::{self, MediaImport};
use super::{MAX_ALT_TEXT_CHARS, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The image or video to import.
#[derive(Clone, Debug, Request)]
#[request(name = "NewMediaImport")]
pub struct ImportMediaRequest {
    /// A public http or https URL.
    #[field(unchecked_url(), example = "https://example.com/bread.jpg")]
    pub url: String,
    /// Required for a video: `video`.
    #[field(enum_value(), default = AssetType::Image, example = "image")]
    pub asset_type: AssetType,
    /// A description of the image or video for people who cannot see it.
    #[field(text(0..=MAX_ALT_TEXT_CHARS), extension, example = "Fresh bread on a shelf")]
    pub alt_text: Option<String>,
}

pub fn endpoint() -> Endpoint<ImportMediaRequest, One<MediaImport>> {
    Endpoint::post("/brands/{brand}/media/from-url", "importMedia", Scope::MediaWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Import an image or a video from a URL")
        .description(
            "Crier fetches the file after it has sent the response, with up to 5 attempts. Poll `poll_url` for the \
             status, or subscribe to `media.completed` and `media.failed`. The file must meet the same requirements as an \
             upload.",
        )
        .status(202)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidSourceUrl])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<ImportMediaRequest>>) -> Result<WriteStep<MediaImport>> {
    let new = parsed.valid()?.clone();
    let checked = cx.app.guard.check_resolved(&new.url, SchemePolicy::HttpOrHttps).await;
    checked.map_err(|reason| {
        ApiError::new(ErrorCode::InvalidSourceUrl, format!("The URL {reason}. Use a public http:// or https:// URL."))
    })?;
    Ok(WriteStep::new(new, |cx, tx, new| Box::pin(async move { accept(cx, tx, &new).await })))
}

async fn accept(cx: &Context, tx: &mut Tx, new: &ImportMediaRequest) -> Result<Reply<MediaImport>> {
    let brand_id = cx.brand()?.id;
    let row = NewImport {
        asset_type: new.asset_type,
        source_url: &new.url,
        alt_text: new.alt_text.as_deref().filter(|text| !text.is_empty()),
    };
    let id = media_jobs::insert(tx, brand_id, &row).await?;
    let fetch =
        NewJob::new(JobKind::ImportMedia, id, tx.now).lane(Lane::Brand(brand_id)).workspace(cx.caller.workspace_id);
    jobs::enqueue(tx, &fetch.trace(cx.trace().map(str::to_owned))).await?;
    let found = media_jobs::find(tx, brand_id, id).await?;
    let import = found.ok_or_else(|| ApiError::bug("a new import is missing"))?;
    Ok(Reply::at(&job::path(brand_id, id), job::load_media_import(cx, tx, import).await?))
}
