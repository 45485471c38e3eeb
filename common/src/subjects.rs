//! What becomes of a job's subject when the job dies, is cancelled or is revived: told in the same transaction. One arm a
//! kind.

use crate::domain::failure::{Category, Failure};
use crate::domain::job::Kind;
use crate::publishing;
use crate::store::{Result, Tx, deliveries};

/// The job is dead.
pub async fn job_died(tx: &mut Tx, kind: Kind, subject_id: i64, trace: Option<&str>) -> Result<()> {
    match kind {
        Kind::PublishTarget => {
            let message = "Crier could not finish publishing this; it was tried as often as is allowed. Publish it again to retry.";
            publishing::give_up(tx, subject_id, Failure::of(Category::Internal, message), trace).await
        }
        Kind::DeliverWebhook => deliveries::give_up(tx, subject_id, "internal error; retry this delivery").await,
        Kind::Noop => Ok(()),
    }
}

/// The operator cancelled the job.
pub async fn job_cancelled(tx: &mut Tx, kind: Kind, subject_id: i64) -> Result<()> {
    match kind {
        Kind::PublishTarget => {
            let message = "The operator cancelled the publishing of this. Publish it again if it is still wanted.";
            publishing::give_up(tx, subject_id, Failure::coded(Category::Internal, "cancelled", message), None).await
        }
        Kind::DeliverWebhook => deliveries::give_up(tx, subject_id, "cancelled by the operator").await,
        Kind::Noop => Ok(()),
    }
}

/// The operator runs a dead or cancelled job again; `false` where its subject has nothing left to do.
pub async fn job_revived(tx: &mut Tx, kind: Kind, subject_id: i64) -> Result<bool> {
    match kind {
        Kind::PublishTarget => publishing::revive(tx, subject_id).await,
        Kind::DeliverWebhook => deliveries::replay(tx, subject_id).await,
        Kind::Noop => Ok(true),
    }
}
