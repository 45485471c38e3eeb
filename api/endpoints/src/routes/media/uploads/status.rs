//! `HEAD /brands/{brand}/media/uploads/{upload}`

use crier_domain::access::Scope;
use http::StatusCode;
use http::header::CACHE_CONTROL;

use super::{ASSET, EXPIRES, OFFSET, RESUMABLE, UPLOAD_PATH, find, with_progress};
use crate::context::Context;
use crate::endpoint::{Endpoint, HeaderSpec};
use crate::error::{ErrorCode, Result};
use crate::response::Nothing;
use crate::routes::media::TAG;
use crate::tus::{TusRequest, TusResponse, UPLOAD_LENGTH, UPLOAD_METADATA};

const LENGTH: HeaderSpec = HeaderSpec {
    name: "Upload-Length",
    description: "The size of the file, in bytes.",
    is_required: true,
    example: "104857600",
};
const METADATA: HeaderSpec = HeaderSpec {
    name: "Upload-Metadata",
    description: "The metadata from the creation. Omitted if there was none.",
    is_required: false,
    example: "filename YnJlYWQubXA0,asset_type dmlkZW8=",
};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::head(UPLOAD_PATH, "getMediaUpload", Scope::MediaWrite)
        .tag(TAG)
        .summary("Get the offset of an upload")
        .description(
            "The response has only headers. Continue the upload at `Upload-Offset`. If that is the size of the file, \
             Crier is adding the video to the media library or has added it (`Crier-Media-Id`). If the file was \
             rejected, the status is 413 or 415 until the upload expires. To get the reason, send an empty `PATCH`. An \
             upload whose video was deleted does not exist (404).",
        )
        .extension()
        .status(200)
        .request_headers(&[RESUMABLE])
        .response_headers(&[RESUMABLE, OFFSET, LENGTH, METADATA, EXPIRES, ASSET])
        .error_codes(&[
            ErrorCode::UploadVersionUnsupported,
            ErrorCode::PayloadTooLarge,
            ErrorCode::UnsupportedMediaType,
        ])
        .speaks_tus(status)
}

async fn status(cx: &Context, _: TusRequest<'_>) -> Result<TusResponse> {
    let upload = find(cx).await?;
    let response = with_progress(TusResponse::new(StatusCode::OK), &upload, upload.received, upload.media_id)
        .header(UPLOAD_LENGTH, &upload.size_bytes.to_string())
        .header(CACHE_CONTROL, "no-store");
    Ok(if upload.metadata.is_empty() { response } else { response.header(UPLOAD_METADATA, &upload.metadata) })
}
