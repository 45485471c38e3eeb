//! Enqueues a fetch for each feed that is due.
//!
//! The due time is in the feed's row, which is claimed under its lock. So any number of schedulers may run at the same
//! time, and the next run finds a feed that all of them missed. Batches are small, so that thousands of feeds that are
//! due at the same time, as after a night of downtime, do not block the database and reach the workers over some time.
//! No fetches are enqueued while the disk is almost full.

use std::time::Duration;

use crier_store::{Result, feeds};

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 100;
/// The maximum number of batches per tick, enough for 90,000 feeds in 15 minutes.
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    if s.library.disk().is_low() {
        return Ok(None);
    }
    in_batches!(s, tx => feeds::enqueue_due(&mut tx, BATCH, &s.plans).await?);
    Ok(None)
}
