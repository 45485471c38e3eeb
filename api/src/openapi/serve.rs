//! Serves the OpenAPI document and Swagger UI. Neither needs an API key; requests for the document count against the
//! rate limit.

use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use salvo::http::ResBody;
use salvo::oapi::swagger_ui::SwaggerUi;
use salvo::{Depot, FlowCtrl, Request, Response, Router};

use crate::admission;
use crate::app::App;
use crate::response::PREFIX;
use crate::routes;

/// Swagger UI has an inline script and an inline style, and calls this host only.
const POLICY: &str = "default-src 'none'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; \
     img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The route of `/api/public/v1/openapi.json`, relative to the prefix.
pub fn document(app: Arc<App>) -> Router {
    Router::with_path("openapi.json").get(Document { app })
}

/// The route of `/docs`.
pub fn reader() -> Router {
    SwaggerUi::new(format!("{PREFIX}/openapi.json")).title("Crier API").into_router("docs").hoop(Policy)
}

/// The document, made when it is first requested.
static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(super::document(&routes::all()).to_string()));

struct Document {
    app: Arc<App>,
}

#[salvo::async_trait]
impl salvo::Handler for Document {
    async fn handle(&self, req: &mut Request, _depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        admission::count_unauthenticated(&self.app, req, res).await;
        let headers = res.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        res.body(ResBody::Once(DOCUMENT.clone()));
    }
}

struct Policy;

#[salvo::async_trait]
impl salvo::Handler for Policy {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, ctrl: &mut FlowCtrl) {
        ctrl.call_next(req, depot, res).await;
        res.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
        res.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
}
