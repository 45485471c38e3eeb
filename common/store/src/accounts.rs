//! Social accounts: one record per external account and workspace, attached to one or several brands.
//!
//! The secrets have a version. The result of a call with them ([`expire`], [`renew`], [`end_refresh`]) is written only
//! if the account still has that version: it may have been reconnected or refreshed during the call.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};
use crier_base::random;
use crier_base::secrets::{Cipher, SecretLocation};
use crier_domain::account::{
    AccountError, AccountStatus, AccountSummary, DisconnectResult, Renewal, SocialAccount, TokenTimes,
};
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{AccountKind, Platform};
use secrecy::{ExposeSecret, SecretString};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Page, PageRequest, Result, StoreError, Tx, account_tokens};

/// An account that was connected.
#[derive(Debug)]
pub struct NewAccount {
    pub platform: Platform,
    pub external_id: String,
    pub name: String,
    pub username: Option<String>,
    pub profile_url: Option<String>,
    pub avatar_url: Option<String>,
    pub kind: AccountKind,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// `None` if no job has to renew the credentials.
    pub renewal: Option<Renewal>,
    /// The client id of the application that the tokens belong to.
    pub application: Option<String>,
    /// The limits reported by its server, and its boards.
    pub limits: Option<AccountLimits>,
    /// The requested scopes that the user granted. `None` if they are unknown.
    pub granted_scopes: Option<Vec<String>>,
    /// The secrets, as a JSON object.
    pub secrets: SecretString,
}

pub(super) const COLUMNS: &str = "
    a.id, a.workspace_id, a.platform, a.name, a.username, a.external_id, a.profile_url, a.avatar_url,
    a.kind, a.status, a.token_expires_at, a.last_error, a.limits, a.granted_scopes, a.credentials_version,
    a.connected_at, a.created_at, a.updated_at";
const COLUMNS_OF_BRAND: &str = sql!("{COLUMNS}, b.signature_id", COLUMNS);

fn row_name(workspace_id: i64, platform: Platform, external_id: &str) -> String {
    format!("{workspace_id}/{platform}/{external_id}")
}

fn place(row: &str) -> SecretLocation<'_> {
    SecretLocation { table: "social_accounts", row, column: "secrets" }
}

/// Stores a connected account: a new record, or new credentials for the existing one, which becomes active.
pub async fn save(tx: &mut Tx, workspace_id: i64, new: &NewAccount) -> Result<SocialAccount> {
    const SQL: &str = "
        INSERT INTO social_accounts (
            workspace_id, platform, external_id, name, username, profile_url, avatar_url, kind, status,
            secrets, token_expires_at, connected_at, created_at, updated_at, application, token_renewable,
            token_rotates, refresh_expires_at, token_renew_at, token_check_at, limits, granted_scopes
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'active', $9, $10, $11, $11, $11, $12, $13, $14, $15, $16, $17, $18,
            $19)
        ON CONFLICT (workspace_id, platform, external_id)
        DO UPDATE SET name = excluded.name, username = excluded.username,
            profile_url = excluded.profile_url, avatar_url = excluded.avatar_url, kind = excluded.kind,
            status = 'active', secrets = excluded.secrets,
            credentials_version = social_accounts.credentials_version + 1, refreshing_until = NULL,
            token_expires_at = excluded.token_expires_at, last_error = NULL,
            connected_at = excluded.connected_at, updated_at = excluded.updated_at,
            application = excluded.application, token_renewable = excluded.token_renewable,
            token_rotates = excluded.token_rotates, refresh_expires_at = excluded.refresh_expires_at,
            token_renew_at = excluded.token_renew_at, token_check_at = excluded.token_check_at, warnings = 0,
            limits = coalesce(excluded.limits, social_accounts.limits), granted_scopes = excluded.granted_scopes
        RETURNING *";
    let row = row_name(workspace_id, new.platform, &new.external_id);
    let sealed = tx.cipher.seal(&place(&row), new.secrets.expose_secret().as_bytes())?;
    let now = tx.now;
    let renewal = new.renewal.unwrap_or_default();
    let renew_at = renewal.renew_at(new.token_expires_at, now, random::unit());
    let check_at = new.renewal.and_then(|renewal| renewal.check_at(new.token_expires_at, renew_at, 0));
    let renewable = new.renewal.map(|renewal| renewal.renewable);
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(workspace_id).bind(new.platform).bind(&new.external_id).bind(&new.name)
        .bind(&new.username).bind(&new.profile_url).bind(&new.avatar_url).bind(new.kind).bind(&sealed)
        .bind(new.token_expires_at).bind(now).bind(&new.application).bind(renewable).bind(renewal.rotates)
        .bind(renewal.refresh_expires_at).bind(renew_at).bind(check_at).bind(new.limits.as_ref().map(Json))
        .bind(new.granted_scopes.as_ref().map(Json)).fetch_one(c))?)
}

