//! `refresh_token`: renews the tokens of one account, or warns the members who can reconnect it. The account's row
//! determines what is due, so a job that runs late or twice does nothing:
//!
//! - if the token has reached 80 % of its lifetime, gets a new one;
//! - if the access ends soon, and only a user can renew it, warns the members.
//!
//! Only one process renews the tokens of an account at a time, because many platforms revoke a refresh token when it is
//! used. The new tokens are committed in their own transaction before anything uses them and before this job is
//! settled, so that a job that lost its lease does not lose tokens. After a temporary failure the account is checked
//! again soon, even after its access has ended. Only a definite rejection makes it `expired`.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, warnings_due};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_platforms::{CallError, ConnectorAccount, ConnectorRegistry};
use crier_store::account_tokens::{self, StoredTokens};
use crier_store::{Result, Store, Tx, accounts};
use secrecy::SecretString;

use self::run_result::{RefreshOutcome, RefreshRunResult};
use super::account_session::store_tokens;
use super::{Deps, FinishedRun, Job, RunError, settle_each};
use crate::engine::Run;

mod run_result;

/// The pause before the job runs again if another process is renewing the tokens.
const LEASE_PAUSE: TimeDelta = TimeDelta::seconds(30);
/// The minimum and the maximum pause after a temporary failure; between them, a tenth of the remaining time.
const MIN_PAUSE: TimeDelta = TimeDelta::minutes(1);
const MAX_PAUSE: TimeDelta = TimeDelta::hours(1);

pub struct RefreshToken {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of a renewal, which may be several calls.
    timeout: TimeDelta,
}

impl RefreshToken {
    pub fn new(deps: &Deps) -> Self {
        Self { store: deps.store.clone(), platforms: deps.platforms.clone(), timeout: deps.platform_timeout * 2 }
    }

    /// Renews the tokens under the lease; `None` if another process holds the lease.
    async fn renew(&self, run: &Run, account_id: i64) -> Result<Option<RefreshOutcome>> {
        let mut tx = self.store.begin().await?;
        let lease = accounts::begin_refresh(&mut tx, account_id, self.timeout).await?;
        // Read after taking the lease, because the previous holder may have stored new tokens.
        let found = accounts::with_secrets(&mut tx, self.store.cipher(), account_id).await?;
        let tokens = account_tokens::find(&mut tx, account_id).await?;
        let (Some((account, secrets)), Some(tokens)) = (found, tokens) else {
            return Ok(Some(RefreshOutcome::AccountDeleted));
        };
        if !is_due(&tokens, self.store.now()) {
            // The lease is rolled back with the transaction.
            return Ok(Some(RefreshOutcome::NothingDue));
        }
        if lease.is_none() {
            return Ok(None);
        }
        tx.commit().await?;
        let Some(connector) = self.platforms.get(account.platform) else {
            return Ok(Some(RefreshOutcome::RetryLater(account, tokens, missing_connector())));
        };
        let connector_account = ConnectorAccount::stored(&account, &secrets);
        let deadline = self.timeout.to_std().unwrap_or_default();
        let response = run.call_and_wait(tokio::time::timeout(deadline, connector.refresh(&connector_account))).await;
        let response = response.unwrap_or_else(|_| {
            Err(CallError::network("The platform did not respond in time to a request for new tokens."))
        });
        Ok(Some(match response {
            Ok(refreshed) => {
                // If the account was reconnected meanwhile, its newer credentials are kept.
                let secrets = refreshed.secrets.as_ref().map(|secrets| SecretString::from(secrets.expose_json()));
                store_tokens(&self.store, &account, secrets.as_ref(), refreshed.times()).await?;
                RefreshOutcome::Renewed
            }
            Err(CallError::Reauth(failure) | CallError::AuthExpired(failure)) => {
                RefreshOutcome::Rejected(account, failure)
            }
            Err(error) => RefreshOutcome::RetryLater(account, tokens, error),
        }))
    }
}

fn is_due(tokens: &StoredTokens, now: DateTime<Utc>) -> bool {
    tokens.renew_at.is_some_and(|at| at <= now)
}

fn missing_connector() -> CallError {
    CallError::Transient(Failure::of(Category::Internal, "This worker has no connector for the platform."))
}

#[async_trait]
impl Job for RefreshToken {
    type Result = RefreshRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<RefreshRunResult, RunError> {
        let (id, now) = (run.job.subject_id, self.store.now());
        let mut conn = self.store.read().await?;
        let Some((status, _)) = accounts::status(&mut conn, id).await? else {
            return Ok(RefreshRunResult::new(RefreshOutcome::AccountDeleted));
        };
        if status == AccountStatus::Expired {
            return Ok(RefreshRunResult::new(RefreshOutcome::NothingDue));
        }
        let Some(tokens) = account_tokens::find(&mut conn, id).await? else {
            return Ok(RefreshRunResult::new(RefreshOutcome::NothingDue));
        };
        drop(conn);
        if is_due(&tokens, now) {
            let Some(outcome) = self.renew(run, id).await? else {
                let why = "another process is renewing the tokens".to_owned();
                return Err(RunError::Ended(Outcome::RetryAt(now + LEASE_PAUSE, why)));
            };
            return Ok(RefreshRunResult::new(outcome));
        }
        let end = tokens.renewal.access_ends_at(tokens.token_expires_at);
        let is_warning_due = end.is_some_and(|end| warnings_due(end, now) > tokens.warnings);
        let outcome = if is_warning_due { RefreshOutcome::WarningDue } else { RefreshOutcome::NothingDue };
        Ok(RefreshRunResult::new(outcome))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, RefreshRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }
}
