//! HTML pages for browsers: no API key, no JSON, no scripts.
//!
//! **To add one:** a file here, its template in `api/templates/`, and a line in [`router`]. Templates escape
//! automatically; [`html`] sets a strict content security policy.

use std::sync::Arc;

use askama::Template;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, StatusCode};
use salvo::writing::Text;
use salvo::{Response, Router};

use crate::app::App;
use crate::runner::Runner;

pub mod bio;
pub mod body;
mod connect;
pub mod console;
mod docs;
mod fetch;
mod links;
mod media;
mod report;
mod sandbox;
pub mod styles;

/// Allows only our own styles and images, and forms to this host.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri \
     'none'; frame-ancestors 'none'";

/// The routes of all pages, at the root of the host.
pub fn router(app: &Arc<App>, endpoints: Vec<Runner>) -> Router {
    let pages = [
        bio::router(),
        connect::router(),
        console::router(app, endpoints),
        docs::router(),
        fetch::router(),
        media::router(),
        report::router(),
        sandbox::router(),
        styles::router(),
    ];
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
            res.status_code(StatusCode::INTERNAL_SERVER_ERROR);
            res.render(Text::Plain("Something went wrong on our side."));
        }
    }
    headers(res);
}

#[derive(Template)]
#[template(path = "notice.html")]
struct Notice {
    title: &'static str,
    message: &'static str,
}

/// Renders an error as a page.
fn notice(res: &mut Response, status: StatusCode, message: &'static str) {
    html(res, status, &Notice { title: title(status), message });
}

const fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::GONE => "No longer there",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "Not available right now",
        _ => "This did not work",
    }
}

fn headers(res: &mut Response) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}
