//! A worker or a scheduler that is killed at each point of its work. Invariant: accepted posts are not lost. The
//! platform has a post once, or is searched for it before it is sent again, or the user learns that it may exist.

use std::panic::AssertUnwindSafe;

use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_store::jobs::dispatch;
use crier_store::posts;
use crier_worker::engine::Run;
use futures::FutureExt;

use crate::support::fake_platform::{Gate, PublishStep};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    a_crash_between_commit_and_notify_is_recovered,
    a_crash_before_the_marker_publishes_once,
    a_crash_before_the_call_arrives_publishes_once,
    a_crash_after_acceptance_publishes_once,
    a_crash_before_the_result_is_stored_publishes_once,
    a_crash_before_storing_ends_unknown_without_reconcile,
    a_crash_in_the_call_ends_unknown_without_reconcile,
    a_crash_before_the_marker_needs_no_reconcile,
    a_scheduler_crash_while_notifying_is_recovered,
    a_scheduler_crash_during_a_rescue_is_recovered,
);

/// Asserts that a post was published once.
pub(super) async fn assert_published_once(w: &TestWorker, post: i64, target: i64) {
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Published, PostStatus::Published));
    let posted = w.fake.posts();
    assert_eq!((posted.len(), Some(&posted[0].id)), (1, ended.external_id.as_ref()));
    assert_eq!(w.events().await, ["post.published"]);
    assert_eq!(w.count_rows("jobs WHERE state NOT IN ('done', 'cancelled')").await, 0);
}

async fn assert_outcome_unknown(w: &TestWorker, post: i64, target: i64, sent: usize) {
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Failed, PostStatus::Failed));
    assert_eq!(ended.error.unwrap().category, Category::OutcomeUnknown);
    assert_eq!((w.fake.count("publish"), w.events().await), (sent, vec!["post.failed".to_owned()]));
}

/// Publishes a post with a worker that is killed at the gate; returns the post and its target.
pub(super) async fn publish_to(w: &TestWorker, step: impl FnOnce(std::sync::Arc<Gate>) -> PublishStep) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([step(gate.clone())]);
    let (post, target) = w.publish_one().await;
    w.kill_at(&gate, w.notified_job()).await;
    assert_eq!(w.job_of(target).await.state, JobState::Running);
    (post, target)
}

async fn a_crash_between_commit_and_notify_is_recovered(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    w.s.notifier.take();
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Pending, "the notification may still arrive");
    w.advance(10);
    w.run_until_idle().await;
    assert_published_once(&w, post, target).await;
}

async fn a_crash_before_the_marker_publishes_once(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.panic_at_marker();
    let (post, target) = w.publish_one().await;
    let claimed = w.claim(&[w.notified_job()], "doomed").await.remove(0);
    let (handler, run) = (w.handler(JobKind::PublishTarget), Run::new(claimed));
    let died = AssertUnwindSafe(handler.run(&run)).catch_unwind().await;
    assert!(died.is_err() && w.job_of(target).await.state == JobState::Running);
    let found = w.target(target).await;
    assert_eq!((found.status, found.call_started_at, found.marker), (TargetStatus::Pending, None, None));
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_until_idle().await;
    assert_eq!(w.fake.count("reconcile"), 0, "no call was ever begun");
    assert_published_once(&w, post, target).await;
}

async fn a_crash_before_the_call_arrives_publishes_once(w: TestWorker) {
    let (post, target) = publish_to(&w, PublishStep::Hang).await;
    w.run_jobs().await;
    assert_eq!(w.job_of(target).await.state, JobState::Running, "its lease still holds");
    w.run_until_idle().await;
    assert_eq!((w.fake.count("publish"), w.job_of(target).await.crashes), (2, 1));
    assert_published_once(&w, post, target).await;
}

async fn a_crash_after_acceptance_publishes_once(w: TestWorker) {
    let (post, target) = publish_to(&w, PublishStep::AcceptAndHang).await;
    w.run_until_idle().await;
    assert_eq!(w.fake.count("publish"), 1);
    assert_published_once(&w, post, target).await;
}

