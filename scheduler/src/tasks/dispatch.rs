//! Makes due jobs ready and rings for them: scheduled posts, retries.
//!
//! The bell is never overfilled: no more of a kind is made ready than it has room for, and the rest waits in the database, in
//! order. Kinds take turns, so that a long queue of one holds up no other.

use std::time::Duration;

use crier_common::domain::job::Kind;
use crier_common::store::Result;
use crier_common::store::jobs::dispatch;

use crate::Scheduler;
use crate::room::Room;

/// How often it looks; sooner where it knows that a job comes due.
pub const EVERY: Duration = Duration::from_millis(250);

/// Gives how long until the next job is due, where that is sooner than the tick.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    // An unreachable bell holds nothing up: what is made ready now is rung for again when it is back.
    let mut room = Room::of(&*s.transport).await.unwrap_or_else(Room::one_batch);
    loop {
        let firsts = dispatch::next_due(&mut s.store.read().await?).await?;
        let now = s.store.now();
        let mut rung = 0;
        for (kind, _) in firsts.iter().filter(|(_, at)| *at <= now) {
            rung += ring(s, *kind, &mut room).await?;
        }
        if rung == 0 {
            // What is due and was left (a full bell, another scheduler's locks) waits for the tick: looking at once would
            // find it so again.
            let next =
                firsts.iter().filter_map(|(_, at)| (*at - now).to_std().ok()).filter(|wait| !wait.is_zero()).min();
            return Ok(next.filter(|wait| *wait < EVERY));
        }
    }
}

async fn ring(s: &Scheduler, kind: Kind, room: &mut Room) -> Result<usize> {
    let limit = room.batch(kind);
    if limit == 0 {
        return Ok(0);
    }
    let mut tx = s.store.begin_soft().await?;
    let rung = dispatch::ring_due(&mut tx, kind, limit).await?;
    tx.commit().await?;
    room.take(kind, rung);
    Ok(rung)
}
