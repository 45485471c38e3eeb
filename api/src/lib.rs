//! The HTTP API.
//!
//! A thin layer: it authenticates, validates, writes one transaction and responds. A request passes the [`middleware`]
//! (id, span, metrics), salvo's router, and the [`runner`], which makes the checks common to all endpoints and then
//! calls the endpoint's handler. Nothing here waits for external services, except for connecting and refreshing an
//! account, DNS lookups of new URLs, and the AI.
//!
//! - `routes/<resource>/<verb>.rs`: the endpoints; [`endpoint`] explains how to add one
//! - `pages/`: HTML pages for browsers
//! - `openapi/`: the OpenAPI document, at `/api/public/v1/openapi.json`; `pages/docs` shows it at `/docs`

use std::sync::{Arc, Once};

use connections::Connections;
use http::Method;
use regex::Regex;
use salvo::routing::filters::{MethodFilter, PathFilter};
use salvo::{Router, Service};

mod admission;
pub mod ai;
mod app;
mod bio;
mod connections;
mod context;
mod endpoint;
mod error;
mod fields;
mod file;
pub mod limits;
mod middleware;
mod openapi;
mod outgoing;
mod page_body;
mod pages;
mod pagination;
mod reply;
mod request;
mod response;
mod routes;
mod runner;
mod serve;

pub use app::{App, AppDeps};
pub use pages::console::paths as console_paths;
pub use runner::body_reader::MinRate;
pub use serve::{Shutdown, serve, serve_on};

/// The prefix of every path of the API.
pub const PREFIX: &str = "/api/public/v1";

/// Builds the service: endpoints, OpenAPI document, and pages.
fn service(app: Arc<App>, connections: Connections) -> Service {
    let mut api = Router::with_path(PREFIX.trim_start_matches('/'));
    api = api.push(openapi::serve::document(app.clone()));
    for runner in runner::Runner::all(&app) {
        let (path, method) = (pattern(runner.spec().path), runner.spec().method.clone());
        if method == Method::GET {
            api = api.push(Router::with_path(&path).head(runner.clone()));
        }
        api = api.push(Router::with_path(path).filter(MethodFilter::new(method)).goal(runner.clone()));
    }
    let router = Router::new().push(api).push(pages::router(&app));
    Service::new(router).hoop(middleware::RequestMiddleware { app, connections })
}

/// Converts a path, or a part of one, to salvo's syntax. Ids match only positive integers, so that
/// `/social-accounts/platforms` does not match an account.
fn pattern(path: &str) -> String {
    static REGISTER_ID: Once = Once::new();
    // Registered under a name, because salvo would compile an inline pattern again for each of the several hundred ids
    // in paths.
    REGISTER_ID.call_once(|| {
        let id = Regex::new("^[1-9][0-9]*$").expect("the pattern of ids compiles");
        PathFilter::register_wisp_regex("id", id);
    });
    path.trim_start_matches('/').replace('}', ":id}")
}
