//! Makes due jobs (scheduled posts, retries) ready and notifies for them.
//!
//! The number of jobs of a kind that are made ready is limited by the notifier's capacity; the rest waits in the
//! database, in order. Each round handles a batch of every kind, so that a long queue of one kind does not block the
//! others.

use std::time::Duration;

use crier_domain::job::JobKind;
use crier_store::Result;
use crier_store::jobs::dispatch;

use crate::Scheduler;
use crate::notifier_capacity::NotifierCapacity;

/// The interval between runs. Shorter if a job is due sooner, or if due jobs wait for capacity.
pub const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Returns how long to wait until the next run, if that is sooner than [`TICK_INTERVAL`].
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    // An unreachable notifier blocks nothing: jobs that become ready now are notified again when it is reachable.
    let mut capacity = NotifierCapacity::of(&*s.transport).await.unwrap_or_else(NotifierCapacity::one_batch);
    loop {
        let firsts = dispatch::next_due(&mut s.store.read().await?).await?;
        let now = s.store.now();
        let due: Vec<JobKind> = firsts.iter().filter(|(_, at)| *at <= now).map(|(kind, _)| *kind).collect();
        let mut notified = 0;
        for kind in &due {
            notified += promote_due(s, *kind, &mut capacity).await?;
        }
        if notified == 0 {
            // Due jobs that were skipped (a full notifier, another scheduler's locks) wait, because an immediate retry
            // would skip them again.
            let next = firsts.iter().filter_map(|(_, at)| (*at - now).to_std().ok()).filter(|wait| !wait.is_zero());
            return Ok(next.chain(capacity.refill_in(&due)).min().filter(|wait| *wait < TICK_INTERVAL));
        }
    }
}

async fn promote_due(s: &Scheduler, kind: JobKind, capacity: &mut NotifierCapacity) -> Result<usize> {
    let limit = capacity.batch(kind);
    if limit == 0 {
        return Ok(0);
    }
    let mut tx = s.store.begin_async_commit().await?;
    let notified = dispatch::promote_due(&mut tx, kind, limit).await?;
    tx.commit().await?;
    capacity.subtract(kind, notified);
    Ok(notified)
}
