//! Reddit: posts with a text, a link, images or a video in a subreddit. `connect.rs` connects accounts in the browser;
//! `comments.rs` writes first comments and deletes posts.
//!
//! The response to a post with one image or a video has no id, because Reddit creates the post after processing the
//! file. So the user's newest posts are searched for it, immediately and in later runs. After a call with an unknown
//! outcome, the same list is searched for the title and the subreddit since the first attempt.
//!
//! Sources: www.reddit.com/dev/api (`/api/submit`, `/user/{name}/submitted`, `/api/v1/revoke_token`);
//! github.com/praw-dev/praw 8.0.3 of August 2026 for galleries, uploads and texts beside images.

mod analytics;
mod comments;
mod connect;
mod inbox;
mod rest;
mod upload;
mod video;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{Descriptor, Platform};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use self::rest::{Session, SubmitError};
use self::upload::Uploaded;
use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient};
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    CallError, Clients, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector, Marker, MarkerSeed,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, Revocation, UnpublishPost, Video, VideoStep,
    VideoTransfer, options, time_marker,
};
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};

const MAX_TITLE: usize = 300;
/// The maximum number of recent posts that are searched.
const MAX_RECENT_POSTS: usize = 25;
/// The maximum time between the upload of an image and its post.
const PROCESSING: TimeDelta = TimeDelta::minutes(10);
/// The pause before a post with an image is looked up after Reddit accepted it.
const IMAGE_PAUSE: TimeDelta = TimeDelta::seconds(5);

pub(super) struct Reddit {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    api: String,
    /// The host of the token endpoint.
    tokens: String,
    /// The host of the authorization page.
    site: String,
}

impl Reddit {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        Self {
            client: PlatformClient::new(Platform::Reddit, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Reddit, config, clock),
            config: config.clone(),
            api: config.base_url(Platform::Reddit, "https://oauth.reddit.com"),
            tokens: config.base_url(Platform::Reddit, "https://www.reddit.com"),
            site: config.auth_url(Platform::Reddit, "https://www.reddit.com"),
        }
    }
}

/// The options of a post, parsed and checked.
struct RedditOptions<'a> {
    subreddit: &'a str,
    title: &'a str,
    link: Option<&'a str>,
    flair_id: Option<&'a str>,
    flair_text: Option<&'a str>,
    nsfw: bool,
    spoiler: bool,
}

impl<'a> RedditOptions<'a> {
    fn of(post: &'a OutgoingPost) -> Result<Self, CallError> {
        let subreddit = options::text(post, "subreddit")?.and_then(options::subreddit).ok_or_else(|| {
            CallError::invalid("A post on Reddit requires the option subreddit: the subreddit's name.")
        })?;
        let title = options::text(post, "title")?.unwrap_or_default();
        if title.is_empty() || title.chars().count() > MAX_TITLE {
            return Err(CallError::invalid(format!(
                "A post on Reddit requires the option title: 1 to {MAX_TITLE} characters."
            )));
        }
        let link = options::text(post, "link")?;
        if link.is_some() && !(post.images.is_empty() && post.videos.is_empty()) {
            return Err(CallError::invalid("A post on Reddit can have a link, images or a video. Remove the others."));
        }
        Ok(Self {
            subreddit,
            title,
            link,
            flair_id: options::text(post, "flair_id")?,
            flair_text: options::text(post, "flair_text")?,
            nsfw: options::flag(post, "nsfw"),
            spoiler: options::flag(post, "spoiler"),
        })
    }

    /// Returns the fields common to all kinds of posts.
    fn fields(&self) -> Vec<(&'static str, &'a str)> {
        let word = |flag: bool| if flag { "true" } else { "false" };
        let mut fields = vec![
            ("api_type", "json"),
            ("sr", self.subreddit),
            ("title", self.title),
            ("nsfw", word(self.nsfw)),
            ("spoiler", word(self.spoiler)),
            ("sendreplies", "true"),
            // The same link may be posted in several subreddits.
            ("resubmit", "true"),
            ("validate_on_submit", "true"),
        ];
        fields.extend(self.flair_id.map(|id| ("flair_id", id)));
        fields.extend(self.flair_text.map(|text| ("flair_text", text)));
        fields
    }

