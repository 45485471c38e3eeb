//! When jobs began to run, noted by the job itself.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::job::Kind;
use crier_common::store::Result as StoreResult;
use crier_worker::engine::Run;
use crier_worker::jobs::{Ending, Job};
use tokio::sync::Notify;

use super::super::crew::{self, Crew};
use super::super::place::Place;
use super::super::{CommandError, Result, refused};
use super::Bench;

/// How long jobs may take to begin, all of them.
const PATIENCE: Duration = Duration::from_secs(300);

/// The first start of each of a row of subjects.
pub struct Starts {
    zero: Instant,
    /// The time of day at `zero`.
    zero_at: DateTime<Utc>,
    first: i64,
    /// Nanoseconds after `zero`; 0: not yet.
    at: Vec<AtomicU64>,
    begun: AtomicUsize,
    awaited: AtomicUsize,
    reached: Notify,
}

impl Starts {
    /// Of the subjects from `first` on.
    pub fn of(first: i64, subjects: usize, now: DateTime<Utc>) -> Arc<Self> {
        Arc::new(Self {
            zero: Instant::now(),
            zero_at: now,
            first,
            at: (0..subjects).map(|_| AtomicU64::new(0)).collect(),
            begun: AtomicUsize::new(0),
            awaited: AtomicUsize::new(usize::MAX),
            reached: Notify::new(),
        })
    }

    fn note(&self, subject: i64) {
        let at = u64::try_from(self.zero.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1);
        let Some(slot) = usize::try_from(subject - self.first).ok().and_then(|index| self.at.get(index)) else {
            return;
        };
        if slot.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok()
            && self.begun.fetch_add(1, Ordering::SeqCst) + 1 >= self.awaited.load(Ordering::SeqCst)
        {
            self.reached.notify_one();
        }
    }

    /// Waits until so many have begun.
    pub async fn wait(&self, jobs: usize) -> Result {
        self.awaited.store(jobs, Ordering::SeqCst);
        let begun = async {
            while self.begun.load(Ordering::SeqCst) < jobs {
                self.reached.notified().await;
            }
        };
        match tokio::time::timeout(PATIENCE, begun).await {
            Ok(()) => Ok(()),
            Err(_) => {
                let begun = self.begun.load(Ordering::SeqCst);
                refused(format!("{begun} of {jobs} jobs began within {} s", PATIENCE.as_secs()))
            }
        }
    }

    /// When a subject's job began, if it has.
    pub fn of_subject(&self, subject: i64) -> Option<Instant> {
        let at = self.at.get(usize::try_from(subject - self.first).ok()?)?.load(Ordering::Relaxed);
        (at > 0).then(|| self.zero + Duration::from_nanos(at))
    }

    /// How long after a time of day each began.
    pub fn after(&self, due: DateTime<Utc>) -> Vec<Duration> {
        let due = due - self.zero_at;
        let began = self.at.iter().map(|at| at.load(Ordering::Relaxed)).filter(|at| *at > 0);
        began
            .map(|at| TimeDelta::nanoseconds(i64::try_from(at).unwrap_or(i64::MAX)) - due)
            .map(|late| late.to_std().unwrap_or_default())
            .collect()
    }
}

/// A crew for one kind, whose starts are noted.
pub fn crew(
    bench: &Bench,
    place: &Place,
    kind: Kind,
    slots: usize,
    starts: &Arc<Starts>,
) -> std::result::Result<Crew, CommandError> {
    let job = crew::job(&bench.config, place, kind)?;
    Crew::start(place, Arc::new(Noted { job, starts: starts.clone() }), slots)
}

/// The product's own job, with a note of when it began.
struct Noted {
    job: Arc<dyn Job>,
    starts: Arc<Starts>,
}

#[async_trait]
impl Job for Noted {
    fn kind(&self) -> Kind {
        self.job.kind()
    }

    async fn run(&self, run: &Run) -> StoreResult<Box<dyn Ending>> {
        self.starts.note(run.job.subject_id);
        self.job.run(run).await
    }

    fn pause(&self, attempt: i32) -> TimeDelta {
        self.job.pause(attempt)
    }
}
