//! `POST /brands/{brand}/ai/images`

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use crier_domain::access::Scope;
use crier_domain::ai::{Operation, Quality, Size};
use crier_domain::media::AssetType;
use crier_media::{self as media, AssetDetails, IngestError, IngestedFile, SpoolError, Spooled};
use crier_store::{Tx, files, media as assets};
use schemars::JsonSchema;
use serde::Serialize;

use super::{CreditReservation, MAX_PROMPT_CHARS, TAG, call_provider, not_configured};
use crate::ai::ImageRequest;
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};
use crate::routes::media::{MAX_ALT_TEXT_CHARS, MediaAsset, owner, storage_full};

/// The timeout for storing the image. Together with the provider's timeout, it is shorter than the lease of the
/// `Idempotency-Key`.
const STORE_TIMEOUT: Duration = Duration::from_secs(8);

/// Options for an image.
#[derive(Clone, Copy, Debug, Default, Request)]
pub struct ImageOptions {
    #[field(enum_value(), default = Size::Auto, example = "1024x1024")]
    pub size: Option<Size>,
    /// The quality of the image. `high` costs 1000 AI credits. All other values cost 240.
    #[field(enum_value(), default = Quality::Auto, example = "low")]
    pub quality: Option<Quality>,
}

/// The image to generate.
#[derive(Clone, Debug, Request)]
#[request(name = "NewImage")]
pub struct GenerateImageRequest {
    #[field(text(1..=MAX_PROMPT_CHARS), example = "A loaf of sourdough on a wooden table, morning light")]
    pub prompt: String,
    #[field(object(), example)]
    pub options: Option<ImageOptions>,
}

/// The generated image, in the media library.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ImageResult {
    pub media: MediaAsset,
    /// The model that generated the image.
    #[schemars(extend("examples" = ["painter-1"]))]
    pub model: String,
    #[schemars(extend("examples" = [240]))]
    pub credits_used: u64,
    /// The AI credits that remain this month. Null if the plan has no limit.
    #[schemars(extend("examples" = [4760]))]
    pub credits_remaining: Option<u64>,
}

