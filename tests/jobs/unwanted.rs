//! `publish_target` for a post that must not be published: no call is made, and the outcome of an earlier call is
//! reconciled.

use chrono::TimeDelta;
use crier_domain::account::AccountError;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState, NewJob};
use crier_domain::post::{PostStatus, TargetStatus};
use crier_jobs::publishing;
use crier_store::{accounts, jobs, posts, targets};

use crate::support::fake_platform::{Gate, PublishStep, transient, unknown};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, MAX_CALL_SECONDS, TestWorker, worker_on_both};
use crate::support::store::{TestStore, on_both};

worker_on_both!(
    an_expired_account_is_not_called,
    a_detached_account_is_not_called,
    a_post_over_the_lateness_limit_is_missed,
    a_slightly_late_post_is_published,
    a_post_moved_back_to_draft_is_not_published,
    a_post_deleted_before_the_run_is_not_published,
    a_rescheduled_post_waits_for_its_new_time,
    a_post_rescheduled_while_its_job_ends_is_not_lost,
    a_post_deleted_in_flight_is_finished_and_reported,
    a_post_deleted_after_a_crash_is_reported_as_published,
    a_post_deleted_after_a_crash_before_the_call_is_not_published,
    a_post_deleted_during_an_open_call_is_reconciled,
    a_post_deleted_during_an_open_call_is_not_resent,
    a_deleted_post_without_reconcile_is_reported_as_unknown,
    a_post_deleted_in_flight_is_not_retried,
    a_published_post_is_not_missed,
    a_post_too_late_to_be_resent_is_missed,
    a_lost_account_after_a_crash_leaves_the_outcome_unknown,
    a_deleted_target_cancels_its_job,
);

on_both!(an_unconfigured_platform_is_not_called,);

async fn assert_fails_without_a_call(w: &TestWorker, target: i64, category: Category, code: &str) {
    w.listen_at("http://127.0.0.1:1/").await;
    let id = w.notified_job_of_target(target).await;
    w.engine.run(id).await;
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!((ended.status, error.category, error.code.as_str()), (TargetStatus::Failed, category, code));
    assert_eq!((ended.next_attempt_at, ended.call_started_at, w.state(id).await), (None, None, JobState::Done));
    assert!(w.fake.calls().is_empty(), "the platform is not called");
    assert_eq!(w.post_status(ended.post_id).await, PostStatus::Failed);
    assert_eq!(w.events().await, ["post.failed"]);
    assert_eq!(w.attempts(ended.post_id).await.len(), 1);
}

async fn an_expired_account_is_not_called(w: TestWorker) {
    let error = AccountError { code: "account_expired".into(), message: "rejected".into() };
    w.write(async |tx| accounts::expire(tx, w.account.id, 1, &error).await).await;
    let (_, target) = w.publish_one().await;
    assert_fails_without_a_call(&w, target, Category::AuthExpired, "account_expired").await;
}

async fn a_detached_account_is_not_called(w: TestWorker) {
    let (_, target) = w.publish_one().await;
    w.write(async |tx| accounts::disconnect(tx, w.world.brand, w.account.id).await).await;
    assert_fails_without_a_call(&w, target, Category::Account, "account_disconnected").await;
}

async fn an_unconfigured_platform_is_not_called(s: TestStore) {
    let w = TestWorker::without_sandbox(s).await;
    let (_, target) = w.publish_one().await;
    assert_fails_without_a_call(&w, target, Category::Account, "platform_not_configured").await;
}

async fn a_post_over_the_lateness_limit_is_missed(w: TestWorker) {
    let (_, target) = w.schedule(w.later(60)).await;
    w.clock.advance(TimeDelta::seconds(60) + TimeDelta::hours(24) + TimeDelta::microseconds(1));
    w.scheduler.tick().await.unwrap();
    assert_fails_without_a_call(&w, target, Category::Missed, "missed").await;
}

