//! AI credits: reserved before the call to the provider, consumed if it responds, refunded otherwise.
//!
//! ```text
//!  reserve ──> reserved ── consume ───> used
//!                  └────── refund ────> free again   (by the request, or by the scheduler when the lease has expired)
//! ```
//!
//! `used` of a month counts both reserved and consumed credits, so that two concurrent requests never get the same
//! credits. Every reservation ends once: the transaction that deletes its row decides how. The month is in the
//! workspace's time zone. It is a part of the key, so a new month begins with all credits.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::ai::Operation;

use super::db::{execute, run};
use super::sql::locking_sql;
use super::{Conn, Result, Tx};

/// How long a request may hold a reservation: three times its time limit.
pub const LEASE: TimeDelta = TimeDelta::seconds(60);

/// The credits to reserve.
#[derive(Debug, Clone, Copy)]
pub struct CreditRequest {
    pub workspace_id: i64,
    pub brand_id: i64,
    pub operation: Operation,
    pub credits: u64,
    /// The plan's credits per month. `None` means unlimited.
    pub cap: Option<u64>,
}

/// Reserves credits of this month and returns the reservation's id. Returns `None` if too few are left.
pub async fn reserve(tx: &mut Tx, request: &CreditRequest) -> Result<Option<i64>> {
    const TAKE: &str = "
        INSERT INTO ai_usage (workspace_id, month, used)
        VALUES ($1, $2, $3)
        ON CONFLICT (workspace_id, month)
        DO UPDATE SET used = ai_usage.used + excluded.used
        WHERE ai_usage.used + excluded.used <= $4";
    const MARK: &str = "
        INSERT INTO ai_reservations (workspace_id, brand_id, month, operation, credits, lease_until)
        VALUES ($1, $2, $3, $4, $5, $6)
        RETURNING id";
    let now = tx.now;
    let month = month(tx, request.workspace_id, now).await?;
    let (credits, cap) = (signed(request.credits), request.cap.map_or(i64::MAX, signed));
    if credits > cap || execute!(tx, TAKE, request.workspace_id, &month, credits, cap)? == 0 {
        return Ok(None);
    }
    let id = run!(tx, c => sqlx::query_scalar(MARK).bind(request.workspace_id).bind(request.brand_id).bind(&month)
        .bind(request.operation).bind(credits).bind(now + LEASE).fetch_one(c))?;
    Ok(Some(id))
}

#[derive(sqlx_macros::FromRow)]
struct EndedReservation {
    workspace_id: i64,
    brand_id: i64,
    month: String,
    operation: Operation,
    credits: i64,
}

async fn end(tx: &mut Tx, workspace_id: i64, id: i64) -> Result<Option<EndedReservation>> {
    const SQL: &str = "
        DELETE FROM ai_reservations
        WHERE workspace_id = $1 AND id = $2
        RETURNING workspace_id, brand_id, month, operation, credits";
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(workspace_id).bind(id).fetch_optional(c))?)
}

/// Consumes the credits after the provider's response. Returns `false` and charges nothing if they were refunded
/// meanwhile.
pub async fn consume(tx: &mut Tx, workspace_id: i64, id: i64) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO ai_brand_usage (workspace_id, month, brand_id, operation, requests, credits)
        VALUES ($1, $2, $3, $4, 1, $5)
        ON CONFLICT (workspace_id, month, brand_id, operation)
        DO UPDATE SET requests = ai_brand_usage.requests + 1,
            credits = ai_brand_usage.credits + excluded.credits";
    let Some(ended) = end(tx, workspace_id, id).await? else { return Ok(false) };
    execute!(tx, SQL, ended.workspace_id, &ended.month, ended.brand_id, ended.operation, ended.credits)?;
    Ok(true)
}

/// Refunds the credits of a request without a response. Returns `false` if the reservation had already ended.
pub async fn refund(tx: &mut Tx, workspace_id: i64, id: i64) -> Result<bool> {
    let ended = end(tx, workspace_id, id).await?;
    release(tx, ended.as_slice()).await?;
    Ok(ended.is_some())
}

/// Refunds the credits of requests whose lease has expired, at most `limit`. Returns how many.
pub async fn refund_expired(tx: &mut Tx, limit: i64) -> Result<usize> {
    let sql = locking_sql!(
        tx,
        "
        DELETE FROM ai_reservations
        WHERE id IN (
            SELECT id
            FROM ai_reservations
            WHERE lease_until <= $1
            ORDER BY lease_until
            LIMIT $2
            {LOCK}
        )
        RETURNING workspace_id, brand_id, month, operation, credits",
        "FOR UPDATE SKIP LOCKED"
    );
    let now = tx.now;
    let ended: Vec<EndedReservation> = run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).fetch_all(c))?;
    release(tx, &ended).await?;
    Ok(ended.len())
}

/// Subtracts the credits of ended reservations from the usage. Updates rows in key order, which prevents deadlocks.
async fn release(tx: &mut Tx, ended: &[EndedReservation]) -> Result<()> {
    let mut freed = BTreeMap::<(i64, &str), i64>::new();
    for reservation in ended {
        *freed.entry((reservation.workspace_id, &reservation.month)).or_default() += reservation.credits;
    }
    for ((workspace_id, month), credits) in freed {
        const SQL: &str = "UPDATE ai_usage SET used = used - $3 WHERE workspace_id = $1 AND month = $2";
        execute!(tx, SQL, workspace_id, month, credits)?;
    }
    Ok(())
}

/// Returns the credits that are consumed or reserved this month.
pub async fn used(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "SELECT used FROM ai_usage WHERE workspace_id = $1 AND month = $2";
    let month = month(conn, workspace_id, now).await?;
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(&month).fetch_optional(c))?.unwrap_or(0))
}

/// One brand's usage of one operation this month.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct BrandUse {
    pub brand_id: i64,
    pub operation: Operation,
    pub requests: i64,
    pub credits: i64,
}

/// Returns this month's usage by the brands of a workspace.
pub async fn by_brand(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<Vec<BrandUse>> {
    const SQL: &str = "
        SELECT brand_id, operation, requests, credits
        FROM ai_brand_usage
        WHERE workspace_id = $1 AND month = $2
        ORDER BY brand_id, operation";
    let month = month(conn, workspace_id, now).await?;
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(workspace_id).bind(&month).fetch_all(c))?)
}

/// Returns the current month in the workspace's time zone.
async fn month(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<String> {
    const SQL: &str = "SELECT timezone FROM workspaces WHERE id = $1";
    let zone: Option<String> = run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_optional(c))?;
    let zone: chrono_tz::Tz = zone.and_then(|zone| zone.parse().ok()).unwrap_or(chrono_tz::UTC);
    Ok(now.with_timezone(&zone).format("%Y-%m").to_string())
}

fn signed(credits: u64) -> i64 {
    i64::try_from(credits).unwrap_or(i64::MAX)
}
