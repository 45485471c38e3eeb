//! An account for the calls of one run: its connector and its credentials, which are renewed at most once.
//!
//! Many platforms revoke a refresh token when it is used; a second use, by another run that found the access token
//! expired at the same moment, would be rejected and the account marked as expired. So a refresh holds a lease in the
//! account's row, and later runs find new tokens there.
//!
//! If a user reconnects the account meanwhile, the user's credentials are kept: the result of refreshing the old ones
//! is discarded, and the run continues with the new ones.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, SocialAccount, TokenTimes};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Descriptor;
use crier_platforms::{CallError, Connector, ConnectorAccount, RefreshedTokens, Secrets};
use crier_store::{Store, StoreError, accounts};
use secrecy::SecretString;

use crate::engine::Run;

/// The interval at which a run checks whether another run's refresh has ended.
const REFRESH_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The maximum time for storing new tokens, with retries while the database is unavailable. The old tokens may already
/// be revoked.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between attempts to store new tokens.
const STORE_RETRY_PAUSE: Duration = Duration::from_millis(200);

/// An account, its connector, and the credentials to call it with.
pub(super) struct AccountSession {
    store: Store,
    pub account: SocialAccount,
    pub connector: Arc<dyn Connector>,
    pub connector_account: ConnectorAccount,
    /// The maximum duration of a refresh, and of reading the limits.
    timeout: TimeDelta,
    /// Whether the tokens were renewed in this run.
    refreshed: bool,
}

/// Why the tokens were not renewed.
pub(super) enum RefreshError {
    Call(CallError),
    Database(StoreError),
}

impl From<StoreError> for RefreshError {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

/// The result of an attempt to take the lease for renewing the tokens.
enum Lease {
    Acquired,
    /// Another run or the API holds the lease.
    HeldByOther,
    /// New credentials are already stored.
    AlreadyRefreshed,
}

impl AccountSession {
    pub fn new(
        store: &Store,
        account: SocialAccount,
        secrets: &SecretString,
        connector: Arc<dyn Connector>,
        timeout: TimeDelta,
    ) -> Self {
        let connector_account = ConnectorAccount::stored(&account, secrets);
        Self { store: store.clone(), account, connector, connector_account, timeout, refreshed: false }
    }

    /// Returns the platform with the limits of the account.
    pub fn descriptor(&self) -> Cow<'static, Descriptor> {
        self.connector.descriptor().with_limits(self.account.limits.as_ref())
    }

    /// Reads and stores the limits of the account's server and the account's boards, if the stored ones are outdated at
    /// this time. After a failure, the stored ones remain, and the next run retries.
    pub async fn update_limits(&self, run: &Run, at: DateTime<Utc>) -> Result<(), StoreError> {
        let account = &self.account;
        if account.limits.as_ref().is_some_and(|limits| !limits.is_outdated(at)) {
            return Ok(());
        }
        let deadline = self.timeout.to_std().unwrap_or_default();
        let read = tokio::time::timeout(deadline, self.connector.limits(&self.connector_account));
        match run.wait_without_slot(read).await {
            Ok(Ok(Some(limits))) => {
                let mut tx = self.store.begin().await?;
                accounts::set_limits(&mut tx, account, &limits).await?;
                tx.commit().await?;
            }
            Ok(Ok(None)) => {}
            Ok(Err(error)) => tracing::info!(account = account.id, %error, "failed to read the account's limits"),
            Err(_) => tracing::info!(account = account.id, "timed out reading the account's limits"),
        }
        Ok(())
    }

    /// Gets new tokens and stores them before they are used; `rejection` is the platform's error for the old ones.
    pub async fn refresh(&mut self, run: &Run, rejection: Failure) -> Result<(), RefreshError> {
        if std::mem::replace(&mut self.refreshed, true) {
            return Err(RefreshError::Call(CallError::Reauth(rejection)));
        }
        loop {
            match self.acquire_lease(&rejection).await? {
                Lease::Acquired => break,
                Lease::HeldByOther => tokio::time::sleep(REFRESH_POLL_INTERVAL).await,
                Lease::AlreadyRefreshed => return Ok(()),
            }
        }
        let deadline = self.timeout.to_std().unwrap_or_default();
        let request = self.connector.refresh(&self.connector_account);
        let response = run.call_and_wait(tokio::time::timeout(deadline, request)).await;
        let refreshed = response.unwrap_or_else(|_| {
            Err(CallError::network("The platform did not respond in time to a request for new tokens."))
        });
        match refreshed {
            // The credentials do not expire and are valid: the caller retries the call once with them.
            Ok(RefreshedTokens { secrets: None, .. }) => Ok(self.release_lease().await?),
            Ok(refreshed) => {
                let times = refreshed.times();
                if let Some(secrets) = refreshed.secrets
                    && !self.store_secrets(secrets, times).await?
                {
                    // The stored version is a different one, so this takes no lease: it adopts the new credentials,
                    // or fails if the account was deleted or has expired.
                    self.acquire_lease(&rejection).await?;
                }
                Ok(())
            }
            Err(error) => {
                self.release_lease().await?;
                Err(RefreshError::Call(unknown_to_transient(error)))
            }
        }
    }

