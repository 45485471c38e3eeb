//! `POST /brands/{brand}/media/uploads`

use crier_domain::access::Scope;
use crier_domain::media::AssetType;
use crier_store::media_uploads::{self, Creation, NewUpload};
use http::StatusCode;
use http::header::LOCATION;

use super::metadata::Metadata;
use super::{EXPIRES, PATH, RESUMABLE, too_large, too_many_open, with_expiry};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, HeaderSpec};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Problems, ReadContext};
use crate::request::{Parsed, Request};
use crate::response::Nothing;
use crate::routes::media::{MAX_ALT_TEXT_CHARS, TAG, storage_full};
use crate::tus::{TusRequest, TusResponse, UPLOAD_CONCAT, UPLOAD_DEFER_LENGTH, UPLOAD_LENGTH, invalid};

/// The maximum length of a file name in the metadata, in characters. A longer name than one of the library is cut.
const MAX_FILENAME_CHARS: usize = 1_000;

/// The metadata of the file to upload.
#[derive(Clone, Debug, Request)]
#[request(name = "NewUpload")]
struct UploadMetadata {
    #[field(text(0..=MAX_FILENAME_CHARS))]
    filename: Option<String>,
    #[field(enum_value(), default = AssetType::Video)]
    asset_type: AssetType,
    #[field(text(0..=MAX_ALT_TEXT_CHARS))]
    alt_text: Option<String>,
}

const LENGTH: HeaderSpec = HeaderSpec {
    name: "Upload-Length",
    description: "The size of the file, in bytes.",
    is_required: true,
    example: "104857600",
};
const METADATA: HeaderSpec = HeaderSpec {
    name: "Upload-Metadata",
    description: "`filename`, `asset_type` (`video`) and `alt_text`, each followed by a space and its value in base64, \
        separated by commas. At most 4 KiB. Other keys are ignored.",
    is_required: false,
    example: "filename YnJlYWQubXA0,asset_type dmlkZW8=",
};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::post(PATH, "createMediaUpload", Scope::MediaWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Create a resumable upload of a video")
        .description(
            "Follows the tus 1.0 protocol, for which there are clients in many languages. `Location` is the path of \
             the upload. Send the bytes there with `PATCH`. The size of the file is reserved in the workspace's storage \
             until the upload is finished, deleted or expired. It expires after 24 hours. A workspace can have 20 \
             unfinished uploads.",
        )
        .extension()
        .status(201)
        .request_headers(&[RESUMABLE, LENGTH, METADATA])
        .response_headers(&[RESUMABLE, EXPIRES])
        .error_codes(&[
            ErrorCode::InvalidUpload,
            ErrorCode::StorageLimitExceeded,
            ErrorCode::UploadVersionUnsupported,
            ErrorCode::PayloadTooLarge,
            ErrorCode::ValidationFailed,
        ])
        .speaks_tus(create)
}

async fn create(cx: &Context, request: TusRequest<'_>) -> Result<TusResponse> {
    let size_bytes = size(cx, &request)?;
    let metadata = Metadata::of(request.headers)?;
    let UploadMetadata { filename, asset_type, alt_text } = parse(cx, &metadata)?;
    let new = NewUpload {
        workspace_id: cx.caller.workspace_id,
        brand_id: cx.brand()?.id,
        size_bytes,
        asset_type,
        filename: filename.as_deref().unwrap_or_default(),
        alt_text: alt_text.as_deref().filter(|text| !text.is_empty()),
        metadata: &metadata.raw,
    };
    let mut tx = cx.app.store.begin().await?;
    let problem = match media_uploads::create(&mut tx, &new, cx.plan.storage_bytes()).await? {
        Creation::Created(upload) => {
            tx.commit().await?;
            let location = format!("{}/{}", request.path.trim_end_matches('/'), upload.id);
            return Ok(with_expiry(TusResponse::new(StatusCode::CREATED), &upload).header(LOCATION, &location));
        }
        Creation::Full => storage_full(cx.plan.storage_mib),
        Creation::TooMany => too_many_open(),
    };
    tx.rollback().await?;
    Err(problem)
}

/// Returns the size of the file.
fn size(cx: &Context, request: &TusRequest<'_>) -> Result<i64> {
    if request.headers.contains_key(UPLOAD_DEFER_LENGTH) {
        return Err(invalid(
            "The size of the file must be known. Send `Upload-Length` in place of `Upload-Defer-Length`.",
        ));
    }
    if request.headers.contains_key(UPLOAD_CONCAT) {
        return Err(invalid(
            "This server does not concatenate uploads. Send the file as one upload, without `Upload-Concat`.",
        ));
    }
    if request.content_length().is_some_and(|length| length > 0) {
        return Err(invalid("Create the upload without a body. Then send the bytes with `PATCH`."));
    }
    let size = request.required_number(&UPLOAD_LENGTH)?;
    let max = cx.app.library.max_video_bytes();
    match u64::try_from(size) {
        Ok(0) => Err(invalid("`Upload-Length` must not be 0: an empty file is not a video.")),
        Ok(bytes) if bytes <= max => Ok(size),
        _ => Err(too_large(max)),
    }
}

/// Reads the metadata by the rules of the form with which images are uploaded.
fn parse(cx: &Context, metadata: &Metadata) -> Result<UploadMetadata> {
    let context = ReadContext::new(cx.zone(), cx.now).texts();
    let parsed = Parsed::<UploadMetadata>::read(Problems::default(), &metadata.fields, context);
    let valid = parsed.valid()?.clone();
    match valid.asset_type {
        AssetType::Video => Ok(valid),
        AssetType::Image | AssetType::Icon | AssetType::Logo => {
            Err(ApiError::field("asset_type", "Must be `video`. Upload an image as a form to `POST …/media`."))
        }
    }
}
