//! Finds newly published posts, and enqueues a job for each account with due metrics.
//!
//! The due times are in the rows, which are claimed under their locks, as with feeds.

use std::time::Duration;

use crier_store::{Result, analytics};

use crate::Scheduler;

const BATCH: i64 = 200;
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let batch = BATCH.unsigned_abs() as usize;
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let added = analytics::add_published(&mut tx, s.early_metrics_platform, BATCH).await?;
        tx.commit().await?;
        if added < batch {
            break;
        }
    }
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let due = analytics::enqueue_due(&mut tx, &s.metrics_platforms, BATCH).await?;
        tx.commit().await?;
        if due < batch {
            break;
        }
    }
    Ok(None)
}