    fn published(&self, name: &str) -> Published {
        let id = name.strip_prefix("t3_").unwrap_or(name);
        Published::new(format!("t3_{id}"), Some(format!("https://www.reddit.com/r/{}/comments/{id}/", self.subreddit)))
    }
}

#[derive(Deserialize)]
struct CreatedPost {
    /// `t3_…`. Missing if the post is created later.
    name: Option<String>,
    id: Option<String>,
    /// The URL of a gallery.
    url: Option<String>,
}

impl CreatedPost {
    /// Returns the post's name or id.
    fn name(self) -> Option<String> {
        let is_id = |text: &String| {
            let id = text.strip_prefix("t3_").unwrap_or(text);
            !id.is_empty() && id.len() <= 16 && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
        };
        // https://www.reddit.com/gallery/{id}, or …/comments/{id}/{title}/
        let in_url = self.url.and_then(|url| {
            let (_, rest) = url.split_once("/gallery/").or_else(|| url.split_once("/comments/"))?;
            rest.split(['/', '?']).next().map(str::to_owned)
        });
        self.name.filter(is_id).or(self.id.filter(is_id)).or(in_url.filter(is_id))
    }
}

#[derive(Deserialize)]
struct Listing {
    data: Children,
}

#[derive(Deserialize)]
struct Children {
    children: Vec<Child>,
    /// The token of the next page.
    after: Option<String>,
}

#[derive(Deserialize)]
struct Child {
    data: Submitted,
}

#[derive(Deserialize)]
struct Submitted {
    name: String,
    #[serde(default)]
    title: String,
    #[serde(default)]
    subreddit: String,
    /// Unix seconds.
    #[serde(default)]
    created_utc: f64,
}

impl Submitted {
    fn listed(&self, options: &RedditOptions<'_>) -> Listed {
        let is_there = self.subreddit.eq_ignore_ascii_case(options.subreddit);
        Listed {
            at: DateTime::from_timestamp(self.created_utc as i64, 0),
            is_same: is_there && is_same(&self.title, options.title),
            published: options.published(&self.name),
        }
    }
}

impl Session<'_> {
    /// Searches the user's newest posts for a post.
    async fn find(&self, name: &str, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let options = RedditOptions::of(post)?;
        let request = self.request(Method::GET, &format!("/user/{name}/submitted")).query(&[
            ("sort", "new"),
            ("limit", &MAX_RECENT_POSTS.to_string()),
            ("raw_json", "1"),
        ]);
        let newest: Listing = self.call(Effect::Repeatable, request).await?;
        let listed = newest.data.children.iter().map(|child| child.data.listed(&options)).collect();
        let window = CallWindow::of(post.called_at).with_next_page(newest.data.after.is_some());
        Ok(find(window, listed, MAX_RECENT_POSTS))
    }

    async fn submit_text(&self, options: &RedditOptions<'_>, post: &OutgoingPost) -> Result<CreatedPost, SubmitError> {
        let mut fields = options.fields();
        match options.link {
            Some(link) => fields.extend([("kind", "link"), ("url", link)]),
            None => fields.push(("kind", "self")),
        }
        fields.push(("text", &post.text));
        self.submit(self.request(Method::POST, "/api/submit").form(&fields)).await
    }

    async fn submit_image(
        &self,
        options: &RedditOptions<'_>,
        post: &OutgoingPost,
        image: &Image,
    ) -> Result<CreatedPost, SubmitError> {
        let url = Uploaded::of(image)?.url;
        let mut fields = options.fields();
        fields.extend([("kind", "image"), ("url", url.as_str()), ("text", &post.text)]);
        self.submit(self.request(Method::POST, "/api/submit").form(&fields)).await
    }

    async fn submit_gallery(
        &self,
        options: &RedditOptions<'_>,
        post: &OutgoingPost,
    ) -> Result<CreatedPost, SubmitError> {
        let item = |image: &Image| -> Result<Value, CallError> {
            Ok(json!({ "media_id": Uploaded::of(image)?.asset_id, "caption": "", "outbound_url": "" }))
        };
        let items = post.images.iter().map(item).collect::<Result<Vec<_>, _>>()?;
        let mut body = json!({
            "api_type": "json",
            "sr": options.subreddit,
            "title": options.title,
            "text": post.text,
            "items": items,
            "nsfw": options.nsfw,
            "spoiler": options.spoiler,
            "sendreplies": true,
            "show_error_list": true,
            "validate_on_submit": true,
        });
        for (name, value) in [("flair_id", options.flair_id), ("flair_text", options.flair_text)] {
            if let Some(value) = value {
                body[name] = Value::from(value);
            }
        }
        self.submit(self.request(Method::POST, "/api/submit_gallery_post.json").json(&body)).await
    }
}

