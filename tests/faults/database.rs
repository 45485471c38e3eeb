//! A database that fails for a while: it is locked, its connections break, or its disk is full. Invariant: nothing is
//! written partially, no wrong result is reported, and after recovery everything continues without being done twice.

use std::cell::Cell;

use crier_domain::failure::{Category, Failure};
use crier_domain::job::{JobKind, JobState, NewJob};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_domain::untrusted::MAX_MESSAGE;
use crier_platforms::CallError;
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::rescue;
use crier_store::{Result, Store, StoreError, Tx, jobs, posts, users};
use crier_worker::heartbeat;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::app::TestApp;
use crate::support::client::until_soon;
use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};
use crate::support::scripted::{JobBehavior, enqueue_noop, scripted_engine, start};
use crate::support::store::{TestStore, cipher, lock_table};

worker_on_both!(
    a_result_is_stored_after_database_recovery,
    a_failed_claim_is_retried,
    a_failed_settle_is_retried,
    a_failed_heartbeat_is_retried,
    live_workers_keep_their_jobs_after_an_outage,
);

/// Locks what every write needs, as another process would: on SQLite the file, on Postgres the table. On SQLite,
/// waiting for it times out quickly.
async fn lock_database(w: &TestWorker) -> Tx {
    if !w.is_postgres() {
        w.sql("PRAGMA busy_timeout = 10").await;
    }
    let mut tx = w.open_second_store().await.begin().await.unwrap();
    match w.is_postgres() {
        true => lock_table(&mut tx, "jobs").await,
        // The first statement locks the file.
        false => posts::lock(&mut tx, 0).await.map(drop).unwrap(),
    }
    tx
}

/// On Postgres, terminates `count` connections that wait for a lock. On SQLite, their statements time out.
async fn terminate_waiting(w: &TestWorker, count: i64) {
    const TERMINATE: &str = "
        SELECT count(*)
        FROM (
            SELECT pg_terminate_backend(pid)
            FROM pg_stat_activity
            WHERE datname = current_database() AND wait_event_type = 'Lock'
        ) cut";
    let ended = Cell::new(0);
    if w.is_postgres() {
        until_soon("statements wait for the lock", || async {
            ended.set(ended.get() + w.number(TERMINATE).await);
            (ended.get() >= count).then_some(())
        })
        .await;
    }
}

async fn a_result_is_stored_after_database_recovery(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.disable_reconcile();
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let run = w.start_until(&gate, w.notified_job()).await;
    let mut tx = w.open_second_store().await.begin().await.unwrap();
    posts::lock(&mut tx, post).await.unwrap();
    gate.let_through();
    w.fake.wait_until_published(1).await;
    assert_eq!(w.events().await.len(), 0);
    tx.rollback().await.unwrap();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.fake.posts().len(), w.events().await.len(), w.attempts(post).await.len()), (1, 1, 1));
}

/// Invariant: a failed claim does not count as an attempt, and the id is notified again.
async fn a_failed_claim_is_retried(w: TestWorker) {
    let engine = scripted_engine(&w, []);
    let ids = [enqueue_noop(&w, 1).await, enqueue_noop(&w, 2).await];
    let tx = lock_database(&w).await;
    let runs = ids.map(|id| start(&engine, id));
    terminate_waiting(&w, 1).await;
    for run in runs {
        assert!(!run.await.unwrap());
    }
    tx.rollback().await.unwrap();
    for id in ids {
        let job = w.show(id).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Ready, 0, 0));
    }
    w.advance(10);
    w.scheduler.tick().await.unwrap();
    let notified = w.s.notifier.take();
    assert_eq!(notified.len(), 2);
    for id in notified {
        assert!(engine.run(id).await);
        assert_eq!((w.state(id).await, w.show(id).await.attempt), (JobState::Done, 1));
    }
}

