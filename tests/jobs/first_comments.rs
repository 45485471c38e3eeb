//! `publish_comment`: the first comment of a post is published at most once, and never changes the post.

use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{FirstCommentOverride, FirstCommentStatus, PostStatus, TargetStatus};
use crier_jobs as definitions;

use crate::support::fake_platform::{
    Gate, PublishStep, auth_expired, permanent, rate_limited, reauth, transient, unknown,
};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    a_comment_follows_its_post,
    a_comment_waits_for_its_delay,
    a_failed_comment_leaves_the_post_published,
    a_comment_is_retried,
    a_rate_limited_comment_waits,
    an_expired_token_is_renewed_for_a_comment,
    a_comment_on_an_expired_account_fails,
    a_comment_whose_response_was_lost_is_published_once,
    a_kill_during_a_comment_publishes_it_once,
    a_comment_without_a_known_outcome_is_not_repeated,
    a_comment_waits_until_the_platform_shows_the_post,
    a_comment_on_a_deleted_post_is_not_made,
    an_override_removes_the_comment,
    a_comment_that_is_removed_while_its_post_is_published_is_not_made,
    a_cancelled_comment_fails_and_can_be_retried,
    a_cancelled_comment_that_may_exist_has_an_unknown_outcome,
);

const COMMENT: &str = "More at brot.example";

/// Publishes a post, so that its comment is due, and returns the ids of the post, its target and the comment's job.
async fn publish(w: &TestWorker) -> (i64, i64, i64) {
    let (post, target) = w.publish_with_comment(COMMENT, 0).await;
    w.engine.run(w.notified_job()).await;
    let job = w.newest_job_of(JobKind::PublishComment, target).await;
    w.s.notifier.take();
    (post, target, job)
}

fn comments(w: &TestWorker) -> usize {
    w.fake.posts().iter().filter(|posted| posted.text == COMMENT && posted.parent.as_deref() == Some("post-1")).count()
}

async fn a_comment_follows_its_post(w: TestWorker) {
    w.listen_at("http://127.0.0.1:1/").await;
    let (post, target) = w.publish_with_comment(COMMENT, 0).await;
    w.run_jobs().await;
    assert_eq!((w.fake.posts().len(), comments(&w)), (2, 1));
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.external_id.as_deref()), (FirstCommentStatus::Published, Some("post-2")));
    assert_eq!(comment.url.as_deref(), Some("https://fake.example/post-2"));
    assert_eq!((comment.attempts, comment.error, comment.call_started_at), (1, None, None));
    assert_eq!(w.target(target).await.external_id.as_deref(), Some("post-1"));
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!(w.events().await, ["post.published"]);
}

async fn a_comment_waits_for_its_delay(w: TestWorker) {
    let (_, target) = w.publish_with_comment(COMMENT, 300).await;
    w.run_jobs().await;
    assert_eq!((comments(&w), w.comment(target).await.status), (0, FirstCommentStatus::Pending));
    w.advance(299);
    w.run_jobs().await;
    assert_eq!(comments(&w), 0);
    w.advance(1);
    w.run_jobs().await;
    assert_eq!((comments(&w), w.comment(target).await.status), (1, FirstCommentStatus::Published));
}

async fn a_failed_comment_leaves_the_post_published(w: TestWorker) {
    w.listen_for("http://127.0.0.1:1/", EventName::ALL).await;
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    let (post, target, job) = publish(&w).await;
    w.engine.run(job).await;
    let comment = w.comment(target).await;
    assert_eq!(
        (comment.status, comment.error.unwrap().code.as_str()),
        (FirstCommentStatus::Failed, "platform_rejected")
    );
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    assert_eq!((w.post_status(post).await, w.state(job).await), (PostStatus::Published, JobState::Done));
    assert_eq!(w.events().await, ["post.published", "post.first_comment_failed"]);
    let data = &w.event_data("post.first_comment_failed").await[0];
    assert_eq!((&data["post_id"], &data["error"]["code"]), (&post.into(), &"platform_rejected".into()));
}

async fn a_comment_is_retried(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(transient())]);
    let (_, target, job) = publish(&w).await;
    w.engine.run(job).await;
    let waiting = w.comment(target).await;
    assert_eq!((waiting.status, waiting.attempts), (FirstCommentStatus::Pending, 1));
    assert!(waiting.next_attempt_at.is_some() && waiting.error.is_some());
    w.run_until_idle().await;
    assert_eq!((comments(&w), w.comment(target).await.attempts), (1, 2));
}

async fn a_rate_limited_comment_waits(w: TestWorker) {
    let until = w.later(90);
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(rate_limited(until))]);
    let (_, target, job) = publish(&w).await;
    w.engine.run(job).await;
    assert_eq!(w.comment(target).await.next_attempt_at, Some(until));
    w.run_until_idle().await;
    assert_eq!(comments(&w), 1);
}

async fn an_expired_token_is_renewed_for_a_comment(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(auth_expired())]);
    let (_, _, job) = publish(&w).await;
    w.engine.run(job).await;
    assert_eq!((comments(&w), w.fake.count("refresh")), (1, 1));
}

