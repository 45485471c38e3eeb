//! Enqueues a fetch for each feed that is due.
//!
//! The due time is in the feed's row, claimed under its lock: any number of schedulers may run at once, and a feed that
//! all of them missed is found by the next run. Batches are small, so that thousands of feeds that are due together, as
//! after a night of downtime, do not block the database, and reach the workers over some time. While the disk is almost full, none are
//! enqueued.

use std::time::Duration;

use crier_store::{Result, feeds};

use crate::Scheduler;

const BATCH: i64 = 100;
/// Per tick: 90,000 feeds in 15 minutes.
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    if s.library.disk().is_low() {
        return Ok(None);
    }
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let enqueued = feeds::enqueue_due(&mut tx, BATCH, &s.plans).await?;
        tx.commit().await?;
        if enqueued < BATCH.unsigned_abs() as usize {
            break;
        }
    }
    Ok(None)
}
