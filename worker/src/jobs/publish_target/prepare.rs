//! Before the call: checks whether to make it, and stores what must be stored first.

use async_trait::async_trait;
use crier_common::domain::account::{AccountStatus, SocialAccount};
use crier_common::domain::failure::{Category, Failure};
use crier_common::domain::job::{Claimed, Outcome};
use crier_common::domain::post::{Post, PostStatus, Target};
use crier_common::platforms::{Connector, ConnectorAccount, Image, MarkerSeed, OutgoingPost};
use crier_common::store::jobs::{engine as rows, holds};
use crier_common::store::{Result, Tx, accounts, post_media, posts, targets};
use secrecy::SecretString;
use serde_json::Map;
use std::sync::Arc;

use super::ending::{PublishEnd, PublishOutcome};
use super::{Preparation, Prepared, PublishTarget, disconnected, expired, lease_lost, pictures};
use crate::engine::Run;
use crate::jobs::RunResult;

type AccountAccess = (SocialAccount, SecretString, Arc<dyn Connector>);

impl PublishTarget {
    pub(super) async fn prepare(&self, run: &Run) -> Result<Preparation> {
        let not_wanted = |why| Ok(Preparation::Stop(Box::new(SkippedRun { why })));
        let _turn = run.acquire_turn().await;
        let mut tx = self.store.begin().await?;
        let Some((post, deleted)) = posts::lock_of_target(&mut tx, run.job.subject_id).await? else {
            return not_wanted("the post is gone");
        };
        // Now under the post's lock: read the current target, and check that the lease is still ours.
        let Some(mut target) = targets::find(&mut tx, run.job.subject_id).await? else {
            return not_wanted("the target is gone");
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Ok(Preparation::Stop(lease_lost()));
        }
        let open = target.call_started_at.is_some();
        if target.status.is_terminal() || !is_due(&post, &run.job) {
            return not_wanted("the post is not to be published now");
        }
        // An earlier run may have published it: reconcile all the same, because its event is still missing.
        if deleted && !open {
            return not_wanted("the post was deleted");
        }
        target.attempts += 1;
        if post.status == PostStatus::Scheduled {
            posts::update(&mut tx, &Post { status: PostStatus::Publishing, ..post.clone() }).await?;
        }
        let (assets, gone) = match pictures::load_assets(&mut tx, &post, &target).await? {
            Ok(assets) => (assets, None),
            Err(failure) => (Vec::new(), Some(failure)),
        };
        let unwanted = self.check_missed(run, deleted, &mut tx).await?.or(gone);
        let (account, secrets, connector) = match (self.load_account_access(&mut tx, &post, &target).await?, &unwanted)
        {
            (Ok(fit), None) => fit,
            (Ok(fit), Some(_)) if open => fit,
            (Ok(_), Some(failure)) => {
                return self.end_without_call(tx, target, PublishOutcome::failed(failure.clone())).await;
            }
            (Err(failure), _) if open => {
                return self.end_without_call(tx, target, PublishOutcome::unknown_without_account(&failure)).await;
            }
            (Err(failure), _) => {
                return self.end_without_call(tx, target, PublishOutcome::failed(unwanted.unwrap_or(failure))).await;
            }
        };
        // Everything that may fail comes before the call is marked as started.
        let call = ConnectorAccount::stored(&account, &secrets)?;
        let marker = target.marker.clone().unwrap_or_else(|| {
            connector.marker(MarkerSeed { target_id: target.id, at: tx.now, random: crier_common::random::u64() })
        });
        let uploads = if assets.is_empty() { Map::new() } else { post_media::uploads(&mut tx, target.id).await? };
        let images: Vec<Image> = assets.iter().map(|asset| self.image(asset, &uploads)).collect();
        // Pictures come before the call: it starts once the platform has them.
        let begins = !images.iter().any(|image| pictures::is_wanted(connector.image_transfer(), image));
        if open {
            targets::start(&mut tx, target.id).await?;
        } else if let Some(ending) = self.postpone_if_over_cap(&mut tx, &target, begins).await? {
            tx.commit().await?;
            return Ok(Preparation::Stop(ending));
        } else if begins {
            targets::start_call(&mut tx, target.id, &marker).await?;
            target.call_started_at = Some(tx.now);
            run.set_marked();
        } else {
            targets::start_marked(&mut tx, target.id, &marker).await?;
        }
        tx.commit().await?;
        run.set_counted();
        let outgoing = OutgoingPost {
            target_id: target.id,
            text: target.content.clone().unwrap_or(post.content),
            images,
            options: target.options.clone(),
            marker,
            attempt: u32::try_from(target.attempts).unwrap_or(1),
            has_earlier_attempt: target.marker.is_some(),
        };
        Ok(Preparation::Ready(Box::new(Prepared {
            target,
            account,
            connector,
            call,
            outgoing,
            assets,
            share: None,
            has_open_call: open,
            skip_reason: unwanted,
            refreshed: false,
        })))
    }

    /// Records the attempt, and ends the run without a call.
    async fn end_without_call(&self, mut tx: Tx, target: Target, how: PublishOutcome) -> Result<Preparation> {
        targets::start(&mut tx, target.id).await?;
        tx.commit().await?;
        Ok(Preparation::Stop(Box::new(PublishEnd::without_call(target, how, self.store.now()))))
    }

    /// Returns why the post must not be published any more.
    async fn check_missed(&self, run: &Run, deleted: bool, tx: &mut Tx) -> Result<Option<Failure>> {
        if deleted {
            return Ok(Some(super::deleted()));
        }
        if tx.now - run.job.run_at <= self.latest_publish || holds::lateness(tx, &run.job).await? <= self.latest_publish
        {
            return Ok(None);
        }
        Ok(Some(Failure::of(
            Category::Missed,
            "Its time passed while the service was not running, too long ago to publish it now. Publish it again if it still fits.",
        )))
    }

    /// Returns the account, its credentials and its connector, or why the account cannot be called.
    async fn load_account_access(
        &self,
        tx: &mut Tx,
        post: &Post,
        target: &Target,
    ) -> Result<std::result::Result<AccountAccess, Failure>> {
        let attached = accounts::is_attached(tx, post.brand_id, target.account_id).await?;
        let found = accounts::with_secrets(tx, self.store.cipher(), target.account_id).await?;
        let Some((account, secrets)) = found.filter(|_| attached) else { return Ok(Err(disconnected())) };
        if account.status == AccountStatus::Expired {
            return Ok(Err(expired(
                "The account's access has expired. Refresh or reconnect it, then publish the post again.",
            )));
        }
        let Some(connector) = self.platforms.get(account.platform) else {
            return Ok(Err(Failure::with_code(
                Category::Account,
                "platform_not_configured",
                format!("{} is not configured on this installation.", account.platform),
            )));
        };
        Ok(Ok((account, secrets, connector)))
    }
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

/// A run that found nothing to do. If a user schedules the post (again) meanwhile, no job is enqueued, because this one
/// has not ended; so `write` checks again, under the post's lock.
struct SkippedRun {
    why: &'static str,
}

#[async_trait]
impl RunResult for SkippedRun {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
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
