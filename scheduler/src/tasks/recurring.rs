//! Enqueues a run for each rule of recurring posts that is due: one of its occurrences comes within the next 30 days.
//!
//! The due time is in the rule's row, which is claimed under its lock, so any number of schedulers may run. The
//! statement reads only the head of an index of these times, so its cost depends on the rules that are due and not on
//! those that exist. A rule is due about once per occurrence or once per day, whichever is rarer. A late tick makes up
//! for the missed ones.

use std::time::Duration;

use crier_store::{Result, recurring_posts};

use super::in_batches;
use crate::Scheduler;

const BATCH: i64 = 100;
/// The maximum number of batches per tick, enough for 8,640,000 rules per day.
const BATCHES: usize = 10;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    if s.library.disk().is_low() {
        return Ok(None);
    }
    in_batches!(s, tx => recurring_posts::enqueue_due(&mut tx, BATCH).await?);
    Ok(None)
}
