//! Workers on a transport: apalis on the in-memory notifier and on Redis, their concurrency and their stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use crier_common::config::Concurrency;
use crier_common::domain::job::{Bell, Kind, NewJob, Outcome, Ring, State};
use crier_common::queue::memory::MemoryBell;
use crier_common::queue::redis::RedisBell;
use crier_common::queue::{CAPACITY, Transport};
use crier_common::store::jobs::operate;
use crier_common::store::{Result, Store, jobs};
use crier_worker::engine::{Engine, Run};
use crier_worker::jobs::{Ending, Job, Registry};
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::support::bell::ears;
use crate::support::servers::{self, RedisServer};
use crate::support::store::{TestStore, cipher, on_both};

on_both!(
    the_memory_s_bell_wakes_a_bounded_number,
    the_bell_of_redis_wakes_a_bounded_number,
    a_stop_hands_back_what_has_not_begun,
);

/// Counts concurrent runs; each waits until the test releases it.
struct Counted {
    now: AtomicUsize,
    most: AtomicUsize,
    entered: Semaphore,
    open: Semaphore,
}

impl Counted {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            now: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
            entered: Semaphore::new(0),
            open: Semaphore::new(0),
        })
    }
}

struct Count(Arc<Counted>);

#[async_trait]
impl Job for Count {
    fn kind(&self) -> Kind {
        Kind::Noop
    }

    async fn run(&self, _run: &Run) -> Result<Box<dyn Ending>> {
        let counted = &self.0;
        let now = counted.now.fetch_add(1, Ordering::SeqCst) + 1;
        counted.most.fetch_max(now, Ordering::SeqCst);
        counted.entered.add_permits(1);
        counted.open.acquire().await.unwrap().forget();
        counted.now.fetch_sub(1, Ordering::SeqCst);
        Ok(Box::new(Outcome::Done))
    }
}

/// The transport as the store's notifier.
struct Heard(Arc<dyn Transport>);

impl Bell for Heard {
    fn ring(&self, rings: &[Ring]) {
        self.0.ring(rings);
    }
}

struct Running {
    store: Store,
    counted: Arc<Counted>,
    stop: CancellationToken,
    worker: tokio::task::JoinHandle<()>,
}

const AT_ONCE: usize = 3;

/// Starts a worker that listens to `transport`.
fn running(s: &TestStore, transport: Arc<dyn Transport>, drain: Duration) -> Running {
    let store = Store::new(s.db().clone(), s.clock.clone(), cipher(), Arc::new(Heard(transport.clone())));
    let counted = Counted::new();
    let engine = Engine::new(store.clone(), Registry::of([Arc::new(Count(counted.clone())) as Arc<dyn Job>]), AT_ONCE);
    let stop = CancellationToken::new();
    let worker = tokio::spawn(crier_worker::run(engine, transport, Concurrency::each(AT_ONCE), drain, stop.clone()));
    Running { store, counted, stop, worker }
}

impl Running {
    async fn enqueue(&self, count: i64) -> Vec<i64> {
        let mut ids = Vec::new();
        for subject in 0..count {
            let mut tx = self.store.begin().await.unwrap();
            let job = NewJob::new(Kind::Noop, subject, tx.now);
            ids.push(jobs::enqueue(&mut tx, &job).await.unwrap().unwrap());
            tx.commit().await.unwrap();
        }
        ids
    }

    async fn state(&self, id: i64) -> State {
        operate::show(&mut self.store.read().await.unwrap(), id).await.unwrap().unwrap().state
    }
}

/// Enqueues twelve jobs; three of them run at any time, and in the end all have run.
async fn wakes_a_bounded_number(mut r: Running) {
    let ids = r.enqueue(12).await;
    for _ in 0..4 {
        r.counted.entered.acquire_many(3).await.unwrap().forget();
        assert_eq!(r.counted.now.load(Ordering::SeqCst), AT_ONCE);
        r.counted.open.add_permits(3);
    }
    r.stop.cancel();
    (&mut r.worker).await.unwrap();
    assert_eq!(r.counted.most.load(Ordering::SeqCst), AT_ONCE, "never more");
    for id in ids {
        assert_eq!(r.state(id).await, State::Done);
    }
}

/// Starts a worker on the in-memory notifier and waits until it listens: earlier notifications are left to the
/// scheduler.
async fn in_memory(s: &TestStore, drain: Duration) -> Running {
    let bell = Arc::new(MemoryBell::default());
    let r = running(s, bell.clone(), drain);
    while bell.room().await.unwrap().iter().all(|(_, room)| *room == 0) {
        tokio::task::yield_now().await;
    }
    r
}

