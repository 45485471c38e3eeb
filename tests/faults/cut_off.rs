//! The platform's response is cut off: the connection breaks after the post was sent. Invariant: a post that the
//! platform accepted is not sent again. It is found on the platform at the right time, or the user decides if the
//! platform has no look-up.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::job::JobState;
use crier_domain::post::{AttemptOutcome, PostStatus, TargetStatus};
use crier_platforms::ReconcileResult;

use crate::support::fake_platform::{PublishStep, duplicate, duplicate_of, rate_limited, transient, unknown};
use crate::support::jobs::{MAX_CALL_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    an_accepted_post_is_found_and_not_resent,
    an_absent_post_is_resent_with_the_same_marker,
    absence_counts_only_after_the_call_timeout,
    a_second_call_of_unknown_outcome_is_awaited,
    a_failed_reconcile_is_retried,
    without_reconcile_the_outcome_is_unknown,
    an_inconclusive_reconcile_leaves_the_outcome_unknown,
    republishing_keeps_the_marker,
    republishing_reconciles_an_unknown_outcome,
    a_duplicate_after_an_unknown_outcome_is_looked_up,
    a_duplicate_that_is_not_shown_leaves_the_outcome_unknown,
    a_duplicate_without_an_earlier_call_fails,
    a_duplicate_that_the_platform_names_is_adopted_after_an_unknown_outcome,
);

async fn an_accepted_post_is_found_and_not_resent(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_one().await;
    let call_started = w.clock.now();
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.call_started_at), (TargetStatus::Publishing, Some(call_started)));
    let call_ended = call_started + TimeDelta::seconds(MAX_CALL_SECONDS);
    assert_eq!(w.job_of(target).await.run_at, call_ended, "looked up only when the call must be over");
    w.run_until_idle().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.external_id.as_deref()), (TargetStatus::Published, Some("post-1")));
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile"), w.fake.posts().len()), (1, 1, 1));
    assert_eq!(w.events().await, ["post.published"]);
    let outcomes: Vec<_> = w.attempts(post).await.iter().map(|a| a.outcome).collect();
    assert_eq!(outcomes, [AttemptOutcome::Retried, AttemptOutcome::Published]);
}

async fn an_absent_post_is_resent_with_the_same_marker(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (_, target) = w.publish_one().await;
    w.run_until_idle().await;
    let calls = w.fake.calls();
    assert_eq!(calls.iter().map(|call| call.what).collect::<Vec<_>>(), ["publish", "reconcile", "publish"]);
    assert!(calls.iter().all(|call| call.marker == calls[0].marker && !call.marker.is_empty()));
    assert!(calls[1].at >= calls[0].at + TimeDelta::seconds(MAX_CALL_SECONDS));
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn absence_counts_only_after_the_call_timeout(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    w.run_early(target).await;
    assert_eq!((w.fake.count("reconcile"), w.fake.count("publish")), (1, 1));
    let waiting = w.target(target).await;
    assert!(waiting.status == TargetStatus::Publishing && waiting.call_started_at.is_some());
    assert_eq!(waiting.next_attempt_at, Some(w.later(MAX_CALL_SECONDS)));
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.count("publish")), (TargetStatus::Published, 2));
}

async fn a_second_call_of_unknown_outcome_is_awaited(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Reject(unknown()), PublishStep::AcceptAnd(unknown())]);
    let (_, target) = w.publish_one().await;
    w.run_jobs().await;
    w.advance(500);
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!(waiting.call_started_at, Some(w.clock.now()), "the time is that of the second call");
    assert!(w.job_of(target).await.run_at >= w.later(MAX_CALL_SECONDS));
    w.run_until_idle().await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Published, 1));
}

async fn a_failed_reconcile_is_retried(w: TestWorker) {
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let until = w.later(1_000);
    w.fake.script_reconciles([Err(transient()), Err(unknown()), Err(rate_limited(until))]);
    let (_, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!((w.fake.count("reconcile"), w.fake.count("publish"), w.fake.posts().len()), (4, 1, 1));
    let ended = w.target(target).await;
    assert_eq!(ended.status, TargetStatus::Published);
    assert!(ended.published_at.unwrap() >= until);
}

async fn assert_outcome_unknown(w: &TestWorker, post: i64, target: i64) {
    let ended = w.target(target).await;
    let error = ended.error.unwrap();
    assert_eq!((ended.status, error.category), (TargetStatus::Failed, Category::OutcomeUnknown));
    assert_eq!((error.code.as_str(), ended.next_attempt_at), ("outcome_unknown", None));
    assert_eq!((w.post_status(post).await, w.job_of(target).await.state), (PostStatus::Failed, JobState::Done));
    assert_eq!(w.attempts(post).await.last().unwrap().outcome, AttemptOutcome::Unknown);
    assert_eq!((w.events().await, w.fake.count("publish")), (vec!["post.failed".to_owned()], 1));
}

async fn without_reconcile_the_outcome_is_unknown(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.disable_reconcile();
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target).await;
    assert_eq!(w.fake.count("reconcile"), 0);
}

