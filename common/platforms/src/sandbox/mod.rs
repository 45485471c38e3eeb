//! The sandbox: a platform inside Crier, for testing the API end to end without an external account (contract, section
//! 6).
//!
//! A post is published to a page of this installation. Keywords in its text select the outcome, so that clients can
//! test their error handling. The parts of a thread and first comments are posts too, each with its own keywords. The
//! page shows them under their post. They are not comments of the inbox.

mod analytics;
mod inbox;
mod store;
mod videos;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_base::clock::Clock;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use crier_domain::sandbox::{NewSandboxPost, SandboxReply};
use secrecy::ExposeSecret;
use serde_json::{Map, Value};

pub use self::store::{SandboxError, SandboxStore};
use super::call::connect_error;
use super::{
    AnalyticsConnector, CallError, ConnectError, Connected, Connector, ConnectorAccount, InboxConnector, Marker,
    MarkerSeed, OutgoingPost, Published, ReconcileResult, RefreshedTokens, ReplyKind, ReplyTo, Secrets, UnpublishPost,
    Video, VideoStep, VideoTransfer, marker_field,
};

const MAX_HANDLE: usize = 32;
const SLOW: Duration = Duration::from_secs(10);
const LIMIT: TimeDelta = TimeDelta::seconds(5);
const FLAKY: TimeDelta = TimeDelta::seconds(1);
const FLAKY_FAILURES: u32 = 2;

/// Returns whether the text is a well-formed handle. Any other text belongs to no workspace and is not looked up.
pub fn is_handle(text: &str) -> bool {
    let fits = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_' || c == b'-';
    (1..=MAX_HANDLE).contains(&text.len()) && text.bytes().all(fits)
}

/// Returns the URL of a post on its handle's page, relative to the host. The page begins with this post, so the URL
/// stays valid however many posts follow.
pub fn post_path(handle: &str, id: i64) -> String {
    reply_path(handle, id, id)
}

/// Returns the URL of a part of a thread, or of a first comment, which the page shows under the post `root`.
pub fn reply_path(handle: &str, root: i64, id: i64) -> String {
    format!("/sandbox/{handle}?from={root}#post-{id}")
}

/// The behavior that a keyword in a post's text requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Directive {
    Expire,
    Fail,
    Limit,
    Flaky,
    Slow,
    Nothing,
}

impl Directive {
    /// Returns the most severe keyword in the text.
    fn of(text: &str) -> Self {
        let words = [
            ("[expire]", Self::Expire),
            ("[fail]", Self::Fail),
            ("[limit]", Self::Limit),
            ("[flaky]", Self::Flaky),
            ("[slow]", Self::Slow),
        ];
        words.iter().find(|(word, _)| text.contains(word)).map_or(Self::Nothing, |(_, directive)| *directive)
    }
}

/// Publishes to `{public_url}/sandbox/{handle}`.
pub struct Sandbox {
    store: Arc<dyn SandboxStore>,
    clock: Clock,
    public_url: String,
    slow: Duration,
}

impl Sandbox {
    /// Creates a sandbox; `public_url` has no trailing slash.
    pub fn new(store: Arc<dyn SandboxStore>, clock: &Clock, public_url: impl Into<String>) -> Self {
        Self { store, clock: clock.clone(), public_url: public_url.into(), slow: SLOW }
    }

    /// Returns a copy with another duration of `[slow]`.
    pub fn with_slow(self, slow: Duration) -> Self {
        Self { slow, ..self }
    }

    fn page(&self, handle: &str) -> String {
        format!("{}/sandbox/{handle}", self.public_url)
    }

    fn published(&self, handle: &str, post: &OutgoingPost, id: i64) -> Published {
        let root = post.reply_to.as_ref().map_or(id, |reply| post_id(&reply.root.external_id));
        Published::new(id.to_string(), Some(format!("{}{}", self.public_url, reply_path(handle, root, id))))
    }

    async fn is_expired(&self, account: &ConnectorAccount) -> Result<bool, CallError> {
        self.store.is_expired(account.workspace_id, &account.external_id).await.map_err(unavailable)
    }

    /// Applies the keyword in the text. The token is checked only if there is a keyword, because the writes check it
    /// themselves.
    async fn apply_directive(&self, account: &ConnectorAccount, text: &str, attempt: u32) -> Result<(), CallError> {
        let (directive, now) = (Directive::of(text), self.clock.now());
        let is_free = matches!(directive, Directive::Nothing);
        if !is_free && self.is_expired(account).await? {
            return Err(token_rejected());
        }
        match directive {
            Directive::Expire => {
                self.store.expire(&account.external_id).await.map_err(unavailable)?;
                return Err(token_rejected());
            }
            Directive::Fail => {
                let message = "The sandbox rejected the post because its text contains [fail].";
                return Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message)));
            }
            Directive::Limit if attempt == 1 => {
                let failure =
                    Failure::of(Category::RateLimited, "The sandbox requests a pause of 5 seconds ([limit]).");
                return Err(CallError::RateLimited { until: Some(now + LIMIT), failure });
            }
            Directive::Flaky if attempt <= FLAKY_FAILURES => {
                let failure = Failure::of(Category::PlatformError, "The sandbox had a temporary error ([flaky]).");
                return Err(CallError::RateLimited { until: Some(now + FLAKY), failure });
            }
            Directive::Slow => tokio::time::sleep(self.slow).await,
            Directive::Limit | Directive::Flaky | Directive::Nothing => {}
        }
        Ok(())
    }

    /// Returns the id of the post. `None` if the token is rejected, or if the post that this one replies to is missing.
    async fn create_post(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Option<i64>, CallError> {
        let post = NewSandboxPost {
            workspace_id: account.workspace_id,
            handle: account.external_id.clone(),
            key: key(post)?,
            content: post.text.clone(),
            media: self.media_of(post)?,
            reply_to: post.reply_to.as_ref().map(place),
        };
        self.store.publish(post).await.map_err(unavailable)
    }
}

