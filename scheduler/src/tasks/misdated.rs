//! Pulls back times that a clock that was ahead has written. They are in the database, so a restart does not remove them:
//! the task also runs at the start of the scheduler.

use std::time::Duration;

use crier_store::{Result, misdated};

use crate::Scheduler;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let mut tx = s.store.begin_async_commit().await?;
    let pulled_back = misdated::pull_back(&mut tx).await?;
    tx.commit().await?;
    for (kind, rows) in pulled_back {
        tracing::warn!(kind, rows, "corrected times from a clock that was ahead");
    }
    Ok(None)
}
