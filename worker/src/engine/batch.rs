//! Claims and settles in batches ([`Batcher`]).

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use crier_domain::job::{ClaimedJob, JobKind, Outcome};
use crier_store::batch::MAX_BATCH;
use crier_store::jobs::engine as rows;
use crier_store::{Store, StoreError, Tx};
use futures::FutureExt;

use super::run_end::RunEnd;
use crate::jobs::{AnyResult, FinishedRun, Registry};

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

/// A run to settle.
#[derive(Clone)]
pub struct EndedRun {
    pub job: ClaimedJob,
    pub end: RunEnd,
}

impl EndedRun {
    /// Returns the run if it has a result of this kind.
    fn finished(&self, kind: JobKind) -> Option<FinishedRun<'_, dyn AnyResult>> {
        let RunEnd::Result(result) = &self.end else { return None };
        (self.job.kind == kind).then_some(FinishedRun { job: &self.job, result: &**result })
    }

    /// Includes the fence, because a frozen run of a job and the rescued one may end together.
    fn key(&self) -> (i64, i64) {
        (self.job.id, self.job.fence)
    }
}

/// The result of a settle; `Ok(None)`: the lease was lost, nothing was written.
pub type Settled = Result<Option<Outcome>, Arc<StoreError>>;

/// Settles runs in one transaction. If one of them makes it fail (a lost lease, an error, a panic), settles each one in
/// its own transaction.
pub async fn settle_batch(store: Store, registry: Registry, mut runs: Vec<EndedRun>) -> Vec<Settled> {
    // All workers lock rows in the same order, which prevents deadlocks.
    let order: Vec<_> = runs.iter().map(EndedRun::key).collect();
    runs.sort_by_key(|run| (run.job.kind, run.end.order(), run.job.subject_id));
    let mut settled_runs: HashMap<(i64, i64), Settled> = HashMap::new();
    let mut rest = &runs[..];
    while !rest.is_empty() {
        let (runs, others) = rest.split_at(fitting_count(&registry, rest));
        rest = others;
        let settled_together = if runs.len() > 1 { settle(&store, &registry, runs).await.ok().flatten() } else { None };
        if let Some(outcomes) = settled_together {
            settled_runs.extend(runs.iter().map(EndedRun::key).zip(outcomes.into_iter().map(|o| Ok(Some(o)))));
            continue;
        }
        for run in runs {
            let settled = settle(&store, &registry, std::slice::from_ref(run)).await;
            let settled = settled.map(|outcomes| outcomes.and_then(|mut outcomes| outcomes.pop()));
            settled_runs.insert(run.key(), settled.map_err(Arc::new));
        }
    }
    order.iter().map(|key| settled_runs.remove(key).unwrap_or(Ok(None))).collect()
}

/// Returns how many of these runs, starting with the first, share a transaction. The limit bounds how long other
/// transactions wait for it.
fn fitting_count(registry: &Registry, runs: &[EndedRun]) -> usize {
    let share = |run: &EndedRun| {
        registry.get(run.job.kind).map_or(1, |kind| MAX_BATCH / kind.settles_together().clamp(1, MAX_BATCH))
    };
    let mut taken = 0;
    let fits = |run: &&EndedRun| {
        taken += share(run);
        taken <= MAX_BATCH
    };
    runs.iter().take_while(fits).count().max(1)
}

/// Settles all runs in one transaction. If a lease was lost, rolls back and returns `None`.
async fn settle(store: &Store, registry: &Registry, runs: &[EndedRun]) -> Result<Option<Vec<Outcome>>, StoreError> {
    let settled = AssertUnwindSafe(write_and_commit(store, registry, runs));
    let panicked = || StoreError::Decode("settling a job panicked".into());
    let settled = settled.catch_unwind().await.unwrap_or_else(|_| Err(panicked()))?;
    observe(runs, settled.iter().flatten());
    Ok(settled)
}

async fn write_and_commit(
    store: &Store,
    registry: &Registry,
    runs: &[EndedRun],
) -> Result<Option<Vec<Outcome>>, StoreError> {
    let mut tx = store.begin().await?;
    let outcomes = write(&mut tx, registry, runs).await?;
    let settled: Vec<_> = runs.iter().map(|run| &run.job).zip(outcomes).collect();
    if !rows::settle(&mut tx, &settled).await? {
        tx.rollback().await?;
        return Ok(None);
    }
    tx.commit().await?;
    Ok(Some(settled.into_iter().map(|(_, outcome)| outcome).collect()))
}

/// Writes the ends of runs, in their order: consecutive results of one kind together. Returns one outcome each.
async fn write(tx: &mut Tx, registry: &Registry, runs: &[EndedRun]) -> Result<Vec<Outcome>, StoreError> {
    let (mut outcomes, mut rest) = (Vec::with_capacity(runs.len()), runs);
    while let Some(first) = rest.first() {
        let kind = first.job.kind;
        let handler = registry.get(kind).ok_or_else(|| StoreError::Decode(format!("no handler for {kind}")))?;
        let count = match &first.end {
            RunEnd::Result(_) => {
                let finished: Vec<_> = rest.iter().map_while(|run| run.finished(kind)).collect();
                let written = handler.settle(tx, &finished).await?;
                if written.len() != finished.len() {
                    return Err(StoreError::Decode(format!("{kind} did not settle each of its runs")));
                }
                outcomes.extend(written);
                finished.len()
            }
            RunEnd::NoResult(end) => {
                outcomes.push(end.write(&*handler, tx, &first.job).await?);
                1
            }
        };
        rest = &rest[count..];
    }
    Ok(outcomes)
}

/// Counts settled runs. Called once per run, after the commit.
fn observe<'a>(runs: &[EndedRun], outcomes: impl Iterator<Item = &'a Outcome>) {
    for (run, outcome) in runs.iter().zip(outcomes) {
        // Already committed: a panic while counting must not prevent the other jobs from being settled.
        if std::panic::catch_unwind(AssertUnwindSafe(|| run.end.observe(outcome))).is_err() {
            tracing::error!("failed to count a settled job");
        }
    }
}