/// Starts jobs that wait at a gate in the middle of their runs.
async fn start_three_jobs(
    w: &TestWorker,
) -> (crier_worker::engine::Engine, Vec<i64>, Vec<JoinHandle<bool>>, std::sync::Arc<Gate>) {
    let gate = Gate::new();
    let engine = scripted_engine(w, (1..4).map(|subject| (subject, JobBehavior::Wait(gate.clone()))));
    let (mut ids, mut runs) = (Vec::new(), Vec::new());
    for subject in 1..4 {
        ids.push(enqueue_noop(w, subject).await);
        runs.push(start(&engine, ids[ids.len() - 1]));
        gate.wait_until_entered().await;
    }
    (engine, ids, runs, gate)
}

async fn assert_ended_once(w: &TestWorker, ids: &[i64], runs: Vec<JoinHandle<bool>>) {
    for run in runs {
        assert!(run.await.unwrap());
    }
    for id in ids {
        let job = w.show(*id).await;
        assert_eq!((job.state, job.attempt, job.crashes), (JobState::Done, 1, 0));
    }
}

async fn a_failed_settle_is_retried(w: TestWorker) {
    let (engine, ids, runs, gate) = start_three_jobs(&w).await;
    let tx = lock_database(&w).await;
    (0..3).for_each(|_| gate.let_through());
    // Settles all three together, then each alone, and then retries.
    terminate_waiting(&w, 5).await;
    assert_eq!(engine.held().len(), 3, "they are still held");
    tx.rollback().await.unwrap();
    assert_ended_once(&w, &ids, runs).await;
    assert!(engine.held().is_empty());
}

/// Invariant: a failed heartbeat loses nothing as long as one succeeds before the lease expires.
async fn a_failed_heartbeat_is_retried(w: TestWorker) {
    let (engine, ids, runs, gate) = start_three_jobs(&w).await;
    w.advance(20);
    let tx = lock_database(&w).await;
    for _ in 0..2 {
        let (beaten, ()) = tokio::join!(heartbeat::renew_leases(&engine, &w.store), terminate_waiting(&w, 1));
        assert!(beaten.unwrap_err().is_transient());
    }
    tx.rollback().await.unwrap();
    assert_eq!(renew_leases_after_recovery(&w, &engine).await, 3);
    w.advance(20);
    w.scheduler.tick().await.unwrap();
    (0..3).for_each(|_| gate.let_through());
    assert_ended_once(&w, &ids, runs).await;
}

/// Invariant: after an outage that is longer than a lease, workers can renew their leases before jobs are rescued. Jobs
/// of dead workers are rescued a little later.
async fn live_workers_keep_their_jobs_after_an_outage(w: TestWorker) {
    let dead = enqueue_noop(&w, 9).await;
    w.claim(&[dead], "gone").await;
    let (engine, ids, runs, gate) = start_three_jobs(&w).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    // Another database, which cannot be written.
    let broken = TestStore::sqlite().await;
    broken.sql("PRAGMA query_only = 1").await;
    let store = Store::new(broken.db().clone(), w.clock.clone(), cipher(), w.s.notifier.clone());
    let cut_off = Scheduler { store, ..w.scheduler.clone() };
    assert!(rescue::run(&cut_off).await.unwrap_err().is_unavailable());
    rescue::run(&w.scheduler).await.unwrap();
    for id in ids.iter().chain([&dead]) {
        assert_eq!((w.state(*id).await, w.show(*id).await.crashes), (JobState::Running, 0));
    }
    assert_eq!(heartbeat::renew_leases(&engine, &w.store).await.unwrap(), 3);
    w.advance(11);
    rescue::run(&w.scheduler).await.unwrap();
    assert_eq!((w.state(dead).await, w.show(dead).await.crashes), (JobState::Ready, 1));
    assert!(engine.run(dead).await);
    (0..3).for_each(|_| gate.let_through());
    assert_ended_once(&w, &ids, runs).await;
}

/// Sends heartbeats until one succeeds: other connections of the pool may be broken, too.
async fn renew_leases_after_recovery(w: &TestWorker, engine: &crier_worker::engine::Engine) -> u64 {
    for _ in 0..12 {
        match heartbeat::renew_leases(engine, &w.store).await {
            Ok(renewed) => return renewed,
            Err(error) => assert!(error.is_transient(), "{error}"),
        }
    }
    panic!("the database does not recover")
}