fn user_name(account: &ConnectorAccount) -> Result<&str, CallError> {
    account.username.as_deref().ok_or_else(|| {
        let message = "The account has no name; connect it again.";
        CallError::Reauth(Failure::of(Category::AuthExpired, message))
    })
}

#[async_trait]
impl Connector for Reddit {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Reddit)
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
        let application = oauth::application_of(account, &self.config, Platform::Reddit)?;
        let client = self.client_of(&application.client_id, account.username.as_deref());
        oauth::renew(&client, &self.auth_server(), account, &application).await.map_err(|failure| {
            // A rejected refresh token returns 400 with `{"message": "Bad Request", "error": 400}`.
            match (failure.status, failure.code.as_deref()) {
                (Some(StatusCode::BAD_REQUEST), None) => CallError::Reauth(self.client.reconnect_required()),
                _ => failure.error,
            }
        })
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
        self.session(account)?.upload(image).await
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
        self.session(account)?.send_video_step(post, video).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let session = self.session(account)?;
        if let Some(reply) = &post.reply_to {
            return session.comment_on(&reply.parent, &post.text).await;
        }
        let options = RedditOptions::of(post)?;
        let created = match (post.video(), post.images.as_slice()) {
            (Some(video), _) => session.submit_video(&options, post, video).await,
            (None, []) => session.submit_text(&options, post).await,
            (None, [only]) => session.submit_image(&options, post, only).await,
            (None, _) => session.submit_gallery(&options, post).await,
        };
        let is_old = |image: &Image| image.uploaded.as_ref().is_some_and(|uploaded| !uploaded.uploaded_in_this_run);
        let has_old_upload = post.images.iter().any(is_old) || post.video().is_some_and(|video| session.is_old(video));
        let created = created.map_err(|SubmitError { error, field }| match (error, field.as_deref()) {
            // Reddit deletes uploads that no post references.
            (CallError::Permanent(failure), Some("url" | "items" | "video_poster_url")) if has_old_upload => {
                CallError::UploadsMissing(failure)
            }
            (error, _) => error,
        })?;
        if let Some(name) = created.name() {
            return Ok(options.published(&name));
        }
        // The post is created after its image or video is processed, and looked up then.
        let pause = if post.video().is_some() { video::MIN_PAUSE } else { IMAGE_PAUSE };
        Err(self.client.accepted(post.marker.clone(), pause))
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        if let Some(reply) = &post.reply_to {
            return self.find_comment(account, post, &reply.parent).await;
        }
        let session = self.session(account)?;
        let found = session.find(user_name(account)?, post).await?;
        if found != ReconcileResult::Absent {
            return Ok(found);
        }
        if post.video().is_some() {
            return Ok(session.missing_video(post));
        }
        if !post.images.is_empty() && post.called_at.is_none_or(|at| self.client.now() < at + PROCESSING) {
            let message = "Reddit may still be processing the image of this post.";
            return Err(CallError::Transient(Failure::of(Category::Media, message)));
        }
        Ok(ReconcileResult::Absent)
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        self.session(account)?.delete(&post.external_id).await
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Token)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Reddit)?;
        let client = self.client_of(&application.client_id, account.username.as_deref());
        let token = account.secrets.require("refresh_token")?;
        let form = [("token", token.expose_secret()), ("token_type_hint", "refresh_token")];
        let request = client
            .request(Method::POST, &format!("{}/api/v1/revoke_token", self.tokens))
            .basic_auth(&application.client_id, Some(application.client_secret.expose_secret()))
            .form(&form);
        let response = client.send(Effect::Repeatable, request).await?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(client.classify_status(Effect::Repeatable, &response, None, None)),
        }
    }
}
