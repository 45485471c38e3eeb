//! The engine: claims notified jobs, runs them, settles them.
//!
//! A run has three steps: *claim* (takes the row with a lease and a fence), *run* (the kind's own code; no transaction
//! is open while it waits for external services), *settle* (writes the result of the run and the job's new state in one
//! transaction). Concurrent claims and settles share a transaction; a single one starts immediately. After a crash
//! between two steps the lease expires, and the scheduler rescues the job.
//!
//! If other jobs wait for the lane of a settled job, the same worker immediately claims the next of them: its
//! *successor*, which takes no slot.

use std::collections::{HashMap, HashSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use crier_base::backoff::{self, ExponentialBuilder, Pauses};
use crier_domain::job::{ClaimedJob, JobKind, Outcome};
use crier_runtime::descriptors;
use crier_store::jobs::engine as rows;
use crier_store::{Batcher, Store, StoreError, WorkerCount};
use crier_telemetry::logs::Repeat;
use crier_telemetry::metrics::{self, JobOutcome};
use crier_telemetry::traces;
use futures::FutureExt;
use tokio::sync::{Notify, RwLock, Semaphore};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::jobs::{AnyJob, Registry, RunError};

mod batch;
mod run;
mod run_end;
mod successors;

use batch::{EndedRun, Settled, claim_batch, settle_batch};
pub use run::Run;
use run::{Active, JobSlot, Queued, RunPermit, contains, insert};
use run_end::{Fallback, NoResult, RunEnd};
use successors::LaneSuccessors;

/// The maximum number of batches of claims that run concurrently. Jobs that arrive meanwhile enlarge the next batch:
/// one large transaction costs the database less than several small concurrent ones.
const CLAIM_CONCURRENCY: usize = 1;
/// The maximum number of batches of settles that run concurrently: one is in its transaction while the other one wakes
/// jobs that wait for lanes.
const SETTLE_CONCURRENCY: usize = 2;
/// The pauses between attempts to settle a run.
const SETTLE_RETRIES: ExponentialBuilder = backoff::exponential(Duration::from_millis(100), Duration::from_secs(1));
/// The maximum number of runs per kind that wait for external services or for their settle without a slot. Each takes
/// about 20 kB of memory. The limit is per kind so that hanging webhook endpoints do not block publishing.
const MAX_WAITING: usize = 2_048;
/// The maximum number of attempts to settle a run after permanent errors.
const MAX_SETTLE_ATTEMPTS: usize = 3;

/// Runs jobs. Cheap to clone.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    store: Store,
    registry: Registry,
    worker: String,
    /// The running jobs, each with its fence.
    held: Mutex<HashSet<(i64, i64)>>,
    /// By kind: a permit for each run that waits without a slot.
    waiting: HashMap<JobKind, Arc<Semaphore>>,
    /// The number of calls of [`Engine::run`] that have not ended, including claims in progress.
    active: AtomicUsize,
    /// Read-locked by normal runs, write-locked by an exclusive run. The value is the number of exclusive runs so far.
    gate: Arc<RwLock<u64>>,
    /// Held by the run that waits to be the next exclusive one.
    exclusive_turn: tokio::sync::Mutex<()>,
    queued: Mutex<HashSet<i64>>,
    /// The jobs that had an exclusive run, or waited for one. If it had crashed, this process would not exist any more.
    tried_alone: Mutex<HashSet<i64>>,
    /// Stops new claims.
    draining: CancellationToken,
    /// The drain timeout is over: running jobs are aborted.
    abort: CancellationToken,
    claims: Batcher<i64, Option<ClaimedJob>>,
    settles: Batcher<EndedRun, Settled>,
    /// Limits the log lines of an outage of the database, in which no run can be settled.
    outage_repeat: tokio::sync::Mutex<Repeat>,
}

impl Engine {
    /// Creates an engine. The caller limits the number of concurrent runs.
    pub fn new(store: Store, registry: Registry) -> Self {
        // A new name at each start, so that leases of an earlier process are not mistaken for its own.
        let worker = format!("{:016x}", crier_base::random::u64());
        let kinds = registry.kinds();
        let share = descriptors::for_waiting_runs(MAX_WAITING * kinds.len().max(1)) / kinds.len().max(1);
        let waiting = kinds.into_iter().map(|kind| (kind, Arc::new(Semaphore::new(share.max(1))))).collect();
        Self(Arc::new_cyclic(|engine| {
            let claims = start_claims(&store, &worker, engine);
            let settles = start_settles(&store, &registry, &worker, engine);
            Inner {
                store,
                registry,
                worker,
                held: Mutex::default(),
                waiting,
                active: AtomicUsize::new(0),
                gate: Arc::default(),
                exclusive_turn: tokio::sync::Mutex::default(),
                queued: Mutex::default(),
                tried_alone: Mutex::default(),
                draining: CancellationToken::new(),
                abort: CancellationToken::new(),
                claims,
                settles,
                outage_repeat: tokio::sync::Mutex::default(),
            }
        }))
    }

