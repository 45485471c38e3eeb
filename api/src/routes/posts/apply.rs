//! Carries out the decisions of `edit.rs` in the request's transaction.

use std::collections::HashMap;

use crier_common::domain::account::SocialAccount;
use crier_common::domain::job::{JobKind, Lane, NewJob};
use crier_common::domain::media::Asset;
use crier_common::domain::platform::Platform;
use crier_common::domain::post::{Post, Target, TargetStatus};
use crier_common::store::jobs::JobSubject;
use crier_common::store::targets::NewTarget;
use crier_common::store::{Conn, Tx, accounts, jobs, media, post_media, posts, targets, usage};

use super::check::{self, LookupContext};
use super::edit::{self, Decision, DesiredPost, PostChange, TargetState};
use crate::context::Context;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{PatchField, Problems};

/// Returns the targets of a post with the state of their jobs. The caller holds the lock on the post's row.
pub async fn load_target_states(conn: &mut Conn, post_id: i64) -> Result<Vec<TargetState>> {
    let all = targets::list(conn, post_id).await?;
    let ids: Vec<i64> = all.iter().map(|t| t.id).collect();
    let running = jobs::running_among(conn, JobKind::PublishTarget, &ids).await?;
    Ok(all.into_iter().map(|target| TargetState { running: running.contains(&target.id), target }).collect())
}

/// Locks and returns the post in the path; 404 if it does not exist.
pub async fn lock(cx: &Context, tx: &mut Tx) -> Result<Post> {
    let found = posts::find_for_update(tx, cx.brand()?.id, cx.id("post")?).await?;
    found.ok_or_else(|| ApiError::not_found("post"))
}

/// The accounts and assets of the brand that a post refers to.
pub struct ReferencedRecords {
    accounts: Vec<SocialAccount>,
    assets: Vec<Asset>,
}

impl ReferencedRecords {
    pub async fn find(cx: &Context, conn: &mut Conn, wanted: &DesiredPost, change: &PostChange) -> Result<Self> {
        let brand = cx.brand()?.id;
        let ids: Vec<i64> = wanted.targets.iter().map(|t| t.account_id).collect();
        Ok(Self {
            accounts: accounts::find_many(conn, brand, &ids).await?,
            assets: media::find_many(conn, brand, &referenced_media(wanted, change)).await?,
        })
    }

    pub fn lookup_context<'a>(&'a self, cx: &'a Context) -> LookupContext<'a> {
        LookupContext {
            accounts: self.accounts.iter().map(|account| (account.id, account)).collect(),
            assets: self.assets.iter().map(|asset| (asset.id, asset)).collect(),
            now: cx.now,
        }
    }
}

/// Returns all pictures of the resulting post and of the request.
fn referenced_media(wanted: &DesiredPost, change: &PostChange) -> Vec<i64> {
    let mut ids = wanted.all_media();
    if let PatchField::Value(list) = &change.overrides {
        ids.extend(list.iter().flat_map(|entry| entry.media.iter().flatten()));
        ids.sort_unstable();
        ids.dedup();
    }
    ids
}

/// Validates the resulting post; fails with 422 and all problems.
pub async fn validate(
    cx: &Context,
    tx: &mut Tx,
    post: &Post,
    wanted: &DesiredPost,
    change: &PostChange,
    problems: Problems,
) -> Result<()> {
    validate_into(cx, tx, post, wanted, change, problems).await?.into_result()
}

/// Validates the resulting post and adds its problems to `problems`. Locks the pictures, so that they are not deleted
/// before the commit.
pub async fn validate_into(
    cx: &Context,
    tx: &mut Tx,
    post: &Post,
    wanted: &DesiredPost,
    change: &PostChange,
    problems: Problems,
) -> Result<Problems> {
    post_media::lock_media(tx, cx.brand()?.id, &referenced_media(wanted, change)).await?;
    let records = ReferencedRecords::find(cx, tx, wanted, change).await?;
    check::check(post, wanted, change, &records.lookup_context(cx), &problems);
    Ok(problems)
}

