//! Resumable uploads of videos by the protocol tus 1.0 ([`crate::tus`]), with its extensions for creation, expiration
//! and termination. [`crier_media::uploads`] explains how bytes are kept until a file is complete.
//!
//! Clients of the protocol send no `Idempotency-Key`: a repeated request has the offset of its bytes, so it changes
//! nothing twice. A repeated request to create an upload creates another one, which expires.

use crier_media::uploads::rejection;
use crier_media::{IngestError, SpoolError, UploadError};
use crier_store::media_uploads::{self, MAX_OPEN, Upload};

use super::ingest_error;
use crate::context::Context;
use crate::endpoint::{AnyEndpoint, HeaderSpec};
use crate::error::{ApiError, ErrorCode, Result};
use crate::tus::{MEDIA_ID, TusResponse, UPLOAD_EXPIRES, UPLOAD_OFFSET, VERSION};

pub mod append;
pub mod create;
pub mod delete;
mod metadata;
pub mod options;
pub mod status;

/// The path at which uploads are created.
pub const PATH: &str = "/brands/{brand}/media/uploads";
/// The path of an upload.
pub const UPLOAD_PATH: &str = "/brands/{brand}/media/uploads/{upload}";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![create::endpoint().erase(), status::endpoint().erase(), append::endpoint().erase(), delete::endpoint().erase()]
}

const RESUMABLE: HeaderSpec = HeaderSpec {
    name: "Tus-Resumable",
    description: "The version of the protocol.",
    is_required: true,
    example: VERSION,
};
const OFFSET: HeaderSpec = HeaderSpec {
    name: "Upload-Offset",
    description: "The number of bytes that Crier has received.",
    is_required: true,
    example: "8388608",
};
const EXPIRES: HeaderSpec = HeaderSpec {
    name: "Upload-Expires",
    description: "The time at which the upload is deleted: 24 hours after its creation or, if all bytes have arrived, after \
        the last one.",
    is_required: true,
    example: "Sun, 01 Mar 2026 10:00:00 GMT",
};
const ASSET: HeaderSpec = HeaderSpec {
    name: "Crier-Media-Id",
    description: "The ID of the uploaded video. Omitted until the video is in the media library.",
    is_required: false,
    example: "1",
};

/// Returns the upload in the path; 404 if it does not exist or has expired. If its file was rejected, fails with the
/// reason, because the response that the client awaited may have come before that.
async fn find(cx: &Context) -> Result<Upload> {
    let mut conn = cx.app.store.read().await?;
    let found = media_uploads::find(&mut conn, cx.brand()?.id, cx.id("upload")?, cx.now).await?;
    let upload = found.ok_or_else(missing)?;
    match rejection(&upload) {
        Some(rejection) => Err(upload_error(cx, rejection)),
        None => Ok(upload),
    }
}

fn missing() -> ApiError {
    ApiError::not_found("upload")
}

/// Adds the headers that describe an upload to a response.
fn with_progress(response: TusResponse, upload: &Upload, offset: i64, media_id: Option<i64>) -> TusResponse {
    let response = with_expiry(response, upload).header(UPLOAD_OFFSET, &offset.to_string());
    match media_id {
        Some(id) => response.header(MEDIA_ID, &id.to_string()),
        None => response,
    }
}

fn with_expiry(response: TusResponse, upload: &Upload) -> TusResponse {
    response.header(UPLOAD_EXPIRES, &upload.expires_at.format("%a, %d %b %Y %H:%M:%S GMT").to_string())
}

/// Returns the error for an upload that is too large for this server.
fn too_large(max_bytes: u64) -> ApiError {
    let message = format!("The file is larger than the maximum of {} MiB.", max_bytes >> 20);
    ApiError::new(ErrorCode::PayloadTooLarge, message)
}

fn too_many_open() -> ApiError {
    let message = format!(
        "The workspace has {MAX_OPEN} unfinished uploads, which is the maximum. Finish or delete one of them, or wait \
         until one expires."
    );
    ApiError::new(ErrorCode::RateLimited, message).retry_after(60)
}

/// Returns the error for a process that receives too many uploads.
fn too_many_requests() -> ApiError {
    let message = "Too many files are being uploaded, in total or in this workspace. Retry in a few seconds.";
    ApiError::new(ErrorCode::ServiceUnavailable, message).retry_after(5)
}

/// Returns the error for bytes that were not added to an upload.
fn upload_error(cx: &Context, error: UploadError) -> ApiError {
    match error {
        UploadError::Missing => missing(),
        UploadError::WrongOffset(received) => {
            let message = format!("The upload has {received} bytes. Continue with `Upload-Offset: {received}`.");
            ApiError::new(ErrorCode::UploadOffsetMismatch, message)
        }
        UploadError::Locked => {
            let message = "Another request is writing to this upload. Retry in a few seconds.";
            ApiError::new(ErrorCode::UploadLocked, message).retry_after(5)
        }
        UploadError::TooLong => too_long(),
        UploadError::TooManyPieces => {
            let message = "The upload was sent in too many short requests. Create another one, and send at least 1 MiB \
                 per request.";
            ApiError::new(ErrorCode::PayloadTooLarge, message)
        }
        UploadError::Damaged => {
            let message = "The server lost a part of this upload and deleted the upload. Upload the file again.";
            ApiError::new(ErrorCode::NotFound, message)
        }
        UploadError::Spool(SpoolError::Full) => too_many_requests(),
        UploadError::Spool(SpoolError::Io(error)) => ApiError::storage(error.to_string()),
        // The file has no form, whose field such an error would name.
        UploadError::Ingest(IngestError::Rejected(rejection @ crier_media::Rejection::Empty)) => {
            ApiError::new(ErrorCode::UnsupportedMediaType, rejection.to_string())
        }
        UploadError::Ingest(error) => ingest_error(cx, error),
    }
}

fn too_long() -> ApiError {
    let message = "The body is longer than the rest of the upload. Send only the bytes after `Upload-Offset`.";
    ApiError::new(ErrorCode::PayloadTooLarge, message)
}
