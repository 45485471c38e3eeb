//! Notifies again for ready jobs that no worker has claimed: their notification was lost (a crash between commit and
//! notification, a queue that was emptied or unreachable), or the queue was full. A second notification of a job costs a
//! dropped claim. A job for which its lane has no place is set waiting instead: a claim would do the same, in
//! smaller batches.
//!
//! A notification is lost if the queue was empty after it. So the rest of a backlog that did not fit into the queue
//! follows as soon as workers have emptied it.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::JobKind;
use crier_store::Result;
use crier_store::jobs::dispatch::{self, RENOTIFY_AFTER};
use crier_telemetry::metrics;

use crate::Scheduler;
use crate::room::NotifierCapacity;

/// How long a notification may take to the queue, and from there to a claim.
const UNDER_WAY: TimeDelta = TimeDelta::seconds(1);

/// When this scheduler last saw no id of a kind in the queue.
#[derive(Debug, Default)]
pub struct LastEmpty(Mutex<HashMap<JobKind, DateTime<Utc>>>);

impl LastEmpty {
    fn update(&self, capacity: &NotifierCapacity, at: DateTime<Utc>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(JobKind::ALL.iter().filter(|kind| capacity.was_empty(**kind)).map(|kind| (*kind, at)));
    }

    /// Returns by when a job was notified last if its notification is lost, or is assumed to be.
    fn lost_before(&self, kind: JobKind, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A time in the future is one from before the clock was set back, and says nothing about the jobs since then.
        let empty = last.get(&kind).filter(|at| **at <= now).map(|at| *at - UNDER_WAY);
        empty.unwrap_or(DateTime::UNIX_EPOCH).max(now - RENOTIFY_AFTER)
    }
}

/// Returns how long until it runs again, if that is sooner than the tick. Does nothing while the notifier is unreachable.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let asked_at = s.store.now();
    let Some(mut room) = NotifierCapacity::of(&*s.transport).await else { return Ok(None) };
    s.last_empty.update(&room, asked_at);
    loop {
        let firsts = dispatch::oldest_unclaimed(&mut s.store.read().await?).await?;
        let (mut stale, mut found) = (Vec::new(), 0);
        for (kind, oldest) in firsts {
            let before = s.last_empty.lost_before(kind, s.store.now());
            if oldest <= before {
                stale.push(kind);
                found += notify_again(s, kind, before, &mut room).await?;
            }
        }
        if found == 0 {
            return Ok(room.refill_in(&stale));
        }
    }
}

/// Returns how many jobs were found. Those that wait take room, too: a run of the task ends, however long the backlog is.
async fn notify_again(
    s: &Scheduler,
    kind: JobKind,
    before: DateTime<Utc>,
    room: &mut NotifierCapacity,
) -> Result<usize> {
    let limit = room.batch(kind);
    if limit == 0 {
        return Ok(0);
    }
    let mut tx = s.store.begin_async_commit().await?;
    let found = dispatch::renotify_stale(&mut tx, kind, before, limit).await?;
    tx.commit().await?;
    metrics::jobs_redispatched(found as u64);
    room.take(kind, found);
    Ok(found)
}
