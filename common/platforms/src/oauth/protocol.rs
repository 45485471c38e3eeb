//! OAuth 2.0 with the `oauth2` crate and the connectors' HTTP client: the URL of the authorization page (RFC 6749,
//! 4.1.1, with PKCE S256, RFC 7636), the exchange of a code, and the renewal of tokens.
//!
//! Responses are read leniently where platforms differ from the standard: a missing `token_type`, scopes separated by
//! commas, numbers written as text, the refresh token's lifetime under two names.

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
use super::{AuthServer, ClientAuth, ConnectAttempt, Grant};

/// The maximum lifetime of a token. Longer ones are reduced to it.
const MAX_TOKEN_LIFETIME_SECONDS: u64 = 10 * 365 * 86_400;

/// The response of a token endpoint. `Debug` prints no token.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tokens {
    access_token: AccessToken,
    #[serde(default = "bearer")]
    token_type: BasicTokenType,
    #[serde(default, deserialize_with = "deserialize_seconds")]
    expires_in: Option<u64>,
    #[serde(default)]
    refresh_token: Option<RefreshToken>,
    #[serde(default, alias = "refresh_expires_in", deserialize_with = "deserialize_seconds")]
    refresh_token_expires_in: Option<u64>,
    #[serde(default, deserialize_with = "deserialize_scopes", skip_serializing)]
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
    pub fn access_token_text(&self) -> &str {
        self.access_token.secret()
    }

    /// Returns the refresh token; `None` if there is none or it is empty.
    pub fn refresh_token_text(&self) -> Option<&str> {
        self.refresh_token.as_ref().map(|token| token.secret().as_str()).filter(|token| !token.is_empty())
    }

    pub fn expires_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        expiry(self.expires_in, now)
    }

    pub fn refresh_expires_at(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        expiry(self.refresh_token_expires_in, now)
    }

    pub fn scope_names(&self) -> Option<Vec<String>> {
        let scopes = self.scope.as_ref()?;
        (!scopes.is_empty()).then(|| scopes.iter().map(|scope| scope.to_string()).collect())
    }
}

fn expiry(seconds: Option<u64>, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let seconds = seconds.filter(|seconds| *seconds > 0)?.min(MAX_TOKEN_LIFETIME_SECONDS);
    now.checked_add_signed(TimeDelta::try_seconds(i64::try_from(seconds).ok()?)?)
}

fn bearer() -> BasicTokenType {
    BasicTokenType::Bearer
}

fn deserialize_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    Ok(match Value::deserialize(deserializer)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    })
}

fn deserialize_scopes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Scope>>, D::Error> {
    let split = |text: &str| {
        // `+` is a form-encoded space.
        let words = text.split([' ', ',', '+']).filter(|word| !word.is_empty());
        words.map(|word| Scope::new(word.to_owned())).collect::<Vec<_>>()
    };
    Ok(match Value::deserialize(deserializer)? {
        Value::String(text) => Some(split(&text)),
        Value::Array(items) => Some(items.iter().filter_map(Value::as_str).flat_map(split).collect()),
        _ => None,
    })
}

