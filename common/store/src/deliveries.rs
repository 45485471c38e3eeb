//! Deliveries of events to endpoints, and their attempts.

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use crier_base::secrets::Cipher;
use crier_domain::event::EventName;
use crier_domain::job::{JobAttempt, MAX_SHOWN_ATTEMPTS};
use crier_domain::webhook::{Delivery, DeliveryStatus, WebhookAttempt};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Page, PageRequest, Result, Tx, webhooks};

const SELECT: &str = "
    SELECT d.id, d.webhook_id, e.id AS event_id, e.name AS event, d.status, d.response_code, d.attempts,
        d.max_attempts, d.duration_ms, d.error, d.response_body, e.payload, d.next_attempt_at,
        d.last_attempt_at, d.created_at, d.updated_at
    FROM webhook_deliveries d
    JOIN events e ON e.id = d.event_id";

/// Skips a million IDs of events and deliveries, on SQLite. Called after a restore: receivers may know the next IDs from
/// deliveries after the backup, and would ignore other deliveries with the same IDs.
pub async fn skip_ids(tx: &mut Tx) -> Result<()> {
    // A table in which nothing was ever inserted has no row.
    const ADD: &str = "
        INSERT INTO sqlite_sequence (name, seq)
        SELECT name, 0
        FROM sqlite_schema
        WHERE name IN ('events', 'webhook_deliveries') AND name NOT IN (SELECT name FROM sqlite_sequence)";
    const SKIP: &str = "UPDATE sqlite_sequence SET seq = seq + 1000000 WHERE name IN ('events', 'webhook_deliveries')";
    execute!(tx, ADD)?;
    execute!(tx, SKIP)?;
    Ok(())
}

/// Filters a list; `None` matches everything.
#[derive(Debug, Clone, Copy, Default)]
pub struct DeliveryFilter {
    pub status: Option<DeliveryStatus>,
    pub event: Option<EventName>,
}

/// Lists an endpoint's deliveries, newest first. The caller has checked who owns the endpoint.
///
/// Scans the endpoint's deliveries, because status and event are not indexed. On Postgres, an index on the status would
/// prevent HOT updates at the end of each attempt, which are far more frequent than filtered lists.
pub async fn list(
    conn: &mut Conn,
    webhook_id: i64,
    filter: DeliveryFilter,
    page: PageRequest,
) -> Result<Page<Delivery>> {
    // Each filter has its own text (see [`super::sql`]), and the count joins events only where necessary.
    let status = if filter.status.is_some() { "d.status = $2" } else { "$2 = ''" };
    let event = if filter.event.is_some() { "e.name = $3" } else { "$3 = ''" };
    let join = if filter.event.is_some() { "JOIN events e ON e.id = d.event_id" } else { "" };
    let words = (filter.status.map_or("", DeliveryStatus::as_str), filter.event.map_or("", EventName::as_str));
    let rows =
        format!("{SELECT} WHERE d.webhook_id = $1 AND {status} AND {event} ORDER BY d.id DESC LIMIT $4 OFFSET $5");
    let rows = run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(rows)).bind(webhook_id).bind(words.0).bind(words.1)
        .bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    let total = format!(
        "
            SELECT count(*)
            FROM webhook_deliveries d {join}
            WHERE d.webhook_id = $1
                AND {status}
                AND {event}"
    );
    let total = run!(conn, c => sqlx::query_scalar(sqlx::AssertSqlSafe(total)).bind(webhook_id).bind(words.0)
        .bind(words.1).fetch_one(c))?;
    Ok(Page { rows, total })
}

