//! Batching: items submitted during a transaction share the next one. A single item starts immediately.
//!
//! When many items are pending, a small batch waits a little for more of them, because small transactions cost nearly
//! as much as large ones. The more workers share the database, the longer it waits, so that four workers make batches
//! as large as one worker does, and leave each other time for them.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio::time::Instant;

/// The maximum number of items per transaction.
pub const MAX_BATCH: usize = 100;
/// The minimum number of pending items for which a small batch waits for more.
const BUSY: usize = 8;
/// A batch with this many items never waits.
const LARGE: usize = 32;
/// How long the only worker waits, as a multiple of the time that the last batch took: the slower the database, the
/// larger the batches.
const PAUSE_OF_ONLY_WORKER: u32 = 2;
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// The number of worker processes that share the database and its jobs, including this one.
#[derive(Debug, Clone)]
pub struct WorkerCount(Arc<AtomicU32>);

impl Default for WorkerCount {
    fn default() -> Self {
        Self(Arc::new(AtomicU32::new(1)))
    }
}

impl WorkerCount {
    pub fn set(&self, count: u32) {
        self.0.store(count.max(1), Ordering::Relaxed);
    }

    /// Returns the number, which is at least 1.
    pub fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Passes items to tasks, each of which processes all waiting items as one batch.
pub struct Batcher<I, O> {
    sender: mpsc::UnboundedSender<Pending<I, O>>,
    pending: Arc<()>,
}

/// An item without a result.
struct Pending<I, O> {
    item: I,
    sender: oneshot::Sender<O>,
    /// A clone of [`Batcher::pending`]: its reference count is the number of pending items.
    count: Arc<()>,
}

impl<I: Send + 'static, O: Send + 'static> Batcher<I, O> {
    /// Starts the tasks. `work` returns one result per item, in their order. At most `max_concurrent` batches run
    /// concurrently.
    pub fn start<F, Fut>(workers: &WorkerCount, max_concurrent: usize, work: F) -> Self
    where
        F: Fn(Vec<I>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<O>> + Send + 'static,
    {
        Self::start_with_permit(workers, max_concurrent, move |items, permit| {
            drop(permit);
            work(items)
        })
    }

    /// Does the same, but the next batch begins only when `work` drops its permit or returns.
    pub fn start_with_permit<F, Fut>(workers: &WorkerCount, max_concurrent: usize, work: F) -> Self
    where
        F: Fn(Vec<I>, BatchPermit) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Vec<O>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::unbounded_channel();
        let queue = Arc::new(Mutex::new(Queue(receiver)));
        let (pause, work) = (Pause::new(workers), Arc::new(work));
        for _ in 0..max_concurrent {
            tokio::spawn(batches(queue.clone(), pause.clone(), work.clone()));
        }
        Self { sender, pending: Arc::default() }
    }

