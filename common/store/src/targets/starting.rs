//! The start of an attempt at a target: before the call to its platform, in the transaction that decides to make the
//! call.

use serde_json::{Map, Value, json};
use sqlx::types::Json;

use super::super::db::execute;
use super::super::jobs::id_list;
use super::super::{Result, Tx};

/// Starts a run: the target becomes `publishing`.
pub async fn start(tx: &mut Tx, target_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'publishing', attempts = attempts + 1, next_attempt_at = NULL, updated_at = $2
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, now)?;
    Ok(())
}

/// Starts a run whose call follows when the post's images are uploaded: [`start`] with the marker.
pub async fn start_marked(tx: &mut Tx, target_id: i64, marker: &Map<String, Value>) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET status = 'publishing', attempts = attempts + 1, next_attempt_at = NULL, marker = $2,
            updated_at = $3
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, target_id, Json(marker), now)?;
    Ok(())
}

/// A target whose call starts now.
#[derive(Debug, Clone)]
pub struct StartingCall {
    pub target_id: i64,
    pub marker: Map<String, Value>,
}

/// Starts runs and their calls ([`start`] with the marker and the time of the call), and makes these posts
/// `publishing`, in one statement. The caller has locked the rows of these posts and of the targets' posts.
pub async fn start_calls(tx: &mut Tx, calls: &[StartingCall], post_ids: &[i64]) -> Result<()> {
    // Two updates: in one statement on Postgres, with `value || ''` as in `list_sql!`, in two on SQLite.
    const PG: &str = "
        WITH started AS (
            UPDATE post_targets
            SET status = 'publishing', attempts = attempts + 1, next_attempt_at = NULL, marker = call.marker,
                call_started_at = $3, updated_at = $3
            FROM (
                SELECT (value ->> 0)::bigint AS target_id, value -> 1 AS marker
                FROM jsonb_array_elements($1::jsonb)
                WHERE value ->> 0 = (value ->> 0) || ''
            ) call
            WHERE post_targets.id = call.target_id
        )
        UPDATE posts
        SET status = 'publishing', updated_at = $3
        WHERE id IN (SELECT value::bigint FROM json_array_elements_text($2::json) WHERE value = value || '')";
    const SQLITE: &str = "
        UPDATE post_targets
        SET status = 'publishing', attempts = attempts + 1, next_attempt_at = NULL, marker = value -> 1,
            call_started_at = $3, updated_at = $3
        FROM json_each($1)
        WHERE post_targets.id = value ->> 0;
        UPDATE posts
        SET status = 'publishing', updated_at = $3
        WHERE id IN (SELECT value FROM json_each($2))";
    if calls.is_empty() && post_ids.is_empty() {
        return Ok(());
    }
    let (sql, now) = (tx.for_engine(PG, SQLITE), tx.now);
    let calls = Value::from_iter(calls.iter().map(|call| json!([call.target_id, call.marker]))).to_string();
    execute!(tx, sql, &calls, id_list(post_ids), now)?;
    Ok(())
}
