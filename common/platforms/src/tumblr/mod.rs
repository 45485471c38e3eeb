//! Tumblr, API v2 with the Neue Post Format (NPF).
//!
//! Each post has a unique slug, stored before the call. After a call with an unknown outcome, the blog's newest posts
//! are searched for it, which is exact. Images and videos are parts of the publishing request. An access token lasts 42
//! minutes, and a refresh token is replaced at each use.
//!
//! Sources: github.com/tumblr/docs (`api.md`: OAuth2, `/user/info`, `/blog/{b}/posts`, `/blog/{b}/post/delete`, errors
//! and limits; `npf-spec.md`), as of October 2024.

mod analytics;
mod connect;
mod inbox;
mod rest;
mod video;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{Descriptor, Platform};
use http::{HeaderMap, Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use self::rest::FailedCall;
use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient, image_part, retry_at};
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::window::CallWindow;
use super::{
    CallError, Clients, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector, Marker, MarkerSeed, Medium,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, UnpublishPost, VideoTransfer, marker_field,
};

/// The maximum length of the text in one block.
const MAX_BLOCK: usize = 4_096;
/// The maximum number of blocks of a post.
const MAX_BLOCKS: usize = 1_000;
/// The pause, in seconds, after a limit was reached, if the response names none.
const PAUSE: i64 = 3_600;
/// The maximum number of recent posts that are searched.
const MAX_RECENT_POSTS: usize = 20;
/// The pause after a daily limit is reached. Tumblr does not state when its day ends, and each attempt may send a whole
/// video.
const DAILY_LIMIT_PAUSE: TimeDelta = TimeDelta::hours(3);

pub(super) struct Tumblr {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    /// The host of the API and of the token endpoint.
    api: String,
    /// The host of the authorization page.
    site: String,
}

impl Tumblr {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        Self {
            client: PlatformClient::new(Platform::Tumblr, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Tumblr, config, clock),
            config: config.clone(),
            api: config.base_url(Platform::Tumblr, "https://api.tumblr.com"),
            site: config.auth_url(Platform::Tumblr, "https://www.tumblr.com"),
        }
    }

    fn blog_path(account: &ConnectorAccount, part: &str) -> String {
        let blog = percent_encoding::utf8_percent_encode(&account.external_id, percent_encoding::NON_ALPHANUMERIC);
        format!("/v2/blog/{blog}/{part}")
    }

    /// Returns the form of a post: its JSON, and one part per image and video.
    async fn form(post: &OutgoingPost) -> Result<crier_http::multipart::Form, CallError> {
        let mut form = crier_http::multipart::Form::new().part("json", json_part(&body(post)?)?);
        for (index, image) in post.images.iter().enumerate() {
            let file = image_part(image)?;
            form = form.part(identifier(index), file);
        }
        for (index, one) in post.videos.iter().enumerate() {
            form = video::add_parts(form, one, index).await?;
        }
        Ok(form)
    }

    fn published(account: &ConnectorAccount, id: &str) -> Published {
        let name = account.username.as_deref().unwrap_or(&account.external_id);
        Published::new(id, Some(format!("https://www.tumblr.com/{name}/{id}")))
    }
}

