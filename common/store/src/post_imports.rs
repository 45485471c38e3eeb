//! Imports of posts: their files, their problems, and the files of their posts.
//!
//! The worker locks the import's row for each batch of rows, so that two workers never process the same row.

use chrono::{DateTime, Utc};
use crier_domain::media::{MediaError, MediaJobStatus};
use crier_domain::post_import::{
    DateFormat, MAX_IMPORT_ERRORS, MAX_POST_IMPORTS, PostImport, PostImportError, PostImportStatus,
};
use sqlx::types::Json;

use super::db::{execute, run};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

const COLUMNS: &str = "
    i.id, i.brand_id, i.user_id, i.status, i.dry_run, i.filename, i.timezone, i.date_format, i.accounts, i.rows_done,
    i.rows_total, i.rows_valid, i.rows_queued, i.rows_imported, i.rows_skipped, i.error, i.waiting_since, i.created_at,
    i.updated_at";

/// A new import.
#[derive(Clone, Debug)]
pub struct NewPostImport<'a> {
    pub user_id: i64,
    pub dry_run: bool,
    pub filename: Option<&'a str>,
    pub timezone: &'a str,
    pub date_format: DateFormat,
    pub accounts: &'a [i64],
}

/// Returns whether an import of the brand has not ended. The caller has locked the brand.
pub async fn has_unfinished(conn: &mut Conn, brand_id: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (SELECT 1 FROM post_imports WHERE brand_id = $1 AND status IN ('pending', 'running'))";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Stores a pending import with its file, and returns its id. Deletes the files of the brand's earlier imports, and its
/// oldest imports above the maximum. The caller has locked the brand, and no other import is unfinished.
pub async fn insert(tx: &mut Tx, brand_id: i64, new: &NewPostImport<'_>, bytes: &[u8]) -> Result<i64> {
    const INSERT: &str = "
        INSERT INTO post_imports (
            brand_id, user_id, status, dry_run, filename, timezone, date_format, accounts, created_at, updated_at
        )
        VALUES ($1, $2, 'pending', $3, $4, $5, $6, $7, $8, $8)
        RETURNING id";
    const DELETE_FILES: &str = "
        DELETE FROM post_import_files
        WHERE import_id IN (SELECT id FROM post_imports WHERE brand_id = $1)";
    const DELETE_OLDEST: &str = "
        DELETE FROM post_imports
        WHERE id IN (SELECT id FROM post_imports WHERE brand_id = $1 ORDER BY id DESC LIMIT 1000 OFFSET $2)";
    let now = tx.now;
    execute!(tx, DELETE_FILES, brand_id)?;
    execute!(tx, DELETE_OLDEST, brand_id, MAX_POST_IMPORTS - 1)?;
    let id: i64 = run!(tx, c => sqlx::query_scalar(INSERT).bind(brand_id).bind(new.user_id).bind(new.dry_run)
        .bind(new.filename).bind(new.timezone).bind(new.date_format).bind(Json(new.accounts)).bind(now).fetch_one(c))?;
    execute!(tx, "INSERT INTO post_import_files (import_id, bytes) VALUES ($1, $2)", id, bytes)?;
    Ok(id)
}

/// Lists the brand's imports, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<PostImport>> {
    let sql = sql!("SELECT {COLUMNS} FROM post_imports i WHERE i.brand_id = $1 ORDER BY i.id DESC", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, import_id: i64) -> Result<Option<PostImport>> {
    let sql = sql!("SELECT {COLUMNS} FROM post_imports i WHERE i.brand_id = $1 AND i.id = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(import_id).fetch_optional(c))?)
}

/// Finds an import by its id only, for the operator.
pub async fn find_any(conn: &mut Conn, import_id: i64) -> Result<Option<PostImport>> {
    let sql = sql!("SELECT {COLUMNS} FROM post_imports i WHERE i.id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(import_id).fetch_optional(c))?)
}

/// Locks an import's row until the end of the transaction, by its id only, for the worker. Locks the brand first, as the
/// deletion of a brand does.
pub async fn lock(tx: &mut Tx, import_id: i64) -> Result<Option<PostImport>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS} FROM post_imports i JOIN brands b ON b.id = i.brand_id WHERE i.id = $1 {LOCK}",
        "FOR KEY SHARE OF b FOR UPDATE OF i",
        COLUMNS
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(import_id).fetch_optional(c))?)
}

/// Returns whether the file of an import exists.
pub async fn has_file(conn: &mut Conn, import_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM post_import_files WHERE import_id = $1)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(import_id).fetch_one(c))?)
}

/// Returns the file of an import.
pub async fn file(conn: &mut Conn, import_id: i64) -> Result<Option<Vec<u8>>> {
    const SQL: &str = "SELECT bytes FROM post_import_files WHERE import_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(import_id).fetch_optional(c))?)
}

/// Imports the posts of a dry run, beginning with the first row, in the name of a user. Keeps the file. The caller has
/// locked the row. The problems are deleted.
pub async fn start(tx: &mut Tx, import_id: i64, user_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE post_imports
        SET status = 'pending', dry_run = $2, user_id = $3, rows_done = 0, rows_total = 0, rows_valid = 0,
            rows_queued = 0, rows_imported = 0, rows_skipped = 0, error = NULL, waiting_since = NULL, updated_at = $4
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, import_id, false, user_id, now)?;
    execute!(tx, "DELETE FROM post_import_errors WHERE import_id = $1", import_id)?;
    Ok(())
}

