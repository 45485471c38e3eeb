//! Connecting an Instagram account. The target `default` is Instagram's own login, `page` the account behind a Facebook
//! page.

use async_trait::async_trait;
use crier_domain::account::Renewal;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;
use serde_json::Value;

use super::super::call::{Effect, connect_error};
use super::super::meta::containers::is_id;
use super::super::meta::login::FacebookLogin;
use super::super::meta::tokens::LongLivedTokens;
use super::super::oauth::{
    AuthServer, Choice, Choices, ClientAuth, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission,
};
use super::super::{ConnectError, Connected, Secrets};
use super::{BY_FACEBOOK, Instagram, LOGIN};

const SCOPES: [&str; 2] = ["instagram_business_basic", "instagram_business_content_publish"];

const PERMISSIONS: [Permission; 2] = [
    Permission { scopes: &["instagram_business_basic"], purpose: "see your name, profile picture and posts" },
    Permission { scopes: &["instagram_business_content_publish"], purpose: "publish images and videos" },
];

/// `business_management`: without it, pages that a business owns are not listed.
const PAGE_SCOPES: [&str; 5] =
    ["instagram_basic", "instagram_content_publish", "pages_show_list", "pages_read_engagement", "business_management"];

const PAGE_PERMISSIONS: [Permission; 3] = [
    Permission {
        scopes: &["pages_show_list", "pages_read_engagement", "business_management"],
        purpose: "see which pages you manage, and the Instagram accounts linked to them",
    },
    Permission { scopes: &["instagram_basic"], purpose: "see the account's name, profile picture and posts" },
    Permission { scopes: &["instagram_content_publish"], purpose: "publish images and videos on the account" },
];

/// An account, as Instagram returns it.
#[derive(Deserialize)]
struct Profile {
    /// With Instagram's own login, the id of the account. `id` is then specific to the application.
    user_id: Option<Value>,
    id: Option<String>,
    #[serde(default)]
    username: String,
    name: Option<String>,
    profile_picture_url: Option<String>,
}

impl Profile {
    /// Returns the account's id, which becomes part of URLs.
    fn id(&self) -> Option<String> {
        let id = match &self.user_id {
            Some(Value::String(id)) => Some(id.clone()),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => self.id.clone(),
        };
        id.filter(|id| is_id(id))
    }
}

#[derive(Deserialize)]
struct Page {
    id: String,
    #[serde(default)]
    name: String,
    access_token: Option<String>,
    instagram_business_account: Option<Profile>,
}

fn connected(profile: Profile, grant: &Grant, secrets: Secrets, renewal: Renewal) -> Result<Connected, ConnectError> {
    let no_account = || ConnectError::Unavailable("Instagram returned no account.".to_owned());
    let id = profile.id().ok_or_else(no_account)?;
    let name = profile.name.filter(|name| !name.trim().is_empty()).unwrap_or_else(|| profile.username.clone());
    Ok(Connected {
        profile_url: Some(format!("https://www.instagram.com/{}/", profile.username)),
        username: Some(profile.username),
        avatar_url: profile.profile_picture_url,
        token_expires_at: if renewal.renewable { grant.token_expires_at } else { None },
        renewal: Some(renewal),
        secrets,
        ..grant.connected(AccountKind::Profile, id, name)
    })
}

impl Instagram {
    pub(super) fn long_lived(&self) -> LongLivedTokens<'_> {
        LongLivedTokens { client: &self.client, host: &self.host, prefix: "ig" }
    }

    fn login(&self) -> FacebookLogin<'_> {
        FacebookLogin { client: &self.client, graph: &self.facebook_graph, dialog: &self.facebook_dialog }
    }

    fn own_server(&self) -> AuthServer {
        let token_url = format!("{}/oauth/access_token", self.tokens);
        let mut server = AuthServer::new(self.dialog.clone(), token_url, &SCOPES);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        server.pkce = false;
        server
    }

    async fn finish_own(&self, grant: &Grant) -> Result<Connected, ConnectError> {
        let access = self.own_access(SecretString::from(grant.access_token()));
        let fields = [("fields", "user_id,username,name,profile_picture_url")];
        let request = access.request(Method::GET, "me").query(&fields);
        let profile: Profile =
            access.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        // The token is its own refresh token until it expires.
        let renewal = Renewal { renewable: true, rotates: true, refresh_expires_at: None };
        connected(profile, grant, grant.secrets(), renewal)
    }

    async fn finish_page(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let gone = || ConnectError::Rejected("This account is no longer linked to one of your pages.".to_owned());
        let id = choice.ok_or_else(gone)?.id.as_str();
        let access = self.login().access(grant);
        let fields = [("fields", "id,access_token,instagram_business_account{id,username,name,profile_picture_url}")];
        let request = access.request(Method::GET, id).query(&fields);
        let page: Page = access.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        let token = page.access_token.filter(|token| !token.is_empty() && page.id == id).ok_or_else(gone)?;
        let profile = page.instagram_business_account.ok_or_else(gone)?;
        let secrets = grant.clone().with_access_token(&token, None).secrets().with(&[(LOGIN, BY_FACEBOOK)]);
        connected(profile, grant, secrets, Renewal::default())
    }
}

#[async_trait]
impl OAuthConnector for Instagram {
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
                "Instagram allows applications to publish only on professional accounts (business or creator). Until \
                 Meta has reviewed the application, only people who have a role in it can connect."
            }
            ConnectTarget::Page => {
                "The Instagram account must be a professional one that is linked to a Facebook page of yours. Until \
                 Meta has reviewed the application, only people who have a role in it can connect."
            }
        })
    }

    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(match request.target {
            ConnectTarget::Default => self.own_server(),
            ConnectTarget::Page => self.login().server(&PAGE_SCOPES),
        })
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        match attempt.target {
            ConnectTarget::Default => self.long_lived().exchange(attempt, code).await,
            ConnectTarget::Page => self.login().exchange(attempt, code).await,
        }
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        if grant.target == ConnectTarget::Default {
            return Ok(Choices::NotNeeded);
        }
        let fields = "id,name,instagram_business_account{id,username,name}";
        let pages: Vec<Page> = self.login().pages(grant, fields).await?;
        let behind = |page: Page| {
            let profile = page.instagram_business_account.filter(|profile| profile.id().is_some())?;
            let detail = Some(format!("behind the page {}", page.name));
            is_id(&page.id).then_some(Choice { id: page.id, name: profile.username, detail })
        };
        Ok(Choices::Of(pages.into_iter().filter_map(behind).collect()))
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        match grant.target {
            ConnectTarget::Default => self.finish_own(grant).await,
            ConnectTarget::Page => self.finish_page(grant, choice).await,
        }
    }
}
