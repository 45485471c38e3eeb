//! The worker: one apalis worker per job kind, which receives notifications, and the engine that runs the jobs.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use chrono::TimeDelta;
use crier_common::config::Concurrency;
use crier_common::domain::job::JobKind;
use crier_common::mail::Mailer;
use crier_common::process::{Process, StartError};
use crier_common::queue::{Notification, Transport};
use crier_common::telemetry::metrics;
use crier_common::webhooks::Sender;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod backend;
pub mod engine;
pub mod heartbeat;
pub mod jobs;

use backend::NotifierBackend;
use engine::Engine;
use jobs::fetch_feed::Fetcher;
use jobs::{Deps, Registry};

/// How long releasing aborted jobs may take after the drain timeout.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs the worker of a process until it stops.
pub async fn serve(process: &Process) -> Result<(), StartError> {
    let config = &process.config;
    let delta = |d: Duration| TimeDelta::from_std(d).unwrap_or(TimeDelta::MAX);
    let mailer = Mailer::new(&config.mail).map_err(|error| StartError::Refused(error.to_string()))?;
    let deps = Deps {
        store: process.store.clone(),
        platforms: process.platforms.clone(),
        library: process.library.clone(),
        plans: Arc::new(config.plans.clone()),
        guard: process.guard.clone(),
        webhooks: Arc::new(Sender::new(process.guard.clone())),
        feeds: Arc::new(Fetcher::new(process.guard.clone())),
        mailer: mailer.map(Arc::new),
        latest_publish: delta(config.latest_publish),
        platform_timeout: delta(config.worker.platform_timeout),
        import_timeout: jobs::IMPORT_TIMEOUT,
    };
    let registry = Registry::new(&deps, &config.worker.kinds);
    let concurrency = config.worker.concurrency.clone();
    let slots = config.worker.kinds.iter().map(|kind| concurrency.of(*kind)).sum();
    let engine = Engine::new(process.store.clone(), registry, slots);
    metrics::worker_slots(0, slots);
    let beating = CancellationToken::new();
    let opener = process.clone();
    heartbeat::start(engine.clone(), move || opener.store_for_thread(), beating.clone())
        .map_err(|error| StartError::Io { what: "the heartbeat's thread".into(), error })?;
    tracing::info!(worker = engine.worker(), slots, "worker started");
    run(engine, process.transport.clone(), concurrency, config.worker.drain, process.stop.clone()).await;
    beating.cancel();
    Ok(())
}

/// Runs jobs until `stop`; then claims no more, waits at most `drain` for running jobs, and releases the rest.
pub async fn run(
    engine: Engine,
    transport: Arc<dyn Transport>,
    concurrency: Concurrency,
    drain: Duration,
    stop: CancellationToken,
) {
    let mut workers = JoinSet::new();
    let stop_listening = CancellationToken::new();
    for kind in engine.kinds() {
        let (transport, at_once) = (transport.clone(), concurrency.of(kind));
        let make = move || NotifierBackend::new(transport.clone(), kind, at_once);
        // Create the first backend before this function waits, so that a job enqueued right after the start is received
        // at once.
        workers.spawn(listen(engine.clone(), make(), make, kind, at_once, stop_listening.clone()));
    }
    stop.cancelled().await;
    engine.drain();
    // Running jobs have their own tasks; ids that were received but not started are sent again.
    stop_listening.cancel();
    workers.shutdown().await;
    tracing::info!(running = engine.held().len(), "draining: no new jobs are claimed");
    if tokio::time::timeout(drain, engine.idle()).await.is_err() {
        tracing::warn!(running = engine.held().len(), "drain timeout: aborting running jobs");
        engine.abort();
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, engine.idle()).await;
    }
}

/// Runs an apalis worker for one kind; restarts it if it ever ends, so that every kind keeps a listener.
async fn listen(
    engine: Engine,
    backend: NotifierBackend,
    make: impl Fn() -> NotifierBackend,
    kind: JobKind,
    concurrency: usize,
    stop_listening: CancellationToken,
) {
    let mut first = Some(backend);
    while !stop_listening.is_cancelled() {
        let backend = first.take().unwrap_or_else(&make);
        let engine = engine.clone();
        let worker = WorkerBuilder::new(WorkerContext::new(kind.as_str()))
            .backend(backend)
            .concurrency(concurrency)
            .build(move |notification: Notification| {
                let engine = engine.clone();
                async move {
                    engine.run_until_slot_free(notification.id).await;
                    drop(notification.place);
                }
            });
        tokio::select! {
            ended = worker.run() => {
                if let Err(error) = ended {
                    tracing::error!(%kind, %error, "a worker ended; restarting it");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            () = stop_listening.cancelled() => {}
        }
    }
}
