//! A scripted platform, which can respond, hang, accept a post without a response, or panic. It records posts and does
//! not deduplicate them, so that tests can detect duplicates.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::clock::Clock;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::catalogue;
use crier_domain::failure::Failure;
use crier_domain::platform::{Descriptor, Platform};
use crier_platforms::analytics::{MetricsSetAside, PublishedPost};
use crier_platforms::{
    AnalyticsConnector, CallError, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer,
    InboxConnector, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, RefreshedTokens, Secrets,
    UnpublishPost, UploadQuota, Video, VideoStep, VideoTransfer, VideoUpload,
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

mod connector;
mod videos;

pub use super::failures::*;
use super::fake_inbox::FakeInbox;
pub use videos::{FakeVideos, PART, VideoAct, upload};

/// The behavior of one publish call.
pub enum PublishStep {
    Publish,
    /// Publishes, and returns this result.
    PublishAs(Published),
    Reject(CallError),
    /// Accepts the post and returns this error, like a broken connection.
    AcceptAnd(CallError),
    /// Waits at the gate, then publishes.
    Wait(Arc<Gate>),
    /// Waits at the gate, then returns this error.
    WaitAndReject(Arc<Gate>, CallError),
    /// Publishes, reaches the gate, and never responds, as if the connection broke after the post was published.
    AcceptAndHang(Arc<Gate>),
    /// Never responds, and accepts the post this many seconds later, when the caller may already have died.
    AcceptLater(Arc<Gate>, i64),
    /// Never responds.
    Hang(Arc<Gate>),
    Panic,
}

/// The behavior of one upload call.
pub enum UploadStep {
    Accept,
    Reject(CallError),
    /// Waits at the gate, then accepts the upload.
    Wait(Arc<Gate>),
    /// Accepts the upload, reaches the gate, and never responds.
    AcceptAndHang(Arc<Gate>),
}

/// The behavior of one unpublish call. A post that does not exist counts as deleted.
pub enum UnpublishStep {
    Delete,
    Reject(CallError),
    /// Deletes the post and returns this error, like a broken connection.
    DeleteAnd(CallError),
    /// Deletes the post, reaches the gate, and never responds.
    DeleteAndHang(Arc<Gate>),
}

/// Blocks a call until the test releases it.
pub struct Gate {
    entered: Semaphore,
    open: Semaphore,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { entered: Semaphore::new(0), open: Semaphore::new(0) })
    }

    /// Waits until a call has reached the gate.
    pub async fn wait_until_entered(&self) {
        self.entered.acquire().await.expect("the gate is never closed").forget();
    }

    /// Releases one call.
    pub fn let_through(&self) {
        self.open.add_permits(1);
    }

    /// Reaches the gate and never returns.
    pub async fn hang<T>(&self) -> T {
        self.entered.add_permits(1);
        std::future::pending().await
    }

    /// Reaches the gate and waits until released.
    pub async fn enter(&self) {
        self.entered.add_permits(1);
        self.open.acquire().await.expect("the gate is never closed").forget();
    }
}

/// A post on the platform.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Posted {
    pub marker: String,
    pub text: String,
    pub id: String,
    /// The id of the post that it replies to.
    pub parent: Option<String>,
}

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    pub what: &'static str,
    pub marker: String,
    pub at: DateTime<Utc>,
}

