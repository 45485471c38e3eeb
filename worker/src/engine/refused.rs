//! Fallbacks for a run whose result the database rejects: less and less of it is stored, until the database accepts it.
//! So the job settles with what is known, and the run does not count as a crash.

use std::sync::Arc;

use async_trait::async_trait;
use crier_domain::job::{Claimed, Outcome};
use crier_store::{Result, Tx};

use crate::jobs::RunResult;

/// The reason that an operator sees.
const UNSTORABLE_REASON: &str = "the result of its run could not be stored";

/// The sequence of smaller results.
pub(super) enum Fallback {
    /// As the run returned it.
    Whole,
    /// Without external data.
    Reduced,
    /// The job is dead, and its subject is notified.
    Dead,
    /// The job is dead; its subject is not notified.
    DeadWithoutNotify,
}

impl Fallback {
    /// Returns the result to store instead of the last one; `whole` is the run's own. `None` if there is no smaller
    /// one.
    pub fn next(&mut self, whole: &dyn RunResult) -> Option<Arc<dyn RunResult>> {
        if let Self::Whole = self {
            *self = Self::Reduced;
            if let Some(reduced) = whole.reduced() {
                return Some(reduced);
            }
        }
        let (next, notifies) = match self {
            Self::Whole | Self::Reduced => (Self::Dead, true),
            Self::Dead => (Self::DeadWithoutNotify, false),
            Self::DeadWithoutNotify => return None,
        };
        *self = next;
        Some(Arc::new(AbortedRun { notifies_subject: notifies }))
    }
}

/// The result of a run of which nothing else can be stored.
struct AbortedRun {
    notifies_subject: bool,
}

#[async_trait]
impl RunResult for AbortedRun {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        if self.notifies_subject {
            crier_jobs::on_dead(tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
        }
        Ok(Outcome::Abort(UNSTORABLE_REASON.to_owned()))
    }
}
