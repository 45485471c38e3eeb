//! A worker that is killed, at each point of a publish: nothing is lost, nothing is doubled.

use std::panic::AssertUnwindSafe;

use crier_common::domain::failure::Category;
use crier_common::domain::job::{Kind, Outcome, State};
use crier_common::domain::post::{PostStatus, TargetStatus};
use crier_common::store::posts;
use crier_worker::engine::Run;
use futures::FutureExt;

use crate::support::fake_platform::{Gate, Say};
use crate::support::jobs::{CALL_OVER, LEASE_OVER, TestWorker, worker_on_both};

worker_on_both!(
    between_commit_and_ring,
    before_the_call_is_marked,
    before_the_call_arrives,
    after_the_platform_took_it,
    before_the_end_is_stored,
    before_the_end_is_stored_where_the_platform_cannot_tell,
    in_the_call_where_the_platform_cannot_tell,
    before_the_call_is_marked_where_the_platform_cannot_tell,
    again_and_again_is_poison,
    poison_that_went_out_is_found_when_published_again,
    a_frozen_worker_writes_nothing,
    a_frozen_worker_calls_nobody_when_it_wakes,
    a_frozen_worker_does_not_send_again_what_it_found_missing,
    an_end_is_stored_once_the_database_is_back,
);

/// What is true of a post that went out once.
async fn is_out_once(w: &TestWorker, post: i64, target: i64) {
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Published, PostStatus::Published));
    let posted = w.fake.posts();
    assert_eq!((posted.len(), Some(&posted[0].id)), (1, ended.external_id.as_ref()));
    assert_eq!(w.events().await, ["post.published"]);
    assert_eq!(w.number("SELECT count(*) FROM jobs WHERE state NOT IN ('done', 'cancelled')").await, 0);
}

async fn is_unknown(w: &TestWorker, post: i64, target: i64, sent: usize) {
    let ended = w.target(target).await;
    assert_eq!((ended.status, w.post_status(post).await), (TargetStatus::Failed, PostStatus::Failed));
    assert_eq!(ended.error.unwrap().category, Category::OutcomeUnknown);
    assert_eq!((w.fake.count("publish"), w.events().await), (sent, vec!["post.failed".to_owned()]));
}