pub struct FakePlatform {
    platform: Platform,
    clock: Clock,
    can_reconcile: AtomicBool,
    publishes_whole_threads: AtomicBool,
    script: Mutex<VecDeque<PublishStep>>,
    reconcile_results: Mutex<VecDeque<Result<ReconcileResult, CallError>>>,
    refreshes: Mutex<VecDeque<Result<RefreshedTokens, CallError>>>,
    /// The only valid token, if the platform checks tokens.
    token: Mutex<Option<String>>,
    used_tokens: Mutex<Vec<String>>,
    posts: Mutex<Vec<Posted>>,
    unpublish_script: Mutex<VecDeque<UnpublishStep>>,
    /// The post of each unpublish call.
    unpublishes: Mutex<Vec<UnpublishPost>>,
    image_transfer: Mutex<ImageTransfer>,
    upload_script: Mutex<VecDeque<UploadStep>>,
    uploads: Mutex<Vec<Image>>,
    /// The images of each publish call.
    published_images: Mutex<Vec<Vec<Image>>>,
    /// Posts that the platform accepts at a later time.
    late: Mutex<Vec<(DateTime<Utc>, Vec<OutgoingPost>)>>,
    calls: Mutex<Vec<Call>>,
    panics_at_marker: AtomicUsize,
    /// Blocks the next reconcile response after it is computed.
    held: Mutex<Option<Arc<Gate>>>,
    /// Blocks the next refresh.
    held_refresh: Mutex<Option<Arc<Gate>>>,
    count: AtomicU64,
    accepted: Semaphore,
    has_metrics: AtomicBool,
    rejected_metric: Mutex<Option<String>>,
    post_metrics: Mutex<Vec<Option<PostMetrics>>>,
    /// `None` if a post has its id when it is published. Otherwise the post that `find_id` returns.
    late_id: Mutex<Option<Option<Published>>>,
    metrics_errors: Mutex<VecDeque<CallError>>,
    later_rejections: Mutex<Vec<Option<Failure>>>,
    pub inbox: FakeInbox,
    pub videos: FakeVideos,
}

impl FakePlatform {
    /// Replaces the connector of `platform`.
    pub fn new(platform: Platform, clock: Clock) -> Arc<Self> {
        Arc::new(Self {
            platform,
            inbox: FakeInbox::new(clock.clone()),
            clock,
            can_reconcile: AtomicBool::new(true),
            publishes_whole_threads: AtomicBool::new(false),
            script: Mutex::default(),
            reconcile_results: Mutex::default(),
            refreshes: Mutex::default(),
            token: Mutex::default(),
            used_tokens: Mutex::default(),
            posts: Mutex::default(),
            unpublish_script: Mutex::default(),
            unpublishes: Mutex::default(),
            image_transfer: Mutex::new(ImageTransfer::Fetched),
            upload_script: Mutex::default(),
            uploads: Mutex::default(),
            published_images: Mutex::default(),
            late: Mutex::default(),
            calls: Mutex::default(),
            panics_at_marker: AtomicUsize::new(0),
            held: Mutex::default(),
            held_refresh: Mutex::default(),
            count: AtomicU64::new(0),
            accepted: Semaphore::new(0),
            has_metrics: AtomicBool::new(false),
            rejected_metric: Mutex::default(),
            post_metrics: Mutex::default(),
            late_id: Mutex::default(),
            metrics_errors: Mutex::default(),
            later_rejections: Mutex::default(),
            videos: FakeVideos::default(),
        })
    }

    /// Scripts the next publish calls; later calls publish.
    pub fn script_publishes(&self, script: impl IntoIterator<Item = PublishStep>) {
        self.script.lock().expect("no panic").extend(script);
    }

    /// Scripts the next unpublish calls; later calls delete the post.
    pub fn script_unpublishes(&self, script: impl IntoIterator<Item = UnpublishStep>) {
        self.unpublish_script.lock().expect("no panic").extend(script);
    }

    /// Returns the post of each unpublish call whose token was valid.
    pub fn unpublishes(&self) -> Vec<UnpublishPost> {
        self.unpublishes.lock().expect("no panic").clone()
    }

    /// Sets how images are transferred. Default: the platform fetches them by URL.
    pub fn set_image_transfer(&self, transfer: ImageTransfer) {
        *self.image_transfer.lock().expect("no panic") = transfer;
    }

    /// Scripts the next uploads; later uploads are accepted.
    pub fn script_uploads(&self, script: impl IntoIterator<Item = UploadStep>) {
        self.upload_script.lock().expect("no panic").extend(script);
    }

    /// Returns the uploads, in order.
    pub fn uploads(&self) -> Vec<Image> {
        self.uploads.lock().expect("no panic").clone()
    }

    /// Returns the images of each publish call.
    pub fn published_images(&self) -> Vec<Vec<Image>> {
        self.published_images.lock().expect("no panic").clone()
    }

