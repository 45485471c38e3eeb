//! Connecting a TikTok account.

use async_trait::async_trait;
use crier_domain::platform::{AccountKind, ConnectTarget};
use serde::Deserialize;

use super::super::call::connect_error;
use super::super::oauth::{
    AuthServer, Choice, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, renewal,
};
use super::super::{ConnectError, Connected};
use super::Tiktok;

const SCOPES: [&str; 3] = ["user.info.basic", "user.info.profile", "video.publish"];

const PERMISSIONS: [Permission; 2] = [
    Permission { scopes: &["user.info.basic", "user.info.profile"], purpose: "see your name and profile picture" },
    Permission { scopes: &["video.publish"], purpose: "publish photos and videos" },
];

#[derive(Deserialize)]
struct UserInfo {
    user: User,
}

#[derive(Deserialize)]
struct User {
    open_id: String,
    #[serde(default)]
    display_name: String,
    username: Option<String>,
    avatar_url: Option<String>,
}

#[async_trait]
impl OAuthConnector for Tiktok {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Until TikTok has audited the application, at most five people per day can publish with it. Their accounts \
             must be private when they publish, and only they can see the posts.",
        )
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        let mut server = AuthServer::new(self.dialog.clone(), format!("{}/v2/oauth/token/", self.api), &SCOPES);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        // Required only for applications on devices, with a non-standard challenge.
        server.pkce = false;
        server.sends_client_key = true;
        Ok(server)
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        let form =
            [("grant_type", "authorization_code"), ("code", code), ("redirect_uri", attempt.redirect_uri.as_str())];
        let tokens = self.tokens(&attempt.application(), &form).await.map_err(|error| connect_error(error, None))?;
        Ok(Grant::new(attempt, &tokens, self.client.now()))
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let query = [("fields", "open_id,display_name,username,avatar_url")];
        let info: UserInfo = self
            .get("/v2/user/info/", grant.access_token(), &query)
            .await
            .map_err(|error| connect_error(error, None))?;
        let user = info.user;
        Ok(Connected {
            profile_url: user.username.as_deref().map(|name| format!("https://www.tiktok.com/@{name}")),
            username: user.username,
            avatar_url: user.avatar_url,
            renewal: Some(renewal(grant, true)),
            ..grant.connected(AccountKind::Profile, user.open_id, user.display_name)
        })
    }
}
