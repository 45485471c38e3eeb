//! Look-ups before an account is connected or disconnected: which brands of the workspace have it, and which other
//! accounts of the installation may have the same tokens.

use crier_base::secrets::Cipher;
use crier_domain::account::SocialAccount;
use crier_domain::platform::Platform;
use secrecy::SecretString;

use super::accounts::{AccountRow, COLUMNS};
use super::db::run;
use super::sql::sql;
use super::{Conn, Result};

/// The number of accounts that are read at a time. Their secrets are decrypted in memory.
const PAGE: i64 = 100;

/// A workspace's record of an external account.
#[derive(Debug)]
pub struct ExistingAccount {
    pub account: SocialAccount,
    /// `None` if no configured key decrypts them.
    pub secrets: Option<SecretString>,
}

/// Returns a workspace's record of an external account.
pub async fn find_external(
    conn: &mut Conn,
    cipher: &Cipher,
    workspace_id: i64,
    platform: Platform,
    external_id: &str,
) -> Result<Option<ExistingAccount>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}, a.secrets
        FROM social_accounts a
        WHERE a.workspace_id = $1
            AND a.platform = $2
            AND a.external_id = $3",
        COLUMNS
    );
    let found: Option<AccountRow> = run!(conn, c => sqlx::query_as(sql).bind(workspace_id)
        .bind(platform).bind(external_id).fetch_optional(c))?;
    Ok(found.map(|row| {
        let account = row.account.clone();
        let secrets = row.open(cipher).inspect_err(|error| {
            tracing::warn!(account = account.id, %error, "failed to read the secrets of an account");
        });
        ExistingAccount { account, secrets: secrets.ok().map(|(_, secrets)| secrets) }
    }))
}

/// Returns whether an account belongs to a brand whose accounts the user cannot connect, and not to `brand_id`: the
/// user is no member or a contributor there, or the key `key_id` cannot use the brand or no longer exists.
pub async fn belongs_to_others(
    conn: &mut Conn,
    account_id: i64,
    brand_id: i64,
    user_id: i64,
    key_id: Option<i64>,
) -> Result<bool> {
    const SQL: &str = "
        SELECT b.brand_id
        FROM brand_accounts b
        WHERE b.account_id = $1
            AND (
                b.brand_id = $2
                OR NOT EXISTS (
                    SELECT 1
                    FROM brand_members m
                    WHERE m.brand_id = b.brand_id AND m.user_id = $3 AND m.role <> 'contributor'
                )
                OR $4 <> 0
                    AND NOT EXISTS (
                        SELECT 1
                        FROM api_keys k
                        WHERE k.id = $4
                            AND (
                                k.all_brands
                                OR EXISTS (
                                    SELECT 1
                                    FROM key_brands kb
                                    WHERE kb.api_key_id = k.id AND kb.brand_id = b.brand_id
                                )
                            )
                    )
            )";
    let found: Vec<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).bind(brand_id).bind(user_id)
        .bind(key_id.unwrap_or_default()).fetch_all(c))?;
    Ok(!found.is_empty() && !found.contains(&brand_id))
}

/// Lists the accounts of the whole installation that may have tokens of the same grant: those of the same external
/// account or application, with ids after `after_id`. The list is empty at the end.
pub async fn candidates(
    conn: &mut Conn,
    cipher: &Cipher,
    platform: Platform,
    external_id: &str,
    application: Option<&str>,
    after_id: i64,
) -> Result<Vec<(SocialAccount, SecretString)>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}, a.secrets
        FROM social_accounts a
        WHERE a.platform = $1
            AND (a.external_id = $2 OR a.application = $3)
            AND a.id > $4
        ORDER BY a.id
        LIMIT $5",
        COLUMNS
    );
    let rows: Vec<AccountRow> = run!(conn, c => sqlx::query_as(sql).bind(platform)
        .bind(external_id).bind(application).bind(after_id).bind(PAGE).fetch_all(c))?;
    rows.into_iter().map(|row| row.open(cipher)).collect()
}