/// A worker that runs the post's job, and what holds it.
async fn publish_to(w: &TestWorker, say: impl FnOnce(std::sync::Arc<Gate>) -> Say) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.says([say(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let doomed = w.doomed().await;
    doomed.start(w.rung());
    gate.entered().await;
    doomed.kill().await;
    assert_eq!(w.job_of(target).await.state, State::Running);
    (post, target)
}

async fn between_commit_and_ring(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    w.s.bell.take();
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Pending, "it may yet be heard");
    w.advance(10);
    w.run_to_the_end().await;
    is_out_once(&w, post, target).await;
}

async fn before_the_call_is_marked(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.dies_at_the_marker();
    let (post, target) = w.publish_one().await;
    let claimed = w.claim(&[w.rung()], "doomed").await.remove(0);
    let (handler, run) = (w.handler(Kind::PublishTarget), Run::new(claimed));
    let died = AssertUnwindSafe(handler.run(&run)).catch_unwind().await;
    assert!(died.is_err() && w.job_of(target).await.state == State::Running);
    let found = w.target(target).await;
    assert_eq!((found.status, found.call_started_at, found.marker), (TargetStatus::Pending, None, None));
    w.advance(LEASE_OVER);
    w.run_to_the_end().await;
    assert_eq!(w.fake.count("reconcile"), 0, "no call was ever begun");
    is_out_once(&w, post, target).await;
}

async fn before_the_call_arrives(w: TestWorker) {
    let (post, target) = publish_to(&w, Say::Hang).await;
    w.run_jobs().await;
    assert_eq!(w.job_of(target).await.state, State::Running, "its lease still holds");
    w.run_to_the_end().await;
    assert_eq!((w.fake.count("publish"), w.job_of(target).await.crashes), (2, 1));
    is_out_once(&w, post, target).await;
}

async fn after_the_platform_took_it(w: TestWorker) {
    let (post, target) = publish_to(&w, Say::AcceptAndHang).await;
    w.run_to_the_end().await;
    assert_eq!(w.fake.count("publish"), 1);
    is_out_once(&w, post, target).await;
}

/// The platform has answered, and the worker dies before that is stored.
async fn answered_and_died(w: &TestWorker) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.says([Say::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let doomed = w.doomed().await;
    doomed.start(w.rung());
    gate.entered().await;
    // On SQLite nobody else writes now; on Postgres nobody writes of this post.
    let mut tx = w.begin().await.unwrap();
    posts::lock(&mut tx, post).await.unwrap();
    gate.let_through();
    w.fake.published(1).await;
    doomed.kill().await;
    tx.rollback().await.unwrap();
    assert_eq!((w.job_of(target).await.state, w.fake.posts().len()), (State::Running, 1));
    w.advance(LEASE_OVER);
    (post, target)
}

async fn before_the_end_is_stored(w: TestWorker) {
    let (post, target) = answered_and_died(&w).await;
    w.run_to_the_end().await;
    is_out_once(&w, post, target).await;
}

async fn before_the_end_is_stored_where_the_platform_cannot_tell(w: TestWorker) {
    w.fake.cannot_tell();
    let (post, target) = answered_and_died(&w).await;
    w.run_to_the_end().await;
    is_unknown(&w, post, target, 1).await;
}

async fn in_the_call_where_the_platform_cannot_tell(w: TestWorker) {
    w.fake.cannot_tell();
    let (post, target) = publish_to(&w, Say::Hang).await;
    w.run_to_the_end().await;
    is_unknown(&w, post, target, 1).await;
    // A person who looked and found nothing says so.
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn before_the_call_is_marked_where_the_platform_cannot_tell(w: TestWorker) {
    w.fake.cannot_tell();
    before_the_call_is_marked(w).await;
}

/// Kills a worker in the middle of a call, three times.
async fn poisoned(w: &TestWorker, accepted: bool) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_one().await;
    for crash in 1..=3 {
        // The crash may come before or after the post was taken; if it was, the platform hangs when it is asked.
        let gate = Gate::new();
        w.fake.says([if accepted { Say::AcceptAndHang(gate.clone()) } else { Say::Hang(gate.clone()) }]);
        if crash > 1 {
            w.fake.answers([Ok(crier_common::platforms::Reconciled::Absent)]);
        }
        let doomed = w.doomed().await;
        let id = w.job_of(target).await.id;
        w.s.bell.take();
        doomed.start(id);
        gate.entered().await;
        doomed.kill().await;
        assert_eq!(w.state(id).await, State::Running);
        w.advance(CALL_OVER + LEASE_OVER);
        w.scheduler.tick().await.unwrap();
        assert_eq!(w.show(id).await.crashes, crash);
    }
    (post, target)
}

async fn again_and_again_is_poison(w: TestWorker) {
    let (post, target) = poisoned(&w, false).await;
    let job = w.job_of(target).await;
    assert_eq!((job.state, job.last_error.as_deref(), job.attempt), (State::Dead, Some("poison"), 3));
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!(
        (ended.status, error.code.as_str(), error.category),
        (TargetStatus::Failed, "internal", Category::Internal)
    );
    assert_eq!((w.post_status(post).await, w.events().await), (PostStatus::Failed, vec!["post.failed".to_owned()]));
    w.run_to_the_end().await;
    assert_eq!(w.fake.count("publish"), 3, "it is left alone");
}

async fn poison_that_went_out_is_found_when_published_again(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = publish_to(&w, Say::AcceptAndHang).await;
    w.sql("UPDATE jobs SET crashes = 2 WHERE kind = 'publish_target'").await;
    w.advance(LEASE_OVER);
    w.scheduler.tick().await.unwrap();
    assert_eq!(w.target(target).await.error.unwrap().code, "internal");
    w.publish_again(post).await;
    w.run_to_the_end().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_frozen_worker_writes_nothing(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.says([Say::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let (frozen, id) = (w.engine.clone(), w.rung());
    let run = tokio::spawn(async move { frozen.run(id).await });
    gate.entered().await;
    // Its heartbeat stops; another takes the job, and finds that it must wait for the call to be over.
    w.advance(LEASE_OVER);
    w.run_jobs().await;
    assert_eq!(w.job_of(target).await.state, State::Scheduled);
    let before = w.job_of(target).await;
    gate.let_through();
    run.await.unwrap();
    let after = w.job_of(target).await;
    assert_eq!((after.state, after.run_at, after.attempt), (before.state, before.run_at, before.attempt));
    assert_eq!((w.target(target).await.status, w.events().await.len()), (TargetStatus::Publishing, 0));
    w.run_to_the_end().await;
    assert_eq!(w.fake.count("publish"), 1);
    is_out_once(&w, post, target).await;
}

async fn a_frozen_worker_calls_nobody_when_it_wakes(w: TestWorker) {
    // It claimed, and was frozen before it prepared; another has done the job meanwhile.
    let (post, target) = w.publish_one().await;
    let frozen = w.claim(&[w.rung()], "frozen").await.remove(0);
    w.advance(LEASE_OVER);
    w.run_to_the_end().await;
    let handler = w.handler(Kind::PublishTarget);
    let ending = handler.run(&Run::new(frozen.clone())).await.unwrap();
    let outcome = w.discard(async |tx| ending.write(tx, &frozen).await).await;
    assert!(matches!(outcome, Outcome::Cancelled(_)) && !w.settle(&frozen, outcome).await);
    assert_eq!((w.fake.count("publish"), w.target(target).await.attempts), (1, 1));
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_frozen_worker_does_not_send_again_what_it_found_missing(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = publish_to(&w, Say::Hang).await;
    w.advance(CALL_OVER);
    w.scheduler.tick().await.unwrap();
    // It asks, is told "not there", and is frozen before it sends again; another asks as well, and sends.
    let gate = Gate::new();
    w.fake.hold_answer(gate.clone());
    let (frozen, id) = (w.engine.clone(), w.job_of(target).await.id);
    w.s.bell.take();
    let run = tokio::spawn(async move { frozen.run(id).await });
    gate.entered().await;
    w.advance(LEASE_OVER);
    let other = w.engine_for(w.another().await, Kind::ALL);
    w.scheduler.tick().await.unwrap();
    assert!(other.run(id).await);
    gate.let_through();
    run.await.unwrap();
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (2, 1), "the frozen one sends nothing");
    w.advance(1);
    is_out_once_but_for_deliveries(&w, post, target).await;
}

async fn is_out_once_but_for_deliveries(w: &TestWorker, post: i64, target: i64) {
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.post_status(post).await, w.events().await.len()), (PostStatus::Published, 1));
}

async fn an_end_is_stored_once_the_database_is_back(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.cannot_tell();
    let gate = Gate::new();
    w.fake.says([Say::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let (engine, id) = (w.engine.clone(), w.rung());
    let run = tokio::spawn(async move { engine.run(id).await });
    gate.entered().await;
    let mut tx = w.another().await.begin().await.unwrap();
    posts::lock(&mut tx, post).await.unwrap();
    gate.let_through();
    w.fake.published(1).await;
    assert_eq!(w.events().await.len(), 0);
    tx.rollback().await.unwrap();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.fake.posts().len(), w.events().await.len(), w.attempts(post).await.len()), (1, 1, 1));
}
