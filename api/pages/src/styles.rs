//! The styles and icons that pages share, and `/robots.txt`.

use std::sync::LazyLock;

use crier_base::hexadecimal;
use crier_endpoints::page_body::PageBody;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use salvo::{Request, Response, Router, handler};

const STYLES: &str = include_str!("../templates/page.css");
const ICON: &str = include_str!("../templates/favicon.svg");
/// For browsers that request `/favicon.ico` regardless of the page's icon.
const OLD_ICON: &[u8] = include_bytes!("../templates/favicon.ico");
/// Search engines may index only link-in-bio pages and their images.
const ROBOTS: &str = "User-agent: *\nDisallow: /api/\nDisallow: /connect/\nDisallow: /media/fetch/\nDisallow: /reports/\nDisallow: /sandbox/\n";

const DAY: &str = "public, max-age=86400";
/// The cache control of files whose URL contains a version.
pub const FOREVER: &str = "public, max-age=31536000, immutable";

/// Returns a hash of the styles, for their URL.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| hexadecimal::sha256(STYLES, 6));
    &VERSION
}

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("page.css").get(styles).head(styles))
        .push(Router::with_path("favicon.svg").get(icon).head(icon))
        .push(Router::with_path("favicon.ico").get(old_icon).head(old_icon))
        .push(Router::with_path("robots.txt").get(robots).head(robots))
}

/// Sends a file that is compiled into the program.
pub fn send(req: &Request, res: &mut Response, body: &PageBody, media_type: &'static str, cache: &'static str) {
    let headers = res.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    body.send(req.headers(), res);
}

#[handler]
async fn styles(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(STYLES));
    send(req, res, &BODY, "text/css; charset=utf-8", FOREVER);
}

#[handler]
async fn icon(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(ICON));
    send(req, res, &BODY, "image/svg+xml", DAY);
}

#[handler]
async fn old_icon(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(OLD_ICON));
    send(req, res, &BODY, "image/vnd.microsoft.icon", DAY);
}

#[handler]
async fn robots(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(ROBOTS));
    send(req, res, &BODY, "text/plain; charset=utf-8", DAY);
}
