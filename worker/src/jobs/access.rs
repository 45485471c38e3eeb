//! Access to an account for jobs that read from its platform: its credentials, renewed once if they have expired.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_common::domain::account::SocialAccount;
use crier_common::domain::failure::{Category, Failure};
use crier_common::platforms::{CallError, Connector, ConnectorAccount, ConnectorRegistry, Refreshed, Secrets};
use crier_common::store::{Result, Store, accounts};
use secrecy::SecretString;

use super::Deps;
use crate::engine::Run;

/// How long storing new tokens is retried while the database is unavailable: the old ones may be revoked by now.
const STORE_TIMEOUT: Duration = Duration::from_secs(30);
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// An account, its credentials and its connector.
pub struct AccountAccess {
    pub account: SocialAccount,
    pub connector: Arc<dyn Connector>,
    pub call: ConnectorAccount,
    renewed: bool,
}

/// Opens accounts.
#[derive(Clone)]
pub struct AccountOpener {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    /// The maximum duration of a renewal.
    timeout: TimeDelta,
}

impl AccountOpener {
    pub fn new(deps: &Deps) -> Self {
        let timeout = deps.platform_timeout * 2;
        Self { store: deps.store.clone(), platforms: deps.platforms.clone(), timeout }
    }

    /// Returns the access to an account; `None`: it was deleted, or this worker has no connector for it.
    pub async fn open(&self, account_id: i64) -> Result<Option<AccountAccess>> {
        let mut conn = self.store.read().await?;
        let found = accounts::with_secrets(&mut conn, self.store.cipher(), account_id).await?;
        let Some((account, secrets)) = found else { return Ok(None) };
        let Some(connector) = self.platforms.get(account.platform) else { return Ok(None) };
        let call = ConnectorAccount::stored(&account, &secrets)?;
        Ok(Some(AccountAccess { account, connector, call, renewed: false }))
    }

    /// Renews the credentials after the platform refused them as expired, once for an access. The inner error is why it
    /// was not possible.
    pub async fn renew(
        &self,
        run: &Run,
        access: &mut AccountAccess,
        refused: Failure,
    ) -> Result<std::result::Result<(), CallError>> {
        if std::mem::replace(&mut access.renewed, true) {
            return Ok(Err(CallError::Reauth(refused)));
        }
        let id = access.account.id;
        let mut tx = self.store.begin().await?;
        let lease = accounts::begin_refresh(&mut tx, id, self.timeout).await?;
        let found = accounts::with_secrets(&mut tx, self.store.cipher(), id).await?;
        let Some((account, secrets)) = found else {
            let gone = Failure::of(Category::Account, "The account was disconnected.");
            return Ok(Err(CallError::Permanent(gone)));
        };
        if account.credentials_version != access.account.credentials_version {
            // Another process has renewed them. The lease is rolled back with the transaction.
            access.call = ConnectorAccount::stored(&account, &secrets)?;
            access.account = account;
            return Ok(Ok(()));
        }
        if lease.is_none() {
            let busy = Failure::of(Category::Internal, "Another process renews the account's tokens.");
            return Ok(Err(CallError::Transient(busy)));
        }
        tx.commit().await?;
        let deadline = self.timeout.to_std().unwrap_or_default();
        let answer = run.call_and_wait(tokio::time::timeout(deadline, access.connector.refresh(&access.call))).await;
        let answer = answer.unwrap_or_else(|_| {
            Err(CallError::network("The platform did not answer in time to a request for new tokens."))
        });
        match answer {
            Ok(refreshed) => self.store_tokens(access, &refreshed).await.map(Ok),
            Err(error) => {
                let mut tx = self.store.begin().await?;
                accounts::end_refresh(&mut tx, id, access.account.credentials_version).await?;
                tx.commit().await?;
                Ok(Err(error))
            }
        }
    }

    /// Stores new tokens before they are used, unless the account was connected again meanwhile.
    async fn store_tokens(&self, access: &mut AccountAccess, refreshed: &Refreshed) -> Result<()> {
        let text = refreshed.secrets.as_ref().map(|secrets| SecretString::from(secrets.expose_json()));
        let deadline = Instant::now() + STORE_TIMEOUT;
        let renewed = loop {
            let stored: Result<_> = async {
                let mut tx = self.store.begin().await?;
                let renewed = accounts::renew(&mut tx, &access.account, text.as_ref(), refreshed.times()).await?;
                tx.commit().await?;
                Ok(renewed)
            }
            .await;
            match stored {
                Err(error) if error.is_transient() && Instant::now() < deadline => {
                    tokio::time::sleep(STORE_PAUSE).await;
                }
                ended => break ended?,
            }
        };
        if let (Some(account), Some(secrets)) = (renewed, &refreshed.secrets) {
            access.call.secrets = Secrets::clone(secrets);
            access.account = account;
        }
        Ok(())
    }
}
