//! `publish_target`: one post on one account, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock: is it still wanted, is the account fit, and then the marker and the
//!    time the call begins, stored before it is made.
//! 2. *Call.* Where an earlier call's end is not known (its process died, the connection broke), the platform is asked
//!    first: found, it is done; not there, and the earlier call's time is over, it is called again; where the platform
//!    cannot tell, the target ends `outcome_unknown` and a person decides.
//! 3. *End*, in the transaction that settles the job: target, attempt, post, account, lane, event.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_common::domain::account::{AccountStatus, SocialAccount};
use crier_common::domain::failure::{Category, Failure};
use crier_common::domain::job::{Kind, Outcome};
use crier_common::domain::post::{Post, PostStatus, Target};
use crier_common::platforms::{
    Account, CallError, Connector, MarkerSeed, Outgoing, Published, Reconciled, Registry, Secrets,
};
use crier_common::store::jobs::engine as rows;
use crier_common::store::{Result, Store, StoreError, Tx, accounts, posts, targets};
use secrecy::{ExposeSecret, SecretString};

use self::ending::{Ended, How};
use super::{Deps, Ending, Job};
use crate::engine::Run;

mod ending;

/// A publish may be several requests (pictures, look-ups), each with the platform's time-out; all of them within so many.
const PUBLISH_CALLS: i32 = 2;

pub struct PublishTarget {
    store: Store,
    platforms: Arc<Registry>,
    latest_publish: TimeDelta,
    /// The longest that a whole publish takes: what is not there after that never will be.
    publish_timeout: TimeDelta,
}

/// Everything that the call needs.
struct Prepared {
    target: Target,
    account: SocialAccount,
    connector: Arc<dyn Connector>,
    call: Account,
    outgoing: Outgoing,
    /// When an earlier call began whose end is not known.
    open_since: Option<DateTime<Utc>>,
}

enum Preparation {
    Go(Box<Prepared>),
    /// Nothing to be called: ended in the transaction that settles.
    Stop(Box<dyn Ending>),
}

