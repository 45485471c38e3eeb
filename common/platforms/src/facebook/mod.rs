//! Facebook pages, via the Graph API (`meta/graph.rs`). `connect.rs` connects them in the browser.
//!
//! Images are uploaded as unpublished photos, which the post references. After a call with an unknown outcome, the
//! page's newest posts since the first attempt are searched for the same text. `video.rs` publishes videos. First
//! comments use the inbox's calls (`inbox.rs`). A page's token cannot be revoked separately: revoking the user's
//! permissions would disconnect the user's other pages. So a disconnect only deletes the token in Crier.
//!
//! Sources: Meta's Business SDK v25.0.2 (`page.py`: feed, photos, published_posts), "Page Post" (deleting), "Error
//! handling" and "Changelog" of the Graph API, as of June to September 2026.

mod analytics;
mod connect;
mod inbox;
mod video;
mod video_state;
mod video_upload;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::platform::{ConnectTarget, Descriptor, Platform};
use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};

use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient, image_part};
use super::meta::VERSION;
use super::meta::graph::{Access, List, parse_time};
use super::meta::inbox::is_object_id;
use super::meta::posts;
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    CallError, Clients, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector, Marker, MarkerSeed,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, UnpublishPost, Video, VideoStep, VideoTransfer,
    time_marker,
};
use crate::inbox::permission::missing_permission;
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};

/// The maximum number of recent posts that are searched.
const MAX_RECENT_POSTS: usize = 25;

pub(super) struct Facebook {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    /// `https://graph.facebook.com/v25.0`
    graph: String,
    /// The authorization page.
    dialog: String,
}

impl Facebook {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let version = config.of(Platform::Facebook).api_version.clone().unwrap_or_else(|| VERSION.to_owned());
        let graph = config.base_url(Platform::Facebook, "https://graph.facebook.com");
        let site = config.auth_url(Platform::Facebook, "https://www.facebook.com");
        Self {
            client: PlatformClient::new(Platform::Facebook, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Facebook, config, clock),
            config: config.clone(),
            graph: format!("{graph}/{version}"),
            dialog: format!("{site}/{version}/dialog/oauth"),
        }
    }

    fn access(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Facebook)?;
        let token = account.secrets.require("access_token")?;
        Ok(Access { client: &self.client, graph: &self.graph, token, app_secret: application.client_secret })
    }

    /// Checks the id of a post or a comment, which becomes part of a URL.
    fn check_id<'a>(&self, id: &'a str) -> Result<&'a str, CallError> {
        if is_object_id(id) { Ok(id) } else { Err(self.client.unknown_post()) }
    }
}

#[async_trait]
impl Connector for Facebook {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Facebook)
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

    /// A page's token does not expire. Checks that it is still accepted.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let access = self.access(account)?;
        let request = access.request(Method::GET, &account.external_id).query(&[("fields", "id")]);
        access.call::<Value>(Effect::Repeatable, request).await?;
        Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Uploaded
    }

    async fn upload(
        &self,
        account: &ConnectorAccount,
        _post: &OutgoingPost,
        image: &Image,
    ) -> Result<Value, CallError> {
        let file = image_part(image)?;
        let mut form = crier_http::multipart::Form::new().text("published", "false").part("source", file);
        if let Some(alt) = &image.alt_text {
            form = form.text("alt_text_custom", alt.clone());
        }
        let access = self.access(account)?;
        let request = access.request(Method::POST, &format!("{}/photos", account.external_id)).multipart(form);
        let photo: Created = access.call(Effect::Repeatable, request).await?;
        Ok(Value::from(photo.id))
    }

    /// A video for the feed is downloaded by Facebook. Its only step is to find that out.
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

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        if let Some(reply_to) = &post.reply_to {
            return self.publish_comment(account, self.check_id(&reply_to.parent.external_id)?, &post.text).await;
        }
        if let Some(video) = post.video() {
            return self.publish_video(account, post, video).await;
        }
        let mut body = json!({ "message": post.text, "published": true });
        let photos = post.images.iter().map(|image| Ok(json!({ "media_fbid": image.name()? })));
        let photos = photos.collect::<Result<Vec<_>, CallError>>()?;
        if !photos.is_empty() {
            body["attached_media"] = Value::from(photos);
        } else if let Some(link) = post.options.get("link") {
            body["link"] = link.clone();
        }
        let access = self.access(account)?;
        let request = access.request(Method::POST, &format!("{}/feed", account.external_id)).json(&body);
        let created: Created = access.call(Effect::Publishes, request).await?;
        Ok(published(created.id, None))
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        if let Some(reply_to) = &post.reply_to {
            return self.reconcile_comment(account, self.check_id(&reply_to.parent.external_id)?, post).await;
        }
        if let Some(video) = post.video() {
            return self.reconcile_video(account, post, video).await;
        }
        let access = self.access(account)?;
        let request = access
            .request(Method::GET, &format!("{}/published_posts", account.external_id))
            .query(&[("fields", "id,message,created_time,permalink_url"), ("limit", &MAX_RECENT_POSTS.to_string())]);
        let newest: List<Post> = access.call(Effect::Repeatable, request).await?;
        let window = CallWindow::of(post.called_at).with_next_page(newest.has_next_page());
        let listed = newest.data.into_iter().map(|found| Listed {
            at: parse_time(&found.created_time),
            is_same: is_same(found.message.as_deref().unwrap_or_default(), &post.text),
            published: published(found.id, found.permalink_url),
        });
        Ok(find(window, listed.collect(), MAX_RECENT_POSTS))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        // A video is deleted with its post.
        let id = self.check_id(post.other_ids.first().unwrap_or(&post.external_id))?;
        let missing = match post.is_comment {
            true => inbox::missing_engagement("delete this account's comments"),
            false => missing_permission(
                Platform::Facebook,
                ConnectTarget::Default,
                "delete this account's posts",
                "pages_manage_posts",
            ),
        };
        posts::delete(&self.access(account)?, account, id, missing).await
    }
}

fn published(id: String, url: Option<String>) -> Published {
    let url = url.unwrap_or_else(|| format!("https://www.facebook.com/{id}"));
    Published::new(id, Some(url))
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

#[derive(Deserialize)]
struct Post {
    id: String,
    message: Option<String>,
    #[serde(default)]
    created_time: String,
    permalink_url: Option<String>,
}