    /// Clears the publish script and a pending panic in the marker.
    pub fn clear_script(&self) {
        self.script.lock().expect("no panic").clear();
        self.panics_at_marker.store(0, Ordering::SeqCst);
    }

    /// Scripts the results of the next reconcile calls; later calls look for the post.
    pub fn script_reconciles(&self, results: impl IntoIterator<Item = Result<ReconcileResult, CallError>>) {
        self.reconcile_results.lock().expect("no panic").extend(results);
    }

    /// Scripts the results of the next refresh calls; later calls return a new token, once per valid token.
    pub fn script_refreshes(&self, results: impl IntoIterator<Item = Result<RefreshedTokens, CallError>>) {
        self.refreshes.lock().expect("no panic").extend(results);
    }

    /// Enables metrics. An account has seven followers.
    pub fn enable_metrics(&self) {
        self.has_metrics.store(true, Ordering::SeqCst);
    }

    /// From now on, rejects a metric if it is requested.
    pub fn reject_metric(&self, name: &str) {
        *self.rejected_metric.lock().expect("no panic") = Some(name.to_owned());
    }

    /// Sets the metrics of posts, in the order in which they are requested.
    pub fn set_post_metrics<const N: usize>(&self, metrics: [Option<PostMetrics>; N]) {
        *self.post_metrics.lock().expect("no panic") = metrics.into();
    }

    /// Rejects published posts, in the order in which they are requested.
    pub fn reject_later<const N: usize>(&self, rejections: [Option<Failure>; N]) {
        *self.later_rejections.lock().expect("no panic") = rejections.into();
    }

    /// Makes the ids of posts available only after publishing, through `find_id`. `None`: not yet available.
    pub fn assign_ids_later(&self, post: Option<Published>) {
        *self.late_id.lock().expect("no panic") = Some(post);
    }

    /// Fails the next requests for metrics.
    pub fn fail_metrics(&self, errors: impl IntoIterator<Item = CallError>) {
        self.metrics_errors.lock().expect("no panic").extend(errors);
    }

    /// Publishes all parts of a thread in one call from now on.
    pub fn publish_whole_threads(&self) {
        self.publishes_whole_threads.store(true, Ordering::SeqCst);
    }

    /// Deletes a post, as a person on the platform does.
    pub fn delete_post(&self, id: &str) {
        self.posts.lock().expect("no panic").retain(|posted| posted.id != id);
    }

    /// Shows a deleted post again, before all others.
    pub fn restore_post(&self, post: Posted) {
        self.posts.lock().expect("no panic").insert(0, post);
    }

    /// Disables reconciliation.
    pub fn disable_reconcile(&self) {
        self.can_reconcile.store(false, Ordering::SeqCst);
    }

    /// From now on, accepts only this token.
    pub fn accept_only_token(&self, token: &str) {
        *self.token.lock().expect("no panic") = Some(token.to_owned());
    }

    /// Panics when the next run creates its marker in the transaction before the call, as if the process died there. It
    /// panics twice: in the transaction that the run shares with others, and again in its own.
    pub fn panic_at_marker(&self) {
        self.panics_at_marker.store(2, Ordering::SeqCst);
    }

    /// Blocks the next reconcile response after it is computed.
    pub fn hold_reconcile(&self, gate: Arc<Gate>) {
        *self.held.lock().expect("no panic") = Some(gate);
    }

    /// Blocks the next refresh before it responds.
    pub fn hold_refresh(&self, gate: Arc<Gate>) {
        *self.held_refresh.lock().expect("no panic") = Some(gate);
    }

    /// Waits until `more` posts have been accepted since the last call of this function.
    pub async fn wait_until_published(&self, more: u32) {
        self.accepted.acquire_many(more).await.expect("never closed").forget();
    }

    pub fn posts(&self) -> Vec<Posted> {
        let now = self.clock.now();
        let late: Vec<_> = self.late.lock().expect("no panic").extract_if(.., |(at, ..)| *at <= now).collect();
        for (_, parts) in late {
            self.take(&parts);
        }
        self.posts.lock().expect("no panic").clone()
    }

    pub fn calls(&self) -> Vec<Call> {
        self.calls.lock().expect("no panic").clone()
    }

