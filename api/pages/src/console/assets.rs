//! The styles, the script and the marks of the console. Their URLs contain a hash, so browsers may cache them forever.

use std::sync::LazyLock;

use crier_base::hexadecimal;
use crier_domain::platform::Platform;
use crier_endpoints::page_body::PageBody;
use salvo::{Request, Response, Router, handler};

use super::marks;
use crate::styles::{FOREVER, send};

const STYLES: &str = include_str!("../../templates/console/console.css");
const SCRIPT: &str = include_str!("../../templates/console/console.js");

/// Returns a hash of the styles, the script and the marks.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let marks: String = Platform::ALL.iter().map(|platform| marks::svg(*platform)).collect();
        hexadecimal::sha256([STYLES, SCRIPT, marks.as_str()].concat(), 6)
    });
    &VERSION
}

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("console.css").get(styles).head(styles))
        .push(Router::with_path("console.js").get(script).head(script))
        .push(marks::router())
}

#[handler]
async fn styles(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(STYLES));
    send(req, res, &BODY, "text/css; charset=utf-8", FOREVER);
}

#[handler]
async fn script(req: &mut Request, res: &mut Response) {
    static BODY: LazyLock<PageBody> = LazyLock::new(|| PageBody::new(SCRIPT));
    send(req, res, &BODY, "text/javascript; charset=utf-8", FOREVER);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_styles_and_the_script_stay_small() {
        assert!(STYLES.len() < 30_000, "{}", STYLES.len());
        assert!(SCRIPT.len() < 15_000, "{}", SCRIPT.len());
    }
}
