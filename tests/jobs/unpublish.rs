//! `unpublish_target`: a published post is deleted from its platform, or is published again with the reason.

use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::event::EventName;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_domain::post::{FirstCommentStatus, PostStatus, PublishedPart, TargetStatus};
use crier_jobs as definitions;
use crier_jobs::{publishing, unpublishing};
use crier_store::first_comments::{self, CommentOutcome};
use crier_store::{accounts, analytics, posts, targets};
use serde_json::{Map, json};

use crate::support::fake_platform::{
    Gate, PublishStep, UnpublishStep, permanent, rate_limited, reauth, transient, unknown,
};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    a_post_is_deleted_from_its_platform,
    the_metrics_of_an_unpublished_post_are_not_collected,
    a_lost_response_is_repeated,
    a_rate_limit_pauses_the_account,
    an_expired_token_is_refreshed,
    rejected_credentials_keep_the_post_published,
    a_rejected_deletion_keeps_the_post_published,
    a_deletion_ends_after_eight_attempts,
    a_thread_is_deleted_in_reverse_order,
    a_crash_between_two_parts_loses_no_progress,
    a_thread_that_is_deleted_in_part_says_so,
    a_comment_that_is_being_published_is_awaited,
    a_comment_whose_response_was_lost_is_deleted_too,
    a_comment_that_waits_is_not_published_after_its_post_is_deleted,
    a_comment_without_an_id_is_left,
    a_comment_that_cannot_be_deleted_does_not_keep_the_post,
    a_post_without_an_id_is_kept,
    a_disconnected_account_keeps_the_post_published,
    an_operator_can_cancel_and_retry,
    a_deleted_post_is_deleted_from_its_platform,
);

/// Publishes a post, and creates an endpoint for its deletion. Returns the ids of the post and its target.
async fn published(w: &TestWorker) -> (i64, i64) {
    let (post, target) = w.publish_one().await;
    w.engine.run(w.notified_job_of_target(target).await).await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    w.listen_for("http://127.0.0.1:1/", &[EventName::PostUnpublished]).await;
    (post, target)
}

/// Requests the deletion of a target's post, as the API does. Returns the id of the job.
async fn unpublish(w: &TestWorker, target: i64) -> i64 {
    let found = w.target(target).await;
    let began = w.write(async |tx| {
        posts::lock_of_target(tx, target).await?;
        unpublishing::begin(tx, &[&found], w.world.workspace, Some("request-2")).await
    });
    assert!(began.await);
    assert_eq!(w.target(target).await.status, TargetStatus::Unpublishing);
    w.newest_job_of(JobKind::UnpublishTarget, target).await
}

/// Makes the post of a target a thread of these many parts, which all are on the platform.
async fn set_parts(w: &TestWorker, target: i64, count: usize) {
    let part = |number: usize| PublishedPart {
        external_id: format!("part-{number}"),
        url: None,
        published_at: w.now(),
        other_ids: vec![format!("other-{number}")],
        is_unpublished: false,
    };
    let parts: Vec<PublishedPart> = (1..=count).map(part).collect();
    w.write(async |tx| targets::unpublishing::set_parts(tx, target, &parts).await).await;
}

/// Stores that the first comment of a target was published.
async fn end_comment(w: &TestWorker, target: i64, id: Option<&str>) {
    let published = CommentOutcome {
        status: FirstCommentStatus::Published,
        external_id: id.map(str::to_owned),
        url: None,
        error: None,
        next_attempt_at: None,
        published_at: Some(w.now()),
        call_open: false,
    };
    w.write(async |tx| first_comments::end(tx, target, &published).await).await;
}

/// Stores the first comment of a target, which is not published yet.
async fn add_comment(w: &TestWorker, target: i64) {
    w.write(async |tx| first_comments::insert(tx, target, "Come by!").await).await;
}

/// Returns the ids of all calls that delete something.
fn requested(w: &TestWorker) -> Vec<String> {
    w.fake.unpublishes().into_iter().map(|post| post.external_id).collect()
}

/// Returns the status of a target, and the code of its error.
async fn outcome(w: &TestWorker, target: i64) -> (TargetStatus, Option<String>) {
    let found = w.target(target).await;
    (found.status, found.error.map(|error| error.code))
}

