//! Imports into the media library.

use super::db::run;
use super::{Conn, Result, Tx};
use crate::domain::media::{AssetType, MediaJob};

const COLUMNS: &str = "id, brand_id, asset_type, source_url, status, media_id, error, created_at, updated_at";

pub async fn insert(tx: &mut Tx, brand_id: i64, asset_type: AssetType, source_url: &str) -> Result<i64> {
    const SQL: &str = "INSERT INTO media_jobs (brand_id, asset_type, source_url, status, created_at, updated_at) VALUES ($1, $2, $3, 'pending', $4, $4) RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(asset_type).bind(source_url).bind(now).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, job_id: i64) -> Result<Option<MediaJob>> {
    let sql = format!("SELECT {COLUMNS} FROM media_jobs WHERE brand_id = $1 AND id = $2");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(brand_id).bind(job_id).fetch_optional(c))?)
}
