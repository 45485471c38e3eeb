//! `unpublish_target`: deletes the post of one target from its platform.
//!
//! 1. *Prepare*, one transaction under the post's lock: checks that the account can be used, and lists what to delete.
//!    Where replies are posts of their own, the first comment is deleted first, and a thread from its last part to its
//!    first one, so that nothing is left without the post to which it belongs. A comment that cannot be deleted does not
//!    keep the post: on some platforms it is in a place where the account has fewer rights.
//! 2. *Call*, once for each of them. What was deleted of a thread is stored before the next call.
//! 3. *Settle*, in the transaction that settles the job: writes the target, the account, the lane and the event.
//!
//! The status `unpublishing`, which was stored with the job, is the marker of the calls. They can be repeated, because
//! the post of an id can be deleted only once. So a call with an unknown outcome is a temporary failure.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_domain::post::{FirstCommentStatus, Post, StoredFirstComment, Target, TargetStatus};
use crier_jobs::unpublishing;
use crier_platforms::{CallError, ConnectorRegistry, UnpublishPost};
use crier_store::jobs::engine as rows;
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Store, Tx, accounts, first_comments, targets};

use self::run_result::UnpublishRunResult;
use super::account_session::{AccountSession, RefreshError, disconnected, expired, unknown_to_transient};
use super::call_outcome::{self, CallAction, CallOutcome};
use super::{Deps, FinishedRun, Job, RunError, Stop, settle_each};
use crate::engine::Run;

mod run_result;

const ACTION: CallAction = CallAction::Unpublish;
/// A deletion may take several requests, each with the platform's timeout. All of them must end within this many
/// timeouts.
const UNPUBLISH_CALLS: i32 = 2;

pub struct UnpublishTarget {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of all requests of a call.
    timeout: TimeDelta,
}

/// Everything that the calls need.
struct Prepared {
    target: Target,
    session: AccountSession,
}

/// A call to make.
struct Deletion {
    post: UnpublishPost,
    /// Its index in the parts of the target. `None` for a first comment, and for a post without stored parts.
    part: Option<usize>,
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<Box<UnpublishRunResult>>>;

impl UnpublishTarget {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            timeout: deps.platform_timeout * UNPUBLISH_CALLS,
        }
    }

    async fn unpublish(&self, run: &Run) -> Step<Box<UnpublishRunResult>> {
        let (mut p, deletions) = self.prepare(run).await?;
        for deletion in deletions {
            self.check_lease(run).await?;
            self.delete(run, &mut p, &deletion.post).await?;
            if let Some(part) = deletion.part {
                self.store_progress(run, &mut p, part).await?;
            }
        }
        Ok(Box::new(UnpublishRunResult::of(&p, None)))
    }

    /// Decides what to delete.
    async fn prepare(&self, run: &Run) -> Step<(Prepared, Vec<Deletion>)> {
        let id = run.job.subject_id;
        let mut tx = self.store.begin().await?;
        let Some(LockedPost { post, .. }) = posts::lock_of_target(&mut tx, id).await? else {
            return Err(RunError::cancelled("the post no longer exists").into());
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        let found = targets::find(&mut tx, id).await?.filter(|target| target.status == TargetStatus::Unpublishing);
        let target = found.ok_or_else(|| RunError::cancelled("the post is not being unpublished"))?;
        let comment = first_comments::find(&mut tx, id).await?;
        let session = self.session(&mut tx, &post, &target).await?;
        tx.commit().await?;
        let prepared = session.and_then(|session| {
            let has_threads = session.descriptor().capabilities.thread.is_some();
            // Elsewhere, the platform deletes the comments of a post with it.
            let deletions = deletions(&target, comment.as_ref().filter(|_| has_threads))?;
            Ok((session, deletions))
        });
        match prepared {
            Ok((session, deletions)) => Ok((Prepared { target, session }, deletions)),
            Err(outcome) => Err(Stop::Ended(Box::new(UnpublishRunResult::without_call(target, outcome)))),
        }
    }

    /// Returns the access to the account of a target, or why it cannot be called.
    async fn session(
        &self,
        tx: &mut Tx,
        post: &Post,
        target: &Target,
    ) -> Result<std::result::Result<AccountSession, CallOutcome>> {
        let pair = (post.brand_id, target.account_id);
        let mut found = accounts::of_brands_with_secrets(tx, self.store.cipher(), &[pair]).await?;
        let Some((account, secrets)) = found.remove(&pair) else {
            return Ok(Err(CallOutcome::Failed(disconnected())));
        };
        if account.status == AccountStatus::Expired {
            let message = "The account's access has expired. Refresh or reconnect it, then unpublish the post again.";
            return Ok(Err(CallOutcome::Failed(expired(message))));
        }
        let Some(connector) = self.platforms.get(account.platform) else {
            let message = format!("{} is not configured on this installation.", account.platform);
            let failure = Failure::with_code(Category::Account, "platform_not_configured", message);
            return Ok(Err(CallOutcome::Failed(failure)));
        };
        Ok(Ok(AccountSession::new(&self.store, account, &secrets, connector, self.timeout)))
    }

    /// Calls the platform. Retries once after refreshing an expired access token.
    async fn delete(&self, run: &Run, p: &mut Prepared, post: &UnpublishPost) -> Step<()> {
        let deadline = self.timeout.to_std().unwrap_or_default();
        loop {
            let call = p.session.connector.unpublish(&p.session.connector_account, post);
            // A run that is aborted meanwhile is released, because the call can be repeated.
            let result = run.wait_without_slot(tokio::time::timeout(deadline, call)).await;
            let result = result.unwrap_or_else(|_| Err(CallError::network("The platform did not respond in time.")));
            match result {
                Ok(()) => return Ok(()),
                Err(CallError::AuthExpired(failure)) => self.refresh(run, p, failure).await?,
                Err(error @ CallError::Permanent(_)) if post.is_comment => {
                    tracing::info!(target_id = p.target.id, %error, "failed to delete a first comment");
                    return Ok(());
                }
                Err(error) => return Err(stop(p, error)),
            }
        }
    }

    async fn refresh(&self, run: &Run, p: &mut Prepared, rejection: Failure) -> Step<()> {
        p.session.refresh(run, rejection).await.map_err(|error| match error {
            RefreshError::Database(error) => Stop::from(error),
            RefreshError::Call(error) => stop(p, error),
        })
    }

    /// Stops if the lease was lost: the result of another run may be that the post remains.
    async fn check_lease(&self, run: &Run) -> Step<()> {
        let mut tx = self.store.begin().await?;
        let is_held = rows::still_held(&mut tx, &run.job).await?;
        tx.rollback().await?;
        if is_held { Ok(()) } else { Err(RunError::lease_lost().into()) }
    }

    /// Stores that a part of the thread is deleted. Stops if the lease was lost.
    async fn store_progress(&self, run: &Run, p: &mut Prepared, part: usize) -> Step<()> {
        if let Some(part) = p.target.published_parts.get_mut(part) {
            part.is_unpublished = true;
        }
        let mut tx = self.store.begin().await?;
        posts::lock_of_target(&mut tx, p.target.id).await?;
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost().into());
        }
        targets::unpublishing::set_parts(&mut tx, p.target.id, &p.target.published_parts).await?;
        Ok(tx.commit().await?)
    }
}

