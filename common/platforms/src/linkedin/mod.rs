//! LinkedIn, for users and for organizations' pages (`pages.rs`): Posts API and Images API, versioned by month. Each of
//! the two needs a separate application.
//!
//! After a call with an unknown outcome, a page's newest posts are searched. A user's posts cannot be read. If a user
//! decides to send such a post again, LinkedIn's "duplicate" error names the existing post. It is that of an earlier call
//! only if it was created after the post's marker.
//! First comments are in `comments.rs`, and uploads of videos in `video.rs`.
//!
//! Sources: learn.microsoft.com/linkedin ("Posts API", "Images API", "little text format", "Versioning", "Error
//! handling"), January to August 2026.

mod analytics;
mod comments;
mod connect;
mod delete;
mod inbox;
mod pages;
mod urn;
mod video;

use async_trait::async_trait;
use chrono::{DateTime, Days, NaiveTime, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Descriptor, Platform};
use crier_http::{HttpResponse, RequestBuilder};
use http::{Method, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};
use url::Url;

use self::urn::created_at;
use super::analytics::AnalyticsConnector;
use super::call::{Effect, PlatformClient, sanitize_message};
use super::metrics::Metrics;
use super::oauth::{self, OAuthConnector};
use super::{
    CallError, Clients, Connector, ConnectorAccount, Image, ImageTransfer, InboxConnector, Marker, MarkerSeed,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, Revocation, UnpublishPost, Video, VideoStep,
    VideoTransfer, time_marker,
};
use crate::window::CallWindow;

/// The version of the API. A version is supported for about a year (checked in November 2026).
const VERSION: &str = "202607";
/// Reserved characters of LinkedIn's "little text format". One that is not escaped truncates the text.
const RESERVED: &str = "|{}@[]()<>#*_~\\";

pub(super) struct Linkedin {
    client: PlatformClient,
    metrics: Metrics,
    config: PlatformsConfig,
    api: String,
    /// The host of the token endpoint.
    tokens: String,
    /// The host of the authorization page.
    site: String,
    version: String,
}

impl Linkedin {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        let version = config.of(Platform::Linkedin).api_version.clone();
        Self {
            client: PlatformClient::new(Platform::Linkedin, clients.trusted.clone(), clock.clone()),
            metrics: Metrics::new(Platform::Linkedin, config, clock),
            config: config.clone(),
            api: config.base_url(Platform::Linkedin, "https://api.linkedin.com"),
            tokens: config.base_url(Platform::Linkedin, "https://www.linkedin.com"),
            site: config.auth_url(Platform::Linkedin, "https://www.linkedin.com"),
            version: version.unwrap_or_else(|| VERSION.to_owned()),
        }
    }

    fn request(&self, method: Method, path: &str, token: &SecretString) -> RequestBuilder {
        self.client
            .request(method, &format!("{}{path}", self.api))
            .bearer_auth(token.expose_secret())
            .header("LinkedIn-Version", &self.version)
            .header("X-Restli-Protocol-Version", "2.0.0")
    }

    async fn send(&self, effect: Effect, request: RequestBuilder) -> Result<HttpResponse, LinkedinError> {
        let response = self.client.send(effect, request).await?;
        if response.status.is_success() { Ok(response) } else { Err(self.classify(effect, &response)) }
    }

    fn classify(&self, effect: Effect, response: &HttpResponse) -> LinkedinError {
        let body: ErrorBody = serde_json::from_slice(&response.body).unwrap_or_default();
        let detail = sanitize_message(&body.message, &[]);
        let sentence = |what: &str| match &detail {
            Some(detail) => format!("LinkedIn {what}: {detail}"),
            None => format!("LinkedIn {what}."),
        };
        let code = body.service_error_code.map_or_else(|| response.status.as_str().to_owned(), |code| code.to_string());
        let failure = |category, what: &str| Failure::of(category, sentence(what)).from_platform(&code);
        let is_duplicate = body.is_duplicate();
        let error = match response.status {
            StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST if is_duplicate => {
                CallError::Permanent(failure(Category::DuplicateContent, "already has this post"))
            }
            // LinkedIn did not report it, or this application may not get the state of a video.
            StatusCode::BAD_REQUEST if body.has_code("MEDIA_ASSET_WAITING_UPLOAD") => {
                CallError::Transient(failure(Category::Media, "does not have the whole video yet"))
            }
            // LinkedIn has not created the activity of a new post yet (reported by other projects).
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY
                if body.message.contains("Unable to obtain activity") =>
            {
                CallError::Transient(failure(Category::PlatformError, "has not finished processing the post"))
            }
            StatusCode::UNAUTHORIZED => {
                CallError::AuthExpired(failure(Category::AuthExpired, "rejected the token; connect the account again"))
            }
            StatusCode::FORBIDDEN => CallError::Permanent(failure(
                Category::Account,
                "does not allow this; the application may lack a product, or the person a role in the organization",
            )),
            StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => {
                CallError::Permanent(failure(Category::InvalidContent, "does not accept this post"))
            }
            // The version is no longer supported, which only the operator can change.
            StatusCode::UPGRADE_REQUIRED => {
                let version = &self.version;
                let message = format!(
                    "LinkedIn no longer supports version {version}; the operator must set CRIER_LINKEDIN_API_VERSION."
                );
                self.client.misconfigured(&message, &code)
            }
            // The daily limit is reset at midnight UTC.
            StatusCode::TOO_MANY_REQUESTS => {
                let midnight = self.client.now().checked_add_days(Days::new(1));
                let midnight = midnight.and_then(|day| day.with_time(NaiveTime::MIN).single());
                self.client.rate_limited(midnight, Some(&code))
            }
            _ => self.client.classify_status(effect, response, Some(&code), detail),
        };
        let duplicate_of = is_duplicate.then(|| body.duplicate_of()).flatten();
        LinkedinError { error, duplicate_of, status: Some(response.status) }
    }
}

