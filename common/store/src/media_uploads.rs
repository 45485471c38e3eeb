//! Resumable uploads, and the pieces of their bytes in the storage.
//!
//! ```text
//!   open ──> done ───────> doomed ──> (deleted)
//!     ├────> rejected ───────^
//!     └──────────────────────^
//! ```
//! The whole size of an upload takes space in the workspace while the upload is open. When its file is reserved, the file
//! takes over the space in the same transaction ([`reserve_file`]), and keeps it until the upload ends: the sweep leaves
//! the file of an open upload alone. So the bytes are counted once at each time, also after a crash. One request at a time writes to an
//! upload: it has a lease under a random name, which it extends with each piece, and every change checks this name. So
//! a request that stalled cannot change what another one has continued. A piece has a row with its name before its bytes
//! are written to the storage, and counts as received after that.
//!
//! An upload that has received all bytes is open until its asset is created. If no request is doing that, the scheduler
//! does it ([`acquire_received`]). `doomed` is the stored word for *marked for deletion* ([`UploadState::Deleting`]).

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::media::{AssetType, UploadErrorCode, UploadState};

use super::db::{execute, run};
use super::files::{self, NewFile, Reserved, release_space, take_space};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

/// How long a client may take for an upload. Also how long Crier may take to create the asset after the last byte, and how
/// long a finished upload can be queried after that byte.
pub const LIFETIME: TimeDelta = TimeDelta::hours(24);
/// How long a request that writes may take for its next piece before another request may continue the upload.
pub const LEASE: TimeDelta = TimeDelta::seconds(30);
/// The maximum number of open uploads of a workspace.
pub const MAX_OPEN: i64 = 20;

const COLUMNS: &str = "
    id, state, size_bytes, received, pieces, media_id, expires_at, asset_type, filename, alt_text, metadata, error_code,
    error";

/// An upload to create.
#[derive(Debug, Clone)]
pub struct NewUpload<'a> {
    pub workspace_id: i64,
    pub brand_id: i64,
    pub size_bytes: i64,
    pub asset_type: AssetType,
    /// Empty if the client sent none.
    pub filename: &'a str,
    pub alt_text: Option<&'a str>,
    /// The metadata as the client sent it.
    pub metadata: &'a str,
}

/// An upload that is not marked for deletion.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct Upload {
    pub id: i64,
    pub state: UploadState,
    pub size_bytes: i64,
    pub received: i64,
    pub pieces: i32,
    /// The asset of a finished upload. `None` if the upload is open.
    pub media_id: Option<i64>,
    pub expires_at: DateTime<Utc>,
    pub asset_type: AssetType,
    pub filename: String,
    pub alt_text: Option<String>,
    pub metadata: String,
    /// The error of a rejected upload, for the client.
    pub error_code: Option<UploadErrorCode>,
    pub error: Option<String>,
}

/// The result of a request to create an upload. Roll back unless it is created.
#[derive(Debug, Clone)]
pub enum Creation {
    Created(Upload),
    /// The workspace has too little space.
    Full,
    /// The workspace has [`MAX_OPEN`] open uploads.
    TooMany,
}

/// Creates an upload and takes its space, at most `cap` bytes in the workspace.
pub async fn create(tx: &mut Tx, new: &NewUpload<'_>, cap: Option<u64>) -> Result<Creation> {
    const COUNT: &str = "SELECT count(*) FROM media_uploads WHERE workspace_id = $1 AND state = 'open'";
    const SQL: &str = sql!(
        "
        INSERT INTO media_uploads (
            workspace_id, brand_id, state, size_bytes, reserved, received, pieces, created_at, expires_at, asset_type,
            filename, alt_text, metadata
        )
        VALUES ($1, $2, 'open', $3, $3, 0, 0, $4, $5, $6, $7, $8, $9)
        RETURNING {COLUMNS}",
        COLUMNS
    );
    // This locks the usage of the workspace, so two concurrent requests count each other's upload.
    if !take_space(tx, new.workspace_id, new.size_bytes, cap).await? {
        return Ok(Creation::Full);
    }
    let open: i64 = run!(tx, c => sqlx::query_scalar(COUNT).bind(new.workspace_id).fetch_one(c))?;
    if open >= MAX_OPEN {
        return Ok(Creation::TooMany);
    }
    let (now, expires_at) = (tx.now, tx.now + LIFETIME);
    let created = run!(tx, c => sqlx::query_as(SQL).bind(new.workspace_id).bind(new.brand_id).bind(new.size_bytes)
        .bind(now).bind(expires_at).bind(new.asset_type).bind(new.filename).bind(new.alt_text).bind(new.metadata)
        .fetch_one(c))?;
    Ok(Creation::Created(created))
}

