//! `/media/fetch/{token}`: images of posts, for platforms that download them. The sealed token contains the image, the
//! platform and the expiry (`crier_media::rendition`). The image is converted to a format that the platform accepts.

use std::sync::Arc;

use crier_base::secrets::link::LinkError;
use crier_endpoints::app::App;
use crier_media::images::FittedImage;
use crier_media::rendition::{FetchLink, RenditionError};
use http::header::{
    CACHE_CONTROL, CONTENT_LENGTH, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Method, StatusCode};
use salvo::{Depot, Request, Response, Router, handler};

use super::notice;

pub fn router() -> Router {
    Router::with_path("media/fetch/{token}").get(serve).head(serve)
}

#[handler]
async fn serve(req: &mut Request, depot: &mut Depot, res: &mut Response) {
    let token = req.param::<String>("token").unwrap_or_default();
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return missing(res) };
    let link = match FetchLink::open(app.store.cipher(), &token, app.store.now()) {
        Ok(link) => link,
        Err(LinkError::Invalid) => return missing(res),
        Err(LinkError::Expired) => return notice(res, StatusCode::GONE, "This URL is no longer valid."),
    };
    match app.library.fetch(&link).await {
        // The memory budget is released before the bytes are sent, so that a slow client does not block others.
        Ok((image, _share)) => send(image, req.method() == Method::HEAD, res),
        Err(RenditionError::Missing) => missing(res),
        Err(RenditionError::Rejected(_)) => {
            notice(res, StatusCode::NOT_FOUND, "The image cannot be converted for this platform.");
        }
        Err(error @ (RenditionError::Storage(_) | RenditionError::Failed)) => {
            tracing::warn!(%error, "failed to serve an image to a platform");
            notice(
                res,
                StatusCode::SERVICE_UNAVAILABLE,
                "The image is unavailable. Wait a moment, then reload the page.",
            );
            res.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
        }
    }
}

fn send(image: FittedImage, head: bool, res: &mut Response) {
    res.status_code(StatusCode::OK);
    for (name, value) in [
        (CONTENT_TYPE, image.kind.as_str()),
        (CACHE_CONTROL, "private, no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; sandbox"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        res.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    res.headers_mut().insert(CONTENT_LENGTH, image.bytes.len().into());
    if !head {
        res.body(salvo::http::ResBody::Once(image.bytes));
    }
}

fn missing(res: &mut Response) {
    notice(res, StatusCode::NOT_FOUND, "This image does not exist.");
}
