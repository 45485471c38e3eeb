//! The engine: claims what was rung for, runs it, settles it.
//!
//! A run is three steps, each a transaction or none: *claim* (the row becomes ours, with a lease and a fence), *run* (the
//! kind's own code, no transaction held while it waits for others), *settle* (what the run brought about and the job's
//! new state, together). Claims and settles of jobs that come at the same time share a transaction; a lone one waits for
//! nobody. A crash between any two steps leaves the lease to run out, and the job to whoever rescues it.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_common::domain::job::{Claimed, Kind, LEASE, Outcome};
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Store, StoreError};
use crier_common::telemetry::metrics::{self, JobOutcome};
use tokio_util::sync::CancellationToken;

use crate::jobs::{Ending, Registry};

mod batch;

use batch::{Batcher, Settled, claim_batch, settle_batch};

/// Retries of a settle that the database refused for the moment.
const SETTLE_PAUSE: Duration = Duration::from_millis(200);
/// After how long a crash or a panic is tried again, by the attempt.
const PANIC_PAUSE: TimeDelta = TimeDelta::seconds(10);

/// The state that a run shares with the engine.
#[derive(Debug, Clone)]
pub struct Run {
    pub job: Claimed,
    /// Set while a call with an effect outside is under way: a run that is broken off then is like a crash in its middle.
    in_call: Arc<AtomicBool>,
}

impl Run {
    pub fn new(job: Claimed) -> Self {
        Self { job, in_call: Arc::default() }
    }

    /// Runs a call with an effect outside.
    pub async fn call<T>(&self, call: impl Future<Output = T>) -> T {
        self.in_call.store(true, Ordering::SeqCst);
        let out = call.await;
        self.in_call.store(false, Ordering::SeqCst);
        out
    }

    fn is_in_call(&self) -> bool {
        self.in_call.load(Ordering::SeqCst)
    }
}

/// Runs jobs. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    store: Store,
    registry: Registry,
    worker: String,
    held: Mutex<HashSet<i64>>,
    slots: usize,
    busy: AtomicUsize,
    /// No new claims.
    draining: CancellationToken,
    /// The grace is over: runs are broken off.
    abort: CancellationToken,
    claims: Batcher<i64, Option<Claimed>>,
    settles: Batcher<(Claimed, Arc<dyn Ending>), Settled>,
}

impl Engine {
    /// `slots` is for the metric of free and busy ones alone; the caller bounds the concurrency.
    pub fn new(store: Store, registry: Registry, slots: usize) -> Self {
        // A fresh name at each start: a lease is never taken for that of an earlier process.
        let worker = format!("{:016x}", crier_common::random::u64());
        let claims = {
            let (store, worker) = (store.clone(), worker.clone());
            Batcher::start(move |ids| claim_batch(store.clone(), worker.clone(), ids))
        };
        let settles = {
            let store = store.clone();
            Batcher::start(move |ends| settle_batch(store.clone(), ends))
        };
        Self(Arc::new(Inner {
            store,
            registry,
            worker,
            held: Mutex::default(),
            slots,
            busy: AtomicUsize::new(0),
            draining: CancellationToken::new(),
            abort: CancellationToken::new(),
            claims,
            settles,
        }))
    }

    pub fn worker(&self) -> &str {
        &self.0.worker
    }

    /// The ids of the jobs that run now, for the heartbeat.
    pub fn held(&self) -> Vec<i64> {
        self.0.held.lock().map(|held| held.iter().copied().collect()).unwrap_or_default()
    }

    /// Claims no more; what runs goes on.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Breaks off what still runs: a job that is not in the middle of a call is handed back without using up an attempt,
    /// one that is is left to its lease, as after a crash.
    pub fn abort(&self) {
        self.0.abort.cancel();
    }