/// Attaches an account to a brand. Returns `false` if it was already attached.
pub async fn attach(tx: &mut Tx, brand_id: i64, account_id: i64) -> Result<bool> {
    const SQL: &str = "
            INSERT INTO brand_accounts (brand_id, account_id, created_at)
            VALUES ($1, $2, $3)
            ON CONFLICT DO NOTHING";
    let now = tx.now;
    Ok(execute!(tx, SQL, brand_id, account_id, now)? > 0)
}

/// Returns how many accounts a brand has.
pub async fn count(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM brand_accounts WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Returns whether the brand already has this external account: reconnecting it does not count against the cap.
pub async fn has_external(conn: &mut Conn, brand_id: i64, platform: Platform, external_id: &str) -> Result<bool> {
    const SQL: &str = "
        SELECT a.id
        FROM social_accounts a
        JOIN brand_accounts b ON b.account_id = a.id
        WHERE b.brand_id = $1
            AND a.platform = $2
            AND a.external_id = $3";
    let found: Option<i64> =
        run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(platform).bind(external_id).fetch_optional(c))?;
    Ok(found.is_some())
}

/// Returns whether the brand has any account of the platform.
pub async fn has_platform(conn: &mut Conn, brand_id: i64, platform: Platform) -> Result<bool> {
    const SQL: &str = "
        SELECT count(*)
        FROM social_accounts a
        JOIN brand_accounts b ON b.account_id = a.id
        WHERE b.brand_id = $1 AND a.platform = $2";
    let found: i64 = run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(platform).fetch_one(c))?;
    Ok(found > 0)
}

pub async fn list(conn: &mut Conn, brand_id: i64, page: PageRequest) -> Result<Page<SocialAccount>> {
    let sql = sql!(
        "
            SELECT {COLUMNS_OF_BRAND}
            FROM social_accounts a
            JOIN brand_accounts b ON b.account_id = a.id
            WHERE b.brand_id = $1
            ORDER BY a.id DESC
            LIMIT $2
            OFFSET $3",
        COLUMNS_OF_BRAND
    );
    let rows =
        run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    Ok(Page { rows, total: count(conn, brand_id).await? })
}

/// Lists all accounts, for the operator.
pub async fn all(conn: &mut Conn) -> Result<Vec<SocialAccount>> {
    let sql = sql!(
        "
            SELECT {COLUMNS}
            FROM social_accounts a
            ORDER BY a.id",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).fetch_all(c))?)
}

/// Finds an account of the brand.
pub async fn find(conn: &mut Conn, brand_id: i64, account_id: i64) -> Result<Option<SocialAccount>> {
    let sql = sql!(
        "
            SELECT {COLUMNS_OF_BRAND}
            FROM social_accounts a
            JOIN brand_accounts b ON b.account_id = a.id
            WHERE b.brand_id = $1 AND a.id = $2",
        COLUMNS_OF_BRAND
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(account_id).fetch_optional(c))?)
}

/// Returns accounts by their ids. Leaves out those that do not belong to the brand.
pub async fn find_many(conn: &mut Conn, brand_id: i64, account_ids: &[i64]) -> Result<Vec<SocialAccount>> {
    if account_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(
        conn,
        "
        SELECT {COLUMNS_OF_BRAND}
        FROM social_accounts a
        JOIN brand_accounts b ON b.account_id = a.id
        WHERE a.id",
        "AND b.brand_id = $2",
        COLUMNS_OF_BRAND
    );
    let list = id_list(account_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?)
}