async fn a_post_is_deleted_from_its_platform(w: TestWorker) {
    let (post, target) = published(&w).await;
    let before = w.target(target).await;
    let job = unpublish(&w, target).await;
    assert_eq!(w.show(job).await.lane, Some(format!("account:{}", w.account.id)));
    assert!(w.engine.run(job).await);
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error, ended.next_attempt_at), (TargetStatus::Unpublished, None, None));
    assert_eq!((ended.external_id.as_deref(), ended.url), (Some("post-1"), before.url));
    assert_eq!((ended.published_at, ended.attempts), (before.published_at, 1));
    assert_eq!((w.post_status(post).await, w.state(job).await), (PostStatus::Published, JobState::Done));
    assert!(w.fake.posts().is_empty());
    let asked = w.fake.unpublishes().remove(0);
    assert_eq!((asked.external_id.as_str(), asked.is_comment, asked.marker), ("post-1", false, before.marker));
    assert_eq!(
        w.event_payloads().await,
        [json!({ "event": "post.unpublished", "data": {
            "post_id": post, "brand_id": w.world.brand, "social_account_id": w.account.id, "platform": "sandbox",
            "external_id": "post-1", "url": "https://fake.example/post-1",
        }})]
    );
    assert!(!w.engine.run(job).await);
    assert_eq!((requested(&w).len(), w.events().await.len()), (1, 1));
}

async fn the_metrics_of_an_unpublished_post_are_not_collected(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.write(async |tx| analytics::add_published(tx, None, 10).await).await;
    assert_eq!(w.count_rows("target_analytics WHERE next_at IS NOT NULL").await, 1);
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(w.count_rows("target_analytics WHERE next_at IS NULL AND is_gone").await, 1);
}

async fn a_lost_response_is_repeated(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.fake.script_unpublishes([UnpublishStep::DeleteAnd(unknown()), UnpublishStep::Reject(transient())]);
    unpublish(&w, target).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!(waiting.status, TargetStatus::Unpublishing);
    assert_eq!(waiting.error.unwrap().category, Category::Network);
    let next = waiting.next_attempt_at.unwrap() - w.now();
    assert!(next >= TimeDelta::seconds(8) && next <= TimeDelta::seconds(12), "{next}");
    w.advance(12);
    w.run_jobs().await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublishing, Some("platform_error".to_owned())));
    w.advance(36);
    w.run_jobs().await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
    assert_eq!((requested(&w).len(), w.events().await), (3, vec!["post.unpublished".to_owned()]));
}

async fn a_rate_limit_pauses_the_account(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.fake.script_unpublishes([UnpublishStep::Reject(rate_limited(w.later(90)))]);
    unpublish(&w, target).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.next_attempt_at), (TargetStatus::Unpublishing, Some(w.later(90))));
    let (_, other) = w.publish_one().await;
    w.run_jobs().await;
    assert_eq!(w.target(other).await.status, TargetStatus::Pending, "it waits for the lane");
    w.advance(90);
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Unpublished);
    assert_eq!(w.target(other).await.status, TargetStatus::Published);
}

async fn an_expired_token_is_refreshed(w: TestWorker) {
    let (_, target) = published(&w).await;
    set_parts(&w, target, 2).await;
    w.fake.accept_only_token("fresh");
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
    assert_eq!((w.fake.count("refresh"), requested(&w)), (1, vec!["part-2".to_owned(), "part-1".to_owned()]));
}

async fn rejected_credentials_keep_the_post_published(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.fake.script_unpublishes([UnpublishStep::Reject(reauth())]);
    w.engine.run(unpublish(&w, target).await).await;
    let expired = (TargetStatus::Published, Some("account_expired".to_owned()));
    assert_eq!(outcome(&w, target).await, expired);
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    // The next deletion fails without a call.
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(outcome(&w, target).await, expired);
    assert_eq!((requested(&w).len(), w.fake.posts().len()), (1, 1));
}

async fn a_rejected_deletion_keeps_the_post_published(w: TestWorker) {
    let (post, target) = published(&w).await;
    w.fake.script_unpublishes([UnpublishStep::Reject(permanent())]);
    let job = unpublish(&w, target).await;
    w.engine.run(job).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("platform_rejected".to_owned())));
    assert_eq!((w.post_status(post).await, w.state(job).await), (PostStatus::Published, JobState::Done));
    assert!(w.events().await.is_empty());
    // The next request clears the error.
    let job = unpublish(&w, target).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublishing, None));
    w.engine.run(job).await;
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Unpublished, 0));
}

