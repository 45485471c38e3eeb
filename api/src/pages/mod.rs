//! HTML pages for browsers: no API key, no JSON, no scripts.
//!
//! **To add one:** a file here, its template in `api/templates/`, and a line in [`router`]. Templates escape
//! automatically; [`html`] sets a strict content security policy.

use askama::Template;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use salvo::writing::Text;
use salvo::{Response, Router};

pub mod bio;
mod connect;
mod fetch;
mod media;
mod report;
mod sandbox;

/// Allows only our own styles and images, and forms to this host.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri \
     'none'; frame-ancestors 'none'";

/// The routes of all pages, at the root of the host.
pub fn router() -> Router {
    let pages =
        [bio::router(), connect::router(), fetch::router(), media::router(), report::router(), sandbox::router()];
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