/// Kills a worker after the platform has responded and before the result is stored; returns the post and its target.
async fn kill_before_result_is_stored(w: &TestWorker) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    gate.wait_until_entered().await;
    // Blocks the write: on SQLite all writes, on Postgres those of this post.
    let mut tx = w.begin().await.unwrap();
    posts::lock(&mut tx, post).await.unwrap();
    gate.let_through();
    w.fake.wait_until_published(1).await;
    doomed.kill().await;
    tx.rollback().await.unwrap();
    assert_eq!((w.job_of(target).await.state, w.fake.posts().len()), (JobState::Running, 1));
    w.advance(LEASE_EXPIRY_SECONDS);
    (post, target)
}

async fn a_crash_before_the_result_is_stored_publishes_once(w: TestWorker) {
    let (post, target) = kill_before_result_is_stored(&w).await;
    w.run_until_idle().await;
    assert_published_once(&w, post, target).await;
}

async fn a_crash_before_storing_ends_unknown_without_reconcile(w: TestWorker) {
    w.fake.disable_reconcile();
    let (post, target) = kill_before_result_is_stored(&w).await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target, 1).await;
}

async fn a_crash_in_the_call_ends_unknown_without_reconcile(w: TestWorker) {
    w.fake.disable_reconcile();
    let (post, target) = publish_to(&w, PublishStep::Hang).await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target, 1).await;
    // A user who does not find the post on the platform publishes it again.
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_crash_before_the_marker_needs_no_reconcile(w: TestWorker) {
    w.fake.disable_reconcile();
    a_crash_before_the_marker_publishes_once(w).await;
}

/// Invariant: jobs that a scheduler promoted without committing before it died are notified by another one, once.
async fn a_scheduler_crash_while_notifying_is_recovered(w: TestWorker) {
    let mut ids = Vec::new();
    for subject in 0..20 {
        ids.push(w.job_at(JobKind::Noop, subject, None, w.later(10)).await);
    }
    w.advance(10);
    let doomed = w.killable_worker().await;
    let store = doomed.store.clone();
    let (sender, promoted) = tokio::sync::oneshot::channel();
    doomed.spawn(async move {
        let mut tx = store.begin().await.unwrap();
        sender.send(dispatch::promote_due(&mut tx, JobKind::Noop, 1_000).await.unwrap()).unwrap();
        std::future::pending::<()>().await;
        drop(tx);
    });
    assert_eq!(promoted.await.unwrap(), 20, "it holds all of them");
    doomed.kill().await;
    // The database detects the broken connection only after a while.
    let mut notified = Vec::new();
    while notified.len() < 20 {
        w.scheduler.tick().await.unwrap();
        notified.extend(w.s.notifier.take());
    }
    notified.sort_unstable();
    assert_eq!(notified, ids, "each once");
    assert_eq!(w.count_rows("jobs WHERE state = 'ready' AND attempt = 0").await, 20);
}

/// Invariant: a crash is counted once, and the subject of a dead job is notified once, even if the first scheduler that
/// rescues the job dies.
async fn a_scheduler_crash_during_a_rescue_is_recovered(w: TestWorker) {
    w.leaves_jobs();
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, poisoned) = w.publish_one().await;
    let (_, fine) = w.publish_one().await;
    let ids = w.s.notifier.take();
    w.claim(&ids, "gone").await;
    w.set_crashes(ids[0], 2).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    // The rescue reaches the subject's row (on SQLite the write lock) and waits there.
    let mut tx = w.begin().await.unwrap();
    posts::lock(&mut tx, post).await.unwrap();
    let doomed = w.killable_worker().await;
    let (store, last_outage) = (doomed.store.clone(), Default::default());
    let scheduler = crier_scheduler::Scheduler { store, last_outage, ..w.scheduler.clone() };
    doomed.spawn(async move {
        let _ = scheduler.tick().await;
    });
    if w.is_postgres() {
        w.until_blocked(1).await;
    }
    doomed.kill().await;
    tx.rollback().await.unwrap();
    let has_running_jobs = async || w.count_rows("jobs WHERE state = 'running'").await > 0;
    while has_running_jobs().await {
        w.scheduler.tick().await.unwrap();
    }
    assert_eq!((w.state(ids[0]).await, w.show(ids[0]).await.crashes), (JobState::Dead, 3));
    assert_eq!((w.state(ids[1]).await, w.show(ids[1]).await.crashes), (JobState::Ready, 1));
    assert_eq!(w.target(poisoned).await.error.unwrap().code, "internal");
    assert_eq!(w.events().await, ["post.failed"], "one event");
    w.run_until_idle().await;
    assert_eq!((w.target(fine).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}
