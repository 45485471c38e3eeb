//! `DELETE /brands/{brand}/media/uploads/{upload}`

use crier_domain::access::Scope;
use crier_store::media_uploads;
use http::StatusCode;

use super::{RESUMABLE, UPLOAD_PATH, missing};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::response::Nothing;
use crate::routes::media::TAG;
use crate::tus::{TusRequest, TusResponse};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete(UPLOAD_PATH, "deleteMediaUpload", Scope::MediaWrite)
        .tag(TAG)
        .summary("Delete an upload")
        .description(
            "The received bytes are deleted, and the reserved storage is released immediately. The video of a finished \
             upload is kept.",
        )
        .extension()
        .status(204)
        .request_headers(&[RESUMABLE])
        .response_headers(&[RESUMABLE])
        .error_codes(&[ErrorCode::UploadVersionUnsupported])
        .speaks_tus(delete)
}

async fn delete(cx: &Context, _: TusRequest<'_>) -> Result<TusResponse> {
    let mut tx = cx.app.store.begin().await?;
    if !media_uploads::delete(&mut tx, cx.brand()?.id, cx.id("upload")?).await? {
        tx.rollback().await?;
        return Err(missing());
    }
    tx.commit().await?;
    Ok(TusResponse::new(StatusCode::NO_CONTENT))
}