/// Decides (409), counts (402), and writes. The row of `post` must exist, even for a new post. Returns the stored post.
pub async fn execute(
    cx: &Context,
    tx: &mut Tx,
    mut post: Post,
    current: &[TargetState],
    wanted: &DesiredPost,
) -> Result<Post> {
    let decision = edit::decide(&post, current, wanted, cx.now)
        .map_err(|conflict| ApiError::new(ErrorCode::PostNotEditable, conflict.to_string()))?;
    if decision.counts_against_limit {
        count_against_limit(cx, tx).await?;
    }
    if decision.cancel || !decision.remove.is_empty() {
        cancel_jobs(tx, current, &decision).await?;
    }
    write_targets(cx, tx, post.id, &decision).await?;
    if let Some(media) = &decision.media {
        post_media::set(tx, post.brand_id, post.id, media).await?;
    }
    if decision.status != post.status {
        post.move_to(decision.status)?;
    }
    let post = Post {
        content: wanted.content.clone(),
        schedule_type: decision.schedule_type,
        scheduled_at: wanted.scheduled_at,
        media: wanted.media.clone(),
        counted: post.counted || decision.counts_against_limit,
        updated_at: tx.now,
        ..post
    };
    posts::update(tx, &post).await?;
    if let Some(at) = decision.publish_at {
        publish(cx, tx, post.id, at).await?;
    }
    Ok(post)
}

/// Counts a post that leaves draft for the first time.
pub async fn count_against_limit(cx: &Context, tx: &mut Tx) -> Result<()> {
    let cap = cx.plan.posts_per_month;
    if usage::take_post(tx, cx.caller.workspace_id, cap).await? {
        return Ok(());
    }
    Err(ApiError::limit_reached("posts a month", cap.unwrap_or_default()))
}

/// Cancels the jobs that have not started; fails if one has started meanwhile.
async fn cancel_jobs(tx: &mut Tx, current: &[TargetState], decision: &Decision) -> Result<()> {
    let to_cancel = current.iter().filter(|s| decision.cancel || decision.remove.contains(&s.target.id));
    for state in to_cancel {
        if jobs::cancel_subject(tx, JobKind::PublishTarget, state.target.id).await? {
            return Err(busy());
        }
    }
    Ok(())
}

fn busy() -> ApiError {
    ApiError::new(ErrorCode::PostNotEditable, edit::Conflict::Busy.to_string())
}

async fn write_targets(cx: &Context, tx: &mut Tx, post_id: i64, decision: &Decision) -> Result<()> {
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
        let connector = target.and_then(|t| cx.app.platforms.get(t.platform));
        targets::reset(tx, *id, connector.is_some_and(|c| !c.can_reconcile())).await?;
    }
    if decision.insert.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = decision.insert.iter().map(|(id, ..)| *id).collect();
    let found = accounts::find_many(tx, cx.brand()?.id, &ids).await?;
    let platforms: HashMap<i64, Platform> = found.iter().map(|account| (account.id, account.platform)).collect();
    let mut new = Vec::with_capacity(decision.insert.len());
    for (account_id, position, target_override) in &decision.insert {
        let platform = platforms.get(account_id).copied();
        let platform = platform.ok_or_else(|| ApiError::bug("an account that was checked is gone"))?;
        new.push(NewTarget { account_id: *account_id, platform, position: *position, target_override });
    }
    targets::insert(tx, post_id, &new).await?;
    Ok(())
}

/// Enqueues a job for every pending target.
pub async fn publish(cx: &Context, tx: &mut Tx, post_id: i64, at: chrono::DateTime<chrono::Utc>) -> Result<()> {
    let job = NewJob::new(JobKind::PublishTarget, 0, at).trace(cx.trace().map(str::to_owned));
    let workspace_id = Some(cx.caller.workspace_id);
    let subject = |t: Target| JobSubject { id: t.id, lane: Lane::Account(t.account_id), workspace_id };
    let subjects: Vec<_> = pending(targets::list(tx, post_id).await?).map(subject).collect();
    if jobs::enqueue_each(tx, &job, &subjects).await? < subjects.len() {
        // A worker still runs an earlier, cancelled job of a target: a new job would be lost behind it.
        return Err(busy());
    }
    Ok(())
}

fn pending(all: Vec<Target>) -> impl Iterator<Item = Target> {
    all.into_iter().filter(|t| t.status == TargetStatus::Pending)
}
