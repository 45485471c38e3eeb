//! Writes a validated change in the request's transaction: `decide` computes what happens to the post and its targets,
//! without input and output, and [`create`] and [`execute`] write that.
//!
//! **To add a way in which a change can end:** its case in `decide`, and what it writes in [`execute`].

use std::collections::{HashMap, HashSet};

use chrono::{DateTime, Utc};
use crier_domain::catalogue::descriptor;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::notice::NoticeKind;
use crier_domain::platform::Platform;
use crier_domain::post::{Post, PostStatus, StoredScheduleType, Target, TargetOverride, TargetStatus};
use crier_store::jobs::{self, JobSubject};
use crier_store::posts::{self, NewPost};
use crier_store::targets::{self, NewTarget};
use crier_store::{Conn, Tx, notices, post_media, post_words, queues, usage};

use crate::check::Accounts;
use crate::desired::{DesiredPost, TargetState, distinct_media};
use crate::{PostContext, PostError, Result, queue};

/// Returns the targets of a post with the state of their jobs. The caller holds the lock on the post's row.
pub async fn load_target_states(cx: &PostContext<'_>, conn: &mut Conn, post_id: i64) -> Result<Vec<TargetState>> {
    let all = targets::list(conn, post_id).await?;
    let ids: Vec<i64> = all.iter().map(|t| t.id).collect();
    let running = jobs::running_among(conn, JobKind::PublishTarget, &ids).await?;
    let state = |target: Target| TargetState {
        running: running.contains(&target.id),
        repeats_call: repeats_call(cx, target.platform),
        target,
    };
    Ok(all.into_iter().map(state).collect())
}

/// Returns whether a retry repeats a call whose outcome is unknown, because the platform cannot tell the outcome.
fn repeats_call(cx: &PostContext<'_>, platform: Platform) -> bool {
    cx.platforms.get(platform).is_some_and(|connector| !connector.can_reconcile())
}

/// Writes a validated new post with its targets, and counts it (402). `draft`: the draft that `desired` is based on.
/// Returns the stored post and its targets.
pub async fn create(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    draft: Post,
    desired: &DesiredPost,
    accounts: &Accounts,
) -> Result<(Post, Vec<Target>)> {
    let decision = decide(&draft, &[], desired, cx.now).map_err(not_editable)?;
    check_role(cx, draft.status, decision.status)?;
    // The target of an account that is disconnected meanwhile fails when it is due, as if it were disconnected later.
    let new_targets = decision.new_targets(accounts)?;
    let mut post = draft;
    decision.apply_to(&mut post, desired, tx.now)?;
    let job = decision.publish_at.map(|at| publish_job(cx, at).workspace(cx.workspace_id));
    // A count without a cap cannot fail, so it is part of the statement.
    let has_cap = cx.posts_per_month.is_some();
    let counted_in = (decision.counts_against_limit && !has_cap).then_some(cx.workspace_id);
    let new = NewPost { post: &post, targets: &new_targets, job: job.as_ref(), counted_in };
    let (post_id, target_ids) = posts::create(tx, new).await?;
    post.id = post_id;
    notify_approvers(tx, &post, PostStatus::Draft).await?;
    if let Some(media) = &decision.media {
        post_media::insert(tx, post.brand_id, post_id, media).await?;
    }
    if decision.queue.takes_places {
        queue::take_places(tx, &post, &desired.account_ids()).await?;
    }
    if decision.counts_against_limit && has_cap {
        count_against_limit(cx, tx).await?;
    }
    let target = |((new, platform), id): (&(&NewTarget, Platform), i64)| {
        Target::new(id, post_id, (new.account_id, *platform), &new.target_override, tx.now)
    };
    let targets = new_targets.iter().zip(target_ids).map(target).collect();
    Ok((post, targets))
}

/// Decides on the steps (409), writes the post, and counts it (402). The caller has locked the post's row. Returns the
/// stored post.
pub async fn execute(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    mut post: Post,
    current: &[TargetState],
    desired: &DesiredPost,
    accounts: &Accounts,
) -> Result<Post> {
    let decision = decide(&post, current, desired, cx.now).map_err(not_editable)?;
    check_role(cx, post.status, decision.status)?;
    if decision.cancel || !decision.remove.is_empty() {
        cancel_jobs(tx, current, &decision).await?;
    }
    write_targets(cx, tx, post.id, &decision, accounts).await?;
    if let Some(media) = &decision.media {
        post_media::set(tx, post.brand_id, post.id, media).await?;
    }
    if desired.content != post.content || desired.thread != post.thread {
        let before = post_words::of(&post.content, &post.thread);
        let after = post_words::of(&desired.content, &desired.thread);
        post_words::replace(tx, post.brand_id, post.id, &before, &after).await?;
    }
    let before = post.status;
    decision.apply_to(&mut post, desired, tx.now)?;
    posts::update(tx, &post).await?;
    if decision.queue.frees_places {
        queues::leave(tx, post.id).await?;
    }
    if decision.queue.takes_places {
        queue::take_places(tx, &post, &desired.account_ids()).await?;
    }
    notify_approvers(tx, &post, before).await?;
    if let Some(at) = decision.publish_at {
        publish(cx, tx, post.id, at).await?;
    }
    if decision.counts_against_limit {
        count_against_limit(cx, tx).await?;
    }
    Ok(post)
}