/// A failed call.
struct LinkedinError {
    error: CallError,
    /// The existing post, if this one is a duplicate.
    duplicate_of: Option<String>,
    /// `None` if no readable response arrived.
    status: Option<StatusCode>,
}

impl From<CallError> for LinkedinError {
    fn from(error: CallError) -> Self {
        Self { error, duplicate_of: None, status: None }
    }
}

impl From<LinkedinError> for CallError {
    fn from(failed: LinkedinError) -> Self {
        failed.error
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ErrorBody {
    #[serde(default)]
    message: String,
    /// The name of the error, in some APIs.
    #[serde(default)]
    code: Value,
    service_error_code: Option<i64>,
    #[serde(default)]
    error_details: ErrorDetails,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ErrorDetails {
    #[serde(default)]
    input_errors: Vec<InputError>,
}

#[derive(Deserialize)]
struct InputError {
    #[serde(default)]
    code: String,
}

impl ErrorBody {
    fn has_code(&self, code: &str) -> bool {
        self.code == code || self.error_details.input_errors.iter().any(|error| error.code == code)
    }

    fn is_duplicate(&self) -> bool {
        self.has_code("DUPLICATE_POST") || self.message.contains("is a duplicate of")
    }

    /// Returns the URN in "Content is a duplicate of urn:li:share:…".
    fn duplicate_of(&self) -> Option<String> {
        let (_, rest) = self.message.split_once("urn:li:")?;
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != ':').unwrap_or(rest.len());
        Some(format!("urn:li:{}", &rest[..end]))
    }
}

#[async_trait]
impl Connector for Linkedin {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Linkedin)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        Some(self)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    /// Pages only.
    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    /// Only approved partners get refresh tokens. Otherwise, a user connects the account again.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        if account.secrets.get("refresh_token").is_none() {
            return Err(CallError::Reauth(self.client.reconnect_required()));
        }
        let application = oauth::application_of(account, &self.config, Platform::Linkedin)?;
        let target = if Self::is_page(account) { ConnectTarget::Page } else { ConnectTarget::Default };
        Ok(oauth::renew(&self.client, &self.auth_server(target), account, &application).await?)
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
        #[derive(Deserialize)]
        struct Initialized {
            value: Upload,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Upload {
            upload_url: String,
            image: String,
        }
        let token = account.secrets.require("access_token")?;
        let body = json!({ "initializeUploadRequest": { "owner": author(account) } });
        let request = self.request(Method::POST, "/rest/images?action=initializeUpload", &token).json(&body);
        let response = self.send(Effect::Repeatable, request).await?;
        let Upload { upload_url, image: urn } = self.client.read::<Initialized>(Effect::Repeatable, &response)?.value;
        if !self.is_linkedin(&upload_url) {
            let message = "LinkedIn returned an upload URL for the image that does not belong to LinkedIn.";
            return Err(CallError::Transient(Failure::of(Category::PlatformError, message)));
        }
        let request = self
            .client
            .request(Method::PUT, &upload_url)
            .bearer_auth(token.expose_secret())
            .header(http::header::CONTENT_TYPE, &image.mime_type)
            .body(image.bytes.clone());
        self.send(Effect::Repeatable, request).await?;
        Ok(Value::from(urn))
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

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        if let Some(reply_to) = &post.reply_to {
            return self.publish_comment(account, &reply_to.parent.external_id, &post.text).await;
        }
        let mut body = json!({
            "author": author(account),
            "commentary": escape(&post.text),
            "visibility": "PUBLIC",
            "distribution": {
                "feedDistribution": "MAIN_FEED",
                "targetEntities": [],
                "thirdPartyDistributionChannels": [],
            },
            "lifecycleState": "PUBLISHED",
            "isReshareDisabledByAuthor": false,
        });
        if let Some(content) = content(post)? {
            body["content"] = content;
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, "/rest/posts", &token).json(&body);
        match self.send(Effect::Publishes, request).await {
            Ok(response) => match response.headers.get("x-restli-id").and_then(|id| id.to_str().ok()) {
                Some(urn) => Ok(published(urn)),
                None => Err(CallError::Unknown(Failure::of(
                    Category::OutcomeUnknown,
                    "LinkedIn accepted the post but returned no ID: it may have been published.",
                ))),
            },
            Err(LinkedinError { error: CallError::Permanent(failure), duplicate_of: Some(urn), .. })
                if is_newer(&urn, &post.marker) =>
            {
                Err(CallError::Duplicate { existing: Box::new(published(&urn)), failure })
            }
            Err(failed) => Err(failed.error),
        }
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        match &post.reply_to {
            Some(reply_to) => self.reconcile_comment(account, &reply_to.parent.external_id, post).await,
            None if Self::is_page(account) => self.find(account, post).await,
            None => Ok(ReconcileResult::Unsupported),
        }
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        self.delete(account, post).await
    }

