//! Load peaks: many jobs that are due together, several schedulers, a notifier with little capacity, and an unavailable
//! notifier. Invariant: each job is notified once and runs once. Never more jobs are notified than there is capacity
//! for, and no kind waits for another.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use crier_domain::job::{JobKind, JobNotification, JobNotifier, JobState};
use crier_queue::{Handler, KindCapacity, Transport};
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::{dispatch, renotify};
use crier_store::Store;
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};
use crate::support::size::sized;
use crate::support::store::{cipher, run_concurrently};
use crate::support::transport::capacity;

worker_on_both!(
    many_due_jobs_pass_a_small_notifier,
    concurrent_schedulers_notify_each_job_once,
    concurrent_schedulers_rescue_each_job_once,
    promotion_is_limited_by_the_notifier_capacity,
    a_filled_notifier_is_refilled_before_the_next_tick,
    remaining_jobs_are_notified_when_the_notifier_is_empty,
    a_clock_that_was_set_back_repeats_no_notifications,
    a_kind_without_capacity_does_not_block_others,
    a_full_notifier_is_not_polled_continuously,
    an_unavailable_notifier_does_not_block_promotion,
);

/// A notifier with this capacity per kind. It keeps the ids until the test takes them.
struct SmallNotifier {
    capacity: usize,
    pending: Mutex<HashMap<JobKind, Vec<i64>>>,
}

impl SmallNotifier {
    fn of(capacity: usize) -> Arc<Self> {
        Arc::new(Self { capacity, pending: Mutex::default() })
    }

    /// Takes at most `max` ids, the oldest first.
    fn take(&self, kind: JobKind, max: usize) -> Vec<i64> {
        let mut pending = self.pending.lock().unwrap();
        let ids_of_kind = pending.entry(kind).or_default();
        ids_of_kind.drain(..max.min(ids_of_kind.len())).collect()
    }

    /// Returns the stored ids without the first `from`.
    fn after(&self, kind: JobKind, from: usize) -> Vec<i64> {
        self.pending.lock().unwrap().get(&kind).map(|ids| ids[from..].to_vec()).unwrap_or_default()
    }
}

impl JobNotifier for SmallNotifier {
    fn notify(&self, notifications: &[JobNotification]) {
        let mut pending = self.pending.lock().unwrap();
        for notification in notifications {
            let ids_of_kind = pending.entry(notification.kind).or_default();
            ids_of_kind.push(notification.id);
            assert!(ids_of_kind.len() <= self.capacity, "more jobs are notified than there is capacity for");
        }
    }
}

#[async_trait]
impl Transport for SmallNotifier {
    fn listen(
        &self,
        _kind: JobKind,
        _concurrency: usize,
        _handler: Handler,
        _stop: CancellationToken,
    ) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn is_up(&self) -> bool {
        true
    }

    async fn capacity(&self) -> Option<Vec<KindCapacity>> {
        let pending = self.pending.lock().unwrap();
        let waiting = |kind: &JobKind| pending.get(kind).map_or(0, Vec::len);
        let of =
            |kind: &JobKind| KindCapacity { kind: *kind, waiting: waiting(kind), free: self.capacity - waiting(kind) };
        Some(JobKind::ALL.iter().map(of).collect())
    }
}

/// Invariant: each of 3,000 (1,000) jobs runs once, and jobs that are notified together are in the order of their times.
/// A job of another kind that becomes due behind them is notified in the next tick.
async fn many_due_jobs_pass_a_small_notifier(w: TestWorker) {
    let surge = sized(3_000, 1_000);
    let notifier = SmallNotifier::of(surge / 10);
    let store = Store::new(w.db().clone(), w.clock.clone(), cipher(), notifier.clone());
    let (engine, scheduler) = (
        w.engine_for(store.clone(), JobKind::ALL),
        Scheduler { store: store.clone(), transport: notifier.clone(), ..w.scheduler.clone() },
    );
    let late = w.job_at(JobKind::Noop, 0, None, w.later(2)).await;
    let early = w.job_at(JobKind::Noop, 1, None, w.later(1)).await;
    let last = w.job_at(JobKind::DeliverWebhook, 1, None, w.later(60)).await;
    // Copies of both jobs, in turn.
    w.sql(format!(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {surge}) \
         INSERT INTO jobs (kind, subject_id, state, run_at, max_attempts, dispatched_at, created_at) \
         SELECT kind, i, state, run_at, max_attempts, dispatched_at, created_at FROM jobs, n \
         WHERE id = CASE WHEN i % 2 = 0 THEN {late} ELSE {early} END"
    ))
    .await;
    w.advance(61);
    let (mut notified, mut ticks) = (0, 0);
    while notified < surge {
        let before = notifier.after(JobKind::Noop, 0).len();
        scheduler.tick().await.unwrap();
        ticks += 1;
        let new = notifier.after(JobKind::Noop, before);
        assert!(!new.is_empty() && ticks < 100, "it is topped up at each tick");
        assert_time_order(&w, &new).await;
        notified += new.len();
        if ticks == 2 {
            assert_eq!(notifier.take(JobKind::DeliverWebhook, 9), [last], "another kind is not delayed");
        }
        let taken = notifier.take(JobKind::Noop, surge / 100 * 7);
        let ran = futures::future::join_all(taken.iter().map(|id| engine.run(*id))).await;
        assert!(ran.iter().all(|ran| *ran), "each id leads to a run");
    }
    for id in notifier.take(JobKind::Noop, surge) {
        assert!(engine.run(id).await);
    }
    let done = "jobs WHERE kind = 'noop' AND state = 'done' AND attempt = 1";
    assert_eq!((notified, w.count_rows(done).await), (surge, i64::try_from(surge).unwrap()));
}

