//! The OAuth 2.1 authorization server for agents, which are clients of the MCP server at `{public_url}/mcp/oauth`.
//!
//! All clients are public: they have no secret, and prove with PKCE that a code is theirs. Browser clients are not
//! supported: no response has CORS headers. The public URL has no path (`CRIER_PUBLIC_URL`), so the documents of RFC
//! 9728 and RFC 8414 have one path each: the well-known prefix with the path of the resource behind it. The documents
//! at the root, and those for `/mcp`, do not exist, because clients ignore a configured API key once they find one.

use std::sync::Arc;

use crier_domain::access::{AgentPreset, Scope};
use crier_endpoints::app::App;
use salvo::Router;

pub mod authorize;
mod client;
mod error;
mod metadata;
mod parameters;
mod redirect_uri;
mod register;
mod response;
mod revoke;
mod token;

/// The path of the MCP server that accepts access tokens. Its URL is also the issuer.
pub const RESOURCE_PATH: &str = "/mcp/oauth";
/// The path of the page on which a user allows an application.
pub const AUTHORIZE_PATH: &str = "/mcp/oauth/authorize";
const TOKEN_PATH: &str = "/mcp/oauth/token";
const REGISTER_PATH: &str = "/mcp/oauth/register";
const REVOKE_PATH: &str = "/mcp/oauth/revoke";
const RESOURCE_METADATA_PATH: &str = "/.well-known/oauth-protected-resource/mcp/oauth";
const SERVER_METADATA_PATH: &str = "/.well-known/oauth-authorization-server/mcp/oauth";

/// Returns the routes, relative to the root of the host. Clients with an issuer that has a path first request the
/// document of RFC 8414, so the paths of OpenID Connect Discovery do not exist.
pub fn router(app: &Arc<App>) -> Router {
    let route = |path: &str| Router::with_path(path.trim_start_matches('/'));
    let resource = metadata::Document::of_resource(app);
    let server = metadata::Document::of_server(app);
    Router::new()
        .push(route(RESOURCE_METADATA_PATH).get(resource.clone()).head(resource))
        .push(route(SERVER_METADATA_PATH).get(server.clone()).head(server))
        .push(route(REGISTER_PATH).post(register::handle))
        .push(route(TOKEN_PATH).post(token::handle))
        .push(route(REVOKE_PATH).post(revoke::handle))
}

/// Returns the URL of the MCP server that accepts access tokens: the resource, and the issuer.
pub fn resource(app: &App) -> String {
    format!("{}{RESOURCE_PATH}", app.public_url)
}

/// Returns the `WWW-Authenticate` value for a request without a valid access token.
pub fn challenge(app: &App) -> String {
    format!("Bearer resource_metadata=\"{}{RESOURCE_METADATA_PATH}\"", app.public_url)
}

/// Returns the `WWW-Authenticate` value for a request whose access token lacks scopes. `scopes`: those that it needs.
pub fn insufficient_scope(app: &App, scopes: &[Scope]) -> String {
    let scopes: Vec<&str> = scopes.iter().map(|scope| scope.as_str()).collect();
    format!("{}, error=\"insufficient_scope\", scope=\"{}\"", challenge(app), scopes.join(" "))
}

/// Returns whether applications can get a scope: whether a user can choose an access that has it.
pub fn is_supported(scope: Scope) -> bool {
    AgentPreset::all_scopes().has(scope)
}
