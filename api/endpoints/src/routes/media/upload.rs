//! `POST /brands/{brand}/media`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::media::AssetType;
use crier_media::{self as media, AssetDetails, IngestedFile};
use crier_store::{Tx, media as assets};

use super::{MAX_ALT_TEXT_CHARS, MediaAsset, TAG, ingest_error, not_a_video, owner, video_without_type};
use crate::context::{Context, UploadedFile};
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::formats::FilePart;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The image or video to upload.
#[derive(Clone, Debug, Request)]
#[request(name = "NewMedia")]
pub struct UploadMediaRequest {
    /// A JPEG, PNG, GIF or WebP image of at most 25 MiB and 100 megapixels, or an MP4, MOV or WebM video of at most
    /// 1,024 MiB. The operator can set other limits.
    #[field(file(), example = "(binary data)")]
    pub file: FilePart,
    /// Required for a video: `video`. Send it before `file`. Otherwise, a video that exceeds the maximum size of an
    /// image is rejected.
    #[field(enum_value(), default = AssetType::Image, example = "image")]
    pub asset_type: AssetType,
    /// A description of the image or video for people who cannot see it.
    #[field(text(0..=MAX_ALT_TEXT_CHARS), extension, example = "Fresh bread on a shelf")]
    pub alt_text: Option<String>,
}

pub fn endpoint() -> Endpoint<UploadMediaRequest, One<MediaAsset>> {
    Endpoint::post("/brands/{brand}/media", "uploadMedia", Scope::MediaWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Upload an image or a video")
        .description(
            "Crier detects the type from the file's content, never from its name. It removes metadata (EXIF, including the \
             location where a photo was taken) and rotates an image upright. A video is stored unchanged.",
        )
        .body_is_form()
        .status(201)
        .error_codes(&[ErrorCode::StorageLimitExceeded])
        .uploads_then_writes(upload)
}

/// The maximum number of parts that an error names, and the maximum length of each name.
const MAX_NAMED_PARTS: usize = 10;
const MAX_NAME_CHARS: usize = 40;

/// Lists the parts that the form has in place of the file.
fn describe_other_parts(cx: &Context) -> String {
    let files = cx.other_parts.files.iter().map(|name| (name, " (a file)"));
    let parts = files.chain(cx.other_parts.texts.iter().map(|name| (name, ""))).take(MAX_NAMED_PARTS);
    let named = parts.map(|(name, kind)| format!("`{}`{kind}", name.chars().take(MAX_NAME_CHARS).collect::<String>()));
    match named.collect::<Vec<_>>().join(", ").as_str() {
        "" => "It has no parts. Send the image or video as `file`.".to_owned(),
        named => format!("It has {named}. Send the image or video as `file`."),
    }
}

/// A stored file and the fields of its asset.
struct Upload {
    file: IngestedFile,
    asset_type: AssetType,
    filename: String,
    alt_text: Option<String>,
}

async fn upload(cx: &Context, parsed: Arc<Parsed<UploadMediaRequest>>) -> Result<WriteStep<MediaAsset>> {
    let problems = parsed.problems();
    if cx.file.is_none() {
        problems.add("file", format!("The form has no part with this name. {}", describe_other_parts(cx)));
    }
    problems.into_result()?;
    let UploadMediaRequest { file: FilePart, asset_type, alt_text } = parsed.valid()?.clone();
    let file = cx.file.as_ref().ok_or_else(|| ApiError::bug("a form without a file passed"))?;
    let ingested = ingest(cx, asset_type, file).await?;
    let filename = media::filename(file.name.as_deref(), ingested.kind);
    let alt_text = alt_text.filter(|text| !text.is_empty());
    let upload = Upload { file: ingested.clone(), asset_type, filename, alt_text };
    let finish = WriteStep::new(upload, |cx, tx, upload| Box::pin(insert_asset(cx, tx, upload)));
    Ok(finish.or_undo(move |cx| {
        let ingested = ingested.clone();
        Box::pin(async move { cx.app.library.abandon(&cx.app.store, &ingested).await })
    }))
}

/// Stores the file, if it is what the request says it is.
async fn ingest(cx: &Context, asset_type: AssetType, file: &UploadedFile) -> Result<IngestedFile> {
    let (library, store, owner) = (&cx.app.library, &cx.app.store, owner(cx)?);
    let ingested = match (asset_type == AssetType::Video, file.is_video) {
        (true, true) => library.ingest_video(store, &owner, &file.bytes).await,
        (false, true) => return Err(video_without_type()),
        (true, false) if file.bytes.size() > 0 => return Err(not_a_video()),
        // An empty file is rejected as empty.
        (_, false) => library.ingest(store, &owner, &file.bytes).await,
    };
    ingested.map_err(|error| ingest_error(cx, error))
}

async fn insert_asset(cx: &Context, tx: &mut Tx, upload: Arc<Upload>) -> Result<Reply<MediaAsset>> {
    let brand_id = cx.brand()?.id;
    let described = AssetDetails {
        asset_type: upload.asset_type,
        filename: &upload.filename,
        alt_text: upload.alt_text.as_deref(),
        source_url: None,
    };
    let Some(id) = media::create_asset(tx, brand_id, &upload.file, &described).await? else {
        return Err(ApiError::storage("a file was deleted before its asset was created"));
    };
    let asset = assets::find(tx, brand_id, id).await?.ok_or_else(|| ApiError::bug("a new asset is missing"))?;
    Ok(Reply::at(&format!("/brands/{brand_id}/media/{id}"), MediaAsset::new(&cx.app.library, asset)))
}
