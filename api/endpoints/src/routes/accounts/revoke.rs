//! Revokes grants at the platform, unless another account of the installation needs them.

use std::time::Duration;

use crier_domain::platform::Platform;
use crier_platforms::{ConnectorAccount, Revocation};
use crier_store::{Result, Store, Tx, account_holders};
use secrecy::ExposeSecret;

use crate::app::App;

/// The timeout for revoking a grant at the platform, which is best effort.
const REVOKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Revokes the credentials of an account after the commit, unless an account uses them by then: one that was connected
/// with them again, or one of another workspace. Best effort: our copy of the tokens is deleted in any case.
pub(super) fn revoke_later(app: &App, tx: &mut Tx, platform: Platform, account: ConnectorAccount) {
    let Some(connector) = app.platforms.get(platform) else { return };
    let Some(revocation) = connector.revocation() else { return };
    let store = app.store.clone();
    tx.after_commit(move || {
        tokio::spawn(async move {
            match is_grant_needed(&store, platform, revocation, &account).await {
                Ok(false) => {}
                Ok(true) => return tracing::info!(account = account.id, "kept a grant that another account needs"),
                Err(error) => {
                    return tracing::warn!(account = account.id, %error, "failed to check who needs a grant; kept it");
                }
            }
            match tokio::time::timeout(REVOKE_TIMEOUT, connector.revoke(&account)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => tracing::info!(account = account.id, %error, "failed to revoke a grant"),
                Err(_) => tracing::info!(account = account.id, "timed out revoking a grant"),
            }
        });
    });
}

/// Returns whether revoking the grant would end the access of a stored account.
async fn is_grant_needed(
    store: &Store,
    platform: Platform,
    revocation: Revocation,
    revoked: &ConnectorAccount,
) -> Result<bool> {
    let application = revoked.secrets.get("client_id");
    let application = application.as_ref().map(|id| id.expose_secret());
    let mut after_id = 0;
    loop {
        let mut conn = store.read().await?;
        let external_id = &revoked.external_id;
        let cipher = store.cipher();
        let page = account_holders::candidates(&mut conn, cipher, platform, external_id, application, after_id).await?;
        drop(conn);
        let Some((last, _)) = page.last() else { return Ok(false) };
        after_id = last.id;
        for (account, secrets) in &page {
            if revocation.ends(revoked, &ConnectorAccount::stored(account, secrets)) {
                return Ok(true);
            }
        }
    }
}
