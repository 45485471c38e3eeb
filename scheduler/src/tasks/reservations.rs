//! Refunds the AI credits of requests whose process was killed between reserving the credits and storing the response.
//!
//! A slow request is not mistaken for a dead one, because its lease is three times its time limit. If its credits are
//! refunded nevertheless, it reserves them again when it ends.

use std::time::Duration;

use crier_store::{Result, ai_credits};

use crate::Scheduler;

const BATCH: i64 = 100;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    loop {
        let mut tx = s.store.begin().await?;
        let refunded = ai_credits::refund_expired(&mut tx, BATCH).await?;
        if refunded == 0 {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        tracing::warn!(requests = refunded, "refunded the AI credits of interrupted requests");
    }
}
