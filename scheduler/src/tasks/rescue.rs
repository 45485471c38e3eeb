//! Takes back jobs whose worker vanished, rings again for those whose bell was lost, wakes lanes.

use std::time::Duration;

use crier_common::store::Result;
use crier_common::store::jobs::dispatch::{self, Rescued, UNHEARD};
use crier_common::subjects;
use crier_common::telemetry::metrics::{self, RescueReason};

use crate::Scheduler;
use crate::room::Room;

const BATCH: i64 = 100;
const RING_BATCH: i64 = 1_000;

/// A part that fails does not keep the others from being done.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let done = [rescue(s).await, sweep(s).await, ring_again(s).await];
    done.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(None)
}

/// One job a transaction: where one of them cannot be taken back, the others are.
async fn rescue(s: &Scheduler) -> Result<()> {
    loop {
        let expired = dispatch::expired(&mut s.store.read().await?, s.store.now(), BATCH).await?;
        let (mut taken, mut failed) = (0, None);
        for id in &expired {
            match rescue_one(s, *id).await {
                Ok(Some(rescued)) => {
                    taken += 1;
                    tell(&rescued);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!(job = id, %error, "a job whose worker vanished could not be taken back yet");
                    failed = Some(error);
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if taken == 0 {
            return Ok(());
        }
    }
}

async fn rescue_one(s: &Scheduler, id: i64) -> Result<Option<Rescued>> {
    let mut tx = s.store.begin().await?;
    let Some(rescued) = dispatch::rescue_one(&mut tx, id).await? else { return Ok(None) };
    if rescued.dead.is_some() {
        let job = &rescued.job;
        subjects::job_died(&mut tx, job.kind, job.subject_id, job.trace.as_deref()).await?;
    }
    tx.commit().await?;
    Ok(Some(rescued))
}

fn tell(Rescued { job, dead }: &Rescued) {
    tracing::warn!(job = job.id, kind = %job.kind, trace = job.trace.as_deref(), dead, "a job's worker vanished");
    let reason = if *dead == Some("poison") { RescueReason::Poison } else { RescueReason::LeaseExpired };
    metrics::jobs_rescued(reason, 1);
}

async fn sweep(s: &Scheduler) -> Result<()> {
    let mut tx = s.store.begin().await?;
    dispatch::sweep_lanes(&mut tx).await?;
    tx.commit().await
}

async fn ring_again(s: &Scheduler) -> Result<()> {
    let Some(room) = Room::of(&*s.transport).await else { return Ok(()) };
    let mut ids = room.ids;
    while ids > 0 {
        let mut tx = s.store.begin().await?;
        let before = tx.now - UNHEARD;
        let rung = dispatch::ring_unheard_except(&mut tx, &room.full, before, RING_BATCH.min(ids)).await?;
        if rung == 0 {
            return Ok(());
        }
        tx.commit().await?;
        metrics::jobs_redispatched(rung as u64);
        ids -= i64::try_from(rung).unwrap_or(RING_BATCH);
    }
    Ok(())
}
