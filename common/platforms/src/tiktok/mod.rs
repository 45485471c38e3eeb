//! TikTok: posts with photos or a video, with the Content Posting API. `connect.rs` connects accounts in the browser,
//! `api.rs` has the calls and their errors, `video.rs` the uploads of videos, and `analytics.rs` the metrics.
//!
//! TikTok accepts a post, downloads its images and publishes it later. The response to a publish contains a
//! `publish_id`, whose status is requested until it is final. If that response is lost, a photo post cannot be found,
//! and a user decides. The `publish_id` of a video is known before it is published.
//!
//! The visibility has no default, as TikTok's guidelines for third-party applications require.
//!
//! Sources: TikTok's documents "Photo post", "Query creator info" and "Get post status" (2025), "OAuth token management"
//! (November 2026); the codes of errors from Postiz' connector of August 2026.

mod analytics;
mod api;
mod connect;
mod video;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::platform::{Descriptor, Platform};
use http::Method;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{Effect, PlatformClient};
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    AnalyticsConnector, CallError, Clients, Connector, ConnectorAccount, Marker, OutgoingPost, Published,
    ReconcileResult, RefreshedTokens, Revocation, Video, VideoStep, VideoTransfer, options,
};

/// The bounds of the pause before the status is requested again. Between them, the pause equals the time waited so far.
const MIN_PAUSE: TimeDelta = TimeDelta::seconds(3);
const MAX_PAUSE: TimeDelta = TimeDelta::minutes(5);

/// The fields of the marker of an accepted post.
const PUBLISH_ID: &str = "publish_id";
const IS_VIDEO: &str = "is_video";

pub(super) struct Tiktok {
    client: PlatformClient,
    config: PlatformsConfig,
    /// `https://open.tiktokapis.com`
    api: String,
    /// The authorization page.
    dialog: String,
    metrics: Metrics,
}

impl Tiktok {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let site = config.auth_url(Platform::Tiktok, "https://www.tiktok.com");
        Self {
            client: PlatformClient::new(Platform::Tiktok, clients.trusted.clone(), clock.clone()),
            config: config.clone(),
            api: config.base_url(Platform::Tiktok, "https://open.tiktokapis.com"),
            dialog: format!("{site}/v2/auth/authorize/"),
            metrics: Metrics::new(Platform::Tiktok, config, clock),
        }
    }
}

impl Tiktok {
    async fn publish_status(&self, account: &ConnectorAccount, publish_id: &str) -> Result<PublishStatus, CallError> {
        let token = account.secrets.require("access_token")?;
        let body = json!({ "publish_id": publish_id });
        self.post(Effect::Repeatable, "/v2/post/publish/status/fetch/", &token, &body).await
    }

    /// Returns what the account permits, if it permits this visibility.
    async fn creator(&self, token: &SecretString, privacy_level: &str) -> Result<CreatorInfo, CallError> {
        let creator: CreatorInfo =
            self.post(Effect::Repeatable, "/v2/post/publish/creator_info/query/", token, &json!({})).await?;
        let levels = &creator.privacy_level_options;
        if !levels.is_empty() && !levels.iter().any(|one| one == privacy_level) {
            let message = "TikTok does not allow this visibility for this account. Choose another visibility.";
            return Err(CallError::invalid(message));
        }
        Ok(creator)
    }

    async fn publish_photos(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<CallError, CallError> {
        #[derive(Deserialize)]
        struct Accepted {
            publish_id: String,
        }
        let level = privacy_level(post)?;
        let token = account.secrets.require("access_token")?;
        let creator = self.creator(&token, level).await?;
        let body = init_body(post, level, &creator)?;
        let accepted: Accepted = self.post(Effect::Publishes, "/v2/post/publish/content/init/", &token, &body).await?;
        Ok(self.accepted(post, &accepted.publish_id))
    }

    /// Returns the result of a publish: TikTok has accepted the post and publishes it later.
    fn accepted(&self, post: &OutgoingPost, publish_id: &str) -> CallError {
        let mut marker = post.accepted_marker(self.client.now());
        marker.insert(PUBLISH_ID.to_owned(), Value::from(publish_id));
        marker.insert(IS_VIDEO.to_owned(), Value::from(post.video().is_some()));
        self.client.accepted(marker, MIN_PAUSE)
    }
}

/// Returns TikTok's name for the visibility of a post.
fn privacy_level(post: &OutgoingPost) -> Result<&'static str, CallError> {
    let level = match options::text(post, "visibility")? {
        Some("public") => "PUBLIC_TO_EVERYONE",
        Some("friends") => "MUTUAL_FOLLOW_FRIENDS",
        Some("followers") => "FOLLOWER_OF_CREATOR",
        Some("private") => "SELF_ONLY",
        _ => {
            let accepted = options::TIKTOK_VISIBILITIES.join(", ");
            return Err(CallError::invalid(format!(
                "A TikTok post requires the option visibility: one of {accepted}."
            )));
        }
    };
    if level == "SELF_ONLY" && options::flag(post, "brand_content") {
        return Err(CallError::invalid(
            "TikTok does not accept the option brand_content with the visibility private. Choose another visibility, or \
             remove brand_content.",
        ));
    }
    Ok(level)
}

