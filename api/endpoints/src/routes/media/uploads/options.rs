//! `OPTIONS /brands/{brand}/media/uploads` and `OPTIONS /brands/{brand}/media/uploads/{upload}`: what the server
//! supports. They need no API key, and are not in the OpenAPI document, whose operations all need one.

use std::sync::Arc;

use http::StatusCode;
use salvo::{Depot, FlowCtrl, Request, Response};

use crate::admission;
use crate::app::App;
use crate::runner::RouteLabel;
use crate::tus::{EXTENSIONS, TUS_EXTENSION, TUS_MAX_SIZE, TusResponse, write_version};

/// The paths of these requests.
pub const PATHS: [&str; 2] = [super::PATH, super::UPLOAD_PATH];

/// The handler.
#[derive(Clone, Debug)]
pub struct UploadOptions {
    app: Arc<App>,
    path: &'static str,
}

impl UploadOptions {
    pub fn new(app: Arc<App>, path: &'static str) -> Self {
        Self { app, path }
    }
}

#[salvo::async_trait]
impl salvo::Handler for UploadOptions {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.path));
        admission::count_unauthenticated(&self.app, req, res).await;
        write_version(res);
        TusResponse::new(StatusCode::NO_CONTENT)
            .header(TUS_EXTENSION, EXTENSIONS)
            .header(TUS_MAX_SIZE, &self.app.library.max_video_bytes().to_string())
            .write(res);
    }
}