/// Asserts that jobs notified together are in the order of their times.
async fn assert_time_order(w: &TestWorker, ids: &[i64]) {
    let list = ids.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
    let sorted: String = w
        .value(format!(
            "
            SELECT string_agg(i, ',')
            FROM (
                SELECT CAST(id AS text) AS i
                FROM jobs
                WHERE id IN ({list})
                ORDER BY run_at, id
            ) j"
        ))
        .await;
    assert_eq!(sorted, list);
}

/// Returns `count` schedulers with the test's notifier, each with connections of its own, as in separate processes.
async fn schedulers(w: &TestWorker, count: usize) -> Vec<Scheduler> {
    let mut all = Vec::new();
    for _ in 0..count {
        let db = w.open_second_store().await.db().clone();
        let store = Store::new(db, w.clock.clone(), cipher(), w.s.notifier.clone());
        all.push(Scheduler { store, ..w.scheduler.clone() });
    }
    all
}

async fn tick_concurrently(schedulers: &[Scheduler], times: usize) {
    run_concurrently(times, |i| {
        let scheduler = schedulers[i % schedulers.len()].clone();
        async move { scheduler.tick().await.unwrap() }
    })
    .await;
}

async fn concurrent_schedulers_notify_each_job_once(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..300 {
        ids.push(w.job_at(JobKind::Noop, subject, None, w.later(10)).await);
    }
    w.advance(10);
    tick_concurrently(&schedulers(&w, 3).await, 12).await;
    let mut notified = w.s.notifier.take();
    notified.sort_unstable();
    assert_eq!(notified, ids);
}

/// Invariant: a crash is counted once, whichever scheduler finds it.
async fn concurrent_schedulers_rescue_each_job_once(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..250 {
        ids.push(w.enqueue_job(JobKind::Noop, subject, None).await);
    }
    w.s.notifier.take();
    w.claim(&ids, "gone").await;
    w.advance(LEASE_EXPIRY_SECONDS);
    tick_concurrently(&schedulers(&w, 3).await, 12).await;
    let mut notified = w.s.notifier.take();
    notified.sort_unstable();
    assert_eq!(notified, ids, "each is notified once");
    assert_eq!(w.count_rows("jobs WHERE state = 'ready' AND crashes = 1 AND attempt = 1 AND fence = 2").await, 250);
}

/// Returns the capacity for this number of ids of each kind, while one id waits.
fn free_capacity(of: impl Fn(JobKind) -> usize) -> Option<Vec<KindCapacity>> {
    Some(capacity(1, of))
}

async fn promotion_is_limited_by_the_notifier_capacity(w: TestWorker) {
    for subject in 0..50 {
        w.job_at(JobKind::Noop, subject, None, w.later(1)).await;
    }
    w.advance(1);
    w.notifier.set(free_capacity(|_| 20));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.notifier.take().len(), 20);
    assert_eq!(w.count_rows("jobs WHERE state = 'scheduled'").await, 30);
    w.notifier.set(free_capacity(|_| 0));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.notifier.take().len(), 0);
    w.advance(10);
    renotify::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.notifier.take().len(), 0, "nothing is notified again either");
    w.notifier.set(free_capacity(|_| 1_000));
    dispatch::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.notifier.take().len(), 30);
    w.notifier.set(free_capacity(|_| 7));
    w.advance(10);
    renotify::run(&w.scheduler).await.unwrap();
    assert_eq!(w.s.notifier.take().len(), 7);
}

