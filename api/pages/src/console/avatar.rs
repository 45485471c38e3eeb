//! `/brands/{brand}/accounts/{account}/avatar`: the avatar of an account. On pages, it covers the mark of the platform
//! or the initials, which are visible until it is loaded.

use crier_base::hexadecimal;
use crier_domain::account::SocialAccount;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::file::is_known;
use crier_store::accounts;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use salvo::Response;
use salvo::http::ResBody;
use salvo::writing::Text;

use super::route::PageRoute;
use super::visit::{PageReply, Visit};

pub fn routes() -> Vec<PageRoute> {
    vec![PageRoute::get("/brands/{brand}/accounts/{account}/avatar", show)]
}

/// Returns the URL of an account's avatar. `None` if the account has no avatar.
pub fn avatar_url(brand: i64, account: &SocialAccount) -> Option<String> {
    account.avatar_url.as_ref().map(|_| format!("/brands/{brand}/accounts/{}/avatar", account.id))
}

async fn show(visit: &Visit) -> Result<PageReply> {
    let id = visit.id("account").unwrap_or_default();
    let mut conn = visit.app.store.read().await?;
    let found = accounts::find(&mut conn, visit.brand()?.0.id, id).await?;
    drop(conn);
    let account = found.ok_or_else(|| ApiError::not_found("social account"))?;
    let image = visit.app.avatars.find(&visit.app.store, &visit.app.library, &account).await?;
    let mut res = Response::new();
    res.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // The composer requests its images again with every change of the text, unless they are cached.
    let cache = if image.is_some() { "private, max-age=3600" } else { "private, max-age=60" };
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    let Some(image) = image else {
        res.status_code(StatusCode::NOT_FOUND);
        res.render(Text::Plain("This account has no avatar."));
        return Ok(PageReply::File(Box::new(res)));
    };
    let tag = format!("\"{}\"", hexadecimal::sha256(&image, 12));
    if is_known(&visit.headers, &tag) {
        res.status_code(StatusCode::NOT_MODIFIED);
    } else {
        res.status_code(StatusCode::OK);
        res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("image/jpeg"));
        res.body(ResBody::Once(image));
    }
    if let Ok(tag) = HeaderValue::try_from(tag) {
        res.headers_mut().insert(ETAG, tag);
    }
    Ok(PageReply::File(Box::new(res)))
}
