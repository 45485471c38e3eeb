//! Files: the objects in the storage, and how much storage a workspace uses.
//!
//! The row is committed before any byte is written to the storage ([`reserve`]), and deleted after the last byte is
//! deleted ([`delete_rows`]), so the sweep finds everything that a process left behind when it died in between. The row
//! is inserted and the space is taken in one transaction, so two concurrent uploads cannot both take the last space.
//!
//! `doomed` is the stored word for *marked for deletion* ([`FileState::Deleting`]).

use chrono::{DateTime, Utc};
use crier_domain::media::{FileState, VideoProperties};
use crier_domain::plan::StorageUsage;
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::locking_sql;
use super::{Conn, Result, Tx};

/// A file that is about to be uploaded.
#[derive(Debug, Clone)]
pub struct NewFile {
    pub workspace_id: i64,
    pub brand_id: i64,
    /// The names of new objects, which are not used if the brand already has these bytes.
    pub key: String,
    /// `None` if the file has no thumbnail.
    pub thumbnail_key: Option<String>,
    /// A brand has at most one file with the same hash.
    pub sha256: [u8; 32],
    pub mime_type: &'static str,
    pub size_bytes: i64,
    /// In pixels. 0 if the file is neither an image nor a video.
    pub width: i32,
    pub height: i32,
    /// `None` if the file is not a video.
    pub video: Option<VideoProperties>,
}

/// A file that has a row.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Reserved {
    pub id: i64,
    pub key: String,
    pub thumbnail_key: Option<String>,
    pub state: FileState,
}

/// Inserts the row of a file and takes its space, at most `cap` bytes in the workspace. Returns `None` if too little
/// space is left: roll back then. Bytes that the brand already has need no more space.
pub async fn reserve(tx: &mut Tx, new: &NewFile, cap: Option<u64>) -> Result<Option<Reserved>> {
    const SQL: &str = "
        INSERT INTO files (
            workspace_id, brand_id, state, key, thumbnail_key, sha256, mime_type, size_bytes, width, height,
            video, takers, touched_at
        )
        VALUES ($1, $2, 'reserved', $3, $4, $5, $6, $7, $8, $9, $11, 1, $10)
        ON CONFLICT (brand_id, sha256)
        WHERE state <> 'doomed'
        DO UPDATE SET takers = files.takers + 1, touched_at = excluded.touched_at
        RETURNING id, key, thumbnail_key, state";
    let now = tx.now;
    let row: Reserved = run!(tx, c => sqlx::query_as(SQL).bind(new.workspace_id).bind(new.brand_id).bind(&new.key)
        .bind(&new.thumbnail_key).bind(&new.sha256[..]).bind(new.mime_type).bind(new.size_bytes).bind(new.width)
        .bind(new.height).bind(now).bind(new.video.as_ref().map(Json)).fetch_one(c))?;
    if row.key == new.key && !take_space(tx, new.workspace_id, new.size_bytes, cap).await? {
        return Ok(None);
    }
    Ok(Some(row))
}

/// Takes space for files, at most `cap` bytes in the workspace. Returns `false` if too little is left. Locks the workspace's
/// usage until the end of the transaction.
pub(super) async fn take_space(tx: &mut Tx, workspace_id: i64, bytes: i64, cap: Option<u64>) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO storage_usage (workspace_id, bytes)
        VALUES ($1, $2)
        ON CONFLICT (workspace_id)
        DO UPDATE SET bytes = storage_usage.bytes + excluded.bytes
        WHERE storage_usage.bytes + storage_usage.texts + excluded.bytes <= $3";
    let cap = cap.map_or(i64::MAX, |cap| i64::try_from(cap).unwrap_or(i64::MAX));
    Ok(bytes <= cap && execute!(tx, SQL, workspace_id, bytes, cap)? > 0)
}

/// Returns the storage usage of a workspace. The database counts texts when they are written (triggers `count_…`).
pub async fn usage(conn: &mut Conn, workspace_id: i64) -> Result<StorageUsage> {
    const SQL: &str = "SELECT bytes, texts FROM storage_usage WHERE workspace_id = $1";
    let found: Option<(i64, i64)> = run!(conn, c => sqlx::query_as(SQL).bind(workspace_id).fetch_optional(c))?;
    Ok(found.map(|(files, texts)| StorageUsage { files, texts }).unwrap_or_default())
}

/// Totals of the library.
#[derive(Debug, Clone, Copy, sqlx_macros::FromRow)]
pub struct LibraryTotals {
    pub reserved: i64,
    pub stored: i64,
    pub deleting: i64,
    /// Of the reserved and the stored files.
    pub bytes: i64,
}

