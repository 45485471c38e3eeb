//! AI credits: reserved before the call to the provider, consumed with its response, given back without one.
//!
//! ```text
//!  reserve ──> reserved ── consume ───> used
//!                  └────── give_back ─> free again   (at once, or by the scheduler when the lease is over)
//! ```
//!
//! `used` of a month counts both reserved and consumed credits, so that two concurrent requests never get the same
//! credits. Every reservation ends once: the transaction that deletes its row decides how. The month is in the
//! workspace's time zone, and a part of the key: a new one begins with all its credits.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::ai::Operation;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// How long a request may hold a reservation: three times its time limit.
pub const LEASE: TimeDelta = TimeDelta::seconds(60);

/// Credits to be reserved.
#[derive(Debug, Clone, Copy)]
pub struct CreditRequest {
    pub workspace_id: i64,
    pub brand_id: i64,
    pub operation: Operation,
    pub credits: u64,
    /// The plan's credits per month; `None`: unlimited.
    pub cap: Option<u64>,
}

/// Reserves credits of this month and returns the reservation's id; `None`: too few are left.
pub async fn reserve(tx: &mut Tx, want: &CreditRequest) -> Result<Option<i64>> {
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
    let month = month(tx, want.workspace_id, now).await?;
    let (credits, cap) = (signed(want.credits), want.cap.map_or(i64::MAX, signed));
    if credits > cap || execute!(tx, TAKE, want.workspace_id, &month, credits, cap)? == 0 {
        return Ok(None);
    }
    let id = run!(tx, c => sqlx::query_scalar(MARK).bind(want.workspace_id).bind(want.brand_id).bind(&month)
        .bind(want.operation).bind(credits).bind(now + LEASE).fetch_one(c))?;
    Ok(Some(id))
}

#[derive(sqlx_macros::FromRow)]
struct ReservationEnd {
    workspace_id: i64,
    brand_id: i64,
    month: String,
    operation: Operation,
    credits: i64,
}

async fn end(tx: &mut Tx, workspace_id: i64, id: i64) -> Result<Option<ReservationEnd>> {
    const SQL: &str = "
        DELETE FROM ai_reservations
        WHERE workspace_id = $1 AND id = $2
        RETURNING workspace_id, brand_id, month, operation, credits";
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(workspace_id).bind(id).fetch_optional(c))?)
}

/// Consumes the credits when the response is there. `false`: they were given back meanwhile; then nothing is charged.
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

/// Gives the credits back without a response; `false`: the reservation had already ended.
pub async fn refund(tx: &mut Tx, workspace_id: i64, id: i64) -> Result<bool> {
    let ended = end(tx, workspace_id, id).await?;
    free(tx, ended.as_slice()).await?;
    Ok(ended.is_some())
}

/// Gives back the credits of requests whose lease ran out, at most `limit` of them; returns how many.
pub async fn refund_expired(tx: &mut Tx, limit: i64) -> Result<usize> {
    let sql = tx.for_engine(
        "
            DELETE FROM ai_reservations
            WHERE id IN (
                SELECT id
                FROM ai_reservations
                WHERE lease_until <= $1
                ORDER BY lease_until
                LIMIT $2
                FOR UPDATE SKIP LOCKED
            )
            RETURNING workspace_id, brand_id, month, operation, credits",
        "
            DELETE FROM ai_reservations
            WHERE id IN (
                SELECT id
                FROM ai_reservations
                WHERE lease_until <= $1
                ORDER BY lease_until
                LIMIT $2
            )
            RETURNING workspace_id, brand_id, month, operation, credits",
    );
    let now = tx.now;
    let ended: Vec<ReservationEnd> = run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).fetch_all(c))?;
    free(tx, &ended).await?;
    Ok(ended.len())
}

/// Frees credits. Updates rows in key order, which prevents deadlocks.
async fn free(tx: &mut Tx, ended: &[ReservationEnd]) -> Result<()> {
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

/// What one brand used of one operation this month.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct BrandUse {
    pub brand_id: i64,
    pub operation: Operation,
    pub requests: i64,
    pub credits: i64,
}

/// Returns what the brands of a workspace used this month.
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
