//! `/`: what this server is, whether it works, and what to do next.

use std::sync::Arc;

use askama::Template;
use crier_common::domain::platform::Platform;
use http::StatusCode;
use salvo::{Depot, Response, Router, handler};

use super::html;
use crate::app::App;
use crate::response::PREFIX;

pub fn router() -> Router {
    Router::new().get(show).head(show)
}

#[derive(Template)]
#[template(path = "home.html")]
struct Home {
    version: &'static str,
    is_healthy: bool,
    has_sandbox: bool,
    /// The API's base, as a URL and as a path.
    api: String,
    prefix: &'static str,
}

#[handler]
async fn show(depot: &mut Depot, res: &mut Response) {
    let Ok(app) = depot.get_typed::<Arc<App>>() else { return };
    let is_healthy = app.store.db().ping().await.is_ok();
    let page = Home {
        version: env!("CARGO_PKG_VERSION"),
        is_healthy,
        has_sandbox: app.platforms.get(Platform::Sandbox).is_some(),
        api: format!("{}{PREFIX}", app.public_url),
        prefix: PREFIX,
    };
    html(res, if is_healthy { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, &page);
}
