//! Fallbacks for a run whose result the database rejects: the engine stores smaller and smaller parts of the result
//! until the database accepts one. The job settles, and the run does not count as a crash.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_store::{Result, Tx};

use crate::jobs::RunResult;

/// The reason in the job's row, for operators.
const UNSTORABLE_REASON: &str = "the result of its run could not be stored";

/// The sequence of smaller results.
pub(super) enum Fallback {
    /// The result of the run.
    Whole,
    /// The result without external data.
    Reduced,
    /// The job is dead, and its subject is notified.
    Dead,
    /// The job is dead; its subject is not notified.
    DeadWithoutNotification,
}

impl Fallback {
    /// Returns the result to store instead of the last one; `None` if there is no smaller one. `whole` is the result of
    /// the run.
    pub fn next(&mut self, whole: &dyn RunResult) -> Option<Arc<dyn RunResult>> {
        if let Self::Whole = self {
            *self = Self::Reduced;
            if let Some(reduced) = whole.reduced() {
                return Some(reduced);
            }
        }
        let (next, notifies_subject) = match self {
            Self::Whole | Self::Reduced => (Self::Dead, true),
            Self::Dead => (Self::DeadWithoutNotification, false),
            Self::DeadWithoutNotification => return None,
        };
        *self = next;
        Some(Arc::new(AbortedRun { notifies_subject }))
    }
}

/// The result of a run whose own result cannot be stored, not even in part.
struct AbortedRun {
    notifies_subject: bool,
}

#[async_trait]
impl RunResult for AbortedRun {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        if self.notifies_subject {
            crier_jobs::on_dead(tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
        }
        Ok(Outcome::Abort(UNSTORABLE_REASON.to_owned()))
    }
}
