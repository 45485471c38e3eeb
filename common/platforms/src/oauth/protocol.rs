//! OAuth 2.0 by the `oauth2` crate, over the connectors' own HTTP client: the address of the authorization page (RFC
//! 6749, 4.1.1, with PKCE S256, RFC 7636), the exchange of a code, and the renewal of tokens.
//!
//! Answers are read leniently where platforms differ from the standard: a missing `token_type`, scopes separated by
//! commas, numbers written as text, an end of the refresh token under several names.

use std::sync::Mutex;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::application::Application;
use crier_domain::failure::{Category, Failure};
use futures::future::BoxFuture;
use http::StatusCode;
use oauth2::basic::{
    BasicErrorResponse, BasicRevocationErrorResponse, BasicTokenIntrospectionResponse, BasicTokenType,
};
use oauth2::{
    AccessToken, AsyncHttpClient, AuthType, AuthUrl, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken,
    HttpRequest, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, RefreshToken, RequestTokenError, Scope,
    StandardRevocableToken, TokenResponse, TokenUrl,
};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use url::Url;

use super::super::call::{Effect, PlatformClient};
use super::super::{CallError, ConnectError};
use super::{Attempt, AuthServer, ClientAuth};

/// A token's life is not believed beyond this.
const MAX_LIFE: u64 = 10 * 365 * 86_400;

/// The answer of a token endpoint. `Debug` prints no token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tokens {
    access_token: AccessToken,
    #[serde(default = "bearer")]
    token_type: BasicTokenType,
    #[serde(default, deserialize_with = "seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<RefreshToken>,
    #[serde(default, alias = "refresh_expires_in", deserialize_with = "seconds")]
    refresh_token_expires_in: Option<u64>,
    #[serde(default, deserialize_with = "scopes", skip_serializing)]
    scope: Option<Vec<Scope>>,
}

impl TokenResponse for Tokens {
    type TokenType = BasicTokenType;

    fn access_token(&self) -> &AccessToken {
        &self.access_token
    }

    fn token_type(&self) -> &BasicTokenType {
        &self.token_type
    }

    fn expires_in(&self) -> Option<Duration> {
        self.expires_in.map(Duration::from_secs)
    }

    fn refresh_token(&self) -> Option<&RefreshToken> {
        self.refresh_token.as_ref()
    }

    fn scopes(&self) -> Option<&Vec<Scope>> {
        self.scope.as_ref()
    }
}

impl Tokens {
    pub fn access_token(&self) -> &str {
        self.access_token.secret()
    }

    /// Returns the refresh token; `None` if there is none or it is empty.
    pub fn refresh_token(&self) -> Option<&str> {
        self.refresh_token.as_ref().map(|token| token.secret().as_str()).filter(|token| !token.is_empty())
    }

    pub fn expires_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        end(self.expires_in, now)
    }

    pub fn refresh_expires_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        end(self.refresh_token_expires_in, now)
    }

    pub fn scopes(&self) -> Option<Vec<String>> {
        let scopes = self.scope.as_ref()?;
        (!scopes.is_empty()).then(|| scopes.iter().map(|scope| scope.to_string()).collect())
    }
}

fn end(seconds: Option<u64>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = seconds.filter(|seconds| *seconds > 0)?.min(MAX_LIFE);
    now.checked_add_signed(TimeDelta::try_seconds(i64::try_from(seconds).ok()?)?)
}

fn bearer() -> BasicTokenType {
    BasicTokenType::Bearer
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

fn scopes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Scope>>, D::Error> {
    let split = |text: &str| {
        let words = text.split([' ', ',', '+']).filter(|word| !word.is_empty());
        words.map(|word| Scope::new(word.to_owned())).collect::<Vec<_>>()
    };
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(split(&text)),
        Value::Array(items) => Some(items.iter().filter_map(Value::as_str).flat_map(split).collect()),
        _ => None,
    })
}

