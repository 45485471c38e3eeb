//! The transitions of targets whose post is deleted from its platform, with their event: `published` ─> `unpublishing` ─>
//! `unpublished`, or back to `published` with an error. The status of the post does not change.

use chrono::{DateTime, Utc};
use crier_domain::catalogue;
use crier_domain::event::EventName;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::post::{Post, Target, TargetStatus};
use crier_store::analytics::{self, CollectedMetrics};
use crier_store::jobs::{self, JobSubject};
use crier_store::posts::{self, LockedPost};
use crier_store::targets::{self, unpublishing as rows};
use crier_store::{Result, Tx, events};
use serde_json::json;

/// The state of a target after a run.
#[derive(Clone, Debug)]
pub enum UnpublishOutcome {
    /// The post does not exist on the platform any more.
    Unpublished,
    /// The job is retried.
    Waiting { error: Failure, next_attempt_at: DateTime<Utc> },
    /// The post, or a part of its thread, remains on the platform.
    Failed(Failure),
}

/// Returns why Crier cannot delete the post of a target from its platform. Returns `None` if it can.
pub fn rejection(target: &Target) -> Option<Failure> {
    let descriptor = catalogue::descriptor(target.platform);
    if !descriptor.capabilities.unpublish {
        let message = format!("Crier cannot delete posts from {}. Delete the post there.", descriptor.name);
        return Some(Failure::with_code(Category::PlatformRejected, "not_supported", message));
    }
    let is_unknown = match target.published_parts.as_slice() {
        [] => target.external_id.as_deref().is_none_or(str::is_empty),
        parts => parts.iter().any(|part| !part.is_unpublished && part.external_id.is_empty()),
    };
    let message =
        "The platform did not return the post's ID, so Crier cannot delete the post. Delete it on the platform.";
    is_unknown.then(|| Failure::with_code(Category::PlatformRejected, "external_id_unknown", message))
}

/// Marks published targets of a post whose row is locked, and enqueues the jobs that delete them from their platforms.
/// Returns `false` if a target has another status or an unfinished job. Roll the transaction back in that case.
pub async fn begin(tx: &mut Tx, targets: &[&Target], workspace_id: i64, trace: Option<&str>) -> Result<bool> {
    for target in targets {
        if !rows::begin(tx, target.id).await? {
            return Ok(false);
        }
    }
    let job = NewJob::new(JobKind::UnpublishTarget, 0, tx.now).trace(trace.map(str::to_owned));
    let workspace_id = Some(workspace_id);
    let subject = |target: &&Target| JobSubject { id: target.id, lane: Lane::Account(target.account_id), workspace_id };
    let subjects: Vec<JobSubject> = targets.iter().map(subject).collect();
    Ok(jobs::enqueue_each(tx, &job, &subjects).await? == subjects.len())
}

/// Stores the state of a target after a run, and emits the event. The metrics of an unpublished target are not collected
/// any more. Changes nothing if the target is not being unpublished. The caller has locked the post's row.
pub async fn end(
    tx: &mut Tx,
    post: &Post,
    target: &Target,
    outcome: &UnpublishOutcome,
    trace: Option<&str>,
) -> Result<()> {
    let (status, error, next_attempt_at) = match outcome {
        UnpublishOutcome::Unpublished => (TargetStatus::Unpublished, None, None),
        UnpublishOutcome::Waiting { error, next_attempt_at } => {
            (TargetStatus::Unpublishing, Some(error), Some(*next_attempt_at))
        }
        UnpublishOutcome::Failed(error) => (TargetStatus::Published, Some(error), None),
    };
    if rows::end(tx, target.id, status, error, next_attempt_at).await? && status == TargetStatus::Unpublished {
        let data = json!({ "post_id": post.id, "brand_id": post.brand_id, "social_account_id": target.account_id,
            "platform": target.platform, "external_id": target.external_id, "url": target.url });
        events::emit(tx, post.brand_id, EventName::PostUnpublished, &data, trace).await?;
        // The platform has no more metrics of the post.
        analytics::record_posts(tx, &[CollectedMetrics { target_id: target.id, metrics: None, next_at: None }]).await?;
    }
    Ok(())
}

/// Ends a target whose run did not end it, because its job is dead or the operator cancelled the job.
pub async fn fail(tx: &mut Tx, target_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some(LockedPost { post, .. }) = posts::lock_of_target(tx, target_id).await? else { return Ok(()) };
    let Some(target) = targets::find_without_json(tx, target_id).await? else { return Ok(()) };
    end(tx, &post, &target, &UnpublishOutcome::Failed(failure), trace).await
}

/// Marks a target again, for a retry by the operator. Returns `false` if its post is not on the platform any more, or the
/// target was deleted.
pub async fn retry_failed(tx: &mut Tx, target_id: i64) -> Result<bool> {
    posts::lock_of_target(tx, target_id).await?;
    match targets::find(tx, target_id).await?.map(|target| target.status) {
        Some(TargetStatus::Published) => rows::begin(tx, target_id).await,
        Some(TargetStatus::Unpublishing) => Ok(true),
        _ => Ok(false),
    }
}
