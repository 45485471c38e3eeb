//! Notifies again for ready jobs that no worker has claimed: their notification was lost (a crash between commit and
//! notification, a queue that was emptied or unreachable), or the queue was full. An unnecessary second notification
//! costs only a dropped claim. If a job's lane is full, the job is set waiting instead; a claim would do the same in
//! smaller batches.
//!
//! If the queue was empty after a notification and the job is not claimed, the notification was lost. So the part of a
//! backlog that did not fit into the queue follows as soon as workers have emptied the queue.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::JobKind;
use crier_store::Result;
use crier_store::jobs::dispatch::{self, RENOTIFY_AFTER};
use crier_telemetry::metrics;

use crate::Scheduler;
use crate::notifier_capacity::NotifierCapacity;

/// The maximum time from a notification to the claim.
const NOTIFICATION_DELAY: TimeDelta = TimeDelta::seconds(1);

/// For each kind, when this scheduler last found no ids in the queue.
#[derive(Debug, Default)]
pub struct LastEmpty(Mutex<HashMap<JobKind, DateTime<Utc>>>);

impl LastEmpty {
    fn update(&self, capacity: &NotifierCapacity, at: DateTime<Utc>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.extend(JobKind::ALL.iter().filter(|kind| capacity.was_empty(**kind)).map(|kind| (*kind, at)));
    }

    /// Returns the time before which the notifications of unclaimed jobs are assumed to be lost.
    fn lost_before(&self, kind: JobKind, now: DateTime<Utc>) -> DateTime<Utc> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A time in the future is from before the clock was set back, and says nothing about jobs since then.
        let empty = last.get(&kind).filter(|at| **at <= now).map(|at| *at - NOTIFICATION_DELAY);
        empty.unwrap_or(DateTime::UNIX_EPOCH).max(now - RENOTIFY_AFTER)
    }
}

/// Returns how long to wait until the next run, if that is sooner than the next tick. Does nothing while the notifier
/// is unreachable.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let read_at = s.store.now();
    let Some(mut capacity) = NotifierCapacity::of(&*s.transport).await else { return Ok(None) };
    s.last_empty.update(&capacity, read_at);
    loop {
        let firsts = dispatch::oldest_unclaimed(&mut s.store.read().await?).await?;
        let (mut stale, mut found) = (Vec::new(), 0);
        for (kind, oldest) in firsts {
            let before = s.last_empty.lost_before(kind, s.store.now());
            if oldest <= before {
                stale.push(kind);
                found += notify_again(s, kind, before, &mut capacity).await?;
            }
        }
        if found == 0 {
            return Ok(capacity.refill_in(&stale));
        }
    }
}

/// Returns the number of jobs found.
async fn notify_again(
    s: &Scheduler,
    kind: JobKind,
    before: DateTime<Utc>,
    capacity: &mut NotifierCapacity,
) -> Result<usize> {
    let limit = capacity.batch(kind);
    if limit == 0 {
        return Ok(0);
    }
    let mut tx = s.store.begin_async_commit().await?;
    let found = dispatch::renotify_stale(&mut tx, kind, before, limit).await?;
    tx.commit().await?;
    metrics::jobs_redispatched(found as u64);
    capacity.subtract(kind, found);
    Ok(found)
}
