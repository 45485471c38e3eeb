//! The worker: apalis workers that listen to the bell, one for each kind, and the engine that runs what they hear.

use std::sync::Arc;
use std::time::Duration;

use apalis::layers::WorkerBuilderExt;
use apalis_core::worker::builder::WorkerBuilder;
use apalis_core::worker::context::WorkerContext;
use chrono::TimeDelta;
use crier_common::config::Concurrency;
use crier_common::domain::job::Kind;
use crier_common::mail::Mailer;
use crier_common::process::{Process, StartError};
use crier_common::queue::{Heard, Transport};
use crier_common::telemetry::metrics;
use crier_common::webhooks::Sender;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub mod backend;
pub mod engine;
pub mod heartbeat;
pub mod jobs;

use backend::BellBackend;
use engine::Engine;
use jobs::fetch_feed::Fetcher;
use jobs::{Deps, Registry};

/// How long after the grace a broken-off job may take to be handed back.
const HAND_BACK: Duration = Duration::from_secs(5);

/// The worker of a process, until it stops.
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
    tracing::info!(worker = engine.worker(), slots, "the worker takes jobs");
    run(engine, process.transport.clone(), concurrency, config.worker.drain, process.stop.clone()).await;
    beating.cancel();
    Ok(())
}

/// Runs jobs until `stop`; then claims no more, waits for what runs (at most `drain`), and hands back the rest.
pub async fn run(
    engine: Engine,
    transport: Arc<dyn Transport>,
    concurrency: Concurrency,
    drain: Duration,
    stop: CancellationToken,
) {
    let mut workers = JoinSet::new();
    let hung_up = CancellationToken::new();
    for kind in engine.kinds() {
        let (transport, at_once) = (transport.clone(), concurrency.of(kind));
        let make = move || BellBackend::new(transport.clone(), kind, at_once);
        // The first one before this function waits: a job that is made right after the start is heard of at once.
        workers.spawn(listen(engine.clone(), make(), make, kind, at_once, hung_up.clone()));
    }
    stop.cancelled().await;
    engine.drain();
    // What runs has tasks of its own; what was heard and not begun goes back to the bell.
    hung_up.cancel();
    workers.shutdown().await;
    tracing::info!(running = engine.held().len(), "draining: no new jobs are taken");
    if tokio::time::timeout(drain, engine.idle()).await.is_err() {
        tracing::warn!(running = engine.held().len(), "the grace is over: what still runs is broken off");
        engine.abort();
        let _ = tokio::time::timeout(HAND_BACK, engine.idle()).await;
    }
}

/// One apalis worker for one kind; made anew should it ever end, so that no kind goes unheard.
async fn listen(
    engine: Engine,
    backend: BellBackend,
    make: impl Fn() -> BellBackend,
    kind: Kind,
    concurrency: usize,
    hung_up: CancellationToken,
) {
    let mut first = Some(backend);
    while !hung_up.is_cancelled() {
        let backend = first.take().unwrap_or_else(&make);
        let engine = engine.clone();
        let worker = WorkerBuilder::new(WorkerContext::new(kind.as_str()))
            .backend(backend)
            .concurrency(concurrency)
            .build(move |heard: Heard| {
                let engine = engine.clone();
                async move {
                    engine.run_in_place(heard.id).await;
                    drop(heard.place);
                }
            });
        tokio::select! {
            ended = worker.run() => {
                if let Err(error) = ended {
                    tracing::error!(%kind, %error, "a worker ended and is started again");
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
            () = hung_up.cancelled() => {}
        }
    }
}