/// Returns summaries of accounts by their ids. Leaves out those that do not belong to the brand.
pub async fn summaries(conn: &mut Conn, brand_id: i64, account_ids: &[i64]) -> Result<Vec<AccountSummary>> {
    if account_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(
        conn,
        "
            SELECT a.id, a.platform, a.name, a.status, a.limits, a.granted_scopes,
                (SELECT s.content FROM snippets s WHERE s.id = b.signature_id) AS signature
            FROM social_accounts a
            JOIN brand_accounts b ON b.account_id = a.id
            WHERE a.id",
        "AND b.brand_id = $2"
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(account_ids)).bind(brand_id).fetch_all(c))?)
}

/// Returns an account and its secrets (a JSON object) for a call to the platform.
pub async fn with_secrets(
    conn: &mut Conn,
    cipher: &Cipher,
    account_id: i64,
) -> Result<Option<(SocialAccount, SecretString)>> {
    let sql = sql!("SELECT {COLUMNS}, a.secrets FROM social_accounts a WHERE a.id = $1", COLUMNS);
    let row: Option<AccountRow> = run!(conn, c => sqlx::query_as(sql).bind(account_id).fetch_optional(c))?;
    row.map(|row| row.open(cipher)).transpose()
}

/// Returns accounts and their secrets, by pairs of a brand's id and an account's id. Leaves out pairs whose account
/// does not belong to the brand.
pub async fn of_brands_with_secrets(
    conn: &mut Conn,
    cipher: &Cipher,
    pairs: &[(i64, i64)],
) -> Result<HashMap<(i64, i64), (SocialAccount, SecretString)>> {
    #[derive(sqlx_macros::FromRow)]
    struct PairRow {
        brand_id: i64,
        #[sqlx(flatten)]
        row: AccountRow,
    }
    const FOUND: &str = sql!(
        "
        SELECT b.brand_id, {COLUMNS}, a.secrets
        FROM pair
        JOIN brand_accounts b ON b.brand_id = brand AND b.account_id = account
        JOIN social_accounts a ON a.id = b.account_id",
        COLUMNS
    );
    // `|| ''` as in `list_sql!`.
    const PG: &str = sql!(
        "
        WITH pair AS (
            SELECT (value ->> 0)::bigint AS brand, (value ->> 1)::bigint AS account
            FROM json_array_elements($1::json)
            WHERE value ->> 0 = (value ->> 0) || ''
        )
        {FOUND}",
        FOUND
    );
    const SQLITE: &str = sql!(
        "
        WITH pair AS (
            SELECT value ->> 0 AS brand, value ->> 1 AS account
            FROM json_each($1)
        )
        {FOUND}",
        FOUND
    );
    let sql = conn.for_engine(PG, SQLITE);
    let list = serde_json::json!(pairs).to_string();
    let rows: Vec<PairRow> = run!(conn, c => sqlx::query_as(sql).bind(&list).fetch_all(c))?;
    let open = |found: PairRow| {
        let (account, secrets) = found.row.open(cipher)?;
        Ok(((found.brand_id, account.id), (account, secrets)))
    };
    rows.into_iter().map(open).collect()
}

#[derive(sqlx_macros::FromRow)]
pub(super) struct AccountRow {
    #[sqlx(flatten)]
    pub(super) account: SocialAccount,
    secrets: Vec<u8>,
}

impl AccountRow {
    pub(super) fn open(self, cipher: &Cipher) -> Result<(SocialAccount, SecretString)> {
        let account = self.account;
        let name = row_name(account.workspace_id, account.platform, &account.external_id);
        let plain = cipher.open(&place(&name), &self.secrets)?;
        let text = String::from_utf8(plain)
            .map_err(|_| StoreError::Decode("an account's secrets are not valid UTF-8".into()))?;
        Ok((account, SecretString::from(text)))
    }
}