async fn a_deletion_ends_after_eight_attempts(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.fake.script_unpublishes((0..8).map(|_| UnpublishStep::Reject(transient())));
    unpublish(&w, target).await;
    for _ in 0..9 {
        w.run_jobs().await;
        w.advance(3 * 3_600);
    }
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("platform_error".to_owned())));
    assert!(w.target(target).await.next_attempt_at.is_none());
    assert_eq!((requested(&w).len(), w.events().await.len()), (8, 0));
}

async fn a_thread_is_deleted_in_reverse_order(w: TestWorker) {
    let (_, target) = published(&w).await;
    set_parts(&w, target, 3).await;
    add_comment(&w, target).await;
    end_comment(&w, target, Some("comment-1")).await;
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(requested(&w), ["comment-1", "part-3", "part-2", "part-1"]);
    let is_comment: Vec<bool> = w.fake.unpublishes().iter().map(|post| post.is_comment).collect();
    assert_eq!(is_comment, [true, false, false, false]);
    assert_eq!(w.fake.unpublishes()[1].other_ids, ["other-3"]);
    let ended = w.target(target).await;
    assert!(ended.status == TargetStatus::Unpublished && ended.published_parts.iter().all(|part| part.is_unpublished));
    assert_eq!(w.events().await, ["post.unpublished"]);
}

async fn a_crash_between_two_parts_loses_no_progress(w: TestWorker) {
    let (_, target) = published(&w).await;
    set_parts(&w, target, 3).await;
    let gate = Gate::new();
    w.fake.script_unpublishes([UnpublishStep::Delete, UnpublishStep::DeleteAndHang(gate.clone())]);
    let job = unpublish(&w, target).await;
    w.kill_at(&gate, job).await;
    let done: Vec<bool> = w.target(target).await.published_parts.iter().map(|part| part.is_unpublished).collect();
    assert_eq!(done, [false, false, true]);
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
    assert_eq!(requested(&w), ["part-3", "part-2", "part-2", "part-1"]);
    assert_eq!(w.events().await, ["post.unpublished"]);
}

async fn a_thread_that_is_deleted_in_part_says_so(w: TestWorker) {
    let (_, target) = published(&w).await;
    set_parts(&w, target, 3).await;
    w.fake.script_unpublishes([UnpublishStep::Delete, UnpublishStep::Reject(permanent())]);
    w.engine.run(unpublish(&w, target).await).await;
    let ended = w.target(target).await;
    let message = ended.error.unwrap().message;
    assert!(message.ends_with("that remain on the platform: 2 of 3."), "{message}");
    assert_eq!(ended.status, TargetStatus::Published);
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(requested(&w), ["part-3", "part-2", "part-2", "part-1"]);
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
}

async fn a_comment_that_is_being_published_is_awaited(w: TestWorker) {
    let (_, target) = published(&w).await;
    add_comment(&w, target).await;
    w.write(async |tx| first_comments::mark_call(tx, target, &Map::new()).await).await;
    unpublish(&w, target).await;
    w.run_jobs().await;
    assert_eq!((w.target(target).await.status, requested(&w).len()), (TargetStatus::Unpublishing, 0));
    end_comment(&w, target, Some("comment-1")).await;
    w.advance(12);
    w.run_jobs().await;
    assert_eq!(requested(&w), ["comment-1", "post-1"]);
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
}

async fn a_comment_without_an_id_is_left(w: TestWorker) {
    let (_, target) = published(&w).await;
    add_comment(&w, target).await;
    end_comment(&w, target, None).await;
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(requested(&w), ["post-1"]);
}

async fn a_comment_that_cannot_be_deleted_does_not_keep_the_post(w: TestWorker) {
    let (_, target) = published(&w).await;
    add_comment(&w, target).await;
    end_comment(&w, target, Some("comment-1")).await;
    // The account may delete neither.
    w.fake.script_unpublishes([UnpublishStep::Reject(permanent()), UnpublishStep::Reject(permanent())]);
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("platform_rejected".to_owned())));
    // Another failure of the comment is retried before the post is deleted.
    w.fake.script_unpublishes([UnpublishStep::Reject(transient()), UnpublishStep::Reject(permanent())]);
    unpublish(&w, target).await;
    w.run_jobs().await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublishing, Some("platform_error".to_owned())));
    w.advance(12);
    w.run_jobs().await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
    assert_eq!(requested(&w), ["comment-1", "post-1", "comment-1", "comment-1", "post-1"]);
    assert_eq!(w.comment(target).await.status, FirstCommentStatus::Published);
}