/// A token endpoint that gave no tokens.
#[derive(Debug)]
pub struct TokenFailure {
    /// `None` if no response arrived.
    pub status: Option<StatusCode>,
    /// The standard's `error`, if the answer has one.
    pub code: Option<String>,
    /// The standard's `error_description`: for recognising an error, not for people.
    pub description: Option<String>,
    pub error: CallError,
}

impl From<CallError> for TokenFailure {
    fn from(error: CallError) -> Self {
        Self { status: None, code: None, description: None, error }
    }
}

impl From<TokenFailure> for CallError {
    fn from(failure: TokenFailure) -> Self {
        failure.error
    }
}

impl From<TokenFailure> for ConnectError {
    fn from(failure: TokenFailure) -> Self {
        match failure.error {
            CallError::Reauth(f) | CallError::AuthExpired(f) | CallError::Permanent(f) => Self::Refused(f.message),
            error => Self::Unavailable(error.failure().message.clone()),
        }
    }
}

type Protocol = Client<
    BasicErrorResponse,
    Tokens,
    BasicTokenIntrospectionResponse,
    StandardRevocableToken,
    BasicRevocationErrorResponse,
>;

fn protocol(server: &AuthServer, application: &Application) -> Protocol {
    let client = Protocol::new(ClientId::new(application.client_id.clone())).set_auth_type(match server.client_auth {
        ClientAuth::Basic => AuthType::BasicAuth,
        ClientAuth::Form => AuthType::RequestBody,
    });
    match application.has_secret() {
        true => client.set_client_secret(ClientSecret::new(application.client_secret.expose_secret().to_owned())),
        false => client,
    }
}

/// Returns the address at which the platform asks the person.
pub fn authorize_url(attempt: &Attempt, state: &SecretString) -> Result<Url, ConnectError> {
    let unusable = |_| ConnectError::Unavailable("The platform's address cannot be used.".to_owned());
    let server = &attempt.server;
    let auth_url = AuthUrl::new(server.authorize_url.clone()).map_err(unusable)?;
    let redirect_url = RedirectUrl::new(attempt.redirect_uri.clone()).map_err(unusable)?;
    let client = protocol(server, &attempt.application()).set_auth_uri(auth_url).set_redirect_uri(redirect_url);
    let state = CsrfToken::new(state.expose_secret().to_owned());
    let mut request = client.authorize_url(|| state);
    let scopes: Vec<&str> = server.scopes.iter().chain(&server.further_scopes).map(String::as_str).collect();
    if !scopes.is_empty() {
        request = request.add_scope(Scope::new(scopes.join(&server.separator.to_string())));
    }
    if server.pkce {
        let verifier = PkceCodeVerifier::new(attempt.verifier.clone());
        request = request.set_pkce_challenge(PkceCodeChallenge::from_code_verifier_sha256(&verifier));
    }
    for (name, value) in &server.extra {
        request = request.add_extra_param(name, value);
    }
    if server.sends_client_key {
        request = request.add_extra_param("client_key", &attempt.client_id);
    }
    Ok(request.url().0)
}

/// Turns a code into tokens.
pub async fn exchange(client: &PlatformClient, attempt: &Attempt, code: &str) -> Result<Tokens, TokenFailure> {
    let unusable = |_| unusable_address(client);
    let token_url = TokenUrl::new(attempt.server.token_url.clone()).map_err(unusable)?;
    let redirect_url = RedirectUrl::new(attempt.redirect_uri.clone()).map_err(unusable)?;
    let protocol =
        protocol(&attempt.server, &attempt.application()).set_token_uri(token_url).set_redirect_uri(redirect_url);
    let mut request = protocol.exchange_code(AuthorizationCode::new(code.to_owned()));
    if attempt.server.pkce {
        request = request.set_pkce_verifier(PkceCodeVerifier::new(attempt.verifier.clone()));
    }
    for (name, value) in &attempt.server.token_extra {
        request = request.add_extra_param(name, value);
    }
    let sender = Sender::new(client);
    let answer = request.request_async(&sender).await;
    answer.map_err(|error| sender.classify(error))
}

