//! Enqueues a sync for each account that is due, and opens conversations whose snooze has ended.
//!
//! Both due times are in rows, which are claimed under their locks, as with feeds. Batches are small, so that accounts
//! that are due at the same time, as after a night of downtime, do not block the database.

use std::time::Duration;

use crier_store::{Result, conversations, inbox_syncs};

use crate::Scheduler;

const BATCH: i64 = 100;
const BATCHES: usize = 20;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let full = BATCH.unsigned_abs();
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let ended = conversations::end_snoozes(&mut tx, BATCH).await?;
        tx.commit().await?;
        if ended < full {
            break;
        }
    }
    if s.library.disk().is_low() {
        return Ok(None);
    }
    for _ in 0..BATCHES {
        let mut tx = s.store.begin().await?;
        let due = inbox_syncs::enqueue_due(&mut tx, BATCH, &s.plans).await?;
        tx.commit().await?;
        if (due as u64) < full {
            break;
        }
    }
    Ok(None)
}
