//! The tokens of accounts: when they expire, when they are renewed, who is warned.
//!
//! The due time is in the account's row, so any number of schedulers can run, and the next one finds an account that
//! the others missed. The row also tells whether a job still has something to do, so a late job does nothing.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::{AccountStatus, Renewal};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::platform::Platform;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::locking_sql;
use super::{Conn, Result, Tx, jobs};

/// When an account is checked again if the job that was enqueued for it is lost.
const NEXT_CHECK: TimeDelta = TimeDelta::hours(1);

/// The stored state of an account's tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredTokens {
    pub renewal: Renewal,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// How many warnings about the end of the access were sent.
    pub warnings: i32,
    pub renew_at: Option<DateTime<Utc>>,
    pub check_at: Option<DateTime<Utc>>,
}

/// Returns the stored state of an account's tokens. Returns `None` if no job renews or checks them.
pub async fn find(conn: &mut Conn, account_id: i64) -> Result<Option<StoredTokens>> {
    const SQL: &str = "
        SELECT token_renewable, token_rotates, refresh_expires_at, token_expires_at, warnings, token_renew_at,
            token_check_at
        FROM social_accounts
        WHERE id = $1 AND token_renewable IS NOT NULL";
    #[derive(sqlx_macros::FromRow)]
    struct TokenRow {
        token_renewable: bool,
        token_rotates: bool,
        refresh_expires_at: Option<DateTime<Utc>>,
        token_expires_at: Option<DateTime<Utc>>,
        warnings: i32,
        token_renew_at: Option<DateTime<Utc>>,
        token_check_at: Option<DateTime<Utc>>,
    }
    let row: Option<TokenRow> = run!(conn, c => sqlx::query_as(SQL).bind(account_id).fetch_optional(c))?;
    Ok(row.map(|row| StoredTokens {
        renewal: Renewal {
            renewable: row.token_renewable,
            rotates: row.token_rotates,
            refresh_expires_at: row.refresh_expires_at,
        },
        token_expires_at: row.token_expires_at,
        warnings: row.warnings,
        renew_at: row.token_renew_at,
        check_at: row.token_check_at,
    }))
}

/// An account's access as people see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccountAccess {
    pub account_id: i64,
    /// `None` if no job renews or checks its tokens.
    pub renewal: Option<Renewal>,
    pub token_expires_at: Option<DateTime<Utc>>,
    /// Other brands have the account too.
    pub is_shared: bool,
}

impl AccountAccess {
    /// Returns when the access ends unless a person connects the account again.
    pub fn ends_at(&self) -> Option<DateTime<Utc>> {
        self.renewal.and_then(|renewal| renewal.access_ends_at(self.token_expires_at))
    }

    /// Returns whether there is something to renew with, or credentials to check.
    pub fn can_refresh(&self) -> bool {
        self.renewal.is_none_or(|renewal| renewal.can_refresh(self.token_expires_at))
    }
}

/// Returns the access of accounts. Leaves out those that do not belong to the brand.
pub async fn access(conn: &mut Conn, brand_id: i64, account_ids: &[i64]) -> Result<Vec<AccountAccess>> {
    let sql = list_sql!(
        conn,
        "
        SELECT a.id, a.token_renewable, a.token_rotates, a.refresh_expires_at, a.token_expires_at,
            (SELECT count(*) FROM brand_accounts o WHERE o.account_id = a.id) AS brands
        FROM social_accounts a
        JOIN brand_accounts b ON b.account_id = a.id
        WHERE a.id",
        "AND b.brand_id = $2"
    );
    #[derive(sqlx_macros::FromRow)]
    struct AccessRow {
        id: i64,
        token_renewable: Option<bool>,
        token_rotates: bool,
        refresh_expires_at: Option<DateTime<Utc>>,
        token_expires_at: Option<DateTime<Utc>>,
        brands: i64,
    }
    let list = id_list(account_ids);
    let rows: Vec<AccessRow> = run!(conn, c => sqlx::query_as(sql).bind(&list).bind(brand_id).fetch_all(c))?;
    let access = |row: AccessRow| AccountAccess {
        account_id: row.id,
        renewal: row.token_renewable.map(|renewable| Renewal {
            renewable,
            rotates: row.token_rotates,
            refresh_expires_at: row.refresh_expires_at,
        }),
        token_expires_at: row.token_expires_at,
        is_shared: row.brands > 1,
    };
    Ok(rows.into_iter().map(access).collect())
}

