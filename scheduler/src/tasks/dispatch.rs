//! Makes due jobs ready and notifies for them: scheduled posts, retries.
//!
//! The notifier never overflows: no more jobs of a kind are made ready than it has capacity for, and the rest waits in
//! the database, in order. Kinds take turns, so that a long queue of one does not block the others.

use std::time::Duration;

use crier_domain::job::JobKind;
use crier_store::Result;
use crier_store::jobs::dispatch;

use crate::Scheduler;
use crate::room::NotifierCapacity;

/// The tick interval; shorter if a job is known to be due sooner, or if due jobs wait for capacity.
pub const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Returns how long until it runs again, if that is sooner than the tick.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    // An unreachable notifier blocks nothing: jobs made ready now are notified again when it is back.
    let mut room = NotifierCapacity::of(&*s.transport).await.unwrap_or_else(NotifierCapacity::one_batch);
    loop {
        let firsts = dispatch::next_due(&mut s.store.read().await?).await?;
        let now = s.store.now();
        let due: Vec<JobKind> = firsts.iter().filter(|(_, at)| *at <= now).map(|(kind, _)| *kind).collect();
        let mut notified = 0;
        for kind in &due {
            notified += promote_due(s, *kind, &mut room).await?;
        }
        if notified == 0 {
            // Due jobs that were skipped (a full notifier, another scheduler's locks) wait: an immediate retry would skip
            // them again.
            let next = firsts.iter().filter_map(|(_, at)| (*at - now).to_std().ok()).filter(|wait| !wait.is_zero());
            return Ok(next.chain(room.refill_in(&due)).min().filter(|wait| *wait < TICK_INTERVAL));
        }
    }
}

async fn promote_due(s: &Scheduler, kind: JobKind, room: &mut NotifierCapacity) -> Result<usize> {
    let limit = room.batch(kind);
    if limit == 0 {
        return Ok(0);
    }
    let mut tx = s.store.begin_async_commit().await?;
    let notified = dispatch::promote_due(&mut tx, kind, limit).await?;
    tx.commit().await?;
    room.take(kind, notified);
    Ok(notified)
}
