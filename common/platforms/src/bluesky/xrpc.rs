//! Calls to a personal data server, and the meaning of its errors.
//!
//! Sources: AT Protocol specification, "HTTP API (XRPC)"; lexicons `com.atproto.server.createSession`,
//! `refreshSession`, `deleteSession`. An expired access token returns a 400 `ExpiredToken`, not a 401.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_http::{HttpResponse, RequestBuilder};
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::CallError;
use crate::call::{Effect, PlatformClient, sanitize_message};

/// A server and the client that may call it.
pub(super) struct Server {
    pub caller: PlatformClient,
    pub base: String,
}

/// A failed call.
pub(super) struct XrpcError {
    /// The error's name, e.g. `InvalidSwap`; empty if no response arrived.
    pub name: String,
    pub error: CallError,
    /// The server's message.
    message: String,
}

impl XrpcError {
    /// Returns whether the server rejected a record because a blob that it references does not exist or was deleted.
    pub fn is_blob_gone(&self) -> bool {
        let named = self.name == "BlobNotFound" || self.message.contains("Could not find blob");
        named && matches!(self.error, CallError::Permanent(_))
    }

    /// Returns whether the server does not have the method.
    pub fn is_method_missing(&self) -> bool {
        let is_unnamed_404 = self.name.is_empty() && self.error.failure().platform_code.as_deref() == Some("404");
        is_unnamed_404 || matches!(self.name.as_str(), "MethodNotImplemented" | "XRPCNotSupported")
    }

    /// Returns whether the server has no such record. Servers from before 2024 return `InvalidRequest`, "Could not
    /// locate record".
    pub fn is_record_missing(&self) -> bool {
        let named = self.name == "RecordNotFound" || self.message.contains("Could not locate record");
        named && matches!(self.error, CallError::Permanent(_))
    }
}

impl From<CallError> for XrpcError {
    fn from(error: CallError) -> Self {
        Self { name: String::new(), error, message: String::new() }
    }
}

impl From<XrpcError> for CallError {
    fn from(failed: XrpcError) -> Self {
        failed.error
    }
}

/// The response of `createSession` and `refreshSession`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Session {
    pub did: String,
    pub handle: String,
    pub access_jwt: SecretString,
    pub refresh_jwt: SecretString,
    /// `false` for an account that is deactivated, suspended or taken down.
    pub active: Option<bool>,
    pub status: Option<String>,
}

impl Session {
    /// Returns when the access token expires: its `exp` claim, if it is a JWT.
    pub fn expires_at(&self) -> Option<DateTime<Utc>> {
        #[derive(Deserialize)]
        struct Claims {
            exp: i64,
        }
        let claims = self.access_jwt.expose_secret().split('.').nth(1)?;
        let claims: Claims = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).ok()?).ok()?;
        DateTime::from_timestamp(claims.exp, 0)
    }
}

impl Server {
    pub fn get(&self, method: &str) -> RequestBuilder {
        self.caller.request(Method::GET, &self.url(method))
    }

    pub fn post(&self, method: &str) -> RequestBuilder {
        self.caller.request(Method::POST, &self.url(method))
    }

    fn url(&self, method: &str) -> String {
        format!("{}/xrpc/{method}", self.base)
    }

    /// Sends a request and parses its response.
    pub async fn call<T: DeserializeOwned>(&self, effect: Effect, request: RequestBuilder) -> Result<T, XrpcError> {
        let response = self.send(effect, request).await?;
        Ok(self.caller.read(effect, &response)?)
    }

    /// Sends a request. Older servers return no body for some writes.
    pub async fn send(&self, effect: Effect, request: RequestBuilder) -> Result<HttpResponse, XrpcError> {
        self.send_bytes(effect, request, 0).await
    }

    /// Sends a request whose body has this number of bytes of a video.
    pub async fn send_bytes(
        &self,
        effect: Effect,
        request: RequestBuilder,
        bytes: u64,
    ) -> Result<HttpResponse, XrpcError> {
        let response = self.caller.send_bytes(effect, request, bytes).await?;
        self.error_of(effect, &response).map_or(Ok(response), Err)
    }

