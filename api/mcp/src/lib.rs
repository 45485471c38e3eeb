//! The API's endpoints as tools of agents, over the Model Context Protocol (MCP): at `/mcp` with an API key, and at
//! `/mcp/oauth` with the access token of an application that the user connected (`oauth/`).
//!
//! Each HTTP request is one message, authenticated and counted like a request to the API; there are no sessions, so any
//! process can respond to any request. `tools.rs` lists the tools, and explains how to add one.
//!
//! No OAuth document exists for `/mcp`: clients that find one ignore the API key that the user configured.

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_endpoints::admission::{self, Credential};
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, ErrorCode, Result};
use crier_endpoints::outgoing::CallerHolders;
use crier_endpoints::reply;
use crier_endpoints::runner::{RequestId, RouteLabel, body};
use crier_oauth::RESOURCE_PATH;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use http_body_util::{BodyExt, Full};
use salvo::http::ResBody;
use salvo::{Depot, FlowCtrl, Request, Response, Router};
use secrecy::SecretString;
use serde_json::{Value, json};
use url::Url;

use server::{AllowedSites, CallerOfRequest, Server};
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

/// Returns the routes, relative to the root of the host.
pub fn router(app: &Arc<App>) -> Router {
    let server = Arc::new(Server::new(app.clone(), allowed(&app.public_url)));
    let routes = [(PATH, Credential::ApiKey), (RESOURCE_PATH, Credential::AccessToken)];
    let route = |(path, credential)| {
        let endpoint = Endpoint { app: app.clone(), server: server.clone(), path, credential };
        Router::with_path(str::trim_start_matches(path, '/')).goal(endpoint)
    };
    routes.into_iter().map(route).fold(Router::new(), Router::push)
}

struct Endpoint {
    app: Arc<App>,
    server: Arc<Server>,
    path: &'static str,
    credential: Credential,
}

/// Returns the hosts and the origins of the public URL. A page of another site that resolves its own name to this
/// server's address sends other ones.
fn allowed(public_url: &str) -> AllowedSites {
    let Ok(url) = Url::parse(public_url) else { return AllowedSites::default() };
    let host = url.host_str().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    let hosts = if is_local { vec!["localhost", "127.0.0.1", "[::1]"] } else { vec![host] };
    let port = url.port_or_known_default().unwrap_or_default();
    let origins = hosts.iter().map(|host| format!("{}://{host}:{port}", url.scheme())).collect();
    AllowedSites { hosts: hosts.into_iter().map(str::to_owned).collect(), origins }
}

#[salvo::async_trait]
impl salvo::Handler for Endpoint {
    async fn handle(&self, req: &mut Request, depot: &mut Depot, res: &mut Response, _: &mut FlowCtrl) {
        depot.insert_typed(RouteLabel(self.path));
        let request_id = depot.get_typed::<RequestId>().map(|id| id.0.clone()).unwrap_or_default();
        if let Err(error) = self.respond(req, res, &request_id).await {
            let error = self.of_credential(error);
            reply::write_error(&self.app, res, &error, &request_id);
            if error.code == ErrorCode::Unauthorized && self.credential == Credential::AccessToken {
                // A request without a token has no error (RFC 6750, 3.1).
                let error = admission::bearer(req.headers()).map_or("", |_| ", error=\"invalid_token\"");
                self.write_challenge(res, &format!("{}{error}", crier_oauth::challenge(&self.app)));
            }
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
        let (found, _) = admission::admit_with(self.credential, &self.app, req, res, None).await?;
        self.app.touch(&found.caller);
        req.extensions_mut().insert(CallerHolders::of(&found.caller));
        let token = admission::bearer(req.headers()).unwrap_or_default();
        let session = Session::new(found.caller, self.credential, SecretString::from(token));
        let raw = body::read(req, self.app.min_rate).await?;
        // Its values are counted before the protocol parses it, because a parsed value takes more memory.
        let message = self.app.large_bodies.run(raw.len(), || body::parse_any(&raw)).await?;
        let Some(message) = message.filter(Value::is_object) else {
            write_error(res, -32700, "The body must be a JSON object.");
            return Ok(());
        };
        if self.credential == Credential::AccessToken
            && let Some(scope) = tools::missing_scope(&message, session.caller())
            && crier_oauth::is_supported(scope)
        {
            // The client can ask the user for more. It requests exactly these scopes, so those that it has are included.
            let scopes: Vec<Scope> = session.caller().scopes.iter().chain([scope]).collect();
            reply::write_error(&self.app, res, &ApiError::insufficient_scope(scope), request_id);
            self.write_challenge(res, &crier_oauth::insufficient_scope(&self.app, &scopes));
            return Ok(());
        }
        let mut request = http::Request::new(Full::new(raw));
        *request.method_mut() = req.method().clone();
        *request.uri_mut() = req.uri().clone();
        *request.headers_mut() = req.headers().clone();
        // Responses are JSON, whatever the client prefers; rmcp insists on both types.
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        request.extensions_mut().insert(CallerOfRequest { session, request_id: request_id.to_owned() });
        let response = self.server.respond(request).await;
        // rmcp also calls a message that it cannot read an unsupported media type.
        match response.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE && has_json_type(req.headers()) {
            true => write_error(res, -32600, "The body must be a JSON-RPC message. An `id` is a string or an integer."),
            false => write(response, res).await,
        }
        Ok(())
    }

    /// Returns the error as it is for this credential.
    fn of_credential(&self, error: ApiError) -> ApiError {
        if error.code != ErrorCode::Unauthorized || self.credential == Credential::ApiKey {
            return error;
        }
        ApiError::new(ErrorCode::Unauthorized, "The access token is missing, invalid or expired. Connect again.")
    }

    fn write_challenge(&self, res: &mut Response, challenge: &str) {
        if let Ok(value) = HeaderValue::from_str(challenge) {
            res.headers_mut().insert(WWW_AUTHENTICATE, value);
        }
    }
}

fn has_json_type(headers: &HeaderMap) -> bool {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json")
}

/// Writes the response to a body that is not a message. It cannot have an id.
fn write_error(res: &mut Response, code: i32, message: &str) {
    let error = json!({ "code": code, "message": message });
    res.status_code(StatusCode::BAD_REQUEST);
    res.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    res.body(ResBody::Once(json!({ "jsonrpc": "2.0", "id": null, "error": error }).to_string().into()));
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
