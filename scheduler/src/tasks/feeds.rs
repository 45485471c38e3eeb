//! Enqueues a fetch for each feed that is due.
//!
//! What is due is a time in the feed's row, taken under its lock: any number of schedulers may look at once, and what none of
//! them saw in time is found by the next that looks. In small batches, so that thousands of feeds that are due together, as
//! after a night in which nothing ran, keep nobody from the database, and reach the workers over some time.

use std::time::Duration;

use crier_common::store::{Result, feeds};

use crate::Scheduler;

pub const EVERY: Duration = Duration::from_secs(10);
const BATCH: i64 = 100;
/// In one tick: 90,000 feeds in a quarter of an hour.
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let enqueued = feeds::enqueue_due(&mut tx, BATCH).await?;
        tx.commit().await?;
        if enqueued < BATCH.unsigned_abs() as usize {
            break;
        }
    }
    Ok(None)
}
