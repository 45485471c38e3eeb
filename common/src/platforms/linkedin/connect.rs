//! Connecting a person's LinkedIn account. Pages of organisations need an application of their own, and cannot be
//! connected yet.

use async_trait::async_trait;
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    Attempt, AuthServer, Choice, ClientAuth, ConnectRequest, Grant, OAuthConnector, Permission, protocol, renewal,
};
use super::super::{ConnectError, Connected};
use super::Linkedin;
use crate::domain::platform::{AccountKind, ConnectTarget};

const SCOPES: [&str; 3] = ["openid", "profile", "w_member_social"];

const PERMISSIONS: [Permission; 2] = [
    Permission { scopes: &["openid", "profile"], purpose: "see your name and picture" },
    Permission { scopes: &["w_member_social"], purpose: "publish posts and pictures in your name" },
];

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(default)]
    name: String,
    picture: Option<String>,
}

impl Linkedin {
    pub(super) fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/oauth/v2/authorization", self.site);
        let mut server = AuthServer::new(authorize, format!("{}/oauth/v2/accessToken", self.tokens), &SCOPES);
        server.client_auth = ClientAuth::Form;
        // LinkedIn documents PKCE for native applications alone, with another address.
        server.pkce = false;
        server
    }
}

#[async_trait]
impl OAuthConnector for Linkedin {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some("LinkedIn gives access for 60 days. You will be asked by mail to connect again before they end.")
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &Attempt, code: &str) -> Result<Grant, ConnectError> {
        let tokens = protocol::exchange(&self.client, attempt, code).await?;
        Ok(Grant::new(attempt, &tokens, self.client.now()))
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let token = SecretString::from(grant.access_token());
        let request = self.request(Method::GET, "/v2/userinfo", &token);
        let answer =
            self.send(Effect::Repeatable, request).await.map_err(|refusal| connect_error(refusal.error, None))?;
        let info: UserInfo =
            self.client.read(Effect::Repeatable, &answer).map_err(|error| connect_error(error, None))?;
        // The id becomes a part of a URN.
        let is_id = |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !is_id(&info.sub) {
            return Err(ConnectError::Unavailable("LinkedIn named no person.".to_owned()));
        }
        Ok(Connected {
            external_id: info.sub,
            name: info.name,
            username: None,
            profile_url: None,
            avatar_url: info.picture,
            kind: AccountKind::Profile,
            token_expires_at: grant.token_expires_at,
            renewal: Some(renewal(grant, false)),
            application: Some(grant.client_id.clone()),
            secrets: grant.secrets(),
        })
    }
}
