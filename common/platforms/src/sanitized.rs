//! Makes every connector result storable before other code sees it.
//! [`ConnectorRegistry::register`](super::ConnectorRegistry::register) wraps every connector, so that none omits it.

// The default body of a method would bypass the connector.
#![warn(clippy::missing_trait_methods)]

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Datelike, TimeDelta, Utc};
use crier_domain::account::Renewal;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::application::{Application, MAX_CREDENTIAL};
use crier_domain::failure::{Category, Failure};
use crier_domain::limits::{AccountLimits, Board};
use crier_domain::platform::{ConnectTarget, Descriptor};
use crier_domain::untrusted::{self, MAX_ID, MAX_MESSAGE, MAX_NAME};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::analytics::{AnalyticsConnector, MetricsSetAside, PublishedPost};
use super::inbox::InboxConnector;
use super::oauth::{
    AuthServer, Choice, Choices, ConnectAttempt, ConnectRequest, Grant, MAX_CHOICES, OAuthConnector, Permission,
};
use super::window::with_platform_clock;
use super::{
    CallError, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer, Marker, MarkerSeed,
    OutgoingPost, Published, ReconcileResult, RefreshedTokens, Revocation, Secrets, StageResult, UnpublishPost,
    UploadQuota, Video, VideoStep, VideoTransfer, VideoUpload,
};

mod inbox;

/// The maximum size of stored secrets, in bytes of JSON.
const MAX_SECRETS: usize = 64 * 1024;
/// The maximum size of a reference to an object on the platform, in bytes of JSON.
const MAX_REFERENCE: usize = 16 * 1024;
/// The maximum number of other ids of a post.
const MAX_OTHER_IDS: usize = 100;
/// The maximum size of the progress of an upload, in bytes of JSON: the signed URLs of a gigabyte in parts of 4 MiB, or
/// the tags of up to a thousand parts.
const MAX_UPLOAD: usize = 1024 * 1024;
/// The maximum number of boards of an account.
const MAX_BOARDS: usize = 250;
/// The maximum length of a board's name and of its id, in characters: that of the option `board`.
const MAX_BOARD_TEXT: usize = 100;
/// The maximum pause before the next request.
const MAX_PAUSE: TimeDelta = TimeDelta::hours(1);
/// The last year that both databases can store and sort.
const LAST_YEAR: i32 = 9_999;

/// Wraps a connector and checks its results.
pub(super) struct SanitizingConnector(pub(super) Arc<dyn Connector>, pub(super) EnabledFeatures);

/// The features of a connector that the operator enables. Others are hidden.
pub(super) struct EnabledFeatures {
    pub(super) inbox: bool,
    pub(super) analytics: bool,
}