/// Returns an upload that has not expired, also a rejected one, and whose asset was not deleted.
pub async fn find(conn: &mut Conn, brand_id: i64, upload_id: i64, now: DateTime<Utc>) -> Result<Option<Upload>> {
    const SQL: &str = sql!(
        "
        SELECT {COLUMNS}
        FROM media_uploads
        WHERE brand_id = $1
            AND id = $2
            AND (state IN ('open', 'rejected') OR state = 'done' AND media_id IS NOT NULL)
            AND expires_at > $3",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(upload_id).bind(now).fetch_optional(c))?)
}

/// Returns the number of open uploads, and the bytes that are reserved for them.
pub async fn totals(conn: &mut Conn) -> Result<(i64, i64)> {
    const SQL: &str = "
        SELECT count(*), CAST(coalesce(sum(reserved), 0) AS bigint)
        FROM media_uploads
        WHERE state = 'open'";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_one(c))?)
}

/// Lets `writer` write to an open upload. Returns `None` if there is no such upload, if it has not received exactly
/// `offset` bytes, or if another request is writing.
pub async fn acquire(tx: &mut Tx, brand_id: i64, upload_id: i64, offset: i64, writer: &str) -> Result<Option<Upload>> {
    const SQL: &str = sql!(
        "
        UPDATE media_uploads
        SET writer = $4, writer_until = $5
        WHERE brand_id = $1
            AND id = $2
            AND received = $3
            AND state = 'open'
            AND expires_at > $6
            AND (writer_until IS NULL OR writer_until <= $6)
        RETURNING {COLUMNS}",
        COLUMNS
    );
    let (now, until) = (tx.now, tx.now + LEASE);
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(brand_id).bind(upload_id).bind(offset).bind(writer).bind(until)
        .bind(now).fetch_optional(c))?)
}

/// Lets `writer` create the asset of an open upload that has received all bytes and that no other request is processing:
/// the first one after the ID `after`. Returns the IDs of its workspace and its brand, and the upload.
pub async fn acquire_received(tx: &mut Tx, after: i64, writer: &str) -> Result<Option<(i64, i64, Upload)>> {
    let sql = locking_sql!(
        tx,
        "
        UPDATE media_uploads
        SET writer = $2, writer_until = $3
        WHERE id = (
            SELECT id
            FROM media_uploads
            WHERE state = 'open'
                AND received = size_bytes
                AND id > $1
                AND brand_id IS NOT NULL
                AND expires_at > $4
                AND (writer_until IS NULL OR writer_until <= $4)
            ORDER BY id
            LIMIT 1
            {LOCK}
        )
        RETURNING workspace_id, brand_id, id",
        "FOR UPDATE SKIP LOCKED"
    );
    let (now, until) = (tx.now, tx.now + LEASE);
    let acquired: Option<(i64, i64, i64)> =
        run!(tx, c => sqlx::query_as(sql).bind(after).bind(writer).bind(until).bind(now).fetch_optional(c))?;
    let Some((workspace_id, brand_id, upload_id)) = acquired else { return Ok(None) };
    let upload = find(tx, brand_id, upload_id, now).await?;
    Ok(upload.map(|upload| (workspace_id, brand_id, upload)))
}

