//! The API's endpoints as tools of agents, over the Model Context Protocol (MCP) at `/mcp`, with an API key.
//!
//! Each HTTP request is one message, authenticated and counted like a request to the API; there are no sessions, so any
//! process answers any request. `tools.rs` lists the tools.
//!
//! No OAuth document exists for `/mcp`: clients that find one ignore the API key that the user configured.

use std::sync::Arc;

use bytes::Bytes;
use crier_endpoints::admission;
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, Result};
use crier_endpoints::outgoing::CallerHolders;
use crier_endpoints::reply;
use crier_endpoints::runner::{RequestId, RouteLabel, body};
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL};
use http::{HeaderValue, Method};
use http_body_util::{BodyExt, Full};
use salvo::http::ResBody;
use salvo::{Depot, FlowCtrl, Request, Response, Router};
use secrecy::SecretString;
use url::Url;

use server::{CallerOfRequest, Server};
use session::Session;

mod arguments;
mod call;
mod confirmation;
mod pages;
mod schema;
mod server;
mod session;
mod tool;
pub mod tools;

pub const PATH: &str = "/mcp";

/// Returns the route, relative to the root of the host.
pub fn router(app: &Arc<App>) -> Router {
    Router::with_path(PATH.trim_start_matches('/')).goal(Endpoint::new(app))
}

struct Endpoint {
    app: Arc<App>,
    server: Server,
}

impl Endpoint {
    fn new(app: &Arc<App>) -> Self {
        let (hosts, origins) = allowed(&app.public_url);
        Self { app: app.clone(), server: Server::new(app.clone(), hosts, origins) }
    }
}

/// Returns the hosts and the origins of the public URL. A page of another site that resolves its own name to this
/// server's address sends other ones.
fn allowed(public_url: &str) -> (Vec<String>, Vec<String>) {
    let Ok(url) = Url::parse(public_url) else { return (vec![String::new()], Vec::new()) };
    let host = url.host_str().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let hosts = if is_local { vec!["localhost", "127.0.0.1", "[::1]"] } else { vec![host] };
    let port = url.port_or_known_default().unwrap_or_default();
    let origins = hosts.iter().map(|host| format!("{}://{host}:{port}", url.scheme())).collect();
    (hosts.into_iter().map(str::to_owned).collect(), origins)
}

#[salvo::async_trait]
impl salvo::Handler for Endpoint {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(PATH));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        if let Err(error) = self.respond(req, res, &request_id).await {
            reply::write_error(&self.app, res, &error, &request_id);
        }
    }
}

impl Endpoint {
    async fn respond(&self, req: &mut Request, res: &mut Response, request_id: &str) -> Result<()> {
        if *req.method() != Method::POST {
            res.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
            // Also for a client that waits for messages of the server: there are none.
            return Err(ApiError::method_not_allowed());
        }
        let (found, _) = admission::admit(&self.app, req, res, None).await?;
        self.app.touch(&found.caller);
        req.extensions_mut().insert(CallerHolders::of(&found.caller));
        let token = admission::bearer(req.headers()).unwrap_or_default();
        let session = Session::new(found.caller, SecretString::from(token));
        let message = self.receive(req).await?;
        let mut request = http::Request::new(Full::new(message));
        *request.method_mut() = req.method().clone();
        *request.uri_mut() = req.uri().clone();
        *request.headers_mut() = req.headers().clone();
        // Responses are JSON, whatever the client prefers; rmcp insists on both types.
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        request.extensions_mut().insert(CallerOfRequest { session, request_id: request_id.to_owned() });
        let response = self.server.respond(request).await;
        write(response, res).await;
        Ok(())
    }

    /// Reads the message. Its values are counted before it is parsed, because a parsed value takes more memory.
    async fn receive(&self, req: &mut Request) -> Result<Bytes> {
        let raw = body::read(req, self.app.min_rate).await?;
        self.app.large_bodies.run(raw.len(), || body::check_values(&raw)).await?;
        Ok(raw)
    }
}

async fn write(response: http::Response<server::Body>, res: &mut Response) {
    let (parts, body) = response.into_parts();
    let Ok(body) = body.collect().await;
    res.status_code(parts.status);
    res.headers_mut().extend(parts.headers);
    // Results belong to one caller.
    res.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    res.body(ResBody::Once(body.to_bytes()));
}