#[async_trait]
impl Connector for SanitizingConnector {
    fn descriptor(&self) -> &'static Descriptor {
        self.0.descriptor()
    }

    async fn connect(&self, workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        match self.0.connect(workspace_id, credentials).await {
            Ok(connected) => connected.checked(),
            Err(error) => Err(error.checked()),
        }
    }

    fn claims_handle(&self) -> bool {
        self.0.claims_handle()
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        self.0.inbox().filter(|_| self.1.inbox).map(|_| self as &dyn InboxConnector)
    }

    fn oauth(&self) -> Option<&dyn OAuthConnector> {
        self.0.oauth().map(|_| self as &dyn OAuthConnector)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let mut tokens = self.0.refresh(account).await.map_err(CallError::checked)?;
        if tokens.secrets.as_ref().is_some_and(|secrets| !secrets.is_storable()) {
            let message = "The platform returned new tokens that are too large to store.";
            return Err(CallError::Transient(Failure::of(Category::PlatformError, message)));
        }
        tokens.token_expires_at = storable_time(tokens.token_expires_at);
        tokens.refresh_expires_at = storable_time(tokens.refresh_expires_at);
        Ok(tokens)
    }

    async fn limits(&self, account: &ConnectorAccount) -> Result<Option<AccountLimits>, CallError> {
        let limits = self.0.limits(account).await.map_err(CallError::checked)?;
        Ok(limits.map(with_storable_boards))
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        self.0.marker(seed)
    }

    fn can_reconcile(&self) -> bool {
        self.0.can_reconcile()
    }

    fn waits_externally(&self, post: &OutgoingPost) -> bool {
        self.0.waits_externally(post)
    }

    fn image_transfer(&self) -> ImageTransfer {
        self.0.image_transfer()
    }

    async fn upload(&self, account: &ConnectorAccount, post: &OutgoingPost, image: &Image) -> Result<Value, CallError> {
        let name = self.0.upload(account, post, image).await.map_err(CallError::checked)?;
        if is_storable(&name.to_string()) { Ok(name) } else { Err(unstorable_name()) }
    }

    fn video_transfer(&self) -> VideoTransfer {
        self.0.video_transfer()
    }

    async fn send_video(
        &self,
        account: &ConnectorAccount,
        post: &OutgoingPost,
        video: &Video,
    ) -> Result<VideoStep, CallError> {
        let step = with_platform_clock(self.0.send_video(account, post, video)).await.map_err(CallError::checked)?;
        let is_storable = match &step {
            VideoStep::Next(upload) | VideoStep::Pending(upload, _) => is_storable_upload(upload),
            VideoStep::Ready(reference) => is_storable(&reference.to_string()),
            VideoStep::Expired => true,
        };
        match step {
            _ if !is_storable => Err(unstorable_name()),
            VideoStep::Pending(upload, pause) => Ok(VideoStep::Pending(upload, bounded(pause))),
            step => Ok(step),
        }
    }

    async fn abort_video(&self, account: &ConnectorAccount, upload: &VideoUpload) -> Result<(), CallError> {
        with_platform_clock(self.0.abort_video(account, upload)).await.map_err(CallError::checked)
    }

    fn upload_quota(&self, account: &ConnectorAccount) -> Option<UploadQuota> {
        self.0.upload_quota(account)
    }

    fn has_stages(&self, post: &OutgoingPost) -> bool {
        self.0.has_stages(post)
    }

    async fn stage(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<StageResult, CallError> {
        let staged = with_platform_clock(self.0.stage(account, post)).await;
        Ok(match staged.map_err(CallError::checked)? {
            StageResult::Created(marker) if !is_storable_marker(&marker) => return Err(unstorable_name()),
            StageResult::Pending(pause) => StageResult::Pending(bounded(pause)),
            StageResult::Published(found) => {
                StageResult::Published(found.into_iter().map(Published::sanitized).collect())
            }
            staged @ (StageResult::Ready | StageResult::Created(_)) => staged,
        })
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        with_platform_clock(self.0.publish(account, post)).await.map(Published::sanitized).map_err(CallError::checked)
    }

    fn publishes_whole_threads(&self) -> bool {
        self.0.publishes_whole_threads()
    }

    async fn publish_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        let published = self.0.publish_thread(account, parts).await.map_err(CallError::checked)?;
        all_parts(published, parts.len()).ok_or_else(missing_parts)
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let found = with_platform_clock(self.0.reconcile(account, post)).await;
        found.map(ReconcileResult::sanitized).map_err(CallError::checked)
    }

    async fn reconcile_thread(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Option<Vec<Published>>, CallError> {
        let found = with_platform_clock(self.0.reconcile_thread(account, parts)).await.map_err(CallError::checked)?;
        found.map(|found| all_parts(found, parts.len()).ok_or_else(missing_parts)).transpose()
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        if post.external_id.trim().is_empty() {
            return Err(unknown_id());
        }
        self.0.unpublish(account, post).await.map_err(CallError::checked)
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        self.0.analytics().filter(|_| self.1.analytics).map(|_| self as &dyn AnalyticsConnector)
    }

    fn revocation(&self) -> Option<Revocation> {
        self.0.revocation()
    }

    async fn revoke(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        self.0.revoke(account).await.map_err(CallError::checked)
    }
}

/// Returns the wrapped connector's implementation. [`SanitizingConnector::oauth`] has checked that it exists.
fn oauth_of(this: &SanitizingConnector) -> Result<&dyn OAuthConnector, ConnectError> {
    this.0.oauth().ok_or_else(|| ConnectError::Rejected("This platform is not connected in a browser.".to_owned()))
}

