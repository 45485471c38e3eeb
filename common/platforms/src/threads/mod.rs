//! Threads. A post is created in containers (`meta/containers.rs`), for which Threads downloads the images and videos.
//! `connect.rs` connects accounts in the browser.
//!
//! `auto_publish_text` would save two calls, but there would be no container to show the outcome after a lost response.
//!
//! A part of a thread and a first comment are replies.
//!
//! Sources: Meta's sample `threads_api` and the pages "Posts", "Publishing limits", "Create Replies", "Delete Posts"
//! and "Get access tokens" of the Threads API, as of January to September 2026.

mod analytics;
mod connect;
mod inbox;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Descriptor, Platform};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::analytics::AnalyticsConnector;
use super::call::PlatformClient;
use super::inbox::permission::missing_permission;
use super::meta::containers::{ContainerRequest, Containers, is_id};
use super::meta::graph::Access;
use super::meta::posts;
use super::metrics::Metrics;
use super::oauth::OAuthConnector;
use super::{
    CallError, Clients, Connector, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Medium, OutgoingPost,
    Published, ReconcileResult, RefreshedTokens, StageResult, UnpublishPost, options, time_marker,
};

/// The version of the API.
const VERSION: &str = "v1.0";

pub(super) struct Threads {
    client: PlatformClient,
    metrics: Metrics,
    /// `https://graph.threads.net`
    host: String,
    /// `https://graph.threads.net/v1.0`
    graph: String,
    /// The authorization page.
    dialog: String,
}

impl Threads {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let version = config.of(Platform::Threads).api_version.clone().unwrap_or_else(|| VERSION.to_owned());
        let host = config.base_url(Platform::Threads, "https://graph.threads.net");
        let site = config.auth_url(Platform::Threads, "https://threads.net");
        Self {
            client: PlatformClient::new(Platform::Threads, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Threads, config, clock),
            graph: format!("{host}/{version}"),
            host,
            dialog: format!("{site}/oauth/authorize"),
        }
    }

    fn access(&self, token: SecretString) -> Access<'_> {
        Access { client: &self.client, graph: &self.graph, token, app_secret: SecretString::default() }
    }

    fn containers<'a>(&'a self, account: &'a ConnectorAccount) -> Result<Containers<'a>, CallError> {
        Ok(Containers {
            access: self.access(account.secrets.require("access_token")?),
            account: &account.external_id,
            create: "threads",
            publish: "threads_publish",
            list: "threads",
            quota: "threads_publishing_limit",
            status_field: "status",
            reason_field: "error_message",
            text: "text",
            is_story: false,
        })
    }
}

/// Returns the request for one image or video.
fn medium_request(medium: Medium<'_>) -> ContainerRequest {
    let (media_type, name, url, alt) = match medium {
        Medium::Image(image) => ("IMAGE", "image_url", &image.url, &image.alt_text),
        Medium::Video(video) => ("VIDEO", "video_url", &video.url, &video.alt_text),
    };
    let mut request = ContainerRequest::new();
    request.insert("media_type".to_owned(), json!(media_type));
    request.insert(name.to_owned(), Value::from(url.as_str()));
    if let Some(alt) = alt {
        request.insert("alt_text".to_owned(), Value::from(alt.as_str()));
    }
    request
}

/// Returns the request for one image or video of a carousel.
fn item_request(medium: Medium<'_>) -> ContainerRequest {
    let mut request = medium_request(medium);
    request.insert("is_carousel_item".to_owned(), Value::from(true));
    request
}

/// Returns the request for the post.
fn post_request(post: &OutgoingPost, children: &[&str]) -> Result<ContainerRequest, CallError> {
    let media = post.media();
    let mut request = match media.as_slice() {
        [] => ContainerRequest::from_iter([("media_type".to_owned(), json!("TEXT"))]),
        [only] => medium_request(*only),
        _ => ContainerRequest::from_iter([
            ("media_type".to_owned(), json!("CAROUSEL")),
            ("children".to_owned(), Value::from(children.join(","))),
        ]),
    };
    request.insert("text".to_owned(), Value::from(post.text.as_str()));
    if let Some(reply_to) = &post.reply_to {
        let parent = reply_to.parent.external_id.as_str();
        // Without a parent, it would become a post of its own.
        if !is_id(parent) {
            let message = "Crier does not know the ID of the post to reply to on Threads.";
            return Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message)));
        }
        request.insert("reply_to_id".to_owned(), Value::from(parent));
        // The options apply to the post itself.
        return Ok(request);
    }
    // A link is shown as a card, which only a post without images and videos can have.
    let link = options::text(post, "link")?.filter(|_| media.is_empty());
    for (name, value) in [
        ("link_attachment", link),
        ("reply_control", options::text(post, "reply_control")?),
        ("topic_tag", options::text(post, "topic_tag")?),
    ] {
        if let Some(value) = value {
            request.insert(name.to_owned(), Value::from(value));
        }
    }
    Ok(request)
}

#[async_trait]
impl Connector for Threads {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Threads)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        self.long_lived().refresh(account).await
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn has_stages(&self, _post: &OutgoingPost) -> bool {
        true
    }

    async fn stage(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<StageResult, CallError> {
        self.containers(account)?.stage(post, item_request, |children| post_request(post, children)).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        self.containers(account)?.publish(post).await
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        self.containers(account)?.reconcile(post).await
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        if !is_id(&post.external_id) {
            return Err(self.client.unknown_post());
        }
        let (target, what) = (ConnectTarget::Default, "delete this account's posts");
        let missing = missing_permission(Platform::Threads, target, what, "threads_delete");
        let access = self.access(account.secrets.require("access_token")?);
        posts::delete(&access, account, &post.external_id, missing).await
    }
}
