//! A worker and a scheduler on a [`TestStore`], driven manually: nothing runs unless the test starts it, so the order
//! is deterministic.

#![allow(dead_code, reason = "a part of the tests uses a part of it")]

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::account::{AccountStatus, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobNotification, JobNotifier, Lane, NewJob};
use crier_domain::media::AssetType;
use crier_domain::plan::Plans;
use crier_domain::platform::Platform;
use crier_domain::post::{Attempt, Post, PostStatus, Target};
use crier_domain::webhook::{Delivery, Webhook};
use crier_http::{Guard, HttpClient};
use crier_mail::Mailer;
use crier_media::{self as media, Described, Library, Owner};
use crier_platforms::address::AddressCheck;
use crier_platforms::sandbox::Sandbox;
use crier_platforms::{Clients, Connector as _, ConnectorRegistry as Platforms};
use crier_queue::{Handler, Transport};
use crier_scheduler::Scheduler;
use crier_store::jobs::dispatch::RENOTIFY_AFTER;
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{Store, deliveries, jobs, post_media, posts, targets};
use crier_worker::engine::Engine;
use crier_worker::jobs::fetch_feed::Fetcher;
use crier_worker::jobs::{Deps, IMPORT_TIMEOUT, Job, Registry};
use crier_worker::webhooks::Sender;
use futures::future::BoxFuture;
use secrecy::SecretString;
use tokio_util::sync::CancellationToken;

use super::fake_platform::{FakePlatform, TIMEOUT};
use super::killable::KillableWorker;
use super::store::{TestStore, World, new_post};

/// Seconds after which a call must be over, whatever its outcome: two timeouts after it began.
pub const MAX_CALL_SECONDS: i64 = 60;
/// Crier's public URL.
pub const PUBLIC_URL: &str = "https://crier.example";
/// Seconds; longer than any lease.
pub const LEASE_EXPIRY_SECONDS: i64 = 31;

/// Creates two tests for each function that takes a [`TestWorker`]: one on SQLite, one on Postgres.
macro_rules! worker_on_both {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::{jobs::TestWorker, store::TestStore};

            #[tokio::test]
            async fn sqlite() {
                super::$name(TestWorker::over(TestStore::sqlite().await).await).await;
            }

            #[tokio::test]
            async fn postgres() {
                super::$name(TestWorker::over(TestStore::postgres().await).await).await;
            }
        }
    )+};
}
pub(crate) use worker_on_both;

/// A transport with a capacity set by the test. It drops notifications; tests read them from the store's own notifier.
pub struct FixedCapacityTransport(Mutex<Option<Vec<(JobKind, usize)>>>);

impl FixedCapacityTransport {
    pub fn with_room(room: usize) -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(JobKind::ALL.iter().map(|kind| (*kind, room)).collect()))))
    }

    /// Sets the capacity of each kind; `None` makes the transport unreachable.
    pub fn set(&self, room: Option<Vec<(JobKind, usize)>>) {
        *self.0.lock().expect("no panic") = room;
    }
}

impl JobNotifier for FixedCapacityTransport {
    fn notify(&self, _notifications: &[JobNotification]) {}
}

#[async_trait]
impl Transport for FixedCapacityTransport {
    fn listen(
        &self,
        _kind: JobKind,
        _concurrency: usize,
        _handler: Handler,
        _stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn is_up(&self) -> bool {
        true
    }

    async fn free_capacity(&self) -> Option<Vec<(JobKind, usize)>> {
        self.0.lock().expect("no panic").clone()
    }
}

struct AnyAddress;

#[async_trait]
impl AddressCheck for AnyAddress {
    async fn check(&self, _url: &str) -> Result<(), String> {
        Ok(())
    }
}

/// A workspace with an account on a scripted platform, a worker and a scheduler.
pub struct TestWorker {
    pub s: TestStore,
    pub world: World,
    pub account: SocialAccount,
    pub fake: Arc<FakePlatform>,
    pub engine: Engine,
    pub scheduler: Scheduler,
    pub notifier: Arc<FixedCapacityTransport>,
    outside: ExternalServices,
}

/// The external services of a worker.
#[derive(Clone)]
struct ExternalServices {
    platforms: Arc<Platforms>,
    library: Library,
    mailer: Option<Arc<Mailer>>,
    max_attachment_bytes: u64,
    import_timeout: Duration,
}

impl Deref for TestWorker {
    type Target = TestStore;
    fn deref(&self) -> &TestStore {
        &self.s
    }
}

impl TestWorker {
    pub async fn over(s: TestStore) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        Self::build(s, fake, PlatformsConfig::default(), |_| connector).await
    }

