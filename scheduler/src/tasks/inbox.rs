//! Enqueues a sync for each account that is due, and opens conversations whose snooze has ended.
//!
//! Both due times are in rows, which are claimed under their locks, as with feeds. Batches are small, so that accounts
//! that are due at the same time, as after a night of downtime, do not block the database.

use std::time::Duration;

use crier_store::{Result, conversations, inbox_syncs};

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 100;
const BATCHES: usize = 20;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    in_batches!(s, tx => conversations::end_snoozes(&mut tx, BATCH).await?);
    if s.library.disk().is_low() {
        return Ok(None);
    }
    in_batches!(s, tx => inbox_syncs::enqueue_due(&mut tx, BATCH, &s.plans).await?);
    Ok(None)
}