#[async_trait]
impl Connector for Tumblr {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Tumblr)
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
        let application = oauth::application_of(account, &self.config, Platform::Tumblr)?;
        oauth::renew(&self.client, &self.auth_server(), account, &application).await.map_err(|failure| {
            // Tumblr returns 401 for a refresh token that has expired or was used before.
            match (failure.status, failure.code.as_deref()) {
                (Some(StatusCode::UNAUTHORIZED), None) => CallError::Reauth(self.client.reconnect_required()),
                _ => failure.error,
            }
        })
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        let slug = format!("c{}-{:016x}", seed.target_id, seed.random);
        Marker::from_iter([("slug".to_owned(), Value::from(slug))])
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Inline
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Inline
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        #[derive(Deserialize)]
        struct Created {
            #[serde(default)]
            id: Option<Value>,
            #[serde(default)]
            id_string: Option<String>,
        }
        if let Some(published) = self.find_earlier(account, post).await? {
            return Ok(published);
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, &Self::blog_path(account, "posts"), token.expose_secret());
        let request = match post.media().is_empty() {
            true => request.json(&body(post)?),
            false => request.multipart(Self::form(post).await?),
        };
        let created: Created = self.call_with_bytes(Effect::Publishes, request, post.video_bytes()).await?;
        let id = created.id_string.or_else(|| match created.id {
            Some(Value::String(id)) => Some(id),
            Some(Value::Number(id)) => Some(id.to_string()),
            _ => None,
        });
        match id {
            Some(id) => Ok(Self::published(account, &id)),
            None => Err(CallError::Unknown(Failure::of(
                Category::OutcomeUnknown,
                "Tumblr accepted the post but returned no ID: it may have been published.",
            ))),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let found = self.look_up(account, post).await?;
        Ok(self.while_transcoding(post, found))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, &Self::blog_path(account, "post/delete"), token.expose_secret());
        let request = request.form(&[("id", post.external_id.as_str())]);
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status {
            // Tumblr returns this for a deleted post, and for a blog that the user can no longer manage.
            StatusCode::NOT_FOUND => self.check_access(account, token.expose_secret()).await,
            status if status.is_success() => Ok(()),
            _ => Err(self.error_of(Effect::Repeatable, response)),
        }
    }
}

impl Tumblr {
    /// Searches the blog's newest posts for the post of an earlier call.
    async fn look_up(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        #[derive(Deserialize)]
        struct Newest {
            posts: Vec<Post>,
            #[serde(default, rename = "_links")]
            links: Value,
        }
        #[derive(Deserialize)]
        struct Post {
            id_string: String,
            #[serde(default)]
            slug: String,
            /// Unix seconds.
            timestamp: Option<i64>,
        }
        let slug = marker_field(&post.marker, "slug")?;
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::GET, &Self::blog_path(account, "posts"), token.expose_secret());
        let request = request.query(&[("npf", "true"), ("limit", &MAX_RECENT_POSTS.to_string())]);
        let newest: Newest = self.call(Effect::Repeatable, request).await?;
        let times: Vec<_> = newest.posts.iter().map(|post| DateTime::from_timestamp(post.timestamp?, 0)).collect();
        if let Some(found) = newest.posts.iter().find(|found| found.slug == slug) {
            return Ok(ReconcileResult::Found(Self::published(account, &found.id_string)));
        }
        let window = CallWindow::of(post.called_at).with_next_page(!newest.links["next"].is_null());
        Ok(window.result(Vec::new(), window.is_covered(&times, MAX_RECENT_POSTS)))
    }
}

fn identifier(index: usize) -> String {
    format!("picture-{index}")
}

fn json_part(body: &Value) -> Result<crier_http::multipart::Part, CallError> {
    let part = crier_http::multipart::Part::text(body.to_string()).mime_str("application/json");
    part.map_err(|_| CallError::Transient(Failure::of(Category::Internal, "The post could not be sent.")))
}

fn image_block(image: &Image, index: usize) -> Value {
    let mut block = json!({
        "type": "image",
        "media": [{
            "type": image.mime_type,
            "identifier": identifier(index),
            "width": image.width,
            "height": image.height,
        }],
    });
    if let Some(alt) = &image.alt_text {
        block["alt_text"] = Value::from(alt.as_str());
    }
    block
}

/// Returns a post in the Neue Post Format: its images and videos, then its text in blocks.
fn body(post: &OutgoingPost) -> Result<Value, CallError> {
    let (mut images, mut videos) = (0.., 0..);
    let block = |medium| match medium {
        Medium::Image(image) => images.next().map(|index| image_block(image, index)),
        Medium::Video(one) => videos.next().map(|index| video::block(one, index)),
    };
    let mut content: Vec<Value> = post.media().into_iter().filter_map(block).collect();
    let max = MAX_BLOCKS.saturating_sub(content.len());
    content.extend(blocks(&post.text, max).into_iter().map(|text| json!({ "type": "text", "text": text })));
    let mut body = json!({ "content": content, "state": "published", "slug": marker_field(&post.marker, "slug")? });
    if let Some(tags) = post.options.get("tags") {
        let wrong = || CallError::invalid("tags must be text such as a,b.");
        body["tags"] = Value::from(tags.as_str().ok_or_else(wrong)?);
    }
    Ok(body)
}

