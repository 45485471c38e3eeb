//! The images and videos of posts, the platforms' ids of those that are already uploaded, and the progress of uploads of
//! videos.
//!
//! Writing a post locks its images ([`lock_media`]). Deleting an image locks it and then checks whether a post needs it
//! ([`in_use`]). So the later of the two transactions sees the other's change.

use crier_base::secrets::{Cipher, SecretLocation, link};
use serde_json::{Map, Value};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::{Conn, Result, Tx};

/// Not bound to the row: a target is read together with its post.
const VIDEO_UPLOADS: SecretLocation<'_> = SecretLocation { table: "post_targets", row: "", column: "video_uploads" };

/// Prevents the deletion of the brand's images until the end of the transaction. SQLite needs no lock, because it has
/// one writer.
pub async fn lock_media(tx: &mut Tx, brand_id: i64, media_ids: &[i64]) -> Result<()> {
    if media_ids.is_empty() || !tx.is_postgres() {
        return Ok(());
    }
    let sql = list_sql!(tx, "SELECT id FROM media WHERE id", "AND brand_id = $2 ORDER BY id FOR KEY SHARE");
    let ids = id_list(media_ids);
    let _: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(&ids).bind(brand_id).fetch_all(c))?;
    Ok(())
}

/// Replaces the images of the post, which are those of all of its targets. Leaves out deleted images, which a draft may
/// still contain.
pub async fn set(tx: &mut Tx, brand_id: i64, post_id: i64, media_ids: &[i64]) -> Result<()> {
    execute!(tx, "DELETE FROM post_media WHERE post_id = $1", post_id)?;
    insert(tx, brand_id, post_id, media_ids).await
}

/// Stores the images of a new post, like [`set`].
pub async fn insert(tx: &mut Tx, brand_id: i64, post_id: i64, media_ids: &[i64]) -> Result<()> {
    if media_ids.is_empty() {
        return Ok(());
    }
    let sql = list_sql!(
        tx,
        "INSERT INTO post_media (post_id, media_id) SELECT $3, id FROM media WHERE id",
        "AND brand_id = $2"
    );
    execute!(tx, sql, id_list(media_ids), brand_id, post_id)?;
    Ok(())
}

/// Returns whether an unfinished post uses the image. The caller has locked its row ([`super::media::lock`]). A deleted
/// post counts only if one of its targets is unfinished.
pub async fn in_use(conn: &mut Conn, media_id: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_media m
            JOIN posts p ON p.id = m.post_id
            WHERE m.media_id = $1
                AND p.status IN ('pending_approval', 'scheduled', 'publishing')
                AND (
                    p.deleted_at IS NULL
                    OR EXISTS (
                        SELECT 1
                        FROM post_targets t
                        WHERE t.post_id = p.id AND t.status IN ('pending', 'publishing')
                    )
                )
        )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(media_id).fetch_one(c))?)
}

/// Returns whether a post that failed on an account uses the image, so that a retry publishes it.
pub async fn can_be_retried(conn: &mut Conn, media_id: i64) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM post_media m
            JOIN posts p ON p.id = m.post_id
            WHERE m.media_id = $1 AND p.status IN ('failed', 'partially_published') AND p.deleted_at IS NULL
        )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(media_id).fetch_one(c))?)
}

/// Returns the platform's ids of the images and videos that were uploaded for a target, by asset id.
pub async fn uploads(conn: &mut Conn, target_id: i64) -> Result<Map<String, Value>> {
    const SQL: &str = "SELECT uploads FROM post_targets WHERE id = $1";
    let found: Option<Option<Json<Map<String, Value>>>> =
        run!(conn, c => sqlx::query_scalar(SQL).bind(target_id).fetch_optional(c))?;
    Ok(found.flatten().map(|Json(uploads)| uploads).unwrap_or_default())
}

/// Stores the platform's ids of uploaded images and videos.
pub async fn set_uploads(tx: &mut Tx, target_id: i64, uploads: &Map<String, Value>) -> Result<()> {
    execute!(tx, "UPDATE post_targets SET uploads = $2 WHERE id = $1", target_id, Json(uploads))?;
    Ok(())
}

/// Returns the progress of the uploads of a target's videos: what the connector returned last, by asset id, and the
/// time at which the worker began.
pub async fn video_uploads(conn: &mut Conn, cipher: &Cipher, target_id: i64) -> Result<Map<String, Value>> {
    const SQL: &str = "SELECT video_uploads FROM post_targets WHERE id = $1";
    let found: Option<Option<String>> = run!(conn, c => sqlx::query_scalar(SQL).bind(target_id).fetch_optional(c))?;
    let Some(sealed) = found.flatten() else { return Ok(Map::new()) };
    // Without the key, the uploads begin again.
    Ok(link::open_stored(cipher, &VIDEO_UPLOADS, &sealed).unwrap_or_default())
}

/// Returns whether a target's videos have been handed over, or are being handed over.
pub async fn has_video_uploads(conn: &mut Conn, target_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM post_targets WHERE id = $1 AND video_uploads IS NOT NULL)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(target_id).fetch_one(c))?)
}

/// Stores the progress of the uploads of a target's videos.
pub async fn set_video_uploads(
    tx: &mut Tx,
    cipher: &Cipher,
    target_id: i64,
    uploads: &Map<String, Value>,
) -> Result<()> {
    let sealed = link::seal(cipher, &VIDEO_UPLOADS, uploads)?;
    execute!(tx, "UPDATE post_targets SET video_uploads = $2 WHERE id = $1", target_id, sealed)?;
    Ok(())
}
