//! Retries dead and cancelled jobs, and cancels jobs, for the operator on the command line or in the console.
//!
//! A job and its subject change in one transaction. Many jobs are changed in batches of one transaction each, to keep
//! locks short. If one job makes its batch fail, the jobs of that batch are changed one by one. An interruption leaves
//! each job either unchanged or completely changed.

use std::collections::BTreeMap;

use chrono::SubsecRound as _;
use crier_domain::job::JobState;
use crier_store::jobs::operate::{self, JobQuery, JobRow};
use crier_store::{Result, Store, Tx};

/// The number of jobs per transaction, which blocks all other writers on SQLite.
const BATCH: i64 = 50;
/// The maximum number of attempts to change one job after serialization failures.
const MAX_ATTEMPTS: usize = 3;

/// The change to make to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobChange {
    Retry,
    Cancel,
}

/// Why a job was not changed.
pub type SkipReason = &'static str;

const NOTHING_LEFT: SkipReason = "its subject has nothing left to do";
const OTHER_JOB: SkipReason = "its subject has another job";
const STATE: SkipReason = "its state has changed";
const FAILED: SkipReason = "the database rejected the change";

/// Counts of changed and unchanged jobs.
#[derive(Debug, Default)]
pub struct ChangeCounts {
    pub changed: usize,
    pub skipped: BTreeMap<SkipReason, usize>,
}

impl ChangeCounts {
    /// Returns how many jobs could not be changed because of errors, which are in the log.
    pub fn failed(&self) -> usize {
        self.skipped.get(FAILED).copied().unwrap_or(0)
    }
}

impl JobChange {
    /// Changes the job. If this returns a reason, the caller must roll back the transaction.
    pub async fn apply(self, tx: &mut Tx, job: &JobRow) -> Result<Option<SkipReason>> {
        super::lock(tx, job.kind, job.subject_id).await?;
        Ok(match self {
            Self::Retry => match operate::retry(tx, job.id).await? {
                Some((kind, subject)) => (!super::on_retry(tx, kind, subject).await?).then_some(NOTHING_LEFT),
                None => match operate::show(tx, job.id).await?.map(|job| job.state) {
                    Some(JobState::Dead | JobState::Cancelled) => Some(OTHER_JOB),
                    _ => Some(STATE),
                },
            },
            Self::Cancel => match operate::cancel(tx, job.id).await? {
                Some((kind, subject)) => super::on_cancelled(tx, kind, subject).await.map(|()| None)?,
                None => Some(STATE),
            },
        })
    }

    /// Changes all jobs in one transaction, or none of them. In the latter case, returns the reason for the first job
    /// that could not be changed.
    async fn apply_all(self, store: &Store, jobs: &[JobRow]) -> Result<Option<SkipReason>> {
        let mut tx = store.begin().await?;
        for job in jobs {
            if let Some(reason) = self.apply(&mut tx, job).await? {
                tx.rollback().await?;
                return Ok(Some(reason));
            }
        }
        tx.commit().await?;
        Ok(None)
    }

    /// Changes one job. Retries if the change conflicts with a worker.
    pub async fn apply_with_retries(self, store: &Store, job: &JobRow) -> Result<Option<SkipReason>> {
        let mut attempts = 1;
        loop {
            match self.apply_all(store, std::slice::from_ref(job)).await {
                Err(error) if error.is_serialization() && attempts < MAX_ATTEMPTS => attempts += 1,
                result => return result,
            }
        }
    }

    /// Changes the next jobs that match the filter, after the id `after`, and counts them. Returns the last id; `None`
    /// if there were no more jobs.
    pub async fn apply_next(
        self,
        store: &Store,
        filter: &JobQuery,
        after: i64,
        counts: &mut ChangeCounts,
    ) -> Result<Option<i64>> {
        let mut jobs = operate::next(&mut store.read().await?, filter, after, BATCH).await?;
        let Some(last) = jobs.last().map(|job| job.id) else { return Ok(None) };
        // Approximates the lock order of workers that settle jobs.
        jobs.sort_by_key(|job| (job.kind, job.subject_id));
        self.batch(store, &jobs, counts).await?;
        Ok(Some(last))
    }

    async fn batch(self, store: &Store, jobs: &[JobRow], counts: &mut ChangeCounts) -> Result<()> {
        if matches!(self.apply_all(store, jobs).await, Ok(None)) {
            counts.changed += jobs.len();
            return Ok(());
        }
        for job in jobs {
            match self.apply_with_retries(store, job).await {
                Ok(None) => counts.changed += 1,
                Ok(Some(reason)) => *counts.skipped.entry(reason).or_default() += 1,
                Err(error) if error.is_unavailable() => return Err(error),
                Err(error) => {
                    tracing::error!(job = job.id, %error, "failed to change a job");
                    *counts.skipped.entry(FAILED).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    /// Returns the message for a job that was not changed, with what the operator can do instead.
    pub fn rejection(self, job: &JobRow, reason: SkipReason) -> String {
        let (id, kind, state) = (job.id, job.kind, job.state);
        match (self, state) {
            _ if reason != STATE => format!("job {id} was not changed: {reason}"),
            (_, JobState::Running) => {
                format!(
                    "job {id} is running, and running jobs continue; `crier jobs pause {kind}` keeps others from \
                     starting"
                )
            }
            (Self::Retry, JobState::Scheduled | JobState::Ready) => {
                format!("job {id} is {state}: it runs automatically, due {}", job.run_at.trunc_subsecs(0))
            }
            (Self::Retry, _) => format!("job {id} is {state}: only dead and canceled jobs can be retried"),
            (Self::Cancel, _) => format!("job {id} is {state}: only jobs that have not started can be canceled"),
        }
    }
}
