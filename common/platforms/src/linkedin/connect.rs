//! Connecting a user's LinkedIn account, or the page of an organization (target `page`). Pages need a separate
//! application, because the Community Management API must be an application's only product.

use async_trait::async_trait;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    AuthServer, Choice, Choices, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission,
    protocol, renewal,
};
use super::super::{ConnectError, Connected};
use super::Linkedin;

const SCOPES: [&str; 3] = ["openid", "profile", "w_member_social"];

const PAGE_SCOPES: [&str; 3] = ["w_organization_social", "r_organization_social", "rw_organization_admin"];

const PAGE_PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["rw_organization_admin"], purpose: "see which pages you manage" },
    Permission {
        scopes: &["w_organization_social"],
        purpose: "publish posts, images and videos on behalf of the page",
    },
    Permission { scopes: &["r_organization_social"], purpose: "read the page's posts" },
];

const PERMISSIONS: [Permission; 2] = [
    Permission { scopes: &["openid", "profile"], purpose: "see your name and profile picture" },
    Permission { scopes: &["w_member_social"], purpose: "publish posts, images and videos on your behalf" },
];

#[derive(Deserialize)]
struct UserInfo {
    sub: String,
    #[serde(default)]
    name: String,
    picture: Option<String>,
}

impl Linkedin {
    pub(super) fn auth_server(&self, target: ConnectTarget) -> AuthServer {
        let scopes = match target {
            ConnectTarget::Default => &SCOPES,
            ConnectTarget::Page => &PAGE_SCOPES,
        };
        let authorize = format!("{}/oauth/v2/authorization", self.site);
        let mut server = AuthServer::new(authorize, format!("{}/oauth/v2/accessToken", self.tokens), scopes);
        server.client_auth = ClientAuth::Form;
        // LinkedIn documents PKCE only for native applications, at another URL.
        server.pkce = false;
        server
    }

    /// Returns the account of a page.
    fn page(grant: &Grant, choice: &Choice) -> Connected {
        Connected {
            username: choice.detail.clone(),
            profile_url: choice.detail.as_ref().map(|name| format!("https://www.linkedin.com/company/{name}")),
            renewal: Some(renewal(grant, false)),
            ..grant.connected(AccountKind::Page, choice.id.clone(), choice.name.clone())
        }
    }
}

#[async_trait]
impl OAuthConnector for Linkedin {
    fn targets(&self) -> &'static [ConnectTarget] {
        &[ConnectTarget::Default, ConnectTarget::Page]
    }

    fn permissions(&self, target: ConnectTarget) -> &'static [Permission] {
        match target {
            ConnectTarget::Default => &PERMISSIONS,
            ConnectTarget::Page => &PAGE_PERMISSIONS,
        }
    }

    fn gate(&self, target: ConnectTarget) -> Option<&'static str> {
        Some(match target {
            ConnectTarget::Default => {
                "LinkedIn grants access for 60 days. Before it expires, you will get an email that asks you to \
                 connect again."
            }
            ConnectTarget::Page => {
                "LinkedIn allows an application to publish on pages only after a review for its Community Management \
                 API. LinkedIn grants access for 60 days. Before it expires, you will get an email that asks you to \
                 connect again."
            }
        })
    }

    fn choice_noun(&self) -> &'static str {
        "page"
    }

    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server(request.target))
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        match grant.target {
            ConnectTarget::Default => Ok(Choices::NotNeeded),
            ConnectTarget::Page => {
                let pages = self.pages(&SecretString::from(grant.access_token())).await;
                pages.map(Choices::Of).map_err(|error| connect_error(error, None))
            }
        }
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        if grant.target == ConnectTarget::Page {
            let gone = || ConnectError::Rejected("No page was chosen.".to_owned());
            return choice.map(|choice| Self::page(grant, choice)).ok_or_else(gone);
        }
        let token = SecretString::from(grant.access_token());
        let request = self.request(Method::GET, "/v2/userinfo", &token);
        let response =
            self.send(Effect::Repeatable, request).await.map_err(|failed| connect_error(failed.error, None))?;
        let info: UserInfo =
            self.client.read(Effect::Repeatable, &response).map_err(|error| connect_error(error, None))?;
        // The id becomes part of a URN.
        let is_id = |id: &str| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        if !is_id(&info.sub) {
            return Err(ConnectError::Unavailable("LinkedIn returned no user.".to_owned()));
        }
        Ok(Connected {
            avatar_url: info.picture,
            renewal: Some(renewal(grant, false)),
            ..grant.connected(AccountKind::Profile, info.sub, info.name)
        })
    }
}
