//! Usage of the monthly caps.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::{Conn, Result, Tx};

fn month(at: DateTime<Utc>) -> String {
    at.format("%Y-%m").to_string()
}

/// Takes one post of this month's cap; `false`: `cap` is reached. Two concurrent calls cannot both take the last one.
pub async fn take_post(tx: &mut Tx, workspace_id: i64, cap: Option<u64>) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO usage (workspace_id, month, posts)
        VALUES ($1, $2, 1)
        ON CONFLICT (workspace_id, month)
        DO UPDATE SET posts = usage.posts + 1
        WHERE usage.posts < $3";
    let cap = cap.map_or(i64::MAX, |c| i64::try_from(c).unwrap_or(i64::MAX));
    let month = month(tx.now);
    Ok(cap > 0 && execute!(tx, SQL, workspace_id, &month, cap)? > 0)
}

/// Returns how many posts left draft this month.
pub async fn posts(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "SELECT posts FROM usage WHERE workspace_id = $1 AND month = $2";
    let month = month(now);
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(&month).fetch_optional(c))?.unwrap_or(0))
}