/// Returns the totals. Only indexes are scanned: most files are stored, so their number is computed from the others.
pub async fn totals(conn: &mut Conn) -> Result<LibraryTotals> {
    const SQL: &str = "
        SELECT reserved, files - reserved - deleting AS stored, deleting, bytes
        FROM (
            SELECT (SELECT count(*) FROM files) AS files,
                (SELECT count(*) FROM files WHERE state = 'reserved') AS reserved,
                (SELECT count(*) FROM files WHERE state = 'doomed') AS deleting,
                (SELECT CAST(coalesce(sum(bytes), 0) AS bigint) FROM storage_usage) AS bytes
        ) counted";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_one(c))?)
}

/// Marks a file as stored: all bytes are written, and an asset uses it. Returns `false` if the file was marked for
/// deletion meanwhile, or if its brand was deleted.
pub async fn mark_stored(tx: &mut Tx, file_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE files
        SET state = 'stored', touched_at = $2
        WHERE id = $1
            AND state <> 'doomed'
            AND brand_id IS NOT NULL";
    let now = tx.now;
    Ok(execute!(tx, SQL, file_id, now)? > 0)
}

/// Returns whether the file is not marked for deletion. While it is not, a later sweep finds everything written so far.
pub async fn is_live(conn: &mut Conn, file_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT count(*) FROM files WHERE id = $1 AND state <> 'doomed'";
    let live: i64 = run!(conn, c => sqlx::query_scalar(SQL).bind(file_id).fetch_one(c))?;
    Ok(live > 0)
}

/// Returns the name of the thumbnail of a file that is not marked for deletion. `None` if it is. While the row has the
/// name, a later sweep finds the thumbnail.
pub async fn live_thumbnail(conn: &mut Conn, file_id: i64) -> Result<Option<Option<String>>> {
    const SQL: &str = "SELECT thumbnail_key FROM files WHERE id = $1 AND state <> 'doomed'";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(file_id).fetch_optional(c))?)
}

/// Removes the name of the thumbnail of a file that is not stored yet.
pub async fn remove_thumbnail(tx: &mut Tx, file_id: i64) -> Result<()> {
    execute!(tx, "UPDATE files SET thumbnail_key = NULL WHERE id = $1 AND state = 'reserved'", file_id)?;
    Ok(())
}

/// Withdraws one reservation of a file. Marks the file for deletion, unless another upload of the same bytes is running
/// or has completed. Its bytes may still be in transit to a slow bucket, so the sweep waits a little
/// ([`marked_for_deletion`]).
pub async fn abandon(tx: &mut Tx, file_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE files
        SET takers = takers - 1, state = CASE WHEN takers > 1 THEN state ELSE 'doomed' END, touched_at = $2
        WHERE id = $1 AND state = 'reserved'
        RETURNING workspace_id, size_bytes, state";
    let now = tx.now;
    let left: Option<(i64, i64, FileState)> =
        run!(tx, c => sqlx::query_as(SQL).bind(file_id).bind(now).fetch_optional(c))?;
    let marked =
        left.filter(|(.., state)| *state == FileState::Deleting).map(|(workspace, bytes, _)| (workspace, bytes));
    release_space(tx, &Vec::from_iter(marked)).await
}

/// Marks a file for deletion if no asset uses it, and releases its space.
pub async fn mark_unused_for_deletion(tx: &mut Tx, file_id: i64) -> Result<()> {
    // A separate statement waits for a concurrent `mark_stored` of the file, so that the next statement sees the new
    // asset. A single statement would search for assets in a snapshot from before the wait.
    let lock = locking_sql!(tx, "SELECT id FROM files WHERE id = $1 {LOCK}", "FOR UPDATE");
    let _: Option<i64> = run!(tx, c => sqlx::query_scalar(lock).bind(file_id).fetch_optional(c))?;
    const SQL: &str = "
        UPDATE files
        SET state = 'doomed'
        WHERE id = $1
            AND state <> 'doomed'
            AND NOT EXISTS (SELECT 1 FROM media m WHERE m.file_id = $1)
        RETURNING workspace_id, size_bytes";
    let marked: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(SQL).bind(file_id).fetch_all(c))?;
    release_space(tx, &marked).await
}

/// Marks the files of report deliveries for deletion, and releases their space. No two deliveries share a file.
pub async fn mark_of_deliveries_for_deletion(tx: &mut Tx, delivery_ids: &[i64]) -> Result<()> {
    let sql = list_sql!(
        tx,
        "
            UPDATE files
            SET state = 'doomed'
            WHERE state <> 'doomed'
                AND id IN (
                    SELECT file_id
                    FROM report_deliveries
                    WHERE id",
        "
                )
            RETURNING workspace_id, size_bytes"
    );
    let marked: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(sql).bind(id_list(delivery_ids)).fetch_all(c))?;
    release_space(tx, &marked).await
}

