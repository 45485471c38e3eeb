//! Google Business Profile: local posts of a location. `connect.rs` connects it in the browser.
//!
//! Google downloads the image itself. A new post is often `PROCESSING`: its state is requested until Google publishes
//! or rejects it. After a call with an unknown outcome, the location's newest posts since the first attempt are
//! searched for the same text.
//!
//! A disconnect does not revoke the permission at Google, because that would disconnect the user's other locations.
//!
//! Sources: developers.google.com/my-business, "My Business API v4" (`accounts.locations.localPosts`), "Usage limits",
//! July 2026; google.rpc.Status.

mod connect;
mod inbox;
mod rest;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{Descriptor, Platform};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Effect, PlatformClient};
use super::oauth::{self, OAuthConnector};
use super::options::GOOGLE_BUSINESS_ACTIONS;
use super::{
    CallError, Clients, Connector, ConnectorAccount, InboxConnector, Marker, MarkerSeed, OutgoingPost, Published,
    ReconcileResult, RefreshedTokens, UnpublishPost, options, time_marker,
};
use crate::text::comparable::is_same;
use crate::window::CallWindow;

/// The maximum number of recent posts that are searched.
const MAX_RECENT_POSTS: usize = 50;
const LANGUAGE: &str = "en";
/// The pause before the state of a post is requested again.
const PAUSE: TimeDelta = TimeDelta::minutes(1);
/// The marker's field for the name of a post that Google is processing.
const NAME: &str = "name";

/// The hosts of the APIs. A configured base URL replaces all of them.
struct Hosts {
    accounts: String,
    information: String,
    posts: String,
    tokens: String,
    /// The host of the authorization page.
    site: String,
}

pub(super) struct GoogleBusiness {
    client: PlatformClient,
    config: PlatformsConfig,
    hosts: Hosts,
}

impl GoogleBusiness {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let platform = Platform::GoogleBusiness;
        let host = |default| config.base_url(platform, default);
        Self {
            client: PlatformClient::new(platform, clients.trusted.clone(), clock.clone()),
            config: config.clone(),
            hosts: Hosts {
                accounts: host("https://mybusinessaccountmanagement.googleapis.com"),
                information: host("https://mybusinessbusinessinformation.googleapis.com"),
                posts: host("https://mybusiness.googleapis.com"),
                tokens: host("https://oauth2.googleapis.com"),
                site: config.auth_url(platform, "https://accounts.google.com"),
            },
        }
    }

    /// Returns the path of a location's posts.
    fn posts_path(account: &ConnectorAccount) -> Result<String, CallError> {
        Ok(format!("/v4/{}/localPosts", account.secrets.require("location")?.expose_secret()))
    }

    /// Returns the path of a post of the location, by the post's name.
    fn post_path(account: &ConnectorAccount, name: &str) -> Result<String, CallError> {
        let id = name.rsplit('/').next().unwrap_or_default();
        let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
        Ok(format!("{}/{id}", Self::posts_path(account)?))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LocalPost {
    name: String,
    #[serde(default)]
    state: String,
    #[serde(default)]
    summary: String,
    search_url: Option<String>,
    create_time: Option<DateTime<Utc>>,
}

impl LocalPost {
    /// Returns the outcome of the post.
    fn outcome(self) -> ReconcileResult {
        match self.state.as_str() {
            "PROCESSING" => ReconcileResult::Pending(PAUSE),
            "REJECTED" => ReconcileResult::Rejected(rejected()),
            _ => ReconcileResult::Found(self.published()),
        }
    }

    fn published(self) -> Published {
        Published::new(self.name, self.search_url)
    }
}

/// Finds a post among the location's newest.
fn find_by_text(post: &OutgoingPost, newest: Vec<LocalPost>, has_next_page: bool) -> ReconcileResult {
    let window = CallWindow::of(post.called_at).with_next_page(has_next_page);
    let times: Vec<_> = newest.iter().map(|one| one.create_time).collect();
    let is_covered = window.is_covered(&times, MAX_RECENT_POSTS);
    let is_match = |one: &LocalPost| window.contains(one.create_time) && is_same(&one.summary, &post.text);
    let (unseen, seen): (Vec<_>, Vec<_>) =
        newest.into_iter().filter(is_match).partition(|one| matches!(one.state.as_str(), "PROCESSING" | "REJECTED"));
    if !seen.is_empty() || unseen.is_empty() {
        return window.result(seen.into_iter().map(LocalPost::published).collect(), is_covered);
    }
    // A single unpublished post with this text is the one that was sent. Several cannot be told apart.
    let mut unseen = unseen.into_iter();
    match (unseen.next(), unseen.next()) {
        (Some(only), None) if post.called_at.is_some() => only.outcome(),
        _ => ReconcileResult::Unsupported,
    }
}

fn rejected() -> CallError {
    let message = "Google rejected this post: its text or image violates the rules for posts.";
    CallError::Permanent(Failure::of(Category::InvalidContent, message).from_platform("REJECTED"))
}

/// Returns the button of a post: the options `action` and `link`.
fn call_to_action(post: &OutgoingPost) -> Result<Option<Value>, CallError> {
    let (link, action) = (options::text(post, "link")?, options::text(post, "action")?);
    if let Some(unknown) = action.filter(|action| !GOOGLE_BUSINESS_ACTIONS.contains(action)) {
        return Err(CallError::invalid(format!(
            "The option action must be one of {}, not {unknown}.",
            GOOGLE_BUSINESS_ACTIONS.join(", ")
        )));
    }
    match (action, link) {
        (None, None) => Ok(None),
        // The button calls the location's phone number.
        (Some("CALL"), _) => Ok(Some(json!({ "actionType": "CALL" }))),
        (action, Some(link)) => {
            Ok(Some(json!({ "actionType": action.unwrap_or(GOOGLE_BUSINESS_ACTIONS[0]), "url": link })))
        }
        (Some(action), None) => Err(CallError::invalid(format!("The action {action} requires the option link."))),
    }
}

/// Returns the body of a local post.
fn local_post(post: &OutgoingPost) -> Result<Value, CallError> {
    let language = options::text(post, "language")?.unwrap_or(LANGUAGE);
    if language.len() > 35 || !language.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        return Err(CallError::invalid("The option language must be a language code, such as de or pt-BR."));
    }
    let mut body = json!({ "languageCode": language, "topicType": "STANDARD" });
    if !post.text.is_empty() {
        body["summary"] = Value::from(post.text.as_str());
    }
    if let Some(action) = call_to_action(post)? {
        body["callToAction"] = action;
    }
    if let Some(image) = post.images.first() {
        body["media"] = json!([{ "mediaFormat": "PHOTO", "sourceUrl": image.url }]);
    }
    Ok(body)
}