    /// Waits for the item's result; returns `None` if its batch panicked.
    pub async fn submit(&self, item: I) -> Option<O> {
        let (sender, receiver) = oneshot::channel();
        self.sender.send(Pending { item, sender, count: self.pending.clone() }).ok()?;
        receiver.await.ok()
    }
}

/// Held by the batch that runs. Items that arrive meanwhile wait for the next one.
pub type BatchPermit = Box<dyn Send>;

/// The items that wait for a batch.
struct Queue<I, O>(mpsc::UnboundedReceiver<Pending<I, O>>);

impl<I, O> Queue<I, O> {
    /// Waits for the first items. If many are pending, but few of them are here, waits for more until the pause ends.
    /// Returns no items once the sender is dropped.
    async fn next_batch(&mut self, pause: &Pause) -> Vec<Pending<I, O>> {
        let mut batch = Vec::new();
        self.0.recv_many(&mut batch, MAX_BATCH).await;
        if batch.is_empty() {
            return batch;
        }
        // Jobs that were claimed together submit their items one after the other, each in its own task.
        tokio::task::yield_now().await;
        self.take_waiting(&mut batch);
        // One reference is the batcher's.
        let pending = batch.first().map_or(0, |first| Arc::strong_count(&first.count) - 1);
        let enough = pause.enough(pending);
        if pending >= BUSY && batch.len() < enough {
            let _ = tokio::time::timeout_at(pause.end(), self.fill(&mut batch, enough)).await;
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

    async fn fill(&mut self, batch: &mut Vec<Pending<I, O>>, enough: usize) {
        while batch.len() < enough && self.0.recv_many(batch, MAX_BATCH - batch.len()).await > 0 {}
    }
}

/// How long small batches wait, and for how many items.
#[derive(Clone)]
struct Pause {
    workers: WorkerCount,
    end: Arc<std::sync::Mutex<Instant>>,
}

impl Pause {
    fn new(workers: &WorkerCount) -> Self {
        Self { workers: workers.clone(), end: Arc::new(std::sync::Mutex::new(Instant::now())) }
    }

    /// Returns the number of items that ends the wait.
    fn enough(&self, pending: usize) -> usize {
        match self.workers.get() {
            // The others are in running batches. More items follow when those end, but seldom as many.
            1 => (pending * 2 / 3).min(LARGE),
            _ => LARGE,
        }
    }

    /// Begins a pause after a batch that took `took`. Batches of other workers are expected to take as long.
    fn begin(&self, took: Duration) {
        let times = match self.workers.get() {
            1 => PAUSE_OF_ONLY_WORKER,
            workers => workers - 1,
        };
        *lock(&self.end) = Instant::now() + (took * times).min(MAX_PAUSE);
    }

    fn end(&self) -> Instant {
        *lock(&self.end)
    }
}

/// Runs batches one after the other, until the sender is dropped.
async fn batches<I, O, F, Fut>(queue: Arc<Mutex<Queue<I, O>>>, pause: Pause, work: Arc<F>)
where
    I: Send + 'static,
    O: Send + 'static,
    F: Fn(Vec<I>, BatchPermit) -> Fut,
    Fut: Future<Output = Vec<O>>,
{
    loop {
        let mut permit = queue.clone().lock_owned().await;
        let batch = permit.next_batch(&pause).await;
        if batch.is_empty() {
            return;
        }
        let split = |Pending { item, sender, count }| (item, (sender, count));
        let (items, senders): (Vec<I>, Vec<_>) = batch.into_iter().map(split).unzip();
        let began = Instant::now();
        // A panic in one batch must not end the task.
        match AssertUnwindSafe(async { work(items, Box::new(permit)).await }).catch_unwind().await {
            Ok(done) => {
                for (result, (sender, _count)) in done.into_iter().zip(senders) {
                    let _ = sender.send(result);
                }
            }
            Err(_) => tracing::error!("a batch panicked"),
        }
        pause.begin(began.elapsed());
    }
}

fn lock<T>(mutex: &std::sync::Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use futures::future::join_all;

    use super::*;

    /// How long each batch takes, in milliseconds.
    const WORK: u64 = 10;

    /// Submits items to one of `workers` workers. A submission is a time in milliseconds and a number of items. Returns
    /// the time and the number of items of each batch.
    async fn batches_of(workers: u32, submissions: &[(u64, usize)]) -> Vec<(u64, usize)> {
        let count = WorkerCount::default();
        count.set(workers);
        let (start, begun) = (Instant::now(), Arc::<std::sync::Mutex<Vec<_>>>::default());
        let log = begun.clone();
        let batcher = Batcher::start(&count, 2, move |items: Vec<()>| {
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
        for workers in [1, 3] {
            assert_eq!(
                batches_of(workers, &[(0, 1), (10, 1), (11, 1), (20, 4), (21, 3)]).await,
                [(0, 1), (10, 1), (11, 1), (20, 4), (21, 3)]
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn items_submitted_while_all_batches_run_share_the_next_one() {
        for workers in [1, 3] {
            assert_eq!(
                batches_of(workers, &[(0, 1), (1, 1), (2, 3), (3, 2), (4, 150)]).await,
                [(0, 1), (1, 1), (10, 100), (11, 55)]
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_is_alone_waits_twice_as_long_as_the_last_batch_took() {
        assert_eq!(batches_of(1, &[(0, 1), (10, 20), (11, 1), (12, 3)]).await, [(0, 1), (10, 20), (30, 4)]);
        // Two thirds of 26 pending items are 17.
        assert_eq!(batches_of(1, &[(0, 1), (10, 20), (11, 6), (13, 11)]).await, [(0, 1), (10, 20), (13, 17)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_batch_of_many_pending_items_waits_for_the_batches_of_other_workers() {
        assert_eq!(batches_of(3, &[(0, 1), (10, 20), (11, 1), (12, 3)]).await, [(0, 1), (30, 24)]);
        // Never longer than 50 ms.
        assert_eq!(batches_of(30, &[(0, 1), (10, 20), (11, 1), (12, 3)]).await, [(0, 1), (60, 24)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_batch_begins_immediately() {
        assert_eq!(batches_of(3, &[(0, 1), (10, 20), (11, 6), (13, 11)]).await, [(0, 1), (13, 37)]);
    }
}
