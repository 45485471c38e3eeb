//! Makes due jobs ready and rings for them: scheduled posts, retries.
//!
//! The bell is never overfilled: no more is made ready than it has room for, and the rest waits in the database, in order.

use std::time::Duration;

use crier_common::domain::job::Kind;
use crier_common::store::Result;
use crier_common::store::jobs::dispatch;

use crate::Scheduler;
use crate::room::Room;

/// How often it looks; sooner where it knows that a job comes due.
pub const EVERY: Duration = Duration::from_millis(250);
/// How many jobs share a transaction.
const BATCH: i64 = 1_000;

/// Rings for so many ids at most, of all kinds but these; gives whether that was all that is due.
async fn ring(s: &Scheduler, except: &[Kind], mut ids: i64) -> Result<bool> {
    while ids > 0 {
        let limit = BATCH.min(ids);
        let mut tx = s.store.begin().await?;
        let due = dispatch::ring_due_except(&mut tx, except, limit).await?;
        if due > 0 {
            tx.commit().await?;
        }
        let due = i64::try_from(due).unwrap_or(limit);
        ids -= due;
        if due < limit {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Gives how long until the next job is due, where that is sooner than the tick.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    // An unreachable bell holds nothing up: what is made ready now is rung for again when it is back.
    let room = Room::of(&*s.transport).await;
    let room = room.unwrap_or(Room { full: Vec::new(), ids: BATCH, more: Vec::new() });
    if !ring(s, &room.full, room.ids).await? {
        // More is due than the slowest kind has room for; it may have taken all of it. The others do not wait behind it.
        for (kind, ids) in &room.more {
            let others: Vec<Kind> = Kind::ALL.iter().copied().filter(|other| other != kind).collect();
            ring(s, &others, *ids).await?;
        }
    }
    let mut conn = s.store.read().await?;
    let now = s.store.now();
    // What is due and was left (a full bell, another scheduler's locks) waits for the tick: looking at once would find it so
    // again.
    let next = dispatch::next_due(&mut conn).await?.filter(|at| *at > now);
    let until = next.and_then(|at| (at - now).to_std().ok()).map(|wait| wait.max(Duration::from_millis(1)));
    Ok(until.filter(|wait| *wait < EVERY))
}
