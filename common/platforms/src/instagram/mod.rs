//! Instagram, for professional accounts. Two logins lead to the same API: Instagram's own (`graph.instagram.com`), and
//! Facebook's, for an account behind a page (`graph.facebook.com`, with the page's token). `connect.rs` has both.
//!
//! A post is created in containers (`meta/containers.rs`), for which Instagram downloads the images and videos. A single
//! video is a reel. First comments use the inbox's calls (`inbox.rs`). Only Facebook's login lets an application delete
//! posts.
//!
//! Sources: Meta's Business SDK v25.0.2 (`iguser.py`: media, media_publish, content_publishing_limit), "Content
//! publishing", "IG User: media" (reels, stories), "IG Media" (deleting), "IG Comment" and "Error codes" of the
//! Instagram platform, as of December 2025 to September 2026.

mod analytics;
mod connect;
mod inbox;
mod requests;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Descriptor, Platform};
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient};
use super::meta::VERSION;
use super::meta::containers::{self, Containers};
use super::meta::graph::Access;
use super::meta::posts;
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    CallError, Clients, Connector, ConnectorAccount, InboxConnector, Marker, MarkerSeed, OutgoingPost, Published,
    ReconcileResult, RefreshedTokens, StageResult, UnpublishPost, time_marker,
};
use crate::inbox::permission::missing_permission;

/// The field of an account's secrets that names the login. If it is missing, the login is Instagram's own.
const LOGIN: &str = "login";
const BY_FACEBOOK: &str = "facebook";

pub(super) struct Instagram {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    /// `https://graph.instagram.com`
    host: String,
    /// `https://graph.instagram.com/v25.0`
    graph: String,
    /// `https://graph.facebook.com/v25.0`
    facebook_graph: String,
    /// The host that issues the first token.
    tokens: String,
    /// The authorization pages.
    dialog: String,
    facebook_dialog: String,
}

impl Instagram {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let version = |platform| config.of(platform).api_version.clone().unwrap_or_else(|| VERSION.to_owned());
        let host = config.base_url(Platform::Instagram, "https://graph.instagram.com");
        let facebook = config.base_url(Platform::Facebook, "https://graph.facebook.com");
        let facebook_site = config.auth_url(Platform::Facebook, "https://www.facebook.com");
        let site = config.auth_url(Platform::Instagram, "https://www.instagram.com");
        Self {
            client: PlatformClient::new(Platform::Instagram, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Instagram, config, clock),
            config: config.clone(),
            graph: format!("{host}/{}", version(Platform::Instagram)),
            host,
            facebook_graph: format!("{facebook}/{}", version(Platform::Facebook)),
            tokens: config.base_url(Platform::Instagram, "https://api.instagram.com"),
            dialog: format!("{site}/oauth/authorize"),
            facebook_dialog: format!("{facebook_site}/{}/dialog/oauth", version(Platform::Facebook)),
        }
    }

    /// Returns the API access of an account, with the login that it was connected with.
    fn access(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError> {
        let token = account.secrets.require("access_token")?;
        if !is_by_facebook(account) {
            return Ok(self.own_access(token));
        }
        let application = oauth::application_of(account, &self.config, Platform::Instagram)?;
        let (graph, app_secret) = (self.facebook_graph.as_str(), application.client_secret);
        Ok(Access { client: &self.client, graph, token, app_secret })
    }

    /// Returns the API access with a token of Instagram's own login.
    fn own_access(&self, token: SecretString) -> Access<'_> {
        Access { client: &self.client, graph: &self.graph, token, app_secret: SecretString::default() }
    }

    /// Checks the id of a post or a comment, which becomes part of a URL.
    fn check_id<'a>(&self, id: &'a str) -> Result<&'a str, CallError> {
        if containers::is_id(id) { Ok(id) } else { Err(self.client.unknown_post()) }
    }

    fn containers<'a>(
        &'a self,
        account: &'a ConnectorAccount,
        post: &OutgoingPost,
    ) -> Result<Containers<'a>, CallError> {
        Ok(Containers {
            access: self.access(account)?,
            account: &account.external_id,
            create: "media",
            publish: "media_publish",
            list: "media",
            quota: "content_publishing_limit",
            status_field: "status_code",
            reason_field: "status",
            text: "caption",
            is_story: requests::is_story(post),
        })
    }
}

fn is_by_facebook(account: &ConnectorAccount) -> bool {
    account.secrets.get(LOGIN).is_some_and(|login| login.expose_secret() == BY_FACEBOOK)
}

/// Returns the failure of a deletion on an account that was connected with Instagram's own login.
pub(crate) fn cannot_delete() -> Failure {
    let message = "Instagram lets applications delete posts only on accounts that were connected with Facebook. Delete \
                   the post on Instagram.";
    Failure::with_code(Category::PlatformRejected, "not_supported", message)
}

#[async_trait]
impl Connector for Instagram {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Instagram)
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

    /// A token of Instagram's own login lasts 60 days and is renewed with itself. A page's token does not expire.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        if is_by_facebook(account) {
            let access = self.access(account)?;
            let request = access.request(Method::GET, &account.external_id).query(&[("fields", "id")]);
            access.call::<Value>(Effect::Repeatable, request).await?;
            return Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None });
        }
        self.long_lived().refresh(account).await
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn has_stages(&self, _post: &OutgoingPost) -> bool {
        true
    }

    async fn stage(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<StageResult, CallError> {
        // A comment needs no container.
        if post.reply_to.is_some() {
            return Ok(StageResult::Ready);
        }
        requests::check(post)?;
        let post_request = |children: &[&str]| Ok(requests::post_request(post, children));
        self.containers(account, post)?.stage(post, requests::item_request, post_request).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        match &post.reply_to {
            Some(reply_to) => {
                self.publish_comment(account, self.check_id(&reply_to.parent.external_id)?, &post.text).await
            }
            None => self.containers(account, post)?.publish(post).await,
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        match &post.reply_to {
            Some(reply_to) => self.reconcile_comment(account, self.check_id(&reply_to.parent.external_id)?, post).await,
            None => self.containers(account, post)?.reconcile(post).await,
        }
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let id = self.check_id(&post.external_id)?;
        let missing = match post.is_comment {
            true => Self::missing_for_comments(account, "delete this account's comments"),
            false if is_by_facebook(account) => missing_permission(
                Platform::Instagram,
                ConnectTarget::Page,
                "delete this account's posts",
                "instagram_manage_contents",
            ),
            false => return Err(CallError::Permanent(cannot_delete())),
        };
        posts::delete(&self.access(account)?, account, id, missing).await
    }
}