#[async_trait]
impl Connector for GoogleBusiness {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::GoogleBusiness)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let application = oauth::application_of(account, &self.config, Platform::GoogleBusiness)?;
        Ok(oauth::renew(&self.client, &self.auth_server(), account, &application).await?)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let token = account.secrets.require("access_token")?;
        let path = Self::posts_path(account)?;
        let request = self.request(Method::POST, &self.hosts.posts, &path, token.expose_secret());
        let created: LocalPost = self.call(Effect::Publishes, request.json(&local_post(post)?)).await?;
        let name = created.name.clone();
        match created.outcome() {
            ReconcileResult::Found(published) => Ok(published),
            ReconcileResult::Rejected(error) => Err(error),
            _ => {
                let mut marker = post.accepted_marker(self.client.now());
                marker.insert(NAME.to_owned(), Value::from(name));
                Err(self.client.accepted(marker, PAUSE))
            }
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Newest {
            #[serde(default)]
            local_posts: Vec<LocalPost>,
            /// A page may be shorter than requested.
            #[serde(default)]
            next_page_token: String,
        }
        let token = account.secrets.require("access_token")?;
        let path = Self::posts_path(account)?;
        let get = |path: &str| self.request(Method::GET, &self.hosts.posts, path, token.expose_secret());
        let name = post.marker.get(NAME).and_then(Value::as_str).filter(|_| post.accepted_at().is_some());
        if let Some(name) = name {
            let known: LocalPost = self.call(Effect::Repeatable, get(&Self::post_path(account, name)?)).await?;
            return Ok(known.outcome());
        }
        let newest: Newest = self.call(Effect::Repeatable, get(&path).query(&[("pageSize", MAX_RECENT_POSTS)])).await?;
        Ok(find_by_text(post, newest.local_posts, !newest.next_page_token.is_empty()))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let token = account.secrets.require("access_token")?;
        let path = Self::post_path(account, &post.external_id)?;
        let request = self.request(Method::DELETE, &self.hosts.posts, &path, token.expose_secret());
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            // Google returns this for a deleted post, and for a location that the user can no longer manage.
            StatusCode::NOT_FOUND => {
                let path = Self::posts_path(account)?;
                let request = self.request(Method::GET, &self.hosts.posts, &path, token.expose_secret());
                self.call::<Value>(Effect::Repeatable, request.query(&[("pageSize", "1")])).await.map(drop)
            }
            status if status.is_success() => Ok(()),
            _ => Err(self.classify(Effect::Repeatable, &response)),
        }
    }
}
