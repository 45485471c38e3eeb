//! Connecting accounts in a browser: what the pages under `/connect` need to know about a platform.
//!
//! A connect has these steps, each of which may run in another process. The state between them is a [`ConnectAttempt`],
//! a [`Grant`] and a list of [`Choice`]s, which the database stores encrypted:
//!
//! 1. [`OAuthConnector::server`] returns the URL to which the user is sent, and the requested scopes.
//! 2. [`OAuthConnector::application`] returns the application, if Crier registers itself (Mastodon).
//! 3. The user agrees at [`protocol::authorize_url`] and returns with a code.
//! 4. [`OAuthConnector::exchange`] exchanges the code for tokens.
//! 5. [`OAuthConnector::choices`] lists what the user may choose from, if there is a choice.
//! 6. [`OAuthConnector::finish`] returns the account to store.
//!
//! **To add a platform:** implement [`OAuthConnector`] beside its `Connector` and return it from `Connector::oauth`.
//! Most platforms need only `server`, `permissions`, `exchange` and `finish`; the rest is the protocol ([`protocol`]).

pub mod protocol;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_config::PlatformsConfig;
use crier_domain::account::Renewal;
use crier_domain::application::Application;
use crier_domain::platform::{AccountKind, ConnectTarget, Platform};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::call::PlatformClient;

use super::{CallError, ConnectError, Connected, ConnectorAccount, RefreshedTokens, Secrets};

/// The maximum number of choices.
pub const MAX_CHOICES: usize = 1_000;

/// The account to connect.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    pub target: ConnectTarget,
    /// The URL of the server that the user typed. Empty if the platform has only one server.
    pub instance: &'a str,
}

/// The platform's authorization server, and what Crier requests from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthServer {
    pub authorize_url: String,
    pub token_url: String,
    pub scopes: Vec<String>,
    /// Requested in addition. The account is connected even if they are not granted.
    #[serde(default)]
    pub further_scopes: Vec<String>,
    /// The separator of scopes: a space by the standard, a comma on some platforms.
    pub separator: char,
    pub client_auth: ClientAuth,
    pub pkce: bool,
    /// The value of `iss` in the callback (RFC 9207), if known.
    pub issuer: Option<String>,
    /// Whether the platform always sends `iss`.
    pub sends_issuer: bool,
    /// Additional parameters of the authorization page.
    pub extra: Vec<(String, String)>,
    /// Whether the page takes the application's id as `client_key`.
    #[serde(default)]
    pub sends_client_key: bool,
    /// Additional parameters of the request that exchanges the code for tokens.
    #[serde(default)]
    pub token_extra: Vec<(String, String)>,
}

impl AuthServer {
    /// Returns a server that follows the standard: scopes separated by spaces, the secret by Basic, PKCE.
    pub fn new(authorize_url: impl Into<String>, token_url: impl Into<String>, scopes: &[&str]) -> Self {
        Self {
            authorize_url: authorize_url.into(),
            token_url: token_url.into(),
            scopes: scopes.iter().map(|scope| (*scope).to_owned()).collect(),
            further_scopes: Vec::new(),
            separator: ' ',
            client_auth: ClientAuth::Basic,
            pkce: true,
            issuer: None,
            sends_issuer: false,
            extra: Vec::new(),
            sends_client_key: false,
            token_extra: Vec::new(),
        }
    }
}

/// How the application authenticates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientAuth {
    Basic,
    /// `client_id` and `client_secret` in the form.
    Form,
}

/// A permission that Crier requests, which the user reads before the platform opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The scopes that it consists of.
    pub scopes: &'static [&'static str],
    /// Completes "Crier will be allowed to …".
    pub purpose: &'static str,
}

/// One attempt to connect an account in a browser. `Debug` prints no secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct ConnectAttempt {
    pub target: ConnectTarget,
    pub instance: String,
    pub server: AuthServer,
    pub redirect_uri: String,
    pub client_id: String,
    client_secret: String,
    /// The PKCE verifier.
    pub(super) verifier: String,
}

impl std::fmt::Debug for ConnectAttempt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConnectAttempt")
            .field("server", &self.server)
            .field("instance", &self.instance)
            .finish_non_exhaustive()
    }
}