/// What the account currently permits an application to do.
#[derive(Deserialize)]
struct CreatorInfo {
    #[serde(default)]
    privacy_level_options: Vec<String>,
    #[serde(default)]
    comment_disabled: bool,
    #[serde(default)]
    duet_disabled: bool,
    #[serde(default)]
    stitch_disabled: bool,
    /// Seconds.
    max_video_post_duration_sec: Option<i64>,
}

/// Returns the body of a publish with photos.
fn init_body(post: &OutgoingPost, privacy_level: &str, creator: &CreatorInfo) -> Result<Value, CallError> {
    let flag = |name| options::flag(post, name);
    let mut info = json!({
        "description": post.text,
        "privacy_level": privacy_level,
        "disable_comment": creator.comment_disabled || flag("disable_comment"),
        "auto_add_music": flag("auto_add_music"),
        "brand_content_toggle": flag("brand_content"),
        "brand_organic_toggle": flag("brand_organic"),
    });
    if let Some(title) = options::text(post, "title")? {
        info["title"] = Value::from(title);
    }
    let urls: Vec<&str> = post.images.iter().map(|image| image.url.as_str()).collect();
    Ok(json!({
        "media_type": "PHOTO",
        "post_mode": "DIRECT_POST",
        "post_info": info,
        "source_info": { "source": "PULL_FROM_URL", "photo_images": urls, "photo_cover_index": 0 },
    }))
}

#[derive(Deserialize)]
struct PublishStatus {
    #[serde(default)]
    status: String,
    #[serde(default)]
    fail_reason: String,
    /// The number of bytes of a video that TikTok has.
    uploaded_bytes: Option<u64>,
    /// The ids of public posts, available after moderation. The spelling is TikTok's.
    #[serde(default, rename = "publicaly_available_post_id")]
    public_ids: Vec<Value>,
}

#[async_trait]
impl Connector for Tiktok {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Tiktok)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Tiktok)?;
        let refresh_token = account.secrets.require("refresh_token")?;
        let form = [("grant_type", "refresh_token"), ("refresh_token", refresh_token.expose_secret())];
        let tokens = self.tokens(&application, &form).await?;
        Ok(oauth::renewed(account, &tokens, self.client.now()))
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

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        Err(match post.video() {
            Some(video) => self.publish_video(account, post, video).await?,
            None => self.publish_photos(account, post).await?,
        })
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let accepted_at = post.accepted_at();
        let accepted = post.marker.get(PUBLISH_ID).and_then(Value::as_str).filter(|_| accepted_at.is_some());
        let Some(id) = video::publish_id(post).or_else(|| accepted.map(str::to_owned)) else {
            return Ok(ReconcileResult::Unsupported);
        };
        let is_accepted = accepted == Some(id.as_str());
        let found = self.publish_status(account, &id).await?;
        Ok(match found.status.as_str() {
            "PUBLISH_COMPLETE" => {
                let is_video = post.video().is_some() || is_video(&post.marker);
                ReconcileResult::Found(published(account, &found.public_ids, is_video))
            }
            "FAILED" => ReconcileResult::Rejected(self.failed(&found.fail_reason)),
            // The call ended before TikTok had the last chunk.
            _ if !is_accepted && post.video().is_some_and(|video| found.lacks_bytes_of(video.size)) => {
                ReconcileResult::Absent
            }
            _ => {
                let since = accepted_at.filter(|_| is_accepted).or(post.called_at);
                let waited = since.map_or(MAX_PAUSE, |at| self.client.now() - at);
                ReconcileResult::Pending(waited.clamp(MIN_PAUSE, MAX_PAUSE))
            }
        })
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Grant)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Tiktok)?;
        let token = account.secrets.require("access_token")?;
        let form = [
            ("client_key", application.client_id.as_str()),
            ("client_secret", application.client_secret.expose_secret()),
            ("token", token.expose_secret()),
        ];
        let request = self.client.request(Method::POST, &format!("{}/v2/oauth/revoke/", self.api)).form(&form);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(self.client.classify_status(Effect::Repeatable, &response, None, None)),
        }
    }
}

/// Returns whether an accepted post has a video.
fn is_video(marker: &Marker) -> bool {
    marker.get(IS_VIDEO).and_then(Value::as_bool).unwrap_or_default()
}

/// TikTok returns no id for a private post.
fn published(account: &ConnectorAccount, public_ids: &[Value], is_video: bool) -> Published {
    let id = match public_ids.first() {
        Some(Value::String(id)) => id.clone(),
        Some(Value::Number(id)) => id.to_string(),
        _ => return Published::new("", None),
    };
    let kind = if is_video { "video" } else { "photo" };
    let url = account.username.as_deref().map(|name| format!("https://www.tiktok.com/@{name}/{kind}/{id}"));
    Published::new(id, url)
}
