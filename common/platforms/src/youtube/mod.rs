//! YouTube, Data API v3: the videos of a channel. `connect.rs` connects it in the browser.
//!
//! A video is sent in chunks to a session, whose URL is stored before it is used (`upload.rs`). The video exists when
//! the last chunk has arrived, so the publishing request sends that one. After a call with an unknown outcome, the
//! session says whether it has the whole file. YouTube may reject a video later, while it processes it; `analytics.rs`
//! finds that out.
//!
//! Sources: the discovery document of the API (4 November 2026) and its revision history; developers.google.com/youtube
//! ("Resumable Uploads", "Errors", "Quota Calculator"); developers.google.com/identity.

mod analytics;
mod comments;
mod connect;
mod inbox;
mod rest;
mod upload;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::platform::{Descriptor, Platform};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;

pub(super) use self::connect::MANAGE;
use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient};
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    CallError, Clients, Connector, ConnectorAccount, InboxConnector, Marker, MarkerSeed, OutgoingPost, Published,
    ReconcileResult, RefreshedTokens, Revocation, UnpublishPost, UploadQuota, Video, VideoStep, VideoTransfer,
    time_marker,
};

/// The maximum length of the id of a video or a comment.
const MAX_ID: usize = 200;

/// The hosts of the APIs. A configured base URL replaces the first two.
struct Hosts {
    api: String,
    /// The host of the token endpoint.
    tokens: String,
    /// The host of the authorization page.
    site: String,
}

pub(super) struct Youtube {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    hosts: Hosts,
}

impl Youtube {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let platform = Platform::Youtube;
        Self {
            client: PlatformClient::new(platform, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(platform, config, clock),
            config: config.clone(),
            hosts: Hosts {
                api: config.base_url(platform, "https://www.googleapis.com"),
                tokens: config.base_url(platform, "https://oauth2.googleapis.com"),
                site: config.auth_url(platform, "https://accounts.google.com"),
            },
        }
    }
}

/// Returns whether a text is the id of a video or a comment.
fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    !id.is_empty() && id.len() <= MAX_ID && id.bytes().all(is_allowed)
}

fn video_url(id: &str) -> String {
    format!("https://www.youtube.com/watch?v={id}")
}

fn published(id: &str) -> Published {
    Published::new(id, Some(video_url(id)))
}

#[async_trait]
impl Connector for Youtube {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Youtube)
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
        let application = oauth::application_of(account, &self.config, Platform::Youtube)?;
        Ok(oauth::renew(&self.client, &self.auth_server(), account, &application).await?)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Uploaded
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        self.send_video_step(account, post, video).await
    }

    fn upload_quota(&self, account: &ConnectorAccount) -> Option<UploadQuota> {
        Some(self.quota_of(account.secrets.get("client_id")?.expose_secret()))
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        match &post.reply_to {
            Some(reply_to) => self.publish_comment(account, &reply_to.parent.external_id, &post.text).await,
            None => self.publish_video(account, post).await,
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        match &post.reply_to {
            Some(reply_to) => self.reconcile_comment(account, &reply_to.parent.external_id, post).await,
            None => self.reconcile_video(account, post).await,
        }
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let (list, purpose) = match post.is_comment {
            true => ("comments", "delete this account's comments"),
            false => ("videos", "delete this account's posts"),
        };
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::DELETE, &format!("/youtube/v3/{list}"), token.expose_secret());
        let request = request.query(&[("id", &post.external_id)]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            StatusCode::NOT_FOUND => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(comments::with_permission(self.classify(Effect::Repeatable, &response), purpose)),
        }
    }

    /// Google revokes everything that the person has granted to the application for this channel.
    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Grant)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let token = account.secrets.require("refresh_token")?;
        let request = self.client.request(Method::POST, &format!("{}/revoke", self.hosts.tokens));
        let request = request.form(&[("token", token.expose_secret())]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            // The token is no longer valid.
            StatusCode::BAD_REQUEST => Ok(()),
            status if status.is_success() => Ok(()),
            _ => Err(self.client.classify_status(Effect::Repeatable, &response, None, None)),
        }
    }
}