impl ConnectAttempt {
    /// Creates an attempt. `verifier` is a random text of 43 to 128 characters.
    pub fn new(
        request: ConnectRequest<'_>,
        server: AuthServer,
        application: &Application,
        redirect_uri: String,
        verifier: &SecretString,
    ) -> Self {
        Self {
            target: request.target,
            instance: request.instance.to_owned(),
            server,
            redirect_uri,
            client_id: application.client_id.clone(),
            client_secret: application.client_secret.expose_secret().to_owned(),
            verifier: verifier.expose_secret().to_owned(),
        }
    }

    pub fn application(&self) -> Application {
        Application::new(self.client_id.clone(), self.client_secret.clone())
    }

    /// Returns whether the callback names the expected issuer.
    pub fn accepts_issuer(&self, named: Option<&str>) -> bool {
        match (named, &self.server.issuer) {
            (Some(named), Some(expected)) => named == expected,
            (None, Some(_)) => !self.server.sends_issuer,
            (_, None) => true,
        }
    }
}

/// The result of a user's consent. `Debug` prints no secret.
#[derive(Clone, Serialize, Deserialize)]
pub struct Grant {
    pub target: ConnectTarget,
    pub instance: String,
    pub client_id: String,
    client_secret: String,
    access_token: String,
    refresh_token: Option<String>,
    pub token_expires_at: Option<DateTime<Utc>>,
    pub refresh_expires_at: Option<DateTime<Utc>>,
    /// The granted scopes. `None` if the platform returned none, which means all requested ones.
    pub scopes: Option<Vec<String>>,
}

impl std::fmt::Debug for Grant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Grant").field("instance", &self.instance).field("scopes", &self.scopes).finish_non_exhaustive()
    }
}

impl Grant {
    /// Creates a grant from the tokens of an attempt.
    pub fn new(attempt: &ConnectAttempt, tokens: &protocol::Tokens, now: DateTime<Utc>) -> Self {
        Self {
            target: attempt.target,
            instance: attempt.instance.clone(),
            client_id: attempt.client_id.clone(),
            client_secret: attempt.client_secret.clone(),
            access_token: tokens.access_token_text().to_owned(),
            refresh_token: tokens.refresh_token_text().map(str::to_owned),
            token_expires_at: tokens.expires_at(now),
            refresh_expires_at: tokens.refresh_expires_at(now),
            scopes: tokens.scope_names(),
        }
    }

    pub fn access_token(&self) -> &str {
        &self.access_token
    }

    pub fn application(&self) -> Application {
        Application::new(self.client_id.clone(), self.client_secret.clone())
    }

    pub fn has_refresh_token(&self) -> bool {
        self.refresh_token.is_some()
    }

    /// Returns a copy with another access token: a long-lived one, or that of a page.
    pub fn with_access_token(self, access_token: &str, token_expires_at: Option<DateTime<Utc>>) -> Self {
        Self { access_token: access_token.to_owned(), token_expires_at, ..self }
    }

    /// Returns the scopes that were requested and not granted.
    pub fn missing(&self, server: &AuthServer) -> Vec<String> {
        let Some(granted) = &self.scopes else { return Vec::new() };
        server.scopes.iter().filter(|requested| !granted.contains(requested)).cloned().collect()
    }

    /// Returns the requested scopes that were granted.
    pub fn granted(&self, server: &AuthServer) -> Vec<String> {
        let requested = server.scopes.iter().chain(&server.further_scopes);
        let is_granted = |scope: &&String| self.scopes.as_ref().is_none_or(|granted| granted.contains(scope));
        requested.filter(is_granted).cloned().collect()
    }

    /// Returns an account that is connected with these tokens, which are not renewed.
    pub(super) fn connected(&self, kind: AccountKind, external_id: String, name: String) -> Connected {
        Connected {
            external_id,
            name,
            username: None,
            profile_url: None,
            avatar_url: None,
            kind,
            token_expires_at: self.token_expires_at,
            limits: None,
            renewal: None,
            application: Some(self.client_id.clone()),
            secrets: self.secrets(),
        }
    }

    /// Returns the account's secrets: the tokens, and the application that they were issued to.
    pub fn secrets(&self) -> Secrets {
        let mut fields = Map::new();
        let mut put = |name: &str, value: &str| {
            if !value.is_empty() {
                fields.insert(name.to_owned(), Value::from(value));
            }
        };
        put("access_token", &self.access_token);
        put("refresh_token", self.refresh_token.as_deref().unwrap_or_default());
        put("client_id", &self.client_id);
        put("client_secret", &self.client_secret);
        put("instance", &self.instance);
        Secrets::new(&fields)
    }
}

