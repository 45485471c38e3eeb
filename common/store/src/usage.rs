//! Usage of the monthly caps.
//!
//! Counting locks a row until the end of the transaction, so it comes last: other requests of the workspace then wait
//! only for the commit. With a cap, posts are counted in one row, so that concurrent requests cannot both take the last
//! one. Without a cap, the count is spread over slots, so that no request waits; [`super::posts::create`] then counts
//! in its own statement.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::sql::sql;
use super::{Conn, Result, Tx};

pub(super) fn month(at: DateTime<Utc>) -> String {
    at.format("%Y-%m").to_string()
}

/// Common table expressions that count a post of a workspace without a cap, for Postgres. They count nothing if
/// `$workspace` is NULL.
///
/// Each of up to 64 connections counts in its own row. The row already exists except once a month, and an `UPDATE`
/// writes less than an `INSERT … ON CONFLICT DO UPDATE`.
macro_rules! count_post {
    ($workspace:literal, $month:literal) => {{
        const WORKSPACE: &str = $workspace;
        const MONTH: &str = $month;
        $crate::sql::sql!(
            "counted AS (
                UPDATE usage_slots
                SET posts = posts + 1
                WHERE workspace_id = {WORKSPACE} AND month = {MONTH} AND slot = pg_backend_pid() % 64
                RETURNING slot
            ),
            counted_first AS (
                INSERT INTO usage_slots (workspace_id, month, slot, posts)
                SELECT {WORKSPACE}, {MONTH}, pg_backend_pid() % 64, 1
                WHERE {WORKSPACE} IS NOT NULL AND NOT EXISTS (SELECT 1 FROM counted)
                ON CONFLICT (workspace_id, month, slot)
                DO UPDATE SET posts = usage_slots.posts + 1
            )",
            WORKSPACE,
            MONTH
        )
    }};
}
pub(super) use count_post;

/// The same as one statement, for SQLite, which has one writer.
macro_rules! count_post_sqlite {
    ($workspace:literal, $month:literal) => {{
        const WORKSPACE: &str = $workspace;
        const MONTH: &str = $month;
        $crate::sql::sql!(
            "INSERT INTO usage_slots (workspace_id, month, slot, posts)
            SELECT {WORKSPACE}, {MONTH}, 0, 1
            WHERE {WORKSPACE} IS NOT NULL
            ON CONFLICT (workspace_id, month, slot)
            DO UPDATE SET posts = usage_slots.posts + 1",
            WORKSPACE,
            MONTH
        )
    }};
}
pub(super) use count_post_sqlite;

/// Counts a post in this month's usage. Returns `false` if `cap` is reached. Two concurrent calls cannot both take the
/// last post.
pub async fn take_post(tx: &mut Tx, workspace_id: i64, cap: Option<u64>) -> Result<bool> {
    let month = month(tx.now);
    let Some(cap) = cap else {
        const COUNT_POST: &str = count_post!("$1", "$2");
        let sql = tx.for_engine(sql!("WITH {COUNT_POST} SELECT 1", COUNT_POST), count_post_sqlite!("$1", "$2"));
        execute!(tx, sql, workspace_id, &month)?;
        return Ok(true);
    };
    // Posts that were counted while the plan had no cap count too.
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

/// Returns how many posts were counted this month.
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
