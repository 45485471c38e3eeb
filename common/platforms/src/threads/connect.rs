//! Connecting a Threads account. The Meta application has a separate id and secret for Threads.

use async_trait::async_trait;
use crier_domain::account::Renewal;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::meta::containers::is_id;
use super::super::meta::tokens::LongLivedTokens;
use super::super::oauth::{
    AuthServer, Choice, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission,
};
use super::super::{ConnectError, Connected};
use super::Threads;

const SCOPES: [&str; 2] = ["threads_basic", "threads_content_publish"];

const PERMISSIONS: [Permission; 2] = [
    Permission { scopes: &["threads_basic"], purpose: "see your name, profile picture and posts" },
    Permission { scopes: &["threads_content_publish"], purpose: "publish posts, images and videos" },
];

#[derive(Deserialize)]
struct Profile {
    id: String,
    #[serde(default)]
    username: String,
    name: Option<String>,
    threads_profile_picture_url: Option<String>,
}

impl Threads {
    pub(super) fn long_lived(&self) -> LongLivedTokens<'_> {
        LongLivedTokens { client: &self.client, host: &self.host, prefix: "th" }
    }
}

#[async_trait]
impl OAuthConnector for Threads {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Until Meta has reviewed the application, only its testers can connect to Threads. Testers accept the \
             invitation in the settings of their Threads account, under website permissions.",
        )
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        let token_url = format!("{}/oauth/access_token", self.host);
        let mut server = AuthServer::new(self.dialog.clone(), token_url, &SCOPES);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        server.pkce = false;
        Ok(server)
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        self.long_lived().exchange(attempt, code).await
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let access = self.access(SecretString::from(grant.access_token()));
        let fields = [("fields", "id,username,name,threads_profile_picture_url")];
        let request = access.request(Method::GET, "me").query(&fields);
        let profile: Profile =
            access.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        if !is_id(&profile.id) {
            return Err(ConnectError::Unavailable("Threads returned no account.".to_owned()));
        }
        let name = profile.name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| profile.username.clone());
        Ok(Connected {
            profile_url: Some(format!("https://www.threads.net/@{}", profile.username)),
            username: Some(profile.username),
            avatar_url: profile.threads_profile_picture_url,
            // The token is its own refresh token until it expires.
            renewal: Some(Renewal { renewable: true, rotates: true, refresh_expires_at: None }),
            ..grant.connected(AccountKind::Profile, profile.id, name)
        })
    }
}
