//! The HTTP API.
//!
//! Thin: it authenticates, validates, writes one transaction, answers. A request passes the [`gate`] (id, span, measure),
//! salvo's router, and the [`runner`], which makes the checks common to all endpoints and hands what passes to the
//! endpoint's handler. Nothing here waits for others but connecting and refreshing an account, and the AI.
//!
//! - `routes/<resource>/<verb>.rs`: the endpoints; [`endpoint`] says how to add one
//! - `pages/`: what people see in a browser
//! - `openapi/`: the description, at `/api/public/v1/openapi.json`, with a reader at `/docs`

use std::sync::Arc;

use salvo::{Router, Service};

use connections::Connections;

mod admission;
mod answer;
mod app;
mod connections;
mod context;
mod endpoint;
mod error;
mod fields;
mod gate;
mod openapi;
mod pages;
mod pagination;
mod reply;
mod routes;
mod runner;
mod serve;

pub use app::{App, Parts};
pub use runner::Pace;
pub use serve::{serve, serve_on};

/// The whole service: endpoints, their description, and the pages.
fn service(app: Arc<App>, connections: Connections) -> Service {
    let mut api = Router::with_path(answer::PREFIX.trim_start_matches('/'));
    let endpoints = routes::all();
    api = api.push(openapi::serve::document(app.clone(), &endpoints));
    for endpoint in endpoints {
        let endpoint = Arc::new(endpoint);
        let method = salvo::routing::filters::MethodFilter::new(endpoint.method.clone());
        let runner = runner::Runner { app: app.clone(), endpoint: endpoint.clone() };
        api = api.push(Router::with_path(pattern(endpoint.path)).filter(method).goal(runner));
    }
    let router = Router::new().push(api).push(pages::router()).push(openapi::serve::reader());
    Service::new(router).hoop(gate::Gate { app, connections })
}

/// A path as salvo matches it: ids are whole numbers from 1 on, so that `/social-accounts/platforms` is no account.
fn pattern(path: &str) -> String {
    path.trim_start_matches('/').replace('}', "|[1-9][0-9]*}")
}