/// Continues after the rows that were processed. The caller has locked the row.
pub async fn resume(tx: &mut Tx, import_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE post_imports SET status = 'pending', error = NULL, updated_at = $2 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, import_id, now)?;
    Ok(())
}

/// Stores the counts of an import whose row is locked, as `running`.
pub async fn progress(tx: &mut Tx, import: &PostImport) -> Result<()> {
    const SQL: &str = "
        UPDATE post_imports
        SET status = 'running', rows_done = $2, rows_total = $3, rows_valid = $4, rows_queued = $5,
            rows_imported = $6, rows_skipped = $7, waiting_since = $8, updated_at = $9
        WHERE id = $1";
    let now = tx.now;
    execute!(
        tx,
        SQL,
        import.id,
        import.rows_done,
        import.rows_total,
        import.rows_valid,
        import.rows_queued,
        import.rows_imported,
        import.rows_skipped,
        import.waiting_since,
        now
    )?;
    Ok(())
}

/// Locks the count of a workspace's texts until the end of the transaction, before its first post is counted. If the
/// plan limits the posts, a post is counted after its texts, so a transaction with several posts would otherwise lock the
/// two counts in both orders.
/// SQLite needs no lock, because it has one writer.
pub async fn lock_texts(tx: &mut Tx, workspace_id: i64) -> Result<()> {
    const SQL: &str = "SELECT texts FROM storage_usage WHERE workspace_id = $1 FOR UPDATE";
    if !tx.is_postgres() {
        return Ok(());
    }
    let _: Option<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(workspace_id).fetch_optional(c))?;
    Ok(())
}

/// Ends an import whose row is locked.
pub async fn end(tx: &mut Tx, import_id: i64, status: PostImportStatus, error: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE post_imports
        SET status = $2, error = $3, waiting_since = NULL, updated_at = $4
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, import_id, status, error, now)?;
    Ok(())
}

pub async fn delete_file(tx: &mut Tx, import_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM post_import_files WHERE import_id = $1", import_id)?;
    Ok(())
}

/// Stores problems of an import whose row is locked, up to the maximum for an import.
pub async fn add_errors(tx: &mut Tx, import_id: i64, errors: &[PostImportError]) -> Result<()> {
    const COUNT: &str = "SELECT count(*) FROM post_import_errors WHERE import_id = $1";
    const INSERT: &str = "
        INSERT INTO post_import_errors (import_id, number, row_number, column_name, message)
        VALUES ($1, $2, $3, $4, $5)";
    if errors.is_empty() {
        return Ok(());
    }
    let stored: i64 = run!(tx, c => sqlx::query_scalar(COUNT).bind(import_id).fetch_one(c))?;
    let room = usize::try_from(MAX_IMPORT_ERRORS - stored).unwrap_or_default();
    for (number, error) in (stored..).zip(errors.iter().take(room)) {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        execute!(tx, INSERT, import_id, number, error.row_number, &error.column_name, &error.message)?;
    }
    Ok(())
}

/// Returns the stored problems of an import, in the order of its rows.
pub async fn errors(conn: &mut Conn, import_id: i64) -> Result<Vec<PostImportError>> {
    const SQL: &str = "
        SELECT row_number, column_name, message
        FROM post_import_errors
        WHERE import_id = $1
        ORDER BY number";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(import_id).fetch_all(c))?)
}

/// A file of the posts of an import.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct PostImportMedia {
    pub url: String,
    /// `None` if the import into the library was deleted.
    pub status: Option<MediaJobStatus>,
    /// The time when the import into the library was requested.
    pub requested_at: Option<DateTime<Utc>>,
    pub media_id: Option<i64>,
    #[sqlx(json(nullable))]
    pub error: Option<MediaError>,
}

/// Returns the files of an import that were requested so far.
pub async fn media(conn: &mut Conn, import_id: i64) -> Result<Vec<PostImportMedia>> {
    const SQL: &str = "
        SELECT m.url, j.status, j.created_at AS requested_at, j.media_id, j.error
        FROM post_import_media m
        LEFT JOIN media_jobs j ON j.id = m.media_job_id
        WHERE m.import_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(import_id).fetch_all(c))?)
}

/// Returns whether files of an import that were requested after a time are not yet in the library, and may still arrive.
pub async fn awaits_media(conn: &mut Conn, import_id: i64, after: DateTime<Utc>) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_import_media m
            JOIN media_jobs j ON j.id = m.media_job_id
            WHERE m.import_id = $1
                AND j.status IN ('pending', 'processing')
                AND j.created_at > $2
        )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(import_id).bind(after).fetch_one(c))?)
}

/// Records the import of a file into the library.
pub async fn add_media(tx: &mut Tx, import_id: i64, url: &str, media_job_id: i64) -> Result<()> {
    const SQL: &str = "INSERT INTO post_import_media (import_id, url, media_job_id) VALUES ($1, $2, $3)";
    execute!(tx, SQL, import_id, url, media_job_id)?;
    Ok(())
}

/// Deletes imports that ended by `before`, at most `limit`, oldest first. The posts remain. Returns how many.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    // Checks the status again on the row itself, because the import may have been started meanwhile.
    const SQL: &str = "
        WITH finished AS MATERIALIZED (
            SELECT id
            FROM post_imports
            WHERE status IN ('completed', 'failed') AND updated_at <= $1
            ORDER BY updated_at
            LIMIT (SELECT $2)
        )
        DELETE FROM post_imports
        WHERE id IN (SELECT id FROM finished WHERE id = id + 0)
            AND status IN ('completed', 'failed')";
    Ok(execute!(tx, SQL, before, limit)?)
}
