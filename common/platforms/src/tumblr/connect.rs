//! Connecting a Tumblr blog. A user may have several, so the user chooses one.

use async_trait::async_trait;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, Choices, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission,
    protocol, renewal,
};
use super::super::{CallError, ConnectError, Connected, ConnectorAccount};
use super::Tumblr;

/// `offline_access` requests the refresh token.
const SCOPES: [&str; 3] = ["basic", "write", "offline_access"];

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["basic"], purpose: "see your blogs and read their posts" },
    Permission { scopes: &["write"], purpose: "publish posts, images and videos" },
    Permission { scopes: &["offline_access"], purpose: "do so while you are away" },
];

const NOT_YOURS: &str = "This blog is no longer one of your blogs.";

#[derive(Deserialize)]
struct UserInfo {
    user: User,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    blogs: Vec<Blog>,
}

#[derive(Deserialize)]
struct Blog {
    name: String,
    #[serde(default)]
    title: String,
    url: Option<String>,
    /// Unchanged if the blog is renamed.
    uuid: String,
    /// Whether the user may publish on the blog.
    #[serde(default = "default_true")]
    admin: bool,
}

fn default_true() -> bool {
    true
}

impl Tumblr {
    pub(super) fn auth_server(&self) -> AuthServer {
        let authorize = format!("{}/oauth2/authorize", self.site);
        let mut server = AuthServer::new(authorize, format!("{}/v2/oauth2/token", self.api), &SCOPES);
        server.client_auth = ClientAuth::Form;
        // PKCE is not documented. By the standard, unknown parameters are ignored, so Crier does not rely on it.
        server.pkce = false;
        server
    }

    /// Returns the blogs on which the user may publish.
    async fn blogs(&self, token: &str) -> Result<Vec<Blog>, CallError> {
        let info: UserInfo = self.call(Effect::Repeatable, self.request(Method::GET, "/v2/user/info", token)).await?;
        Ok(info.user.blogs.into_iter().filter(|blog| blog.admin).collect())
    }

    /// Fails if the user may no longer publish on the account's blog.
    pub(super) async fn check_access(&self, account: &ConnectorAccount, token: &str) -> Result<(), CallError> {
        if self.blogs(token).await?.iter().any(|blog| blog.uuid == account.external_id) {
            return Ok(());
        }
        Err(CallError::Permanent(Failure::of(Category::Account, NOT_YOURS)))
    }
}

#[async_trait]
impl OAuthConnector for Tumblr {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn choice_noun(&self) -> &'static str {
        "blog"
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let blogs = self.blogs(grant.access_token()).await.map_err(|error| connect_error(error, None))?;
        let blogs = blogs.into_iter().map(|blog| Choice {
            id: blog.uuid,
            detail: Some(blog.title).filter(|title| !title.trim().is_empty()),
            name: blog.name,
        });
        Ok(Choices::Of(blogs.collect()))
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let chosen = choice.map(|choice| choice.id.as_str()).unwrap_or_default();
        let blogs = self.blogs(grant.access_token()).await.map_err(|error| connect_error(error, None))?;
        let blog = blogs.into_iter().find(|blog| blog.uuid == chosen);
        let blog = blog.ok_or_else(|| ConnectError::Rejected(NOT_YOURS.to_owned()))?;
        let name = if blog.title.trim().is_empty() { blog.name.clone() } else { blog.title };
        Ok(Connected {
            username: Some(blog.name),
            profile_url: blog.url,
            renewal: Some(renewal(grant, true)),
            ..grant.connected(AccountKind::Profile, blog.uuid, name)
        })
    }
}
