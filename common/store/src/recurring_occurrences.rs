//! The occurrences of recurring posts. The caller has locked the row of the rule.

use chrono::{DateTime, Utc};
use crier_domain::recurring_post::{OccurrencePlan, RecurringPost, StoredOccurrence};

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Result, Tx};

/// Selects occurrences with the state of their posts.
const SELECT: &str = "
    SELECT o.id, o.slot, o.occurs_at, o.number, o.version, o.is_removed, o.written_at, p.id AS post_id,
        p.status AS post_status, p.updated_at AS post_updated_at
    FROM recurring_occurrences o
    LEFT JOIN posts p ON p.id = o.post_id AND p.deleted_at IS NULL";

/// Returns the occurrences of a rule after a time, in the order of their times.
pub async fn since(conn: &mut Conn, recurring_id: i64, after: DateTime<Utc>) -> Result<Vec<StoredOccurrence>> {
    let sql = sql!("{SELECT} WHERE o.recurring_id = $1 AND o.occurs_at > $2 ORDER BY o.occurs_at, o.id", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(recurring_id).bind(after).fetch_all(c))?)
}

/// Writes a plan of the current version of the rule.
pub async fn write_plan(tx: &mut Tx, rule: &RecurringPost, plan: &OccurrencePlan) -> Result<()> {
    if !plan.delete.is_empty() {
        let sql = list_sql!(tx, "DELETE FROM recurring_occurrences WHERE id", "");
        execute!(tx, sql, id_list(&plan.delete))?;
    }
    if !plan.remove.is_empty() {
        let sql = list_sql!(tx, "UPDATE recurring_occurrences SET is_removed = TRUE WHERE id", "");
        execute!(tx, sql, id_list(&plan.remove))?;
    }
    for moved in &plan.moved {
        const MOVE: &str = "
            UPDATE recurring_occurrences
            SET slot = $2, occurs_at = $3, number = $4, is_removed = FALSE, version = $5
            WHERE id = $1";
        let (slot, at) = (&moved.occurrence.slot, moved.occurrence.occurs_at);
        // An older version, so that the post is written again.
        execute!(tx, MOVE, moved.id, slot, at, moved.number, rule.version - 1)?;
    }
    if plan.add.is_empty() {
        return Ok(());
    }
    let sql = tx.for_engine(
        "
        INSERT INTO recurring_occurrences (recurring_id, slot, occurs_at, number, version)
        SELECT $1, value ->> 0, (value ->> 1)::timestamptz, (value ->> 2)::bigint, $3
        FROM json_array_elements($2::json)
        ON CONFLICT DO NOTHING",
        "
        INSERT INTO recurring_occurrences (recurring_id, slot, occurs_at, number, version)
        SELECT $1, value ->> 0, value ->> 1, value ->> 2, $3
        FROM json_each($2)
        WHERE TRUE
        ON CONFLICT DO NOTHING",
    );
    let rows: Vec<_> = plan.add.iter().map(|(one, number)| (&one.slot, time_text(one.occurs_at), *number)).collect();
    execute!(tx, sql, rule.id, serde_json::json!(rows).to_string(), rule.version)?;
    Ok(())
}

/// The position of a run in the occurrences of a rule.
#[derive(Clone, Copy, Debug)]
pub struct OccurrenceCursor {
    pub occurs_at: DateTime<Utc>,
    pub id: i64,
}

/// Returns the next occurrence in the future to make, to write again or to remove, after the cursor. `makes`: whether
/// those that were never made are included.
pub async fn next_unfinished(
    tx: &mut Tx,
    rule: &RecurringPost,
    after: OccurrenceCursor,
    makes: bool,
) -> Result<Option<StoredOccurrence>> {
    let sql = sql!(
        "
        {SELECT}
        WHERE o.recurring_id = $1
            AND o.occurs_at > $2
            AND (o.occurs_at, o.id) > ($3, $4)
            AND (
                o.is_removed
                OR o.written_at IS NULL
                    AND $6
                OR o.version < $5
                    AND p.updated_at = o.written_at
                    AND p.status IN ('draft', 'pending_approval', 'scheduled')
            )
        ORDER BY o.occurs_at, o.id
        LIMIT 1",
        SELECT
    );
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(sql).bind(rule.id).bind(now).bind(after.occurs_at).bind(after.id)
        .bind(rule.version).bind(makes).fetch_optional(c))?)
}

/// Records that the post of an occurrence was written now, from the current version of the rule.
pub async fn record_post(tx: &mut Tx, occurrence_id: i64, post_id: i64, version: i64) -> Result<()> {
    const SQL: &str = "UPDATE recurring_occurrences SET post_id = $2, written_at = $3, version = $4 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, occurrence_id, post_id, now, version)?;
    Ok(())
}

/// Keeps an occurrence as it is: its post was changed, or its publishing begins.
pub async fn keep(tx: &mut Tx, occurrence_id: i64, version: i64) -> Result<()> {
    const SQL: &str = "UPDATE recurring_occurrences SET is_removed = FALSE, version = $2 WHERE id = $1";
    execute!(tx, SQL, occurrence_id, version)?;
    Ok(())
}

pub async fn delete(tx: &mut Tx, occurrence_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM recurring_occurrences WHERE id = $1", occurrence_id)?;
    Ok(())
}

/// Deletes occurrences before a time, at most `limit`. Returns how many. Their posts remain.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    const SQL: &str = "
        WITH old AS MATERIALIZED (
            SELECT id
            FROM recurring_occurrences
            WHERE occurs_at <= $1
            ORDER BY occurs_at
            LIMIT (SELECT $2)
        )
        DELETE FROM recurring_occurrences
        WHERE id IN (SELECT id FROM old WHERE id = id + 0)";
    Ok(execute!(tx, SQL, before, limit)?)
}

/// Returns the number of planned occurrences of rules in the future, by rule.
pub async fn count_future(conn: &mut Conn, recurring_ids: &[i64], now: DateTime<Utc>) -> Result<Vec<(i64, i64)>> {
    if recurring_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(
        conn,
        "SELECT recurring_id, count(*) FROM recurring_occurrences WHERE recurring_id",
        "AND occurs_at > $2 AND NOT is_removed GROUP BY recurring_id"
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(recurring_ids)).bind(now).fetch_all(c))?)
}