    /// With a daily limit of posts per account.
    pub async fn with_daily_posts(s: TestStore, cap: u32) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig::default().with_daily_posts(Platform::Sandbox, cap);
        Self::build(s, fake, config, |_| connector).await
    }

    /// With the real sandbox instead of the fake.
    pub async fn with_sandbox(s: TestStore) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let sandbox = |store: &Store| {
            Arc::new(Sandbox::new(store.clone(), "https://crier.example").with_slow(Duration::ZERO)) as Arc<_>
        };
        Self::build(s, fake, PlatformsConfig::default(), sandbox).await
    }

    /// Without a connector for the sandbox, on which its posts are.
    pub async fn without_sandbox(s: TestStore) -> Self {
        let fake = FakePlatform::new(Platform::Telegram, s.clock.clone());
        let connector = fake.clone();
        Self::build(s, fake, PlatformsConfig::default(), |_| connector).await
    }

    /// With the real connectors; that of `platform` calls `base`.
    pub async fn with_base_url(s: TestStore, platform: Platform, base: &str) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig::default().with_base_url(platform, base);
        Self::build(s, fake, config, |_| connector).await
    }

    /// With settings of a platform.
    pub async fn with_settings(s: TestStore, platform: Platform, settings: PlatformConfig) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig { platforms: [(platform, settings)].into(), ..PlatformsConfig::default() };
        Self::build(s, fake, config, |_| connector).await
    }

    /// With a mailer.
    pub async fn with_mailer(s: TestStore, mailer: Mailer) -> Self {
        let mut this = Self::over(s).await;
        this.set_mailer(mailer);
        this
    }

    /// Replaces the mailer.
    pub fn set_mailer(&mut self, mailer: Mailer) {
        self.outside.mailer = Some(Arc::new(mailer));
        self.engine = self.engine_for(self.s.store.clone(), JobKind::ALL);
    }

    /// Sets the size up to which a report's file is attached to its mails, in bytes.
    pub fn set_max_attachment_bytes(&mut self, bytes: u64) {
        self.outside.max_attachment_bytes = bytes;
        self.engine = self.engine_for(self.s.store.clone(), JobKind::ALL);
    }

    /// Sets the timeout of imports.
    pub fn set_import_timeout(&mut self, timeout: Duration) {
        self.outside.import_timeout = timeout;
        self.engine = self.engine_for(self.s.store.clone(), JobKind::ALL);
    }

    async fn build(
        s: TestStore,
        fake: Arc<FakePlatform>,
        config: PlatformsConfig,
        connector: impl FnOnce(&Store) -> Arc<dyn crier_platforms::Connector>,
    ) -> Self {
        s.check_jobs();
        let world = s.create_world().await;
        let account = s.account(world, "demo", "token-0").await;
        let client = HttpClient::trusted(TIMEOUT, 1 << 20);
        let clients = Clients { trusted: client.clone(), guarded: client, addresses: Arc::new(AnyAddress) };
        let figures = config.with_figures();
        let mut platforms = Platforms::new(config, &clients, &s.clock);
        platforms.register(connector(&s.store));
        let platforms = Arc::new(platforms);
        let notifier = FixedCapacityTransport::with_room(10_000);
        let library = s.library(PUBLIC_URL);
        let (store, transport, plans) = (s.store.clone(), notifier.clone(), Arc::default());
        let scheduler = Scheduler { store, transport, library: library.clone(), plans, figures };
        let outside = ExternalServices {
            platforms,
            library,
            mailer: None,
            max_attachment_bytes: 10 << 20,
            import_timeout: IMPORT_TIMEOUT,
        };
        let engine = Engine::new(s.store.clone(), outside.registry(&s.store, JobKind::ALL));
        Self { s, world, account, fake, engine, scheduler, notifier, outside }
    }

    /// Returns an engine of another process that handles only these kinds.
    pub fn engine_for(&self, store: Store, kinds: &[JobKind]) -> Engine {
        let registry = self.outside.registry(&store, kinds);
        Engine::new(store, registry)
    }

    /// Returns the handler of a kind, for tests that run its steps separately.
    pub fn handler(&self, kind: JobKind) -> Arc<dyn Job> {
        self.outside.registry(&self.s.store, JobKind::ALL).get(kind).expect("every kind is registered")
    }

    /// Ticks the scheduler and runs all notified jobs until no job is notified.
    pub async fn run_jobs(&self) {
        let others = self.engine.held();
        for _ in 0..10_000 {
            self.scheduler.tick().await.expect("a tick");
            let notified = self.s.notifier.take();
            if notified.is_empty() {
                return;
            }
            for id in notified {
                self.engine.run(id).await;
            }
            self.wait_for_successors(&self.engine, &others).await;
        }
        panic!("jobs are notified forever");
    }

    /// Waits until the engine runs nothing but these jobs.
    pub async fn wait_for_successors(&self, engine: &Engine, others: &[i64]) {
        self.poll_until(async || {
            self.number("SELECT CAST(1 AS bigint)").await;
            engine.held().iter().all(|id| others.contains(id))
        })
        .await;
    }

    /// Runs jobs and advances the clock to the next pending time until nothing is pending; returns those times.
    pub async fn run_until_idle(&self) -> Vec<DateTime<Utc>> {
        let mut times = Vec::new();
        for _ in 0..200 {
            self.run_jobs().await;
            let Some(next) = self.next_time().await else { return times };
            self.clock.advance((next - self.clock.now()).max(TimeDelta::microseconds(1)));
            times.push(self.clock.now());
        }
        panic!("jobs never finish: {times:?}");
    }

    /// Returns the time of the next due job, lease expiry, lane resumption or renotification.
    async fn next_time(&self) -> Option<DateTime<Utc>> {
        let mut times = Vec::new();
        for sql in [
            "SELECT min(run_at) FROM jobs WHERE state = 'scheduled'",
            "SELECT min(lease_until) FROM jobs WHERE state = 'running'",
            "SELECT min(paused_until) FROM paused_lanes WHERE lane IN (SELECT lane FROM jobs WHERE waiting)",
        ] {
            times.extend(self.value::<Option<DateTime<Utc>>>(sql).await);
        }
        let oldest_dispatch = "SELECT min(dispatched_at) FROM jobs WHERE state = 'ready' AND NOT waiting";
        times.extend(self.value::<Option<DateTime<Utc>>>(oldest_dispatch).await.map(|at| at + RENOTIFY_AFTER));
        // A lease expires only after its last microsecond.
        times.into_iter().min().map(|at| at + TimeDelta::microseconds(1))
    }

    /// Polls until the condition holds, while another task makes progress.
    pub async fn poll_until(&self, so: impl AsyncFn() -> bool) {
        for _ in 0..100_000 {
            if so().await {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("the condition never holds");
    }

    /// Returns the only notified id.
    pub fn notified_job(&self) -> i64 {
        let notified = self.s.notifier.take();
        assert_eq!(notified.len(), 1, "one job is notified: {notified:?}");
        notified[0]
    }

    /// Returns the id of the target's job, which must be notified; drops other notifications.
    pub async fn notified_job_of_target(&self, target: i64) -> i64 {
        let id = self.job_of(target).await.id;
        assert!(self.s.notifier.take().contains(&id), "the job is notified");
        id
    }

    /// Creates another account in the same workspace and brand.
    pub async fn another_account(&self, external_id: &str) -> SocialAccount {
        self.s.account(self.world, external_id, "token-0").await
    }

    /// Returns the worker's library.
    pub fn media(&self) -> &Library {
        &self.outside.library
    }

    /// Stores a picture in the library; returns its id.
    pub async fn picture(&self, filename: &str, bytes: Vec<u8>, alt_text: Option<&str>) -> i64 {
        let owner = Owner { workspace_id: self.world.workspace, brand_id: self.world.brand, cap: None };
        let taken = self.media().ingest(&self.store, &owner, &bytes::Bytes::from(bytes).into()).await;
        let taken = taken.expect("the picture is accepted");
        let described = Described { asset_type: AssetType::Image, filename, alt_text, source_url: None };
        let kept = self.write(async |tx| media::create_asset(tx, self.world.brand, &taken, &described).await).await;
        kept.expect("the picture is stored")
    }

    /// Creates a publishing post with pictures on one account; returns the ids of the post and its target.
    pub async fn publish_pictures(&self, account: i64, pictures: &[i64]) -> (i64, i64) {
        let (post, made) = self.publish(&[account]).await;
        self.change_post(post, |p| p.media = pictures.to_vec()).await;
        self.write(async |tx| post_media::set(tx, self.world.brand, post, pictures).await).await;
        (post, made[0])
    }

    /// Creates a publishing post with a job for each account; returns the ids of the post and its targets.
    pub async fn publish(&self, accounts: &[i64]) -> (i64, Vec<i64>) {
        let (post, made) = self.s.post(self.world, accounts).await;
        for (target, account) in made.iter().zip(accounts) {
            self.enqueue(*target, *account, self.clock.now()).await;
        }
        (post, made)
    }

    /// Like `publish`, for the worker's own account.
    pub async fn publish_one(&self) -> (i64, i64) {
        let (post, made) = self.publish(&[self.account.id]).await;
        (post, made[0])
    }

    /// Creates a scheduled post.
    pub async fn schedule(&self, at: DateTime<Utc>) -> (i64, i64) {
        let (post, made) = self.s.post(self.world, &[self.account.id]).await;
        self.change_post(post, |p| (p.status, p.scheduled_at) = (PostStatus::Scheduled, Some(at))).await;
        self.enqueue(made[0], self.account.id, at).await;
        (post, made[0])
    }

    /// Does what `PUT now` does with a post whose targets failed.
    pub async fn publish_again(&self, post: i64) {
        let all = targets::list(&mut self.conn().await, post).await.expect("targets");
        self.change_post(post, |p| p.status = PostStatus::Publishing).await;
        for target in all.iter().filter(|t| t.status.as_str() == "failed") {
            self.write(async |tx| targets::reset(tx, target.id, !self.fake.can_reconcile()).await).await;
            self.enqueue(target.id, target.account_id, self.clock.now()).await;
        }
    }

    pub async fn enqueue(&self, target: i64, account: i64, at: DateTime<Utc>) -> i64 {
        let job = NewJob::new(JobKind::PublishTarget, target, at)
            .lane(Lane::Account(account))
            .trace(Some("request-1".to_owned()));
        let id = self.write(async |tx| jobs::enqueue(tx, &job).await).await;
        id.expect("the target has no other job")
    }

    pub async fn change_post(&self, post: i64, change: impl FnOnce(&mut Post)) {
        self.write(async |tx| {
            let (mut found, _) = posts::lock(tx, post).await?.expect("the post is there");
            change(&mut found);
            posts::update(tx, &found).await
        })
        .await;
    }

    pub async fn post_status(&self, post: i64) -> PostStatus {
        let found = posts::find(&mut self.conn().await, self.world.brand, post).await.expect("a look-up");
        found.expect("the post is there").status
    }

    pub async fn target(&self, target: i64) -> Target {
        targets::find(&mut self.conn().await, target).await.expect("a look-up").expect("the target is there")
    }

    /// Returns all attempts of a post's targets, oldest first.
    pub async fn attempts(&self, post: i64) -> Vec<Attempt> {
        let mut all = targets::attempts(&mut self.conn().await, post).await.expect("a look-up");
        all.reverse();
        all
    }

    /// Returns the newest job of a target.
    pub async fn job_of(&self, target: i64) -> jobs::operate::JobRow {
        let id =
            self.number(format!("SELECT max(id) FROM jobs WHERE kind = 'publish_target' AND subject_id = {target}"));
        self.show(id.await).await
    }

    pub async fn account_status(&self) -> AccountStatus {
        let found = crier_store::accounts::with_secrets(&mut self.conn().await, self.cipher(), self.account.id).await;
        found.expect("a look-up").expect("the account is there").0.status
    }

    /// Creates an active endpoint at `url` for the results of posts.
    pub async fn listen_at(&self, url: &str) -> Webhook {
        self.listen_for(url, &[EventName::PostPublished, EventName::PostFailed]).await
    }

    /// Creates an active endpoint at `url` for these events.
    pub async fn listen_for(&self, url: &str, events: &[EventName]) -> Webhook {
        let secret = SecretString::from("whsec_of_the_tests");
        let new = NewWebhook { url, events, description: None, is_active: true, secret: &secret };
        self.write(async |tx| webhooks::create(tx, self.world.user, &new).await).await
    }

    /// Returns the names of the emitted events, in order.
    pub async fn events(&self) -> Vec<String> {
        let all: Option<String> =
            self.value("SELECT string_agg(name, ' ') FROM (SELECT name FROM events ORDER BY id) e").await;
        all.map(|all| all.split(' ').map(str::to_owned).collect()).unwrap_or_default()
    }

    pub async fn delivery(&self, id: i64) -> Delivery {
        deliveries::find_any(&mut self.conn().await, id).await.expect("a look-up").expect("the delivery is there")
    }

    /// Starts a worker on its own runtime, which a test can kill like a process.
    pub async fn killable_worker(&self) -> KillableWorker {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let store = self.s.another_on(&runtime).await;
        let (own, outside) = (store.clone(), self.outside.clone());
        let made = runtime.spawn(async move {
            let registry = outside.registry(&own, JobKind::ALL);
            Engine::new(own, registry)
        });
        KillableWorker::new(made.await.expect("an engine"), store, runtime)
    }
}

impl ExternalServices {
    fn registry(&self, store: &Store, kinds: &[JobKind]) -> Registry {
        let guard = Guard::new(vec!["127.0.0.0/8".parse().expect("a network")]);
        let deps = Deps {
            store: store.clone(),
            platforms: self.platforms.clone(),
            library: self.library.clone(),
            plans: Arc::new(Plans::default()),
            feeds: Arc::new(Fetcher::new(guard.clone())),
            webhooks: Arc::new(Sender::new(guard.clone())),
            guard,
            mailer: self.mailer.clone(),
            max_attachment_bytes: self.max_attachment_bytes,
            latest_publish: TimeDelta::hours(24),
            platform_timeout: TimeDelta::from_std(TIMEOUT).expect("a time-out"),
            import_timeout: self.import_timeout,
        };
        Registry::new(&deps, kinds)
    }
}

/// Returns a draft post.
pub fn draft(world: World) -> Post {
    new_post(world, PostStatus::Draft)
}
