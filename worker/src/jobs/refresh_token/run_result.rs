//! The result of a run of `refresh_token`, and the writes for it.

use chrono::{DateTime, SubsecRound as _, Utc};
use crier_base::backoff;
use crier_domain::account::{SocialAccount, warnings_due};
use crier_domain::failure::Failure;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_jobs::accounts as connected;
use crier_platforms::CallError;
use crier_store::account_tokens::{self, StoredTokens};
use crier_store::{Result, Tx, accounts};

use super::super::RunResult;
use super::{MAX_PAUSE, MIN_PAUSE};

/// The outcome of a run.
pub(super) enum RefreshOutcome {
    AccountDeleted,
    NothingDue,
    Renewed,
    /// A temporary failure: the account is checked again later.
    RetryLater(SocialAccount, StoredTokens, CallError),
    Rejected(SocialAccount, Failure),
    WarningDue,
}

pub struct RefreshRunResult {
    outcome: RefreshOutcome,
    /// In `[0, 1)`.
    jitter: f64,
}

impl RunResult for RefreshRunResult {}

impl RefreshRunResult {
    pub(super) fn new(outcome: RefreshOutcome) -> Self {
        Self { outcome, jitter: crier_base::random::unit() }
    }

    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        match &self.outcome {
            RefreshOutcome::AccountDeleted => return Ok(Outcome::Cancelled("the account no longer exists".to_owned())),
            RefreshOutcome::NothingDue => return reschedule_check(tx, job.subject_id).await,
            RefreshOutcome::Renewed => {}
            RefreshOutcome::RetryLater(account, tokens, error) => {
                tracing::warn!(account = account.id, platform = %account.platform, %error, "failed to renew tokens");
                let at = self.next_attempt(tokens, error, tx.now);
                accounts::end_refresh(tx, account.id, account.credentials_version).await?;
                account_tokens::check_again(tx, account.id, account.credentials_version, Some(at)).await?;
            }
            RefreshOutcome::Rejected(account, failure) => {
                let (id, version) = (account.id, account.credentials_version);
                accounts::end_refresh(tx, id, version).await?;
                connected::expire(tx, id, version, &failure.message, trace).await?;
            }
            RefreshOutcome::WarningDue => warn(tx, job.subject_id, trace).await?,
        }
        Ok(Outcome::Done)
    }

    /// Returns the time of the next attempt: the time from the platform, otherwise after a tenth of the remaining time.
    fn next_attempt(&self, tokens: &StoredTokens, error: &CallError, now: DateTime<Utc>) -> DateTime<Utc> {
        if let CallError::RateLimited { until: Some(until), .. } = error {
            return (*until).max(now + MIN_PAUSE);
        }
        let left = tokens.token_expires_at.map_or(MAX_PAUSE, |end| (end - now) / 10);
        (now + backoff::jitter(left.clamp(MIN_PAUSE, MAX_PAUSE), 0.2, self.jitter)).trunc_subsecs(6)
    }
}

/// Restores the time of the next check, which was changed when this job was enqueued.
async fn reschedule_check(tx: &mut Tx, account_id: i64) -> Result<Outcome> {
    account_tokens::lock(tx, account_id).await?;
    let (account, tokens) = (accounts::find_any(tx, account_id).await?, account_tokens::find(tx, account_id).await?);
    if let (Some(account), Some(tokens)) = (account, tokens) {
        let at = tokens.renewal.check_at(tokens.token_expires_at, tokens.renew_at, tokens.warnings);
        account_tokens::check_again(tx, account_id, account.credentials_version, at).await?;
    }
    Ok(Outcome::Cancelled("nothing is due".to_owned()))
}

/// Sends one warning, even if several are due.
async fn warn(tx: &mut Tx, account_id: i64, trace: Option<&str>) -> Result<()> {
    account_tokens::lock(tx, account_id).await?;
    let (account, tokens) = (accounts::find_any(tx, account_id).await?, account_tokens::find(tx, account_id).await?);
    let (Some(account), Some(tokens)) = (account, tokens) else { return Ok(()) };
    let Some(end) = tokens.renewal.access_ends_at(tokens.token_expires_at) else { return Ok(()) };
    let due = warnings_due(end, tx.now);
    if due <= tokens.warnings {
        return Ok(());
    }
    let check_at = tokens.renewal.check_at(tokens.token_expires_at, tokens.renew_at, due);
    let version = account.credentials_version;
    if account_tokens::record_warnings(tx, account.id, version, tokens.warnings, due, check_at).await? {
        connected::warn(tx, &account, end, trace).await?;
    }
    Ok(())
}