    fn revocation(&self) -> Option<Revocation> {
        Some(Revocation::Grant)
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let application = oauth::application_of(account, &self.config, Platform::Linkedin)?;
        let token = account.secrets.require("access_token")?;
        let form = [
            ("client_id", application.client_id.as_str()),
            ("client_secret", application.client_secret.expose_secret()),
            ("token", token.expose_secret()),
        ];
        let request = self.client.request(Method::POST, &format!("{}/oauth/v2/revoke", self.tokens)).form(&form);
        self.send(Effect::Repeatable, request).await?;
        Ok(())
    }
}

impl Linkedin {
    /// Returns whether a URL from a response belongs to LinkedIn, because images and the token are sent to it.
    fn is_linkedin(&self, address: &str) -> bool {
        let Ok(url) = Url::parse(address) else { return false };
        let host = url.host_str().unwrap_or_default();
        let is_own = url.scheme() == "https" && (host == "linkedin.com" || host.ends_with(".linkedin.com"));
        let is_configured = Url::parse(&self.api).is_ok_and(|api| api.origin() == url.origin());
        is_own || is_configured
    }
}

fn author(account: &ConnectorAccount) -> String {
    match Linkedin::is_page(account) {
        true => account.external_id.clone(),
        false => format!("urn:li:person:{}", account.external_id),
    }
}

/// Returns whether a post was created after a marker. Otherwise, no call with the marker has created it.
fn is_newer(urn: &str, marker: &Marker) -> bool {
    let marked_at: Option<DateTime<Utc>> = marker.get("at").and_then(|at| at.as_str()?.parse().ok());
    marked_at.is_some() && CallWindow::of(marked_at).contains(created_at(urn))
}

fn published(urn: &str) -> Published {
    Published::new(urn, Some(format!("https://www.linkedin.com/feed/update/{urn}")))
}

fn content(post: &OutgoingPost) -> Result<Option<Value>, CallError> {
    if let Some(video) = post.video() {
        return video::content(post, video).map(Some);
    }
    let image_content = |image: &Image| -> Result<Value, CallError> {
        Ok(json!({ "id": image.name()?, "altText": image.alt_text.as_deref().unwrap_or_default() }))
    };
    Ok(match post.images.as_slice() {
        [] => match (post.options.get("link").and_then(Value::as_str), post.options.get("title")) {
            (Some(link), title) => Some(json!({
                "article": { "source": link, "title": title.and_then(Value::as_str).unwrap_or(link) },
            })),
            (None, _) => None,
        },
        [only] => Some(json!({ "media": image_content(only)? })),
        images => {
            let images = images.iter().map(image_content).collect::<Result<Vec<_>, _>>()?;
            Some(json!({ "multiImage": { "images": images } }))
        }
    })
}

/// Returns whether a character continues a hashtag. In many scripts, words contain marks, such as vowels and tones.
fn is_in_hashtag(c: char) -> bool {
    c.is_alphanumeric() || c.general_category_group() == GeneralCategoryGroup::Mark
}

/// Escapes the text, except hashtags.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut before = ' ';
    while let Some(c) = characters.next() {
        let begins_hashtag =
            c == '#' && !before.is_alphanumeric() && characters.peek().is_some_and(|next| next.is_alphanumeric());
        if begins_hashtag {
            let mut word = String::new();
            while let Some(next) = characters.next_if(|next| is_in_hashtag(*next)) {
                word.push(next);
            }
            out.push_str("{hashtag|\\#|");
            out.push_str(&word);
            out.push('}');
            before = 'x';
            continue;
        }
        if RESERVED.contains(c) {
            out.push('\\');
        }
        out.push(c);
        before = c;
    }
    out
}