impl PublishTarget {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            latest_publish: deps.latest_publish,
            publish_timeout: deps.platform_timeout * PUBLISH_CALLS,
        }
    }

    async fn prepare(&self, run: &Run) -> Result<Preparation> {
        let cancelled = |why: &str| Ok(Preparation::Stop(Box::new(Outcome::Cancelled(why.to_owned()))));
        let mut tx = self.store.begin().await?;
        let Some(target) = targets::find(&mut tx, run.job.subject_id).await? else {
            return cancelled("the target is gone");
        };
        let Some((post, _)) = posts::lock(&mut tx, target.post_id).await? else {
            return cancelled("the post is gone");
        };
        // Under the post's lock now: read the target as it is, and be sure that the job is still ours.
        let Some(mut target) = targets::find(&mut tx, target.id).await? else { return cancelled("the target is gone") };
        if !rows::still_held(&mut tx, &run.job).await? {
            return cancelled("the lease was lost");
        }
        if target.status.is_terminal() || !matches!(post.status, PostStatus::Scheduled | PostStatus::Publishing) {
            return cancelled("the post is no longer to be published");
        }
        targets::start(&mut tx, target.id).await?;
        target.attempts += 1;
        if post.status == PostStatus::Scheduled {
            posts::update(&mut tx, &Post { status: PostStatus::Publishing, ..post.clone() }).await?;
        }
        let open_since = target.call_started_at;
        let fit = match self.fitness(&mut tx, run, &post, &target).await? {
            Ok(fit) => fit,
            Err(failure) => {
                tx.commit().await?;
                let how = if open_since.is_some() { How::Unknown(failure) } else { How::Failed(failure) };
                return Ok(Preparation::Stop(Box::new(Ended::without_call(target, how, self.store.now()))));
            }
        };
        let (account, secrets, connector) = fit;
        let marker = target.marker.clone().unwrap_or_else(|| {
            connector.marker(MarkerSeed { target_id: target.id, at: tx.now, random: crier_common::random::u64() })
        });
        if open_since.is_none() {
            targets::mark_call(&mut tx, target.id, &marker).await?;
            target.call_started_at = Some(tx.now);
        }
        tx.commit().await?;
        let outgoing = Outgoing {
            target_id: target.id,
            text: target.content.clone().unwrap_or(post.content),
            images: Vec::new(),
            options: target.options.clone(),
            marker,
            attempt: u32::try_from(target.attempts).unwrap_or(1),
        };
        let call = call_account(&account, secrets)?;
        Ok(Preparation::Go(Box::new(Prepared { target, account, connector, call, outgoing, open_since })))
    }

    /// Whether the account can be published to at all.
    async fn fitness(
        &self,
        tx: &mut Tx,
        run: &Run,
        post: &Post,
        target: &Target,
    ) -> Result<std::result::Result<(SocialAccount, SecretString, Arc<dyn Connector>), Failure>> {
        if tx.now - run.job.run_at > self.latest_publish {
            return Ok(Err(Failure::of(
                Category::Missed,
                "Its time passed while the service was not running, too long ago to publish it now. Publish it again if it still fits.",
            )));
        }
        let attached = accounts::is_attached(tx, post.brand_id, target.account_id).await?;
        let found = accounts::with_secrets(tx, self.store.cipher(), target.account_id).await?;
        let Some((account, secrets)) = found.filter(|_| attached) else {
            return Ok(Err(Failure::coded(
                Category::Account,
                "account_disconnected",
                "The account is no longer connected to this brand. Connect it again, then publish the post again.",
            )));
        };
        if account.status == AccountStatus::Expired {
            return Ok(Err(expired(
                "The account's access has expired. Refresh or reconnect it, then publish the post again.",
            )));
        }
        let Some(connector) = self.platforms.get(account.platform) else {
            return Ok(Err(Failure::coded(
                Category::Account,
                "platform_not_configured",
                format!("{} is not configured on this installation.", account.platform),
            )));
        };
        Ok(Ok((account, secrets, connector)))
    }

    /// Asks the platform what became of the earlier call; `None`: it is not there, publish.
    async fn reconcile(&self, run: &Run, p: &Prepared, since: DateTime<Utc>) -> Result<Option<How>> {
        let unknown = || {
            How::Unknown(Failure::of(
                Category::OutcomeUnknown,
                "It is not known whether the platform published this, and it offers no way to find out. Look there, and publish it again only if it is missing.",
            ))
        };
        if !p.connector.can_reconcile() {
            return Ok(Some(unknown()));
        }
        let over = since + self.publish_timeout;
        Ok(match run.call(p.connector.reconcile(&p.call, &p.outgoing)).await {
            Ok(Reconciled::Found(published)) => Some(How::Published(published)),
            Ok(Reconciled::CannotTell) => Some(unknown()),
            Ok(Reconciled::Absent) if self.store.now() < over => Some(How::Again {
                at: Some(over),
                failure: Failure::of(Category::Network, "Waiting until the earlier call to the platform must be over."),
                open: true,
            }),
            Ok(Reconciled::Absent) => {
                let mut tx = self.store.begin().await?;
                targets::mark_call(&mut tx, p.target.id, &p.outgoing.marker).await?;
                tx.commit().await?;
                None
            }
            // The question found no answer: the earlier call is as open as before.
            Err(error) => Some(match How::of(error, true) {
                How::Failed(failure) => How::Again { at: None, failure, open: true },
                other => other.left_open(),
            }),
        })
    }

    /// Publishes; an access token that has run out is renewed once.
    async fn publish(&self, run: &Run, p: &mut Prepared) -> Result<How> {
        let result = match self.call(run, p).await {
            Err(CallError::AuthExpired(failure)) => match self.refresh(p, failure).await? {
                Ok(()) => self.call(run, p).await,
                Err(error) => Err(error),
            },
            other => other,
        };
        if let Ok(Published { secrets: Some(secrets), .. }) = &result {
            // The post is out, whatever becomes of this: the next call learns the same again.
            if let Err(error) = self.keep(&p.account, secrets, p.account.token_expires_at).await {
                tracing::warn!(account = p.account.id, %error, "what the platform told of the account could not be stored");
            }
        }
        Ok(match result {
            Ok(published) => How::Published(published),
            Err(error) => How::of(error, p.connector.can_reconcile()),
        })
    }

    /// One publish, which may be several requests, within one deadline.
    async fn call(&self, run: &Run, p: &Prepared) -> std::result::Result<Published, CallError> {
        let deadline = self.publish_timeout.to_std().unwrap_or_default();
        match run.call(tokio::time::timeout(deadline, p.connector.publish(&p.call, &p.outgoing))).await {
            Ok(result) => result,
            Err(_) => Err(CallError::Unknown(Failure::of(Category::Network, "The platform did not answer in time."))),
        }
    }

    /// Gets new tokens and stores them before they are used.
    async fn refresh(&self, p: &mut Prepared, failure: Failure) -> Result<std::result::Result<(), CallError>> {
        let refreshed = match p.connector.refresh(&p.call).await {
            Ok(refreshed) => refreshed,
            // A passing failure never expires an account.
            Err(error) => return Ok(Err(error)),
        };
        let Some(secrets) = refreshed.secrets else { return Ok(Err(CallError::Reauth(failure))) };
        self.keep(&p.account, &secrets, refreshed.token_expires_at).await?;
        p.call.secrets = secrets;
        Ok(Ok(()))
    }

    async fn keep(&self, account: &SocialAccount, secrets: &Secrets, expires: Option<DateTime<Utc>>) -> Result<()> {
        let text = SecretString::from(secrets.expose_json());
        let mut tx = self.store.begin().await?;
        accounts::renew(&mut tx, account, Some(&text), expires).await?;
        tx.commit().await
    }
}

#[async_trait]
impl Job for PublishTarget {
    fn kind(&self) -> Kind {
        Kind::PublishTarget
    }

    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>> {
        let mut p = match self.prepare(run).await? {
            Preparation::Stop(ending) => return Ok(ending),
            Preparation::Go(prepared) => prepared,
        };
        let started_at = self.store.now();
        let how = match p.open_since {
            Some(since) => self.reconcile(run, &p, since).await?,
            None => None,
        };
        let how = match how {
            Some(how) => how,
            None => self.publish(run, &mut p).await?,
        };
        Ok(Box::new(Ended::after_call(p.target, how, started_at, self.publish_timeout)))
    }
}

fn call_account(account: &SocialAccount, secrets: SecretString) -> Result<Account> {
    let secrets = Secrets::from_json(secrets.expose_secret().to_owned())
        .ok_or_else(|| StoreError::Decode("an account's secrets are no JSON object".into()))?;
    Ok(Account {
        id: account.id,
        workspace_id: account.workspace_id,
        external_id: account.external_id.clone(),
        username: account.username.clone(),
        secrets,
    })
}

fn expired(message: impl Into<String>) -> Failure {
    Failure::coded(Category::AuthExpired, "account_expired", message)
}