/// Extends the lease of `writer`. Returns `false` if it no longer writes to the upload.
pub async fn renew(tx: &mut Tx, upload_id: i64, writer: &str) -> Result<bool> {
    const SQL: &str = "
        UPDATE media_uploads
        SET writer_until = $3
        WHERE id = $1 AND writer = $2 AND state = 'open'";
    let until = tx.now + LEASE;
    Ok(execute!(tx, SQL, upload_id, writer, until)? > 0)
}

/// Ends the lease of `writer`.
pub async fn release(tx: &mut Tx, upload_id: i64, writer: &str) -> Result<()> {
    const SQL: &str = "UPDATE media_uploads SET writer = NULL, writer_until = NULL WHERE id = $1 AND writer = $2";
    execute!(tx, SQL, upload_id, writer)?;
    Ok(())
}

/// Stores the name of a piece that is about to be written, and extends the lease. Returns the ID of its row, or `None` if
/// `writer` no longer writes to the upload.
pub async fn add_piece(tx: &mut Tx, upload_id: i64, writer: &str, key: &str) -> Result<Option<i64>> {
    const SQL: &str = "INSERT INTO media_upload_pieces (upload_id, key) VALUES ($1, $2) RETURNING id";
    if !renew(tx, upload_id, writer).await? {
        return Ok(None);
    }
    Ok(Some(run!(tx, c => sqlx::query_scalar(SQL).bind(upload_id).bind(key).fetch_one(c))?))
}

/// Counts a piece that is written, and extends the lease; the last piece also extends the time until the upload expires.
/// Returns `false` if `writer` no longer writes to the upload: then another request continues without this piece.
pub async fn count_piece(tx: &mut Tx, upload_id: i64, writer: &str, piece_id: i64, bytes: i64) -> Result<bool> {
    const COUNT: &str = "
        UPDATE media_uploads
        SET received = received + $3, pieces = pieces + 1, writer_until = $4,
            expires_at = CASE WHEN received + $3 = size_bytes THEN $5 ELSE expires_at END
        WHERE id = $1 AND writer = $2 AND state = 'open'
        RETURNING pieces";
    let (until, expires_at) = (tx.now + LEASE, tx.now + LIFETIME);
    let pieces: Option<i32> = run!(tx, c => sqlx::query_scalar(COUNT).bind(upload_id).bind(writer).bind(bytes)
        .bind(until).bind(expires_at).fetch_optional(c))?;
    let Some(pieces) = pieces else { return Ok(false) };
    execute!(tx, "UPDATE media_upload_pieces SET number = $2 WHERE id = $1", piece_id, pieces - 1)?;
    Ok(true)
}

/// Returns the names of the pieces that count as received, in order.
pub async fn piece_keys(conn: &mut Conn, upload_id: i64) -> Result<Vec<String>> {
    const SQL: &str = "
        SELECT key
        FROM media_upload_pieces
        WHERE upload_id = $1 AND number IS NOT NULL
        ORDER BY number";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(upload_id).fetch_all(c))?)
}

/// Reserves the file of an upload that has received all bytes, like [`files::reserve`]. The file takes over the space of
/// the upload. Returns `None` if `writer` no longer writes to the upload: roll back then.
pub async fn reserve_file(tx: &mut Tx, upload_id: i64, writer: &str, new: &NewFile) -> Result<Option<Reserved>> {
    const MOVE: &str = "UPDATE media_uploads SET reserved = 0, file_id = $2 WHERE id = $1";
    let Some(held) = lock_held(tx, upload_id, writer).await? else { return Ok(None) };
    // The upload has taken the space, so a limit could only count it twice.
    let Some(file) = files::reserve(tx, new, None).await? else { return Ok(None) };
    execute!(tx, MOVE, upload_id, file.id)?;
    release_space(tx, &[held]).await?;
    Ok(Some(file))
}