async fn the_memory_s_bell_wakes_a_bounded_number(s: TestStore) {
    wakes_a_bounded_number(in_memory(&s, Duration::from_secs(30)).await).await;
}

async fn redis_bell(url: &str, stop: &CancellationToken) -> Arc<RedisBell> {
    let bell = Arc::new(RedisBell::start(&SecretString::from(url), "test", stop.clone()).unwrap());
    while !bell.is_up() {
        tokio::task::yield_now().await;
    }
    bell
}

async fn the_bell_of_redis_wakes_a_bounded_number(s: TestStore) {
    let closed = CancellationToken::new();
    let bell = redis_bell(&servers::redis().await, &closed).await;
    wakes_a_bounded_number(running(&s, bell, Duration::from_secs(30))).await;
    closed.cancel();
}

async fn a_stop_hands_back_what_has_not_begun(s: TestStore) {
    // No grace period: running jobs are aborted, outside of any call, and handed back.
    let mut r = in_memory(&s, Duration::ZERO).await;
    let ids = r.enqueue(5).await;
    r.counted.entered.acquire_many(3).await.unwrap().forget();
    r.stop.cancel();
    (&mut r.worker).await.unwrap();
    for id in ids {
        let job = s.show(id).await;
        assert_eq!((job.state, job.attempt, job.crashes), (State::Ready, 0, 0));
    }
}

async fn room_of(bell: &dyn Transport, kind: Kind) -> Option<usize> {
    bell.room().await.map(|room| room.iter().find(|(k, _)| *k == kind).unwrap().1)
}

fn ring(ids: std::ops::Range<i64>) -> Vec<Ring> {
    ids.map(|id| Ring { kind: Kind::Noop, id }).collect()
}

#[tokio::test]
async fn the_memory_s_bell_never_blocks_and_drops_what_is_too_much() {
    let bell = MemoryBell::default();
    bell.ring(&ring(0..1));
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(0), "no listener");
    let mut listener = ears(&bell, Kind::Noop);
    let all = i64::try_from(CAPACITY).unwrap();
    bell.ring(&ring(0..all + 50));
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(0));
    for id in 0..all {
        assert_eq!(listener.recv().await, Some(id));
    }
    assert!(listener.try_recv().is_err());
    assert_eq!(room_of(&bell, Kind::Noop).await, Some(CAPACITY));
    // The latest listener receives the ids.
    let mut newer = ears(&bell, Kind::Noop);
    bell.ring(&ring(7..8));
    assert_eq!((newer.recv().await, listener.recv().await), (Some(7), None));
}

#[tokio::test]
async fn each_id_in_redis_reaches_one_listener() {
    let closed = CancellationToken::new();
    let bell = redis_bell(&servers::redis().await, &closed).await;
    let (mut a, mut b) = (ears(&*bell, Kind::Noop), ears(&*bell, Kind::Noop));
    bell.ring(&ring(0..200));
    let mut received = Vec::new();
    while received.len() < 200 {
        tokio::select! { id = a.recv() => received.extend(id), id = b.recv() => received.extend(id) }
    }
    received.sort_unstable();
    assert_eq!(received, (0..200).collect::<Vec<_>>());
    assert!(a.try_recv().is_err() && b.try_recv().is_err());
    closed.cancel();
}

#[tokio::test]
async fn the_room_in_redis_is_counted_for_each_kind() {
    let closed = CancellationToken::new();
    let bell = redis_bell(&servers::redis().await, &closed).await;
    bell.ring(&ring(0..500));
    while room_of(&*bell, Kind::Noop).await != Some(CAPACITY - 500) {
        tokio::task::yield_now().await;
    }
    assert_eq!(room_of(&*bell, Kind::PublishTarget).await, Some(CAPACITY));
    closed.cancel();
}

#[tokio::test]
async fn a_bell_whose_redis_comes_back_is_heard_again() {
    let closed = CancellationToken::new();
    let mut server = RedisServer::start();
    let bell = redis_bell(&server.url(), &closed).await;
    let mut listener = ears(&*bell, Kind::Noop);
    bell.ring(&ring(1..2));
    assert_eq!(listener.recv().await, Some(1));
    server.stop();
    while bell.is_up() {
        bell.ring(&ring(2..3));
        tokio::task::yield_now().await;
    }
    assert_eq!(bell.room().await, None);
    server.restart();
    while !bell.is_up() {
        tokio::task::yield_now().await;
    }
    bell.ring(&ring(3..4));
    // An id notified in between may be lost, or delivered by the new connection.
    while listener.recv().await != Some(3) {}
    while bell.room().await.is_none() {
        tokio::task::yield_now().await;
    }
    closed.cancel();
}
