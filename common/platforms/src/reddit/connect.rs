//! Connecting a Reddit account. The subreddit is an option of each post, so there is nothing to choose.
//!
//! Sources: github.com/reddit-archive/reddit/wiki/OAuth2; www.reddit.com/dev/api (`/api/v1/me`, scopes); Responsible
//! Builder Policy, November 2025.

use async_trait::async_trait;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, protocol, renewal,
};
use super::super::{ConnectError, Connected};
use super::Reddit;
use super::rest::Session;

const SCOPES: [&str; 6] = ["identity", "submit", "history", "edit", "flair", "privatemessages"];

const PERMISSIONS: [Permission; 6] = [
    Permission { scopes: &["identity"], purpose: "see your name and profile picture" },
    Permission { scopes: &["submit"], purpose: "publish posts, images and videos on your behalf" },
    Permission { scopes: &["history"], purpose: "see which posts you created, to find a post again" },
    Permission { scopes: &["edit"], purpose: "delete your posts and comments when you unpublish them" },
    Permission { scopes: &["flair"], purpose: "give your posts a flair" },
    Permission { scopes: &["privatemessages"], purpose: "read replies to you and your private messages" },
];

impl Reddit {
    pub(super) fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/api/v1/authorize", self.site);
        let mut server = AuthServer::new(authorize, format!("{}/api/v1/access_token", self.tokens), &SCOPES);
        // Not documented.
        server.pkce = false;
        // Requests a refresh token.
        server.extra = vec![("duration".to_owned(), "permanent".to_owned())];
        server
    }
}

#[async_trait]
impl OAuthConnector for Reddit {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Reddit allows only approved applications to use its API, and commercial use requires a contract with \
             Reddit. If Reddit rejects the request, ask the operator of Crier.",
        )
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        let client = self.client_of(&attempt.client_id, None);
        Ok(protocol::exchange(&client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        #[derive(Deserialize)]
        struct Me {
            id: String,
            name: String,
            icon_img: Option<String>,
        }
        let client = self.client_of(&grant.client_id, None);
        let session = Session { reddit: self, client, token: grant.access_token().to_owned() };
        let request = session.request(Method::GET, "/api/v1/me").query(&[("raw_json", "1")]);
        let me: Me = session.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        // The name becomes part of URLs.
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if me.name.is_empty() || !me.name.chars().all(is_name) {
            return Err(ConnectError::Unavailable("Reddit returned no user.".to_owned()));
        }
        Ok(Connected {
            username: Some(me.name.clone()),
            profile_url: Some(format!("https://www.reddit.com/user/{}", me.name)),
            avatar_url: me.icon_img,
            renewal: Some(renewal(grant, false)),
            ..grant.connected(AccountKind::Profile, me.id, me.name)
        })
    }
}
