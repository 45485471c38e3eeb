//! Load peaks: many jobs due together, several schedulers, a notifier with little capacity or one that is unavailable.
//! Invariant: each job is notified once and runs once; never more are notified than there is capacity for; no kind
//! waits for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use crier_common::domain::job::{Bell, Kind, Ring, State};
use crier_common::queue::{Heard, Transport};
use crier_common::store::Store;
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::{dispatch, rescue};
use tokio::sync::{Semaphore, mpsc};

use crate::support::jobs::{LEASE_OVER, PUBLIC_URL, TestWorker, worker_on_both};
use crate::support::store::{at_once, cipher};

worker_on_both!(
    ten_thousand_due_at_once_pass_through_a_small_bell,
    schedulers_at_once_ring_for_a_job_once,
    schedulers_at_once_rescue_a_job_once,
    no_more_is_made_ready_than_the_bell_takes,
    a_kind_that_nobody_hears_holds_up_no_other,
    a_full_bell_is_not_looked_at_all_the_time,
    a_bell_that_is_away_holds_nothing_up,
);

/// A notifier with this capacity per kind, which keeps the ids until the test takes them.
struct SmallBell {
    capacity: usize,
    inside: Mutex<HashMap<Kind, Vec<i64>>>,
}

impl SmallBell {
    fn of(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, inside: Mutex::default() })
    }

    /// Takes the oldest ids.
    fn take(&self, kind: Kind, most: usize) -> Vec<i64> {
        let mut inside = self.inside.lock().unwrap();
        let of_kind = inside.entry(kind).or_default();
        of_kind.drain(..most.min(of_kind.len())).collect()
    }

    /// Returns the stored ids after the first `from`.
    fn after(&self, kind: Kind, from: usize) -> Vec<i64> {
        self.inside.lock().unwrap().get(&kind).map(|ids| ids[from..].to_vec()).unwrap_or_default()
    }
}

impl Bell for SmallBell {
    fn ring(&self, rings: &[Ring]) {
        let mut inside = self.inside.lock().unwrap();
        for ring in rings {
            let of_kind = inside.entry(ring.kind).or_default();
            of_kind.push(ring.id);
            assert!(of_kind.len() <= self.capacity, "more jobs are notified than there is capacity for");
        }
    }
}

#[async_trait]
impl Transport for SmallBell {
    fn listen(&self, _kind: Kind, _places: Arc<Semaphore>) -> mpsc::Receiver<Heard> {
        mpsc::channel(1).1
    }

    fn is_up(&self) -> bool {
        true
    }

    async fn room(&self) -> Option<Vec<(Kind, usize)>> {
        let inside = self.inside.lock().unwrap();
        let of = |kind| self.capacity - inside.get(kind).map_or(0, Vec::len);
        Some(Kind::ALL.iter().map(|kind| (*kind, of(kind))).collect())
    }
}

const SURGE: usize = 10_000;

/// Invariant: each of 10,000 runs once, and jobs notified together are in priority order; a job of another kind that
/// becomes due behind them is notified in the next tick.
async fn ten_thousand_due_at_once_pass_through_a_small_bell(w: TestWorker) {
    let bell = SmallBell::of(1_000);
    let store = Store::new(w.db().clone(), w.clock.clone(), cipher(), bell.clone());
    let (engine, scheduler) = (
        w.engine_for(store.clone(), Kind::ALL),
        Scheduler { store: store.clone(), transport: bell.clone(), library: w.library(PUBLIC_URL) },
    );
    let first = w.job_at(Kind::Noop, 0, None, w.later(1)).await;
    let last = w.job_at(Kind::DeliverWebhook, 1, None, w.later(60)).await;
    // Copies of the first job, due at the same time.
    w.sql(format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {SURGE}) \
         INSERT INTO jobs (kind, subject_id, state, priority, run_at, max_attempts, dispatched_at, created_at) \
         SELECT kind, i, state, i % 3, run_at, max_attempts, dispatched_at, created_at FROM jobs, n WHERE id = {first}"
    ))
    .await;
    w.advance(61);
    let (mut rung, mut ticks) = (0, 0);
    while rung < SURGE {
        let before = bell.after(Kind::Noop, 0).len();
        scheduler.tick().await.unwrap();
        ticks += 1;
        let new = bell.after(Kind::Noop, before);
        assert!(!new.is_empty() && ticks < 100, "it is topped up at each tick");
        in_order(&w, &new).await;
        rung += new.len();
        if ticks == 2 {
            assert_eq!(bell.take(Kind::DeliverWebhook, 9), [last], "another kind is not delayed");
        }
        let taken = bell.take(Kind::Noop, 700);
        let ran = futures::future::join_all(taken.iter().map(|id| engine.run(*id))).await;
        assert!(ran.iter().all(|ran| *ran), "each id leads to a run");
    }
    for id in bell.take(Kind::Noop, SURGE) {
        assert!(engine.run(id).await);
    }
    let done = "SELECT count(*) FROM jobs WHERE kind = 'noop' AND state = 'done' AND attempt = 1";
    assert_eq!((rung, w.number(done).await), (SURGE, i64::try_from(SURGE).unwrap()));
}

