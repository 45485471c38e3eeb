//! Before the call: checks whether to make it, and stores what must be stored first.

use std::sync::Arc;

use async_trait::async_trait;
use crier_common::domain::account::{AccountStatus, SocialAccount};
use crier_common::domain::failure::{Category, Failure};
use crier_common::domain::job::{Claimed, Outcome};
use crier_common::domain::post::{Post, PostStatus, Target};
use crier_common::platforms::{Connector, ConnectorAccount, MarkerSeed, OutgoingPost};
use crier_common::store::jobs::holds;
use crier_common::store::{self, StoreError, Tx, accounts, media, post_media, posts, targets};
use secrecy::SecretString;
use serde_json::{Map, Value};

use super::ending::{PublishEnd, PublishOutcome};
use super::{Prepared, PublishTarget, Step, Stop, disconnected, expired, pictures};
use crate::engine::Run;
use crate::jobs::RunResult;

/// An account, its credentials and its connector.
type AccountAccess = (SocialAccount, SecretString, Arc<dyn Connector>);

impl PublishTarget {
    /// Decides whether to call the platform, and stores the start of the run.
    pub(super) async fn prepare(&self, run: &Run) -> Step<Prepared> {
        let _turn = run.acquire_turn().await;
        let mut tx = self.store.begin().await?;
        let (mut post, deleted, mut target) = lock_due(&mut tx, &run.job).await?;
        let has_open_call = target.call_started_at.is_some();
        target.attempts += 1;
        if post.status == PostStatus::Scheduled {
            post.move_to(PostStatus::Publishing).map_err(StoreError::from)?;
            posts::update(&mut tx, &post).await?;
        }
        let media_ids = target.media.as_ref().unwrap_or(&post.media);
        let assets = pictures::in_order(media::find_many(&mut tx, post.brand_id, media_ids).await?, media_ids);
        let missed = self.check_missed(&mut tx, &run.job, deleted).await?;
        let cipher = self.store.cipher();
        let account = accounts::of_brand_with_secrets(&mut tx, cipher, post.brand_id, target.account_id).await?;
        let access = self.check_account(account);
        let (assets, skip_reason) = match assets {
            Ok(assets) => (assets, missed),
            Err(gone) => (Vec::new(), missed.or(Some(gone))),
        };
        let (account, secrets, connector) = match check_call(access, skip_reason.as_ref(), has_open_call) {
            Ok(access) => access,
            Err(outcome) => return Err(self.end_without_call(tx, target, outcome).await?),
        };
        // Everything that may fail comes before the call is marked as started.
        let call = ConnectorAccount::stored(&account, &secrets)?;
        let uploads = if assets.is_empty() { Map::new() } else { post_media::uploads(&mut tx, target.id).await? };
        let outgoing = OutgoingPost {
            target_id: target.id,
            text: target.content.clone().unwrap_or(post.content),
            images: assets.iter().map(|asset| self.image(asset, &uploads)).collect(),
            options: target.options.clone(),
            marker: target.marker.clone().unwrap_or_else(|| {
                connector.marker(MarkerSeed { target_id: target.id, at: tx.now, random: crier_common::random::u64() })
            }),
            attempt: u32::try_from(target.attempts).unwrap_or(1),
            has_earlier_attempt: target.marker.is_some(),
        };
        // Pictures come before the call: it starts once the platform has them.
        let begins = !outgoing.images.iter().any(|image| pictures::is_wanted(connector.image_transfer(), image));
        self.start(run, tx, &mut target, &outgoing.marker, begins).await?;
        Ok(Prepared {
            target,
            started_at: self.store.now(),
            account,
            connector,
            call,
            outgoing,
            assets,
            share: None,
            has_open_call,
            skip_reason,
            refreshed: false,
        })
    }
}

/// Locks the post and reads the target that the job is to publish; stops if there is nothing to publish now.
async fn lock_due(tx: &mut Tx, job: &Claimed) -> Step<(Post, bool, Target)> {
    let Some((post, deleted)) = posts::lock_of_target(tx, job.subject_id).await? else {
        return Err(Stop::Skipped("the post is gone"));
    };
    // Now under the post's lock: read the current target, and check that the lease is still ours.
    let Some((target, held)) = targets::find_held(tx, job).await? else {
        return Err(Stop::Skipped("the target is gone"));
    };
    if !held {
        return Err(Stop::LeaseLost);
    }
    if target.status.is_terminal() || !is_due(&post, job) {
        return Err(Stop::Skipped("the post is not to be published now"));
    }
    // An earlier run may have published it: reconcile all the same, because its event is still missing.
    if deleted && target.call_started_at.is_none() {
        return Err(Stop::Skipped("the post was deleted"));
    }
    Ok((post, deleted, target))
}

