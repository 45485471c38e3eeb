//! `DELETE /brands/{brand}/media/{media}`

use crier_domain::access::Scope;
use crier_store::{Tx, bio_pages, files, media, post_media};

use super::{TAG, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/media/{media}", "deleteMedia", Scope::MediaWrite)
        .tag(TAG)
        .summary("Delete an image or a video")
        .description(
            "The storage is freed immediately, and the file's URL stops working a few minutes later, unless another image \
             or video of the brand has the same content. Published posts do not change. A draft that uses the file needs \
             a different one before it can be published.",
        )
        .extension()
        .error_codes(&[ErrorCode::MediaInUse])
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let (brand_id, media_id) = (cx.brand()?.id, cx.id("media")?);
    // Lock the row before checking the posts: a request that adds the image to a post holds the same lock.
    let file_id = media::lock(tx, brand_id, media_id).await?.ok_or_else(show::missing)?;
    if post_media::in_use(tx, media_id).await? {
        return Err(ApiError::new(
            ErrorCode::MediaInUse,
            "A post that is pending approval, scheduled or being published uses this file. Remove it from the post or \
             delete the post first.",
        ));
    }
    if bio_pages::is_avatar(tx, media_id).await? {
        let message = "A link-in-bio page uses this image as its avatar. Change or remove the page's avatar first.";
        return Err(ApiError::new(ErrorCode::MediaInUse, message));
    }
    media::delete(tx, brand_id, media_id).await?;
    files::mark_unused_for_deletion(tx, file_id).await?;
    Ok(Reply::from(()))
}
