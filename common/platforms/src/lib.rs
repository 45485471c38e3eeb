//! Connectors: the code that calls the platforms' APIs.
//!
//! A connector is stateless: it receives the account's secrets and the outgoing post, makes its calls and returns the
//! outcome ([`CallError`] on failure). The worker decides how to react; connectors do not sleep, retry or write to the
//! post's record (only the sandbox, itself a platform, sleeps for `[slow]`).
//!
//! **To add a platform:** add its variant to `crier_domain::platform::Platform` and its descriptor to
//! `crier_domain::catalogue`. If it can publish, add a [`Connector`] in a folder `<name>`, a line in `registry.rs`, and
//! tests in `tests/platforms/<name>.rs` against a server that responds as the platform's documentation specifies. All
//! calls go through [`call::PlatformClient`], which classifies their errors; [`text`] counts the length of texts. A
//! platform whose accounts are connected in a browser also implements [`oauth::OAuthConnector`].
//! [`Connector::image_transfer`] defines how the platform receives images; the descriptor contains their limits.
//! `CONTRIBUTING.md` lists the places outside this crate.

pub mod address;
pub mod analytics;
mod bluesky;
pub mod call;
mod error;
mod facebook;
mod google_business;
pub mod grant;
pub mod images;
pub mod inbox;
mod instagram;
pub mod link_card;
mod linkedin;
mod mastodon;
mod meta;
pub mod metrics;
pub mod oauth;
pub mod options;
pub mod permissions;
mod pinterest;
mod reddit;
mod registry;
pub mod sandbox;
mod sanitized;
mod secrets;
mod shopify;
mod telegram;
pub mod text;
mod threads;
mod tiktok;
mod tumblr;
mod twitter;
mod upload_urls;
pub mod video;
pub mod video_checks;
pub mod warnings;
mod window;
mod woocommerce;
mod wordpress;
mod wp;
mod youtube;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::account::{Renewal, SocialAccount, TokenTimes};
use crier_domain::failure::{Category, Failure};
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{AccountKind, Descriptor};
use crier_domain::post::PublishedPart;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use analytics::AnalyticsConnector;
pub use error::{AcceptedPost, CallError, ConnectError};
pub use grant::Revocation;
pub use inbox::InboxConnector;
pub use link_card::LinkCard;
pub use oauth::OAuthConnector;
pub use registry::{Clients, ConnectorRegistry};
pub use secrets::Secrets;
pub use video::{Medium, UploadQuota, Video, VideoStep, VideoTransfer, VideoUpload};

/// The account data that a connector needs.
#[derive(Clone, Debug)]
pub struct ConnectorAccount {
    pub id: i64,
    pub workspace_id: i64,
    pub external_id: String,
    pub username: Option<String>,
    pub secrets: Secrets,
}

impl ConnectorAccount {
    /// Builds an account from a stored row and its secrets.
    pub fn stored(account: &SocialAccount, secrets: &SecretString) -> Self {
        Self {
            id: account.id,
            workspace_id: account.workspace_id,
            external_id: account.external_id.clone(),
            username: account.username.clone(),
            secrets: Secrets::from_stored(secrets),
        }
    }
}

/// The result of a successful connect.
#[derive(Clone, Debug)]
pub struct Connected {
    pub external_id: String,
    pub name: String,
    pub username: Option<String>,
    pub profile_url: Option<String>,
    pub avatar_url: Option<String>,
    pub kind: AccountKind,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// The limits that the account's server states, and the account's boards. `None` if they could not be read.
    pub limits: Option<AccountLimits>,
    /// How the tokens are renewed, if a job renews them before they expire.
    pub renewal: Option<Renewal>,
    /// The client id of the application that the tokens were issued to.
    pub application: Option<String>,
    /// Stored, and passed to each later call.
    pub secrets: Secrets,
}

/// New tokens from a refresh. `secrets` is `None` if the credentials do not expire and were found valid.
#[derive(Clone, Debug)]
pub struct RefreshedTokens {
    pub secrets: Option<Secrets>,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// The expiry of the refresh token. `None` if it is unchanged or unknown.
    pub refresh_expires_at: Option<DateTime<Utc>>,
}

impl RefreshedTokens {
    pub fn times(&self) -> TokenTimes {
        TokenTimes { token_expires_at: self.token_expires_at, refresh_expires_at: self.refresh_expires_at }
    }
}

/// How a platform receives the images of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageTransfer {
    /// Each image is uploaded separately ([`Connector::upload`]); the post references the results
    /// ([`Image::uploaded`]).
    Uploaded,
    /// The image bytes are part of the publishing request.
    Inline,
    /// The platform downloads the images from Crier ([`Image::url`]).
    Fetched,
}