async fn an_inconclusive_reconcile_leaves_the_outcome_unknown(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    w.fake.script_reconciles([Ok(ReconcileResult::Unsupported)]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target).await;
    // If a user publishes it again, it is sent without a look-up.
    w.publish_again(post).await;
    w.run_jobs().await;
    assert_eq!((w.fake.count("publish"), w.fake.count("reconcile")), (2, 1));
}

async fn republishing_keeps_the_marker(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.disable_reconcile();
    w.fake.script_publishes([PublishStep::Reject(unknown())]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target).await;
    w.publish_again(post).await;
    w.run_jobs().await;
    let calls = w.fake.calls();
    assert_eq!((calls.len(), &calls[0].marker), (2, &calls[1].marker), "a record key prevents a duplicate");
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn republishing_reconciles_an_unknown_outcome(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown())]);
    let (post, target) = w.publish_one().await;
    w.set_attempts(w.job_of(target).await.id, 7).await;
    w.run_until_idle().await;
    assert_outcome_unknown(&w, post, target).await;
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.fake.count("publish"), w.fake.posts().len()), (1, 1), "it was there all along");
}

/// The error of a target, and the number of calls that published and that looked up the post.
async fn ended_with(w: &TestWorker, target: i64) -> (TargetStatus, Option<Category>, usize, usize) {
    let ended = w.target(target).await;
    let category = ended.error.map(|error| error.category);
    (ended.status, category, w.fake.count("publish"), w.fake.count("reconcile"))
}

/// The list of the platform lags behind.
async fn a_duplicate_after_an_unknown_outcome_is_looked_up(w: TestWorker) {
    w.fake.script_publishes([PublishStep::AcceptAnd(unknown()), PublishStep::Reject(duplicate())]);
    w.fake.script_reconciles([Ok(ReconcileResult::Absent)]);
    let (_, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(ended_with(&w, target).await, (TargetStatus::Published, None, 2, 2));
    assert_eq!(w.target(target).await.external_id.as_deref(), Some("post-1"));
}

async fn a_duplicate_that_is_not_shown_leaves_the_outcome_unknown(w: TestWorker) {
    // The second call is rejected before the platform compares the text.
    let steps = [PublishStep::AcceptAnd(unknown()), PublishStep::Reject(transient()), PublishStep::Reject(duplicate())];
    w.fake.script_publishes(steps);
    w.fake.script_reconciles([Ok(ReconcileResult::Absent), Ok(ReconcileResult::Absent)]);
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(ended_with(&w, target).await, (TargetStatus::Failed, Some(Category::OutcomeUnknown), 3, 2));
    // A user publishes it again.
    w.fake.script_publishes([PublishStep::Reject(duplicate())]);
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!(ended_with(&w, target).await, (TargetStatus::Published, None, 4, 3));
    assert_eq!(w.target(target).await.external_id.as_deref(), Some("post-1"));
}

async fn a_duplicate_without_an_earlier_call_fails(w: TestWorker) {
    let steps = [PublishStep::Reject(transient()), PublishStep::Reject(duplicate())];
    w.fake.script_publishes(steps.into_iter().chain([PublishStep::Reject(duplicate_of("post-9"))]));
    let (post, target) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(ended_with(&w, target).await, (TargetStatus::Failed, Some(Category::DuplicateContent), 2, 0));
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!(ended_with(&w, target).await, (TargetStatus::Failed, Some(Category::DuplicateContent), 3, 0));
}

async fn a_duplicate_that_the_platform_names_is_adopted_after_an_unknown_outcome(w: TestWorker) {
    let (_, other) = w.publish_one().await;
    w.run_until_idle().await;
    assert_eq!(w.target(other).await.external_id.as_deref(), Some("post-1"));
    let republish = async |existing: &str| {
        w.fake.script_publishes([PublishStep::Reject(unknown()), PublishStep::Reject(duplicate_of(existing))]);
        w.fake.script_reconciles([Ok(ReconcileResult::Unsupported)]);
        let (post, target) = w.publish_one().await;
        w.run_until_idle().await;
        w.publish_again(post).await;
        w.run_until_idle().await;
        w.target(target).await
    };
    let adopted = republish("post-9").await;
    assert_eq!((adopted.status, adopted.external_id.as_deref()), (TargetStatus::Published, Some("post-9")));
    let taken = republish("post-1").await;
    assert_eq!((taken.status, taken.external_id), (TargetStatus::Failed, None), "it belongs to the other post");
    assert_eq!(taken.error.unwrap().category, Category::OutcomeUnknown);
}