/// Splits a text into blocks: one per paragraph, or several if it is too long. If there were more than `max`, paragraphs
/// share blocks.
fn blocks(text: &str, max: usize) -> Vec<String> {
    let paragraphs = text.split("\n\n").map(str::trim).filter(|paragraph| !paragraph.is_empty());
    let mut found = Vec::new();
    for paragraph in paragraphs {
        let characters: Vec<char> = paragraph.chars().collect();
        found.extend(characters.chunks(MAX_BLOCK).map(|chunk| chunk.iter().collect::<String>()));
    }
    if found.len() <= max {
        return found;
    }
    let mut shared: Vec<String> = Vec::new();
    for block in found {
        match shared.last_mut() {
            // A text has at most as many characters as bytes.
            Some(last) if last.len() + 2 + block.len() <= MAX_BLOCK => {
                last.push_str("\n\n");
                last.push_str(&block);
            }
            _ => shared.push(block),
        }
    }
    shared
}

/// Returns the seconds until the application has calls again: until the end of the hour or the day whose calls are used
/// up.
fn pause(headers: &HeaderMap) -> i64 {
    let number = |name: String| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let until_end = |period: &str| {
        let is_used_up = number(format!("x-ratelimit-{period}-remaining"))? <= 0;
        number(format!("x-ratelimit-{period}-reset")).filter(|_| is_used_up)
    };
    ["perhour", "perday"].into_iter().filter_map(until_end).max().unwrap_or(PAUSE)
}

/// Classifies a failed call by Tumblr's own code, or else by the status.
fn classify(client: &PlatformClient, effect: Effect, failed: &FailedCall) -> CallError {
    let detail = failed.detail.clone();
    let sentence = |what: &str| match &detail {
        Some(detail) => format!("Tumblr {what}: {detail}"),
        None => format!("Tumblr {what}."),
    };
    let code = failed.code.map_or_else(|| failed.response.status.as_str().to_owned(), |code| code.to_string());
    let failure = |category, what: &str| Failure::of(category, sentence(what)).from_platform(&code);
    match (failed.response.status.as_u16(), failed.code) {
        // An access token lasts 42 minutes.
        (401, _) => CallError::AuthExpired(failure(Category::AuthExpired, "rejected the access token")),
        (_, Some(8001)) => CallError::Permanent(failure(Category::InvalidContent, "does not accept this post")),
        (_, Some(8005)) => {
            CallError::Permanent(failure(Category::Media, "does not accept an image or video of this post"))
        }
        (_, Some(8004)) => client.daily_limit("images", DAILY_LIMIT_PAUSE, &code),
        (_, Some(8011)) => client.daily_limit("videos", DAILY_LIMIT_PAUSE, &code),
        (_, Some(8022 | 8023)) => client.daily_limit("posts", DAILY_LIMIT_PAUSE, &code),
        // The blog's last video is not transcoded yet.
        (_, Some(8010)) => client.rate_limited_for(video::TRANSCODING_PAUSE.num_seconds()),
        // The images or videos did not arrive completely. Nothing was published.
        (_, Some(8006 | 8009)) => CallError::Transient(failure(Category::Media, "could not store an image or video")),
        (429, _) => {
            let until = retry_at(&failed.response.headers, client.now());
            until.map_or_else(
                || client.rate_limited_for(pause(&failed.response.headers)),
                |until| client.rate_limited(Some(until), Some(&code)),
            )
        }
        (403, _) => CallError::Permanent(failure(Category::Account, "does not allow this")),
        (404, _) => CallError::Permanent(failure(Category::Account, "no longer knows this blog")),
        _ => client.classify_status(effect, &failed.response, Some(&code), detail),
    }
}