async fn a_comment_on_an_expired_account_fails(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(reauth())]);
    let (post, target, job) = publish(&w).await;
    w.engine.run(job).await;
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.error.unwrap().code.as_str()), (FirstCommentStatus::Failed, "account_expired"));
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn a_comment_whose_response_was_lost_is_published_once(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let (_, target, job) = publish(&w).await;
    w.engine.run(job).await;
    assert!(w.comment(target).await.call_started_at.is_some());
    w.run_until_idle().await;
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.external_id.as_deref()), (FirstCommentStatus::Published, Some("post-2")));
    assert_eq!(comments(&w), 1);
}

async fn a_kill_during_a_comment_publishes_it_once(w: TestWorker) {
    for is_accepted in [true, false] {
        let gate = Gate::new();
        let (post, target, job) = publish(&w).await;
        w.fake.script_publishes([match is_accepted {
            true => PublishStep::AcceptAndHang(gate.clone()),
            false => PublishStep::Hang(gate.clone()),
        }]);
        w.kill_at(&gate, job).await;
        w.run_until_idle().await;
        assert_eq!(w.comment(target).await.status, FirstCommentStatus::Published);
        let parent = w.target(target).await.external_id;
        let made = w.fake.posts().into_iter().filter(|posted| posted.parent == parent).count();
        assert_eq!((made, w.post_status(post).await), (1, PostStatus::Published), "accepted: {is_accepted}");
    }
}

async fn a_comment_without_a_known_outcome_is_not_repeated(w: TestWorker) {
    w.fake.disable_reconcile();
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let (_, target, job) = publish(&w).await;
    w.engine.run(job).await;
    w.run_until_idle().await;
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.error.unwrap().code.as_str()), (FirstCommentStatus::Failed, "outcome_unknown"));
    assert_eq!(comments(&w), 1);
}

async fn a_comment_waits_until_the_platform_shows_the_post(w: TestWorker) {
    let (_, target, job) = publish(&w).await;
    let post = w.fake.posts().remove(0);
    w.fake.delete_post(&post.id);
    w.engine.run(job).await;
    assert_eq!(w.comment(target).await.status, FirstCommentStatus::Pending);
    w.fake.restore_post(post);
    w.run_until_idle().await;
    assert_eq!(comments(&w), 1);
}

async fn a_comment_on_a_deleted_post_is_not_made(w: TestWorker) {
    let (post, _, job) = publish(&w).await;
    w.write(async |tx| definitions::publishing::delete(tx, post).await).await;
    w.run_until_idle().await;
    assert_eq!((comments(&w), w.state(job).await), (0, JobState::Cancelled));
}

async fn an_override_removes_the_comment(w: TestWorker) {
    let (_, target) = w.publish_with_comment(COMMENT, 0).await;
    w.change_target(target, |own| own.first_comment = Some(FirstCommentOverride::Off)).await;
    w.run_jobs().await;
    assert_eq!((w.fake.posts().len(), w.count_rows("first_comments").await), (1, 0));
}

async fn a_cancelled_comment_fails_and_can_be_retried(w: TestWorker) {
    let (_, target, _) = publish(&w).await;
    w.write(async |tx| definitions::on_cancelled(tx, JobKind::PublishComment, target).await).await;
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.error.unwrap().code.as_str()), (FirstCommentStatus::Failed, "cancelled"));
    assert!(w.write(async |tx| definitions::on_retry(tx, JobKind::PublishComment, target).await).await);
    let described = definitions::describe(&mut w.conn().await, JobKind::PublishComment, target).await.unwrap();
    assert!(described.unwrap().words.starts_with("first comment of target"));
    w.write(async |tx| definitions::on_dead(tx, JobKind::PublishComment, target, None).await).await;
    assert_eq!(w.comment(target).await.status, FirstCommentStatus::Failed);
    w.run_until_idle().await;
    assert_eq!(comments(&w), 0);
}

async fn a_cancelled_comment_that_may_exist_has_an_unknown_outcome(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let (_, target, job) = publish(&w).await;
    w.engine.run(job).await;
    w.write(async |tx| definitions::on_cancelled(tx, JobKind::PublishComment, target).await).await;
    let comment = w.comment(target).await;
    assert_eq!((comment.status, comment.error.unwrap().code.as_str()), (FirstCommentStatus::Failed, "outcome_unknown"));
    w.run_until_idle().await;
    assert_eq!(comments(&w), 1);
}

async fn a_comment_that_is_removed_while_its_post_is_published_is_not_made(w: TestWorker) {
    let gate = Gate::new();
    w.fake.script_publishes([PublishStep::Wait(gate.clone())]);
    let (_, target) = w.publish_with_comment(COMMENT, 0).await;
    let run = w.start_until(&gate, w.notified_job()).await;
    w.change_target(target, |own| own.first_comment = Some(FirstCommentOverride::Off)).await;
    gate.let_through();
    assert!(run.await.unwrap());
    w.run_jobs().await;
    assert_eq!((w.fake.posts().len(), w.count_rows("first_comments").await), (1, 0));
}
