//! Connecting a Facebook page. The person's token is exchanged for one that lives 60 days, and with that the page's
//! token is read, which has no end; only the page's is stored with the account.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use http::Method;
use secrecy::SecretString;
use serde::Deserialize;

use super::super::call::{Effect, connect_error};
use super::super::oauth::{
    Attempt, AuthServer, Choice, Choices, ClientAuth, ConnectRequest, Grant, MAX_CHOICES, OAuthConnector, Permission,
    protocol,
};
use super::super::{CallError, ConnectError, Connected};
use super::Facebook;
use super::graph::Access;
use crate::domain::account::Renewal;
use crate::domain::platform::{AccountKind, ConnectTarget};

/// `business_management`: pages that a business owns are not listed without it.
const SCOPES: [&str; 4] = ["pages_show_list", "pages_manage_posts", "pages_read_engagement", "business_management"];

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["pages_show_list", "business_management"], purpose: "see which pages you manage" },
    Permission { scopes: &["pages_manage_posts"], purpose: "publish posts and pictures on the page" },
    Permission { scopes: &["pages_read_engagement"], purpose: "read the page's posts" },
];

const PAGES_PER_CALL: &str = "100";

#[derive(Deserialize)]
struct List<T> {
    #[serde(default = "Vec::new")]
    data: Vec<T>,
    paging: Option<Paging>,
}

#[derive(Deserialize)]
struct Paging {
    cursors: Option<Cursors>,
    /// Only whether there is one is of interest: its address holds a token.
    next: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Cursors {
    after: Option<String>,
}

#[derive(Deserialize)]
struct GrantedPermission {
    permission: String,
    #[serde(default)]
    status: String,
}

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
    /// Returns whether the person may publish on it. Older pages name no tasks. The id becomes a part of addresses.
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

fn unavailable(error: CallError) -> ConnectError {
    connect_error(error, None)
}

impl Facebook {
    fn auth_server(&self) -> AuthServer {
        let token_url = format!("{}/oauth/access_token", self.graph);
        let mut server = AuthServer::new(self.dialog.clone(), token_url, &SCOPES);
        server.separator = ',';
        server.client_auth = ClientAuth::Form;
        server.pkce = false;
        server
    }

    fn person(&self, token: &str, attempt_secret: SecretString) -> Access<'_> {
        let token = SecretString::from(token);
        Access { client: &self.client, graph: &self.graph, token, app_secret: attempt_secret }
    }

    /// Exchanges the person's token for one that lives longer.
    async fn long_lived(
        &self,
        attempt: &Attempt,
        grant: &Grant,
    ) -> Result<(String, Option<DateTime<Utc>>), ConnectError> {
        use secrecy::ExposeSecret as _;
        let application = attempt.application();
        let form = [
            ("grant_type", "fb_exchange_token"),
            ("client_id", &application.client_id),
            ("client_secret", application.client_secret.expose_secret()),
            ("fb_exchange_token", grant.access_token()),
        ];
        let request = self.client.request(Method::POST, &attempt.server.token_url).form(&form);
        let answer = self.client.send(Effect::Repeatable, request).await.map_err(unavailable)?;
        if !answer.status.is_success() {
            let error = self.client.classify_status(Effect::Repeatable, &answer, None, None);
            return Err(unavailable(error));
        }
        let tokens: protocol::Tokens = self.client.read(Effect::Repeatable, &answer).map_err(unavailable)?;
        Ok((tokens.access_token().to_owned(), tokens.expires_at(self.client.now())))
    }

    /// Returns the permissions that the person left switched on.
    async fn granted(&self, access: &Access<'_>) -> Result<Vec<String>, ConnectError> {
        let request = access.request(Method::GET, "me/permissions");
        let all: List<GrantedPermission> = access.call(Effect::Repeatable, request).await.map_err(unavailable)?;
        let granted = all.data.into_iter().filter(|one| one.status == "granted");
        Ok(granted.map(|one| one.permission).collect())
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
            "Facebook asks only people who have a role in the application, until Meta has reviewed the application. If it \
             says that the app is not available, ask the operator of this Crier.",
        )
    }

    fn choice_noun(&self) -> &'static str {
        "page"
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &Attempt, code: &str) -> Result<Grant, ConnectError> {
        let tokens = protocol::exchange(&self.client, attempt, code).await.map_err(|failure| {
            // Facebook refuses a code with an error of its own shape.
            match (failure.status, failure.code.is_none()) {
                (Some(http::StatusCode::BAD_REQUEST), true) => {
                    ConnectError::Refused("Facebook no longer accepts this answer of its own.".to_owned())
                }
                _ => failure.into(),
            }
        })?;
        let grant = Grant::new(attempt, &tokens, self.client.now());
        let (token, ends_at) = self.long_lived(attempt, &grant).await?;
        let access = self.person(&token, attempt.application().client_secret);
        let mut grant = grant.with_access_token(&token, ends_at);
        grant.scopes = Some(self.granted(&access).await?);
        Ok(grant)
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let access = self.person(grant.access_token(), grant.application().client_secret);
        let (mut found, mut after) = (Vec::new(), None::<String>);
        loop {
            let mut query = vec![("fields", "id,name,username,tasks"), ("limit", PAGES_PER_CALL)];
            query.extend(after.as_deref().map(|after| ("after", after)));
            let request = access.request(Method::GET, "me/accounts").query(&query);
            let list: List<ListedPage> = access.call(Effect::Repeatable, request).await.map_err(unavailable)?;
            let pages = list.data.into_iter().filter(ListedPage::is_publishable);
            found.extend(pages.map(|page| Choice { id: page.id, name: page.name, detail: page.username }));
            let next = list.paging.filter(|paging| paging.next.is_some()).and_then(|paging| paging.cursors?.after);
            // The same cursor twice would never end.
            if next.is_none() || next == after || found.len() >= MAX_CHOICES {
                return Ok(Choices::Of(found));
            }
            after = next;
        }
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        let gone = || ConnectError::Refused("This page is not among yours any more.".to_owned());
        let id = choice.ok_or_else(gone)?.id.as_str();
        let access = self.person(grant.access_token(), grant.application().client_secret);
        let fields = [("fields", "id,name,username,link,access_token,picture{url}")];
        let request = access.request(Method::GET, id).query(&fields);
        let page: Page = access.call(Effect::Repeatable, request).await.map_err(unavailable)?;
        let token = page.access_token.filter(|token| !token.is_empty() && page.id == id).ok_or_else(gone)?;
        Ok(Connected {
            external_id: page.id,
            name: page.name,
            username: page.username,
            profile_url: page.link,
            avatar_url: page.picture.and_then(|picture| picture.data.url),
            kind: AccountKind::Page,
            token_expires_at: None,
            renewal: Some(Renewal::default()),
            application: Some(grant.client_id.clone()),
            secrets: grant.clone().with_access_token(&token, None).secrets(),
        })
    }
}