    pub fn worker(&self) -> &str {
        &self.0.worker
    }

    /// Returns the number of worker processes that share the jobs.
    pub fn workers(&self) -> &WorkerCount {
        self.0.store.workers()
    }

    /// Returns the kinds that this engine can run.
    pub fn kinds(&self) -> Vec<JobKind> {
        self.0.registry.kinds()
    }

    /// Returns the ids of the running jobs, for the heartbeat.
    pub fn held(&self) -> Vec<i64> {
        self.0.held.lock().map(|held| held.iter().map(|(id, _)| *id).collect()).unwrap_or_default()
    }

    /// Stops claiming; running jobs continue.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Aborts running jobs. A job that is not in a call is released without using up an attempt. A job in a call is
    /// left until its lease expires, as after a crash.
    pub fn abort(&self) {
        self.0.abort.cancel();
    }

    /// Waits until nothing runs and nothing is being claimed.
    pub async fn idle(&self) {
        while self.0.active.load(Ordering::SeqCst) > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Claims and runs the job with a notified id. Returns whether it could be claimed.
    pub async fn run(&self, id: i64) -> bool {
        self.spawn(id, Arc::default()).await.unwrap_or(false)
    }

    /// Claims and runs a job, and returns when the run ends or releases its slot.
    pub async fn run_until_slot_free(&self, id: i64) {
        let released = Arc::<Notify>::default();
        let run = self.spawn(id, released.clone());
        tokio::select! { _ended = run => {}, () = released.notified() => {} }
    }

    /// Runs in a separate task, so that a claimed job runs to its end even if the caller is dropped.
    fn spawn(&self, id: i64, released: Arc<Notify>) -> JoinHandle<bool> {
        let (engine, active) = (self.clone(), Active::enter(&self.0));
        tokio::spawn(async move {
            let _active = active;
            engine.claim_and_run(id, released).await
        })
    }

    async fn claim_and_run(&self, id: i64, released: Arc<Notify>) -> bool {
        let Some((job, permit)) = self.claim(id).await else { return false };
        let slot = JobSlot::take(&self.0, &job, released);
        permit.hold_during(self.run_in_slot(job, slot)).await;
        true
    }

    async fn run_in_slot(&self, job: ClaimedJob, slot: JobSlot) {
        match self.0.registry.get(job.kind).filter(|_| !self.0.draining.is_cancelled()) {
            Some(handler) => self.run_claimed(Run::in_slot(job, slot), handler).await,
            None => self.release(&job).await,
        }
    }

    /// Claims a job, and waits until it may run. A job that was running at two crashes runs exclusively: a third crash
    /// makes it poison, and each crash also counts against the jobs that run at the same time. It does so once per
    /// process, because a post that a platform processes for long has very many runs.
    async fn claim(&self, id: i64) -> Option<(ClaimedJob, RunPermit)> {
        let others = self.0.gate.clone().read_owned().await;
        let job = self.claim_row(id).await?;
        if !job.is_suspect() || contains(&self.0.tried_alone, &id) {
            return Some((job, RunPermit::Shared(others)));
        }
        // Released while it waits to run exclusively: another job's crash would count against it.
        self.release(&job).await;
        let _queued = Queued::enter(&self.0, id)?;
        let permit = RunPermit::exclusive(&self.0.gate, &self.0.exclusive_turn, others).await;
        let job = self.claim_row(id).await?;
        insert(&self.0.tried_alone, id);
        Some((job, permit))
    }

    async fn claim_row(&self, id: i64) -> Option<ClaimedJob> {
        if self.0.draining.is_cancelled() {
            return None;
        }
        self.0.claims.submit(id).await.flatten()
    }

    async fn run_claimed(&self, run: Run, handler: Arc<dyn AnyJob>) {
        let (job, started) = (run.job.clone(), Instant::now());
        let lateness = (self.0.store.now() - job.run_at).to_std().unwrap_or_default();
        metrics::job_started(job.kind.as_str(), lateness);
        let span = tracing::info_span!("job", id = job.id, kind = %job.kind, subject = job.subject_id, attempt = job.attempt, trace = job.trace.as_deref());
        let traced = traces::Span::job(&job, lateness);
        let running = AssertUnwindSafe(handler.run(&run)).catch_unwind().instrument(span.clone());
        let ended = tokio::select! {
            biased;
            ended = traced.within(running) => ended,
            () = self.0.abort.cancelled() => {
                traced.fail("aborted");
                if !run.is_in_call() {
                    self.release_aborted(&run, &*handler).await;
                }
                return;
            }
        };
        let failed = |why| RunEnd::failed(&run, &*handler, self.0.store.now(), why);
        let end = match ended {
            Ok(Ok(result)) => RunEnd::Result(result),
            Ok(Err(RunError::Ended(outcome))) => RunEnd::NoResult(NoResult::Ended(outcome)),
            Ok(Err(RunError::Database(error))) => {
                span.in_scope(|| tracing::error!(%error, "failed to run the job"));
                failed("internal error")
            }
            Err(_) => {
                span.in_scope(|| tracing::error!("the job panicked"));
                failed("panicked")
            }
        };
        // The next claim does not wait until this result is on the disk.
        run.release_slot();
        self.settle(&job, end, started, &traced).await;
    }

    /// Settles a run, and retries while the database is unavailable, because the external effect has already happened.
    /// If the lease expires meanwhile and another run takes over, the fence prevents this one from writing. If the
    /// database rejects the result, stores a smaller one.
    async fn settle(&self, job: &ClaimedJob, whole: RunEnd, started: Instant, traced: &traces::Span) {
        let (mut end, mut fallback, mut rejections) = (whole.clone(), Fallback::Whole, 0);
        let mut pauses = Pauses::new(SETTLE_RETRIES);
        let outcome = loop {
            let ended = EndedRun { job: job.clone(), end: end.clone() };
            let Some(settled) = self.0.settles.submit(ended).await else { return };
            let error = match settled {
                Ok(outcome) => break outcome,
                Err(error) => error,
            };
            rejections += usize::from(!error.is_transient());
            if self.0.abort.is_cancelled() {
                tracing::error!(job = job.id, %error, "failed to settle a job; it will be rescued");
                return;
            }
            if rejections >= MAX_SETTLE_ATTEMPTS || error.is_rejected() {
                tracing::error!(job = job.id, %error, "the database rejected the result of a job; storing a reduced one");
                let Some(next) = fallback.next(&whole) else { return };
                (end, rejections) = (next, 0);
                continue;
            }
            if !error.is_unavailable() || self.0.outage_repeat.lock().await.is_due() {
                tracing::warn!(job = job.id, %error, "failed to settle a job; retrying");
            }
            let pause = pauses.next_pause();
            tokio::select! { () = tokio::time::sleep(pause) => {}, () = self.0.abort.cancelled() => {} }
        };
        let word = match &outcome {
            Some(Outcome::Done) => JobOutcome::Done,
            Some(Outcome::RetryAt(..)) => JobOutcome::Retried,
            Some(Outcome::Abort(_)) => JobOutcome::Dead,
            Some(Outcome::Cancelled(_)) => JobOutcome::Cancelled,
            None => JobOutcome::LostLease,
        };
        metrics::job_finished(job.kind.as_str(), word, started.elapsed());
        traced.finished(word);
    }

    /// Releases a job that was not started.
    async fn release(&self, job: &ClaimedJob) {
        let released = async {
            let mut tx = self.0.store.begin().await?;
            rows::release(&mut tx, job).await?;
            tx.commit().await
        };
        if let Err(error) = released.await {
            log_failed_release(job, &error);
        }
    }

    /// Releases a job whose run was aborted, as if it had not started.
    async fn release_aborted(&self, run: &Run, handler: &dyn AnyJob) {
        run.leave_shared_transactions().await;
        let released = async {
            let mut tx = self.0.store.begin().await?;
            handler.undo_aborted(&mut tx, run).await?;
            // If the lease was lost, the writes of the handler are rolled back.
            if rows::release(&mut tx, &run.job).await? { tx.commit().await } else { tx.rollback().await }
        };
        if let Err(error) = released.await {
            log_failed_release(&run.job, &error);
        }
    }
}

fn start_claims(store: &Store, worker: &str, engine: &Weak<Inner>) -> Batcher<i64, Option<ClaimedJob>> {
    let (workers, store, worker, engine) = (store.workers().clone(), store.clone(), worker.to_owned(), engine.clone());
    Batcher::start(&workers, CLAIM_CONCURRENCY, move |ids| {
        let successors = LaneSuccessors::new(worker.clone(), engine.clone(), None);
        claim_batch(store.clone().with_successors(Arc::new(successors)), worker.clone(), ids)
    })
}

fn start_settles(store: &Store, registry: &Registry, worker: &str, engine: &Weak<Inner>) -> Batcher<EndedRun, Settled> {
    let (workers, store, registry) = (store.workers().clone(), store.clone(), registry.clone());
    let (worker, engine) = (worker.to_owned(), engine.clone());
    Batcher::start_with_permit(&workers, SETTLE_CONCURRENCY, move |runs, turn| {
        let successors = LaneSuccessors::new(worker.clone(), engine.clone(), Some(turn));
        settle_batch(store.clone().with_successors(Arc::new(successors)), registry.clone(), runs)
    })
}

fn log_failed_release(job: &ClaimedJob, error: &StoreError) {
    tracing::warn!(job = job.id, %error, "failed to release a job; it will be rescued");
}
