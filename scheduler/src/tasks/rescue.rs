//! Rescues jobs of dead workers, and wakes jobs that wait for free lanes.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::LEASE;
use crier_jobs as jobs;
use crier_store::jobs::dispatch::{self, Rescued};
use crier_store::{Result, StoreError, Tx};
use crier_telemetry::metrics::{self, RescueReason};

use crate::Scheduler;

const BATCH: i64 = 100;
/// Larger than the number of jobs that could fail to be rescued, so that the jobs after them are reached.
const MAX_SINGLE_RESCUES: i64 = 1_000;
/// How long nothing is rescued after the database was unavailable. Longer than a worker takes to renew its leases then.
const OUTAGE_GRACE_PERIOD: TimeDelta = TimeDelta::seconds(10);

/// When this scheduler last found the database unavailable.
#[derive(Debug, Default)]
pub struct LastOutage(Mutex<Option<DateTime<Utc>>>);

impl LastOutage {
    fn record(&self, now: DateTime<Utc>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
    }

    fn is_recent(&self, now: DateTime<Utc>) -> bool {
        let last = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A time in the future is from before the clock was set back.
        last.is_some_and(|at| at <= now && now - at <= OUTAGE_GRACE_PERIOD)
    }
}

/// Runs both parts, even if the first one fails.
pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    let done = [rescue(s).await, sweep(s).await];
    // A process that stops closes its own connections.
    let is_outage = |error: &StoreError| error.is_unavailable() && !error.is_closed();
    if done.iter().any(|done| done.as_ref().is_err_and(is_outage)) {
        s.last_outage.record(s.store.now());
    }
    done.into_iter().collect::<Result<Vec<()>>>()?;
    Ok(None)
}

/// Rescues jobs in batches. If one job makes a batch fail, rescues the jobs one by one.
async fn rescue(s: &Scheduler) -> Result<()> {
    loop {
        match rescue_next_batch(s).await {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            Err(error) if error.is_unavailable() => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "failed to rescue a batch of jobs; rescuing them one by one");
                return rescue_each(s).await;
            }
        }
    }
}

/// Begins a transaction that rescues jobs. Returns `None` while live workers may not have been able to renew their
/// leases: shortly after the clock was set, because all leases may then seem expired, and after the database was
/// unavailable. (The clock is checked after the transaction has read it.)
async fn begin(s: &Scheduler) -> Result<Option<Tx>> {
    let tx = s.store.begin().await?;
    let waits = s.store.clock().stepped_within(LEASE) || s.last_outage.is_recent(tx.now);
    Ok((!waits).then_some(tx))
}

async fn rescue_next_batch(s: &Scheduler) -> Result<usize> {
    let Some(mut tx) = begin(s).await? else { return Ok(0) };
    match rescue_batch(&mut tx).await {
        Ok(rescued) => {
            tx.commit().await?;
            rescued.iter().for_each(log_rescued);
            Ok(rescued.len())
        }
        Err(error) => {
            // Explicit, because a dropped transaction keeps its row locks a moment longer, and the next query would
            // skip these rows.
            tx.rollback().await?;
            Err(error)
        }
    }
}

async fn rescue_batch(tx: &mut Tx) -> Result<Vec<Rescued>> {
    let rescued = dispatch::rescue(tx, BATCH).await?;
    for one in &rescued {
        notify_subject(tx, one).await?;
    }
    Ok(rescued)
}

async fn rescue_each(s: &Scheduler) -> Result<()> {
    let expired = dispatch::expired(&mut s.store.read().await?, s.store.now(), MAX_SINGLE_RESCUES).await?;
    let mut failed = Ok(());
    for id in expired {
        if let Err(error) = rescue_one(s, id).await {
            if error.is_unavailable() {
                return Err(error);
            }
            tracing::error!(job = id, %error, "failed to rescue a job; retrying later");
            failed = Err(error);
        }
    }
    failed
}

async fn rescue_one(s: &Scheduler, job_id: i64) -> Result<()> {
    let Some(mut tx) = begin(s).await? else { return Ok(()) };
    let Some(one) = dispatch::rescue_one(&mut tx, job_id).await? else { return Ok(()) };
    notify_subject(&mut tx, &one).await?;
    tx.commit().await?;
    log_rescued(&one);
    Ok(())
}

async fn notify_subject(tx: &mut Tx, Rescued { job, dead }: &Rescued) -> Result<()> {
    match dead {
        Some(_) => jobs::on_dead(tx, job.kind, job.subject_id, job.trace.as_deref()).await,
        None => Ok(()),
    }
}

fn log_rescued(Rescued { job, dead }: &Rescued) {
    tracing::warn!(job = job.id, kind = %job.kind, trace = job.trace.as_deref(), dead, "rescued a dead worker's job");
    let reason = if *dead == Some("poison") { RescueReason::Poison } else { RescueReason::LeaseExpired };
    metrics::jobs_rescued(reason, 1);
}

async fn sweep(s: &Scheduler) -> Result<()> {
    let mut tx = s.store.begin_async_commit().await?;
    dispatch::sweep_lanes(&mut tx).await?;
    tx.commit().await
}
