//! A worker and a scheduler, as `crier` runs them, for one kind of job.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use crier_config::{Concurrency, Config, PlatformsConfig};
use crier_domain::job::{JobKind, JobState, NewJob};
use crier_http::{self as http, Guard};
use crier_media::Library;
use crier_queue::Transport;
use crier_runtime::platforms_of;
use crier_scheduler::Scheduler;
use crier_store::jobs::{self, operate};
use crier_store::{Store, StoreError};
use crier_worker::engine::Engine;
use crier_worker::heartbeat;
use crier_worker::jobs::fetch_feed::Fetcher;
use crier_worker::jobs::{AnyJob, Deps, Registry, handler};
use crier_worker::webhooks::Sender;
use tokio::task::JoinSet;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::environment::BenchEnvironment;
use super::{BenchError, Result, fail};

const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
pub const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// A worker, and a scheduler if it was started. Both stop when this is dropped.
pub struct BenchRoles {
    engine: Engine,
    tasks: JoinSet<()>,
    stop: CancellationToken,
    _heartbeat: DropGuard,
}

impl BenchRoles {
    /// Starts a worker for one kind, and a scheduler.
    pub fn start(
        environment: &BenchEnvironment,
        kind: JobKind,
        job: Arc<dyn AnyJob>,
        slots: usize,
    ) -> std::result::Result<Self, BenchError> {
        let mut roles = Self::worker(environment, Registry::of([(kind, job)]), slots)?;
        roles.tasks.spawn(scheduler(environment).run(roles.stop.clone()));
        Ok(roles)
    }

    /// Starts a worker without a scheduler.
    pub fn worker(
        environment: &BenchEnvironment,
        registry: Registry,
        slots: usize,
    ) -> std::result::Result<Self, BenchError> {
        Self::worker_on(environment.worker(), environment.notifier().clone(), registry, slots)
    }

    /// Starts a worker on a store and a notifier.
    pub fn worker_on(
        store: &Store,
        transport: Arc<dyn Transport>,
        registry: Registry,
        slots: usize,
    ) -> std::result::Result<Self, BenchError> {
        let engine = Engine::new(store.clone(), registry);
        let (stop, heartbeat_stop) = (CancellationToken::new(), CancellationToken::new());
        let store = store.clone();
        let open = move || {
            let store = store.clone();
            async move { store.new_connections().await.ok() }
        };
        heartbeat::start(engine.clone(), open, heartbeat_stop.clone())
            .map_err(|error| super::io("the heartbeat's thread", error))?;
        let mut tasks = JoinSet::new();
        tasks.spawn(crier_worker::run(
            engine.clone(),
            transport,
            Concurrency::each(slots),
            DRAIN_TIMEOUT,
            stop.clone(),
        ));
        Ok(Self { engine, tasks, stop, _heartbeat: heartbeat_stop.drop_guard() })
    }

    /// Waits until no job runs.
    pub async fn wait_until_idle(&self) {
        while !self.engine.held().is_empty() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

pub fn scheduler(environment: &BenchEnvironment) -> Scheduler {
    let (store, notifier, library) = (environment.scheduler(), environment.notifier(), environment.library());
    Scheduler {
        metrics_platforms: PlatformsConfig::default().with_metrics(),
        ..Scheduler::new(store.clone(), notifier.clone(), library.clone())
    }
}

/// Returns Crier's handler of a kind, with the sandbox enabled.
pub fn job(
    config: &Config,
    environment: &BenchEnvironment,
    kind: JobKind,
) -> std::result::Result<Arc<dyn AnyJob>, BenchError> {
    job_on(config, environment.worker(), environment.library(), kind)
}

/// Like [`job`], with a store and a media library.
pub fn job_on(
    config: &Config,
    store: &Store,
    library: &Library,
    kind: JobKind,
) -> std::result::Result<Arc<dyn AnyJob>, BenchError> {
    http::check_root_certificates().map_err(|error| BenchError::Failed(error.to_string()))?;
    let mut config = config.clone();
    config.sandbox = true;
    let delta = |length: Duration| TimeDelta::from_std(length).unwrap_or(TimeDelta::MAX);
    let (store, guard) = (store.clone(), guard());
    let deps = Deps {
        platforms: Arc::new(platforms_of(&config, &store, &guard)),
        store,
        library: library.clone(),
        plans: Arc::new(config.plans.clone()),
        webhooks: Arc::new(Sender::new(guard.clone())),
        feeds: Arc::new(Fetcher::new(guard.clone())),
        guard,
        mailer: None,
        max_attachment_bytes: config.mail.max_attachment_bytes,
        latest_publish: delta(config.latest_publish),
        platform_timeout: delta(config.worker.platform_timeout),
        import_timeout: crier_worker::jobs::IMPORT_TIMEOUT,
    };
    Ok(handler(kind, &deps))
}

/// Returns a guard that allows 127.0.0.1, as if an operator had configured it.
pub fn guard() -> Guard {
    Guard::new(vec![IpAddr::from(Ipv4Addr::LOCALHOST).into()])
}

/// Enqueues a no-op job in its own transaction.
pub async fn enqueue(store: &Store, subject: i64) -> std::result::Result<(), StoreError> {
    let mut tx = store.begin().await?;
    let job = NewJob::new(JobKind::Noop, subject, tx.now);
    jobs::enqueue(&mut tx, &job).await?;
    tx.commit().await
}

/// Waits until all jobs of the kind are settled. Call it after all have started. Fails if one is dead. Jobs of other
/// kinds, which the scheduler may enqueue, are ignored: no worker runs them.
pub async fn wait_until_settled(store: &Store, kind: JobKind) -> Result {
    wait_until_settled_polling(store, kind, POLL_INTERVAL).await
}

/// Like [`wait_until_settled`], with an interval. Counting a large backlog takes time from the worker.
pub async fn wait_until_settled_polling(store: &Store, kind: JobKind, interval: Duration) -> Result {
    loop {
        let mut overview = operate::overview(&mut store.read().await?).await?;
        overview.retain(|one| one.kind == kind);
        let of = |dead: bool| -> i64 {
            overview.iter().filter(|one| (one.state == JobState::Dead) == dead).map(|one| one.jobs).sum()
        };
        match (of(true), of(false)) {
            (0, 0) => return Ok(()),
            (0, _) => tokio::time::sleep(interval).await,
            (dead, _) => return fail(format!("{dead} jobs died")),
        }
    }
}
