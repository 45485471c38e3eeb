//! Connecting a Mastodon account. A user types the server's URL, so it is checked and called through the guard. Crier
//! registers an application there once and stores it. Servers delete unused applications, so it is checked before each
//! use.
//!
//! Sources: docs.joinmastodon.org, "apps", "oauth", "OAuth scopes" (`profile` since 4.3); RFC 8414.

use async_trait::async_trait;
use crier_domain::account::Renewal;
use crier_domain::application::Application;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::super::address::check_submitted_url;
use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, protocol,
};
use super::super::{ConnectError, Connected};
use super::APP_NAME;
use super::Mastodon;
use super::limits;
use super::rest::Instance;

/// What Crier needs besides the account's name.
const SCOPES: [&str; 4] = ["read:statuses", "read:notifications", "write:statuses", "write:media"];
/// The scope to read the account's name: the narrow one since 4.3, and the one before.
const PROFILE: &str = "profile";
const OLDER_PROFILE: &str = "read:accounts";

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &[PROFILE, OLDER_PROFILE], purpose: "see the account's name and profile picture" },
    Permission { scopes: &["write:statuses", "write:media"], purpose: "publish posts, images and videos" },
    Permission {
        scopes: &["read:statuses", "read:notifications"],
        purpose: "read the account's posts and the replies to them",
    },
];

/// The server's metadata (RFC 8414).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    #[serde(default)]
    scopes_supported: Vec<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
}

#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: String,
}

impl Mastodon {
    fn anonymous(&self, base: &str) -> Instance<'_> {
        Instance { client: &self.client, base: base.to_owned(), token: None }
    }

    /// Returns the server's metadata. `None` before 4.3.
    async fn metadata(&self, base: &str) -> Result<Option<Metadata>, ConnectError> {
        let request = self.anonymous(base).request(Method::GET, "/.well-known/oauth-authorization-server");
        let to_connect_error = |error| connect_error(error, Some("instance"));
        let response = self.client.send(Effect::Repeatable, request).await.map_err(to_connect_error)?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(None),
            status if status.is_success() => {
                self.client.read(Effect::Repeatable, &response).map(Some).map_err(to_connect_error)
            }
            _ => Err(to_connect_error(self.client.classify_status(Effect::Repeatable, &response, None, None))),
        }
    }

    /// Returns whether the server still knows an application. Mastodon needs no `redirect_uri` here; GoToSocial does.
    async fn knows_application(
        &self,
        server: &AuthServer,
        application: &Application,
        redirect_uri: &str,
    ) -> Result<bool, ConnectError> {
        let form = [
            ("grant_type", "client_credentials"),
            ("client_id", &application.client_id),
            ("client_secret", application.client_secret.expose_secret()),
            ("scope", "read:statuses"),
            ("redirect_uri", redirect_uri),
        ];
        let request = self.client.request(Method::POST, &server.token_url).form(&form);
        let response = self.client.send(Effect::Repeatable, request).await;
        let response = response.map_err(|error| connect_error(error, Some("instance")))?;
        match response.status {
            // The server rejects this kind of request, and not the application.
            StatusCode::BAD_REQUEST if is_check_unsupported(&response.body) => Ok(true),
            StatusCode::BAD_REQUEST | StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Ok(false),
            status if status.is_success() => Ok(true),
            _ => {
                let error = self.client.classify_status(Effect::Repeatable, &response, None, None);
                Err(connect_error(error, Some("instance")))
            }
        }
    }
}

/// Returns whether an error of the token endpoint (RFC 6749, 5.2) means that the server does not support this check.
/// `invalid_request` does not: GoToSocial returns it for unknown applications.
fn is_check_unsupported(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct TokenError {
        error: String,
    }
    let error = serde_json::from_slice::<TokenError>(body).map(|found| found.error).unwrap_or_default();
    error == "unsupported_grant_type"
}

/// Returns the server's host for a handle, with its port unless it is the default of https, because each port is a
/// separate server.
fn host_and_port(instance: &str) -> String {
    let Ok(url) = Url::parse(instance) else { return String::new() };
    let host = url.host_str().unwrap_or_default();
    match url.port_or_known_default() {
        Some(443) | None => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    }
}

#[async_trait]
impl OAuthConnector for Mastodon {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    async fn check_instance(&self, typed: &str) -> Result<String, ConnectError> {
        let typed = typed.trim();
        let whole = if typed.contains("://") { typed.to_owned() } else { format!("https://{typed}") };
        let checked = check_submitted_url(self.addresses.as_ref(), "instance", &whole).await?;
        let wrong = || ConnectError::Field {
            field: "instance",
            message: "The URL must contain only the server, such as https://mastodon.social.".to_owned(),
        };
        let url = Url::parse(&checked).map_err(|_| wrong())?;
        if url.path() != "/" {
            return Err(wrong());
        }
        Ok(checked)
    }

    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        let base = request.instance;
        let metadata = self.metadata(base).await?;
        let has_profile = metadata.as_ref().is_some_and(|m| m.scopes_supported.iter().any(|scope| scope == PROFILE));
        let mut scopes = vec![if has_profile { PROFILE } else { OLDER_PROFILE }];
        scopes.extend(SCOPES);
        // These paths are the same on every server. A server that named others could send users elsewhere.
        let mut server = AuthServer::new(format!("{base}/oauth/authorize"), format!("{base}/oauth/token"), &scopes);
        server.client_auth = ClientAuth::Form;
        server.pkce =
            metadata.as_ref().is_some_and(|m| m.code_challenge_methods_supported.iter().any(|method| method == "S256"));
        if let Some(metadata) = metadata {
            if metadata.issuer.trim_end_matches('/') != base {
                let message =
                    "This server reports a different URL. Enter the URL at which people open it in a browser.";
                return Err(ConnectError::Field { field: "instance", message: message.to_owned() });
            }
            server.sends_issuer = metadata.authorization_response_iss_parameter_supported;
            server.issuer = Some(metadata.issuer);
        }
        Ok(server)
    }

    async fn application(
        &self,
        request: ConnectRequest<'_>,
        server: &AuthServer,
        redirect_uri: &str,
        stored: Option<Application>,
    ) -> Result<Option<Application>, ConnectError> {
        if let Some(stored) = stored
            && self.knows_application(server, &stored, redirect_uri).await?
        {
            return Ok(Some(stored));
        }
        let body = json!({
            "client_name": APP_NAME,
            "redirect_uris": redirect_uri,
            "scopes": server.scopes.join(" "),
        });
        let instance = self.anonymous(request.instance);
        let request = instance.request(Method::POST, "/api/v1/apps").json(&body);
        let created: Registered =
            instance.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, Some("instance")))?;
        Ok(Some(Application::new(created.client_id, created.client_secret)))
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let token = Some(SecretString::from(grant.access_token()));
        let instance = Instance { client: &self.client, base: grant.instance.clone(), token };
        let own = instance.own_account().await.map_err(|error| connect_error(error, None))?;
        // Without limits, the defaults apply until they are read again.
        let limits = limits::read(&instance).await.ok();
        let handle = format!("{}@{}", own.username, host_and_port(&grant.instance));
        let name = if own.display_name.trim().is_empty() { own.username } else { own.display_name };
        Ok(Connected {
            username: Some(handle.clone()),
            profile_url: own.url,
            avatar_url: own.avatar,
            renewal: grant.token_expires_at.map(|_| Renewal::default()),
            limits,
            secrets: grant.secrets().with(&[("account_id", &own.id)]),
            ..grant.connected(AccountKind::Profile, handle, name)
        })
    }
}