pub async fn find(conn: &mut Conn, webhook_id: i64, delivery_id: i64) -> Result<Option<Delivery>> {
    let sql = sql!("{SELECT} WHERE d.webhook_id = $1 AND d.id = $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(webhook_id).bind(delivery_id).fetch_optional(c))?)
}

/// Finds a delivery by its id only, for the worker.
pub async fn find_any(conn: &mut Conn, delivery_id: i64) -> Result<Option<Delivery>> {
    let sql = sql!("{SELECT} WHERE d.id = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(delivery_id).fetch_optional(c))?)
}

/// Locks a delivery's row and returns it: a replay and the end of an attempt must not overlap.
pub async fn lock(tx: &mut Tx, delivery_id: i64) -> Result<Option<Delivery>> {
    execute!(tx, "UPDATE webhook_deliveries SET updated_at = updated_at WHERE id = $1", delivery_id)?;
    find_any(tx, delivery_id).await
}

/// Makes a delivery due now, with one more attempt and under the same id. Returns `false` if it does not exist.
pub async fn replay(tx: &mut Tx, delivery_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE webhook_deliveries
        SET max_attempts = max_attempts + 1,
            status = CASE WHEN status IN ('succeeded', 'failed') THEN 'pending' ELSE status END,
            next_attempt_at = $2, updated_at = $2
        WHERE id = $1";
    let now = tx.now;
    Ok(execute!(tx, SQL, delivery_id, now)? > 0)
}

/// Returns the latest attempts at a delivery for the operator, oldest first.
pub async fn attempt_summaries(conn: &mut Conn, delivery_id: i64) -> Result<Vec<JobAttempt>> {
    const SQL: &str = "
        SELECT number, started_at, duration_ms, outcome, error
        FROM webhook_attempts
        WHERE delivery_id = $1
        ORDER BY id DESC
        LIMIT $2";
    let mut found: Vec<JobAttempt> =
        run!(conn, c => sqlx::query_as(SQL).bind(delivery_id).bind(MAX_SHOWN_ATTEMPTS).fetch_all(c))?;
    found.reverse();
    Ok(found)
}

/// A delivery to send, with the data of its endpoint.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct OutgoingDelivery {
    pub id: i64,
    pub webhook_id: i64,
    pub event_id: i64,
    pub event: EventName,
    pub status: DeliveryStatus,
    pub attempts: i32,
    pub max_attempts: i32,
    pub created_at: DateTime<Utc>,
    pub payload: String,
    pub url: String,
    pub is_active: bool,
    /// The plan of the owner's workspace.
    pub plan: String,
    /// Whether the endpoint's owner is a member of the event's brand. True for a sample, which has no brand.
    pub is_member: bool,
    sealed: Vec<u8>,
}

impl OutgoingDelivery {
    /// Decrypts the signing secret.
    pub fn secret(&self, cipher: &Cipher) -> Result<SecretString> {
        webhooks::open_secret(cipher, self.webhook_id, &self.sealed)
    }
}

/// Returns deliveries by their ids, in any order. Leaves out those that do not exist.
pub async fn load_outgoing(conn: &mut Conn, ids: &[i64]) -> Result<Vec<OutgoingDelivery>> {
    let sql = list_sql!(
        conn,
        "
            SELECT d.id, d.webhook_id, d.event_id, e.name AS event, d.status, d.attempts, d.max_attempts,
                d.created_at, e.payload, w.url, w.is_active,
                (SELECT s.plan FROM users u JOIN workspaces s ON s.id = u.workspace_id WHERE u.id = w.user_id) AS plan,
                (
                    e.brand_id IS NULL
                    OR EXISTS (SELECT 1 FROM brand_members m WHERE m.brand_id = e.brand_id AND m.user_id = w.user_id)
                ) AS is_member,
                w.secret AS sealed
            FROM webhook_deliveries d
            JOIN events e ON e.id = d.event_id
            JOIN webhooks w ON w.id = d.webhook_id
            WHERE d.id",
        ""
    );
    let list = id_list(ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&list).fetch_all(c))?)
}

/// Locks deliveries in id order, and returns the `max_attempts` of each. Leaves out those that do not exist.
pub async fn lock_each(tx: &mut Tx, ids: &[i64]) -> Result<HashMap<i64, i32>> {
    let sql = list_sql!(
        tx,
        "SELECT id, max_attempts FROM webhook_deliveries WHERE id",
        "ORDER BY id {LOCK}",
        "FOR NO KEY UPDATE"
    );
    let list = id_list(ids);
    let held: Vec<(i64, i32)> = run!(tx, c => sqlx::query_as(sql).bind(&list).fetch_all(c))?;
    Ok(held.into_iter().collect())
}