/// Abandons the file of an upload that was not completed, like [`files::abandon`], if the upload has ended. While it is
/// open, the file keeps its space, because a retry needs the file.
pub async fn abandon_file(tx: &mut Tx, upload_id: i64, file_id: i64) -> Result<()> {
    let lock = locking_sql!(tx, "SELECT id FROM media_uploads WHERE id = $1 AND state = 'open' {LOCK}", "FOR UPDATE");
    let open: Option<i64> = run!(tx, c => sqlx::query_scalar(lock).bind(upload_id).fetch_optional(c))?;
    if open.is_some() { Ok(()) } else { files::abandon(tx, file_id).await }
}

/// Locks an open upload and extends the lease of `writer`. Returns its workspace and its reserved space. Always lock an
/// upload before its file, which prevents deadlocks.
async fn lock_held(tx: &mut Tx, upload_id: i64, writer: &str) -> Result<Option<(i64, i64)>> {
    const SQL: &str = "
        UPDATE media_uploads
        SET writer_until = $3
        WHERE id = $1 AND writer = $2 AND state = 'open'
        RETURNING workspace_id, reserved";
    let until = tx.now + LEASE;
    Ok(run!(tx, c => sqlx::query_as(SQL).bind(upload_id).bind(writer).bind(until).fetch_optional(c))?)
}

/// Records the asset that has the bytes of an upload, whose file has taken over the space. Returns `false` if `writer` no
/// longer writes to the upload: roll back then.
pub async fn complete(tx: &mut Tx, upload_id: i64, writer: &str, media_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE media_uploads
        SET state = 'done', media_id = $3, writer = NULL, writer_until = NULL, ended_at = $4
        WHERE id = $1
            AND writer = $2
            AND state = 'open'
            AND received = size_bytes
            AND reserved = 0";
    let now = tx.now;
    Ok(execute!(tx, SQL, upload_id, writer, media_id, now)? > 0)
}

/// Ends the upload of `writer`, because no asset can have its bytes, and releases its space. The error is kept for the
/// client until the upload expires.
pub async fn reject(tx: &mut Tx, upload_id: i64, writer: &str, code: UploadErrorCode, error: &str) -> Result<()> {
    const SQL: &str = "
        UPDATE media_uploads
        SET state = 'rejected', reserved = 0, writer = NULL, writer_until = NULL, ended_at = $2, error_code = $3,
            error = $4
        WHERE id = $1";
    let Some(held) = lock_held(tx, upload_id, writer).await? else { return Ok(()) };
    let now = tx.now;
    execute!(tx, SQL, upload_id, now, code, error)?;
    release_space(tx, &[held]).await
}

/// Marks the upload of `writer` for deletion, because its bytes are lost, and releases its space.
pub async fn discard(tx: &mut Tx, upload_id: i64, writer: &str) -> Result<()> {
    const SQL: &str = "
        UPDATE media_uploads
        SET state = 'doomed', writer = NULL, writer_until = NULL, ended_at = $3
        WHERE id = $1 AND writer = $2 AND state = 'open'
        RETURNING workspace_id, reserved";
    let now = tx.now;
    let discarded: Vec<(i64, i64)> =
        run!(tx, c => sqlx::query_as(SQL).bind(upload_id).bind(writer).bind(now).fetch_all(c))?;
    release_space(tx, &discarded).await
}

/// Marks an upload for deletion, and releases its space. The asset of a finished upload remains. Returns `false` if there
/// is no such upload.
pub async fn delete(tx: &mut Tx, brand_id: i64, upload_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE media_uploads
        SET state = 'doomed', writer = NULL, writer_until = NULL, ended_at = $3
        WHERE brand_id = $1
            AND id = $2
            AND state <> 'doomed'
        RETURNING workspace_id, reserved";
    let now = tx.now;
    let deleted: Vec<(i64, i64)> =
        run!(tx, c => sqlx::query_as(SQL).bind(brand_id).bind(upload_id).bind(now).fetch_all(c))?;
    release_space(tx, &deleted).await?;
    Ok(!deleted.is_empty())
}

