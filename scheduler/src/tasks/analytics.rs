//! Finds newly published posts, and enqueues a job for each account with due metrics.
//!
//! The due times are in the rows, which are claimed under their locks, as with feeds.

use std::time::Duration;

use crier_store::{Result, analytics};

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 200;
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    in_batches!(s, tx => analytics::add_published(&mut tx, s.early_metrics_platform, BATCH).await?);
    in_batches!(s, tx => analytics::enqueue_due(&mut tx, &s.metrics_platforms, BATCH).await?);
    Ok(None)
}
