//! What follows when a target has ended (its post's status, and the event), and when its post is deleted.

use serde_json::json;

use crate::domain::event::EventName;
use crate::domain::failure::Failure;
use crate::domain::job::Kind;
use crate::domain::post::{Post, PostStatus, Target, TargetStatus};
use crate::store::targets::Ended;
use crate::store::{Result, Tx, events, jobs, posts, targets};

/// Ends a target (or leaves it waiting for its next try), moves its post on once all targets are terminal, and tells the
/// endpoints. `post` is what [`posts::lock`] gave: its row is held.
pub async fn end_target(
    tx: &mut Tx,
    post: (Post, bool),
    target: &Target,
    ended: &Ended,
    trace: Option<&str>,
) -> Result<()> {
    targets::end(tx, target.id, ended).await?;
    if !ended.status.is_terminal() {
        return Ok(());
    }
    let (mut post, deleted) = post;
    let (name, data) = match (ended.status, &ended.error) {
        (TargetStatus::Published, _) => (
            EventName::PostPublished,
            json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
                "platform": target.platform, "external_id": ended.external_id, "url": ended.url }),
        ),
        (_, error) => (
            EventName::PostFailed,
            json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
                "platform": target.platform,
                "error": error.as_ref().map(|e| json!({ "code": e.code, "message": e.message })) }),
        ),
    };
    events::emit(tx, post.brand_id, name, &data, trace).await?;
    if deleted || post.status != PostStatus::Publishing {
        return Ok(());
    }
    let (statuses, times): (Vec<_>, Vec<_>) = targets::ends(tx, post.id).await?.into_iter().unzip();
    if let Some(status) = PostStatus::of_targets(&statuses) {
        post.status = status;
        post.published_at = times.into_iter().flatten().max();
        posts::update(tx, &post).await?;
    }
    Ok(())
}

/// How a failed target looks.
pub fn failed(target: &Target, failure: Failure) -> Ended {
    Ended {
        status: TargetStatus::Failed,
        external_id: target.external_id.clone(),
        url: target.url.clone(),
        error: Some(failure),
        next_attempt_at: None,
        published_at: None,
        call_open: target.call_started_at.is_some(),
    }
}

/// The target is given up without an end of its run's own: its job died (its process was killed again and again, or it ran
/// out of tries), or the operator cancelled it.
pub async fn give_up(tx: &mut Tx, target_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some((mut post, deleted)) = posts::lock_of_target(tx, target_id).await? else { return Ok(()) };
    // Under the lock: its run may have ended while this waited.
    let Some(target) = targets::bare(tx, target_id).await?.filter(|t| !t.status.is_terminal()) else { return Ok(()) };
    if post.status == PostStatus::Scheduled {
        post.status = PostStatus::Publishing;
        posts::update(tx, &post).await?;
    }
    end_target(tx, (post, deleted), &target, &failed(&target, failure), trace).await
}

/// Takes a post away from clients, and the jobs that have not begun. A job stays where a call of unknown end was made: it
/// finds out what became of that, sends the event, and calls no more. The post's row is held.
pub async fn delete(tx: &mut Tx, post_id: i64) -> Result<()> {
    for target in targets::list(tx, post_id).await? {
        if target.call_started_at.is_some() && !target.status.is_terminal() {
            continue;
        }
        jobs::cancel_subject(tx, Kind::PublishTarget, target.id).await?;
        if target.status == TargetStatus::Pending {
            // A worker that has its job in hands but has not begun finds no target, and lets go.
            targets::delete(tx, target.id).await?;
        }
    }
    posts::delete(tx, post_id).await
}

/// A failed target is to be tried again by the operator's wish, or one that could not be told that its job is dead; `false`
/// where it is neither any more, or gone.
pub async fn revive(tx: &mut Tx, target_id: i64) -> Result<bool> {
    let Some((post, deleted)) = posts::lock_of_target(tx, target_id).await? else { return Ok(false) };
    let status = match (targets::find(tx, target_id).await?.map(|target| target.status), post.status) {
        (Some(TargetStatus::Failed), from) => from.to(PostStatus::Publishing).ok(),
        (Some(TargetStatus::Publishing), PostStatus::Publishing) => Some(PostStatus::Publishing),
        _ => None,
    };
    let Some(status) = status.filter(|_| !deleted) else { return Ok(false) };
    targets::reset(tx, target_id, false).await?;
    posts::update(tx, &Post { status, ..post }).await?;
    Ok(true)
}
