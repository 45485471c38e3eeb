//! Takes back jobs whose worker vanished, rings again for those whose bell was lost, wakes lanes.

use std::time::Duration;

use crier_common::store::Result;
use crier_common::store::jobs::dispatch::{self, UNHEARD};
use crier_common::subjects;
use crier_common::telemetry::metrics::{self, RescueReason};

use crate::Scheduler;

const BATCH: i64 = 100;
const RING_BATCH: i64 = 1_000;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    rescue(s).await?;
    sweep(s).await?;
    ring_again(s).await?;
    Ok(None)
}

async fn rescue(s: &Scheduler) -> Result<()> {
    loop {
        let mut tx = s.store.begin().await?;
        let rescued = dispatch::rescue(&mut tx, BATCH).await?;
        for r in &rescued {
            tracing::warn!(job = r.job.id, kind = %r.job.kind, trace = r.job.trace.as_deref(), dead = r.dead, "a job's worker vanished");
            if r.dead.is_some() {
                subjects::job_died(&mut tx, r.job.kind, r.job.subject_id, r.job.trace.as_deref()).await?;
            }
        }
        if rescued.is_empty() {
            return Ok(());
        }
        tx.commit().await?;
        let poison = rescued.iter().filter(|r| r.dead == Some("poison")).count();
        metrics::jobs_rescued(RescueReason::Poison, poison as u64);
        metrics::jobs_rescued(RescueReason::LeaseExpired, (rescued.len() - poison) as u64);
    }
}

async fn sweep(s: &Scheduler) -> Result<()> {
    let mut tx = s.store.begin().await?;
    dispatch::sweep_lanes(&mut tx).await?;
    tx.commit().await
}

async fn ring_again(s: &Scheduler) -> Result<()> {
    let Some(room) = s.transport.room().await else { return Ok(()) };
    let mut room = i64::try_from(room).unwrap_or(RING_BATCH);
    while room > 0 {
        let mut tx = s.store.begin().await?;
        let before = tx.now - UNHEARD;
        let rung = dispatch::ring_unheard(&mut tx, before, RING_BATCH.min(room)).await?;
        if rung == 0 {
            return Ok(());
        }
        tx.commit().await?;
        metrics::jobs_redispatched(rung as u64);
        room -= i64::try_from(rung).unwrap_or(RING_BATCH);
    }
    Ok(())
}