/// Keeps the database from growing, on the connection that writes. A connection that replaces it has no such limit.
async fn fill_disk(s: &TestStore) {
    s.sql("PRAGMA max_page_count = 1").await;
}

async fn free_disk(s: &TestStore) {
    s.sql("PRAGMA max_page_count = 1000000").await;
}

const LARGE_TEXT_LENGTH: usize = 100_000;
const ENDPOINTS: usize = 100;

/// Writes much data in the middle of a transaction that otherwise needs little space.
async fn large_write(s: &TestStore, workspace: i64) -> Result<()> {
    let mut tx = s.begin().await?;
    let job = NewJob::new(JobKind::Noop, 77, tx.now);
    jobs::enqueue(&mut tx, &job).await?;
    users::create(&mut tx, workspace, &"x".repeat(LARGE_TEXT_LENGTH), "Ann").await?;
    tx.commit().await
}

/// Invariant: if the disk is full, a write fails completely, with a retryable error; reads continue.
#[tokio::test]
async fn a_full_disk_rolls_back_whole_transactions() {
    let s = TestStore::sqlite().await;
    let workspace = s.workspace().await;
    fill_disk(&s).await;
    for _ in 0..3 {
        let error: StoreError = large_write(&s, workspace).await.unwrap_err();
        assert!(error.is_unavailable() && error.is_transient(), "{error:?}");
        assert_eq!((s.count_rows("jobs").await, s.count_rows("users").await), (0, 0));
        assert_eq!(s.notifier.take(), Vec::<i64>::new(), "no job is notified");
        s.db().ping().await.unwrap();
    }
    free_disk(&s).await;
    large_write(&s, workspace).await.unwrap();
    assert_eq!(s.count_rows("jobs").await, 1);
}

/// Invariant: the worker keeps a result that does not fit on the disk, and stores it once when there is space.
#[tokio::test]
async fn a_result_is_stored_once_the_disk_has_space() {
    let w = TestWorker::over(TestStore::sqlite().await).await;
    // With so many endpoints, the result does not fit into the free space of the last pages.
    for _ in 0..ENDPOINTS {
        w.listen_at("http://127.0.0.1:1/").await;
    }
    let gate = Gate::new();
    let rejection = CallError::Permanent(Failure::of(Category::PlatformRejected, "x".repeat(LARGE_TEXT_LENGTH)));
    w.fake.script_publishes([PublishStep::WaitAndReject(gate.clone(), rejection)]);
    let (post, target) = w.publish_one().await;
    let run = start(&w.engine, w.notified_job());
    gate.wait_until_entered().await;
    fill_disk(&w).await;
    gate.let_through();
    // The runtime has one thread, so the write has reached the database before this test continues.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    free_disk(&w).await;
    assert!(run.await.unwrap());
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().message.len()), (TargetStatus::Failed, MAX_MESSAGE));
    assert_eq!((w.post_status(post).await, w.events().await), (PostStatus::Failed, vec!["post.failed".to_owned()]));
    assert_eq!(w.count_rows("webhook_deliveries").await, i64::try_from(ENDPOINTS).unwrap());
    assert_eq!((w.attempts(post).await.len(), w.fake.count("publish")), (1, 1));
}

/// Invariant: the response says that nothing was done, without the cause; the same request succeeds later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_on_a_full_disk_is_rejected_completely() {
    let app = TestApp::start(TestStore::sqlite().await).await;
    let t = app.tenant("pro").await;
    let account = t.account("demo").await;
    let before = t.get(&t.path("/posts")).await.expect(200);
    fill_disk(&app).await;
    let body = json!({ "content": "y".repeat(20_000), "schedule_type": "draft", "accounts": [account] });
    let key = app.fresh_key();
    let path = t.path("/posts");
    let send = async || t.request("POST", &path).idempotency_key(&key).json(&body).send().await;
    send().await.expect_error(503, "service_unavailable");
    assert_eq!(t.get(&path).await.expect(200)["data"], before["data"]);
    free_disk(&app).await;
    let created = send().await.expect(201);
    assert_eq!(send().await.expect(201), created);
    assert_eq!(app.count_rows("posts").await, 1);
}