pub fn endpoint() -> Endpoint<GenerateImageRequest, One<ImageResult>> {
    Endpoint::post("/brands/{brand}/ai/images", "generateImage", Scope::AiWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Generate an image")
        .description(
            "Costs 240 AI credits, or 1000 with the quality `high`. They are refunded if there is no result. The image is \
             saved in the media library, with the prompt as its alt text.",
        )
        .status(201)
        .error_codes(&[
            ErrorCode::ValidationFailed,
            ErrorCode::PlatformNotConfigured,
            ErrorCode::InsufficientCredits,
            ErrorCode::StorageLimitExceeded,
            ErrorCode::AiProviderUnavailable,
        ])
        .reserves_then_writes(prepare)
}

/// A generated image in storage, with the reservation of its credits.
struct GeneratedImage {
    reservation: Arc<CreditReservation>,
    file: IngestedFile,
    alt_text: String,
    model: String,
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<GenerateImageRequest>>) -> Result<WriteStep<ImageResult>> {
    let GenerateImageRequest { prompt, options } = parsed.valid()?.clone();
    let ImageOptions { size, quality } = options.unwrap_or_default();
    let (size, quality) = (size.unwrap_or(Size::Auto), quality.unwrap_or(Quality::Auto));
    let request = ImageRequest { prompt, size, quality };
    let image_model = cx.app.ai.image_model().ok_or_else(|| not_configured("CRIER_AI_IMAGE_MODEL"))?;
    check_storage_limit(cx).await?;
    let _slot = cx.app.image_slots.enter(cx.caller.workspace_id).ok_or_else(too_many_requests)?;
    let reservation = CreditReservation::begin(cx, Operation::Images, request.quality.credits()).await?;
    let result = call_provider(cx, Operation::Images, "prompt", image_model.generate_image(&request)).await;
    let bytes = reservation.or_refund(result).await?;
    let stored = store_image(cx, bytes).await;
    let ingested = reservation.or_refund(stored).await?;
    let reservation = Arc::new(reservation);
    let alt_text = request.prompt.chars().take(MAX_ALT_TEXT_CHARS).collect();
    let image = GeneratedImage {
        reservation: reservation.clone(),
        file: ingested.clone(),
        alt_text,
        model: image_model.model.to_owned(),
    };
    let finish = WriteStep::new(image, |cx, tx, image| Box::pin(async move { write(cx, tx, &image).await }));
    Ok(finish.or_undo(move |cx| {
        let (reservation, ingested) = (reservation.clone(), ingested.clone());
        Box::pin(async move {
            cx.app.library.abandon(&cx.app.store, &ingested).await;
            reservation.refund().await;
        })
    }))
}

fn too_many_requests() -> ApiError {
    let message = "Too many images are being generated, in total or in this workspace. Retry in a few seconds.";
    ApiError::new(ErrorCode::ServiceUnavailable, message).retry_after(5)
}

/// Fails if the plan's storage is used up, before the provider is called.
async fn check_storage_limit(cx: &Context) -> Result<()> {
    let Some(cap) = cx.plan.storage_bytes() else { return Ok(()) };
    let used = files::usage(&mut cx.app.store.read().await?, cx.caller.workspace_id).await?.total();
    if u64::try_from(used).is_ok_and(|used| used >= cap) { Err(storage_full(cx.plan.storage_mib)) } else { Ok(()) }
}

/// Stores the image. Bytes that are not a valid image count as a provider error.
async fn store_image(cx: &Context, bytes: Bytes) -> Result<IngestedFile> {
    let work = async {
        let spooled = spool_image(cx, bytes).await.map_err(|e| ApiError::storage(e.to_string()))?;
        let ingested = cx.app.library.ingest(&cx.app.store, &owner(cx)?, &spooled).await;
        ingested.map_err(|error| match error {
            IngestError::Rejected(why) => ApiError::ai_unavailable(format!("its image was rejected: {why}")),
            IngestError::Full => storage_full(cx.plan.storage_mib),
            IngestError::Store(error) => error.into(),
            IngestError::Storage(error) => ApiError::storage(error.to_string()),
            IngestError::Machine(why) => ApiError::storage(why),
        })
    };
    let timed_out = |_| ApiError::storage("timed out storing an image");
    tokio::time::timeout(STORE_TIMEOUT, work).await.unwrap_or_else(|elapsed| Err(timed_out(elapsed)))
}

/// Spools the image, so that a large one does not stay in memory while `ingest` waits.
async fn spool_image(cx: &Context, bytes: Bytes) -> std::result::Result<Spooled, SpoolError> {
    let mut spool = cx.app.library.spools().open(cx.caller.workspace_id, bytes.len() as u64).await?;
    spool.write(&bytes).await?;
    drop(bytes);
    Ok(spool.finish().await?)
}

async fn write(cx: &Context, tx: &mut Tx, image: &GeneratedImage) -> Result<Reply<ImageResult>> {
    let brand_id = cx.brand()?.id;
    let credits_remaining = image.reservation.end(cx, tx).await?;
    let name = format!("ai-{}.{}", cx.now.format("%Y%m%d-%H%M%S"), image.file.kind.extension());
    let described = AssetDetails {
        asset_type: AssetType::Image,
        filename: &name,
        alt_text: Some(&image.alt_text),
        source_url: None,
    };
    let Some(id) = media::create_asset(tx, brand_id, &image.file, &described).await? else {
        return Err(ApiError::storage("a file was deleted before its asset was created"));
    };
    let asset = assets::find(tx, brand_id, id).await?.ok_or_else(|| ApiError::bug("a new asset is missing"))?;
    let result = ImageResult {
        media: MediaAsset::new(&cx.app.library, asset),
        model: image.model.clone(),
        credits_used: image.reservation.request.credits,
        credits_remaining,
    };
    Ok(Reply::at(&format!("/brands/{brand_id}/media/{id}"), result))
}
