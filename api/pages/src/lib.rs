//! HTML pages for browsers, which need no API key.
//!
//! **To add one:** a file here, its template in `api/pages/templates/`, and a line in [`router`]. Templates escape
//! automatically; [`html`] sets a strict content security policy. Pages that anyone can open have a rate limit per IP
//! address.

use std::sync::Arc;

use askama::Template;
use crier_endpoints::PREFIX;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::limits::Decision;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HOST, ORIGIN, REFERRER_POLICY, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use salvo::writing::Text;
use salvo::{Depot, FlowCtrl, Request, Response, Router, handler};

pub mod bio;
mod connect;
pub mod console;
mod docs;
mod fetch;
mod links;
mod media;
mod numbers;
mod report;
mod sandbox;
pub mod styles;

/// Allows only styles, images and form targets on this host.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self' data:; form-action 'self'; base-uri \
     'none'; frame-ancestors 'none'";

/// Returns the routes of all pages, relative to the root of the host.
pub fn router(app: &Arc<App>) -> Router {
    let public =
        [bio::router(), connect::router(), docs::router(), media::router(), report::router(), sandbox::router()];
    let public = public.into_iter().fold(Router::new().hoop(limit_visitor), Router::push);
    [public, console::router(app), fetch::router(), styles::router()].into_iter().fold(Router::new(), Router::push)
}

/// Rejects a request if its IP address exceeds the rate limit for public pages and files.
#[handler]
async fn limit_visitor(req: &mut Request, depot: &mut Depot, res: &mut Response, ctrl: &mut FlowCtrl) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return };
    let Some(decision) = admission::count_public_page_request(app, req).filter(|decision| !decision.allowed) else {
        return;
    };
    too_many_requests(res, &decision);
    ctrl.skip_rest();
}

/// Returns whether a page of another site sent a form. A request without headers about its site is accepted, because
/// all browsers send one.
pub fn is_from_another_site(app: &App, headers: &HeaderMap) -> bool {
    is_from_own_page(app, headers) == Some(false)
}

/// Returns whether a page of this host sent a form. `None` if the request has no header that says so. Browsers send
/// `Sec-Fetch-Site`; older browsers, and all browsers on sites without TLS, send only `Origin`.
pub fn is_from_own_page(app: &App, headers: &HeaderMap) -> Option<bool> {
    if let Some(site) = headers.get("sec-fetch-site") {
        return Some(site == "same-origin");
    }
    let origin = headers.get(ORIGIN)?;
    let origin = origin.to_str().unwrap_or_default();
    let is_host = |host: &str| origin.split_once("://").is_some_and(|(_, of)| of.eq_ignore_ascii_case(host));
    // A proxy may have replaced the host.
    let is_public = app.public_url.strip_prefix(origin).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    Some(is_public || headers.get(HOST).and_then(|host| host.to_str().ok()).is_some_and(is_host))
}

/// Returns whether browsers reach this server by https.
fn is_https(app: &App) -> bool {
    app.public_url.starts_with("https://")
}

/// Renders a page.
fn html(res: &mut Response, status: StatusCode, page: &impl Template) {
    match page.render() {
        Ok(text) => {
            res.status_code(status);
            res.render(Text::Html(text));
        }
        Err(error) => {
            tracing::error!(%error, "failed to render a page");
            res.status_code(StatusCode::INTERNAL_SERVER_ERROR);
            res.render(Text::Plain("Something went wrong on our side. If the problem persists, tell the operator."));
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

/// Renders the page for an IP address that has exceeded its rate limit.
fn too_many_requests(res: &mut Response, decision: &Decision) {
    let message = "Too many requests from your address. Wait a moment, then reload the page.";
    notice(res, StatusCode::TOO_MANY_REQUESTS, message);
    res.headers_mut().insert(RETRY_AFTER, HeaderValue::from(decision.retry_after));
}

/// Renders the page for an error of the database.
fn unavailable(res: &mut Response) {
    notice(res, StatusCode::SERVICE_UNAVAILABLE, "The database does not respond. Wait a moment, then reload the page.");
}

/// Renders the page for an unknown URL if a browser requests one outside the API. Returns whether it did.
pub fn not_found(req: &Request, res: &mut Response) -> bool {
    let accepts = req.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let is_page =
        *req.method() == Method::GET && !req.uri().path().starts_with(PREFIX) && accepts.contains("text/html");
    if is_page {
        notice(res, StatusCode::NOT_FOUND, "This page does not exist. Check the URL.");
    }
    is_page
}

const fn title(status: StatusCode) -> &'static str {
    match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::GONE => "No longer available",
        StatusCode::TOO_MANY_REQUESTS => "Too many requests",
        StatusCode::SERVICE_UNAVAILABLE => "Temporarily unavailable",
        _ => "Something went wrong",
    }
}

fn headers(res: &mut Response) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // With `no-referrer`, browsers would send `Origin: null` with forms of this host.
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}
