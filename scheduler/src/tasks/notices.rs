//! Enqueues the emails about problems that are due.
//!
//! What is due is in the rows of the problems and of their users. The job deletes the problems in the transaction that
//! writes the email, and a user has at most one such job, so any number of schedulers may run.

use std::time::Duration;

use crier_domain::job::{JobKind, NewJob};
use crier_store::{Result, jobs, notices};

use crate::Scheduler;

/// The maximum number of emails per minute.
const BATCH: i64 = 500;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let mut tx = s.store.begin().await?;
    let now = tx.now;
    for user_id in notices::due(&mut tx, now, BATCH).await? {
        jobs::enqueue(&mut tx, &NewJob::new(JobKind::SendDigest, user_id, now)).await?;
    }
    tx.commit().await?;
    Ok(None)
}
