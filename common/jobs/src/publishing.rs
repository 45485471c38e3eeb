//! The transitions of targets and their posts, with their events.

use std::collections::HashMap;

use crier_domain::event::EventName;
use crier_domain::failure::Failure;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::notice::NoticeKind;
use crier_domain::platform::Platform;
use crier_domain::post::{FirstComment, PostStatus, Target, TargetStatus};
use crier_store::jobs::{self, JobSubject};
use crier_store::posts::{self, LockedPost};
use crier_store::targets::{self, NewAttempt, StoredTarget, TargetOutcome, TargetUpdate};
use crier_store::{Result, Tx, brands, events, notices, post_media};

use serde_json::json;

use crate::{comments, unknown_outcome};

/// A target that has ended, or that waits for its next attempt.
pub struct EndedTarget<'a> {
    pub locked: &'a LockedPost,
    pub target: &'a Target,
    pub end: TargetOutcome,
    pub attempt: Option<NewAttempt>,
    pub trace: Option<&'a str>,
}

impl EndedTarget<'_> {
    fn row(&self) -> TargetUpdate<'_> {
        let is_open = self.locked.post.status == PostStatus::Publishing && !self.locked.is_deleted;
        TargetUpdate {
            target_id: self.target.id,
            end: &self.end,
            attempt: self.attempt.as_ref(),
            ends_post: is_open && self.end.status.is_terminal(),
        }
    }
}

/// Stores the ends of targets and their attempts, updates the posts whose targets are then all terminal, and emits the
/// events.
pub async fn end_targets(tx: &mut Tx, ended: &[EndedTarget<'_>]) -> Result<()> {
    let rows: Vec<_> = ended.iter().map(EndedTarget::row).collect();
    let stored: HashMap<i64, StoredTarget> =
        targets::end_each(tx, &rows).await?.into_iter().map(|stored| (stored.id, stored)).collect();
    for ended in ended {
        let Some(stored) = stored.get(&ended.target.id) else { continue };
        if stored.has_endpoint && ended.end.status.is_terminal() {
            emit_end(tx, ended).await?;
        }
        let LockedPost { post, is_deleted } = ended.locked;
        if ended.end.status == TargetStatus::Failed && !is_deleted {
            notices::add(tx, NoticeKind::PostFailed, post.brand_id, post.id).await?;
        }
        if ended.end.status == TargetStatus::Published && !is_deleted {
            let comment = FirstComment::of(post, stored.first_comment.as_ref());
            comments::begin(tx, post, ended.target, comment, ended.trace).await?;
        }
    }
    Ok(())
}

/// Emits the event of a target's end.
async fn emit_end(tx: &mut Tx, ended: &EndedTarget<'_>) -> Result<()> {
    let EndedTarget { locked: LockedPost { post, .. }, target, end, trace, .. } = ended;
    let (name, data) = match (end.status, &end.error) {
        (TargetStatus::Published, _) => (
            EventName::PostPublished,
            json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
                "platform": target.platform, "external_id": end.external_id, "url": end.url }),
        ),
        (_, error) => (
            EventName::PostFailed,
            json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
                "platform": target.platform,
                "error": error.as_ref().map(|e| json!({ "code": e.code, "message": e.message })) }),
        ),
    };
    events::emit(tx, post.brand_id, name, &data, *trace).await?;
    Ok(())
}

/// Returns the end of a failed target.
pub fn failed(target: &Target, failure: Failure) -> TargetOutcome {
    TargetOutcome {
        status: TargetStatus::Failed,
        external_id: target.external_id.clone(),
        url: target.url.clone(),
        error: Some(failure),
        next_attempt_at: None,
        published_at: None,
        call_open: target.call_started_at.is_some(),
        published_parts: None,
    }
}

/// Fails a target whose run did not end it, because its job is dead (its process was killed repeatedly, or no attempts
/// were left) or because the operator cancelled the job.
pub async fn fail(tx: &mut Tx, target_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some(mut locked) = posts::lock_of_target(tx, target_id).await? else { return Ok(()) };
    // Checked under the lock: its run may have ended during the wait.
    let Some(target) = targets::find_without_json(tx, target_id).await?.filter(|t| !t.status.is_terminal()) else {
        return Ok(());
    };
    if locked.post.status == PostStatus::Scheduled {
        locked.post.move_to(PostStatus::Publishing)?;
        posts::update(tx, &locked.post).await?;
    }
    // Without a look-up, publishing the post again would repeat a call that may have published it.
    let is_unknown = target.call_started_at.is_some() && !target.platform.has_post_lookup();
    let end = failed(&target, if is_unknown { unknown_outcome("published", "publish it again") } else { failure });
    let ended = EndedTarget { locked: &locked, target: &target, end, attempt: None, trace };
    end_targets(tx, &[ended]).await
}