/// Takes the lease of the account's refresh for `at_most`, and returns the version of the secrets to refresh. Returns
/// `None` if another process holds the lease. [`renew`], [`end_refresh`] and storing other secrets release it.
pub async fn begin_refresh(tx: &mut Tx, account_id: i64, at_most: TimeDelta) -> Result<Option<i64>> {
    const SQL: &str = "UPDATE social_accounts
        SET refreshing_until = $2
        WHERE id = $1 AND (refreshing_until IS NULL OR refreshing_until <= $3 OR refreshing_until > $4)
        RETURNING credentials_version";
    // A much longer lease was taken by a process whose clock was ahead.
    let (until, now, too_long) = (tx.now + at_most, tx.now, tx.now + at_most + TimeDelta::hours(1));
    let version = run!(tx, c => {
        sqlx::query_scalar(SQL).bind(account_id).bind(until).bind(now).bind(too_long).fetch_optional(c)
    })?;
    Ok(version)
}

/// Releases the lease of the refresh.
pub async fn end_refresh(tx: &mut Tx, account_id: i64, version: i64) -> Result<()> {
    const SQL: &str = "UPDATE social_accounts
        SET refreshing_until = NULL
        WHERE id = $1 AND credentials_version = $2";
    execute!(tx, SQL, account_id, version)?;
    Ok(())
}

/// Stores new tokens, or confirms the current ones, and makes the account active. Returns `None` and writes nothing if
/// the account was deleted or has other secrets than `account`.
pub async fn renew(
    tx: &mut Tx,
    account: &SocialAccount,
    secrets: Option<&SecretString>,
    times: impl Into<TokenTimes>,
) -> Result<Option<SocialAccount>> {
    const SQL: &str = "UPDATE social_accounts
        SET status = 'active', last_error = NULL, secrets = coalesce($2, secrets),
            credentials_version = CASE WHEN $2 IS NULL THEN credentials_version ELSE credentials_version + 1 END,
            token_expires_at = $3, refreshing_until = NULL, updated_at = $4,
            warnings = CASE WHEN status = 'expired' THEN 0 ELSE warnings END,
            refresh_expires_at = coalesce($6, refresh_expires_at), token_renew_at = $7, token_check_at = $8
        WHERE id = $1 AND credentials_version = $5
        RETURNING *";
    let times: TokenTimes = times.into();
    let token_expires_at = times.token_expires_at;
    let name = row_name(account.workspace_id, account.platform, &account.external_id);
    let sealed = match secrets {
        Some(s) => Some(tx.cipher.seal(&place(&name), s.expose_secret().as_bytes())?),
        None => None,
    };
    let (now, version) = (tx.now, account.credentials_version);
    let (mut renew_at, mut check_at) = (None, None);
    if let Some(kept) = account_tokens::find(tx, account.id).await? {
        let renewal = Renewal {
            refresh_expires_at: times.refresh_expires_at.or(kept.renewal.refresh_expires_at),
            ..kept.renewal
        };
        renew_at = renewal.renew_at(token_expires_at, now, random::unit());
        check_at = renewal.check_at(token_expires_at, renew_at, kept.warnings);
    }
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(account.id).bind(&sealed).bind(token_expires_at).bind(now).bind(version)
        .bind(times.refresh_expires_at).bind(renew_at).bind(check_at).fetch_optional(c))?)
}

/// Finds an account by its id only, for the worker.
pub async fn find_any(conn: &mut Conn, account_id: i64) -> Result<Option<SocialAccount>> {
    let sql = sql!(
        "
            SELECT {COLUMNS}
            FROM social_accounts a
            WHERE a.id = $1",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(account_id).fetch_optional(c))?)
}

/// Returns an account's status and platform.
pub async fn status(conn: &mut Conn, account_id: i64) -> Result<Option<(AccountStatus, Platform)>> {
    const SQL: &str = "SELECT status, platform FROM social_accounts WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(account_id).fetch_optional(c))?)
}

/// Returns the limits of the brand's active accounts on a platform, as reported by their servers.
pub async fn limits(conn: &mut Conn, brand_id: i64, platform: Platform) -> Result<Vec<Option<AccountLimits>>> {
    const SQL: &str = "
        SELECT a.limits
        FROM social_accounts a
        JOIN brand_accounts b ON b.account_id = a.id
        WHERE b.brand_id = $1
            AND a.platform = $2
            AND status = 'active'";
    let found: Vec<Option<Json<AccountLimits>>> =
        run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(platform).fetch_all(c))?;
    Ok(found.into_iter().map(|limits| limits.map(|Json(limits)| limits)).collect())
}

