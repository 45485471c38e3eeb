//! Gives back the AI credits of requests that died: their process was killed between taking the credits and storing the answer.
//!
//! A request that is merely slow is not taken for dead: its lease is three times what it has. Should its credits go all the
//! same, it takes them again when it ends.

use std::time::Duration;

use crier_common::store::{Result, ai_credits};

use crate::Scheduler;

pub const EVERY: Duration = Duration::from_secs(5);
const BATCH: i64 = 100;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    loop {
        let mut tx = s.store.begin().await?;
        let given_back = ai_credits::give_back_abandoned(&mut tx, BATCH).await?;
        if given_back == 0 {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        tracing::warn!(requests = given_back, "AI requests died; their credits are given back");
    }
}
