//! X (Twitter), API v2. Each post and each read costs the application's owner money, so Crier reads only mentions
//! (`inbox.rs`), metrics if the operator enables them (`analytics.rs`), and recent posts after a call with an unknown
//! outcome (`recent.rs`).
//!
//! A part of a thread and a first comment are replies. Videos and GIFs are uploaded in segments (`video.rs`, `gif.rs`).
//!
//! Sources: docs.x.com and `openapi.json` 2.167 of August 2026 (`/2/oauth2/token`, `/2/media/upload`,
//! `/2/media/metadata`, `/2/tweets`, `/2/tweets/{id}`, `/2/users/{id}/tweets`, "Response codes and errors").

mod analytics;
mod gif;
mod inbox;
mod recent;
mod video;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, ConnectTarget, Descriptor, Platform};
use crier_http::{HttpResponse, RequestBuilder};
use http::{HeaderMap, Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::call::{Effect, PlatformClient, connect_error, image_part, retry_at, sanitize_message};
use super::metrics::Metrics;
use super::oauth::{
    self, AuthServer, Choice, ConnectAttempt, ConnectRequest, Grant, OAuthConnector, Permission, protocol, renewal,
};
use super::window::{CallWindow, Listed, find};
use super::{
    AnalyticsConnector, CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer,
    InboxConnector, Marker, MarkerSeed, Medium, OutgoingPost, Published, ReconcileResult, RefreshedTokens, Revocation,
    StageResult, UnpublishPost, Video, VideoStep, VideoTransfer, time_marker,
};
use analytics::is_of_type;
use gif::is_gif;
use recent::{MAX_RECENT_POSTS, comparable_reply, without_links};

const SCOPES: [&str; 5] = ["tweet.read", "tweet.write", "users.read", "media.write", "offline.access"];

const PERMISSIONS: [Permission; 3] = [
    Permission { scopes: &["users.read", "tweet.read"], purpose: "see your name and your posts" },
    Permission { scopes: &["tweet.write", "media.write"], purpose: "publish posts, images and videos" },
    Permission { scopes: &["offline.access"], purpose: "do so while you are away" },
];

pub(super) struct Twitter {
    client: PlatformClient,
    config: PlatformsConfig,
    api: String,
    site: String,
    metrics: Metrics,
}

impl Twitter {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        Self {
            client: PlatformClient::new(Platform::Twitter, clients.trusted.clone(), clock.clone()),
            config: config.clone(),
            api: config.base_url(Platform::Twitter, "https://api.x.com"),
            site: config.auth_url(Platform::Twitter, "https://x.com"),
            metrics: Metrics::new(Platform::Twitter, config, clock),
        }
    }

    fn auth_server(&self) -> AuthServer {
        let (authorize, token) = (format!("{}/i/oauth2/authorize", self.site), format!("{}/2/oauth2/token", self.api));
        AuthServer::new(authorize, token, &SCOPES)
    }

    fn request(&self, method: Method, path: &str, token: &str) -> RequestBuilder {
        self.client.request(method, &format!("{}/2{path}", self.api)).bearer_auth(token)
    }

    /// Sends a request and returns `data` of its response.
    async fn call<T: DeserializeOwned>(&self, effect: Effect, request: RequestBuilder) -> Result<T, CallError> {
        let response = self.client.send(effect, request).await?;
        self.data(effect, &response)
    }

    /// Returns `data` of a response.
    fn data<T: DeserializeOwned>(&self, effect: Effect, response: &HttpResponse) -> Result<T, CallError> {
        #[derive(Deserialize)]
        struct Envelope<T> {
            data: T,
        }
        if response.status.is_success() {
            return Ok(self.client.read::<Envelope<T>>(effect, response)?.data);
        }
        Err(self.classify(effect, response))
    }

    fn classify(&self, effect: Effect, response: &HttpResponse) -> CallError {
        let body: ApiProblem = serde_json::from_slice(&response.body).unwrap_or_default();
        let detail = sanitize_message(body.text(), &[]);
        let code = response.status.as_str().to_owned();
        let failure = |category, what: &str| {
            let message = match &detail {
                Some(detail) => format!("X {what}: {detail}"),
                None => format!("X {what}."),
            };
            Failure::of(category, message).from_platform(&code)
        };
        let text = body.text().to_lowercase();
        let is_out_of_credits = body.kind.contains("usage-capped") || response.status == StatusCode::PAYMENT_REQUIRED;
        match response.status {
            _ if is_out_of_credits => self.client.misconfigured(
                "X accepts no more requests: the credits of the X application are used up. Buy more in X's developer \
                 console.",
                &code,
            ),
            _ if text.contains("suspended") && response.status == StatusCode::FORBIDDEN => {
                CallError::Reauth(failure(Category::AuthExpired, "has suspended this account"))
            }
            StatusCode::UNAUTHORIZED => {
                CallError::AuthExpired(failure(Category::AuthExpired, "rejected the access token"))
            }
            StatusCode::FORBIDDEN if text.contains("duplicate content") => {
                CallError::Permanent(failure(Category::DuplicateContent, "already has this post"))
            }
            // "This user is not allowed to post a video longer than 2 minutes". X knows the account's limit.
            StatusCode::FORBIDDEN if text.contains("video longer than") => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept a video of this length"))
            }
            StatusCode::FORBIDDEN => CallError::Permanent(failure(Category::PlatformRejected, "does not allow this")),
            StatusCode::BAD_REQUEST => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post"))
            }
            StatusCode::TOO_MANY_REQUESTS => {
                let (headers, now) = (&response.headers, self.client.now());
                self.client.rate_limited(daily_limit_ends_at(headers).or_else(|| retry_at(headers, now)), Some(&code))
            }
            _ => self.client.classify_status(effect, response, None, detail),
        }
    }

    fn user_path(account: &ConnectorAccount) -> String {
        let id = percent_encoding::utf8_percent_encode(&account.external_id, percent_encoding::NON_ALPHANUMERIC);
        format!("/users/{id}")
    }

    async fn describe(&self, token: &str, id: &str, alt: &str) -> Result<(), CallError> {
        let body = json!({ "id": id, "metadata": { "alt_text": { "text": alt } } });
        let request = self.request(Method::POST, "/media/metadata", token).json(&body);
        self.call::<Value>(Effect::Repeatable, request).await.map(drop)
    }
}