/// Stores the limits reported by an account's server, and its boards, unless the account has received other credentials.
pub async fn set_limits(tx: &mut Tx, account: &SocialAccount, limits: &AccountLimits) -> Result<()> {
    const SQL: &str = "UPDATE social_accounts
        SET limits = $3
        WHERE id = $1 AND credentials_version = $2";
    execute!(tx, SQL, account.id, account.credentials_version, Json(limits))?;
    Ok(())
}

/// Replaces an account's secrets with others that belong to the same tokens. Returns `false` if the account has
/// received other tokens.
pub async fn replace_secrets(tx: &mut Tx, account: &SocialAccount, secrets: &SecretString) -> Result<bool> {
    const SQL: &str = "UPDATE social_accounts
        SET secrets = $3, credentials_version = credentials_version + 1
        WHERE id = $1 AND credentials_version = $2";
    let name = row_name(account.workspace_id, account.platform, &account.external_id);
    let sealed = tx.cipher.seal(&place(&name), secrets.expose_secret().as_bytes())?;
    Ok(execute!(tx, SQL, account.id, account.credentials_version, &sealed)? > 0)
}

/// Marks secrets of this version as rejected by the platform. Returns `false` if the account was deleted or has other
/// secrets. Outside the store, use `crier_jobs::accounts::expire`, which emits the event and notifies the members too.
pub async fn expire(tx: &mut Tx, account_id: i64, version: i64, error: &AccountError) -> Result<bool> {
    const SQL: &str = "UPDATE social_accounts
        SET status = $2, last_error = $3, updated_at = $4, token_renew_at = NULL, token_check_at = NULL
        WHERE id = $1 AND credentials_version = $5";
    let now = tx.now;
    Ok(execute!(tx, SQL, account_id, AccountStatus::Expired, Json(error), now, version)? > 0)
}

/// Returns whether the account is active and has newer secrets than this version.
pub async fn has_newer(conn: &mut Conn, account_id: i64, version: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT id
        FROM social_accounts
        WHERE id = $1 AND credentials_version > $2 AND status = 'active'";
    let found: Option<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).bind(version).fetch_optional(c))?;
    Ok(found.is_some())
}

/// Returns how many brands have the account.
pub async fn attachments(conn: &mut Conn, account_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM brand_accounts WHERE account_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).fetch_one(c))?)
}

/// Returns whether the brand of a target's post has the account of the target.
pub async fn is_connected(conn: &mut Conn, target_id: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_targets t
            JOIN posts p ON p.id = t.post_id
            JOIN brand_accounts b ON b.brand_id = p.brand_id AND b.account_id = t.account_id
            WHERE t.id = $1
        )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(target_id).fetch_one(c))?)
}

/// Detaches an account from a brand; if that was the last brand, deletes the account with its tokens. Returns `None` if
/// the brand does not have the account.
pub async fn disconnect(tx: &mut Tx, brand_id: i64, account_id: i64) -> Result<Option<DisconnectResult>> {
    // Locks the account's row: two brands that detach concurrently must not each see the other's attachment.
    execute!(tx, "UPDATE social_accounts SET updated_at = updated_at WHERE id = $1", account_id)?;
    const DETACH: &str = "
        DELETE FROM brand_accounts
        WHERE brand_id = $1 AND account_id = $2";
    if execute!(tx, DETACH, brand_id, account_id)? == 0 {
        return Ok(None);
    }
    if attachments(tx, account_id).await? > 0 {
        return Ok(Some(DisconnectResult::Detached));
    }
    execute!(tx, "DELETE FROM publish_calls WHERE account_id = $1 AND quota IS NULL", account_id)?;
    execute!(tx, "DELETE FROM social_accounts WHERE id = $1", account_id)?;
    Ok(Some(DisconnectResult::Revoked))
}
