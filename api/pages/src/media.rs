//! `/media/{key}`: serves the images and videos of the library to anyone who knows the URL.
//!
//! Any replica serves them from the storage, without a database query. The content of a URL never changes, so clients
//! may cache it forever. The content type depends only on the extension of the key, so a file never runs as a script.
//!
//! `/media/index-first/{key}`: a video with its index before its frames, for platforms that accept no other.

use std::sync::Arc;

use crier_domain::media::MediaType;
use crier_endpoints::app::App;
use crier_endpoints::file::{self, FileResponse, SentFile};
use crier_media::{StorageError, kind_of};
use http::header::RETRY_AFTER;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::notice;

/// Other sites may embed the files.
const HEADERS: &[(&str, &str)] = &[("cross-origin-resource-policy", "cross-origin")];

pub fn router() -> Router {
    Router::new()
        .push(Router::with_path("media/{key}").get(serve).head(serve))
        .push(Router::with_path("media/index-first/{key}").get(serve_index_first).head(serve_index_first))
}

#[handler]
async fn serve(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let key = req.param::<String>("key").unwrap_or_default();
    let (Some(kind), Ok(app)) = (kind_of(&key), depot.get_typed::<Arc<App>>()) else { return missing(res) };
    let sent = file::send(req, app.library.storage(), &response(key, kind), res).await;
    report(sent, res);
}

#[handler]
async fn serve_index_first(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let key = req.param::<String>("key").unwrap_or_default();
    let kind = kind_of(&key).filter(|kind| kind.video().is_some());
    let (Some(kind), Ok(app)) = (kind, depot.get_typed::<Arc<App>>()) else { return missing(res) };
    let sent = file::send_index_first(req, &app.library, &response(key, kind), res).await;
    report(sent, res);
}

fn response(key: String, kind: MediaType) -> FileResponse {
    FileResponse {
        key,
        media_type: kind.as_str(),
        disposition: "inline".to_owned(),
        cache_control: "public, max-age=31536000, immutable",
        headers: HEADERS,
    }
}

/// Writes the response to a request whose file was not sent.
fn report(sent: Result<SentFile, StorageError>, res: &mut Response) {
    match sent {
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
