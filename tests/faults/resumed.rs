//! A worker that is frozen past its lease and continues: before it prepares, in the call, or before it stores the
//! result. Invariant: what it does afterwards changes nothing, in Crier or on the platform. A worker that is only slow
//! is not treated as frozen.

use std::time::Duration;

use crier_domain::job::{JobKind, JobState, Outcome};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_store::jobs::engine as rows;
use crier_store::posts;
use crier_worker::heartbeat;
use crier_worker::jobs::RunError;

use super::crash::{assert_published_once, publish_to};
use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker, worker_on_both};
use crate::support::scripted::{JobBehavior, enqueue_noop, scripted_engine, start};
use crate::support::store::TestStore;

worker_on_both!(
    a_frozen_worker_writes_nothing,
    a_resumed_worker_makes_no_calls,
    a_resumed_worker_does_not_resend_an_absent_post,
    a_resumed_worker_stores_no_second_result,
    a_resumed_run_does_not_release_its_successor,
    a_drain_longer_than_the_lease_loses_nothing,
);

/// Invariant: a process that is frozen in a transaction does not keep its row locks. On SQLite there is one process.
#[tokio::test]
async fn a_frozen_transaction_releases_its_row_locks() {
    let w = TestWorker::over(TestStore::postgres().await).await;
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    let mut asleep = w.open_second_store().await.begin().await.unwrap();
    posts::lock(&mut asleep, post).await.unwrap();
    let timeout = Duration::from_secs(60);
    tokio::time::timeout(timeout, w.run_jobs()).await.expect("the row is free long before it wakes");
    w.run_until_idle().await;
    assert_published_once(&w, post, target).await;
    let error = asleep.commit().await.expect_err("its transaction is over");
    assert!(error.is_unavailable(), "{error}");
}

async fn a_frozen_worker_writes_nothing(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let run = w.start_until(&gate, w.notified_job()).await;
    // The heartbeat stops. Another worker takes the job, and must wait until the call is over.
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_eq!(w.job_of(target).await.state, JobState::Scheduled);
    let before = w.job_of(target).await;
    gate.let_through();
    run.await.unwrap();
    let after = w.job_of(target).await;
    assert_eq!((after.state, after.run_at, after.attempt), (before.state, before.run_at, before.attempt));
    assert_eq!((w.target(target).await.status, w.events().await.len()), (TargetStatus::Publishing, 0));
    w.run_until_idle().await;
    assert_eq!(w.fake.count("publish"), 1);
    assert_published_once(&w, post, target).await;
}

async fn a_resumed_worker_makes_no_calls(w: TestWorker) {
    // The worker claimed the job and was frozen before it prepared; meanwhile another worker has run the job.
    let (post, target) = w.publish_one().await;
    let frozen = w.claim(&[w.notified_job()], "frozen").await.remove(0);
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_until_idle().await;
    let result = w.run_claimed(&frozen).await;
    assert!(matches!(result, Err(RunError::Ended(Outcome::Cancelled(_)))) && !w.settle_result(&frozen, &result).await);
    assert_eq!((w.fake.count("publish"), w.target(target).await.attempts), (1, 1));
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_resumed_worker_does_not_resend_an_absent_post(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = publish_to(&w, PublishStep::Hang).await;
    w.advance(MAX_CALL_SECONDS);
    w.scheduler.tick().await.unwrap();
    // The worker looks up the post, gets "not found", and is frozen before it sends the post again. Another worker looks
    // it up as well, and sends it.
    let gate = Gate::new();
    w.fake.hold_reconcile(gate.clone());
    let (frozen, id) = (w.engine.clone(), w.job_of(target).await.id);
    w.s.notifier.take();
    let run = tokio::spawn(async move { frozen.run(id).await });
    gate.wait_until_entered().await;
    w.advance(LEASE_EXPIRY_SECONDS);
    let other = w.engine_for(w.open_second_store().await, JobKind::ALL);
    w.scheduler.tick().await.unwrap();
    assert!(other.run(id).await);
    gate.let_through();
    run.await.unwrap();
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (2, 1), "the frozen one sends nothing");
    w.advance(1);
    assert_published_once_except_deliveries(&w, post, target).await;
}

async fn assert_published_once_except_deliveries(w: &TestWorker, post: i64, target: i64) {
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.post_status(post).await, w.events().await.len()), (PostStatus::Published, 1));
}

/// Invariant: of two results of one job, the later one changes no row.
async fn a_resumed_worker_stores_no_second_result(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    let frozen = w.claim(&[w.notified_job()], "frozen").await.remove(0);
    // The worker called the platform, which accepted the post. It is frozen before it stores the result.
    let result = w.run_claimed(&frozen).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_until_idle().await;
    assert_published_once(&w, post, target).await;
    let row_counts = async || {
        let of = async |table: &str| w.count_rows(table).await;
        (of("target_attempts").await, of("events").await, of("jobs").await, w.job_of(target).await.finished_at)
    };
    let before = row_counts().await;
    assert!(!w.settle_result(&frozen, &result).await, "its fence is an old one");
    assert_eq!(row_counts().await, before);
    assert_published_once(&w, post, target).await;
}

async fn a_resumed_run_does_not_release_its_successor(w: TestWorker) {
    let (frozen, second) = (Gate::new(), Gate::new());
    let engine = scripted_engine(&w, [(1, JobBehavior::WaitTwice(frozen.clone(), second.clone()))]);
    let id = enqueue_noop(&w, 1).await;
    let run = start(&engine, id);
    frozen.wait_until_entered().await;
    w.advance(LEASE_EXPIRY_SECONDS + MAX_CALL_SECONDS);
    w.scheduler.tick().await.unwrap();
    let again = start(&engine, id);
    second.wait_until_entered().await;
    frozen.let_through();
    run.await.unwrap();
    assert_eq!(engine.held(), [id], "the run that was rescued goes on");
    let renewed = w.write(async |tx| rows::heartbeat(tx, &engine.held(), engine.worker()).await).await;
    assert_eq!((renewed, w.state(id).await), (1, JobState::Running));
    second.let_through();
    again.await.unwrap();
    assert_eq!((w.state(id).await, w.show(id).await.crashes), (JobState::Done, 1));
}

/// Invariant: a draining worker keeps its jobs, however long they take: they run once and count no crash.
async fn a_drain_longer_than_the_lease_loses_nothing(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (_, target) = w.publish_one().await;
    let id = w.notified_job();
    let run = start(&w.engine, id);
    gate.wait_until_entered().await;
    w.engine.drain();
    let other = w.engine_for(w.open_second_store().await, JobKind::ALL);
    for _ in 0..12 {
        w.advance(20);
        assert_eq!(heartbeat::renew_leases(&w.engine, &w.store).await.unwrap(), 1);
        w.scheduler.tick().await.unwrap();
        assert!(w.s.notifier.take().is_empty() && !other.run(id).await, "no other worker can take it");
    }
    gate.let_through();
    w.engine.idle().await;
    run.await.unwrap();
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0));
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}