#[async_trait]
impl OAuthConnector for SanitizingConnector {
    fn targets(&self) -> &'static [ConnectTarget] {
        self.0.oauth().map_or(&[], OAuthConnector::targets)
    }

    fn permissions(&self, target: ConnectTarget) -> &'static [Permission] {
        self.0.oauth().map_or(&[], |oauth| oauth.permissions(target))
    }

    fn gate(&self, target: ConnectTarget) -> Option<&'static str> {
        self.0.oauth().and_then(|oauth| oauth.gate(target))
    }

    fn choice_noun(&self) -> &'static str {
        self.0.oauth().map_or("account", OAuthConnector::choice_noun)
    }

    async fn check_instance(&self, typed: &str) -> Result<String, ConnectError> {
        oauth_of(self)?.check_instance(typed).await.map_err(ConnectError::checked)
    }

    async fn server(&self, request: ConnectRequest<'_>) -> Result<AuthServer, ConnectError> {
        oauth_of(self)?.server(request).await.map_err(ConnectError::checked)
    }

    async fn application(
        &self,
        request: ConnectRequest<'_>,
        server: &AuthServer,
        redirect_uri: &str,
        stored: Option<Application>,
    ) -> Result<Option<Application>, ConnectError> {
        let found = oauth_of(self)?.application(request, server, redirect_uri, stored).await;
        let found = found.map_err(ConnectError::checked)?;
        let fits = |text: &str| text.len() <= MAX_CREDENTIAL && !text.contains('\0');
        match &found {
            Some(new) if !fits(&new.client_id) || !fits(new.client_secret.expose_secret()) => {
                Err(ConnectError::Unavailable("The platform returned an application that cannot be stored.".to_owned()))
            }
            _ => Ok(found),
        }
    }

    fn is_authentic(&self, attempt: &ConnectAttempt, query: &str) -> bool {
        self.0.oauth().is_some_and(|oauth| oauth.is_authentic(attempt, query))
    }

    async fn exchange(&self, attempt: &ConnectAttempt, code: &str) -> Result<Grant, ConnectError> {
        let mut grant = oauth_of(self)?.exchange(attempt, code).await.map_err(ConnectError::checked)?;
        if !grant.secrets().is_storable() {
            return Err(ConnectError::Unavailable("The platform returned tokens that are too large.".to_owned()));
        }
        grant.token_expires_at = storable_time(grant.token_expires_at);
        grant.refresh_expires_at = storable_time(grant.refresh_expires_at);
        Ok(grant)
    }

    async fn choices(&self, grant: &Grant) -> Result<Choices, ConnectError> {
        let choices = oauth_of(self)?.choices(grant).await.map_err(ConnectError::checked)?;
        let Choices::Of(choices) = choices else { return Ok(choices) };
        // An id that cannot be stored unchanged could identify something else.
        let usable = choices.into_iter().filter(|c| !c.id.is_empty() && untrusted::line(&c.id, MAX_ID) == c.id);
        let named = usable.map(|choice| Choice {
            name: untrusted::some_line(&choice.name, MAX_NAME).unwrap_or_else(|| choice.id.clone()),
            detail: choice.detail.and_then(|detail| untrusted::some_line(&detail, MAX_NAME)),
            id: choice.id,
        });
        Ok(Choices::Of(named.take(MAX_CHOICES).collect()))
    }

    async fn finish(&self, grant: &Grant, choice: Option<&Choice>) -> Result<Connected, ConnectError> {
        match oauth_of(self)?.finish(grant, choice).await {
            Ok(connected) => connected.checked(),
            Err(error) => Err(error.checked()),
        }
    }
}

#[async_trait]
impl AnalyticsConnector for SanitizingConnector {
    fn posts_per_call(&self) -> usize {
        self.0.analytics().map_or(1, AnalyticsConnector::posts_per_call)
    }

    fn assigns_ids_later(&self) -> bool {
        self.0.analytics().is_some_and(AnalyticsConnector::assigns_ids_later)
    }