async fn a_post_without_an_id_is_kept(w: TestWorker) {
    let (_, target) = published(&w).await;
    w.sql(format!("UPDATE post_targets SET external_id = NULL WHERE id = {target}")).await;
    w.engine.run(unpublish(&w, target).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("external_id_unknown".to_owned())));
    assert_eq!(w.fake.count("unpublish"), 0);
}

async fn a_disconnected_account_keeps_the_post_published(w: TestWorker) {
    let (_, target) = published(&w).await;
    let job = unpublish(&w, target).await;
    w.write(async |tx| accounts::disconnect(tx, w.world.brand, w.account.id).await).await;
    w.engine.run(job).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("account_disconnected".to_owned())));
    assert_eq!(w.fake.count("unpublish"), 0);
}

async fn an_operator_can_cancel_and_retry(w: TestWorker) {
    let kind = JobKind::UnpublishTarget;
    let (_, target) = published(&w).await;
    let job = unpublish(&w, target).await;
    w.write(async |tx| definitions::on_cancelled(tx, kind, target).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("cancelled".to_owned())));
    assert!(w.write(async |tx| definitions::on_retry(tx, kind, target).await).await);
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublishing, None));
    w.write(async |tx| definitions::on_dead(tx, kind, target, None).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Published, Some("internal".to_owned())));
    assert!(w.write(async |tx| definitions::on_retry(tx, kind, target).await).await);
    w.engine.run(job).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
    assert!(!w.write(async |tx| definitions::on_retry(tx, kind, target).await).await);
    w.write(async |tx| definitions::on_dead(tx, kind, target, None).await).await;
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None), "it stays unpublished");
    let words = definitions::describe(&mut w.conn().await, kind, target).await.unwrap().unwrap().words;
    assert!(words.ends_with("unpublished"), "{words}");
}

async fn a_deleted_post_is_deleted_from_its_platform(w: TestWorker) {
    let (post, target) = published(&w).await;
    let job = unpublish(&w, target).await;
    w.write(async |tx| publishing::delete(tx, post).await).await;
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 0, "the row is kept until the job ends");
    assert!(w.engine.run(job).await);
    assert_eq!((w.target(target).await.status, w.fake.posts().len()), (TargetStatus::Unpublished, 0));
    assert_eq!(w.events().await, ["post.unpublished"]);
    assert_eq!(w.write(async |tx| posts::purge(tx, 10).await).await, 1);
}

async fn a_comment_whose_response_was_lost_is_deleted_too(w: TestWorker) {
    w.fake.script_publishes([PublishStep::Publish, PublishStep::AcceptAnd(unknown())]);
    let (_, target) = w.publish_with_comment("More", 0).await;
    w.engine.run(w.notified_job_of_target(target).await).await;
    w.engine.run(w.newest_job_of(JobKind::PublishComment, target).await).await;
    assert!(w.comment(target).await.call_started_at.is_some());
    unpublish(&w, target).await;
    w.run_until_idle().await;
    assert_eq!(requested(&w), ["post-2", "post-1"]);
    assert_eq!(outcome(&w, target).await, (TargetStatus::Unpublished, None));
}

async fn a_comment_that_waits_is_not_published_after_its_post_is_deleted(w: TestWorker) {
    let (_, target) = w.publish_with_comment("More", 0).await;
    w.engine.run(w.notified_job_of_target(target).await).await;
    unpublish(&w, target).await;
    w.engine.run(w.newest_job_of(JobKind::PublishComment, target).await).await;
    let waiting = w.comment(target).await;
    assert_eq!((waiting.status, waiting.attempts, waiting.error), (FirstCommentStatus::Pending, 0, None));
    w.run_until_idle().await;
    let comment = w.comment(target).await;
    assert_eq!(
        (comment.status, comment.error.unwrap().code.as_str()),
        (FirstCommentStatus::Failed, "post_unpublished")
    );
    assert_eq!((w.fake.posts().len(), outcome(&w, target).await.0), (0, TargetStatus::Unpublished));
}
