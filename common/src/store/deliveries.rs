//! Deliveries of events to endpoints, and every try at them.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::{Conn, Page, PageOf, Result, Tx};
use crate::domain::job::Try;
use crate::domain::webhook::{Delivery, DeliveryStatus};

const SELECT: &str = "SELECT d.id, d.webhook_id, e.id AS event_id, e.name AS event, d.status, d.response_code, d.attempts, d.max_attempts, d.duration_ms, d.error, d.response_body, e.payload, d.next_attempt_at, d.last_attempt_at, d.created_at, d.updated_at FROM webhook_deliveries d JOIN events e ON e.id = d.event_id";

/// An endpoint's deliveries, newest first. The caller has checked whose endpoint it is.
pub async fn list(conn: &mut Conn, webhook_id: i64, page: PageOf) -> Result<Page<Delivery>> {
    let sql = format!("{SELECT} WHERE d.webhook_id = $1 ORDER BY d.id DESC LIMIT $2 OFFSET $3");
    let rows = run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(webhook_id).bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    const COUNT: &str = "SELECT count(*) FROM webhook_deliveries WHERE webhook_id = $1";
    let total = run!(conn, c => sqlx::query_scalar(COUNT).bind(webhook_id).fetch_one(c))?;
    Ok(Page { rows, total })
}

pub async fn find(conn: &mut Conn, webhook_id: i64, delivery_id: i64) -> Result<Option<Delivery>> {
    let sql = format!("{SELECT} WHERE d.webhook_id = $1 AND d.id = $2");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(webhook_id).bind(delivery_id).fetch_optional(c))?)
}

/// For the worker, which knows the delivery alone.
pub async fn find_any(conn: &mut Conn, delivery_id: i64) -> Result<Option<Delivery>> {
    let sql = format!("{SELECT} WHERE d.id = $1");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(delivery_id).fetch_optional(c))?)
}

/// The same, holding the row: a replay and the end of an attempt go one at a time.
pub async fn lock(tx: &mut Tx, delivery_id: i64) -> Result<Option<Delivery>> {
    execute!(tx, "UPDATE webhook_deliveries SET updated_at = updated_at WHERE id = $1", delivery_id)?;
    find_any(tx, delivery_id).await
}

/// One more attempt allowed, now, under the same id; `false` where there is no such delivery.
pub async fn replay(tx: &mut Tx, delivery_id: i64) -> Result<bool> {
    const SQL: &str = "UPDATE webhook_deliveries SET max_attempts = max_attempts + 1, status = CASE WHEN status IN ('succeeded', 'failed') THEN 'pending' ELSE status END, next_attempt_at = $2, updated_at = $2 WHERE id = $1";
    let now = tx.now;
    Ok(execute!(tx, SQL, delivery_id, now)? > 0)
}

/// Every attempt at a delivery, oldest first.
pub async fn tries(conn: &mut Conn, delivery_id: i64) -> Result<Vec<Try>> {
    const SQL: &str = "SELECT number, started_at, duration_ms, outcome, error FROM webhook_attempts WHERE delivery_id = $1 ORDER BY id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(delivery_id).fetch_all(c))?)
}

/// How an attempt ended.
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
}

/// Records an attempt and where it leaves the delivery.
pub async fn record(
    tx: &mut Tx,
    attempt: &AttemptRow,
    status: DeliveryStatus,
    next_attempt_at: Option<DateTime<Utc>>,
) -> Result<()> {
    const ATTEMPT: &str = "INSERT INTO webhook_attempts (delivery_id, number, started_at, duration_ms, outcome, response_code, error, response_body) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    const DELIVERY: &str = "UPDATE webhook_deliveries SET status = $2, attempts = $3, response_code = $4, duration_ms = $5, error = $6, response_body = $7, next_attempt_at = $8, last_attempt_at = $9, updated_at = $10 WHERE id = $1";
    let now = tx.now;
    let a = attempt;
    execute!(
        tx,
        ATTEMPT,
        a.delivery_id,
        a.number,
        a.started_at,
        a.duration_ms,
        a.outcome,
        a.response_code,
        &a.error,
        &a.response_body
    )?;
    execute!(
        tx,
        DELIVERY,
        a.delivery_id,
        status,
        a.number,
        a.response_code,
        a.duration_ms,
        &a.error,
        &a.response_body,
        next_attempt_at,
        a.started_at,
        now
    )?;
    Ok(())
}

/// No attempt will be made any more, and why (the endpoint is inactive, the job is dead).
pub async fn give_up(tx: &mut Tx, delivery_id: i64, why: &str) -> Result<()> {
    const SQL: &str = "UPDATE webhook_deliveries SET status = 'failed', error = $2, next_attempt_at = NULL, updated_at = $3 WHERE id = $1 AND status IN ('pending', 'retrying')";
    let now = tx.now;
    execute!(tx, SQL, delivery_id, why, now)?;
    Ok(())
}

/// How many deliveries of an endpoint did not arrive in the outage that began at `since`, those that still wait among them,
/// and when the oldest of them was made.
pub async fn undelivered(
    conn: &mut Conn,
    webhook_id: i64,
    since: DateTime<Utc>,
) -> Result<(i64, Option<DateTime<Utc>>)> {
    const SQL: &str = "SELECT count(*), min(created_at) FROM webhook_deliveries WHERE webhook_id = $1 AND (status IN ('pending', 'retrying') OR status = 'failed' AND updated_at >= $2)";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(webhook_id).bind(since).fetch_one(c))?)
}