    /// Returns the number of calls of one type (`upload`, `publish`, `reconcile`, `refresh`).
    pub fn count(&self, what: &str) -> usize {
        self.calls().iter().filter(|call| call.what == what).count()
    }

    fn called(&self, what: &'static str, post: Option<&OutgoingPost>) {
        let marker = post.map(key).unwrap_or_default();
        self.calls.lock().expect("no panic").push(Call { what, marker, at: self.clock.now() });
    }

    fn accept(&self, parts: &[OutgoingPost]) -> Vec<Published> {
        self.take(parts).iter().map(|id| published(id)).collect()
    }

    /// Adds posts, each of which replies to the one before.
    fn take(&self, parts: &[OutgoingPost]) -> Vec<String> {
        let mut ids: Vec<String> = Vec::new();
        for post in parts {
            let id = format!("post-{}", self.count.fetch_add(1, Ordering::SeqCst) + 1);
            let replied_to = post.reply_to.as_ref().map(|reply| reply.parent.external_id.clone());
            let parent = ids.last().cloned().or(replied_to);
            let posted = Posted { marker: key(post), text: post.text.clone(), id: id.clone(), parent };
            self.posts.lock().expect("no panic").push(posted);
            ids.push(id);
        }
        self.accepted.add_permits(1);
        ids
    }

    /// Acts as the script says for the next call.
    async fn follow_script(
        &self,
        account: &ConnectorAccount,
        parts: &[OutgoingPost],
    ) -> Result<Vec<Published>, CallError> {
        let post = &parts[0];
        self.called("publish", Some(post));
        self.check_token(account)?;
        self.published_images.lock().expect("no panic").push(post.images.clone());
        self.videos.record_publish(parts);
        let parent = post.reply_to.as_ref().map(|reply| reply.parent.external_id.as_str());
        if parent.is_some_and(|parent| !self.posts().iter().any(|posted| posted.id == parent)) {
            return Err(CallError::ParentMissing(gone()));
        }
        let next = self.script.lock().expect("no panic").pop_front();
        match next.unwrap_or(PublishStep::Publish) {
            PublishStep::Publish => Ok(self.accept(parts)),
            PublishStep::PublishAs(published) => {
                self.accept(parts);
                Ok(vec![published])
            }
            PublishStep::Reject(error) => Err(error),
            PublishStep::AcceptAnd(error) => {
                self.accept(parts);
                Err(error)
            }
            PublishStep::Wait(gate) => {
                gate.enter().await;
                Ok(self.accept(parts))
            }
            PublishStep::WaitAndReject(gate, error) => {
                gate.enter().await;
                Err(error)
            }
            PublishStep::AcceptAndHang(gate) => {
                self.accept(parts);
                gate.hang().await
            }
            PublishStep::AcceptLater(gate, seconds) => {
                let at = self.clock.now() + TimeDelta::seconds(seconds);
                self.late.lock().expect("no panic").push((at, parts.to_vec()));
                gate.hang().await
            }
            PublishStep::Hang(gate) => gate.hang().await,
            PublishStep::Panic => panic!("the connector panics, as the test wants"),
        }
    }

    fn remove(&self, id: &str) {
        self.posts.lock().expect("no panic").retain(|posted| posted.id != id);
    }

    fn check_token(&self, account: &ConnectorAccount) -> Result<(), CallError> {
        let wanted = self.token.lock().expect("no panic").clone();
        match wanted {
            Some(wanted) if token(account) != wanted => Err(CallError::AuthExpired(auth())),
            _ => Ok(()),
        }
    }
}

fn key(post: &OutgoingPost) -> String {
    post.marker.get("key").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn token(account: &ConnectorAccount) -> String {
    account.secrets.get("token").map(|token| token.expose_secret().to_owned()).unwrap_or_default()
}

fn published(id: &str) -> Published {
    Published::new(id, Some(format!("https://fake.example/{id}")))
}

pub fn secrets(token: &str) -> Secrets {
    Secrets::from_json(json!({ "token": token }).to_string()).expect("an object")
}

/// The timeout of a platform call in tests.
pub const TIMEOUT: Duration = Duration::from_secs(30);
