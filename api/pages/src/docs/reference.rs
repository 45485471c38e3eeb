//! `/docs`: the API reference, with Swagger UI.

use std::io::{Cursor, Read as _};
use std::sync::{Arc, LazyLock, OnceLock};

use askama::Template;
use crier_base::hexadecimal;
use crier_endpoints::PREFIX;
use crier_endpoints::app::App;
use crier_endpoints::page_body::PageBody;
use http::header::CONTENT_SECURITY_POLICY;
use http::{HeaderValue, StatusCode};
use salvo::{Depot, FlowCtrl, Request, Response, Router, handler};
use utoipa_swagger_ui_vendored::SWAGGER_UI_VENDORED;
use zip::ZipArchive;

use crate::{html, notice, styles};

/// Swagger UI sets inline styles, and sends requests only to this host.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLES: &str = "text/css; charset=utf-8";

/// A file that the page loads: its name, its media type, and the function that returns its content.
type File = (&'static str, &'static str, fn() -> Vec<u8>);

const FILES: &[File] = &[
    ("reference.js", SCRIPT, || include_bytes!("../../templates/reference.js").to_vec()),
    ("reference.css", STYLES, || include_bytes!("../../templates/reference.css").to_vec()),
    ("swagger-ui-bundle.js", SCRIPT, || swagger_ui("swagger-ui-bundle.js")),
    ("swagger-ui.css", STYLES, || swagger_ui("swagger-ui.css")),
];

pub fn router() -> Router {
    let assets = FILES.iter().fold(Router::with_path("assets"), |router, (name, media_type, read)| {
        let asset = Asset { media_type, read: *read, body: Arc::default() };
        router.push(Router::with_path(*name).get(asset.clone()).head(asset))
    });
    Router::new().get(show).head(show).push(assets)
}

/// Returns a file of Swagger UI, which is compiled into the program. The archive has one directory, whose name contains
/// the version.
fn swagger_ui(name: &str) -> Vec<u8> {
    let unpack = || {
        let mut archive = ZipArchive::new(Cursor::new(SWAGGER_UI_VENDORED)).ok()?;
        let end = format!("/dist/{name}");
        let path = archive.file_names().flatten().find(|path| path.ends_with(&end))?.into_owned();
        let mut bytes = Vec::new();
        archive.by_name(&path).ok()?.read_to_end(&mut bytes).ok()?;
        Some(bytes)
    };
    unpack().unwrap_or_default()
}

/// A file of the page, compressed when it is first requested.
#[derive(Clone)]
struct Asset {
    media_type: &'static str,
    read: fn() -> Vec<u8>,
    body: Arc<OnceLock<PageBody>>,
}

#[salvo::async_trait]
impl salvo::Handler for Asset {
    async fn handle(&self, req: &mut Request, _depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        if self.body.get().is_none() {
            // Compressing Swagger UI takes about 0.2 s.
            let asset = self.clone();
            let compressed = tokio::task::spawn_blocking(move || {
                asset.body.get_or_init(|| PageBody::new((asset.read)()));
            });
            if let Err(error) = compressed.await {
                tracing::error!(%error, "failed to compress a file of the API reference");
            }
        }
        match self.body.get() {
            Some(body) => styles::send(req, res, body, self.media_type, styles::FOREVER),
            None => notice(res, StatusCode::INTERNAL_SERVER_ERROR, "This file cannot be sent."),
        }
    }
}

#[derive(Template)]
#[template(path = "reference.html")]
struct Reference {
    /// The version of Crier.
    program: &'static str,
    /// The base URL of the API.
    api: String,
    /// The path of the OpenAPI document.
    document: String,
    /// A hash of the files.
    version: &'static str,
}

#[handler]
async fn show(depot: &mut Depot, res: &mut Response) {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let all: Vec<u8> = FILES.iter().flat_map(|(_, _, read)| read()).collect();
        hexadecimal::sha256(&all, 6)
    });
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return };
    let page = Reference {
        program: env!("CARGO_PKG_VERSION"),
        api: format!("{}{PREFIX}", app.public_url),
        document: format!("{PREFIX}/openapi.json"),
        version: &VERSION,
    };
    html(res, StatusCode::OK, &page);
    res.headers_mut().insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
}
