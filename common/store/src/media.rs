//! The media library's assets.

use crier_domain::media::{Asset, AssetType};

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Page, PageRequest, Result, Tx};

const SELECT: &str = "
    SELECT m.id, m.brand_id, m.asset_type, m.filename, m.alt_text, m.source_url, f.key, f.thumbnail_key,
        f.mime_type, f.size_bytes, f.width, f.height, f.video, m.created_at, m.updated_at
    FROM media m
    JOIN files f ON f.id = m.file_id";

/// An asset to create.
#[derive(Debug, Clone)]
pub struct NewAsset<'a> {
    pub file_id: i64,
    pub asset_type: AssetType,
    pub filename: &'a str,
    pub alt_text: Option<&'a str>,
    pub source_url: Option<&'a str>,
}

/// Stores an asset; its file is already stored ([`super::files::mark_stored`]).
pub async fn insert(tx: &mut Tx, brand_id: i64, new: &NewAsset<'_>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO media (
            brand_id, file_id, asset_type, filename, alt_text, source_url, search, created_at, updated_at
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8)
        RETURNING id";
    let (now, search) = (tx.now, search_text(new.filename, new.alt_text));
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(new.file_id).bind(new.asset_type).bind(new.filename)
        .bind(new.alt_text).bind(new.source_url).bind(search).bind(now).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, media_id: i64) -> Result<Option<Asset>> {
    let sql = sql!("{SELECT} WHERE m.brand_id = $1 AND m.id = $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(media_id).fetch_optional(c))?)
}

/// Returns assets by their ids, in any order. Leaves out those that do not belong to the brand.
pub async fn find_many(conn: &mut Conn, brand_id: i64, media_ids: &[i64]) -> Result<Vec<Asset>> {
    if media_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(conn, "{SELECT} WHERE m.id", "AND m.brand_id = $2", SELECT);
    let ids = id_list(media_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).bind(brand_id).fetch_all(c))?)
}

/// Filters a list.
#[derive(Debug, Clone, Default)]
pub struct MediaFilter<'a> {
    pub asset_type: Option<AssetType>,
    /// A part of the file's name or of the alt text, case-insensitive.
    pub search: Option<&'a str>,
}

/// Lists assets, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64, filter: &MediaFilter<'_>, page: PageRequest) -> Result<Page<Asset>> {
    const WHERE: &str =
        "WHERE m.brand_id = $1 AND ($2 = '' OR m.asset_type = $2) AND ($3 = '' OR m.search LIKE $3 ESCAPE '\\')";
    let (kind, pattern) =
        (filter.asset_type.map_or("", AssetType::as_str), filter.search.map_or(String::new(), pattern));
    let rows = sql!("{SELECT} {WHERE} ORDER BY m.id DESC LIMIT $4 OFFSET $5", SELECT, WHERE);
    let rows = run!(conn, c => sqlx::query_as(rows).bind(brand_id).bind(kind).bind(&pattern)
        .bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    let total = sql!("SELECT count(*) FROM media m {WHERE}", WHERE);
    let total = run!(conn, c => sqlx::query_scalar(total).bind(brand_id).bind(kind)
        .bind(&pattern).fetch_one(c))?;
    Ok(Page { rows, total })
}

/// Lists the images and videos without icons and logos, newest first.
pub async fn list_for_posts(conn: &mut Conn, brand_id: i64, page: PageRequest) -> Result<Page<Asset>> {
    const WHERE: &str = "WHERE m.brand_id = $1 AND m.asset_type IN ('image', 'video')";
    let rows = sql!("{SELECT} {WHERE} ORDER BY m.id DESC LIMIT $2 OFFSET $3", SELECT, WHERE);
    let rows =
        run!(conn, c => sqlx::query_as(rows).bind(brand_id).bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    let total = sql!("SELECT count(*) FROM media m {WHERE}", WHERE);
    let total = run!(conn, c => sqlx::query_scalar(total).bind(brand_id).fetch_one(c))?;
    Ok(Page { rows, total })
}

/// Returns the text that a search matches.
fn search_text(filename: &str, alt_text: Option<&str>) -> String {
    format!("{filename}\n{}", alt_text.unwrap_or_default()).to_lowercase()
}

/// Returns `%text%` with the wildcards of `LIKE` escaped.
fn pattern(text: &str) -> String {
    let mut out = String::from("%");
    for c in text.to_lowercase().chars() {
        if matches!(c, '%' | '_' | '\\') {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('%');
    out
}

/// Locks an asset's row until the end of the transaction, and returns its file's id.
pub async fn lock(tx: &mut Tx, brand_id: i64, media_id: i64) -> Result<Option<i64>> {
    let sql = locking_sql!(tx, "SELECT file_id FROM media WHERE brand_id = $1 AND id = $2 {LOCK}", "FOR UPDATE");
    Ok(run!(tx, c => sqlx::query_scalar(sql).bind(brand_id).bind(media_id).fetch_optional(c))?)
}

/// Stores the mutable fields of an asset whose row is locked: its texts and its type.
pub async fn update(tx: &mut Tx, asset: &Asset) -> Result<()> {
    const SQL: &str = "
        UPDATE media
        SET asset_type = $3, filename = $4, alt_text = $5, search = $6, updated_at = $7
        WHERE brand_id = $1 AND id = $2";
    let search = search_text(&asset.filename, asset.alt_text.as_deref());
    let alt_text = asset.alt_text.as_deref();
    execute!(tx, SQL, asset.brand_id, asset.id, asset.asset_type, &asset.filename, alt_text, search, asset.updated_at)?;
    Ok(())
}

/// Deletes an asset whose row is locked. Call [`super::files::mark_unused_for_deletion`] for its file.
pub async fn delete(tx: &mut Tx, brand_id: i64, media_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM media WHERE brand_id = $1 AND id = $2", brand_id, media_id)?;
    Ok(())
}
