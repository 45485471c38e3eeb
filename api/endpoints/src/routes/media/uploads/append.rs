//! `PATCH /brands/{brand}/media/uploads/{upload}`

use bytes::Bytes;
use crier_domain::access::Scope;
use crier_domain::media::UploadState;
use crier_telemetry::metrics::{self, ByteSource};
use crier_telemetry::traces;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use tokio::sync::mpsc;
use tracing::Instrument;

use super::{
    ASSET, EXPIRES, OFFSET, RESUMABLE, UPLOAD_PATH, find, too_long, too_many_requests, upload_error, with_progress,
};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::Nothing;
use crate::routes::media::{TAG, owner};
use crate::runner::body_reader::BodyReader;
use crate::tus::{TusRequest, TusResponse, UPLOAD_OFFSET};

const BYTES: &str = "application/offset+octet-stream";
/// The maximum number of bytes that are read and discarded for an upload that has all bytes, so that the client can read
/// the response.
const MAX_DISCARDED: usize = 16 << 20;

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::patch(UPLOAD_PATH, "appendToMediaUpload", Scope::MediaWrite)
        .tag(TAG)
        .summary("Send bytes of an upload")
        .description(
            "Crier stores the bytes as they arrive. If a request ends early, another request can continue the upload, \
             even on another server of this installation. If no bytes arrive for 30 seconds, the response contains the \
             offset that was reached. After the last byte, Crier checks the file and adds the video to the media \
             library, with its ID in `Crier-Media-Id`. If this takes longer than 30 seconds, the response does not have \
             the ID: get it with `HEAD`. If the file is rejected (415, 413), the upload ends, and further requests \
             return the same error. A request to an upload that has all bytes changes nothing.",
        )
        .extension()
        .status(204)
        .body_is_bytes(BYTES)
        .request_headers(&[RESUMABLE, OFFSET])
        .response_headers(&[RESUMABLE, OFFSET, EXPIRES, ASSET])
        .error_codes(&[
            ErrorCode::InvalidUpload,
            ErrorCode::UploadOffsetMismatch,
            ErrorCode::UploadVersionUnsupported,
            ErrorCode::PayloadTooLarge,
            ErrorCode::UnsupportedMediaType,
            ErrorCode::UploadLocked,
        ])
        .speaks_tus(append)
}

async fn append(cx: &Context, request: TusRequest<'_>) -> Result<TusResponse> {
    let upload = find(cx).await?;
    check_type(request.headers)?;
    let offset = request.required_number(&UPLOAD_OFFSET)?;
    if upload.state == UploadState::Done || upload.received == upload.size_bytes {
        discard(cx, request).await;
        let response = TusResponse::new(StatusCode::NO_CONTENT);
        return Ok(with_progress(response, &upload, upload.received, upload.media_id));
    }
    let slot = cx.app.upload_slots.enter(cx.caller.workspace_id).ok_or_else(too_many_requests)?;
    let writer = cx.app.library.write_upload(&cx.app.store, owner(cx)?, upload.id, offset).await;
    let writer = writer.map_err(|error| upload_error(cx, error))?;
    let is_too_long = request.content_length().is_some_and(|length| length > writer.missing());
    let (sender, receiver) = mpsc::channel(1);
    // A task of its own, so that the bytes are stored, and a complete file becomes an asset, even if the client
    // disconnects. It holds the slot as long as it holds memory.
    let work = async move {
        let received = writer.receive(receiver).await;
        drop(slot);
        received
    };
    let work = tokio::spawn(traces::in_current_span(Box::pin(work.in_current_span())));
    if is_too_long {
        drop(sender);
    } else {
        forward(cx, request, sender).await;
    }
    // No bytes are sent during this time, so a longer wait would exceed the idle timeout of the connection or of a proxy.
    let Ok(ended) = tokio::time::timeout(cx.app.asset_wait, work).await else {
        let upload = find(cx).await?;
        let response = TusResponse::new(StatusCode::NO_CONTENT);
        return Ok(with_progress(response, &upload, upload.received, upload.media_id));
    };
    let received = ended.map_err(|error| ApiError::bug(format!("the upload was not finished: {error}")))?;
    let progress = received.map_err(|error| upload_error(cx, error))?;
    if is_too_long {
        return Err(too_long());
    }
    Ok(with_progress(TusResponse::new(StatusCode::NO_CONTENT), &upload, progress.offset, progress.media_id))
}

fn check_type(headers: &HeaderMap) -> Result<()> {
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if content_type.trim().eq_ignore_ascii_case(BYTES) {
        return Ok(());
    }
    let message = format!("Send the bytes of an upload with the header `Content-Type: {BYTES}`.");
    Err(ApiError::new(ErrorCode::UnsupportedMediaType, message))
}

/// Forwards the body until it ends or breaks, the client becomes too slow, or the bytes cannot be stored. In each case,
/// the response says how far the upload is, so the client can continue.
async fn forward(cx: &Context, request: TusRequest<'_>, sender: mpsc::Sender<Bytes>) {
    let mut body = BodyReader::new(request.body, cx.app.min_rate);
    while let Some(Ok(bytes)) = body.next().await {
        metrics::media_received(ByteSource::Resumable, bytes.len());
        if sender.send(bytes).await.is_err() {
            return;
        }
    }
}

async fn discard(cx: &Context, request: TusRequest<'_>) {
    let (mut body, mut discarded) = (BodyReader::new(request.body, cx.app.min_rate), 0);
    while let Some(Ok(bytes)) = body.next().await {
        discarded += bytes.len();
        if discarded > MAX_DISCARDED {
            return;
        }
    }
}
