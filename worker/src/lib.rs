//! The worker: one apalis worker per job kind, which receives notifications, and the engine that runs the jobs.
//!
//! **To add a kind of job:** a file in [`jobs`], which explains what a kind is. The engine needs no change.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use crier_config::Concurrency;
use crier_mail::Mailer;
use crier_queue::{Handler, Transport};
use crier_runtime::{Process, StartError};
use crier_telemetry::metrics;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::webhooks::Sender;

pub mod engine;
pub mod feeds;
pub mod heartbeat;
pub mod jobs;
mod notices;
mod report_mail;
pub mod webhooks;

use engine::Engine;
use jobs::fetch_feed::Fetcher;
use jobs::{Deps, Registry};

/// The maximum time for releasing aborted jobs after the drain timeout.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval at which the workers are counted. The number determines the pauses between batches.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Runs the worker of a process until it stops.
pub async fn serve(process: &Process) -> Result<(), StartError> {
    let config = &process.config;
    let delta = |d: Duration| TimeDelta::from_std(d).unwrap_or(TimeDelta::MAX);
    let mailer = Mailer::new(&config.mail).map_err(|error| StartError::Invalid(error.to_string()))?;
    let deps = Deps {
        store: process.store.clone(),
        platforms: process.platforms.clone(),
        library: process.library.clone(),
        plans: Arc::new(config.plans.clone()),
        guard: process.guard.clone(),
        webhooks: Arc::new(Sender::new(process.guard.clone())),
        feeds: Arc::new(Fetcher::new(process.guard.clone())),
        mailer: mailer.map(Arc::new),
        max_attachment_bytes: config.mail.max_attachment_bytes,
        latest_publish: delta(config.latest_publish),
        platform_timeout: delta(config.worker.platform_timeout),
        import_timeout: jobs::IMPORT_TIMEOUT,
    };
    let registry = Registry::new(&deps, &config.worker.kinds);
    let concurrency = config.worker.concurrency.clone();
    let slots = config.worker.kinds.iter().map(|kind| concurrency.of(*kind)).sum();
    let engine = Engine::new(process.store.clone(), registry);
    metrics::worker_slots(0, slots);
    let stop_heartbeat = CancellationToken::new();
    let opener = process.clone();
    heartbeat::start(engine.clone(), move || opener.store_for_thread(), stop_heartbeat.clone())
        .map_err(|error| StartError::Io { what: "the heartbeat's thread".into(), error })?;
    let (worker, kinds) = (engine.worker(), config.worker.kinds.len());
    // `crier` runs all roles; there, the line of the API and the banner report that it is ready.
    if config.role.is_separate() {
        tracing::info!(worker, kinds, slots, ops_addr = %config.http.ops_addr, "worker started");
    } else {
        tracing::debug!(worker, kinds, slots, "worker started");
    }
    run(engine, process.transport.clone(), concurrency, config.worker.drain, process.stop.clone()).await;
    stop_heartbeat.cancel();
    Ok(())
}

/// Keeps the engine's number of worker processes up to date.
async fn count_workers(engine: &Engine, transport: &dyn Transport) {
    loop {
        if let Some(count) = transport.listening_processes().await {
            engine.workers().set(count);
        }
        tokio::time::sleep(COUNT_INTERVAL).await;
    }
}

/// Runs jobs until `stop`. Then it claims no more jobs, waits at most `drain` for running jobs, and aborts the rest.
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
        let runner = engine.clone();
        let handler: Handler = Arc::new(move |id| {
            let engine = runner.clone();
            Box::pin(async move { engine.run_until_slot_free(id).await })
        });
        tracing::debug!(%kind, concurrency = concurrency.of(kind), "listening for jobs");
        workers.spawn(transport.listen(kind, concurrency.of(kind), handler, stop_listening.clone()));
    }
    tokio::select! { () = stop.cancelled() => {}, () = count_workers(&engine, &*transport) => {} }
    // Running jobs have their own tasks; ids that were received but not started go to other workers.
    stop_listening.cancel();
    engine.drain();
    while workers.join_next().await.is_some() {}
    tracing::info!(running = engine.held().len(), "draining: no new jobs are claimed");
    if tokio::time::timeout(drain, engine.idle()).await.is_err() {
        tracing::warn!(running = engine.held().len(), "drain timeout: aborting running jobs");
        engine.abort();
        let _ = tokio::time::timeout(RELEASE_TIMEOUT, engine.idle()).await;
    }
}