/// Returns the error of connecting a handle that another workspace has.
pub fn handle_taken(handle: &str) -> ConnectError {
    ConnectError::Rejected(format!("The handle `{handle}` is taken; choose another one."))
}

fn token_rejected() -> CallError {
    let message = "The sandbox rejected the token because a post contained [expire]. Connect the handle again.";
    CallError::Reauth(Failure::of(Category::AuthExpired, message))
}

fn unavailable(error: SandboxError) -> CallError {
    tracing::warn!(%error, "cannot access the sandbox tables");
    CallError::Transient(Failure::of(Category::PlatformError, "The sandbox is temporarily unavailable."))
}

fn parent_missing() -> CallError {
    let message = "The post that this one replies to is not on the sandbox's page.";
    CallError::ParentMissing(Failure::of(Category::PlatformRejected, message))
}

/// Returns the key under which a post is stored. The parts of a thread have the target in common, so they need a marker.
fn key(post: &OutgoingPost) -> Result<String, CallError> {
    match marker_field(&post.marker, "key") {
        Err(_) if post.reply_to.is_none() => Ok(format!("target-{}", post.target_id)),
        key => key.map(str::to_owned),
    }
}

/// Parses the id of a post. 0, which no post has, if it is not one of the sandbox.
fn post_id(external_id: &str) -> i64 {
    external_id.parse().unwrap_or(0)
}

fn place(reply: &ReplyTo) -> SandboxReply {
    SandboxReply { parent_id: post_id(&reply.parent.external_id), is_comment: reply.kind == ReplyKind::Comment }
}

#[async_trait]
impl Connector for Sandbox {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Sandbox)
    }

    async fn connect(&self, workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let handle = credentials.get("handle").map(|h| h.expose_secret().trim().to_owned()).unwrap_or_default();
        if !is_handle(&handle) {
            let message = "must have 1 to 32 of the characters a-z, 0-9, _ and -".to_owned();
            return Err(ConnectError::Field { field: "handle", message });
        }
        match self.store.owner(&handle).await {
            Ok(owner) if owner.is_none_or(|owner| owner == workspace_id) => {}
            Ok(_) => return Err(handle_taken(&handle)),
            Err(error) => return Err(connect_error(unavailable(error), None)),
        }
        let mut fields = Map::new();
        fields.insert("handle".into(), Value::from(handle.as_str()));
        Ok(Connected {
            name: format!("Sandbox {handle}"),
            username: Some(handle.clone()),
            profile_url: Some(self.page(&handle)),
            avatar_url: None,
            kind: AccountKind::Profile,
            token_expires_at: None,
            renewal: None,
            limits: None,
            application: None,
            secrets: Secrets::new(&fields),
            external_id: handle,
        })
    }

    fn claims_handle(&self) -> bool {
        true
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        match self.is_expired(account).await? {
            false => Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None }),
            true => Err(token_rejected()),
        }
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        let mut marker = Marker::new();
        marker.insert("key".into(), Value::from(format!("{}-{:016x}", seed.target_id, seed.random)));
        marker
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    fn waits_externally(&self, post: &OutgoingPost) -> bool {
        matches!(Directive::of(&post.text), Directive::Slow)
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
        self.receive_video(account, post, video).await
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        self.apply_directive(account, &post.text, post.attempt).await?;
        match self.create_post(account, post).await? {
            Some(id) => Ok(self.published(&account.external_id, post, id)),
            None if post.reply_to.is_none() || self.is_expired(account).await? => Err(token_rejected()),
            None => Err(parent_missing()),
        }
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        let id = post_id(&post.external_id);
        let deleted = self.store.delete_post(account.workspace_id, &account.external_id, id).await;
        match deleted.map_err(unavailable)? {
            false if self.is_expired(account).await? => Err(token_rejected()),
            _ => Ok(()),
        }
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    async fn reconcile(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        let found = self.store.find_post(&key(post)?).await.map_err(unavailable)?;
        let published = |id| ReconcileResult::Found(self.published(&account.external_id, post, id));
        Ok(found.map_or(ReconcileResult::Absent, published))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_select_the_outcome() {
        assert_eq!(Directive::of("hello"), Directive::Nothing);
        assert_eq!(Directive::of("a [fail] b"), Directive::Fail);
        assert_eq!(Directive::of("[slow][flaky]"), Directive::Flaky);
        assert_eq!(Directive::of("[FAIL]"), Directive::Nothing);
    }

    #[test]
    fn only_valid_handles_are_accepted() {
        for good in ["a", "a-b_9", &"z".repeat(32)] {
            assert!(is_handle(good), "{good}");
        }
        for bad in ["", "Demo", "a b", "a/b", "\0", "a\0", "ä", &"z".repeat(33)] {
            assert!(!is_handle(bad), "{bad:?}");
        }
    }
}
