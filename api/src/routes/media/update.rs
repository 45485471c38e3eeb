//! `PUT /brands/{brand}/media/{media}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::media::AssetType;
use crier_media as media;
use crier_store::{Tx, media as assets};
use schemars::JsonSchema;
use serde_json::json;

use super::{MAX_ALT_TEXT_CHARS, MediaAsset, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape};
use crate::error::{ErrorCode, Result};
use crate::fields::{Fields, ParsedBody, PatchField};
use crate::openapi::schema::Word;
use crate::response::ApiResponse;

/// What may change of a picture; what is absent stays.
#[derive(Clone, Debug, JsonSchema)]
pub struct MediaChange {
    /// What the picture shows, for those who do not see it; null empties it. Posts that are still to go out take the
    /// new one along.
    #[schemars(length(max = MAX_ALT_TEXT_CHARS))]
    pub alt_text: PatchField<String>,
    /// As the picture is called in the library.
    #[schemars(length(min = 1, max = 255))]
    pub filename: PatchField<String>,
    #[schemars(with = "PatchField<Word<AssetType>>")]
    pub asset_type: PatchField<AssetType>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::put("/brands/{brand}/media/{media}", "updateMedia", Scope::MediaWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Change what is said of a picture")
        .description("The picture itself never changes, nor does its address.")
        .extension()
        .body::<MediaChange>(json!({ "alt_text": "Fresh bread on a shelf" }))
        .response::<MediaAsset>(200, ResponseShape::One)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(|cx| cx.parse(read), update)
}

fn read(f: &Fields<'_>) -> Option<MediaChange> {
    Some(MediaChange {
        alt_text: f.text("alt_text", 0..=MAX_ALT_TEXT_CHARS),
        filename: f.text("filename", 1..=255),
        asset_type: f.enum_value("asset_type"),
    })
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<ParsedBody<Option<MediaChange>>>) -> Result<ApiResponse> {
    assets::lock(tx, cx.brand()?.id, cx.id("media")?).await?.ok_or_else(show::missing)?;
    let mut asset = show::find(cx, tx).await?;
    let change = parsed.valid()?.clone();
    asset.alt_text = change.alt_text.map(Some).apply_to(asset.alt_text, None).filter(|text| !text.is_empty());
    if let Some(name) = change.filename.value() {
        asset.filename = media::filename(Some(&name), asset.mime_type);
    }
    asset.asset_type = change.asset_type.value().unwrap_or(asset.asset_type);
    asset.updated_at = tx.now;
    assets::update(tx, &asset).await?;
    ApiResponse::ok(MediaAsset::new(&cx.app.library, asset))
}