/// Marks the files of all deliveries of a report for deletion, and releases their space.
pub async fn mark_of_report_for_deletion(tx: &mut Tx, report_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE files
        SET state = 'doomed'
        WHERE state <> 'doomed'
            AND id IN (
                SELECT file_id
                FROM report_deliveries
                WHERE report_id = $1
                    AND file_id IS NOT NULL
            )
        RETURNING workspace_id, size_bytes";
    let marked: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(SQL).bind(report_id).fetch_all(c))?;
    release_space(tx, &marked).await
}

/// Returns the storage key of a stored file.
pub async fn key_of(conn: &mut Conn, file_id: i64) -> Result<Option<String>> {
    const SQL: &str = "SELECT key FROM files WHERE id = $1 AND state = 'stored'";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(file_id).fetch_optional(c))?)
}

/// Returns whether any file is stored.
pub async fn has_stored(conn: &mut Conn) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM files WHERE state = 'stored')";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).fetch_one(c))?)
}

/// Returns the storage keys of all files and thumbnails.
pub async fn keys(conn: &mut Conn) -> Result<Vec<String>> {
    const SQL: &str = "
        SELECT key
        FROM files
        UNION ALL
        SELECT thumbnail_key
        FROM files
        WHERE thumbnail_key IS NOT NULL";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).fetch_all(c))?)
}

/// Marks for deletion, at most `limit` each, reserved files that were last touched before `before`, except those that have
/// taken over the space of an open upload, and files of deleted brands. Returns how many. Leaves locked rows to the next
/// call.
pub async fn mark_abandoned_for_deletion(tx: &mut Tx, before: DateTime<Utc>, limit: i64) -> Result<usize> {
    let abandoned = locking_sql!(
        tx,
        "
        UPDATE files
        SET state = 'doomed'
        WHERE id IN (
            SELECT id
            FROM files
            WHERE state = 'reserved'
                AND touched_at < $1
                AND NOT EXISTS (SELECT 1 FROM media_uploads u WHERE u.file_id = files.id AND u.state = 'open')
            ORDER BY touched_at
            LIMIT $2
            {LOCK}
        )
        RETURNING workspace_id, size_bytes",
        "FOR UPDATE SKIP LOCKED"
    );
    let orphaned = locking_sql!(
        tx,
        "
        UPDATE files
        SET state = 'doomed'
        WHERE id IN (
            SELECT id
            FROM files
            WHERE brand_id IS NULL AND state <> 'doomed'
            ORDER BY id
            LIMIT $1
            {LOCK}
        )
        RETURNING workspace_id, size_bytes",
        "FOR UPDATE SKIP LOCKED"
    );
    let mut marked: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(abandoned).bind(before).bind(limit).fetch_all(c))?;
    let more: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(orphaned).bind(limit).fetch_all(c))?;
    marked.extend(more);
    release_space(tx, &marked).await?;
    Ok(marked.len())
}

/// Releases space, given as workspaces and bytes. Updates workspaces in id order, which prevents deadlocks.
pub(super) async fn release_space(tx: &mut Tx, files: &[(i64, i64)]) -> Result<()> {
    let mut freed = std::collections::BTreeMap::<i64, i64>::new();
    for (workspace_id, bytes) in files {
        *freed.entry(*workspace_id).or_default() += bytes;
    }
    for (workspace_id, bytes) in freed {
        execute!(tx, "UPDATE storage_usage SET bytes = bytes - $2 WHERE workspace_id = $1", workspace_id, bytes)?;
    }
    Ok(())
}

/// A file whose bytes must be deleted.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct DeletableFile {
    pub id: i64,
    pub key: String,
    pub thumbnail_key: Option<String>,
}

/// Returns files that are marked for deletion, with ids after `after`, in order. Leaves out those that an upload has
/// reserved or abandoned since `before`.
pub async fn marked_for_deletion(
    conn: &mut Conn,
    after: i64,
    before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<DeletableFile>> {
    const SQL: &str = "
        SELECT id, key, thumbnail_key
        FROM files
        WHERE state = 'doomed'
            AND id > $1
            AND touched_at <= $2
        ORDER BY id
        LIMIT $3";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(after).bind(before).bind(limit).fetch_all(c))?)
}

/// Deletes the rows of files whose bytes are deleted.
pub async fn delete_rows(tx: &mut Tx, file_ids: &[i64]) -> Result<u64> {
    let sql = list_sql!(tx, "DELETE FROM files WHERE id", "AND state = 'doomed'");
    Ok(execute!(tx, sql, id_list(file_ids))?)
}
