//! `GET /brands/{brand}/media`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::media::AssetType;
use crier_store::Conn;
use crier_store::media::{self, MediaFilter};

use super::{MediaAsset, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::request::{Pages, Parsed, Request};
use crate::response::{Listed, Paged, Reply};

/// The maximum length of a search text, in characters.
const MAX_SEARCH_CHARS: usize = 200;

/// The images and videos to list.
#[derive(Clone, Debug, Default, Request)]
pub struct ListMedia {
    #[field(flatten)]
    pub pages: Pages,
    /// Only images or videos of this type.
    #[field(enum_value(), extension)]
    pub asset_type: Option<AssetType>,
    /// Only images and videos with this text in the file name or the alt text. Case-insensitive. Maximum:
    /// 200 characters.
    #[field(text(0..=MAX_SEARCH_CHARS), extension)]
    pub search: Option<String>,
}

pub fn endpoint() -> Endpoint<ListMedia, Paged<MediaAsset>> {
    Endpoint::get("/brands/{brand}/media", "listMedia", Scope::MediaRead)
        .tag(TAG)
        .summary("List a brand's images and videos, newest first")
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<ListMedia>>) -> Result<Reply<Listed<MediaAsset>>> {
    let request = parsed.valid()?;
    let page = request.pages.request();
    let search = request.search.as_deref().filter(|text| !text.is_empty());
    let filter = MediaFilter { asset_type: request.asset_type, search };
    let found = media::list(conn, cx.brand()?.id, &filter, page).await?;
    Ok(Listed::from_rows(page, found, |asset| MediaAsset::new(&cx.app.library, asset)).into())
}
