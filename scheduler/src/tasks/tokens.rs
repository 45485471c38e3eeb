//! Enqueues a job for each account whose tokens are due for renewal, or whose owners must be warned.
//!
//! The due time is in the account's row, which is claimed under its lock, as with feeds.

use std::time::Duration;

use crier_store::{Result, account_tokens};

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 100;
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    in_batches!(s, tx => account_tokens::enqueue_due(&mut tx, BATCH).await?);
    Ok(None)
}
