//! Workers on a transport: apalis on the in-memory notifier and on Redis, with its concurrency and shutdown.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use crier_config::Concurrency;
use crier_domain::job::{JobKind, JobNotification, JobNotifier, JobState, NewJob, Outcome};
use crier_queue::Transport;
use crier_queue::memory::MemoryNotifier;
use crier_queue::redis::RedisNotifier;
use crier_store::jobs::{self, operate};
use crier_store::{Result, Store, Tx};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{FinishedRun, Job, Registry, RunError};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::servers;
use crate::support::store::{TestStore, cipher, on_both};

on_both!(
    the_memory_notifier_wakes_a_bounded_number_of_jobs,
    the_redis_notifier_wakes_a_bounded_number_of_jobs,
    a_stop_releases_jobs_that_have_not_started,
);

/// Counts concurrent runs. Each run waits until the test releases it.
struct RunCounter {
    running: AtomicUsize,
    max_running: AtomicUsize,
    entered: Semaphore,
    released: Semaphore,
}

impl RunCounter {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            running: AtomicUsize::new(0),
            max_running: AtomicUsize::new(0),
            entered: Semaphore::new(0),
            released: Semaphore::new(0),
        })
    }
}

struct CountingJob(Arc<RunCounter>);

#[async_trait]
impl Job for CountingJob {
    type Result = ();

    async fn run(&self, _run: &Run) -> std::result::Result<(), RunError> {
        let counter = &self.0;
        let running = counter.running.fetch_add(1, Ordering::SeqCst) + 1;
        counter.max_running.fetch_max(running, Ordering::SeqCst);
        counter.entered.add_permits(1);
        counter.released.acquire().await.unwrap().forget();
        counter.running.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    async fn settle(&self, _tx: &mut Tx, runs: &[FinishedRun<'_, ()>]) -> Result<Vec<Outcome>> {
        Ok(vec![Outcome::Done; runs.len()])
    }
}

/// Sends the store's notifications through the transport.
struct TransportNotifier(Arc<dyn Transport>);

impl JobNotifier for TransportNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        self.0.notify(notifications);
    }
}

struct RunningWorker {
    store: Store,
    counter: Arc<RunCounter>,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
}

const MAX_RUNNING: usize = 3;

/// Starts a worker that listens to `transport`.
fn start_worker(s: &TestStore, transport: Arc<dyn Transport>, drain: Duration) -> RunningWorker {
    let store = Store::new(s.db().clone(), s.clock.clone(), cipher(), Arc::new(TransportNotifier(transport.clone())));
    let counter = RunCounter::new();
    let registry = Registry::of([(JobKind::Noop, Arc::new(CountingJob(counter.clone())))]);
    let engine = Engine::new(store.clone(), registry);
    let stop = CancellationToken::new();
    let worker =
        tokio::spawn(crier_worker::run(engine, transport, Concurrency::each(MAX_RUNNING), drain, stop.clone()));
    RunningWorker { store, counter, stop, worker }
}

impl RunningWorker {
    async fn enqueue(&self, count: i64) -> Vec<i64> {
        let mut ids = Vec::new();
        for subject in 0..count {
            let mut tx = self.store.begin().await.unwrap();
            let job = NewJob::new(JobKind::Noop, subject, tx.now);
            ids.push(jobs::enqueue(&mut tx, &job).await.unwrap().unwrap());
            tx.commit().await.unwrap();
        }
        ids
    }

    async fn state(&self, id: i64) -> JobState {
        operate::show(&mut self.store.read().await.unwrap(), id).await.unwrap().unwrap().state
    }
}

/// Enqueues twelve jobs, and asserts that three of them run at a time until all have run.
async fn assert_bounded_wakeups(mut r: RunningWorker) {
    let ids = r.enqueue(12).await;
    for _ in 0..4 {
        r.counter.entered.acquire_many(3).await.unwrap().forget();
        assert_eq!(r.counter.running.load(Ordering::SeqCst), MAX_RUNNING);
        r.counter.released.add_permits(3);
    }
    r.stop.cancel();
    (&mut r.worker).await.unwrap();
    assert_eq!(r.counter.max_running.load(Ordering::SeqCst), MAX_RUNNING, "never more");
    for id in ids {
        assert_eq!(r.state(id).await, JobState::Done);
    }
}

/// Starts a worker on the in-memory notifier, and waits until it listens, because the notifier drops earlier
/// notifications.
async fn in_memory(s: &TestStore, drain: Duration) -> RunningWorker {
    let notifier = Arc::new(MemoryNotifier::default());
    let r = start_worker(s, notifier.clone(), drain);
    while notifier.capacity().await.unwrap().iter().all(|kind| kind.free == 0) {
        tokio::task::yield_now().await;
    }
    r
}

async fn the_memory_notifier_wakes_a_bounded_number_of_jobs(s: TestStore) {
    assert_bounded_wakeups(in_memory(&s, Duration::from_secs(30)).await).await;
}

async fn redis_notifier(url: &str, stop: &CancellationToken) -> Arc<RedisNotifier> {
    let notifier = Arc::new(RedisNotifier::start(&SecretString::from(url), "test", stop.clone()).unwrap());
    while !notifier.is_up() {
        tokio::task::yield_now().await;
    }
    notifier
}

async fn the_redis_notifier_wakes_a_bounded_number_of_jobs(s: TestStore) {
    let closed = CancellationToken::new();
    let notifier = redis_notifier(&servers::redis().await, &closed).await;
    assert_bounded_wakeups(start_worker(&s, notifier, Duration::from_secs(30))).await;
    closed.cancel();
}

async fn a_stop_releases_jobs_that_have_not_started(s: TestStore) {
    // Without a grace period, running jobs that are not in a call are aborted and released.
    let mut r = in_memory(&s, Duration::ZERO).await;
    let ids = r.enqueue(5).await;
    r.counter.entered.acquire_many(3).await.unwrap().forget();
    r.stop.cancel();
    (&mut r.worker).await.unwrap();
    for id in ids {
        let job = s.show(id).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Ready, 0, 0));
    }
}
