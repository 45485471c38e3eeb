//! Connecting a Facebook page with Facebook Login (`meta/login.rs`). Only the page's token, which does not expire, is
//! stored with the account.

use async_trait::async_trait;
use crier_domain::account::Renewal;
use crier_domain::platform::{AccountKind, ConnectTarget};
use http::Method;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::meta::login::FacebookLogin;
use super::super::oauth::{
    AuthServer, Choice, Choices, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission,
};
use super::super::{ConnectError, Connected};
use super::Facebook;

/// `business_management`: without it, pages that a business owns are not listed.
const SCOPES: [&str; 4] = ["pages_show_list", "pages_manage_posts", "pages_read_engagement", "business_management"];

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["pages_show_list", "business_management"], purpose: "see which pages you manage" },
    Permission { scopes: &["pages_manage_posts"], purpose: "publish posts, images and videos on the page" },
    Permission { scopes: &["pages_read_engagement"], purpose: "read the page's posts" },
];

#[derive(Deserialize)]
struct ListedPage {
    id: String,
    #[serde(default)]
    name: String,
    username: Option<String>,
    #[serde(default)]
    tasks: Vec<String>,
}

impl ListedPage {
    /// Returns whether the user may publish on the page. Older pages name no tasks. The id becomes part of URLs.
    fn is_publishable(&self) -> bool {
        let is_id = !self.id.is_empty() && self.id.bytes().all(|byte| byte.is_ascii_digit());
        is_id && (self.tasks.is_empty() || self.tasks.iter().any(|task| task == "CREATE_CONTENT" || task == "MANAGE"))
    }
}

#[derive(Deserialize)]
struct Page {
    id: String,
    #[serde(default)]
    name: String,
    username: Option<String>,
    link: Option<String>,
    access_token: Option<String>,
    picture: Option<Picture>,
}

#[derive(Deserialize)]
struct Picture {
    data: PictureData,
}

#[derive(Deserialize)]
struct PictureData {
    url: Option<String>,
}

impl Facebook {
    fn login(&self) -> FacebookLogin<'_> {
        FacebookLogin { client: &self.client, graph: &self.graph, dialog: &self.dialog }
    }
}

#[async_trait]
impl OAuthConnector for Facebook {
    fn targets(&self) -> &'static [ConnectTarget] {
        &[ConnectTarget::Default, ConnectTarget::Page]
    }

    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some(
            "Until Meta has reviewed the application, only people who have a role in it can connect. If Facebook says \
             that the app is not available, ask the operator of Crier.",
        )
    }

    fn choice_noun(&self) -> &'static str {
        "page"
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.login().server(&SCOPES))
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        self.login().exchange(attempt, code).await
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let pages: Vec<ListedPage> = self.login().pages(grant, "id,name,username,tasks").await?;
        let pages = pages.into_iter().filter(ListedPage::is_publishable);
        Ok(Choices::Of(pages.map(|page| Choice { id: page.id, name: page.name, detail: page.username }).collect()))
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let gone = || ConnectError::Rejected("This page is no longer one of your pages.".to_owned());
        let id = choice.ok_or_else(gone)?.id.as_str();
        let access = self.login().access(grant);
        let fields = [("fields", "id,name,username,link,access_token,picture{url}")];
        let request = access.request(Method::GET, id).query(&fields);
        let page: Page = access.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        let token = page.access_token.filter(|token| !token.is_empty() && page.id == id).ok_or_else(gone)?;
        Ok(Connected {
            username: page.username,
            profile_url: page.link,
            avatar_url: page.picture.and_then(|picture| picture.data.url),
            renewal: Some(Renewal::default()),
            ..grant.clone().with_access_token(&token, None).connected(AccountKind::Page, page.id, page.name)
        })
    }
}