/// An image of an outgoing post.
#[derive(Clone, Debug)]
pub struct Image {
    /// The asset's id.
    pub id: i64,
    /// The bytes as the platform accepts them, converted and shrunk where necessary. Empty except in the call that
    /// sends them: `upload`, or `publish` with [`ImageTransfer::Inline`].
    pub bytes: Bytes,
    /// The type of `bytes`, or of the asset if `bytes` is empty.
    pub mime_type: String,
    pub filename: String,
    pub alt_text: Option<String>,
    /// The asset's size, not the size of shrunk bytes, so that every attempt reports the same values.
    pub width: u32,
    pub height: u32,
    /// The URL for platforms that download images.
    pub url: String,
    pub uploaded: Option<UploadedImage>,
}

/// The platform's reference to an uploaded image.
#[derive(Clone, Debug, PartialEq)]
pub struct UploadedImage {
    /// The value returned by [`Connector::upload`].
    pub name: Value,
    /// Whether the image was uploaded in this run. An earlier upload may have been deleted: platforms delete uploads
    /// that no post references, and users delete them.
    pub uploaded_in_this_run: bool,
}

impl Image {
    /// Returns the platform's reference. The worker uploads every image before it publishes.
    fn name(&self) -> Result<&Value, CallError> {
        self.uploaded.as_ref().map(|uploaded| &uploaded.name).ok_or_else(|| {
            CallError::Transient(Failure::of(Category::Internal, "An image was not uploaded before its post."))
        })
    }
}

/// A post to publish on one account: the post itself, a part of its thread, or its first comment.
#[derive(Clone, Debug)]
pub struct OutgoingPost {
    pub target_id: i64,
    /// The post that this one replies to. `None` for the post itself.
    pub reply_to: Option<ReplyTo>,
    pub text: String,
    pub images: Vec<Image>,
    pub videos: Vec<Video>,
    /// The link card, for platforms where the client makes it. The worker sets it before it publishes.
    pub card: Option<LinkCard>,
    /// Platform-specific options, by the names in the platform's descriptor.
    pub options: Map<String, Value>,
    /// The value returned by [`Connector::marker`], stored before the first call.
    pub marker: Marker,
    /// The attempt number, starting at 1 (the sandbox's `[flaky]` depends on it).
    pub attempt: u32,
    /// Whether an earlier attempt used this marker, so that its post or uploads may exist on the platform.
    pub has_earlier_attempt: bool,
    /// The time, by Crier's clock, of the call that [`Connector::reconcile`] looks up. `None` if unknown.
    pub called_at: Option<DateTime<Utc>>,
}

/// The key in the marker of the time at which a platform accepted the post.
const ACCEPTED_AT: &str = "accepted_at";

impl OutgoingPost {
    /// Returns the marker of a post that the platform accepts now.
    fn accepted_marker(&self, now: DateTime<Utc>) -> Marker {
        let mut marker = self.marker.clone();
        marker.insert(ACCEPTED_AT.to_owned(), Value::from(now.to_rfc3339()));
        marker
    }

    /// Returns when the platform accepted the post of the call that is looked up. `None` if it is not known to have
    /// accepted it: the marker may have what an earlier call created, and the platform did not publish.
    fn accepted_at(&self) -> Option<DateTime<Utc>> {
        let at: DateTime<Utc> = self.marker.get(ACCEPTED_AT)?.as_str()?.parse().ok()?;
        self.called_at.is_some_and(|called_at| at >= called_at).then_some(at)
    }
}

/// The place of a part of a thread, or of a first comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyTo {
    pub kind: ReplyKind,
    /// The post itself.
    pub root: PublishedPart,
    /// The part before. For a comment, the post itself.
    pub parent: PublishedPart,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyKind {
    ThreadPart,
    Comment,
}

/// Data to find a post after a call with an unknown outcome: a record key, slug, SKU or creation time. Created once per
/// target and stored before the first call; empty if the platform offers nothing to search by.
pub type Marker = Map<String, Value>;

/// A published post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Published {
    pub external_id: String,
    pub url: Option<String>,
    /// The platform's ids of what else the call created, to delete it with the post: the other messages of an album on
    /// Telegram.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_ids: Vec<String>,
    /// New account secrets, if the call returned any (Telegram moved the chat to another id); they replace the stored
    /// ones. Never shown or stored with the post.
    #[serde(skip)]
    pub secrets: Option<Secrets>,
}

impl Published {
    pub fn new(external_id: impl Into<String>, url: Option<String>) -> Self {
        Self { external_id: external_id.into(), url, other_ids: Vec::new(), secrets: None }
    }
}

