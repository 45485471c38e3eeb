//! Mastodon: many servers, whose URLs users type. `connect.rs` connects accounts in the browser.
//!
//! The same `Idempotency-Key` within an hour returns the first status, so a call with an unknown outcome can be
//! repeated. Later, the account's newest statuses are compared by their source, which is the text as the server stored
//! it; the status itself contains rendered HTML. Compatible servers strip texts, ignore keys, and may have no sources.
//! The hour of a key begins with the first call for the status, when the server has processed the videos.
//!
//! A 404 for a new status means that its parent does not exist. Mastodon rejects missing images and videos with a 422,
//! but compatible servers may also return a 404 for them, so these are checked first.
//!
//! Sources: docs.joinmastodon.org, "media" (v2 upload, 206 while it is processed), "statuses" (post, view, delete,
//! source), "accounts" (verify_credentials, statuses), "Rate limits"; for 4.6 of July 2026.

mod analytics;
mod connect;
mod inbox;
mod limits;
mod rest;
mod video;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{Descriptor, Platform};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use self::rest::{Instance, segment};
use super::address::UrlCheck;
use super::call::{Effect, PlatformClient, image_part};
use super::metrics::Metrics;
use super::oauth::OAuthConnector;
use super::text::comparable::is_same;
use super::{
    AnalyticsConnector, CallError, Clients, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector, Marker,
    MarkerSeed, Medium, OutgoingPost, Published, ReconcileResult, RefreshedTokens, ReplyKind, ReplyTo, Revocation,
    UnpublishPost, Video, VideoStep, VideoTransfer, marker_field, time_marker,
};

/// The name of Crier's applications, which servers show with their posts.
const APP_NAME: &str = "Crier";
/// The maximum number of recent statuses that are searched.
const MAX_RECENT_POSTS: usize = 20;
const VISIBILITIES: [&str; 3] = ["public", "unlisted", "private"];
const NOT_FOUND: &str = "404";

pub(super) struct Mastodon {
    client: PlatformClient,
    addresses: std::sync::Arc<dyn UrlCheck>,
    metrics: Metrics,
}

impl Mastodon {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let client = PlatformClient::new(Platform::Mastodon, clients.guarded.clone(), clock.clone());
        let metrics = Metrics::new(Platform::Mastodon, config, clock);
        Self { client, addresses: clients.addresses.clone(), metrics }
    }

    fn instance(&self, account: &ConnectorAccount) -> Result<Instance<'_>, CallError> {
        let base = account.secrets.require("instance")?.expose_secret().to_owned();
        Ok(Instance { client: &self.client, base, token: Some(account.secrets.require("access_token")?) })
    }

    async fn create_status(&self, instance: &Instance<'_>, post: &OutgoingPost) -> Result<Published, CallError> {
        let mut body = json!({ "status": post.text, "media_ids": media_ids(post)? });
        add_options(&mut body, post)?;
        if let Some(reply_to) = &post.reply_to {
            add_parent(&mut body, instance, reply_to).await?;
        }
        let request = instance
            .request(Method::POST, "/api/v1/statuses")
            .header("Idempotency-Key", marker_field(&post.marker, "key")?)
            .json(&body);
        match instance.call::<Status>(Effect::Publishes, request).await {
            Ok(status) => Ok(status.published()),
            Err(error @ CallError::Permanent(_)) => Err(self.explain_rejection(instance, post, error).await),
            Err(error) => Err(error),
        }
    }

    /// Returns a more specific error if the images or videos of a rejected post are the cause.
    async fn explain_rejection(&self, instance: &Instance<'_>, post: &OutgoingPost, error: CallError) -> CallError {
        for medium in post.media() {
            let (reference, what) = match medium {
                Medium::Image(image) => (image.uploaded.as_ref().map(|uploaded| &uploaded.name), "an image"),
                Medium::Video(video) => (video.uploaded.as_ref(), "a video"),
            };
            let Some(id) = reference.and_then(Value::as_str) else { continue };
            match instance.media_status(id).await {
                Ok(StatusCode::OK) => {}
                Ok(StatusCode::PARTIAL_CONTENT) => {
                    let message = format!("Mastodon is still processing {what} of this post.");
                    return CallError::Transient(Failure::of(Category::Media, message));
                }
                Ok(StatusCode::NOT_FOUND) => {
                    let message = format!("Mastodon deleted {what} that was uploaded earlier. Crier uploads it again.");
                    return CallError::UploadsMissing(Failure::of(Category::Media, message));
                }
                // The server's error says more than a failed lookup.
                Ok(_) | Err(_) => {}
            }
        }
        error
    }
}