/// Notifying a backlog that does not fit into the notifier does not wait for the next tick.
async fn a_filled_notifier_is_refilled_before_the_next_tick(w: TestWorker) {
    for subject in 0..5 {
        w.job_at(JobKind::Noop, subject, None, w.later(1)).await;
    }
    w.advance(1);
    let retry_delay = Some(Duration::from_millis(50));
    w.notifier.set(free_capacity(|_| 2));
    assert_eq!((dispatch::run(&w.scheduler).await.unwrap(), w.s.notifier.take().len()), (retry_delay, 2));
    w.notifier.set(free_capacity(|_| 3));
    assert_eq!((dispatch::run(&w.scheduler).await.unwrap(), w.s.notifier.take().len()), (None, 3));
    w.advance(10);
    w.notifier.set(free_capacity(|_| 2));
    assert_eq!((renotify::run(&w.scheduler).await.unwrap(), w.s.notifier.take().len()), (retry_delay, 2));
    w.notifier.set(free_capacity(|_| 3));
    assert_eq!((renotify::run(&w.scheduler).await.unwrap(), w.s.notifier.take().len()), (None, 3));
}

/// If the notifier was empty after an id was notified, the id cannot be in it.
async fn remaining_jobs_are_notified_when_the_notifier_is_empty(w: TestWorker) {
    let renotified = async |kinds| {
        w.notifier.set(Some(kinds));
        renotify::run(&w.scheduler).await.unwrap();
        w.s.notifier.take().len()
    };
    for subject in 0..5 {
        w.enqueue_job(JobKind::Noop, subject, None).await;
    }
    w.s.notifier.take();
    assert_eq!(renotified(capacity(0, |_| 10)).await, 0, "they may be on their way");
    w.advance(1);
    assert_eq!(renotified(capacity(1, |_| 10)).await, 0, "they may be waiting");
    assert_eq!(renotified(capacity(0, |_| 2)).await, 2);
    w.advance(1);
    let late = w.enqueue_job(JobKind::Noop, 5, None).await;
    assert_eq!(w.s.notifier.take(), [late]);
    assert_eq!(renotified(capacity(1, |_| 10)).await, 3, "the rest, although ids wait again");
    w.advance(9);
    assert_eq!(renotified(capacity(1, |_| 10)).await, 2, "those that were notified ten seconds ago");
}

async fn a_clock_that_was_set_back_repeats_no_notifications(w: TestWorker) {
    w.notifier.set(Some(capacity(0, |_| 10)));
    w.advance(3_600);
    renotify::run(&w.scheduler).await.unwrap();
    w.advance(-3_600);
    w.enqueue_job(JobKind::Noop, 1, None).await;
    w.s.notifier.take();
    w.notifier.set(free_capacity(|_| 10));
    for (seconds, notified) in [(0, 0), (5, 0), (5, 1)] {
        w.advance(seconds);
        renotify::run(&w.scheduler).await.unwrap();
        assert_eq!(w.s.notifier.take().len(), notified);
    }
}

async fn a_kind_without_capacity_does_not_block_others(w: TestWorker) {
    let lost = w.job_at(JobKind::DeliverWebhook, 1, None, w.later(1)).await;
    let stale = w.enqueue_job(JobKind::DeliverWebhook, 2, None).await;
    let received = w.enqueue_job(JobKind::Noop, 1, None).await;
    let due = w.job_at(JobKind::Noop, 2, None, w.later(2)).await;
    w.s.notifier.take();
    w.advance(10);
    w.notifier.set(free_capacity(|kind| if kind == JobKind::DeliverWebhook { 0 } else { 100 }));
    w.scheduler.tick().await.unwrap();
    let mut notified = w.s.notifier.take();
    notified.sort_unstable();
    assert_eq!(notified, [received, due]);
    assert_eq!((w.state(lost).await, w.state(stale).await), (JobState::Scheduled, JobState::Ready));
    w.notifier.set(free_capacity(|_| 100));
    w.scheduler.tick().await.unwrap();
    let mut notified = w.s.notifier.take();
    notified.sort_unstable();
    assert_eq!(notified, [lost, stale]);
}

async fn a_full_notifier_is_not_polled_continuously(w: TestWorker) {
    w.job_at(JobKind::Noop, 1, None, w.later(1)).await;
    w.advance(2);
    w.notifier.set(free_capacity(|_| 0));
    assert_eq!(dispatch::run(&w.scheduler).await.unwrap(), None);
}

async fn an_unavailable_notifier_does_not_block_promotion(w: TestWorker) {
    let id = w.job_at(JobKind::Noop, 1, None, w.later(1)).await;
    w.advance(1);
    w.notifier.set(None);
    w.scheduler.tick().await.unwrap();
    assert_eq!((w.state(id).await, w.s.notifier.take()), (JobState::Ready, vec![id]));
    w.advance(10);
    w.scheduler.tick().await.unwrap();
    assert!(w.s.notifier.take().is_empty(), "it is notified again once the notifier is back");
    w.notifier.set(free_capacity(|_| 10));
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.s.notifier.take(), [id]);
}
