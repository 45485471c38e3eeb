//! Checks whether a personal data server may speak for an account. A server that a user typed could claim any account.
//! It is trusted only if the account's DID document names it, and a handle only if it resolves to the account.
//!
//! The operator's default server is trusted. The DID document need not name it, because Bluesky's entryway serves the
//! accounts of many servers.
//!
//! Sources: AT Protocol specification, "DID" (`did:plc`, `did:web`, the service `#atproto_pds`) and "Handle" (both ways
//! must agree); W3C did:web method.

use http::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::xrpc::{Server, Session};
use super::{Bluesky, resolve};
use crate::call::{Effect, PlatformClient, connect_error, sanitize_message};
use crate::{CallError, ConnectError};

/// The maximum length of a domain name.
const MAX_DOMAIN: usize = 253;

/// An account's DID document.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct DidDocument {
    id: String,
    #[serde(default)]
    also_known_as: Vec<String>,
    #[serde(default)]
    service: Vec<Service>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Service {
    #[serde(default)]
    id: String,
    #[serde(default)]
    service_endpoint: Value,
}

impl DidDocument {
    /// Returns the URL of the account's personal data server.
    pub(super) fn server(&self) -> Option<&str> {
        let is_pds = |id: &str| id.strip_prefix(self.id.as_str()).unwrap_or(id) == "#atproto_pds";
        self.service.iter().find(|service| is_pds(&service.id)).and_then(|service| service.service_endpoint.as_str())
    }

    fn names(&self, handle: &str) -> bool {
        self.also_known_as
            .iter()
            .filter_map(|name| name.strip_prefix("at://"))
            .any(|name| name.eq_ignore_ascii_case(handle))
    }
}

/// The location of a DID document.
#[derive(Debug, PartialEq, Eq)]
enum DocumentLocation {
    /// The path in the directory.
    Directory(String),
    Web(String),
}

fn document_location(did: &str) -> Option<DocumentLocation> {
    if let Some(key) = did.strip_prefix("did:plc:") {
        let is_key = (1..=64).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        return is_key.then(|| DocumentLocation::Directory(format!("/{did}")));
    }
    // The colon before a port is encoded; a path is not allowed in the AT Protocol.
    let host = did.strip_prefix("did:web:")?.replace("%3A", ":");
    let (name, port) = host.split_once(':').unwrap_or((&host, "443"));
    let is_host = is_domain(name) && port.parse::<u16>().is_ok();
    is_host.then(|| DocumentLocation::Web(format!("https://{host}/.well-known/did.json")))
}

fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len()) && label.bytes().all(is_known) && !label.starts_with('-')
    };
    text.len() <= MAX_DOMAIN && text.contains('.') && text.split('.').all(is_label)
}

/// Returns whether two URLs belong to the same server.
fn is_same_server(a: &str, b: &str) -> bool {
    let (Ok(a), Ok(b)) = (Url::parse(a), Url::parse(b)) else { return false };
    a.origin() == b.origin() && a.path().trim_end_matches('/') == b.path().trim_end_matches('/')
}

async fn read<T: DeserializeOwned>(client: &PlatformClient, url: &str) -> Result<Option<T>, CallError> {
    let response = client.send(Effect::Repeatable, client.request(Method::GET, url)).await?;
    match response.status {
        StatusCode::NOT_FOUND | StatusCode::GONE => Ok(None),
        status if status.is_success() => client.read(Effect::Repeatable, &response).map(Some),
        _ => Err(client.classify_status(Effect::Repeatable, &response, None, None)),
    }
}

impl Bluesky {
    /// Checks that the server may speak for the account of the session. Returns the account's handle, or `None` if the
    /// handle is not verified.
    pub(super) async fn check_identity(
        &self,
        server: &Server,
        session: &Session,
    ) -> Result<Option<String>, ConnectError> {
        let handle = session.handle.clone();
        if server.base == self.default_service {
            return Ok(Some(handle));
        }
        let document = self.document(&session.did).await?;
        let named = document.server().unwrap_or_default();
        if document.id != session.did || !is_same_server(named, &server.base) {
            let named = sanitize_message(named, &[]).ok_or_else(no_server)?;
            return Err(ConnectError::Rejected(format!(
                "This Bluesky account is on the server {named}. Use the URL of that server."
            )));
        }
        let is_proved = document.names(&handle) && self.resolves_to(&handle, &session.did).await;
        Ok(is_proved.then_some(handle))
    }

    async fn document(&self, did: &str) -> Result<DidDocument, ConnectError> {
        let found = match document_location(did).ok_or_else(no_server)? {
            DocumentLocation::Directory(path) => read(&self.trusted, &format!("{}{path}", self.directory)).await,
            DocumentLocation::Web(url) => read(&self.guarded, &url).await,
        };
        found.map_err(|error| connect_error(error, Some("service")))?.ok_or_else(no_server)
    }

    /// Returns whether a handle resolves to the account. The request goes to the operator's server, which reads DNS and
    /// the handle's domain, and not to the server that the user typed.
    async fn resolves_to(&self, handle: &str, did: &str) -> bool {
        let trusted = Server { caller: self.trusted.clone(), base: self.default_service.clone() };
        is_domain(handle) && resolve(&trusted, handle).await.is_some_and(|found| found == did)
    }
}

/// Returns the error for an account whose DID document does not exist, or names no server.
fn no_server() -> ConnectError {
    ConnectError::Rejected("The DID document of this Bluesky account does not name its server.".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_at_the_directory_or_at_the_accounts_host() {
        let web = |url: &str| Some(DocumentLocation::Web(url.to_owned()));
        assert_eq!(
            document_location("did:plc:abc234"),
            Some(DocumentLocation::Directory("/did:plc:abc234".to_owned()))
        );
        assert_eq!(document_location("did:web:pds.example"), web("https://pds.example/.well-known/did.json"));
        assert_eq!(
            document_location("did:web:pds.example%3A8443"),
            web("https://pds.example:8443/.well-known/did.json")
        );
        for wrong in [
            "did:plc:",
            "did:plc:../x",
            "did:plc:ABC",
            "did:web:",
            "did:web:pds.example:users:ann",
            "did:web:pds.example/x",
            "did:web:user@pds.example",
            "did:web:10.0.0.1%3Ax",
            "did:key:z6Mk",
            "pds.example",
        ] {
            assert_eq!(document_location(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn servers_are_compared_with_scheme_and_port() {
        assert!(is_same_server("https://PDS.example", "https://pds.example/"));
        assert!(is_same_server("https://pds.example:443", "https://pds.example"));
        for other in
            ["http://pds.example", "https://pds.example:8443", "https://pds.example/x", "https://a.example", ""]
        {
            assert!(!is_same_server("https://pds.example", other), "{other}");
        }
    }
}
