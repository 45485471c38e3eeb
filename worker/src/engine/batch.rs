//! Batching: items submitted during a transaction share the next one; a single item starts at once.
//!
//! When many items are pending, a small batch waits a little for more of them ([`Queue::next_batch`]). Else several workers
//! on one database make many small transactions, each of which costs nearly as much as a large one.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use crier_domain::job::{Claimed, Outcome};
use crier_store::jobs::engine as rows;
use crier_store::{Store, StoreError};
use futures::FutureExt;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

use crate::jobs::{FinishedRun, Registry};

/// The maximum number of items per transaction.
const MAX_BATCH: usize = 100;
/// How many items are pending, at least, when a small batch waits for more.
const BUSY: usize = 8;
/// How many items end that wait, at most.
const BUSY_BATCH: usize = 32;
/// How long it lasts, as a multiple of the time that the last batch took: the slower the database, the larger the batches.
const REST: u32 = 2;
const MAX_REST: Duration = Duration::from_millis(50);
/// The pause after a failed claim; the scheduler notifies for the ids again anyway.
const CLAIM_PAUSE: Duration = Duration::from_millis(500);
/// How often a claim is attempted when it fails with a serialization error.
const MAX_CLAIM_ATTEMPTS: usize = 3;

/// Passes items to tasks, each of which processes all waiting items as one batch.
pub struct Batcher<I, O> {
    sender: mpsc::UnboundedSender<Pending<I, O>>,
    pending: Arc<()>,
}

/// An item without a result.
struct Pending<I, O> {
    item: I,
    answer: oneshot::Sender<O>,
    /// A clone for each pending item: their number is that of its references.
    count: Arc<()>,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// `work` returns one result per item, in their order; at most `at_once` batches run concurrently.
    pub fn start<F, Fut>(at_once: usize, work: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<O>> + Send + 'static,
    {
        Self::start_in_turns(at_once, move |items, turn| {
            drop(turn);
            work(items)
        })
    }

    /// The same, but the next batch begins only when `work` drops its turn, at the latest when it returns.
    pub fn start_in_turns<F, Fut>(at_once: usize, work: F) -> Self
    where
        F: Fn(Vec<I>, Turn) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<O>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(Queue(receiver)));
        let (rest, work) = (Arc::new(std::sync::Mutex::new(Instant::now())), Arc::new(work));
        for _ in 0..at_once {
            tokio::spawn(batches(queue.clone(), rest.clone(), work.clone()));
        }
        Self { sender, pending: Arc::default() }
    }

    /// Waits for the item's result; returns `None` if its batch panicked.
    pub async fn submit(&self, item: I) -> Option<O> {
        let (answer, result) = oneshot::channel();
        self.sender.send(Pending { item, answer, count: self.pending.clone() }).ok()?;
        result.await.ok()
    }
}

/// Held by the batch that works; items that arrive meanwhile wait for the next one.
pub type Turn = Box<dyn Send>;

/// The items that wait for a batch.
struct Queue<I, O>(mpsc::UnboundedReceiver<Pending<I, O>>);

impl<I, O> Queue<I, O> {
    /// Waits for the first items, and if many are pending, but most of them not here, for more until `rest_until`. Returns
    /// no items once the sender is dropped.
    async fn next_batch(&mut self, rest_until: impl Fn() -> Instant) -> Vec<Pending<I, O>> {
        let mut batch = Vec::new();
        self.0.recv_many(&mut batch, MAX_BATCH).await;
        if batch.is_empty() {
            return batch;
        }
        // Jobs that were claimed together submit their items one after the other, each in a task of its own.
        tokio::task::yield_now().await;
        self.take_waiting(&mut batch);
        // One reference is the batcher's.
        let pending = batch.first().map_or(0, |first| Arc::strong_count(&first.count) - 1);
        // The others are in batches that run; items like them follow when those end, but seldom as many.
        let wanted = (pending * 2 / 3).min(BUSY_BATCH);
        if pending >= BUSY && batch.len() < wanted {
            let _ = tokio::time::timeout_at(rest_until(), self.fill(&mut batch, wanted)).await;
        }
        batch
    }

