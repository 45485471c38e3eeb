//! Corrects stored times that are in the future because a clock was ahead. Like all tasks, it also runs when the
//! scheduler starts.

use std::time::Duration;

use crier_store::{Result, misdated};

use crate::Scheduler;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let mut tx = s.store.begin_async_commit().await?;
    let corrected = misdated::correct_future_times(&mut tx).await?;
    tx.commit().await?;
    for (kind, rows) in corrected {
        tracing::warn!(kind, rows, "corrected times from a clock that was ahead");
    }
    Ok(None)
}