async fn a_slightly_late_post_is_published(w: TestWorker) {
    let (post, target) = w.schedule(w.later(60)).await;
    w.clock.advance(TimeDelta::seconds(60) + TimeDelta::hours(24));
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_post_moved_back_to_draft_is_not_published(w: TestWorker) {
    let (post, target) = w.schedule(w.clock.now()).await;
    let id = w.notified_job();
    // A worker already has the id, so the job cannot be cancelled.
    w.change_post(post, |p| p.status = PostStatus::Draft).await;
    w.engine.run(id).await;
    assert_eq!((w.state(id).await, w.target(target).await.status), (JobState::Cancelled, TargetStatus::Pending));
    assert_eq!((w.target(target).await.attempts, w.post_status(post).await), (0, PostStatus::Draft));
    assert!(w.fake.calls().is_empty());
}

async fn a_post_deleted_before_the_run_is_not_published(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, _) = w.publish_one().await;
    let id = w.notified_job();
    w.write(async |tx| posts::delete(tx, post).await).await;
    w.engine.run(id).await;
    assert_eq!(w.state(id).await, JobState::Cancelled);
    assert!(w.fake.calls().is_empty() && w.events().await.is_empty());
}

async fn a_rescheduled_post_waits_for_its_new_time(w: TestWorker) {
    let (post, target) = w.schedule(w.clock.now()).await;
    let (id, later) = (w.notified_job(), w.later(500));
    w.change_post(post, |p| p.scheduled_at = Some(later)).await;
    w.engine.run(id).await;
    let job = w.show(id).await;
    assert_eq!((job.state, job.run_at), (JobState::Scheduled, later));
    assert_eq!((w.post_status(post).await, w.fake.calls().len()), (PostStatus::Scheduled, 0));
    w.advance(500);
    w.run_jobs().await;
    assert_eq!(w.target(target).await.published_at, Some(later));
}

async fn a_post_rescheduled_while_its_job_ends_is_not_lost(w: TestWorker) {
    let (post, target) = w.schedule(w.clock.now()).await;
    let id = w.notified_job();
    w.change_post(post, |p| p.status = PostStatus::Draft).await;
    // The run has seen a draft. Before its result is stored, the post is scheduled again, and the existing job prevents
    // a new one from being enqueued.
    let claimed = w.claim(&[id], "w").await.remove(0);
    let result = w.run_claimed(&claimed).await;
    let later = w.later(500);
    w.change_post(post, |p| (p.status, p.scheduled_at) = (PostStatus::Scheduled, Some(later))).await;
    let job = NewJob::new(JobKind::PublishTarget, target, later);
    assert_eq!(w.write(async |tx| jobs::enqueue(tx, &job).await).await, None);
    assert!(w.settle_result(&claimed, &result).await);
    w.run_until_idle().await;
    assert_eq!(w.target(target).await.published_at.map(|at| at.timestamp()), Some(later.timestamp()));
}

async fn a_post_deleted_in_flight_is_finished_and_reported(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (post, target) = w.publish_one().await;
    let run = w.start_until(&gate, w.notified_job()).await;
    w.write(async |tx| {
        posts::delete(tx, post).await?;
        assert!(jobs::cancel_subject(tx, JobKind::PublishTarget, target).await?, "it is in flight");
        Ok(())
    })
    .await;
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 0, "the row is kept until the job ends");
    gate.let_through();
    run.await.unwrap();
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!(w.events().await, ["post.published"]);
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 1);
}

/// Kills a worker during the call, before or after the platform accepted the post, and lets the lease expire.
async fn kill_during_the_call(w: &TestWorker, accepted: bool) -> (i64, i64) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([if accepted {
        PublishStep::AcceptAndHang(gate.clone())
    } else {
        PublishStep::Hang(gate.clone())
    }]);
    let (post, target) = w.publish_one().await;
    w.kill_at(&gate, w.notified_job()).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    (post, target)
}

async fn a_post_deleted_after_a_crash_is_reported_as_published(w: TestWorker) {
    let (post, target) = kill_during_the_call(&w, true).await;
    w.write(async |tx| posts::delete(tx, post).await).await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
    assert_eq!(w.events().await, ["post.published"]);
}

async fn a_post_deleted_after_a_crash_before_the_call_is_not_published(w: TestWorker) {
    let (post, target) = kill_during_the_call(&w, false).await;
    w.write(async |tx| posts::delete(tx, post).await).await;
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "post_deleted"));
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (1, 0));
    assert_eq!(w.events().await, ["post.failed"]);
}

