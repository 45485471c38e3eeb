//! The marks of the platforms, at `/marks/<platform>.svg`: small drawings in the color of each platform. They are our
//! own drawings, not the logos of the platforms.

use std::sync::LazyLock;

use crier_domain::platform::Platform;
use crier_endpoints::page_body::PageBody;
use http::StatusCode;
use salvo::{Request, Response, Router, handler};

use crate::styles::{FOREVER, send};

/// Returns the color of the mark, on which white is readable, and the path of its white lines, in a square of 24 units.
const fn drawing(platform: Platform) -> (&'static str, &'static str) {
    match platform {
        Platform::Telegram => ("#1f6fa3", "M4 12l16-7-3 14-5-4-3 3v-5l8-6"),
        Platform::Bluesky => (
            "#0a66d8",
            "M12 11c-2-4-5-6-7-6-1 0-1 6 2 7-3 1-1 6 2 5 2-1 3-3 3-3s1 2 3 3c3 1 5-4 2-5 3-1 3-7 2-7-2 0-5 2-7 6z",
        ),
        Platform::Wordpress => ("#20658a", "M12 3a9 9 0 1 0 0 18 9 9 0 0 0 0-18zM7 9l3 7 2-6 2 6 3-7"),
        Platform::Woocommerce => ("#7f4a84", "M4 5h16v11h-7l-4 4v-4H4zM8 8.500l1.500 4 2.500-4 2.500 4 1.500-4"),
        Platform::Sandbox => ("#59636e", "M4 8l8-4 8 4v8l-8 4-8-4zM4 8l8 4 8-4M12 12v8"),
        Platform::Mastodon => ("#5b4bdb", "M6 18V9a3 3 0 0 1 6 0v4M12 9a3 3 0 0 1 6 0v9"),
        Platform::Shopify => ("#4a7518", "M6 8h12l1 12H5zM9 11V7a3 3 0 0 1 6 0v4"),
        Platform::Facebook => ("#1462d6", "M16 5h-1a3 3 0 0 0-3 3v12M8 12h7"),
        Platform::Instagram => (
            "#b02a6f",
            "M8 4h8a4 4 0 0 1 4 4v8a4 4 0 0 1-4 4H8a4 4 0 0 1-4-4V8a4 4 0 0 1 4-4z\
             M12 8.500a3.500 3.500 0 1 0 0 7 3.500 3.500 0 0 0 0-7zM16.500 7.500h.01",
        ),
        Platform::Threads => ("#30363d", "M16 12a4 4 0 1 0-8 0 4 4 0 0 0 8 0zv1a2 2 0 0 0 4 0v-1a8 8 0 1 0-4 7"),
        Platform::Twitter => ("#30363d", "M6 5l12 14M18 5L6 19"),
        Platform::Linkedin => ("#0a66c2", "M7 10v8M7 6h.01M11 18v-8M11 13.500a3.500 3.500 0 0 1 7 0V18"),
        Platform::Pinterest => ("#bd081c", "M10 20l2-10M8.500 13a4.500 4.500 0 1 1 5 2 3 3 0 0 1-2.500-1"),
        Platform::Tiktok => ("#30363d", "M13 4v11.500a3.500 3.500 0 1 1-3.500-3.500M13 4a5 5 0 0 0 5 5"),
        Platform::GoogleBusiness => (
            "#1765cc",
            "M5 10l1-6h12l1 6a2.300 2.300 0 0 1-4.700 0 2.300 2.300 0 0 1-4.600 0A2.300 2.300 0 0 1 5 10zM6 13v7h12v-7",
        ),
        Platform::Reddit => (
            "#c03a00",
            "M12 10c4 0 7 2 7 5s-3 5-7 5-7-2-7-5 3-5 7-5z\
             M12 10l1-5 3 1M9.500 14h.01M14.500 14h.01M9.500 17q2.500 1.500 5 0",
        ),
        Platform::Tumblr => ("#2c4762", "M11 4v12a3 3 0 0 0 3 3h2M7 9h9"),
        Platform::Youtube => (
            "#b3150c",
            "M6 6h12a3 3 0 0 1 3 3v6a3 3 0 0 1-3 3H6a3 3 0 0 1-3-3V9a3 3 0 0 1 3-3zM10 9.500v5l4.500-2.500z",
        ),
    }
}

/// Returns the SVG image of a mark.
pub fn svg(platform: Platform) -> String {
    let (color, path) = drawing(platform);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 24 24\"><rect width=\"24\" height=\"24\" rx=\"5\" \
         fill=\"{color}\"/><path d=\"{path}\" fill=\"none\" stroke=\"#fff\" stroke-width=\"2\" \
         stroke-linecap=\"round\" stroke-linejoin=\"round\"/></svg>"
    )
}

pub fn router() -> Router {
    Router::with_path("marks/{name}").get(mark).head(mark)
}

#[handler]
async fn mark(req: &mut Request, res: &mut Response) {
    static BODIES: LazyLock<Vec<PageBody>> =
        LazyLock::new(|| Platform::ALL.iter().map(|platform| PageBody::new(svg(*platform))).collect());
    let name = req.param::<String>("name").unwrap_or_default();
    let platform = name.strip_suffix(".svg").and_then(|key| key.parse::<Platform>().ok());
    match platform.and_then(|platform| BODIES.get(Platform::ALL.iter().position(|one| *one == platform)?)) {
        Some(body) => send(req, res, body, "image/svg+xml", FOREVER),
        None => {
            res.status_code(StatusCode::NOT_FOUND);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_platform_has_its_own_small_mark() {
        let marks: HashSet<String> = Platform::ALL.iter().map(|platform| svg(*platform)).collect();
        assert_eq!(marks.len(), Platform::ALL.len());
        for drawing in marks {
            assert!(drawing.len() < 500, "{drawing}");
        }
    }
}