/// Returns the calls to make, in their order.
fn deletions(target: &Target, comment: Option<&StoredFirstComment>) -> std::result::Result<Vec<Deletion>, CallOutcome> {
    if let Some(failure) = unpublishing::rejection(target) {
        return Err(CallOutcome::Failed(failure));
    }
    let mut deletions = Vec::from_iter(comment.map(|comment| of_comment(target, comment)).transpose()?.flatten());
    if target.published_parts.is_empty() {
        deletions.push(Deletion { post: whole_post(target), part: None });
    }
    let last = target.published_parts.len().saturating_sub(1);
    for (index, part) in target.published_parts.iter().enumerate().rev().filter(|(_, part)| !part.is_unpublished) {
        let post = UnpublishPost {
            external_id: part.external_id.clone(),
            url: part.url.clone(),
            other_ids: part.other_ids.clone(),
            published_at: part.published_at,
            marker: target.marker.clone().filter(|_| index == last),
            ..whole_post(target)
        };
        deletions.push(Deletion { post, part: Some(index) });
    }
    Ok(deletions)
}

/// Returns the post of a target without stored parts.
fn whole_post(target: &Target) -> UnpublishPost {
    UnpublishPost {
        external_id: target.external_id.clone().unwrap_or_default(),
        url: target.url.clone(),
        is_comment: false,
        other_ids: Vec::new(),
        published_at: target.published_at.unwrap_or(target.updated_at),
        marker: target.marker.clone(),
        options: target.options.clone(),
    }
}

/// Returns the call that deletes a first comment, if its id is known. Fails if it is being
/// published.
fn of_comment(target: &Target, comment: &StoredFirstComment) -> std::result::Result<Option<Deletion>, CallOutcome> {
    if comment.status == FirstCommentStatus::Pending && comment.call_started_at.is_some() {
        let failure = Failure::of(Category::PlatformError, "The first comment of this post is being published.");
        return Err(CallOutcome::Retry { at: None, failure, open: false });
    }
    let id = comment.external_id.clone().filter(|id| !id.is_empty());
    Ok(id.map(|external_id| Deletion {
        post: UnpublishPost {
            external_id,
            url: comment.url.clone(),
            is_comment: true,
            published_at: comment.published_at.unwrap_or(comment.updated_at),
            marker: comment.marker.clone(),
            ..whole_post(target)
        },
        part: None,
    }))
}

/// Returns the stop for a platform's error.
fn stop(p: &Prepared, error: CallError) -> Stop<Box<UnpublishRunResult>> {
    let outcome = CallOutcome::of(ACTION, unknown_to_transient(error), false, false);
    Stop::Ended(Box::new(UnpublishRunResult::of(p, Some(outcome))))
}

#[async_trait]
impl Job for UnpublishTarget {
    type Result = UnpublishRunResult;

    /// A result locks a post, and then its account or its metrics. Several results would lock them in different orders.
    const SETTLES_TOGETHER: usize = 1;

    async fn run(&self, run: &Run) -> std::result::Result<UnpublishRunResult, RunError> {
        match self.unpublish(run).await {
            Ok(result) | Err(Stop::Ended(result)) => Ok(*result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, UnpublishRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        call_outcome::pause(attempt, crier_base::random::unit())
    }
}