/// Asserts that jobs notified together are in priority order.
async fn in_order(w: &TestWorker, ids: &[i64]) {
    let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let sorted: String = w
        .value(format!(
            "SELECT string_agg(i, ',') FROM (SELECT CAST(id AS text) AS i FROM jobs WHERE id IN ({list}) ORDER BY priority DESC, run_at, id) j"
        ))
        .await;
    assert_eq!(sorted, list);
}

/// Returns schedulers of `count` processes, each with its own connections, and the test's notifier.
async fn schedulers(w: &TestWorker, count: usize) -> Vec<Scheduler> {
    let mut all = Vec::new();
    for _ in 0..count {
        let db = w.another().await.db().clone();
        let store = Store::new(db, w.clock.clone(), cipher(), w.s.bell.clone());
        all.push(Scheduler { store, transport: w.bell.clone(), library: w.library(PUBLIC_URL) });
    }
    all
}

async fn tick_at_once(schedulers: &[Scheduler], times: usize) {
    at_once(times, |i| {
        let scheduler = schedulers[i % schedulers.len()].clone();
        async move { scheduler.tick().await.unwrap() }
    })
    .await;
}

async fn schedulers_at_once_ring_for_a_job_once(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..300 {
        ids.push(w.job_at(Kind::Noop, subject, None, w.later(10)).await);
    }
    w.advance(10);
    tick_at_once(&schedulers(&w, 3).await, 12).await;
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, ids);
}

/// Invariant: one crash is counted once, whichever scheduler finds it.
async fn schedulers_at_once_rescue_a_job_once(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..250 {
        ids.push(w.job(Kind::Noop, subject, None).await);
    }
    w.s.bell.take();
    w.claim(&ids, "gone").await;
    w.advance(LEASE_OVER);
    tick_at_once(&schedulers(&w, 3).await, 12).await;
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, ids, "each is notified once");
    let once = "SELECT count(*) FROM jobs WHERE state = 'ready' AND crashes = 1 AND attempt = 1 AND fence = 2";
    assert_eq!(w.number(once).await, 250);
}

fn room(of: impl Fn(Kind) -> usize) -> Option<Vec<(Kind, usize)>> {
    Some(Kind::ALL.iter().map(|kind| (*kind, of(*kind))).collect())
}

async fn no_more_is_made_ready_than_the_bell_takes(w: TestWorker) {
    for subject in 0..50 {
        w.job_at(Kind::Noop, subject, None, w.later(1)).await;
    }
    w.advance(1);
    w.bell.set(room(|_| 20));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 20);
    assert_eq!(w.number("SELECT count(*) FROM jobs WHERE state = 'scheduled'").await, 30);
    w.bell.set(room(|_| 0));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 0);
    w.advance(10);
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 0, "nothing is notified again either");
    w.bell.set(room(|_| 1_000));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 30);
    w.bell.set(room(|_| 7));
    w.advance(10);
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.bell.take().len(), 7);
}

async fn a_kind_that_nobody_hears_holds_up_no_other(w: TestWorker) {
    let lost = w.job_at(Kind::DeliverWebhook, 1, None, w.later(1)).await;
    let unheard = w.job(Kind::DeliverWebhook, 2, None).await;
    let heard = w.job(Kind::Noop, 1, None).await;
    let due = w.job_at(Kind::Noop, 2, None, w.later(2)).await;
    w.s.bell.take();
    w.advance(10);
    w.bell.set(room(|kind| if kind == Kind::DeliverWebhook { 0 } else { 100 }));
    w.scheduler.tick().await.unwrap();
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, [heard, due]);
    assert_eq!((w.state(lost).await, w.state(unheard).await), (State::Scheduled, State::Ready));
    w.bell.set(room(|_| 100));
    w.scheduler.tick().await.unwrap();
    let mut rung = w.s.bell.take();
    rung.sort_unstable();
    assert_eq!(rung, [lost, unheard]);
}

async fn a_full_bell_is_not_looked_at_all_the_time(w: TestWorker) {
    w.job_at(Kind::Noop, 1, None, w.later(1)).await;
    w.advance(2);
    w.bell.set(room(|_| 0));
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None);
}

async fn a_bell_that_is_away_holds_nothing_up(w: TestWorker) {
    let id = w.job_at(Kind::Noop, 1, None, w.later(1)).await;
    w.advance(1);
    w.bell.set(None);
    w.scheduler.tick().await.unwrap();
    assert_eq!((w.state(id).await, w.s.bell.take()), (State::Ready, vec![id]));
    w.advance(10);
    w.scheduler.tick().await.unwrap();
    assert!(w.s.bell.take().is_empty(), "it is notified again once the notifier is back");
    w.bell.set(room(|_| 10));
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.bell.take(), [id]);
}
