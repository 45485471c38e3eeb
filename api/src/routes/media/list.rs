//! `GET /brands/{brand}/media`

use crier_domain::access::Scope;
use crier_domain::media::AssetType;
use crier_store::media::{self, MediaFilter};
use crier_store::{Conn, Page};
use unicode_normalization::UnicodeNormalization;

use super::{MediaAsset, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::pagination;
use crate::response::{Listed, Paged, Reply};

/// The maximum length of a search text, in characters.
const MAX_SEARCH_CHARS: usize = 200;

pub fn endpoint() -> Endpoint<QUERY, Paged<MediaAsset>> {
    Endpoint::get("/brands/{brand}/media", "listMedia", Scope::MediaRead)
        .tag(TAG)
        .summary("List a brand's images, newest first")
        .pages()
        .extension_query::<TextEnum<AssetType>>("asset_type", "Only images of this type.")
        .extension_query::<String>(
            "search",
            "Only images with this text in the file name or the alt text. Case-insensitive. At most 200 characters.",
        )
        .error_codes(&[ErrorCode::ValidationFailed])
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Listed<MediaAsset>>> {
    let mut problems = cx.name_problems();
    let page = pagination::requested_page(&cx.query, &mut problems);
    let asset_type = pagination::enum_param::<AssetType>(&cx.query, "asset_type", &mut problems);
    let search: Option<String> = cx.query.get("search").map(|text| text.nfc().collect());
    if let Some(problem) = search.as_deref().and_then(check_search) {
        problems.insert("search".to_owned(), vec![problem]);
    }
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    let filter = MediaFilter { asset_type, search: search.as_deref().filter(|text| !text.is_empty()) };
    let found = media::list(conn, cx.brand()?.id, &filter, page).await?;
    let rows = found.rows.into_iter().map(|asset| MediaAsset::new(&cx.app.library, asset)).collect();
    pagination::respond(cx, page, Page { rows, total: found.total })
}

fn check_search(text: &str) -> Option<String> {
    if text.contains('\0') {
        return Some("Must not contain the NUL character.".to_owned());
    }
    let count = text.chars().count();
    (count > MAX_SEARCH_CHARS).then(|| format!("Must have at most {MAX_SEARCH_CHARS} characters; this has {count}."))
}
