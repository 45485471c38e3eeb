//! What a run found is written in the transaction that settles the job.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound as _, Utc};
use crier_base::backoff;
use crier_domain::account::{SocialAccount, warnings_due};
use crier_domain::failure::Failure;
use crier_domain::job::{Claimed, Outcome};
use crier_jobs::accounts as connected;
use crier_mail::Mailer;
use crier_platforms::CallError;
use crier_store::account_tokens::{self, KeptTokens};
use crier_store::{Result, Tx, accounts};

use super::super::RunResult;
use super::{MAX_PAUSE, MIN_PAUSE};
use crate::notices;

/// What a run found.
pub(super) enum Ending {
    Gone,
    NothingDue,
    Renewed,
    /// A passing failure: the account is looked at again.
    Later(SocialAccount, KeptTokens, CallError),
    Refused(SocialAccount, Failure),
    Warn,
    ExpiredBefore,
}

pub(super) struct RefreshEnd {
    pub(super) ending: Ending,
    pub(super) mailer: Option<Arc<Mailer>>,
    pub(super) public_url: String,
    /// In `[0, 1)`.
    pub(super) jitter: f64,
}

#[async_trait]
impl RunResult for RefreshEnd {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        match &self.ending {
            Ending::Gone => return Ok(Outcome::Cancelled("the account no longer exists".to_owned())),
            Ending::NothingDue => return self.check_at_its_time(tx, job.subject_id).await,
            Ending::Renewed => {}
            Ending::Later(account, kept, error) => {
                tracing::warn!(account = account.id, platform = %account.platform, %error, "failed to renew tokens");
                let at = self.next_try(kept, error, tx.now);
                accounts::end_refresh(tx, account.id, account.credentials_version).await?;
                account_tokens::check_again(tx, account.id, account.credentials_version, Some(at)).await?;
            }
            Ending::Refused(account, failure) => {
                let (id, version) = (account.id, account.credentials_version);
                accounts::end_refresh(tx, id, version).await?;
                connected::expire(tx, id, version, &failure.message, trace).await?;
            }
            Ending::Warn => self.warn(tx, job.subject_id, trace).await?,
            Ending::ExpiredBefore => {}
        }
        // Whatever else happened: an account that expires while this job runs gets no job of its own.
        self.mail_if_expired(tx, job.subject_id, trace).await?;
        Ok(Outcome::Done)
    }
}

impl RefreshEnd {
    /// The time of the next look was moved when this job was enqueued.
    async fn check_at_its_time(&self, tx: &mut Tx, account_id: i64) -> Result<Outcome> {
        account_tokens::lock(tx, account_id).await?;
        let (account, kept) = (accounts::find_any(tx, account_id).await?, account_tokens::find(tx, account_id).await?);
        if let (Some(account), Some(kept)) = (account, kept) {
            let at = kept.renewal.check_at(kept.token_expires_at, kept.renew_at, kept.warnings);
            account_tokens::check_again(tx, account_id, account.credentials_version, at).await?;
        }
        Ok(Outcome::Cancelled("nothing is due".to_owned()))
    }

    /// Sends the owners a mail, once, if the account has expired.
    async fn mail_if_expired(&self, tx: &mut Tx, account_id: i64, trace: Option<&str>) -> Result<()> {
        if account_tokens::record_expiry_notice(tx, account_id).await?
            && let Some(account) = accounts::find_any(tx, account_id).await?
        {
            notices::account_expired(tx, self.mailer.as_deref(), &account, &self.public_url, trace).await?;
        }
        Ok(())
    }

    /// Returns when to try again: when the platform says, else after a tenth of the time that is left.
    fn next_try(&self, kept: &KeptTokens, error: &CallError, now: DateTime<Utc>) -> DateTime<Utc> {
        if let CallError::RateLimited { until: Some(until), .. } = error {
            return (*until).max(now + MIN_PAUSE);
        }
        let left = kept.token_expires_at.map_or(MAX_PAUSE, |end| (end - now) / 10);
        (now + backoff::jitter(left.clamp(MIN_PAUSE, MAX_PAUSE), 0.2, self.jitter)).trunc_subsecs(6)
    }

    /// Sends one warning, also if several are due by now.
    async fn warn(&self, tx: &mut Tx, account_id: i64, trace: Option<&str>) -> Result<()> {
        account_tokens::lock(tx, account_id).await?;
        let (account, kept) = (accounts::find_any(tx, account_id).await?, account_tokens::find(tx, account_id).await?);
        let (Some(account), Some(kept)) = (account, kept) else { return Ok(()) };
        let Some(end) = kept.renewal.access_ends_at(kept.token_expires_at) else { return Ok(()) };
        let due = warnings_due(end, tx.now);
        if due <= kept.warnings {
            return Ok(());
        }
        let check_at = kept.renewal.check_at(kept.token_expires_at, kept.renew_at, due);
        let version = account.credentials_version;
        if account_tokens::record_warnings(tx, account.id, version, kept.warnings, due, check_at).await? {
            connected::warn(tx, &account, end, trace).await?;
            let mailer = self.mailer.as_deref();
            notices::account_expiring(tx, mailer, &account, end, &self.public_url, trace).await?;
        }
        Ok(())
    }
}
