//! Publish calls, counted if a platform has a daily cap: over all workers, at most that many begin on an account within
//! any 24 hours.
//!
//! A call counts once it is marked as begun, whatever its result, because a call that the platform rejected, or that
//! was interrupted before anything was sent, may count at the platform too. The rows are deleted a day later.
//!
//! If accounts share a daily limit of uploads, the beginning of each upload counts instead. These rows are kept longer: a
//! workspace that uploaded lately has an upload per day that the other workspaces cannot use.

use chrono::{DateTime, TimeDelta, Utc};

use super::db::{execute, run};
use super::{Result, Tx};

/// How long a call counts.
pub const WINDOW: TimeDelta = TimeDelta::hours(24);

/// How long an upload per day is reserved for a workspace after its last upload.
const RESERVED_FOR: TimeDelta = TimeDelta::days(7);

/// Counts a call that begins now. If the cap is reached, counts nothing and returns when the next call may begin.
///
/// The check and the insert are atomic across workers: the account's lock is held until the end of the transaction (on
/// SQLite there is one writer anyway). It is the last lock that a transaction takes, which prevents deadlocks.
pub async fn begin(tx: &mut Tx, account_id: i64, cap: u32) -> Result<Option<DateTime<Utc>>> {
    // The uploads of an account that now uses another application reserve its workspace an upload of the earlier one.
    const OUTDATED: &str = "DELETE FROM publish_calls WHERE account_id = $1 AND began_at <= $2 AND quota IS NULL";
    if tx.is_postgres() {
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", format!("calls:{account_id}"))?;
    }
    let now = tx.now;
    execute!(tx, OUTDATED, account_id, now - WINDOW)?;
    let full = full_until(tx, account_id, cap).await?;
    if full.is_none() {
        execute!(tx, "INSERT INTO publish_calls (account_id, began_at) VALUES ($1, $2)", account_id, now)?;
    }
    Ok(full)
}

/// Returns when the next call may begin, or `None` if one may begin now. Counts nothing.
pub async fn full_until(tx: &mut Tx, account_id: i64, cap: u32) -> Result<Option<DateTime<Utc>>> {
    // The call that must leave the window first: with `cap` calls in the window, the oldest of them.
    const FULL: &str = "
        SELECT began_at
        FROM publish_calls
        WHERE account_id = $1 AND began_at > $3
        ORDER BY began_at DESC
        LIMIT 1
        OFFSET $2";
    let (before, since) = (i64::from(cap) - 1, tx.now - WINDOW);
    let full: Option<DateTime<Utc>> =
        run!(tx, c => sqlx::query_scalar(FULL).bind(account_id).bind(before).bind(since).fetch_optional(c))?;
    Ok(full.map(|began_at| began_at + WINDOW))
}

/// Counts an upload that begins now, against a quota that accounts share. Returns `false`, and counts nothing, if `cap`
/// uploads have begun since `since`. After the first upload of a workspace, those that are reserved for other workspaces
/// count too. Atomic across workers, like [`begin`].
pub async fn begin_upload(
    tx: &mut Tx,
    (account_id, workspace_id): (i64, i64),
    quota: &str,
    since: DateTime<Utc>,
    cap: u32,
) -> Result<bool> {
    const BEGUN: &str = "
        SELECT workspace_id, count(CASE WHEN began_at >= $2 THEN 1 END)
        FROM publish_calls
        WHERE quota = $1
        GROUP BY workspace_id";
    const SQL: &str = "
        INSERT INTO publish_calls (account_id, began_at, quota, workspace_id)
        VALUES ($1, $2, $3, $4)";
    if tx.is_postgres() {
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", format!("quota:{quota}"))?;
    }
    let now = tx.now;
    execute!(tx, "DELETE FROM publish_calls WHERE quota = $1 AND began_at < $2", quota, since - RESERVED_FOR)?;
    let begun: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(BEGUN).bind(quota).bind(since).fetch_all(c))?;
    let is_first = begun.iter().all(|(workspace, uploads)| *workspace != workspace_id || *uploads == 0);
    let reserved = |(workspace, uploads): &(i64, i64)| !is_first && *workspace != workspace_id && *uploads == 0;
    let used: i64 = begun.iter().map(|one| one.1 + i64::from(reserved(one))).sum();
    if used >= i64::from(cap) {
        return Ok(false);
    }
    execute!(tx, SQL, account_id, now, quota, workspace_id)?;
    Ok(true)
}
