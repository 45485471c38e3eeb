//! What a dead job means for what it acted on: told in the transaction in which the job died.

use crate::domain::job::Kind;
use crate::publishing;
use crate::store::{Result, Tx, deliveries};

/// Tells the subject that its job is dead. One arm a kind.
pub async fn job_died(tx: &mut Tx, kind: Kind, subject_id: i64, trace: Option<&str>) -> Result<()> {
    match kind {
        Kind::PublishTarget => publishing::job_died(tx, subject_id, trace).await,
        Kind::DeliverWebhook => deliveries::give_up(tx, subject_id, "internal error; retry this delivery").await,
        Kind::Noop => Ok(()),
    }
}