/// The result of a step that a platform needs before a publish ([`Connector::stage`]).
#[derive(Clone, Debug, PartialEq)]
pub enum StageResult {
    /// The post can be published with its marker.
    Ready,
    /// Something was created on the platform. Store this marker, which contains its id, before the next step.
    Created(Marker),
    /// The platform is processing it. Take the next step after this pause.
    Pending(TimeDelta),
    /// An earlier call published the post. It is one of these, or was not found.
    Published(Vec<Published>),
}

/// The result of looking up an earlier call whose outcome is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReconcileResult {
    /// The post was published.
    Found(Published),
    /// These were published since the call began and cannot be distinguished from the post. The post is one of them,
    /// unless each belongs to another post.
    Matches(Vec<Published>),
    /// The post was published. It is one of these, or was not found.
    PublishedAmong(Vec<Published>),
    /// The post does not exist. Final only after the earlier call's timeout has passed.
    Absent,
    /// The platform accepted the post and is processing it. Look it up again after this pause.
    Pending(TimeDelta),
    /// The platform accepted the post, but did not publish it and will not.
    Rejected(CallError),
    /// The platform provides no way to find out.
    Unsupported,
}

/// The API of one platform. Each call has the deadline of the connector's HTTP client. `sanitized.rs` wraps every
/// connector and makes its results storable: add a method there too (clippy reports a missing one).
#[async_trait]
pub trait Connector: Send + Sync {
    /// Returns the platform's descriptor, as shown to API clients.
    fn descriptor(&self) -> &'static Descriptor;

    /// Checks credentials with the platform before they are saved. The caller has checked that the required fields are
    /// present and are strings. Writes nothing, because the connect may still fail afterward. Platforms that are
    /// connected in a browser have no credentials.
    async fn connect(&self, _workspace_id: i64, _credentials: &Secrets) -> Result<Connected, ConnectError> {
        Err(ConnectError::Rejected("This platform is connected in a browser.".to_owned()))
    }

    /// Returns whether an account is a handle of the sandbox: the transaction that saves the account claims the handle.
    fn claims_handle(&self) -> bool {
        false
    }

