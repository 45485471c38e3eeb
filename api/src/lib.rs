//! The HTTP API as a server: connections, middleware, and the router of the endpoints (`endpoints/`), the pages
//! (`pages/`), the tools of agents (`mcp/`), their authorization (`oauth/`) and the OpenAPI document.
//!
//! A request passes the [`middleware`] (id, span, metrics), salvo's router, and the runner of its endpoint, which makes
//! the checks common to all endpoints and then calls the endpoint's handler.
//!
//! **To add an endpoint, a page or a tool:** see `endpoints/`, `pages/` and `mcp/`. The router here lists only these parts.

use std::sync::Arc;

use connections::Connections;
use crier_endpoints::routes::media::uploads::options::{self, UploadOptions};
use crier_endpoints::runner::Runner;
use crier_endpoints::{PREFIX, pattern};
use http::Method;
use salvo::routing::filters::MethodFilter;
use salvo::{Router, Service};

mod connections;
mod document;
mod middleware;
mod serve;

pub use crier_endpoints::runner::body_reader::MinRate;
pub use crier_endpoints::{App, AppDeps, ai, limits};
pub use crier_pages::console::paths as console_paths;
pub use serve::{Shutdown, serve, serve_on};

/// Builds the service: endpoints, OpenAPI document, and pages.
fn service(app: Arc<App>, connections: Connections) -> Service {
    let mut api = Router::with_path(PREFIX.trim_start_matches('/'));
    api = api.push(document::document(app.clone()));
    for runner in Runner::all(&app) {
        let (path, method) = (pattern(runner.spec().path), runner.spec().method.clone());
        if method == Method::GET {
            api = api.push(Router::with_path(&path).head(runner.clone()));
        }
        api = api.push(Router::with_path(path).filter(MethodFilter::new(method)).goal(runner.clone()));
    }
    for path in options::PATHS {
        let options = UploadOptions::new(app.clone(), path);
        api = api.push(Router::with_path(pattern(path)).filter(MethodFilter::new(Method::OPTIONS)).goal(options));
    }
    let mut router = Router::new().push(api).push(crier_pages::router(&app));
    if app.has_mcp {
        router = router.push(crier_mcp::router(&app)).push(crier_oauth::router(&app));
    }
    Service::new(router).hoop(middleware::RequestMiddleware { app, connections })
}