/// Stores why a platform rejected the post of a published target later, and reports it once. It does not lock the post,
/// which the caller's transaction would have to lock before the targets that it has changed.
pub async fn reject_later(tx: &mut Tx, target_id: i64, failure: &Failure, trace: Option<&str>) -> Result<()> {
    if !targets::set_rejection(tx, target_id, failure).await? {
        return Ok(());
    }
    let Some(target) = targets::find_without_json(tx, target_id).await? else { return Ok(()) };
    // Nothing is reported for a post that was deleted in the meantime.
    let Some(post) = posts::find_any(tx, target.post_id).await? else { return Ok(()) };
    let data = json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
        "platform": target.platform, "error": { "code": failure.code, "message": failure.message } });
    events::emit(tx, post.brand_id, EventName::PostRejectedByPlatform, &data, trace).await?;
    notices::add(tx, NoticeKind::PostRejected, post.brand_id, post.id).await
}

/// Hides a post from clients, and cancels the jobs that have not begun. A job after a call with an unknown outcome is
/// kept: it determines the outcome, emits the event, and makes no further call. So is one that hands videos over: it
/// aborts their uploads, and runs now. The caller has locked the post's row.
pub async fn delete(tx: &mut Tx, post_id: i64) -> Result<()> {
    let mut uploading = Vec::new();
    for target in targets::list(tx, post_id).await? {
        if target.call_started_at.is_some() && !target.status.is_terminal() {
            continue;
        }
        if target.status == TargetStatus::Publishing && post_media::has_video_uploads(tx, target.id).await? {
            uploading.push((target.id, tx.now));
            continue;
        }
        jobs::cancel_subject(tx, JobKind::PublishTarget, target.id).await?;
        if target.status == TargetStatus::Pending {
            // A worker that has claimed the job but has not begun finds no target and stops.
            targets::delete(tx, target.id).await?;
        }
    }
    jobs::reschedule_each(tx, JobKind::PublishTarget, &uploading).await?;
    posts::delete(tx, post_id).await
}

/// Makes a target pending again, for a retry by the operator: a failed target, or one that could not be failed when its
/// job became dead. Returns `false` if the target is in another state or was deleted.
pub async fn retry_failed(tx: &mut Tx, target_id: i64) -> Result<bool> {
    let Some(LockedPost { mut post, is_deleted: false }) = posts::lock_of_target(tx, target_id).await? else {
        return Ok(false);
    };
    let may_retry = match targets::find(tx, target_id).await?.map(|target| target.status) {
        Some(TargetStatus::Failed) => post.move_to(PostStatus::Publishing).is_ok(),
        Some(TargetStatus::Publishing) => post.status == PostStatus::Publishing,
        _ => false,
    };
    if !may_retry {
        return Ok(false);
    }
    targets::reset(tx, target_id, false).await?;
    posts::update(tx, &post).await?;
    Ok(true)
}

/// The result of [`retry_post`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RetryPostOutcome {
    /// The number of targets that are published again. Commit the transaction; roll it back in all other cases.
    Started(usize),
    NotFound,
    NothingFailed,
    /// A worker is still processing a target.
    Busy,
    /// The ids of accounts on which the post may already be published; the platform cannot tell.
    OutcomeUnknown(Vec<i64>),
}

/// Publishes the failed targets of a post again, for the operator. Targets with an unknown outcome are allowed only
/// with `outcome_unknown`. `can_reconcile` returns whether the platform can tell that a call has succeeded.
pub async fn retry_post(
    tx: &mut Tx,
    post_id: i64,
    outcome_unknown: bool,
    can_reconcile: impl Fn(Platform) -> bool,
) -> Result<RetryPostOutcome> {
    let Some(LockedPost { mut post, is_deleted: false }) = posts::lock(tx, post_id).await? else {
        return Ok(RetryPostOutcome::NotFound);
    };
    let mut failed = targets::list(tx, post_id).await?;
    failed.retain(Target::is_retried);
    if failed.is_empty() || post.move_to(PostStatus::Publishing).is_err() {
        return Ok(RetryPostOutcome::NothingFailed);
    }
    let unknown: Vec<i64> =
        failed.iter().filter(|target| target.may_be_published()).map(|target| target.account_id).collect();
    if !outcome_unknown && !unknown.is_empty() {
        return Ok(RetryPostOutcome::OutcomeUnknown(unknown));
    }
    for target in &failed {
        targets::reset(tx, target.id, !can_reconcile(target.platform)).await?;
    }
    posts::update(tx, &post).await?;
    let workspace_id = brands::workspace_of(tx, post.brand_id).await?;
    let job = NewJob::new(JobKind::PublishTarget, 0, tx.now);
    let subject = |target: &Target| JobSubject { id: target.id, lane: Lane::Account(target.account_id), workspace_id };
    let subjects: Vec<JobSubject> = failed.iter().map(subject).collect();
    Ok(match jobs::enqueue_each(tx, &job, &subjects).await? {
        enqueued if enqueued == subjects.len() => RetryPostOutcome::Started(enqueued),
        _ => RetryPostOutcome::Busy,
    })
}