    /// Returns the browser connect of the platform. `None` if its accounts are connected with credentials.
    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        None
    }

    /// Returns the inbox of the platform. `None` if its accounts have no inbox.
    fn inbox(&self) -> Option<&dyn InboxConnector> {
        None
    }

    /// Gets new tokens, or checks credentials that do not expire.
    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError>;

    /// Gets the limits that the account's server states, and the account's boards. `None` if the platform has neither.
    /// Called for platforms with [`Platform::has_server_limits`] or [`Platform::has_boards`].
    async fn limits(&self, _account: &ConnectorAccount) -> Result<Option<AccountLimits>, CallError> {
        Ok(None)
    }

    /// Creates the marker that [`Connector::reconcile`] searches for. Called once per target, and stored before its
    /// first call.
    fn marker(&self, _seed: MarkerSeed) -> Marker {
        Marker::new()
    }

    /// Returns whether [`Connector::reconcile`] can find posts. If not, an unknown outcome is final.
    fn can_reconcile(&self) -> bool {
        true
    }

    /// Returns how the platform receives images.
    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Fetched
    }

    /// Uploads one image of a post ([`ImageTransfer::Uploaded`]) and returns the platform's reference, which is stored
    /// before the next upload. The upload is not visible on the platform.
    async fn upload(
        &self,
        _account: &ConnectorAccount,
        _post: &OutgoingPost,
        _image: &Image,
    ) -> Result<Value, CallError> {
        Err(CallError::Transient(Failure::of(Category::Internal, "This platform does not accept uploads.")))
    }

    /// Returns how the platform receives videos.
    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Fetched
    }

    /// Takes the next step of handing over a video ([`VideoTransfer::Uploaded`]): begins an upload, sends a part, or
    /// checks whether the platform has processed it. Nothing becomes visible on the platform.
    async fn send_video(
        &self,
        _account: &ConnectorAccount,
        _post: &OutgoingPost,
        _video: &Video,
    ) -> Result<VideoStep, CallError> {
        Err(CallError::Transient(Failure::of(Category::Internal, "This platform does not accept videos.")))
    }

    /// Aborts an upload that will not be continued, so that the platform does not count it as open. `upload` is its
    /// progress. Best effort: an open upload expires.
    async fn abort_video(&self, _account: &ConnectorAccount, _upload: &VideoUpload) -> Result<(), CallError> {
        Ok(())
    }

    /// Returns the daily limit of uploads that this account shares with others. `None` if each account has its own. The
    /// worker counts each upload before [`Connector::send_video`] begins it.
    fn upload_quota(&self, _account: &ConnectorAccount) -> Option<UploadQuota> {
        None
    }

    /// Returns whether publishing waits for another host or a timer instead of working in this process. If so, another
    /// job may use its slot meanwhile.
    fn waits_externally(&self, _post: &OutgoingPost) -> bool {
        true
    }

    /// Returns whether [`Connector::stage`] is called before a publish of this post.
    fn has_stages(&self, _post: &OutgoingPost) -> bool {
        false
    }

    /// Creates the next thing that the platform needs before a publish and that is not visible there (a container of
    /// images), or checks whether it is ready. Called until it returns [`StageResult::Ready`]. The result of each step is
    /// stored before the next.
    async fn stage(&self, _account: &ConnectorAccount, _post: &OutgoingPost) -> Result<StageResult, CallError> {
        Ok(StageResult::Ready)
    }

    /// Publishes the post. The marker is already stored, the images are ready as [`Connector::image_transfer`]
    /// requires, and the stages are complete. Called for each part of a thread and for a first comment, with
    /// [`OutgoingPost::reply_to`].
    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError>;

    /// Returns whether the parts of a thread are published in one call, all or none, by [`Connector::publish_thread`].
    fn publishes_whole_threads(&self) -> bool {
        false
    }

    /// Publishes the parts of a thread, of which there are at least two. All have the same marker. Returns one result
    /// each, in their order.
    async fn publish_thread(
        &self,
        _account: &ConnectorAccount,
        _parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        Err(CallError::Transient(Failure::of(Category::Internal, "This platform publishes one part at a time.")))
    }

    /// Looks up the post of an earlier call whose outcome is unknown.
    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError>;

    /// Looks up the thread of an earlier [`Connector::publish_thread`] whose outcome is unknown. `None` if it does not
    /// exist, which is final only after the earlier call's timeout has passed.
    async fn reconcile_thread(
        &self,
        _account: &ConnectorAccount,
        _parts: &[OutgoingPost],
    ) -> Result<Option<Vec<Published>>, CallError> {
        Err(CallError::Transient(Failure::of(Category::Internal, "This platform publishes one part at a time.")))
    }

    /// Deletes from the platform a post, a part of a thread or a first comment that Crier published. Succeeds if it no
    /// longer exists. Called again after an unknown outcome. Implemented by platforms whose descriptor has `unpublish`.
    async fn unpublish(&self, _account: &ConnectorAccount, _post: &UnpublishPost) -> Result<(), CallError> {
        let message = "Crier cannot delete posts from this platform. Delete the post there.";
        Err(CallError::Permanent(Failure::with_code(Category::PlatformRejected, "not_supported", message)))
    }

    /// Returns the analytics of the platform. `None` if it reports no metrics.
    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        None
    }

    /// Returns the scope of [`Connector::revoke`]. `None` if it does nothing.
    fn revocation(&self) -> Option<Revocation> {
        None
    }

    /// Revokes the grant of an account when no other account needs it. Best effort.
    async fn revoke(&self, _account: &ConnectorAccount) -> Result<(), CallError> {
        Ok(())
    }
}

/// A post to delete from the platform.
#[derive(Clone, Debug)]
pub struct UnpublishPost {
    pub external_id: String,
    pub url: Option<String>,
    /// Whether it is a first comment. A part of a thread is not.
    pub is_comment: bool,
    /// [`Published::other_ids`] of its call.
    pub other_ids: Vec<String>,
    pub published_at: DateTime<Utc>,
    /// The marker of its last call. `None` for all but the last part of a thread.
    pub marker: Option<Marker>,
    pub options: Map<String, Value>,
}

/// The input for a marker.
#[derive(Clone, Copy, Debug)]
pub struct MarkerSeed {
    pub target_id: i64,
    /// The time of the first attempt, which Bluesky shows as the time of the post.
    pub at: DateTime<Utc>,
    pub random: u64,
    /// `None` for the post itself.
    pub reply: Option<ReplyKind>,
    /// The number of posts that the call publishes: more than one for [`Connector::publish_thread`].
    pub parts: usize,
}

/// Returns a string field of the marker. It was stored before the first call. Without it nothing may be sent, because
/// the post could not be found afterward.
fn marker_field<'a>(marker: &'a Marker, name: &str) -> Result<&'a str, CallError> {
    marker
        .get(name)
        .and_then(Value::as_str)
        .ok_or_else(|| CallError::Transient(Failure::of(Category::Internal, "The post's marker is incomplete.")))
}

/// Returns a marker with the time of the first attempt, for platforms whose recent posts are searched.
fn time_marker(seed: MarkerSeed) -> Marker {
    let at = seed.at.to_rfc3339_opts(SecondsFormat::Millis, true);
    Marker::from_iter([("at".to_owned(), Value::from(at))])
}
