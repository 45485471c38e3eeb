//! Claims and settles in batches ([`Batcher`]).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crier_domain::job::{ClaimedJob, Outcome};
use crier_store::batch::MAX_BATCH;
use crier_store::jobs::engine as rows;
use crier_store::{Store, StoreError};
use futures::FutureExt;

use crate::jobs::{FinishedRun, Registry};

/// The pause after a failed claim; the scheduler notifies for the ids again anyway.
const CLAIM_PAUSE: Duration = Duration::from_millis(500);
/// The maximum number of attempts to claim a batch after serialization errors.
const MAX_CLAIM_ATTEMPTS: usize = 3;

/// Claims ids in one transaction.
pub async fn claim_batch(store: Store, worker: String, ids: Vec<i64>) -> Vec<Option<ClaimedJob>> {
    let mut attempts = 1;
    let claimed = loop {
        match claim(&store, &worker, &ids).await {
            Err(error) if error.is_serialization() && attempts < MAX_CLAIM_ATTEMPTS => attempts += 1,
            other => break other,
        }
    };
    let mut by_id: HashMap<i64, ClaimedJob> = match claimed {
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

async fn claim(store: &Store, worker: &str, ids: &[i64]) -> Result<Vec<ClaimedJob>, StoreError> {
    let mut tx = store.begin_single_async_commit().await?;
    let claimed = rows::claim(&mut tx, ids, worker).await?;
    tx.commit().await?;
    Ok(claimed)
}

/// The result of a settle; `Ok(None)`: the lease was lost, nothing was written.
pub type Settled = Result<Option<Outcome>, Arc<StoreError>>;

/// Settles jobs in one transaction. If one of them makes it fail (a lost lease, an error, a panic), settles each one
/// in its own transaction.
pub async fn settle_batch(store: Store, registry: Registry, mut runs: Vec<FinishedRun>) -> Vec<Settled> {
    // All workers lock rows in the same order, which prevents deadlocks.
    let order: Vec<_> = runs.iter().map(|(job, _)| key(job)).collect();
    runs.sort_by_key(|(job, result)| (job.kind, result.order(), job.subject_id));
    let mut settled_runs: HashMap<(i64, i64), Settled> = HashMap::new();
    let mut rest = &runs[..];
    while !rest.is_empty() {
        let (runs, others) = rest.split_at(fitting_count(&registry, rest));
        rest = others;
        if settle_in_one_statement(&store, &registry, runs).await {
            settled_runs.extend(runs.iter().map(|(job, _)| (key(job), Ok(Some(Outcome::Done)))));
            continue;
        }
        let settled_together = if runs.len() > 1 { settle(&store, &registry, runs).await.ok().flatten() } else { None };
        if let Some(outcomes) = settled_together {
            settled_runs.extend(runs.iter().map(|(job, _)| key(job)).zip(outcomes.into_iter().map(|o| Ok(Some(o)))));
            continue;
        }
        for run in runs {
            let settled = settle(&store, &registry, std::slice::from_ref(run)).await;
            let settled = settled.map(|outcomes| outcomes.and_then(|mut outcomes| outcomes.pop()));
            settled_runs.insert(key(&run.0), settled.map_err(Arc::new));
        }
    }
    order.iter().map(|key| settled_runs.remove(key).unwrap_or(Ok(None))).collect()
}

/// Returns how many of these runs, starting with the first, share a transaction. The limit bounds how long other
/// transactions wait for it.
fn fitting_count(registry: &Registry, runs: &[FinishedRun]) -> usize {
    let share = |(job, _): &FinishedRun| {
        registry.get(job.kind).map_or(1, |kind| MAX_BATCH / kind.max_results_per_transaction().clamp(1, MAX_BATCH))
    };
    let mut taken = 0;
    let fits = |run: &&FinishedRun| {
        taken += share(run);
        taken <= MAX_BATCH
    };
    runs.iter().take_while(fits).count().max(1)
}

/// Includes the fence, because a frozen run of a job and the rescued one may end together.
fn key(job: &ClaimedJob) -> (i64, i64) {
    (job.id, job.fence)
}

/// Settles all runs in one transaction. If a lease was lost, rolls back and returns `None`.
async fn settle(store: &Store, registry: &Registry, runs: &[FinishedRun]) -> Result<Option<Vec<Outcome>>, StoreError> {
    let settled = AssertUnwindSafe(async {
        let mut tx = store.begin().await?;
        let mut outcomes = Vec::with_capacity(runs.len());
        for runs in runs.chunk_by(|(one, _), (other, _)| one.kind == other.kind) {
            outcomes.extend(registry.write_results(&mut tx, runs).await?);
        }
        let settled: Vec<_> = runs.iter().map(|(job, _)| job).zip(outcomes).collect();
        if !rows::settle(&mut tx, &settled).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        tx.commit().await?;
        Ok(Some(settled.into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>()))
    });
    let panicked = || StoreError::Decode("the end of a job panicked".into());
    let settled = settled.catch_unwind().await.unwrap_or_else(|_| Err(panicked()))?;
    observe(runs, settled.iter().flatten());
    Ok(settled)
}

/// Settles runs in one statement if their kind supports it. Returns `false` if they must be settled in a transaction.
async fn settle_in_one_statement(store: &Store, registry: &Registry, runs: &[FinishedRun]) -> bool {
    let Some((first, _)) = runs.first() else { return false };
    let Some(kind) = registry.get(first.kind).filter(|_| runs.iter().all(|(job, _)| job.kind == first.kind)) else {
        return false;
    };
    match AssertUnwindSafe(kind.settle_in_one_statement(store, runs)).catch_unwind().await {
        Ok(Ok(true)) => {}
        Ok(Ok(false)) => return false,
        Ok(Err(error)) => {
            tracing::debug!(%error, "runs could not be settled in one statement; settling them in a transaction");
            return false;
        }
        Err(_) => return false,
    }
    observe(runs, std::iter::repeat_n(&Outcome::Done, runs.len()));
    true
}

/// Counts settled runs. Called once per run, after the commit.
fn observe<'a>(runs: &[FinishedRun], outcomes: impl Iterator<Item = &'a Outcome>) {
    for ((_, result), outcome) in runs.iter().zip(outcomes) {
        // Already committed: a panic while counting must not prevent the other jobs from being settled.
        if std::panic::catch_unwind(AssertUnwindSafe(|| result.observe(outcome))).is_err() {
            tracing::error!("failed to count a settled job");
        }
    }
}
