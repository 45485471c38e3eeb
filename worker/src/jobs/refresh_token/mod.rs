//! `refresh_token`: renews the tokens of one account, or warns its owners. What is due is in the account's row, so a
//! job that comes late or twice does nothing:
//!
//! - the token has lived for 80 % of its life: gets a new one;
//! - the access ends soon, and only a person can renew it: warns the owners, by event and mail;
//! - the platform refuses the credentials: notifies the owners by mail (the event was sent when that was recorded).
//!
//! Only one process renews the tokens of an account at a time: many platforms revoke a refresh token when it is used.
//! The new pair is committed by itself before anything uses it, and before this job is settled: a job that lost its
//! lease must not lose tokens. After a passing failure the account is looked at again soon, until its end and beyond;
//! only a recognised refusal makes it `expired`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, SocialAccount, warnings_due};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_mail::Mailer;
use crier_platforms::{CallError, ConnectorAccount, ConnectorRegistry, Refreshed};
use crier_store::account_tokens::{self, KeptTokens};
use crier_store::{Result, Store, accounts};
use secrecy::SecretString;

use self::ending::Ending;
use super::{Deps, Job, RunResult};
use crate::engine::Run;

mod ending;

/// How long storing new tokens is retried while the database is unavailable: the old ones may be revoked by now.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between tries to store new tokens.
const STORE_RETRY_PAUSE: Duration = Duration::from_millis(200);
/// When the job comes back if another process renews the tokens.
const LEASE_PAUSE: TimeDelta = TimeDelta::seconds(30);
/// The shortest and the longest pause after a passing failure; between them, a tenth of the time that is left.
const MIN_PAUSE: TimeDelta = TimeDelta::minutes(1);
const MAX_PAUSE: TimeDelta = TimeDelta::hours(1);

pub struct RefreshToken {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    mailer: Option<Arc<Mailer>>,
    /// For the addresses in mails.
    public_url: String,
    /// The maximum duration of a renewal, which may be several calls.
    timeout: TimeDelta,
}

impl RefreshToken {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            mailer: deps.mailer.clone(),
            public_url: deps.library.public_url().to_owned(),
            timeout: deps.platform_timeout * 2,
        }
    }

    fn ending(&self, ending: Ending) -> Box<dyn RunResult> {
        Box::new(ending::RefreshEnd {
            ending,
            mailer: self.mailer.clone(),
            public_url: self.public_url.clone(),
            jitter: crier_base::random::unit(),
        })
    }

    /// Renews the tokens under the lease; `None`: another process holds it.
    async fn renew(&self, run: &Run, account_id: i64) -> Result<Option<Ending>> {
        let mut tx = self.store.begin().await?;
        let lease = accounts::begin_refresh(&mut tx, account_id, self.timeout).await?;
        // Read after the lease was taken: the holder before may have stored new tokens.
        let found = accounts::with_secrets(&mut tx, self.store.cipher(), account_id).await?;
        let kept = account_tokens::find(&mut tx, account_id).await?;
        let (Some((account, secrets)), Some(kept)) = (found, kept) else { return Ok(Some(Ending::Gone)) };
        if !is_due(&kept, self.store.now()) {
            // The lease is rolled back with the transaction.
            return Ok(Some(Ending::NothingDue));
        }
        if lease.is_none() {
            return Ok(None);
        }
        tx.commit().await?;
        let Some(connector) = self.platforms.get(account.platform) else {
            return Ok(Some(Ending::Later(account, kept, not_there())));
        };
        let call = ConnectorAccount::stored(&account, &secrets)?;
        let deadline = self.timeout.to_std().unwrap_or_default();
        let answer = run.call_and_wait(tokio::time::timeout(deadline, connector.refresh(&call))).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(CallError::network("The platform did not respond in time to a request for new tokens."))
        });
        Ok(Some(match answer {
            Ok(refreshed) => {
                self.store_tokens(&account, &refreshed).await?;
                Ending::Renewed
            }
            Err(CallError::Reauth(failure) | CallError::AuthExpired(failure)) => Ending::Refused(account, failure),
            Err(error) => Ending::Later(account, kept, error),
        }))
    }

    /// Stores new tokens, unless the account was connected again meanwhile: the newer ones stay.
    async fn store_tokens(&self, account: &SocialAccount, refreshed: &Refreshed) -> Result<()> {
        let secrets = refreshed.secrets.as_ref().map(|secrets| SecretString::from(secrets.expose_json()));
        let deadline = Instant::now() + STORE_TIMEOUT;
        loop {
            let stored: Result<_> = async {
                let mut tx = self.store.begin().await?;
                accounts::renew(&mut tx, account, secrets.as_ref(), refreshed.times()).await?;
                tx.commit().await
            }
            .await;
            match stored {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tokio::time::sleep(STORE_RETRY_PAUSE).await;
                }
                ended => return ended,
            }
        }
    }
}

fn is_due(kept: &KeptTokens, now: DateTime<Utc>) -> bool {
    kept.renew_at.is_some_and(|at| at <= now)
}

fn not_there() -> CallError {
    CallError::Transient(Failure::of(Category::Internal, "This worker has no connector for the platform."))
}

#[async_trait]
impl Job for RefreshToken {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        let (id, now) = (run.job.subject_id, self.store.now());
        let mut conn = self.store.read().await?;
        let Some((status, _)) = accounts::status(&mut conn, id).await? else {
            return Ok(self.ending(Ending::Gone));
        };
        if status == AccountStatus::Expired {
            return Ok(self.ending(Ending::ExpiredBefore));
        }
        let Some(kept) = account_tokens::find(&mut conn, id).await? else {
            return Ok(self.ending(Ending::NothingDue));
        };
        drop(conn);
        if is_due(&kept, now) {
            return Ok(match self.renew(run, id).await? {
                Some(ending) => self.ending(ending),
                None => {
                    Box::new(Outcome::RetryAt(now + LEASE_PAUSE, "another process is renewing the tokens".to_owned()))
                }
            });
        }
        let end = kept.renewal.access_ends_at(kept.token_expires_at);
        let is_warning_due = end.is_some_and(|end| warnings_due(end, now) > kept.warnings);
        Ok(self.ending(if is_warning_due { Ending::Warn } else { Ending::NothingDue }))
    }
}
