//! Accounts of the sandbox, for the posts of a measurement.

use crier_domain::platform::{AccountKind, Platform};
use crier_store::accounts::{self, NewAccount};
use crier_store::{StoreError, Tx, sandbox};
use secrecy::SecretString;

/// Creates accounts, attaches them to the brand, and returns their IDs.
pub async fn create(tx: &mut Tx, workspace: i64, brand: i64, count: usize) -> Result<Vec<i64>, StoreError> {
    let mut created = Vec::with_capacity(count);
    for number in 0..count {
        let handle = format!("bench-{number}");
        sandbox::claim_handle(tx, workspace, &handle).await?;
        let account = NewAccount {
            platform: Platform::Sandbox,
            name: handle.clone(),
            username: Some(handle.clone()),
            profile_url: None,
            avatar_url: None,
            kind: AccountKind::Profile,
            token_expires_at: None,
            renewal: None,
            limits: None,
            granted_scopes: None,
            application: None,
            secrets: SecretString::from(format!("{{\"handle\":\"{handle}\"}}")),
            external_id: handle,
        };
        let account = accounts::save(tx, workspace, &account).await?;
        accounts::attach(tx, brand, account.id).await?;
        created.push(account.id);
    }
    Ok(created)
}