    /// Waits until nothing runs.
    pub async fn idle(&self) {
        while self.0.busy.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Runs the job of an id that was rung, if it is still to be run. Gives whether it was.
    pub async fn run(&self, id: i64) -> bool {
        if self.0.draining.is_cancelled() {
            return false;
        }
        let Some(job) = self.0.claims.submit(id).await.flatten() else { return false };
        let _slot = Slot::take(self, job.id);
        if self.0.draining.is_cancelled() {
            self.release(&job).await;
            return true;
        }
        self.run_claimed(job).await;
        true
    }

    async fn run_claimed(&self, job: Claimed) {
        let started = Instant::now();
        let lateness = (self.0.store.now() - job.run_at).to_std().unwrap_or_default();
        metrics::job_started(job.kind.as_str(), lateness);
        let run = Run::new(job.clone());
        let Some(handler) = self.0.registry.get(job.kind) else { return };
        let span = tracing::info_span!("job", id = job.id, kind = %job.kind, subject = job.subject_id, attempt = job.attempt, trace = job.trace.as_deref());
        // A task of its own: a panic is caught there, and a run that computes long keeps no sibling from being polled.
        let mut task = {
            let run = run.clone();
            tokio::spawn(tracing::Instrument::instrument(async move { handler.run(&run).await }, span.clone()))
        };
        let ended = tokio::select! {
            ended = &mut task => ended,
            () = self.0.abort.cancelled() => {
                task.abort();
                let _ = task.await;
                if !run.is_in_call() {
                    self.release(&job).await;
                }
                return;
            }
        };
        let ending: Arc<dyn Ending> = match ended {
            Ok(Ok(ending)) => ending.into(),
            Ok(Err(error)) => {
                span.in_scope(|| tracing::error!(%error, "the job could not be run"));
                Arc::new(self.try_again(&job, "internal error"))
            }
            Err(panic) => {
                span.in_scope(|| tracing::error!(%panic, "the job panicked"));
                Arc::new(Panicked(self.try_again(&job, "panicked")))
            }
        };
        self.settle(&job, ending, started).await;
    }

    fn try_again(&self, job: &Claimed, why: &str) -> Outcome {
        if job.attempt >= job.max_attempts {
            return Outcome::Abort(why.to_owned());
        }
        Outcome::RetryAt(self.0.store.now() + PANIC_PAUSE * job.attempt.min(60), why.to_owned())
    }

    /// Settles, and goes on trying while the database is away: the effect is out, only its record is missing. When the
    /// lease runs out meanwhile, another run finds out what became of it.
    async fn settle(&self, job: &Claimed, ending: Arc<dyn Ending>, started: Instant) {
        let give_up = Instant::now() + LEASE.to_std().unwrap_or_default();
        loop {
            let settled = self.0.settles.submit((job.clone(), ending.clone())).await;
            let outcome = match settled {
                Some(Ok(outcome)) => outcome,
                Some(Err(error)) if Instant::now() < give_up && !self.0.abort.is_cancelled() => {
                    tracing::warn!(job = job.id, %error, "the end of a job could not be stored yet");
                    tokio::time::sleep(SETTLE_PAUSE).await;
                    continue;
                }
                Some(Err(error)) => {
                    tracing::error!(job = job.id, %error, "the end of a job could not be stored; it will be rescued");
                    return;
                }
                None => return,
            };
            let word = match &outcome {
                Some(Outcome::Done) => JobOutcome::Done,
                Some(Outcome::RetryAt(..)) => JobOutcome::Retried,
                Some(Outcome::Abort(_)) => JobOutcome::Dead,
                Some(Outcome::Cancelled(_)) => JobOutcome::Cancelled,
                None => JobOutcome::LostLease,
            };
            metrics::job_finished(job.kind.as_str(), word, started.elapsed());
            return;
        }
    }

    async fn release(&self, job: &Claimed) {
        let released = async {
            let mut tx = self.0.store.begin().await?;
            rows::release(&mut tx, job).await?;
            tx.commit().await
        };
        if let Err(error) = released.await {
            tracing::warn!(job = job.id, %error, "a job could not be handed back; it will be rescued");
        }
    }

    /// The kinds that this engine can run.
    pub fn kinds(&self) -> Vec<Kind> {
        self.0.registry.kinds()
    }
}

/// A job held: in the heartbeat's set, and counted as a busy slot.
struct Slot<'e>(&'e Engine, i64);

impl<'e> Slot<'e> {
    fn take(engine: &'e Engine, id: i64) -> Self {
        if let Ok(mut held) = engine.0.held.lock() {
            held.insert(id);
        }
        let busy = engine.0.busy.fetch_add(1, Ordering::SeqCst) + 1;
        metrics::worker_slots(busy, engine.0.slots.saturating_sub(busy));
        Self(engine, id)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Ok(mut held) = self.0.0.held.lock() {
            held.remove(&self.1);
        }
        let busy = self.0.0.busy.fetch_sub(1, Ordering::SeqCst) - 1;
        metrics::worker_slots(busy, self.0.0.slots.saturating_sub(busy));
    }
}

/// The end of a run that panicked: where no attempt is left, the subject is told.
struct Panicked(Outcome);

#[async_trait::async_trait]
impl Ending for Panicked {
    async fn write(&self, tx: &mut crier_common::store::Tx, job: &Claimed) -> Result<Outcome, StoreError> {
        if matches!(self.0, Outcome::Abort(_)) {
            crier_common::subjects::job_died(tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
        }
        Ok(self.0.clone())
    }
}
