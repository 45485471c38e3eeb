//! Deletes what is over, in small batches, so that no transaction is long: ended jobs after 7 days (dead ones 30), stored
//! answers after a day, deleted posts once nothing of theirs runs. What tells a user what happened (targets, deliveries,
//! attempts) stays.

use std::time::Duration;

use chrono::TimeDelta;
use crier_common::store::jobs::dispatch;
use crier_common::store::{Result, idempotency, posts};

use crate::Scheduler;

const BATCH: i64 = 500;
/// At most so many batches of each in one tick: the next tick goes on.
const ROUNDS: usize = 20;
const ENDED: TimeDelta = TimeDelta::days(7);
const DEAD: TimeDelta = TimeDelta::days(30);

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    for _ in 0..ROUNDS {
        let mut tx = s.store.begin().await?;
        let now = tx.now;
        let mut gone = dispatch::purge(&mut tx, now - ENDED, now - DEAD, BATCH).await?;
        gone += idempotency::purge(&mut tx, BATCH).await?;
        gone += posts::purge(&mut tx, BATCH).await?;
        tx.commit().await?;
        if gone == 0 {
            break;
        }
    }
    Ok(None)
}
