//! Start times of jobs, which the handler records.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{JobKind, Outcome};
use crier_store::{Result as StoreResult, Tx};
use crier_worker::engine::Run;
use crier_worker::jobs::{AnyJob, AnyResult, FinishedRun, RunError};
use tokio::sync::Notify;

use super::super::environment::BenchEnvironment;
use super::super::roles::{self, BenchRoles};
use super::super::{BenchError, Result, fail};
use super::Bench;

/// Time limit for all jobs to start.
const START_TIMEOUT: Duration = Duration::from_secs(300);

/// The time of the first start of each subject in a range.
pub struct Starts {
    origin: Instant,
    /// Wall-clock time at `origin`.
    origin_at: DateTime<Utc>,
    first: i64,
    /// Nanoseconds after `origin`; 0 means not started.
    at: Vec<AtomicU64>,
    started: AtomicUsize,
    awaited: AtomicUsize,
    reached: Notify,
}

impl Starts {
    /// Records `subjects` subjects, starting with `first`.
    pub fn new(first: i64, subjects: usize, now: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self {
            origin: Instant::now(),
            origin_at: now,
            first,
            at: (0..subjects).map(|_| AtomicU64::new(0)).collect(),
            started: AtomicUsize::new(0),
            awaited: AtomicUsize::new(usize::MAX),
            reached: Notify::new(),
        })
    }

    fn record(&self, subject: i64) {
        let at = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let Some(slot) = usize::try_from(subject - self.first).ok().and_then(|index| self.at.get(index)) else {
            return;
        };
        if slot.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && self.started.fetch_add(1, Ordering::SeqCst) + 1 >= self.awaited.load(Ordering::SeqCst)
        {
            self.reached.notify_one();
        }
    }

    /// Waits until this many jobs have started.
    pub async fn wait(&self, jobs: usize) -> Result {
        self.awaited.store(jobs, Ordering::SeqCst);
        let started = async {
            while self.started.load(Ordering::SeqCst) < jobs {
                self.reached.notified().await;
            }
        };
        match tokio::time::timeout(START_TIMEOUT, started).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let started = self.started.load(Ordering::SeqCst);
                fail(format!("{started} of {jobs} jobs began within {} s", START_TIMEOUT.as_secs()))
            }
        }
    }

    /// Returns when a subject's job started, if it has.
    pub fn of_subject(&self, subject: i64) -> Option<Instant> {
        let at = self.at.get(usize::try_from(subject - self.first).ok()?)?.load(Ordering::Relaxed);
        (at > 0).then(|| self.origin + Duration::from_nanos(at))
    }

    /// Returns how long after `due` each job started.
    pub fn delays_after(&self, due: DateTime<Utc>) -> Vec<Duration> {
        let due = due - self.origin_at;
        let began = self.at.iter().map(|at| at.load(Ordering::Relaxed)).filter(|at| *at > 0);
        began
            .map(|at| TimeDelta::nanoseconds(i64::try_from(at).unwrap_or(i64::MAX)) - due)
            .map(|late| late.to_std().unwrap_or_default())
            .collect()
    }
}

/// Starts the roles for one kind and records when its jobs start.
pub fn roles(
    bench: &Bench,
    environment: &BenchEnvironment,
    kind: JobKind,
    slots: usize,
    starts: &Arc<Starts>,
) -> std::result::Result<BenchRoles, BenchError> {
    let job = roles::job(&bench.config, environment, kind)?;
    BenchRoles::start(environment, kind, Arc::new(RecordedJob { job, starts: starts.clone() }), slots)
}

/// Crier's own handler, which also records when each job starts.
struct RecordedJob {
    job: Arc<dyn AnyJob>,
    starts: Arc<Starts>,
}

#[async_trait]
impl AnyJob for RecordedJob {
    async fn run(&self, run: &Run) -> std::result::Result<Arc<dyn AnyResult>, RunError> {
        self.starts.record(run.job.subject_id);
        self.job.run(run).await
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, dyn AnyResult>]) -> StoreResult<Vec<Outcome>> {
        self.job.settle(tx, runs).await
    }

    fn settles_together(&self) -> usize {
        self.job.settles_together()
    }

    fn starts_without_slot(&self) -> bool {
        self.job.starts_without_slot()
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> StoreResult<()> {
        self.job.undo_aborted(tx, run).await
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> StoreResult<()> {
        self.job.undo_failed(tx, run).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        self.job.backoff(attempt)
    }
}