/// Marks for deletion, at most `limit` each, uploads that have expired, and uploads of deleted brands. Returns how many.
/// Leaves locked rows to the next call.
pub async fn mark_expired(tx: &mut Tx, limit: i64) -> Result<usize> {
    let expired = locking_sql!(
        tx,
        "
        UPDATE media_uploads
        SET state = 'doomed', writer = NULL, writer_until = NULL, ended_at = $1
        WHERE id IN (
            SELECT id
            FROM media_uploads
            WHERE state <> 'doomed' AND expires_at <= $1
            ORDER BY expires_at
            LIMIT $2
            {LOCK}
        )
        RETURNING workspace_id, reserved",
        "FOR UPDATE SKIP LOCKED"
    );
    let orphaned = locking_sql!(
        tx,
        "
        UPDATE media_uploads
        SET state = 'doomed', writer = NULL, writer_until = NULL, ended_at = $1
        WHERE id IN (
            SELECT id
            FROM media_uploads
            WHERE brand_id IS NULL AND state <> 'doomed'
            ORDER BY id
            LIMIT $2
            {LOCK}
        )
        RETURNING workspace_id, reserved",
        "FOR UPDATE SKIP LOCKED"
    );
    let now = tx.now;
    let mut marked: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(expired).bind(now).bind(limit).fetch_all(c))?;
    let more: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(orphaned).bind(now).bind(limit).fetch_all(c))?;
    marked.extend(more);
    release_space(tx, &marked).await?;
    Ok(marked.len())
}

/// Marks all open uploads for deletion, because a restored installation does not have their pieces. Releases their space.
pub async fn delete_open(tx: &mut Tx) -> Result<()> {
    const SQL: &str = "
        UPDATE media_uploads
        SET state = 'doomed', writer = NULL, writer_until = NULL, ended_at = $1
        WHERE state = 'open'
        RETURNING workspace_id, reserved";
    let now = tx.now;
    let deleted: Vec<(i64, i64)> = run!(tx, c => sqlx::query_as(SQL).bind(now).fetch_all(c))?;
    release_space(tx, &deleted).await
}

/// Returns the IDs, after `after` and in order, of uploads that ended before `before` and may have pieces.
pub async fn ended(conn: &mut Conn, after: i64, before: DateTime<Utc>, limit: i64) -> Result<Vec<i64>> {
    const SQL: &str = "
        SELECT id
        FROM media_uploads
        WHERE ended_at IS NOT NULL
            AND id > $1
            AND ended_at <= $2
        ORDER BY id
        LIMIT $3";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(after).bind(before).bind(limit).fetch_all(c))?)
}

/// Returns pieces of an upload: the IDs of their rows and the names of their objects.
pub async fn pieces(conn: &mut Conn, upload_id: i64, limit: i64) -> Result<Vec<(i64, String)>> {
    const SQL: &str = "SELECT id, key FROM media_upload_pieces WHERE upload_id = $1 LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(upload_id).bind(limit).fetch_all(c))?)
}

/// Deletes the rows of pieces whose objects are deleted.
pub async fn delete_pieces(tx: &mut Tx, piece_ids: &[i64]) -> Result<()> {
    let sql = list_sql!(tx, "DELETE FROM media_upload_pieces WHERE id", "");
    execute!(tx, sql, id_list(piece_ids))?;
    Ok(())
}

/// Deletes the row of an ended upload without pieces. That of a finished or rejected upload is kept until it expires.
pub async fn clean_up(tx: &mut Tx, upload_id: i64) -> Result<()> {
    const DELETE: &str = "
        DELETE FROM media_uploads
        WHERE id = $1
            AND state = 'doomed'
            AND NOT EXISTS (SELECT 1 FROM media_upload_pieces p WHERE p.upload_id = $1)";
    const KEEP: &str = "
        UPDATE media_uploads
        SET ended_at = NULL
        WHERE id = $1
            AND state IN ('done', 'rejected')
            AND NOT EXISTS (SELECT 1 FROM media_upload_pieces p WHERE p.upload_id = $1)";
    execute!(tx, DELETE, upload_id)?;
    execute!(tx, KEEP, upload_id)?;
    Ok(())
}
