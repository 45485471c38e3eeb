//! The first comments of published targets. The row is stored when the target is published, with the job that sends the
//! comment. The caller of a function that changes one has locked its post.

use chrono::{DateTime, Utc};
use crier_domain::failure::Failure;
use crier_domain::post::{FirstCommentStatus, StoredFirstComment};
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::db::{execute, run};
use super::sql::sql;
use super::{Conn, Result, Tx};

const COLUMNS: &str = "
    target_id, content, status, marker, call_started_at, external_id, url, error, attempts, next_attempt_at,
    published_at, created_at, updated_at";

/// Stores a pending comment. Returns `false` if the target already has one.
pub async fn insert(tx: &mut Tx, target_id: i64, content: &str) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO first_comments (target_id, content, status, created_at, updated_at)
        VALUES ($1, $2, 'pending', $3, $3)
        ON CONFLICT (target_id) DO NOTHING";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, content, now)? > 0)
}

pub async fn find(conn: &mut Conn, target_id: i64) -> Result<Option<StoredFirstComment>> {
    let sql = sql!("SELECT {COLUMNS} FROM first_comments WHERE target_id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(target_id).fetch_optional(c))?)
}

/// Finds a comment without its JSON columns, to end one whose row cannot be read.
pub async fn find_without_json(conn: &mut Conn, target_id: i64) -> Result<Option<StoredFirstComment>> {
    // `nullif` of a column with itself is NULL, of the column's type, without its value being decoded.
    const SQL: &str = "
        SELECT target_id, content, status, call_started_at, external_id, url, attempts, next_attempt_at, published_at,
            created_at, updated_at, nullif(marker, marker) AS marker, nullif(error, error) AS error
        FROM first_comments
        WHERE target_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(target_id).fetch_optional(c))?)
}

/// Returns the comments of a post's targets, in any order.
pub async fn of_post(conn: &mut Conn, post_id: i64) -> Result<Vec<StoredFirstComment>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM first_comments
        WHERE target_id IN (SELECT id FROM post_targets WHERE post_id = $1)",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(post_id).fetch_all(c))?)
}

/// Starts a run: counts the attempt. If there is a marker, also stores it.
pub async fn start(tx: &mut Tx, target_id: i64, marker: Option<&Map<String, Value>>) -> Result<()> {
    const SQL: &str = "
        UPDATE first_comments
        SET attempts = attempts + 1, next_attempt_at = NULL, marker = coalesce($2, marker), updated_at = $3
        WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, marker.map(Json), now)?;
    Ok(())
}

/// Stores the marker and the time *before* the call that uses them.
pub async fn mark_call(tx: &mut Tx, target_id: i64, marker: &Map<String, Value>) -> Result<()> {
    const SQL: &str = "
        UPDATE first_comments
        SET marker = $2, call_started_at = $3, updated_at = $3
        WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(marker), now)?;
    Ok(())
}

/// Stores the marker of a comment whose call has not been made.
pub async fn set_marker(tx: &mut Tx, target_id: i64, marker: &Map<String, Value>) -> Result<()> {
    const SQL: &str = "UPDATE first_comments SET marker = $2, updated_at = $3 WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(marker), now)?;
    Ok(())
}

/// Clears the time of a call that was not made or was rejected.
pub async fn clear_call(tx: &mut Tx, target_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE first_comments SET call_started_at = NULL, updated_at = $2 WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, now)?;
    Ok(())
}

/// Refunds the attempt of the last run, which was interrupted before its call.
pub async fn refund_attempt(tx: &mut Tx, target_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE first_comments SET attempts = attempts - 1, updated_at = $2 WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, now)?;
    Ok(())
}

/// Waits for the platform until `until`, with a marker that identifies its work. The run does not count: `attempts` is
/// the number before it. A call that was made remains open.
pub async fn await_platform(
    tx: &mut Tx,
    target_id: i64,
    attempts: i32,
    marker: &Map<String, Value>,
    failure: &Failure,
    until: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE first_comments
        SET attempts = $2, marker = $3, error = $4, next_attempt_at = $5, updated_at = $6
        WHERE target_id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, attempts, Json(marker), Json(failure), until, now)?;
    Ok(())
}

/// The state of a comment after a run.
#[derive(Clone, Debug)]
pub struct CommentOutcome {
    pub status: FirstCommentStatus,
    pub external_id: Option<String>,
    pub url: Option<String>,
    pub error: Option<Failure>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    /// The outcome of the last call is unknown: the next run must find out first.
    pub call_open: bool,
}

/// Stores the state of a comment after a run.
pub async fn end(tx: &mut Tx, target_id: i64, ended: &CommentOutcome) -> Result<()> {
    const SQL: &str = "
        UPDATE first_comments
        SET status = $2, external_id = $3, url = $4, error = $5, next_attempt_at = $6, published_at = $7,
            call_started_at = CASE WHEN $8 THEN call_started_at ELSE NULL END, updated_at = $9
        WHERE target_id = $1";
    let (now, error) = (tx.now, ended.error.as_ref().map(Json));
    execute!(
        tx,
        SQL,
        target_id,
        ended.status,
        &ended.external_id,
        &ended.url,
        error,
        ended.next_attempt_at,
        ended.published_at,
        ended.call_open,
        now
    )?;
    Ok(())
}

/// Makes a comment pending again, for the operator: a failed one, or one that could not be failed when its job became
/// dead. Returns `false` if it is in another state.
pub async fn reset(tx: &mut Tx, target_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE first_comments
        SET status = 'pending', next_attempt_at = NULL, updated_at = $2
        WHERE target_id = $1 AND status IN ('failed', 'pending')";
    let now = tx.now;
    Ok(execute!(tx, SQL, target_id, now)? > 0)
}