    fn take_waiting(&mut self, batch: &mut Vec<Pending<I, O>>) {
        while batch.len() < MAX_BATCH
            && let Ok(item) = self.0.try_recv()
        {
            batch.push(item);
        }
    }

    async fn fill(&mut self, batch: &mut Vec<Pending<I, O>>, wanted: usize) {
        while batch.len() < wanted && self.0.recv_many(batch, MAX_BATCH - batch.len()).await > 0 {}
    }
}

/// Runs batches one after the other, until the sender is dropped. `rest`: until when small batches wait.
async fn batches<I, O, F, Fut>(queue: Arc<Mutex<Queue<I, O>>>, rest: Arc<std::sync::Mutex<Instant>>, work: Arc<F>)
where
    I: Send + 'static,
    O: Send + 'static,
    F: Fn(Vec<I>, Turn) -> Fut,
    Fut: Future<Output = Vec<O>>,
{
    loop {
        let mut turn = queue.clone().lock_owned().await;
        let batch = turn.next_batch(|| *lock(&rest)).await;
        if batch.is_empty() {
            return;
        }
        let split = |Pending { item, answer, count }| (item, (answer, count));
        let (items, answers): (Vec<I>, Vec<_>) = batch.into_iter().map(split).unzip();
        let began = Instant::now();
        // A panic in one batch must not end the task.
        match AssertUnwindSafe(async { work(items, Box::new(turn)).await }).catch_unwind().await {
            Ok(done) => {
                for (result, (answer, _count)) in done.into_iter().zip(answers) {
                    let _ = answer.send(result);
                }
            }
            Err(_) => tracing::error!("a batch panicked"),
        }
        *lock(&rest) = Instant::now() + (began.elapsed() * REST).min(MAX_REST);
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

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
            tracing::warn!(%error, "jobs could not be claimed; the scheduler notifies for them again");
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
            tracing::error!("a settled job could not be counted");
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// How long each batch takes, in milliseconds.
    const WORK: u64 = 10;

    /// Submits items, as many as stated after so many milliseconds each, and returns when batches of how many items began.
    async fn batches_of(submissions: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let (start, begun) = (Instant::now(), Arc::<std::sync::Mutex<Vec<_>>>::default());
        let log = begun.clone();
        let batcher = Batcher::start(2, move |items: Vec<()>| {
            let after = u64::try_from(start.elapsed().as_millis()).unwrap();
            lock(&log).push((after, items.len()));
            async {
                tokio::time::sleep(Duration::from_millis(WORK)).await;
                items
            }
        });
        let submit = async |(after, count): &(u64, usize)| {
            tokio::time::sleep_until(start + Duration::from_millis(*after)).await;
            let results = join_all((0..*count).map(|_| batcher.submit(()))).await;
            assert!(results.iter().all(Option::is_some), "each item has a result");
        };
        join_all(submissions.iter().map(submit)).await;
        std::mem::take(&mut lock(&begun))
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_items_never_wait() {
        assert_eq!(
            batches_of(&[(0, 1), (10, 1), (11, 1), (20, 4), (21, 3)]).await,
            [(0, 1), (10, 1), (11, 1), (20, 4), (21, 3)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn items_submitted_while_all_batches_run_share_the_next_one() {
        assert_eq!(
            batches_of(&[(0, 1), (1, 1), (2, 3), (3, 2), (4, 150)]).await,
            [(0, 1), (1, 1), (10, 100), (11, 55)]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_batch_of_many_pending_items_waits_twice_as_long_as_the_last_one_took() {
        assert_eq!(batches_of(&[(0, 1), (10, 20), (11, 1), (12, 3)]).await, [(0, 1), (10, 20), (30, 4)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_batch_that_is_large_enough_begins_at_once() {
        // Two thirds of 26 pending items are 17.
        assert_eq!(batches_of(&[(0, 1), (10, 20), (11, 6), (13, 11)]).await, [(0, 1), (10, 20), (13, 17)]);
    }
}
