//! How a run ended, and what the engine itself writes for a run without a result.
//!
//! If the database rejects a result, the engine stores smaller and smaller parts of it until the database accepts one.
//! The job settles, and the run does not count as a crash.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_store::{Result, Tx};

use super::run::Run;
use crate::jobs::{AnyJob, AnyResult};

/// The reason in the job's row, for operators.
const UNSTORABLE_REASON: &str = "the result of its run could not be stored";

/// How a run ended.
#[derive(Clone)]
pub(super) enum RunEnd {
    /// With a result, which its kind writes.
    Result(Arc<dyn AnyResult>),
    /// Without a result.
    NoResult(NoResult),
}

/// Why there is no result.
#[derive(Clone)]
pub(super) enum NoResult {
    /// There was nothing to write: only the job ends.
    Ended(Outcome),
    /// An error or a panic. If no attempts are left, the job is dead and its subject is notified.
    Failed(Box<Run>, Outcome),
    /// The database rejects the result, even in part: the job is dead.
    Unstorable { notifies_subject: bool },
}

impl RunEnd {
    /// Returns the end of a run that failed with an error or a panic; `why` is the reason, for operators.
    pub fn failed(run: &Run, handler: &dyn AnyJob, now: DateTime<Utc>, why: &str) -> Self {
        let outcome = match run.job.attempt < run.job.max_attempts {
            true => Outcome::RetryAt(now + handler.backoff(run.job.attempt), why.to_owned()),
            false => Outcome::Abort(why.to_owned()),
        };
        Self::NoResult(NoResult::Failed(Box::new(run.clone()), outcome))
    }

    pub fn result(&self) -> Option<&dyn AnyResult> {
        match self {
            Self::Result(result) => Some(&**result),
            Self::NoResult(_) => None,
        }
    }

    /// Returns the sort key of runs that are settled together.
    pub fn order(&self) -> i64 {
        self.result().map_or(0, |result| result.order())
    }

    /// Counts the run after the commit.
    pub fn observe(&self, outcome: &Outcome) {
        if let Some(result) = self.result() {
            result.observe(outcome);
        }
    }
}

impl NoResult {
    /// Writes what follows for the subject; returns the outcome of the job.
    pub async fn write(&self, handler: &dyn AnyJob, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let (outcome, notifies_subject) = match self {
            Self::Ended(outcome) => return Ok(outcome.clone()),
            Self::Failed(run, outcome) => {
                handler.undo_failed(tx, run).await?;
                (outcome.clone(), matches!(outcome, Outcome::Abort(_)))
            }
            Self::Unstorable { notifies_subject } => (Outcome::Abort(UNSTORABLE_REASON.to_owned()), *notifies_subject),
        };
        if notifies_subject {
            crier_jobs::on_dead(tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
        }
        Ok(outcome)
    }
}

/// What was last tried to store.
pub(super) enum Fallback {
    /// The whole end of the run.
    Whole,
    /// The result without external data.
    Reduced,
    /// The job is dead, and its subject is notified.
    Dead,
    /// The job is dead; its subject is not notified.
    DeadWithoutNotification,
}

impl Fallback {
    /// Returns the end to store instead of the last one; `None` if there is no smaller one. `whole` is how the run
    /// ended.
    pub fn next(&mut self, whole: &RunEnd) -> Option<RunEnd> {
        if let Self::Whole = self {
            *self = Self::Reduced;
            if let Some(reduced) = whole.result().and_then(|result| result.reduced()) {
                return Some(RunEnd::Result(reduced));
            }
        }
        let (next, notifies_subject) = match self {
            Self::Whole | Self::Reduced => (Self::Dead, true),
            Self::Dead => (Self::DeadWithoutNotification, false),
            Self::DeadWithoutNotification => return None,
        };
        *self = next;
        Some(RunEnd::NoResult(NoResult::Unstorable { notifies_subject }))
    }
}
