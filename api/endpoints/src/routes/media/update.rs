//! `PUT /brands/{brand}/media/{media}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::content_plan::Destination;
use crier_domain::media::{AssetType, MediaType};
use crier_media as media;
use crier_store::{Tx, bio_pages, media as assets, post_media, recurring_posts};

use super::{MAX_ALT_TEXT_CHARS, MediaAsset, TAG, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The changes to an image or a video. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct MediaChange {
    /// A description for people who cannot see the image or video. Null clears it. Posts that are not published yet use
    /// the new description.
    #[field(text(0..=MAX_ALT_TEXT_CHARS), example = "Fresh bread on a shelf")]
    pub alt_text: PatchField<String>,
    /// The name of the file in the media library.
    #[field(text(1..=255))]
    pub filename: PatchField<String>,
    /// The purpose of an image. The type of a video is always `video`.
    #[field(enum_value())]
    pub asset_type: PatchField<AssetType>,
}

pub fn endpoint() -> Endpoint<MediaChange, One<MediaAsset>> {
    Endpoint::put("/brands/{brand}/media/{media}", "updateMedia", Scope::MediaWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Update an image or a video")
        .description(
            "The file itself and its URL never change. Contributors cannot update a file that is used by a post that is \
             pending approval, scheduled, being published, failed or partially published, by a recurring post whose \
             posts need no approval, or by a link-in-bio page.",
        )
        .extension()
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(update)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<MediaChange>>) -> Result<Reply<MediaAsset>> {
    assets::lock(tx, cx.brand()?.id, cx.id("media")?).await?.ok_or_else(show::missing)?;
    if !cx.role()?.can_publish() && needs_no_approval(cx, tx).await? {
        return Err(ApiError::for_publishers());
    }
    let mut asset = show::find(cx, tx).await?;
    let change = parsed.valid()?.clone();
    asset.alt_text = change.alt_text.map(Some).apply_to(asset.alt_text, None).filter(|text| !text.is_empty());
    if let Some(name) = change.filename.value() {
        asset.filename = media::filename(Some(&name), asset.mime_type);
    }
    if let Some(asset_type) = change.asset_type.value() {
        check_type(asset_type, asset.mime_type)?;
        asset.asset_type = asset_type;
    }
    asset.updated_at = tx.now;
    assets::update(tx, &asset).await?;
    Ok(Reply::from(MediaAsset::new(&cx.app.library, asset)))
}

/// Returns whether a new alt text of the file in the path would become public without an approval: with a post that has
/// been submitted, scheduled or approved, even if it failed and is retried, with a recurring post, or immediately on a
/// link-in-bio page.
async fn needs_no_approval(cx: &Context, tx: &mut Tx) -> Result<bool> {
    let media_id = cx.id("media")?;
    let is_of_post = post_media::in_use(tx, media_id).await? || post_media::can_be_retried(tx, media_id).await?;
    if is_of_post || bio_pages::is_avatar(tx, media_id).await? {
        return Ok(true);
    }
    let rules = recurring_posts::list(tx, cx.brand()?.id).await?;
    Ok(rules.iter().any(|rule| rule.destination == Destination::Calendar && rule.has_media(media_id)))
}

/// Fails if the type is that of a video and the file is an image, or the other way round.
fn check_type(asset_type: AssetType, kind: MediaType) -> Result<()> {
    match (asset_type == AssetType::Video, kind.video().is_some()) {
        (true, false) => Err(ApiError::field("asset_type", "The file is an image. Use `image`, `icon` or `logo`.")),
        (false, true) => Err(ApiError::field("asset_type", "The file is a video. Use `video`, or omit the field.")),
        _ => Ok(()),
    }
}
