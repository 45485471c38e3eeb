//! `/media/{key}`: serves the images and videos of the library to anyone who knows the URL.
//!
//! Any replica serves them from the storage, without a database query. The content of a URL never changes, so clients
//! may cache it forever. The content type depends only on the extension of the key, so a file never runs as a script.

use std::sync::Arc;

use crier_endpoints::app::App;
use crier_endpoints::file::{self, FileResponse, SentFile};
use crier_media::kind_of;
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::notice;

/// Other sites may embed the files.
const HEADERS: &[(&str, &str)] = &[("cross-origin-resource-policy", "cross-origin")];

pub fn router() -> Router {
    Router::with_path("media/{key}").get(serve).head(serve)
}

#[handler]
async fn serve(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let key = req.param::<String>("key").unwrap_or_default();
    let (Some(kind), Ok(app)) = (kind_of(&key), depot.get_typed::<Arc<App>>()) else { return missing(res) };
    let file = FileResponse {
        key,
        media_type: kind.as_str(),
        disposition: "inline".to_owned(),
        cache_control: "public, max-age=31536000, immutable",
        headers: HEADERS,
    };
    match file::send(req, app.library.storage(), &file, res).await {
        Ok(SentFile::Sent) => {}
        Ok(SentFile::Missing) => missing(res),
        Ok(SentFile::OutOfRange) => notice(res, StatusCode::RANGE_NOT_SATISFIABLE, "The range is outside the file."),
        Err(error) => {
            tracing::warn!(%error, "failed to serve a file of the library");
            let text = "The file storage is unavailable. Wait a moment, then reload the page.";
            notice(res, StatusCode::SERVICE_UNAVAILABLE, text);
            res.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
    }
}

fn missing(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This file does not exist.");
}
