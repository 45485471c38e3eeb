//! Whether a server that a user types may speak for a Bluesky account: its document in the directory decides.

use crier_platforms::{ConnectError, Connected};
use serde_json::{Value, json};
use wiremock::matchers::{path, query_param};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{secrets, with_directory};

const DID: &str = "did:plc:ewvi7nxzyoun6zhxrhs64oiz";
const HANDLE: &str = "ann.example";

/// A server of one account, the directory, and the operator's server, which resolves handles.
struct Lab {
    server: MockServer,
    directory: MockServer,
    resolver: MockServer,
}

fn response(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

impl Lab {
    /// Starts a server that claims the account and its handle.
    async fn start() -> Self {
        let (server, directory, resolver) =
            (MockServer::start().await, MockServer::start().await, MockServer::start().await);
        let session = json!({ "did": DID, "handle": HANDLE, "accessJwt": "access", "refreshJwt": "refresh" });
        Mock::given(path("/xrpc/com.atproto.server.createSession"))
            .respond_with(response(200, session))
            .mount(&server)
            .await;
        Self { server, directory, resolver }
    }

    async fn document(&self, status: u16, document: Value) {
        Mock::given(path(format!("/{DID}"))).respond_with(response(status, document)).mount(&self.directory).await;
    }

    /// Lets the handle resolve to this account.
    async fn handle_leads_to(&self, did: &str) {
        Mock::given(path("/xrpc/com.atproto.identity.resolveHandle"))
            .and(query_param("handle", HANDLE))
            .respond_with(response(200, json!({ "did": did })))
            .mount(&self.resolver)
            .await;
    }

    async fn connect(&self) -> Result<Connected, ConnectError> {
        let typed = json!({ "identifier": HANDLE, "app_password": "p", "service": self.server.uri() });
        let bluesky = with_directory(&self.resolver.uri(), &self.directory.uri());
        bluesky.connect(1, &secrets(typed)).await
    }
}

/// A document as the directory returns it.
fn document(server: &str, handle: &str) -> Value {
    json!({
        "@context": ["https://www.w3.org/ns/did/v1"],
        "id": DID,
        "alsoKnownAs": [format!("at://{handle}")],
        "verificationMethod": [],
        "service": [
            { "id": "#other", "type": "Other", "serviceEndpoint": { "x": 1 } },
            { "id": "#atproto_pds", "type": "AtprotoPersonalDataServer", "serviceEndpoint": server },
        ],
    })
}

#[tokio::test]
async fn the_server_of_the_document_is_believed() {
    let lab = Lab::start().await;
    lab.document(200, document(&lab.server.uri(), HANDLE)).await;
    lab.handle_leads_to(DID).await;
    let connected = lab.connect().await.unwrap();
    assert_eq!((connected.external_id.as_str(), connected.username.as_deref()), (DID, Some(HANDLE)));
    assert_eq!(connected.profile_url.as_deref(), Some("https://bsky.app/profile/ann.example"));
}

#[tokio::test]
async fn a_server_that_claims_the_account_of_another_is_rejected() {
    let lab = Lab::start().await;
    lab.handle_leads_to(DID).await;
    lab.document(200, document("https://pds.example", HANDLE)).await;
    let rejection = lab.connect().await.unwrap_err();
    assert!(
        matches!(&rejection, ConnectError::Rejected(text) if text.contains("https://pds.example")),
        "{rejection:?}"
    );
    for (status, body) in [(404, json!({})), (200, json!({ "id": DID })), (410, json!({}))] {
        let lab = Lab::start().await;
        lab.document(status, body).await;
        let rejection = lab.connect().await.unwrap_err();
        assert!(matches!(&rejection, ConnectError::Rejected(_)), "{status}: {rejection:?}");
    }
    // A document of another account proves nothing.
    let lab = Lab::start().await;
    let mut other = document(&lab.server.uri(), HANDLE);
    other["id"] = json!("did:plc:other");
    lab.document(200, other).await;
    assert!(matches!(lab.connect().await, Err(ConnectError::Rejected(_))));
}

#[tokio::test]
async fn a_directory_that_does_not_respond_proves_nothing() {
    let lab = Lab::start().await;
    lab.document(503, json!({})).await;
    assert!(matches!(lab.connect().await, Err(ConnectError::Unavailable(_))));
}

/// Otherwise, the account is shown by its id.
#[tokio::test]
async fn a_handle_must_lead_back_to_the_account() {
    for (named, leads_to) in [("other.example", DID), (HANDLE, "did:plc:other")] {
        let lab = Lab::start().await;
        lab.document(200, document(&lab.server.uri(), named)).await;
        lab.handle_leads_to(leads_to).await;
        let connected = lab.connect().await.unwrap();
        assert_eq!((connected.username, connected.name.as_str()), (None, DID));
        assert_eq!(connected.profile_url, Some(format!("https://bsky.app/profile/{DID}")));
    }
}
