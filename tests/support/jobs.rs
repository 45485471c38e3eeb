//! A worker and a scheduler on a [`TestStore`]. Nothing runs unless the test starts it, so the order is deterministic.

#![allow(dead_code, reason = "each test uses only a part")]

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_config::{PlatformConfig, PlatformsConfig};
use crier_domain::account::SocialAccount;
use crier_domain::job::{ClaimedJob, JobKind, Outcome};
use crier_domain::plan::Plans;
use crier_domain::platform::Platform;
use crier_http::{Guard, HttpClient};
use crier_mail::Mailer;
use crier_media::Library;
use crier_platforms::address::UrlCheck;
use crier_platforms::{Clients, ConnectorRegistry as Platforms};
use crier_runtime::sandbox;
use crier_scheduler::Scheduler;
use crier_store::accounts::NewAccount;
use crier_store::jobs::dispatch::RENOTIFY_AFTER;
use crier_store::jobs::engine as rows;
use crier_store::{Store, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::fetch_feed::Fetcher;
use crier_worker::jobs::{AnyJob, AnyResult, Deps, FinishedRun, IMPORT_TIMEOUT, Registry, RunError};
use crier_worker::webhooks::Sender;
use tokio::task::JoinHandle;

use super::fake_platform::{FakePlatform, Gate, TIMEOUT};
use super::killable::KillableWorker;
use super::store::{TestStore, World, new_account};
use super::transport::FixedCapacityTransport;

/// The time after which a call must be over, in seconds: two timeouts.
pub const MAX_CALL_SECONDS: i64 = 60;
/// Crier's public URL.
pub const PUBLIC_URL: &str = "https://crier.example";
/// A time longer than any lease, in seconds.
pub const LEASE_EXPIRY_SECONDS: i64 = 31;

/// What a run reports, or why it has no result.
pub type RunReport = Result<Arc<dyn AnyResult>, RunError>;

/// Creates two tests for each function that takes a [`TestWorker`]: one on SQLite, one on Postgres.
macro_rules! worker_on_both {
    ($($name:ident),+ $(,)?) => {$(
        $crate::support::store::test_on_engines!(
            CurrentThread [] $name |s| super::$name($crate::support::jobs::TestWorker::over(s).await).await
        );
    )+};
}
pub(crate) use worker_on_both;

struct AnyAddress;

#[async_trait]
impl UrlCheck for AnyAddress {
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

    /// Like `over`, with a daily limit of posts per account.
    pub async fn with_daily_posts(s: TestStore, cap: u32) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig::default().with_daily_posts(Platform::Sandbox, cap);
        Self::build(s, fake, config, |_| connector).await
    }

    /// Like `over`, with the real sandbox instead of the fake platform.
    pub async fn with_sandbox(s: TestStore) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let sandbox = |store: &Store| {
            Arc::new(sandbox::connector(store, "https://crier.example").with_slow(Duration::ZERO)) as Arc<_>
        };
        Self::build(s, fake, PlatformsConfig::default(), sandbox).await
    }

    /// Like `over`, without a connector for the sandbox, the platform of the account.
    pub async fn without_sandbox(s: TestStore) -> Self {
        let fake = FakePlatform::new(Platform::Telegram, s.clock.clone());
        let connector = fake.clone();
        Self::build(s, fake, PlatformsConfig::default(), |_| connector).await
    }

    /// Like `over`, with the real connectors. That of `platform` calls the server at `base`.
    pub async fn with_base_url(s: TestStore, platform: Platform, base: &str) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig::default().with_base_url(platform, base);
        Self::build(s, fake, config, |_| connector).await
    }

    /// Like `over`, with this configuration of a platform.
    pub async fn with_settings(s: TestStore, platform: Platform, settings: PlatformConfig) -> Self {
        let fake = FakePlatform::new(Platform::Sandbox, s.clock.clone());
        let connector = fake.clone();
        let config = PlatformsConfig { platforms: [(platform, settings)].into(), ..PlatformsConfig::default() };
        Self::build(s, fake, config, |_| connector).await
    }

    /// Like `over`, with a fake of this platform, to which the account belongs.
    pub async fn with_fake_of(s: TestStore, platform: Platform) -> Self {
        let fake = FakePlatform::new(platform, s.clock.clone());
        let connector = fake.clone();
        let mut this = Self::build(s, fake, PlatformsConfig::default(), |_| connector).await;
        let account = NewAccount { platform, ..new_account("other", "token-0") };
        this.account = this.store_account(this.world, &account).await;
        this
    }

    /// Like `over`, with a mailer.
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
        let metrics_platforms = config.with_metrics();
        let mut platforms = Platforms::new(config, &clients, &s.clock);
        platforms.register(connector(&s.store));
        let platforms = Arc::new(platforms);
        let notifier = FixedCapacityTransport::with_room(10_000);
        let library = s.library(PUBLIC_URL);
        let (store, transport, plans) = (s.store.clone(), notifier.clone(), Arc::default());
        let scheduler = Scheduler { plans, metrics_platforms, ..Scheduler::new(store, transport, library.clone()) };
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
    pub fn handler(&self, kind: JobKind) -> Arc<dyn AnyJob> {
        self.outside.registry(&self.s.store, JobKind::ALL).get(kind).expect("every kind is registered")
    }

    /// Runs a claimed job without storing its result.
    pub async fn run_claimed(&self, job: &ClaimedJob) -> RunReport {
        self.handler(job.kind).run(&Run::new(job.clone())).await
    }

    /// Writes what a run reported. Returns the transaction, and the outcome of the job.
    pub async fn write_result(&self, job: &ClaimedJob, report: &RunReport) -> (Tx, Outcome) {
        let mut tx = self.s.begin().await.expect("a transaction");
        let outcome = match report {
            Ok(result) => {
                let runs = [FinishedRun { job, result: &**result }];
                self.handler(job.kind).settle(&mut tx, &runs).await.expect("a written result").remove(0)
            }
            Err(RunError::Ended(outcome)) => outcome.clone(),
            Err(RunError::Database(error)) => panic!("the run failed: {error}"),
        };
        (tx, outcome)
    }

    /// Writes what a run reported, and settles the job. Returns `false` and stores nothing if the lease was lost.
    pub async fn settle_result(&self, job: &ClaimedJob, report: &RunReport) -> bool {
        let (mut tx, outcome) = self.write_result(job, report).await;
        let is_held = rows::settle(&mut tx, &[(job, outcome)]).await.expect("a settled job");
        let ended = if is_held { tx.commit().await } else { tx.rollback().await };
        ended.expect("the end of the transaction");
        is_held
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

    /// Waits until the engine runs no jobs except these.
    pub async fn wait_for_successors(&self, engine: &Engine, others: &[i64]) {
        self.poll_until(async || {
            self.number("SELECT CAST(1 AS bigint)").await;
            engine.held().iter().all(|id| others.contains(id))
        })
        .await;
    }

    /// Runs jobs and advances the clock to the next time at which a job is pending, until none is. Returns those times.
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

    /// Polls until the condition is true, while other tasks make progress.
    pub async fn poll_until(&self, so: impl AsyncFn() -> bool) {
        // Limited by time, not by iterations: the number of iterations per database query depends on the machine.
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_secs(60) {
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

    /// Returns the worker's media library.
    pub fn media(&self) -> &Library {
        &self.outside.library
    }

    /// Starts a job, and waits until it has reached the gate.
    pub async fn start_until(&self, gate: &Gate, job: i64) -> JoinHandle<bool> {
        let engine = self.engine.clone();
        let run = tokio::spawn(async move { engine.run(job).await });
        gate.wait_until_entered().await;
        run
    }

    /// Starts a job on another worker, and kills this worker when the job has reached the gate.
    pub async fn kill_at(&self, gate: &Gate, job: i64) {
        let doomed = self.killable_worker().await;
        doomed.start(job);
        gate.wait_until_entered().await;
        doomed.kill().await;
    }

    /// Starts a worker on its own runtime, which a test can kill like a process.
    pub async fn killable_worker(&self) -> KillableWorker {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let runtime = runtime.expect("a runtime");
        let store = self.s.open_second_store_on(&runtime).await;
        let (own, outside) = (store.clone(), self.outside.clone());
        let created = runtime.spawn(async move {
            let registry = outside.registry(&own, JobKind::ALL);
            Engine::new(own, registry)
        });
        KillableWorker::new(created.await.expect("an engine"), store, runtime)
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