/// `application/problem+json`, or a list of errors.
#[derive(Deserialize, Default)]
struct ApiProblem {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    detail: String,
    #[serde(default)]
    errors: Vec<ProblemItem>,
}

#[derive(Deserialize)]
struct ProblemItem {
    #[serde(default)]
    message: String,
}

impl ApiProblem {
    fn text(&self) -> &str {
        match self.errors.first() {
            Some(first) if !first.message.is_empty() => &first.message,
            _ => &self.detail,
        }
    }
}

/// Returns when the daily limit of the account or of the application ends, if it is reached: `X-Rate-Limit-Reset` is the
/// end of a shorter period.
fn daily_limit_ends_at(headers: &HeaderMap) -> Option<DateTime<Utc>> {
    let number = |name: String| headers.get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
    let end = |owner: &str| {
        let is_reached = number(format!("x-{owner}-limit-24hour-remaining"))? <= 0;
        number(format!("x-{owner}-limit-24hour-reset")).filter(|_| is_reached)
    };
    DateTime::from_timestamp(["user", "app"].into_iter().filter_map(end).max()?, 0)
}

/// Returns whether a text is an id of a post, so that it may become part of a URL.
fn is_post_id(id: &str) -> bool {
    (1..=19).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Converts the error of a reply. X describes a parent that was deleted, or that it does not show yet, only in words:
/// "You attempted to reply to a Tweet that is deleted or not visible to you."
fn reply_error(error: CallError) -> CallError {
    match error {
        CallError::Permanent(failure) if failure.message.contains("deleted or not visible to you") => {
            CallError::ParentMissing(failure)
        }
        error => error,
    }
}

fn published(account: &ConnectorAccount, id: &str) -> Published {
    let name = account.username.as_deref().unwrap_or("i");
    Published::new(id, Some(format!("https://x.com/{name}/status/{id}")))
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

#[async_trait]
impl Connector for Twitter {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Twitter)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Twitter)?;
        oauth::renew(&self.client, &self.auth_server(), account, &application).await.map_err(|failure| {
            // For a refresh token that was used before, X returns "invalid_request: Value passed for the token was
            // invalid."
            let names_token = failure.description.as_deref().is_some_and(|text| text.contains("token was invalid"));
            match failure.code.as_deref() {
                Some("invalid_request") if names_token => CallError::Reauth(self.client.reconnect_required()),
                _ => failure.error,
            }
        })
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
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
        let token = account.secrets.require("access_token")?;
        let id = match is_gif(image) {
            true => self.upload_gif(token.expose_secret(), image).await?,
            false => {
                let form = crier_http::multipart::Form::new().text("media_category", "tweet_image");
                let form = form.part("media", image_part(image)?);
                let request = self.request(Method::POST, "/media/upload", token.expose_secret()).multipart(form);
                self.call::<Created>(Effect::Repeatable, request).await?.id
            }
        };
        if let Some(alt) = image.alt_text.as_deref().filter(|alt| !alt.trim().is_empty()) {
            self.describe(token.expose_secret(), &id, alt).await?;
        }
        Ok(Value::from(id))
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
        self.send_video_step(account, video).await
    }

    fn has_stages(&self, post: &OutgoingPost) -> bool {
        post.images.iter().any(is_gif)
    }

    async fn stage(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<StageResult, CallError> {
        self.check_gif(account, post).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let mut body = json!({ "text": post.text });
        let media = post.media().into_iter().map(|medium| match medium {
            Medium::Image(image) => image.name(),
            Medium::Video(video) => video.reference(),
        });
        let media = media.collect::<Result<Vec<_>, _>>()?;
        if !media.is_empty() {
            body["media"] = json!({ "media_ids": media });
        }
        if let Some(reply_to) = &post.reply_to {
            body["reply"] = json!({ "in_reply_to_tweet_id": reply_to.parent.external_id });
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, "/tweets", token.expose_secret()).json(&body);
        match self.call::<Created>(Effect::Publishes, request).await {
            Ok(created) => Ok(published(account, &created.id)),
            Err(error) if post.reply_to.is_some() => Err(reply_error(self.media_error(error, post))),
            Err(error) => Err(self.media_error(error, post)),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let newest = self.newest(account).await?;
        let parent = post.reply_to.as_ref().map(|reply_to| reply_to.parent.external_id.as_str());
        let comparable: fn(&str) -> String = if parent.is_some() { comparable_reply } else { without_links };
        let wanted = comparable(&post.text);
        let listed = newest.tweets.iter().map(|tweet| Listed {
            at: tweet.created_at,
            is_same: tweet.replied_to() == parent && comparable(tweet.whole_text()) == wanted,
            published: published(account, &tweet.id),
        });
        let window = CallWindow::of(post.called_at).with_next_page(newest.has_next_page());
        Ok(find(window, listed.collect(), MAX_RECENT_POSTS))
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        if !is_post_id(&post.external_id) {
            let message = "Crier does not know the ID of this post on X. Delete the post there.";
            return Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message)));
        }
        let token = account.secrets.require("access_token")?;
        let path = format!("/tweets/{}", post.external_id);
        let request = self.request(Method::DELETE, &path, token.expose_secret());
        let response = self.client.send(Effect::Repeatable, request).await?;
        if response.status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        if !response.status.is_success() {
            return Err(self.classify(Effect::Repeatable, &response));
        }
        let body: Value = self.client.read(Effect::Repeatable, &response)?;
        let mut errors = body["errors"].as_array().into_iter().flatten();
        if body["data"]["deleted"] == true || errors.any(|error| is_of_type(error, "resource-not-found")) {
            return Ok(());
        }
        Err(CallError::Transient(Failure::of(Category::PlatformError, "X did not delete this post.")))
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Grant)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Twitter)?;
        let token = account.secrets.require("access_token")?;
        let form = [("token", token.expose_secret()), ("client_id", application.client_id.as_str())];
        let request = self.client.request(Method::POST, &format!("{}/2/oauth2/revoke", self.api)).form(&form);
        let request = match application.has_secret() {
            true => request.basic_auth(&application.client_id, Some(application.client_secret.expose_secret())),
            false => request,
        };
        let response = self.client.send(Effect::Repeatable, request).await?;
        match response.status.is_success() {
            true => Ok(()),
            false => Err(self.classify(Effect::Repeatable, &response)),
        }
    }
}