/// Gets new tokens by a refresh token.
pub async fn refresh(
    client: &PlatformClient,
    server: &AuthServer,
    application: &Application,
    refresh_token: &SecretString,
) -> Result<Tokens, TokenFailure> {
    let token_url = TokenUrl::new(server.token_url.clone()).map_err(|_| unusable_address(client))?;
    let protocol = protocol(server, application).set_token_uri(token_url);
    let token = RefreshToken::new(refresh_token.expose_secret().to_owned());
    let sender = Sender::new(client);
    let answer = protocol.exchange_refresh_token(&token).request_async(&sender).await;
    answer.map_err(|error| sender.classify(error))
}

fn unusable_address(client: &PlatformClient) -> CallError {
    let message = format!("The address of {}'s token endpoint cannot be used.", client.name());
    CallError::Transient(Failure::of(Category::Internal, message))
}

/// Sends the crate's requests with the platform's client, and remembers the status of the answer.
struct Sender {
    client: PlatformClient,
    status: Mutex<Option<StatusCode>>,
}

impl<'c> AsyncHttpClient<'c> for Sender {
    type Error = CallError;
    type Future = BoxFuture<'c, Result<oauth2::HttpResponse, CallError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

impl Sender {
    fn new(client: &PlatformClient) -> Self {
        Self { client: client.clone(), status: Mutex::new(None) }
    }

    /// A busy or broken server's answer is an error here: the crate would lose its status.
    async fn send(&self, request: HttpRequest) -> Result<oauth2::HttpResponse, CallError> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, &head.uri.to_string()).headers(head.headers).body(body);
        let answer = self.client.send(Effect::Repeatable, request).await?;
        *self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(answer.status);
        if answer.status == StatusCode::TOO_MANY_REQUESTS || answer.status.is_server_error() || answer.truncated {
            return Err(self.client.classify_status(Effect::Repeatable, &answer, None, None));
        }
        // Some platforms answer 201 where the standard says 200, and some name no type.
        let status = if answer.status.is_success() { StatusCode::OK } else { answer.status };
        let mut response = http::Response::new(answer.body.to_vec());
        *response.status_mut() = status;
        Ok(response)
    }

    fn classify(&self, error: RequestTokenError<CallError, BasicErrorResponse>) -> TokenFailure {
        let status = *self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (code, description) = match &error {
            RequestTokenError::ServerResponse(answer) => {
                (Some(answer.error().as_ref().to_owned()), answer.error_description().cloned())
            }
            _ => (None, None),
        };
        let error = match error {
            RequestTokenError::Request(error) => error,
            _ => self.refused(status, code.as_deref()),
        };
        TokenFailure { status, code, description, error }
    }

    /// Only a refused grant is the person's matter; all else is one of the operator or of the platform, and may pass.
    fn refused(&self, status: Option<StatusCode>, code: Option<&str>) -> CallError {
        let name = self.client.name();
        let shown = code.map(str::to_owned).or_else(|| status.map(|status| status.as_u16().to_string()));
        let with = |category, message: String| {
            let failure = Failure::of(category, message);
            match shown.as_deref() {
                Some(code) => failure.from_platform(code),
                None => failure,
            }
        };
        match code {
            Some("invalid_grant") => CallError::Reauth(with(
                Category::AuthExpired,
                format!("{name} no longer accepts this authorization; connect the account again."),
            )),
            Some("invalid_client" | "unauthorized_client") => CallError::Transient(with(
                Category::Account,
                format!(
                    "{name} does not accept Crier's application; its operator has to check the client id and secret."
                ),
            )),
            _ => CallError::Transient(with(Category::PlatformError, format!("{name} gave no tokens."))),
        }
    }
}
