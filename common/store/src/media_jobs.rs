//! Imports into the media library.

use chrono::{DateTime, Utc};
use crier_domain::media::{AssetType, MediaError, MediaJob, MediaJobStatus};

use super::db::{execute, run};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

const SELECT: &str = "
    SELECT j.id, j.brand_id, j.asset_type, j.source_url, j.alt_text, j.status, j.media_id, j.error,
        j.created_at, j.updated_at
    FROM media_jobs j";

/// A new import.
#[derive(Clone, Debug)]
pub struct NewImport<'a> {
    pub asset_type: AssetType,
    pub source_url: &'a str,
    pub alt_text: Option<&'a str>,
}

/// Stores a pending import and returns its id.
pub async fn insert(tx: &mut Tx, brand_id: i64, new: &NewImport<'_>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO media_jobs (brand_id, asset_type, source_url, alt_text, status, created_at, updated_at)
        VALUES ($1, $2, $3, $4, 'pending', $5, $5)
        RETURNING id";
    let now = tx.now;
    Ok(
        run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(new.asset_type).bind(new.source_url).bind(new.alt_text)
        .bind(now).fetch_one(c))?,
    )
}

pub async fn find(conn: &mut Conn, brand_id: i64, job_id: i64) -> Result<Option<MediaJob>> {
    let sql = sql!("{SELECT} WHERE j.brand_id = $1 AND j.id = $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(job_id).fetch_optional(c))?)
}

/// Returns a brand's newest imports. Finished imports are deleted after some time.
pub async fn newest(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<Vec<MediaJob>> {
    let sql = sql!("{SELECT} WHERE j.brand_id = $1 ORDER BY j.id DESC LIMIT $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// Finds an import by its id only, for the operator.
pub async fn find_any(conn: &mut Conn, job_id: i64) -> Result<Option<MediaJob>> {
    let sql = sql!("{SELECT} WHERE j.id = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(job_id).fetch_optional(c))?)
}

/// Locks an import's row until the end of the transaction, by its id only, for the worker. Locks the brand first, as
/// the deletion of a brand does.
pub async fn lock(tx: &mut Tx, job_id: i64) -> Result<Option<MediaJob>> {
    let sql = locking_sql!(
        tx,
        "{SELECT} JOIN brands b ON b.id = j.brand_id WHERE j.id = $1 {LOCK}",
        "FOR KEY SHARE OF b FOR UPDATE OF j",
        SELECT
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(job_id).fetch_optional(c))?)
}

/// Locks an import and reads only the columns that are needed to fail it, so that a row whose other columns cannot be
/// read (a newer version may have written it) can still fail.
pub async fn lock_minimal(tx: &mut Tx, job_id: i64) -> Result<Option<LockedImport>> {
    let sql = locking_sql!(
        tx,
        "
        SELECT j.id, j.brand_id, j.status, CAST(j.error AS text) AS error
        FROM media_jobs j
        JOIN brands b ON b.id = j.brand_id
        WHERE j.id = $1
        {LOCK}",
        "FOR KEY SHARE OF b FOR UPDATE OF j"
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(job_id).fetch_optional(c))?)
}

/// An import whose row is locked.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct LockedImport {
    pub id: i64,
    pub brand_id: i64,
    pub status: MediaJobStatus,
    /// The error, as JSON.
    pub error: Option<String>,
}

impl From<&MediaJob> for LockedImport {
    fn from(import: &MediaJob) -> Self {
        Self { id: import.id, brand_id: import.brand_id, status: import.status, error: None }
    }
}

/// The new state of an import.
#[derive(Clone, Debug)]
pub struct Progress<'a> {
    pub status: MediaJobStatus,
    pub media_id: Option<i64>,
    pub error: Option<&'a MediaError>,
}

/// Updates an import whose row is locked. The caller checks the transition of the status ([`MediaJobStatus::to`]).
pub async fn progress(tx: &mut Tx, import: &LockedImport, to: &Progress<'_>) -> Result<()> {
    const SQL: &str = "
            UPDATE media_jobs
            SET status = $3, media_id = $4, error = $5, updated_at = $6
            WHERE brand_id = $1 AND id = $2";
    let (now, error) = (tx.now, to.error.map(sqlx::types::Json));
    execute!(tx, SQL, import.brand_id, import.id, to.status, to.media_id, error, now)?;
    Ok(())
}

/// Deletes imports that finished by `before`, at most `limit`, oldest first. The imported images remain. Returns how
/// many.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    // Checks the status again on the row itself, because the operator may have retried the import meanwhile.
    const SQL: &str = "
        WITH finished AS MATERIALIZED (
            SELECT id
            FROM media_jobs
            WHERE status IN ('completed', 'failed') AND updated_at <= $1
            ORDER BY updated_at
            LIMIT (SELECT $2)
        )
        DELETE FROM media_jobs
        WHERE id IN (SELECT id FROM finished WHERE id = id + 0)
            AND status IN ('completed', 'failed')";
    Ok(execute!(tx, SQL, before, limit)?)
}