/// Notifies those who can approve a post that was submitted.
async fn notify_approvers(tx: &mut Tx, post: &Post, before: PostStatus) -> Result<()> {
    if post.status == PostStatus::PendingApproval && before != post.status {
        notices::add(tx, NoticeKind::PostPending, post.brand_id, post.id).await?;
    }
    Ok(())
}

/// Fails if the caller's role does not allow the change. A contributor can change only drafts: if a pending post
/// changed, an approver could approve content that they have not seen.
fn check_role(cx: &PostContext<'_>, from: PostStatus, to: PostStatus) -> Result<()> {
    let is_writing = from == PostStatus::Draft && matches!(to, PostStatus::Draft | PostStatus::PendingApproval);
    if is_writing || cx.role.can_publish() { Ok(()) } else { Err(PostError::ForPublishers) }
}

/// The steps that carry out a change.
#[derive(Clone, Debug, PartialEq)]
struct Decision {
    status: PostStatus,
    schedule_type: StoredScheduleType,
    queue: QueueStep,
    /// Whether the post leaves draft for the first time, so that it counts against the monthly limit.
    counts_against_limit: bool,
    /// Targets whose override or published content changes.
    overrides: Vec<(i64, TargetOverride)>,
    /// Targets to insert.
    insert: Vec<NewTarget>,
    /// Targets to delete.
    remove: Vec<i64>,
    /// Targets whose position changes.
    reposition: Vec<(i64, i32)>,
    /// Failed targets to retry.
    retry_targets: Vec<i64>,
    /// Whether the jobs of all targets are canceled, not only those of the deleted targets.
    cancel: bool,
    /// All images of the post and its overrides, if they change.
    media: Option<Vec<i64>>,
    /// The time of the job that is enqueued for every pending target.
    publish_at: Option<DateTime<Utc>>,
}

/// What happens to the places of the post in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct QueueStep {
    frees_places: bool,
    takes_places: bool,
}

/// The reason why the post's state does not allow the change. The text is returned to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Conflict {
    #[error("A post with the status {0} cannot be scheduled, published or returned to draft this way.")]
    NoSuchTransition(PostStatus),
    #[error("The post is being processed. Check its status, and retry when processing has finished.")]
    Busy,
    #[error(
        "The content for account {0} is published or being published and cannot be changed. Use `overrides` to change \
         the content for the other accounts."
    )]
    Published(i64),
    #[error(
        "The outcome of an earlier attempt on account {0} is unknown, so the content for it cannot be changed. Publish \
         the post again first."
    )]
    UnknownOutcome(i64),
    #[error("The accounts of a post cannot be changed after publishing has begun.")]
    Accounts,
    #[error("The time of a post cannot be changed after publishing has begun.")]
    Time,
}

