//! The transitions of first comments, with their events.

use chrono::TimeDelta;
use crier_domain::catalogue;
use crier_domain::event::EventName;
use crier_domain::failure::Failure;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::post::{FirstComment, FirstCommentStatus, Post, Target};
use crier_store::first_comments::{self, CommentOutcome};
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Tx, brands, events, jobs, targets};
use serde_json::json;

use crate::unknown_outcome;

/// Stores the first comment of a target that was published, if it has one, and enqueues its job. The post is locked.
pub async fn begin(
    tx: &mut Tx,
    post: &Post,
    target: &Target,
    comment: Option<&FirstComment>,
    trace: Option<&str>,
) -> Result<()> {
    let Some(comment) = comment else { return Ok(()) };
    if catalogue::descriptor(target.platform).capabilities.first_comment.is_none()
        || !first_comments::insert(tx, target.id, &comment.content).await?
    {
        return Ok(());
    }
    let at = tx.now + TimeDelta::seconds(comment.delay_seconds);
    let mut job = NewJob::new(JobKind::PublishComment, target.id, at)
        .lane(Lane::Account(target.account_id))
        .trace(trace.map(str::to_owned));
    job.workspace_id = brands::workspace_of(tx, post.brand_id).await?;
    jobs::enqueue(tx, &job).await?;
    Ok(())
}

/// Stores the state of a comment after a run, and emits the event if it failed. The post is locked.
pub async fn end(
    tx: &mut Tx,
    post: &Post,
    target: &Target,
    outcome: &CommentOutcome,
    trace: Option<&str>,
) -> Result<()> {
    first_comments::end(tx, target.id, outcome).await?;
    if outcome.status != FirstCommentStatus::Failed {
        return Ok(());
    }
    let error = outcome.error.as_ref().map(|e| json!({ "code": e.code, "message": e.message }));
    let data = json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
        "platform": target.platform, "error": error });
    events::emit(tx, post.brand_id, EventName::PostFirstCommentFailed, &data, trace).await?;
    Ok(())
}

/// Fails a comment whose run did not end it, because its job is dead or because the operator cancelled the job.
pub async fn fail(tx: &mut Tx, target_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some(LockedPost { post, .. }) = posts::lock_of_target(tx, target_id).await? else { return Ok(()) };
    let pending = first_comments::find_without_json(tx, target_id).await?;
    let Some(comment) = pending.filter(|comment| comment.status == FirstCommentStatus::Pending) else {
        return Ok(());
    };
    let Some(target) = targets::find_without_json(tx, target_id).await? else { return Ok(()) };
    let is_unknown = comment.call_started_at.is_some();
    let failure = if is_unknown { unknown_outcome("published", "add it there") } else { failure };
    let outcome = CommentOutcome {
        status: FirstCommentStatus::Failed,
        external_id: comment.external_id,
        url: comment.url,
        error: Some(failure),
        next_attempt_at: None,
        published_at: None,
        call_open: comment.call_started_at.is_some(),
    };
    end(tx, &post, &target, &outcome, trace).await
}