/// Returns whether this job should publish the post: a post that was moved to a later time after the job was claimed
/// waits for that time.
fn is_due(post: &Post, job: &Claimed) -> bool {
    match post.status {
        PostStatus::Publishing => true,
        PostStatus::Scheduled => post.scheduled_at.is_none_or(|at| at <= job.run_at),
        _ => false,
    }
}

impl PublishTarget {
    /// Returns why the post must not be published any more.
    async fn check_missed(&self, tx: &mut Tx, job: &Claimed, deleted: bool) -> Step<Option<Failure>> {
        if deleted {
            return Ok(Some(super::deleted()));
        }
        if tx.now - job.run_at <= self.latest_publish || holds::lateness(tx, job).await? <= self.latest_publish {
            return Ok(None);
        }
        Ok(Some(Failure::of(
            Category::Missed,
            "Its time passed while the service was not running, too long ago to publish it now. Publish it again if it still fits.",
        )))
    }

    /// Returns the access to an account of the brand, or why it cannot be called.
    fn check_account(&self, found: Option<(SocialAccount, SecretString)>) -> Result<AccountAccess, Failure> {
        let (account, secrets) = found.ok_or_else(disconnected)?;
        if account.status == AccountStatus::Expired {
            return Err(expired(
                "The account's access has expired. Refresh or reconnect it, then publish the post again.",
            ));
        }
        match self.platforms.get(account.platform) {
            Some(connector) => Ok((account, secrets, connector)),
            None => Err(Failure::with_code(
                Category::Account,
                "platform_not_configured",
                format!("{} is not configured on this installation.", account.platform),
            )),
        }
    }

    /// Records the attempt of a run that ends without a call.
    async fn end_without_call(&self, mut tx: Tx, target: Target, outcome: PublishOutcome) -> Step<Stop> {
        targets::start(&mut tx, target.id).await?;
        tx.commit().await?;
        Ok(Stop::Ended(Box::new(PublishEnd::without_call(target, outcome, self.store.now()))))
    }

    /// Stores the start of the run, and of the call if that `begins` now.
    async fn start(
        &self,
        run: &Run,
        mut tx: Tx,
        target: &mut Target,
        marker: &Map<String, Value>,
        begins: bool,
    ) -> Step<()> {
        if target.call_started_at.is_some() {
            targets::start(&mut tx, target.id).await?;
        } else {
            tx = self.check_daily_cap(tx, target, begins).await?;
            if begins {
                targets::start_call(&mut tx, target.id, marker).await?;
                target.call_started_at = Some(tx.now);
                run.set_marked();
            } else {
                targets::start_marked(&mut tx, target.id, marker).await?;
            }
        }
        tx.commit().await?;
        run.set_counted();
        Ok(())
    }
}

/// Returns the access to the account if it is to be called, else the outcome of the run. A post that must not be
/// published is called for as well if an earlier call is open: that one may have published it.
fn check_call(
    access: Result<AccountAccess, Failure>,
    skip_reason: Option<&Failure>,
    has_open_call: bool,
) -> Result<AccountAccess, PublishOutcome> {
    match (access, skip_reason) {
        (Ok(access), None) => Ok(access),
        (Ok(access), Some(_)) if has_open_call => Ok(access),
        (Err(failure), _) if has_open_call => Err(PublishOutcome::unknown_without_account(&failure)),
        (_, Some(failure)) => Err(PublishOutcome::Failed(failure.clone())),
        (Err(failure), None) => Err(PublishOutcome::Failed(failure)),
    }
}

/// A run that found nothing to do. If a user schedules the post (again) meanwhile, no job is enqueued, because this one
/// has not ended; so `write` checks again, under the post's lock.
pub(super) struct SkippedRun {
    pub why: &'static str,
}

#[async_trait]
impl RunResult for SkippedRun {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> store::Result<Outcome> {
        let cancelled = Outcome::Cancelled(self.why.to_owned());
        let Some((post, false)) = posts::lock_of_target(tx, job.subject_id).await? else { return Ok(cancelled) };
        let Some(target) = targets::find(tx, job.subject_id).await? else { return Ok(cancelled) };
        let at = match post.status {
            PostStatus::Scheduled => post.scheduled_at,
            PostStatus::Publishing => None,
            _ => return Ok(cancelled),
        };
        if target.status.is_terminal() {
            return Ok(cancelled);
        }
        Ok(Outcome::RetryAt(at.unwrap_or(tx.now).max(tx.now), "the post's time was changed".to_owned()))
    }
}