/// The result of an attempt, and the state of the delivery after it.
#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub delivery_id: i64,
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub outcome: &'static str,
    pub response_code: Option<i32>,
    pub error: Option<String>,
    pub response_body: Option<String>,
    pub status: DeliveryStatus,
    pub next_attempt_at: Option<DateTime<Utc>>,
}

impl AttemptRow {
    /// Returns the values for the statements of [`record`], which name them by their positions.
    fn as_json(&self) -> Value {
        json!([
            self.delivery_id,
            self.status,
            self.number,
            time_text(self.started_at),
            self.duration_ms,
            self.outcome,
            self.response_code,
            self.error,
            self.response_body,
            self.next_attempt_at.map(time_text),
        ])
    }
}

/// Records attempts at different deliveries, and the deliveries' new states, in one round trip. Returns the deliveries
/// that still exist. Writes nothing for the others.
pub async fn record(tx: &mut Tx, attempts: &[AttemptRow]) -> Result<BTreeSet<i64>> {
    // `value || ''` as in `list_sql!`.
    const PG: &str = "
        WITH updated AS (
            UPDATE webhook_deliveries d
            SET status = value ->> 1, attempts = (value ->> 2)::integer, last_attempt_at = (value ->> 3)::timestamptz,
                duration_ms = (value ->> 4)::bigint, response_code = (value ->> 6)::integer, error = value ->> 7,
                response_body = value ->> 8, next_attempt_at = (value ->> 9)::timestamptz, updated_at = $2
            FROM json_array_elements($1::json)
            WHERE d.id = (value ->> 0)::bigint AND value ->> 0 = (value ->> 0) || ''
            RETURNING d.*, value ->> 5 AS outcome
        )
        INSERT INTO webhook_attempts (
            delivery_id, number, started_at, duration_ms, outcome, response_code, error, response_body
        )
        SELECT id, attempts, last_attempt_at, duration_ms, outcome, response_code, error, response_body
        FROM updated
        RETURNING delivery_id";
    const SQLITE: &str = "
        UPDATE webhook_deliveries AS d
        SET status = value ->> 1, attempts = value ->> 2, last_attempt_at = value ->> 3, duration_ms = value ->> 4,
            response_code = value ->> 6, error = value ->> 7, response_body = value ->> 8,
            next_attempt_at = value ->> 9, updated_at = $2
        FROM json_each($1)
        WHERE d.id = value ->> 0;
        INSERT INTO webhook_attempts (
            delivery_id, number, started_at, duration_ms, outcome, response_code, error, response_body
        )
        SELECT d.id, attempts, last_attempt_at, duration_ms, value ->> 5, response_code, error, response_body
        FROM json_each($1)
        JOIN webhook_deliveries d ON d.id = value ->> 0
        RETURNING delivery_id";
    let (sql, now) = (tx.for_engine(PG, SQLITE), tx.now);
    let rows = Value::from_iter(attempts.iter().map(AttemptRow::as_json)).to_string();
    let found: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(&rows).bind(now).fetch_all(c))?;
    Ok(found.into_iter().collect())
}

/// Deletes a delivery whose endpoint was deleted while the event was written. On Postgres, no foreign key prevents
/// this.
pub async fn delete_orphan(tx: &mut Tx, delivery_id: i64) -> Result<()> {
    const SQL: &str = "
        DELETE FROM webhook_deliveries
        WHERE id = $1 AND NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.id = webhook_id)";
    execute!(tx, SQL, delivery_id)?;
    Ok(())
}

/// Fails a delivery without a further attempt, with a reason: the endpoint is inactive, or the job is dead.
pub async fn fail(tx: &mut Tx, delivery_id: i64, reason: &str) -> Result<()> {
    const SQL: &str = "
        UPDATE webhook_deliveries
        SET status = 'failed', error = $2, next_attempt_at = NULL, updated_at = $3
        WHERE id = $1 AND status IN ('pending', 'retrying')";
    let now = tx.now;
    execute!(tx, SQL, delivery_id, reason, now)?;
    Ok(())
}