    /// Returns the error of a response. `None` if the call succeeded.
    pub fn error_of(&self, effect: Effect, response: &HttpResponse) -> Option<XrpcError> {
        if response.status.is_success() {
            return None;
        }
        let problem: XrpcErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let name = problem.error.unwrap_or_default();
        let message = problem.message.unwrap_or_default();
        let error = (!response.status.is_server_error()).then(|| classify_name(&name, &message)).flatten();
        let error = error.unwrap_or_else(|| {
            let code = (!name.is_empty()).then_some(name.as_str());
            self.caller.classify_status(effect, response, code, sanitize_message(&message, &[]))
        });
        Some(XrpcError { name, error, message })
    }

    pub async fn create_session(&self, identifier: &str, password: &SecretString) -> Result<Session, XrpcError> {
        let body = json!({ "identifier": identifier, "password": password.expose_secret() });
        let request = self.post("com.atproto.server.createSession").json(&body);
        let session = self.call(Effect::Repeatable, request).await;
        session.map_err(|failed| match (&failed.error, failed.name.as_str()) {
            (CallError::Reauth(_) | CallError::AuthExpired(_), name) if name != "AuthFactorTokenRequired" => {
                let message = "Bluesky does not accept this identifier with this app password.";
                let code = if name.is_empty() { "401" } else { name };
                let failure = Failure::of(Category::AuthExpired, message).from_platform(code);
                XrpcError { error: CallError::Reauth(failure), ..failed }
            }
            _ => failed,
        })
    }

    /// Gets a new pair of tokens. The request has no body; the server rejects one.
    pub async fn refresh_session(&self, refresh: &SecretString) -> Result<Session, XrpcError> {
        let request = self.post("com.atproto.server.refreshSession").bearer_auth(refresh.expose_secret());
        self.call(Effect::Repeatable, request).await
    }

    pub async fn delete_session(&self, refresh: &SecretString) -> Result<(), XrpcError> {
        let request = self.post("com.atproto.server.deleteSession").bearer_auth(refresh.expose_secret());
        let response = self.caller.send(Effect::Repeatable, request).await?;
        // A 4xx means that the session does not exist or has ended, which is the goal.
        if response.status.is_success() || response.status.is_client_error() && response.status.as_u16() != 429 {
            return Ok(());
        }
        Err(self.caller.classify_status(Effect::Repeatable, &response, None, None).into())
    }
}

/// Classifies an error by its name, where the name is more precise than the status.
fn classify_name(name: &str, message: &str) -> Option<CallError> {
    let failure = |category, text: &str| Failure::of(category, text).from_platform(name);
    Some(match name {
        // `InvalidToken` too: a server with new signing keys still accepts the app password that `refresh` uses.
        "ExpiredToken" | "InvalidToken" => {
            CallError::AuthExpired(failure(Category::AuthExpired, "The Bluesky session has expired."))
        }
        "AuthFactorTokenRequired" => CallError::Reauth(failure(
            Category::AuthExpired,
            "Bluesky requires a second factor with this password. Create an app password in Bluesky's settings, and \
             use it instead.",
        )),
        "AccountTakedown" | "AccountSuspended" | "AccountDeactivated" | "RepoTakendown" | "RepoSuspended"
        | "RepoDeactivated" => CallError::Permanent(failure(
            Category::Account,
            "This Bluesky account is suspended or deactivated. Resolve this on Bluesky.",
        )),
        "BlobTooLarge" | "PayloadTooLarge" | "InvalidMimeType" => CallError::Permanent(failure(
            Category::InvalidContent,
            "Bluesky does not accept an image of this size or type.",
        )),
        "InvalidRecord" | "InvalidRequest" if message.contains("ecord") => {
            let reason = sanitize_message(message, &[]).map_or_else(|| ".".to_owned(), |detail| format!(": {detail}"));
            let text = format!("Bluesky does not accept this post{reason}");
            CallError::Permanent(failure(Category::InvalidContent, &text))
        }
        _ => return None,
    })
}

#[derive(Deserialize, Default)]
struct XrpcErrorBody {
    error: Option<String>,
    message: Option<String>,
}
