//! Publish calls, counted where a platform has a daily cap: no more than so many are begun on an account within any 24
//! hours, by all workers together.
//!
//! A call counts once it is marked as begun, whatever becomes of it: one that the platform refused, or that was cut before
//! anything was sent, may have counted there as well. What counts is forgotten a day later.

use chrono::{DateTime, TimeDelta, Utc};

use super::db::{execute, run};
use super::{Result, Tx};

/// How long a call counts.
pub const WINDOW: TimeDelta = TimeDelta::hours(24);

/// Counts a call that begins now. Where that would be one too many it counts nothing, and gives when the oldest call that
/// stands in the way leaves the window.
///
/// Count and mark are one step for all workers: the account's lock is held until the end of the transaction (on SQLite
/// there is one writer anyway). It is the last lock that a transaction takes, so nobody waits for another in a circle.
pub async fn begin(tx: &mut Tx, account_id: i64, cap: u32) -> Result<Option<DateTime<Utc>>> {
    if tx.is_postgres() {
        execute!(tx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", format!("calls:{account_id}"))?;
    }
    let now = tx.now;
    execute!(tx, "DELETE FROM publish_calls WHERE account_id = $1 AND began_at <= $2", account_id, now - WINDOW)?;
    let full = full_until(tx, account_id, cap).await?;
    if full.is_none() {
        execute!(tx, "INSERT INTO publish_calls (account_id, began_at) VALUES ($1, $2)", account_id, now)?;
    }
    Ok(full)
}

/// When a call could begin; `None`: now. Counts nothing.
pub async fn full_until(tx: &mut Tx, account_id: i64, cap: u32) -> Result<Option<DateTime<Utc>>> {
    // The call that has to leave before there is room: with `cap` calls in the window, the oldest of them.
    const FULL: &str = "SELECT began_at FROM publish_calls WHERE account_id = $1 AND began_at > $3 ORDER BY began_at DESC LIMIT 1 OFFSET $2";
    let (before, since) = (i64::from(cap) - 1, tx.now - WINDOW);
    let full: Option<DateTime<Utc>> =
        run!(tx, c => sqlx::query_scalar(FULL).bind(account_id).bind(before).bind(since).fetch_optional(c))?;
    Ok(full.map(|began_at| began_at + WINDOW))
}
