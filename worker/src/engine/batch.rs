//! Claims and settles in batches ([`Batcher`]).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crier_domain::job::{Claimed, Outcome};
use crier_store::batch::MAX_BATCH;
use crier_store::jobs::engine as rows;
use crier_store::{Store, StoreError};
use futures::FutureExt;

use crate::jobs::{FinishedRun, Registry};

/// The pause after a failed claim; the scheduler notifies for the ids again anyway.
const CLAIM_PAUSE: Duration = Duration::from_millis(500);
/// How often a claim is attempted when it fails with a serialization error.
const MAX_CLAIM_ATTEMPTS: usize = 3;

/// Claims ids in one transaction.
pub async fn claim_batch(store: Store, worker: String, ids: Vec<i64>) -> Vec<Option<Claimed>> {
    let mut attempts = 1;
    let claimed = loop {
        match claim(&store, &worker, &ids).await {
            Err(error) if error.is_serialization() && attempts < MAX_CLAIM_ATTEMPTS => attempts += 1,
            other => break other,
        }
    };
    let mut by_id: HashMap<i64, Claimed> = match claimed {
        Ok(claimed) => claimed.into_iter().map(|job| (job.id, job)).collect(),
        Err(error) => {
            tracing::warn!(%error, "failed to claim jobs; the scheduler notifies the workers again");
            tokio::time::sleep(CLAIM_PAUSE).await;
            HashMap::new()
        }
    };
    // The same id may occur twice in a batch: only the first one gets the job.
    ids.iter().map(|id| by_id.remove(id)).collect()
}

async fn claim(store: &Store, worker: &str, ids: &[i64]) -> Result<Vec<Claimed>, StoreError> {
    let mut tx = store.begin_single_async_commit().await?;
    let claimed = rows::claim(&mut tx, ids, worker).await?;
    tx.commit().await?;
    Ok(claimed)
}

/// The result of a settle; `Ok(None)`: the lease was lost, nothing was written.
pub type Settled = Result<Option<Outcome>, Arc<StoreError>>;

/// Settles jobs in one transaction; if one of them makes it fail (a lost lease, an error, a panic), settles each one
/// alone.
pub async fn settle_batch(store: Store, registry: Registry, mut ends: Vec<FinishedRun>) -> Vec<Settled> {
    // The same order in all workers prevents deadlocks: two batches that touch the same rows queue.
    let order: Vec<_> = ends.iter().map(|(job, _)| key(job)).collect();
    ends.sort_by_key(|(job, ending)| (job.kind, ending.order(), job.subject_id));
    let mut answers: HashMap<(i64, i64), Settled> = HashMap::new();
    let mut rest = &ends[..];
    while !rest.is_empty() {
        let (ends, others) = rest.split_at(fitting(&registry, rest));
        rest = others;
        if settle_at_once(&store, &registry, ends).await {
            answers.extend(ends.iter().map(|(job, _)| (key(job), Ok(Some(Outcome::Done)))));
            continue;
        }
        let together = if ends.len() > 1 { settle(&store, &registry, ends).await.ok().flatten() } else { None };
        if let Some(outcomes) = together {
            answers.extend(ends.iter().map(|(job, _)| key(job)).zip(outcomes.into_iter().map(|o| Ok(Some(o)))));
            continue;
        }
        for end in ends {
            let settled = settle(&store, &registry, std::slice::from_ref(end)).await;
            let settled = settled.map(|outcomes| outcomes.and_then(|mut outcomes| outcomes.pop()));
            answers.insert(key(&end.0), settled.map_err(Arc::new));
        }
    }
    order.iter().map(|key| answers.remove(key).unwrap_or(Ok(None))).collect()
}

/// How many of these ends, from the first on, share a transaction: others wait while it is under way.
fn fitting(registry: &Registry, ends: &[FinishedRun]) -> usize {
    let share = |(job, _): &FinishedRun| {
        registry.get(job.kind).map_or(1, |kind| MAX_BATCH / kind.max_results_per_transaction().clamp(1, MAX_BATCH))
    };
    let mut taken = 0;
    let fits = |end: &&FinishedRun| {
        taken += share(end);
        taken <= MAX_BATCH
    };
    ends.iter().take_while(fits).count().max(1)
}

/// Includes the fence, because a frozen run of a job and the rescued one may end together.
fn key(job: &Claimed) -> (i64, i64) {
    (job.id, job.fence)
}

/// Settles all in one transaction; if a lease was lost, rolls back and returns `None`.
async fn settle(store: &Store, registry: &Registry, ends: &[FinishedRun]) -> Result<Option<Vec<Outcome>>, StoreError> {
    let settled = AssertUnwindSafe(async {
        let mut tx = store.begin().await?;
        let mut outcomes = Vec::with_capacity(ends.len());
        for ends in ends.chunk_by(|(one, _), (other, _)| one.kind == other.kind) {
            outcomes.extend(registry.write_results(&mut tx, ends).await?);
        }
        let settled: Vec<_> = ends.iter().map(|(job, _)| job).zip(outcomes).collect();
        if !rows::settle(&mut tx, &settled).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        Ok(Some(settled.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>()))
    });
    let panicked = || StoreError::Decode("the end of a job panicked".into());
    let settled = settled.catch_unwind().await.unwrap_or_else(|_| Err(panicked()))?;
    observe(ends, settled.iter().flatten());
    Ok(settled)
}

/// Settles runs in one statement if their kind can; `false`: they have to be settled in a transaction.
async fn settle_at_once(store: &Store, registry: &Registry, ends: &[FinishedRun]) -> bool {
    let Some((first, _)) = ends.first() else { return false };
    let Some(kind) = registry.get(first.kind).filter(|_| ends.iter().all(|(job, _)| job.kind == first.kind)) else {
        return false;
    };
    match AssertUnwindSafe(kind.settle_at_once(store, ends)).catch_unwind().await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return false,
        Ok(Err(error)) => {
            tracing::debug!(%error, "runs could not be settled in one statement; settling them in a transaction");
            return false;
        }
        Err(_) => return false,
    }
    observe(ends, std::iter::repeat_n(&Outcome::Done, ends.len()));
    true
}

/// Counts settled runs: only once, after the commit.
fn observe<'a>(ends: &[FinishedRun], outcomes: impl Iterator<Item = &'a Outcome>) {
    for ((_, ending), outcome) in ends.iter().zip(outcomes) {
        // Already committed: a panic while counting must not prevent the other jobs from being settled.
        if std::panic::catch_unwind(AssertUnwindSafe(|| ending.observe(outcome))).is_err() {
            tracing::error!("failed to count a settled job");
        }
    }
}