/// Checks that the post's state allows the change and returns the steps to carry it out.
fn decide(
    post: &Post,
    current: &[TargetState],
    desired: &DesiredPost,
    now: DateTime<Utc>,
) -> std::result::Result<Decision, Conflict> {
    let status = desired.status(post.status).ok_or(Conflict::NoSuchTransition(post.status))?;
    let begun = post.status.has_begun();
    let rescheduled = status != post.status || desired.scheduled_at != post.scheduled_at;
    if begun && status == post.status && desired.scheduled_at != post.scheduled_at {
        return Err(Conflict::Time);
    }
    let mut decision = Decision {
        status,
        // A pending post is scheduled or published by its approval.
        schedule_type: match desired.schedule_type {
            Some(schedule_type) if status != PostStatus::PendingApproval => schedule_type.stored(),
            _ => post.schedule_type,
        },
        queue: QueueStep::default(),
        counts_against_limit: !post.counted && status != PostStatus::Draft,
        overrides: Vec::new(),
        insert: Vec::new(),
        remove: Vec::new(),
        reposition: Vec::new(),
        retry_targets: Vec::new(),
        cancel: false,
        media: None,
        publish_at: None,
    };
    let before: Vec<TargetOverride> = current.iter().map(TargetState::current_override).collect();
    let media = desired.all_media();
    decision.media = (media != distinct_media(&post.media, &post.thread, before.iter())).then_some(media);
    decision.match_targets(post, current, desired)?;
    let other_accounts = !decision.insert.is_empty() || !decision.remove.is_empty();
    if begun && other_accounts {
        return Err(Conflict::Accounts);
    }
    // Before publishing begins, a post changes as a whole: when a worker has started one target, it is too late.
    let changes = rescheduled || other_accounts || !decision.overrides.is_empty();
    if !begun && changes && current.iter().any(TargetState::is_in_flight) {
        return Err(Conflict::Busy);
    }
    decision.cancel = post.status == PostStatus::Scheduled && (rescheduled || other_accounts);
    let is_waiting = post.queued && post.status == PostStatus::Scheduled;
    if rescheduled || other_accounts || desired.queued != post.queued {
        let takes_places = desired.queued && status == PostStatus::Scheduled;
        decision.queue = QueueStep { frees_places: is_waiting, takes_places };
    }
    if begun && status == PostStatus::Publishing && post.status != PostStatus::Publishing {
        let failed = current.iter().filter(|s| s.target.is_retried());
        decision.retry_targets = failed.map(|s| s.target.id).collect();
    }
    decision.publish_at = match status {
        PostStatus::Scheduled if rescheduled || other_accounts => desired.scheduled_at,
        PostStatus::Publishing if rescheduled => Some(now),
        _ => None,
    };
    Ok(decision)
}

impl Decision {
    /// Applies the decision to the post itself.
    fn apply_to(&self, post: &mut Post, desired: &DesiredPost, now: DateTime<Utc>) -> Result<()> {
        if self.status != post.status {
            post.move_to(self.status)?;
        }
        post.content = desired.content.clone();
        post.schedule_type = self.schedule_type;
        post.scheduled_at = desired.scheduled_at;
        post.queued = desired.queued;
        post.media = desired.media.clone();
        post.labels = desired.labels.clone();
        post.thread = desired.thread.clone();
        post.first_comment = desired.first_comment.clone();
        post.counted |= self.counts_against_limit;
        post.updated_at = now;
        Ok(())
    }

    /// Returns the targets to insert, each with the platform of its account.
    fn new_targets(&self, accounts: &Accounts) -> Result<Vec<(&NewTarget, Platform)>> {
        let all = self.insert.iter().map(|new| Some((new, accounts.get(&new.account_id)?.platform)));
        all.collect::<Option<_>>().ok_or_else(|| PostError::Bug("an account that was checked is not known".to_owned()))
    }

    /// Compares the stored targets with the desired ones.
    fn match_targets(
        &mut self,
        post: &Post,
        current: &[TargetState],
        desired: &DesiredPost,
    ) -> std::result::Result<(), Conflict> {
        let before: HashMap<i64, (i32, &TargetState)> =
            (0..).zip(current).map(|(place, s)| (s.target.account_id, (place, s))).collect();
        for (place, target) in (0..).zip(&desired.targets) {
            let Some(&(old_place, existing)) = before.get(&target.account_id) else {
                let (account_id, target_override) = (target.account_id, target.target_override.clone());
                self.insert.push(NewTarget { account_id, position: place, target_override });
                continue;
            };
            if old_place != place {
                self.reposition.push((existing.target.id, place));
            }
            let own = &target.target_override;
            let changes = OutputChanges::of(&existing.target, post, desired, own);
            if changes.conflict_with_state(existing) {
                // A job that runs but has not called the platform yet blocks the whole post.
                let begun = existing.target.status != TargetStatus::Pending
                    || existing.target.call_started_at.is_some()
                    || changes.of_published;
                return Err(if begun { Conflict::Published(target.account_id) } else { Conflict::Busy });
            }
            if changes.of_next_call && existing.has_unknown_call() {
                return Err(Conflict::UnknownOutcome(target.account_id));
            }
            if changes.any || existing.current_override() != *own && !existing.target.status.was_published() {
                self.overrides.push((existing.target.id, own.clone()));
            }
        }
        let kept_accounts: HashSet<i64> = desired.targets.iter().map(|t| t.account_id).collect();
        let removed = current.iter().filter(|s| !kept_accounts.contains(&s.target.account_id));
        self.remove = removed.map(|s| s.target.id).collect();
        Ok(())
    }
}