    async fn find_id(&self, account: &ConnectorAccount, marker: &Marker) -> Result<Option<Published>, CallError> {
        let found = analytics_of(self)?.find_id(account, marker).await.map_err(CallError::checked)?;
        Ok(found.map(Published::sanitized))
    }

    async fn post_metrics(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
        set_aside: &mut MetricsSetAside,
    ) -> Result<Vec<Option<PostMetrics>>, CallError> {
        let metrics = analytics_of(self)?.post_metrics(account, posts, set_aside).await.map_err(CallError::checked)?;
        if metrics.len() != posts.len() {
            let message = "The platform returned metrics for posts that were not requested.";
            return Err(CallError::Transient(Failure::of(Category::PlatformError, message)));
        }
        Ok(metrics)
    }

    async fn later_rejections(
        &self,
        account: &ConnectorAccount,
        posts: &[PublishedPost],
    ) -> Result<Vec<Option<Failure>>, CallError> {
        let found = analytics_of(self)?.later_rejections(account, posts).await.map_err(CallError::checked)?;
        Ok(found.into_iter().take(posts.len()).map(|failure| failure.map(Failure::checked)).collect())
    }

    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        analytics_of(self)?.account_metrics(account, set_aside).await.map_err(CallError::checked)
    }
}

fn analytics_of(this: &SanitizingConnector) -> Result<&dyn AnalyticsConnector, CallError> {
    let none = || CallError::Permanent(Failure::of(Category::Account, "This platform does not report metrics."));
    this.0.analytics().ok_or_else(none)
}

impl Secrets {
    fn is_storable(&self) -> bool {
        self.0.expose_secret().len() <= MAX_SECRETS
    }
}

impl Published {
    /// Keeps whatever can be stored, because the post is already published.
    fn sanitized(self) -> Self {
        Self {
            external_id: untrusted::line(&self.external_id, MAX_ID),
            url: self.url.as_deref().and_then(untrusted::http_url),
            other_ids: self.other_ids.iter().take(MAX_OTHER_IDS).map(|id| untrusted::line(id, MAX_ID)).collect(),
            secrets: self.secrets.filter(Secrets::is_storable),
        }
    }

    /// Returns a copy without anything that the database may reject. It is stored if the database rejects the full
    /// result.
    pub fn minimal(&self) -> Self {
        let is_plain = self.external_id.len() <= MAX_ID && self.external_id.bytes().all(|byte| byte.is_ascii_graphic());
        Self::new(if is_plain { self.external_id.as_str() } else { "" }, None)
    }
}

impl ReconcileResult {
    fn sanitized(self) -> Self {
        match self {
            Self::Found(published) => Self::Found(published.sanitized()),
            Self::Matches(found) => Self::Matches(found.into_iter().map(Published::sanitized).collect()),
            Self::PublishedAmong(found) => Self::PublishedAmong(found.into_iter().map(Published::sanitized).collect()),
            Self::Pending(pause) => Self::Pending(bounded(pause)),
            Self::Rejected(error) => Self::Rejected(error.checked()),
            Self::Absent => Self::Absent,
            Self::Unsupported => Self::Unsupported,
        }
    }
}

impl Connected {
    /// An id that cannot be stored unchanged could match another account.
    fn checked(self) -> Result<Self, ConnectError> {
        let unusable = |what| ConnectError::Unavailable(format!("The platform returned {what}."));
        if self.external_id.is_empty() || untrusted::line(&self.external_id, MAX_ID) != self.external_id {
            return Err(unusable("an account ID that cannot be stored"));
        }
        if !self.secrets.is_storable() {
            return Err(unusable("tokens that are too large to store"));
        }
        Ok(Self {
            name: untrusted::some_line(&self.name, MAX_NAME)
                .unwrap_or_else(|| self.external_id.chars().take(MAX_NAME).collect()),
            username: self.username.and_then(|name| untrusted::some_line(&name, MAX_NAME)),
            profile_url: self.profile_url.as_deref().and_then(untrusted::http_url),
            avatar_url: self.avatar_url.as_deref().and_then(untrusted::http_url),
            token_expires_at: storable_time(self.token_expires_at),
            limits: self.limits.map(with_storable_boards),
            renewal: self
                .renewal
                .map(|renewal| Renewal { refresh_expires_at: storable_time(renewal.refresh_expires_at), ..renewal }),
            ..self
        })
    }
}