/// An option for the user to choose: a page, a blog, a board.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice {
    /// The platform's id.
    pub id: String,
    pub name: String,
    pub detail: Option<String>,
}

/// The options for the user to choose from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choices {
    /// There is only one account to connect.
    NotNeeded,
    /// The options. If there are none, the connect fails.
    Of(Vec<Choice>),
}

/// A platform whose accounts are connected in a browser.
#[async_trait]
pub trait OAuthConnector: Send + Sync {
    /// Returns the targets that can be connected.
    fn targets(&self) -> &'static [ConnectTarget] {
        &[ConnectTarget::Default]
    }

    /// Returns the permissions that Crier requests.
    fn permissions(&self, target: ConnectTarget) -> &'static [Permission];

    /// Returns possible obstacles at the platform (review, quota, trial), in a sentence or two.
    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        None
    }

    /// Returns the noun for a choice, for the page of choices: "page", "blog".
    fn choice_noun(&self) -> &'static str {
        "account"
    }

    /// Checks and normalizes the URL of a server that a user typed. Platforms with one server accept none.
    async fn check_instance(&self, _typed: &str) -> Result<String, ConnectError> {
        Err(ConnectError::Rejected("This platform has a fixed server and does not accept a URL.".to_owned()))
    }

    /// Returns the authorization server and the requested scopes.
    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError>;

    /// Returns the application on a server that a user typed: the stored one, if the server still knows it, or else a
    /// new one. `None` if an operator registers the application.
    async fn application(
        &self,
        _request: ConnectRequest<'_>,
        _server: &AuthServer,
        _redirect_uri: &str,
        _stored: Option<Application>,
    ) -> Result<Option<Application>, ConnectError> {
        Ok(None)
    }

    /// Returns whether the platform itself sent the user back. `query` is the unchanged query of the callback.
    /// Platforms that do not sign it are identified by `state` only.
    fn is_authentic(&self, _attempt: &ConnectAttempt, _query: &str) -> bool {
        true
    }

    /// Exchanges the code for tokens.
    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError>;

    /// Lists the choices, at most [`MAX_CHOICES`].
    async fn choices(&self, _grant: &Grant) -> Result<Choices, ConnectError> {
        Ok(Choices::NotNeeded)
    }

    /// Returns the account to store. `choice` is one of [`OAuthConnector::choices`], if there was a choice.
    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError>;
}

/// Returns the application that an account's tokens were issued to. If the operator's variables name the same one,
/// returns it with their secret, which may be newer.
pub(super) fn application_of(
    account: &ConnectorAccount,
    config: &PlatformsConfig,
    platform: Platform,
) -> Result<Application, CallError> {
    let client_id = account.secrets.require("client_id")?.expose_secret().to_owned();
    let current = [ConnectTarget::Default, ConnectTarget::Page].map(|target| config.of(platform).application(target));
    let same = current.into_iter().flatten().find(|one| one.client_id == client_id && one.has_secret());
    Ok(same.unwrap_or_else(|| Application {
        client_id,
        client_secret: account.secrets.get("client_secret").unwrap_or_default(),
    }))
}

/// Gets new tokens with an account's refresh token.
pub(super) async fn renew(
    client: &PlatformClient,
    server: &AuthServer,
    account: &ConnectorAccount,
    application: &Application,
) -> Result<RefreshedTokens, protocol::TokenFailure> {
    let refresh_token = account.secrets.require("refresh_token")?;
    let tokens = protocol::refresh(client, server, application, &refresh_token).await?;
    Ok(renewed(account, &tokens, client.now()))
}

/// Returns the new tokens of an account. If the platform returned no new refresh token, the old one is kept.
pub(super) fn renewed(account: &ConnectorAccount, tokens: &protocol::Tokens, now: DateTime<Utc>) -> RefreshedTokens {
    let mut changes = vec![("access_token", tokens.access_token_text())];
    changes.extend(tokens.refresh_token_text().map(|token| ("refresh_token", token)));
    RefreshedTokens {
        secrets: Some(account.secrets.with(&changes)),
        token_expires_at: tokens.expires_at(now),
        refresh_expires_at: tokens.refresh_expires_at(now),
    }
}

/// Returns how a grant's tokens are renewed, for platforms with refresh tokens.
pub(super) fn renewal(grant: &Grant, rotates: bool) -> Renewal {
    Renewal { renewable: grant.has_refresh_token(), rotates, refresh_expires_at: grant.refresh_expires_at }
}