/// The error of a request to a token endpoint.
#[derive(Debug)]
pub struct TokenFailure {
    /// `None` if no response arrived.
    pub status: Option<StatusCode>,
    /// The standard's `error`, if the response has one.
    pub code: Option<String>,
    /// The standard's `error_description`, for recognizing errors. Not shown to users.
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
            CallError::Reauth(f) | CallError::AuthExpired(f) | CallError::Permanent(f) => Self::Rejected(f.message),
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

/// Returns the URL of the platform's authorization page.
pub fn authorize_url(attempt: &ConnectAttempt, state: &SecretString) -> Result<Url, ConnectError> {
    let unusable = |_| ConnectError::Unavailable("The platform's URL is not valid.".to_owned());
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
    // TikTok.
    if server.sends_client_key {
        request = request.add_extra_param("client_key", &attempt.client_id);
    }
    Ok(request.url().0)
}

/// Exchanges an authorization code for tokens, as a grant.
pub async fn exchange(client: &PlatformClient, attempt: &ConnectAttempt, code: &str) -> Result<Grant, TokenFailure> {
    let unusable = |_| invalid_url(client);
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
    let http_client = OAuthHttpClient::new(client);
    let tokens = request.request_async(&http_client).await.map_err(|error| http_client.classify(error))?;
    Ok(Grant::new(attempt, &tokens, client.now()))
}

/// Gets new tokens with a refresh token.
pub async fn refresh(
    client: &PlatformClient,
    server: &AuthServer,
    application: &Application,
    refresh_token: &SecretString,
) -> Result<Tokens, TokenFailure> {
    let token_url = TokenUrl::new(server.token_url.clone()).map_err(|_| invalid_url(client))?;
    let protocol = protocol(server, application).set_token_uri(token_url);
    let token = RefreshToken::new(refresh_token.expose_secret().to_owned());
    let http_client = OAuthHttpClient::new(client);
    let tokens = protocol.exchange_refresh_token(&token).request_async(&http_client).await;
    tokens.map_err(|error| http_client.classify(error))
}

fn invalid_url(client: &PlatformClient) -> CallError {
    let message = format!("The URL of {}'s token endpoint is not valid.", client.name());
    CallError::Transient(Failure::of(Category::Internal, message))
}

/// Sends the crate's requests with the platform's client, and stores the last status.
struct OAuthHttpClient {
    client: PlatformClient,
    status: Mutex<Option<StatusCode>>,
}

impl<'c> AsyncHttpClient<'c> for OAuthHttpClient {
    type Error = CallError;
    type Future = BoxFuture<'c, Result<oauth2::HttpResponse, CallError>>;

    fn call(&'c self, request: HttpRequest) -> Self::Future {
        Box::pin(self.send(request))
    }
}

impl OAuthHttpClient {
    fn new(client: &PlatformClient) -> Self {
        Self { client: client.clone(), status: Mutex::new(None) }
    }

    /// 429, 5xx and truncated responses are errors here: the crate would drop their status.
    async fn send(&self, request: HttpRequest) -> Result<oauth2::HttpResponse, CallError> {
        let (head, body) = request.into_parts();
        let request = self.client.request(head.method, &head.uri.to_string()).headers(head.headers).body(body);
        let response = self.client.send(Effect::Repeatable, request).await?;
        *self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(response.status);
        if response.status == StatusCode::TOO_MANY_REQUESTS || response.status.is_server_error() {
            return Err(self.client.classify_status(Effect::Repeatable, &response, None, None));
        }
        if response.truncated {
            return Err(self.client.classify_unknown_effect(Effect::Repeatable, "sent an unreadable response", None));
        }
        // Headers are dropped: the crate rejects a Content-Type other than JSON, but accepts a missing one.
        let mut for_crate = http::Response::new(response.body.to_vec());
        // Some platforms return 201 where the standard says 200.
        *for_crate.status_mut() = if response.status.is_success() { StatusCode::OK } else { response.status };
        Ok(for_crate)
    }

    fn classify(&self, error: RequestTokenError<CallError, BasicErrorResponse>) -> TokenFailure {
        let status = *self.status.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (code, description) = match &error {
            RequestTokenError::ServerResponse(response) => {
                (Some(response.error().as_ref().to_owned()), response.error_description().cloned())
            }
            _ => (None, None),
        };
        let error = match error {
            RequestTokenError::Request(error) => error,
            _ => self.classify_code(status, code.as_deref()),
        };
        TokenFailure { status, code, description, error }
    }

    /// Only `invalid_grant` needs the user. All other errors may be temporary.
    fn classify_code(&self, status: Option<StatusCode>, code: Option<&str>) -> CallError {
        let name = self.client.name();
        let platform_code = code.map(str::to_owned).or_else(|| status.map(|status| status.as_u16().to_string()));
        let failure_of = |category, message: String| {
            let failure = Failure::of(category, message);
            match platform_code.as_deref() {
                Some(code) => failure.from_platform(code),
                None => failure,
            }
        };
        match code {
            Some(code @ "invalid_grant") => CallError::Reauth(self.client.reconnect_required().from_platform(code)),
            Some("invalid_client" | "unauthorized_client") => CallError::Transient(failure_of(
                Category::Account,
                format!(
                    "{name} does not accept Crier's application; the operator must check the client ID and secret."
                ),
            )),
            _ => CallError::Transient(failure_of(Category::PlatformError, format!("{name} returned no tokens."))),
        }
    }
}
