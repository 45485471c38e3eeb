//! The styles, the scripts and the marks of the console. Their URLs contain a hash, so browsers may cache them forever.

use std::sync::LazyLock;

use crier_base::hexadecimal;
use crier_domain::platform::Platform;
use crier_endpoints::page_body::PageBody;
use salvo::{Request, Response, Router, handler};

use super::marks;
use crate::styles::{FOREVER, send};

const STYLES: &str = include_str!("../../templates/console/console.css");
/// The styles of videos, which follow [`STYLES`] in the same response.
const VIDEO_STYLES: &str = include_str!("../../templates/console/video.css");
const SCRIPT: &str = include_str!("../../templates/console/console.js");
/// The scripts of the pages with an upload.
const TRANSFER_SCRIPT: &str = include_str!("../../templates/console/transfer.js");
const UPLOAD_SCRIPT: &str = include_str!("../../templates/console/upload.js");
/// The script of the composer that chooses the cover of a video.
const COVER_SCRIPT: &str = include_str!("../../templates/console/cover.js");
/// The script of the queue.
const QUEUE_SCRIPT: &str = include_str!("../../templates/console/queue.js");

/// Returns a hash of the styles, the scripts and the marks.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let marks: String = Platform::ALL.iter().map(|platform| marks::svg(*platform)).collect();
        let scripts = [SCRIPT, TRANSFER_SCRIPT, UPLOAD_SCRIPT, COVER_SCRIPT, QUEUE_SCRIPT].concat();
        hexadecimal::sha256([STYLES, VIDEO_STYLES, scripts.as_str(), marks.as_str()].concat(), 6)
    });
    &VERSION
}

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("console.css").get(styles).head(styles))
        .push(Router::with_path("console.js").get(script).head(script))
        .push(Router::with_path("transfer.js").get(transfer_script).head(transfer_script))
        .push(Router::with_path("upload.js").get(upload_script).head(upload_script))
        .push(Router::with_path("cover.js").get(cover_script).head(cover_script))
        .push(Router::with_path("queue.js").get(queue_script).head(queue_script))
        .push(marks::router())
}

#[handler]
async fn styles(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new([STYLES, VIDEO_STYLES].concat()));
    send(req, res, &BODY, "text/css; charset=utf-8", FOREVER);
}

#[handler]
async fn script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[handler]
async fn transfer_script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(TRANSFER_SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[handler]
async fn upload_script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(UPLOAD_SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[handler]
async fn cover_script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(COVER_SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[handler]
async fn queue_script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(QUEUE_SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_styles_and_the_scripts_stay_small() {
        assert!(STYLES.len() < 30_000, "{}", STYLES.len());
        assert!(VIDEO_STYLES.len() < 3_000, "{}", VIDEO_STYLES.len());
        assert!(SCRIPT.len() < 16_000, "{}", SCRIPT.len());
        assert!(TRANSFER_SCRIPT.len() < 8_000, "{}", TRANSFER_SCRIPT.len());
        assert!(COVER_SCRIPT.len() < 2_000, "{}", COVER_SCRIPT.len());
        assert!(QUEUE_SCRIPT.len() < 3_200, "{}", QUEUE_SCRIPT.len());
        assert!(UPLOAD_SCRIPT.len() < 8_000, "{}", UPLOAD_SCRIPT.len());
    }
}
