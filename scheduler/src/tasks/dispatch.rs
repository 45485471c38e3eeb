//! Makes due jobs ready and rings for them: scheduled posts, retries.
//!
//! The bell is never overfilled: no more is made ready than it has room for, and the rest waits in the database, in order.

use std::time::Duration;

use crier_common::store::Result;
use crier_common::store::jobs::dispatch;

use crate::Scheduler;

/// How often it looks; sooner where it knows that a job comes due.
pub const EVERY: Duration = Duration::from_millis(250);
/// How many jobs share a transaction.
const BATCH: i64 = 1_000;

/// Gives how long until the next job is due, where that is sooner than the tick.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    // An unreachable bell holds nothing up: what is made ready now is rung for again when it is back.
    let mut room = s.transport.room().await.map_or(BATCH, |room| i64::try_from(room).unwrap_or(BATCH));
    while room > 0 {
        let mut tx = s.store.begin().await?;
        let due = dispatch::ring_due(&mut tx, BATCH.min(room)).await?;
        if due > 0 {
            tx.commit().await?;
        }
        let due = i64::try_from(due).unwrap_or(BATCH);
        room -= due;
        if due < BATCH {
            break;
        }
    }
    let mut conn = s.store.read().await?;
    let next = dispatch::next_due(&mut conn).await?;
    let until = next.map(|at| (at - s.store.now()).to_std().unwrap_or_default().max(Duration::from_millis(1)));
    Ok(until.filter(|wait| *wait < EVERY))
}