    /// Takes the lease, or adopts credentials that were stored meanwhile. Fails if the account has expired or was
    /// deleted.
    async fn acquire_lease(&mut self, rejection: &Failure) -> Result<Lease, RefreshError> {
        let mut tx = self.store.begin().await?;
        let acquired = accounts::begin_refresh(&mut tx, self.account.id, self.timeout).await?.is_some();
        let Some((account, secrets)) = accounts::with_secrets(&mut tx, self.store.cipher(), self.account.id).await?
        else {
            return Err(RefreshError::Call(CallError::Permanent(disconnected())));
        };
        if account.status == AccountStatus::Expired {
            return Err(RefreshError::Call(CallError::Reauth(rejection.clone())));
        }
        if account.credentials_version != self.account.credentials_version {
            // The lease is rolled back with the transaction.
            (self.connector_account.secrets, self.account) = (Secrets::from_stored(&secrets), account);
            return Ok(Lease::AlreadyRefreshed);
        }
        tx.commit().await?;
        Ok(if acquired { Lease::Acquired } else { Lease::HeldByOther })
    }

    async fn release_lease(&self) -> Result<(), StoreError> {
        let mut tx = self.store.begin().await?;
        accounts::end_refresh(&mut tx, self.account.id, self.account.credentials_version).await?;
        tx.commit().await
    }

    /// Stores new secrets, and continues with them. Returns false, and changes nothing, if the account has different
    /// credentials or was deleted meanwhile.
    pub async fn store_secrets(&mut self, secrets: Secrets, times: TokenTimes) -> Result<bool, StoreError> {
        let stored_secrets = SecretString::from(secrets.expose_json());
        let renewed = store_tokens(&self.store, &self.account, Some(&stored_secrets), times).await?;
        let is_stored = renewed.is_some();
        if let Some(account) = renewed {
            (self.account, self.connector_account.secrets) = (account, secrets);
        }
        Ok(is_stored)
    }
}

/// Stores new tokens, or confirms the current ones, with retries while the database is unavailable. Returns `None`, and
/// changes nothing, if the account has different credentials or was deleted meanwhile.
pub(super) async fn store_tokens(
    store: &Store,
    account: &SocialAccount,
    secrets: Option<&SecretString>,
    times: TokenTimes,
) -> Result<Option<SocialAccount>, StoreError> {
    let deadline = Instant::now() + STORE_TIMEOUT;
    loop {
        let stored: Result<_, StoreError> = async {
            let mut tx = store.begin().await?;
            let renewed = accounts::renew(&mut tx, account, secrets, times).await?;
            tx.commit().await?;
            Ok(renewed)
        }
        .await;
        match stored {
            Err(error) if error.is_transient() && Instant::now() < deadline => {
                tokio::time::sleep(STORE_RETRY_PAUSE).await;
            }
            result => return result,
        }
    }
}

/// Converts the error of a request that publishes nothing: an unknown outcome is a temporary failure.
pub(super) fn unknown_to_transient(error: CallError) -> CallError {
    match error {
        CallError::Unknown(failure) => CallError::Transient(Failure { category: Category::Network, ..failure }),
        other => other,
    }
}

/// Returns the error of a call for an account whose access the platform has rejected.
pub(super) fn expired(message: impl Into<String>) -> Failure {
    Failure::with_code(Category::AuthExpired, "account_expired", message)
}

/// Returns the error of a call for an account that was disconnected from its brand.
pub(super) fn disconnected() -> Failure {
    Failure::with_code(
        Category::Account,
        "account_disconnected",
        "The account is no longer connected to this brand. Reconnect it.",
    )
}
