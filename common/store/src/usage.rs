//! Usage of the monthly caps.
//!
//! Counting locks a row until the end of the transaction, so it comes last: other requests of the workspace wait only for
//! the commit. A plan with a cap counts in one row, so that concurrent requests cannot both take the last post. Without a
//! cap the count is spread over slots, and no request waits.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// Over how many rows a workspace without a cap spreads its count.
const SLOTS: u64 = 64;

fn month(at: DateTime<Utc>) -> String {
    at.format("%Y-%m").to_string()
}

/// Takes one post of this month's cap; `false`: `cap` is reached. Two concurrent calls cannot both take the last one.
pub async fn take_post(tx: &mut Tx, workspace_id: i64, cap: Option<u64>) -> Result<bool> {
    let month = month(tx.now);
    let Some(cap) = cap else {
        // The row is there already but for once a month, and an update of its own writes less than one of a conflict.
        const PG: &str = "
            WITH counted AS (
                UPDATE usage_slots
                SET posts = posts + 1
                WHERE workspace_id = $1 AND month = $2 AND slot = $3
                RETURNING slot
            )
            INSERT INTO usage_slots (workspace_id, month, slot, posts)
            SELECT $1, $2, $3, 1
            WHERE NOT EXISTS (SELECT 1 FROM counted)
            ON CONFLICT (workspace_id, month, slot)
            DO UPDATE SET posts = usage_slots.posts + 1";
        const SQLITE: &str = "
            INSERT INTO usage_slots (workspace_id, month, slot, posts)
            VALUES ($1, $2, $3, 1)
            ON CONFLICT (workspace_id, month, slot)
            DO UPDATE SET posts = usage_slots.posts + 1";
        // SQLite has one writer.
        let slot = if tx.is_postgres() { crier_base::random::u64() % SLOTS } else { 0 };
        let sql = tx.for_engine(PG, SQLITE);
        execute!(tx, sql, workspace_id, &month, i64::try_from(slot).unwrap_or_default())?;
        return Ok(true);
    };
    // What the workspace used under a plan without a cap counts as well.
    const TAKE: &str = "
        INSERT INTO usage (workspace_id, month, posts)
        SELECT $1, $2, 1
        WHERE (
            SELECT coalesce(sum(posts), 0)
            FROM usage_slots
            WHERE workspace_id = $1 AND month = $2
        ) < $3
        ON CONFLICT (workspace_id, month)
        DO UPDATE SET posts = usage.posts + 1
        WHERE usage.posts + (
            SELECT coalesce(sum(s.posts), 0)
            FROM usage_slots s
            WHERE s.workspace_id = usage.workspace_id AND s.month = usage.month
        ) < $3";
    let cap = i64::try_from(cap).unwrap_or(i64::MAX);
    Ok(execute!(tx, TAKE, workspace_id, &month, cap)? > 0)
}

/// Returns how many posts left draft this month.
pub async fn posts(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "
        SELECT CAST(coalesce(sum(posts), 0) AS bigint)
        FROM (
            SELECT posts FROM usage WHERE workspace_id = $1 AND month = $2
            UNION ALL
            SELECT posts FROM usage_slots WHERE workspace_id = $1 AND month = $2
        ) AS counted";
    let month = month(now);
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(&month).fetch_one(c))?)
}