/// Reads the `limit` deliveries after the id `after`, and deletes those that have ended and last changed by `before`,
/// with their attempts. Returns the id after which to continue, or `None` if all later deliveries were created after
/// `before`. Ids are in the order of creation, so this needs no index of ages. Deliveries of a process whose clock was
/// ahead do not end the scan.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, after: i64, limit: i64) -> Result<Option<i64>> {
    const FIND: &str = "
        SELECT id, created_at > $1 AND created_at <= $4 AS is_young,
            status IN ('succeeded', 'failed') AND updated_at <= $1 AS is_over
        FROM webhook_deliveries
        WHERE id > $2
        ORDER BY id
        LIMIT $3";
    let now = tx.now;
    let found: Vec<(i64, bool, bool)> =
        run!(tx, c => sqlx::query_as(FIND).bind(before).bind(after).bind(limit).bind(now).fetch_all(c))?;
    let over: Vec<i64> = found.iter().filter(|(.., is_over)| *is_over).map(|(id, ..)| *id).collect();
    if !over.is_empty() {
        // Checks the row itself again, because the user may have retried the delivery meanwhile.
        let sql = list_sql!(
            tx,
            "DELETE FROM webhook_deliveries WHERE id",
            "AND status IN ('succeeded', 'failed') AND updated_at <= $2"
        );
        execute!(tx, sql, id_list(&over), before)?;
    }
    let is_full = i64::try_from(found.len()) == Ok(limit);
    Ok(found.last().filter(|(_, is_young, _)| is_full && !*is_young).map(|(id, ..)| *id))
}

/// Returns the latest attempts at a delivery as its owner sees them, at most `limit`, oldest first. The caller has
/// checked the owner.
pub async fn attempts(conn: &mut Conn, delivery_id: i64, limit: i64) -> Result<Vec<WebhookAttempt>> {
    const SQL: &str = "
        SELECT id, number, started_at, duration_ms, outcome, response_code, error, response_body
        FROM webhook_attempts
        WHERE delivery_id = $1
        ORDER BY id DESC
        LIMIT $2";
    let mut found: Vec<WebhookAttempt> =
        run!(conn, c => sqlx::query_as(SQL).bind(delivery_id).bind(limit).fetch_all(c))?;
    found.reverse();
    Ok(found)
}

/// Replays an endpoint's failed deliveries that were created at `since` or later, like [`replay`]: those after the id
/// `after`, at most `limit`. Returns their ids, oldest first.
pub async fn recover(tx: &mut Tx, webhook_id: i64, since: DateTime<Utc>, after: i64, limit: i64) -> Result<Vec<i64>> {
    // Checks the row itself again, because it may have been deleted or retried meanwhile.
    const SQL: &str = "
        WITH failed AS MATERIALIZED (
            SELECT id
            FROM webhook_deliveries
            WHERE webhook_id = $1
                AND id > $4
                AND status = 'failed'
                AND created_at >= $2
            ORDER BY id
            LIMIT (SELECT $5)
        )
        UPDATE webhook_deliveries
        SET max_attempts = max_attempts + 1, status = 'pending', next_attempt_at = $3, updated_at = $3
        WHERE id IN (SELECT id FROM failed WHERE id = id + 0)
            AND status = 'failed'
        RETURNING id";
    let now = tx.now;
    let mut ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(webhook_id).bind(since).bind(now).bind(after)
        .bind(limit).fetch_all(c))?;
    ids.sort_unstable();
    Ok(ids)
}

/// Returns the number of an endpoint's deliveries that have failed since `since` or are pending, and when the oldest of
/// them was created.
pub async fn undelivered(
    conn: &mut Conn,
    webhook_id: i64,
    since: DateTime<Utc>,
) -> Result<(i64, Option<DateTime<Utc>>)> {
    const SQL: &str = "
        SELECT count(*), min(created_at)
        FROM webhook_deliveries
        WHERE webhook_id = $1
            AND (status IN ('pending', 'retrying') OR status = 'failed' AND updated_at >= $2)";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(webhook_id).bind(since).fetch_one(c))?)
}
