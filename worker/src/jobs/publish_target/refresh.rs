//! Refreshes an account's tokens, one run at a time.
//!
//! Many platforms revoke a refresh token when it is used; a second use, by another post of the account that found the
//! access token expired at the same moment, would be rejected and the account marked as expired. So a refresh holds a
//! lease in the account's row, and later runs find new tokens there.
//!
//! A user may connect the account again meanwhile. The user's credentials stay: the result of a refresh of the old ones
//! is discarded, and the run continues with the new ones.

use std::time::{Duration, Instant};

use crier_common::domain::account::{AccountStatus, SocialAccount, TokenTimes};
use crier_common::domain::failure::Failure;
use crier_common::platforms::{CallError, Refreshed, Secrets};
use crier_common::store::{Result, accounts};
use secrecy::SecretString;

use super::{Prepared, PublishTarget, Step, disconnected, unknown_to_transient};
use crate::engine::Run;

/// How often a run checks whether another run's refresh has ended.
const REFRESH_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How long storing new tokens is retried while the database is unavailable: the old ones may be revoked by now.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// Who may refresh the tokens.
enum RefreshLease {
    Acquired,
    /// Another run, or the API.
    HeldByOther,
    /// New tokens are stored already.
    AlreadyRefreshed,
}

impl PublishTarget {
    /// Requests new tokens and stores them before they are used; `refused` is the platform's error for the old ones.
    pub(super) async fn refresh(&self, run: &Run, p: &mut Prepared, refused: Failure) -> Step<()> {
        if p.refreshed {
            return Err(self.fail(p, CallError::Reauth(refused)));
        }
        p.refreshed = true;
        loop {
            match self.acquire_refresh_lease(p, &refused).await? {
                RefreshLease::Acquired => break,
                RefreshLease::HeldByOther => tokio::time::sleep(REFRESH_POLL_INTERVAL).await,
                RefreshLease::AlreadyRefreshed => return Ok(()),
            }
        }
        let deadline = self.publish_timeout.to_std().unwrap_or_default();
        let answer = run.call_and_wait(tokio::time::timeout(deadline, p.connector.refresh(&p.call))).await;
        let refreshed = answer.unwrap_or_else(|_| {
            Err(CallError::network("The platform did not answer in time to a request for new tokens."))
        });
        match refreshed {
            Ok(Refreshed { secrets: Some(secrets), token_expires_at, refresh_expires_at }) => {
                let times = TokenTimes { token_expires_at, refresh_expires_at };
                match self.store_secrets(&p.account, &secrets, times).await? {
                    Some(renewed) => (p.account, p.call.secrets) = (renewed, secrets),
                    // The account was connected again meanwhile, or deleted: takes its new credentials, or stops.
                    None => _ = self.acquire_refresh_lease(p, &refused).await?,
                }
                Ok(())
            }
            // The credentials do not expire, and are valid: the call is retried once with them.
            Ok(Refreshed { secrets: None, .. }) => Ok(self.release_refresh_lease(p).await?),
            Err(error) => {
                self.release_refresh_lease(p).await?;
                Err(self.fail(p, unknown_to_transient(error)))
            }
        }
    }

    async fn acquire_refresh_lease(&self, p: &mut Prepared, refused: &Failure) -> Step<RefreshLease> {
        let mut tx = self.store.begin().await?;
        let ours = accounts::begin_refresh(&mut tx, p.account.id, self.publish_timeout).await?.is_some();
        let Some((account, secrets)) = accounts::with_secrets(&mut tx, self.store.cipher(), p.account.id).await? else {
            return Err(self.fail(p, CallError::Permanent(disconnected())));
        };
        let secrets = Secrets::from_stored(&secrets)?;
        if account.status == AccountStatus::Expired {
            return Err(self.fail(p, CallError::Reauth(refused.clone())));
        }
        if account.credentials_version != p.account.credentials_version {
            // The lease is rolled back with the transaction.
            (p.account, p.call.secrets) = (account, secrets);
            return Ok(RefreshLease::AlreadyRefreshed);
        }
        tx.commit().await?;
        Ok(if ours { RefreshLease::Acquired } else { RefreshLease::HeldByOther })
    }

    async fn release_refresh_lease(&self, p: &Prepared) -> Result<()> {
        let mut tx = self.store.begin().await?;
        accounts::end_refresh(&mut tx, p.account.id, p.account.credentials_version).await?;
        tx.commit().await
    }

    /// Stores new secrets, and returns the account as it is then; `None` if it has other credentials by now, or was
    /// deleted.
    pub(super) async fn store_secrets(
        &self,
        account: &SocialAccount,
        secrets: &Secrets,
        times: TokenTimes,
    ) -> Result<Option<SocialAccount>> {
        let text = SecretString::from(secrets.expose_json());
        let deadline = Instant::now() + STORE_TIMEOUT;
        loop {
            let stored: Result<_> = async {
                let mut tx = self.store.begin().await?;
                let renewed = accounts::renew(&mut tx, account, Some(&text), times).await?;
                tx.commit().await?;
                Ok(renewed)
            }
            .await;
            match stored {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tokio::time::sleep(STORE_PAUSE).await
                }
                ended => return ended,
            }
        }
    }
}