impl CallError {
    fn checked(self) -> Self {
        match self {
            Self::RateLimited { until, failure } => {
                Self::RateLimited { until: storable_time(until), failure: failure.checked() }
            }
            Self::AuthExpired(failure) => Self::AuthExpired(failure.checked()),
            Self::Reauth(failure) => Self::Reauth(failure.checked()),
            Self::Permanent(failure) => Self::Permanent(failure.checked()),
            Self::Transient(failure) => Self::Transient(failure.checked()),
            Self::ParentMissing(failure) => Self::ParentMissing(failure.checked()),
            Self::UploadsMissing(failure) => Self::UploadsMissing(failure.checked()),
            Self::Duplicate { existing, failure } => {
                Self::Duplicate { existing: Box::new(existing.sanitized()), failure: failure.checked() }
            }
            Self::Unknown(failure) => Self::Unknown(failure.checked()),
            Self::Accepted { mut post, failure } if is_storable_marker(&post.marker) => {
                post.pause = bounded(post.pause);
                Self::Accepted { post, failure: failure.checked() }
            }
            Self::Accepted { failure, .. } => Self::Unknown(failure.checked()),
        }
    }
}

impl ConnectError {
    fn checked(self) -> Self {
        let line = |message: String| untrusted::line(&message, MAX_MESSAGE);
        match self {
            Self::Field { field, message } => Self::Field { field, message: line(message) },
            Self::Rejected(message) => Self::Rejected(line(message)),
            Self::Unavailable(message) => Self::Unavailable(line(message)),
        }
    }
}

/// Returns whether a reference can be stored. It is sent to the platform unchanged, so nothing can be removed from it.
fn is_storable(json: &str) -> bool {
    json.len() <= MAX_REFERENCE && !json.contains("\\u0000")
}

/// An id that cannot be stored unchanged could identify another board.
fn with_storable_boards(limits: AccountLimits) -> AccountLimits {
    let is_usable = |board: &Board| !board.id.is_empty() && untrusted::line(&board.id, MAX_BOARD_TEXT) == board.id;
    let usable = limits.boards.into_iter().filter(is_usable).take(MAX_BOARDS);
    let named = usable.map(|board| Board {
        name: untrusted::some_line(&board.name, MAX_BOARD_TEXT).unwrap_or_else(|| board.id.clone()),
        id: board.id,
    });
    AccountLimits { boards: named.collect(), ..limits }
}

fn is_storable_marker(marker: &Marker) -> bool {
    serde_json::to_string(marker).is_ok_and(|json| is_storable(&json))
}

fn is_storable_upload(upload: &VideoUpload) -> bool {
    serde_json::to_string(upload).is_ok_and(|json| json.len() <= MAX_UPLOAD && !json.contains("\\u0000"))
}

/// Returns the parts of a thread. `None` if some are missing.
fn all_parts(published: Vec<Published>, count: usize) -> Option<Vec<Published>> {
    (published.len() == count).then(|| published.into_iter().map(Published::sanitized).collect())
}

fn missing_parts() -> CallError {
    let message = "The platform did not return all parts of the thread.";
    CallError::Unknown(Failure::of(Category::PlatformError, message))
}

/// Returns the error for a post to delete without an id. Its URL could be that of a list of posts.
fn unknown_id() -> CallError {
    let message = "The ID of the post is unknown, so Crier cannot delete the post. Delete it on the platform.";
    CallError::Permanent(Failure::with_code(Category::PlatformRejected, "external_id_unknown", message))
}

fn unstorable_name() -> CallError {
    let message = "The platform returned a name for a part of this post that cannot be stored.";
    CallError::Permanent(Failure::of(Category::PlatformRejected, message))
}

fn bounded(pause: TimeDelta) -> TimeDelta {
    pause.clamp(TimeDelta::zero(), MAX_PAUSE)
}

fn storable_time(at: Option<DateTime<Utc>>) -> Option<DateTime<Utc>> {
    at.filter(|at| (1..=LAST_YEAR).contains(&at.year()))
}