#[async_trait]
impl OAuthConnector for Twitter {
    fn permissions(&self, _target: ConnectTarget) -> &'static [Permission] {
        &PERMISSIONS
    }

    fn gate(&self, _target: ConnectTarget) -> Option<&'static str> {
        Some("X charges the operator of Crier for each post, and more for a post with a link.")
    }

    async fn server(&self, _request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        Ok(self.auth_server())
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        Ok(protocol::exchange(&self.client, attempt, code).await?)
    }

    async fn finish(&self, grant: &Grant, _choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        #[derive(Deserialize)]
        struct User {
            id: String,
            username: String,
            #[serde(default)]
            name: String,
            profile_image_url: Option<String>,
        }
        let request = self
            .request(Method::GET, "/users/me", grant.access_token())
            .query(&[("user.fields", "username,name,profile_image_url")]);
        let own: User = self.call(Effect::Repeatable, request).await.map_err(|error| connect_error(error, None))?;
        let path = percent_encoding::utf8_percent_encode(&own.username, percent_encoding::NON_ALPHANUMERIC);
        let profile_url = format!("https://x.com/{}", path.to_string().replace("%5F", "_"));
        let name = if own.name.trim().is_empty() { own.username.clone() } else { own.name };
        Ok(Connected {
            profile_url: Some(profile_url),
            username: Some(own.username),
            avatar_url: own.profile_image_url,
            renewal: Some(renewal(grant, true)),
            ..grant.connected(AccountKind::Profile, own.id, name)
        })
    }
}