/// Creates a post whose call has an unknown outcome, and deletes it before its next run; returns its target.
async fn delete_during_an_open_call(w: &TestWorker, accepted: bool) -> i64 {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([if accepted {
        PublishStep::AcceptAnd(unknown())
    } else {
        PublishStep::Reject(unknown())
    }]);
    let (post, target) = w.publish_one().await;
    w.run_jobs().await;
    assert!(w.target(target).await.call_started_at.is_some() && w.job_of(target).await.state == JobState::Scheduled);
    w.write(async |tx| publishing::delete(tx, post).await).await;
    assert_eq!(w.job_of(target).await.state, JobState::Scheduled, "it reconciles the call");
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 0, "the row is kept until the job ends");
    target
}

async fn a_post_deleted_during_an_open_call_is_reconciled(w: TestWorker) {
    let target = delete_during_an_open_call(&w, true).await;
    w.run_until_idle().await;
    assert_eq!(
        (w.target(target).await.status, w.events().await),
        (TargetStatus::Published, vec!["post.published".into()])
    );
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (1, 1));
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 1);

    // The same if the worker dies during the call, and the next worker dies while it reconciles the call.
    let (post, target) = kill_during_the_call(&w, true).await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    let gate = Gate::new();
    w.fake.hold_reconcile(gate.clone());
    w.scheduler.tick().await.unwrap();
    w.kill_at(&gate, w.notified_job_of_target(target).await).await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 2));
    assert_eq!(w.fake.count("publish"), 2);
}

async fn a_post_deleted_during_an_open_call_is_not_resent(w: TestWorker) {
    let target = delete_during_an_open_call(&w, false).await;
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "post_deleted"));
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (1, 0));
    assert_eq!(w.events().await, ["post.failed"]);
}

async fn a_deleted_post_without_reconcile_is_reported_as_unknown(w: TestWorker) {
    w.fake.disable_reconcile();
    let (post, target) = kill_during_the_call(&w, true).await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    w.run_until_idle().await;
    assert_eq!(w.target(target).await.error.unwrap().category, Category::OutcomeUnknown);
    assert_eq!((w.fake.count("publish"), w.events().await), (1, vec!["post.failed".to_owned()]));
}

/// The call fails with a transient error. The target fails because the post was deleted, and its event is still sent.
async fn a_post_deleted_in_flight_is_not_retried(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::WaitAndReject(gate.clone(), transient())]);
    let (post, target) = w.publish_one().await;
    let id = w.notified_job();
    let run = w.start_until(&gate, id).await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    gate.let_through();
    run.await.unwrap();
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "post_deleted"));
    assert_eq!((w.state(id).await, w.events().await), (JobState::Done, vec!["post.failed".to_owned()]));
}

async fn a_published_post_is_not_missed(w: TestWorker) {
    let (_, target) = kill_during_the_call(&w, true).await;
    w.clock.advance(TimeDelta::days(3));
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_post_too_late_to_be_resent_is_missed(w: TestWorker) {
    let (_, target) = kill_during_the_call(&w, false).await;
    w.clock.advance(TimeDelta::days(3));
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "missed"));
    assert_eq!((w.fake.count("reconcile"), w.fake.count("publish")), (1, 1));
}

async fn a_lost_account_after_a_crash_leaves_the_outcome_unknown(w: TestWorker) {
    let (post, target) = kill_during_the_call(&w, true).await;
    let error = AccountError { code: "account_expired".into(), message: "rejected".into() };
    w.write(async |tx| accounts::expire(tx, w.account.id, 1, &error).await).await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().category), (TargetStatus::Failed, Category::OutcomeUnknown));
    // After a reconnect and another publish, the run reconciles first.
    w.s.account(w.world, "demo", "token-1").await;
    w.publish_again(post).await;
    w.advance(MAX_CALL_SECONDS);
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_deleted_target_cancels_its_job(w: TestWorker) {
    let (_, target) = w.publish_one().await;
    let id = w.notified_job();
    w.write(async |tx| targets::delete(tx, target).await).await;
    w.engine.run(id).await;
    assert_eq!(w.state(id).await, JobState::Cancelled);
}