/// What changes of what is published on an account.
struct OutputChanges {
    /// Whether the text, the images, the options or a part of the thread changes.
    any: bool,
    /// Whether a change concerns the parts of a thread that are published, or ends the thread before one of them.
    of_published: bool,
    /// Whether a change concerns what the next call publishes: the next part of the thread, or, before the first part is
    /// published, the post itself and possibly the whole thread.
    of_next_call: bool,
    /// Whether the first comment changes. It is not published where the platform has no comments.
    of_comment: bool,
}

impl OutputChanges {
    fn of(target: &Target, post: &Post, desired: &DesiredPost, own: &TargetOverride) -> Self {
        let of_first = target.content.as_ref().unwrap_or(&post.content) != desired.content_of(own)
            || target.media.as_ref().unwrap_or(&post.media) != desired.media_of(own)
            || target.options != own.options
            || target.signature != own.signature;
        let (before, after) = (target.thread(post), desired.thread_of(own));
        let published = target.published_parts.len();
        let following = published.saturating_sub(1);
        let of_next_call = match published {
            0 => of_first || before != after,
            _ => before.get(following) != after.get(following),
        };
        Self {
            any: of_first || before != after,
            of_published: published > 0 && (of_first || before.get(..following) != after.get(..following)),
            of_next_call,
            of_comment: descriptor(target.platform).capabilities.first_comment.is_some()
                && target.first_comment(post) != desired.first_comment_of(own),
        }
    }

    /// Returns whether the state of the target does not allow the changes. The comment can change until the target is
    /// published, because it is read then.
    fn conflict_with_state(&self, existing: &TargetState) -> bool {
        let is_published = existing.target.status.was_published();
        self.of_published || self.any && (is_published || existing.is_in_flight()) || self.of_comment && is_published
    }
}

/// Counts a post that leaves draft for the first time.
async fn count_against_limit(cx: &PostContext<'_>, tx: &mut Tx) -> Result<()> {
    let cap = cx.posts_per_month;
    if usage::take_post(tx, cx.workspace_id, cap).await? {
        return Ok(());
    }
    Err(PostError::LimitReached { cap: cap.unwrap_or_default() })
}

/// Cancels the jobs that have not started. Fails if one has started meanwhile.
async fn cancel_jobs(tx: &mut Tx, current: &[TargetState], decision: &Decision) -> Result<()> {
    let to_cancel = current.iter().filter(|s| decision.cancel || decision.remove.contains(&s.target.id));
    for state in to_cancel {
        if jobs::cancel_subject(tx, JobKind::PublishTarget, state.target.id).await? {
            return Err(busy());
        }
    }
    Ok(())
}

fn busy() -> PostError {
    not_editable(Conflict::Busy)
}

fn not_editable(conflict: Conflict) -> PostError {
    PostError::NotEditable(conflict.to_string())
}

async fn write_targets(
    cx: &PostContext<'_>,
    tx: &mut Tx,
    post_id: i64,
    decision: &Decision,
    accounts: &Accounts,
) -> Result<()> {
    for id in &decision.remove {
        targets::delete(tx, *id).await?;
    }
    for (id, place) in &decision.reposition {
        targets::set_position(tx, *id, *place).await?;
    }
    for (id, target_override) in &decision.overrides {
        targets::set_overrides(tx, *id, target_override).await?;
    }
    for id in &decision.retry_targets {
        let target = targets::find(tx, *id).await?;
        targets::reset(tx, *id, target.is_some_and(|t| repeats_call(cx, t.platform))).await?;
    }
    if !decision.insert.is_empty() {
        targets::insert(tx, post_id, &decision.new_targets(accounts)?).await?;
    }
    Ok(())
}

/// Returns the job that publishes a target, without its subject.
fn publish_job(cx: &PostContext<'_>, at: DateTime<Utc>) -> NewJob {
    NewJob::new(JobKind::PublishTarget, 0, at).trace(cx.trace.map(str::to_owned))
}

/// Enqueues a job for every pending target.
pub async fn publish(cx: &PostContext<'_>, tx: &mut Tx, post_id: i64, at: DateTime<Utc>) -> Result<()> {
    let job = publish_job(cx, at);
    let workspace_id = Some(cx.workspace_id);
    let subject = |t: Target| JobSubject { id: t.id, lane: Lane::Account(t.account_id), workspace_id };
    let subjects: Vec<_> = pending(targets::list(tx, post_id).await?).map(subject).collect();
    if jobs::enqueue_each(tx, &job, &subjects).await? < subjects.len() {
        // A worker is still running an earlier, canceled job of a target, so a new job would be lost.
        return Err(busy());
    }
    Ok(())
}

fn pending(all: Vec<Target>) -> impl Iterator<Item = Target> {
    all.into_iter().filter(|t| t.status == TargetStatus::Pending)
}

#[cfg(test)]
mod tests;
