//! Enqueues a job for each account whose tokens are due for renewal, or whose owners must be warned.
//!
//! The due time is in the account's row, which is claimed under its lock, as with feeds.

use std::time::Duration;

use crier_store::{Result, account_tokens};

use crate::Scheduler;

const BATCH: i64 = 100;
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let enqueued = account_tokens::enqueue_due(&mut tx, BATCH).await?;
        tx.commit().await?;
        if enqueued < BATCH.unsigned_abs() as usize {
            break;
        }
    }
    Ok(None)
}
