//! Renewing an account's tokens, one run at a time.
//!
//! Many platforms take back a refresh token when it is used; a second use of it, by another post of the account that found
//! the access token expired at the same moment, would be refused and the account taken for expired. So a refresh is held
//! on a lease in the account's row, and who comes later finds new tokens there.
//!
//! A person may connect the account again meanwhile. Their credentials stay: a refresh of the old ones is not written, and
//! the run goes on with the new ones.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use crier_common::domain::account::{AccountStatus, SocialAccount};
use crier_common::domain::failure::{Category, Failure};
use crier_common::platforms::{CallError, Refreshed, Secrets};
use crier_common::store::{Result, accounts};
use secrecy::SecretString;

use super::{Prepared, PublishTarget, disconnected};
use crate::engine::Run;

/// How often a run looks whether another one's refresh has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How long new tokens are kept trying to be stored while the database is away: the old ones may be worth nothing by now.
const STORE_FOR: Duration = Duration::from_secs(30);
const STORE_PAUSE: Duration = Duration::from_millis(200);

/// Whose turn it is.
enum Turn {
    Ours,
    /// Another run's, or the API's.
    Theirs,
    /// New tokens were there already.
    Done,
    Ended(CallError),
}

impl PublishTarget {
    /// Gets new tokens and stores them before they are used; `refused` is what the platform said to the old ones.
    pub(super) async fn refresh(
        &self,
        run: &Run,
        p: &mut Prepared,
        refused: Failure,
    ) -> Result<std::result::Result<(), CallError>> {
        if p.refreshed {
            return Ok(Err(CallError::Reauth(refused)));
        }
        p.refreshed = true;
        loop {
            match self.turn(p, &refused).await? {
                Turn::Ours => break,
                Turn::Theirs => tokio::time::sleep(LOOK).await,
                Turn::Done => return Ok(Ok(())),
                Turn::Ended(error) => return Ok(Err(error)),
            }
        }
        let deadline = self.publish_timeout.to_std().unwrap_or_default();
        let refreshed = match run.call_and_wait(tokio::time::timeout(deadline, p.connector.refresh(&p.call))).await {
            Ok(refreshed) => refreshed,
            Err(_) => Err(CallError::network("The platform did not answer in time to a request for new tokens.")),
        };
        match refreshed {
            Ok(Refreshed { secrets, token_expires_at }) => {
                let Some(secrets) = secrets else {
                    // Credentials that do not expire, and were found good: the call is tried once more with them.
                    self.end_turn(p).await?;
                    return Ok(Ok(()));
                };
                if let Some(renewed) = self.keep(&p.account, &secrets, token_expires_at).await? {
                    (p.account, p.call.secrets) = (renewed, secrets);
                    return Ok(Ok(()));
                }
                // The account was connected again meanwhile, or is gone.
                Ok(match self.turn(p, &refused).await? {
                    Turn::Ended(error) => Err(error),
                    Turn::Done | Turn::Ours | Turn::Theirs => Ok(()),
                })
            }
            Err(error) => {
                self.end_turn(p).await?;
                // A refresh publishes nothing: that its end is not known is a passing failure.
                Ok(Err(match error {
                    CallError::Unknown(failure) => {
                        CallError::Transient(Failure { category: Category::Network, ..failure })
                    }
                    other => other,
                }))
            }
        }
    }

    async fn turn(&self, p: &mut Prepared, refused: &Failure) -> Result<Turn> {
        let mut tx = self.store.begin().await?;
        let ours = accounts::begin_refresh(&mut tx, p.account.id, self.publish_timeout).await?.is_some();
        let Some((account, secrets)) = accounts::with_secrets(&mut tx, self.store.cipher(), p.account.id).await? else {
            return Ok(Turn::Ended(CallError::Permanent(disconnected())));
        };
        let secrets = Secrets::stored(&secrets)?;
        if account.status == AccountStatus::Expired {
            return Ok(Turn::Ended(CallError::Reauth(refused.clone())));
        }
        if account.credentials_version != p.account.credentials_version {
            // What was taken of the lease is rolled back.
            (p.account, p.call.secrets) = (account, secrets);
            return Ok(Turn::Done);
        }
        tx.commit().await?;
        Ok(if ours { Turn::Ours } else { Turn::Theirs })
    }

    async fn end_turn(&self, p: &Prepared) -> Result<()> {
        let mut tx = self.store.begin().await?;
        accounts::end_refresh(&mut tx, p.account.id, p.account.credentials_version).await?;
        tx.commit().await
    }

    /// Gives the account as it is then; `None` where it has other credentials by now, or is gone.
    pub(super) async fn keep(
        &self,
        account: &SocialAccount,
        secrets: &Secrets,
        expires: Option<DateTime<Utc>>,
    ) -> Result<Option<SocialAccount>> {
        let text = SecretString::from(secrets.expose_json());
        let give_up = Instant::now() + STORE_FOR;
        loop {
            let stored: Result<_> = async {
                let mut tx = self.store.begin().await?;
                let renewed = accounts::renew(&mut tx, account, Some(&text), expires).await?;
                tx.commit().await?;
                Ok(renewed)
            }
            .await;
            match stored {
                Err(error) if error.is_passing() && Instant::now() < give_up => tokio::time::sleep(STORE_PAUSE).await,
                ended => return ended,
            }
        }
    }
}
