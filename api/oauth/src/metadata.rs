//! The documents by which clients find this server: RFC 9728 and RFC 8414.

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_endpoints::app::App;
use http::StatusCode;
use salvo::{Depot, FlowCtrl, Request, Response};
use serde_json::{Value, json};

use crate::{AUTHORIZE_PATH, REGISTER_PATH, REVOKE_PATH, TOKEN_PATH, is_supported, resource, response};

/// A document, which never changes while the process runs.
#[derive(Clone)]
pub struct Document(Arc<Value>);

impl Document {
    /// Returns the metadata of the MCP server (RFC 9728).
    pub fn of_resource(app: &App) -> Self {
        let resource = resource(app);
        Self(Arc::new(json!({
            "resource": resource,
            "authorization_servers": [resource],
            "scopes_supported": scopes(),
            "bearer_methods_supported": ["header"],
            "resource_name": "Crier",
        })))
    }

    /// Returns the metadata of the authorization server (RFC 8414).
    pub fn of_server(app: &App) -> Self {
        let at = |path: &str| format!("{}{path}", app.public_url);
        Self(Arc::new(json!({
            "issuer": resource(app),
            "authorization_endpoint": at(AUTHORIZE_PATH),
            "token_endpoint": at(TOKEN_PATH),
            "registration_endpoint": at(REGISTER_PATH),
            "revocation_endpoint": at(REVOKE_PATH),
            "scopes_supported": scopes(),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
            "revocation_endpoint_auth_methods_supported": ["none"],
            "authorization_response_iss_parameter_supported": true,
            "client_id_metadata_document_supported": true,
        })))
    }
}

fn scopes() -> Vec<&'static str> {
    Scope::ALL.iter().filter(|scope| is_supported(**scope)).map(|scope| scope.as_str()).collect()
}

#[salvo::async_trait]
impl salvo::Handler for Document {
    async fn handle(&self, _req: &mut Request, _depot: &mut Depot, res: &mut Response, _ctrl: &mut FlowCtrl) {
        response::json(res, StatusCode::OK, &self.0, "no-cache");
    }
}
