//! `GET /brands/{brand}/media/{media}`

use crier_domain::access::Scope;
use crier_domain::media::Asset;
use crier_store::{Conn, media};

use super::{MediaAsset, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<MediaAsset>> {
    Endpoint::get("/brands/{brand}/media/{media}", "getMedia", Scope::MediaRead)
        .tag(TAG)
        .summary("Get an image or a video")
        .extension()
        .reads(show)
}

/// Returns the asset in the path; 404 if it does not exist.
pub async fn find(cx: &Context, conn: &mut Conn) -> Result<Asset> {
    let found = media::find(conn, cx.brand()?.id, cx.id("media")?).await?;
    found.ok_or_else(missing)
}

pub fn missing() -> ApiError {
    ApiError::not_found("media asset")
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<MediaAsset>> {
    Ok(Reply::from(MediaAsset::new(&cx.app.library, find(cx, conn).await?)))
}