#[async_trait]
impl Connector for Mastodon {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Mastodon)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    /// Tokens do not expire. Checks that the server still accepts this one.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        self.instance(account)?.own_account().await?;
        Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })
    }

    async fn limits(&self, account: &ConnectorAccount) -> Result<Option<AccountLimits>, CallError> {
        limits::read(&self.instance(account)?).await.map(Some)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        key_marker("crier", seed)
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
        let mut form = crier_http::multipart::Form::new().part("file", file);
        if let Some(alt) = &image.alt_text {
            form = form.text("description", alt.clone());
        }
        let instance = self.instance(account)?;
        let request = instance.request(Method::POST, "/api/v2/media").multipart(form);
        // 202: the upload is still being processed. If that takes long, the post is retried.
        let uploaded: Media = instance.call(Effect::Repeatable, request).await?;
        Ok(Value::from(uploaded.id))
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Uploaded
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        _post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        video::take_step(&self.instance(account)?, video).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        match self.create_status(&self.instance(account)?, post).await {
            Err(CallError::Permanent(failure)) if post.reply_to.is_some() && is_not_found(&failure) => {
                let message = "Mastodon does not have the post that this one replies to.";
                let failure = Failure::of(Category::PlatformRejected, message).from_platform(NOT_FOUND);
                Err(CallError::ParentMissing(failure))
            }
            sent => sent,
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let instance = self.instance(account)?;
        let id = account.secrets.require("account_id")?;
        let parent = post.reply_to.as_ref().map(|reply_to| reply_to.parent.external_id.as_str());
        let is_candidate = |status: &Status| {
            status.in_reply_to_id.as_deref() == parent && status.media_attachments.len() == post.media().len()
        };
        let text_matches = |text: &str| is_same(text, &post.text);
        instance.find(id.expose_secret(), post.called_at, is_candidate, text_matches).await
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let instance = self.instance(account)?;
        let request = instance.request(Method::DELETE, &format!("/api/v1/statuses/{}", segment(&post.external_id)));
        // Since 4.4. Otherwise, the images remain for a day, to be used in another post.
        let request = request.query(&[("delete_media", "true")]);
        match instance.call::<Value>(Effect::Repeatable, request).await {
            Err(CallError::Permanent(failure)) if is_not_found(&failure) => Ok(()),
            Err(CallError::Permanent(failure)) if failure.message.contains("scope") => {
                let message = "This account was connected without permission to delete posts. Connect it again.";
                let failure = Failure::with_code(Category::Account, "missing_permission", message);
                Err(CallError::Permanent(failure.from_platform("403")))
            }
            deleted => deleted.map(drop),
        }
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Token)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let secret = |name: &str| account.secrets.require(name);
        let (id, key, token) = (secret("client_id")?, secret("client_secret")?, secret("access_token")?);
        let form = [
            ("client_id", id.expose_secret()),
            ("client_secret", key.expose_secret()),
            ("token", token.expose_secret()),
        ];
        let instance = self.instance(account)?;
        let request = instance.request(Method::POST, "/oauth/revoke").form(&form);
        instance.call::<Value>(Effect::Repeatable, request).await.map(drop)
    }
}

/// Returns an idempotency key, and the time of the first attempt.
fn key_marker(prefix: &str, seed: MarkerSeed) -> Marker {
    let mut marker = time_marker(seed);
    marker.insert("key".to_owned(), Value::from(format!("{prefix}-{}-{:016x}", seed.target_id, seed.random)));
    marker
}

fn media_ids(post: &OutgoingPost) -> Result<Vec<&Value>, CallError> {
    let id = |medium| match medium {
        Medium::Image(image) => image.name(),
        Medium::Video(video) => video.reference(),
    };
    post.media().into_iter().map(id).collect()
}

/// Adds the options of the post: `visibility`, `spoiler_text`, `sensitive`, `language`.
fn add_options(body: &mut Value, post: &OutgoingPost) -> Result<(), CallError> {
    if let Some(visibility) = post.options.get("visibility") {
        if !visibility.as_str().is_some_and(|word| VISIBILITIES.contains(&word)) {
            return Err(CallError::invalid("The option visibility must be public, unlisted or private."));
        }
        body["visibility"] = visibility.clone();
    }
    for name in ["spoiler_text", "language"] {
        if let Some(text) = post.options.get(name) {
            body[name] = Value::from(text.as_str().ok_or_else(|| CallError::invalid("The options must be text."))?);
        }
    }
    if let Some(sensitive) = post.options.get("sensitive") {
        body["sensitive"] =
            Value::from(sensitive.as_bool().ok_or_else(|| CallError::invalid("sensitive must be true or false."))?);
    }
    Ok(())
}

/// Makes a status a reply that is as visible as its parent. By custom, later parts of a public thread are unlisted, so
/// that they do not fill the public timelines.
async fn add_parent(body: &mut Value, instance: &Instance<'_>, reply_to: &ReplyTo) -> Result<(), CallError> {
    let parent = reply_to.parent.external_id.as_str();
    body["in_reply_to_id"] = Value::from(parent);
    // The account's default, which applies without the option, may be private.
    if body["visibility"].is_null()
        && let Some(visibility) = instance.visibility(parent).await?
    {
        body["visibility"] = Value::from(visibility);
    }
    if reply_to.kind == ReplyKind::ThreadPart && body["visibility"] == "public" {
        body["visibility"] = Value::from("unlisted");
    }
    Ok(())
}

fn is_not_found(failure: &Failure) -> bool {
    failure.platform_code.as_deref() == Some(NOT_FOUND)
}

#[derive(Deserialize)]
struct Media {
    id: String,
}

#[derive(Deserialize)]
struct Status {
    id: String,
    url: Option<String>,
    created_at: DateTime<Utc>,
    in_reply_to_id: Option<String>,
    #[serde(default)]
    media_attachments: Vec<Value>,
    /// The text as HTML.
    #[serde(default)]
    content: String,
    /// The application that published it. Not every server shows one.
    application: Option<PostingApplication>,
}

#[derive(Deserialize)]
struct PostingApplication {
    name: Option<String>,
}

impl Status {
    /// Returns whether Crier may have published it.
    fn is_ours(&self) -> bool {
        self.application
            .as_ref()
            .and_then(|application| application.name.as_deref())
            .is_none_or(|name| name == APP_NAME)
    }

    fn published(self) -> Published {
        Published::new(self.id, self.url)
    }
}
