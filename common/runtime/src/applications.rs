//! The applications registered at platforms, as set with `crier app` and in the console.

use crier_platforms::Secrets;
use crier_store::applications::{self, NewApplication};
use crier_store::{Result, Tx, account_tokens, accounts};
use secrecy::{ExposeSecret as _, SecretString};

/// Stores an application, and its secret in the accounts that were connected with it, because their tokens are renewed
/// with it. Returns the application's id and the number of these accounts.
pub async fn set(tx: &mut Tx, new: &NewApplication<'_>) -> Result<(i64, usize)> {
    let id = applications::set(tx, new).await?;
    let cipher = tx.cipher.clone();
    let connected = account_tokens::of_application(tx, new.platform, &new.application.client_id).await?;
    let mut updated = 0;
    for account_id in connected {
        account_tokens::lock(tx, account_id).await?;
        let Some((account, secrets)) = accounts::with_secrets(tx, &cipher, account_id).await? else { continue };
        let secrets =
            Secrets::from_stored(&secrets).with(&[("client_secret", new.application.client_secret.expose_secret())]);
        let text = SecretString::from(secrets.expose_json());
        updated += usize::from(accounts::replace_secrets(tx, &account, &text).await?);
    }
    Ok((id, updated))
}
