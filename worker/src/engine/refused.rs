//! What is stored of a run whose end the database refuses: less and less, until it takes it. So the job ends with what is
//! known, and its worker counts no crash for it.

use std::sync::Arc;

use async_trait::async_trait;
use crier_common::domain::job::{Claimed, Outcome};
use crier_common::store::{Result, Tx};

use crate::jobs::Ending;

/// What an operator reads of such a job.
const WHY: &str = "the end of its run could not be stored";

/// The next smaller end, and the one after that.
pub(super) enum Smaller {
    /// As the run gave it.
    Whole,
    /// Without what came from outside.
    Reduced,
    /// The job is dead, and its subject is told.
    Dead,
    /// The job is dead.
    Untold,
}

impl Smaller {
    /// The end to be tried instead of the last one; `whole` is the run's own. `None` where there is none.
    pub fn next(&mut self, whole: &dyn Ending) -> Option<Arc<dyn Ending>> {
        if let Self::Whole = self {
            *self = Self::Reduced;
            if let Some(reduced) = whole.reduced() {
                return Some(reduced);
            }
        }
        let (next, tells) = match self {
            Self::Whole | Self::Reduced => (Self::Dead, true),
            Self::Dead => (Self::Untold, false),
            Self::Untold => return None,
        };
        *self = next;
        Some(Arc::new(GivenUp { tells }))
    }
}

/// The end of a run that has no other.
struct GivenUp {
    tells: bool,
}

#[async_trait]
impl Ending for GivenUp {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        if self.tells {
            crier_common::subjects::job_died(tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
        }
        Ok(Outcome::Abort(WHY.to_owned()))
    }
}
