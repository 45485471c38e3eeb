//! HTML pages for browsers: no API key, no JSON, no scripts.
//!
//! **To add one:** a file here, its template in `api/templates/`, and a line in [`router`]. Templates escape
//! automatically; [`html`] sets a strict content security policy.

use askama::Template;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, IF_NONE_MATCH, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, StatusCode};
use salvo::writing::Text;
use salvo::{Response, Router};

pub mod bio;
mod connect;
mod fetch;
mod media;
mod sandbox;

/// Allows only our own styles and images, and forms to this host.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri \
     'none'; frame-ancestors 'none'";

/// The routes of all pages, at the root of the host.
pub fn router() -> Router {
    let pages = [bio::router(), connect::router(), fetch::router(), media::router(), sandbox::router()];
    pages.into_iter().fold(Router::new(), Router::push)
}

/// Renders a page.
fn html(res: &mut Response, status: StatusCode, page: &impl Template) {
    match page.render() {
        Ok(text) => {
            res.status_code(status);
            res.render(Text::Html(text));
        }
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            plain(res, StatusCode::INTERNAL_SERVER_ERROR, "Something went wrong on our side.");
        }
    }
    headers(res);
}

/// Renders an error as one sentence of plain text.
fn plain(res: &mut Response, status: StatusCode, text: &'static str) {
    res.status_code(status);
    res.render(Text::Plain(text));
    headers(res);
}

fn headers(res: &mut Response) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// Returns whether `If-None-Match` contains our tag, by weak comparison (RFC 9110, 13.1.2).
fn is_known(headers: &HeaderMap, tag: impl AsRef<[u8]>) -> bool {
    let ours = opaque(tag.as_ref());
    let known = headers.get_all(IF_NONE_MATCH).iter().flat_map(|known| known.as_bytes().split(|byte| *byte == b','));
    known.map(<[u8]>::trim_ascii).any(|known| known == b"*" || opaque(known) == ours)
}

fn opaque(tag: &[u8]) -> &[u8] {
    tag.strip_prefix(b"W/").unwrap_or(tag)
}