/// Locks the account's row until the end of the transaction.
pub async fn lock(tx: &mut Tx, account_id: i64) -> Result<()> {
    execute!(tx, "UPDATE social_accounts SET status = status WHERE id = $1", account_id)?;
    Ok(())
}

/// Enqueues a job for each account whose tokens are due, at most `limit`, the longest overdue first. Returns how many.
pub async fn enqueue_due(tx: &mut Tx, limit: i64) -> Result<usize> {
    let sql = locking_sql!(
        tx,
        "
        WITH due AS MATERIALIZED (
            SELECT id
            FROM social_accounts
            WHERE token_check_at <= $1
            ORDER BY token_check_at
            LIMIT (SELECT $2)
            {LOCK}
        )
        UPDATE social_accounts
        SET token_check_at = $3
        WHERE id IN (SELECT id FROM due WHERE id = id + 0)
        RETURNING id, workspace_id",
        "FOR UPDATE SKIP LOCKED"
    );
    let (now, next) = (tx.now, tx.now + NEXT_CHECK);
    let due: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    for (id, workspace) in &due {
        let job = NewJob::new(JobKind::RefreshToken, *id, now).lane(Lane::Refresh(*id)).workspace(*workspace);
        jobs::enqueue(tx, &job).await?;
    }
    Ok(due.len())
}

/// Sets when the tokens are checked again, unless the account has received other credentials.
pub async fn check_again(tx: &mut Tx, account_id: i64, version: i64, at: Option<DateTime<Utc>>) -> Result<()> {
    const SQL: &str = "
        UPDATE social_accounts
        SET token_check_at = $3
        WHERE id = $1
            AND credentials_version = $2
            AND status = 'active'";
    execute!(tx, SQL, account_id, version, at)?;
    Ok(())
}

/// Records that warnings were sent. Returns `false` if another process did so, or if the account has received other
/// credentials.
pub async fn record_warnings(
    tx: &mut Tx,
    account_id: i64,
    version: i64,
    sent_before: i32,
    sent: i32,
    check_at: Option<DateTime<Utc>>,
) -> Result<bool> {
    const SQL: &str = "
        UPDATE social_accounts
        SET warnings = $4, token_check_at = $5
        WHERE id = $1
            AND credentials_version = $2
            AND warnings = $3
            AND status = 'active'";
    Ok(execute!(tx, SQL, account_id, version, sent_before, sent, check_at)? > 0)
}

/// Returns the brands that have an account.
pub async fn brands(conn: &mut Conn, account_id: i64) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT brand_id
        FROM brand_accounts
        WHERE account_id = $1
        ORDER BY brand_id";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).fetch_all(c))?)
}

/// Returns how many accounts there are, by platform and status.
pub async fn counts(conn: &mut Conn) -> Result<Vec<(Platform, AccountStatus, i64)>> {
    const SQL: &str = "
        SELECT platform, status, count(*)
        FROM social_accounts
        GROUP BY platform, status";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}

/// Returns when the first token of an active account expires, by platform.
pub async fn soonest_expirations(conn: &mut Conn) -> Result<Vec<(Platform, DateTime<Utc>)>> {
    const SQL: &str = "
        SELECT platform, min(token_expires_at)
        FROM social_accounts
        WHERE status = 'active' AND token_expires_at IS NOT NULL
        GROUP BY platform";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}

/// Returns the accounts whose tokens belong to an application.
pub async fn of_application(conn: &mut Conn, platform: Platform, client_id: &str) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT id
        FROM social_accounts
        WHERE platform = $1 AND application = $2
        ORDER BY id";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(platform).bind(client_id).fetch_all(c))?)
}
