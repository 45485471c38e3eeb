//! The queues of brands: their slots, and the places of queued posts, one for each account of a post.
//!
//! [`lock`] comes before every statement that gives a post a time, and after the locks of posts. A post that leaves the
//! queue needs no lock: its places become free with its commit.

use chrono::{DateTime, Utc};
use crier_domain::queue::Slot;
use serde_json::json;
use sqlx::types::Json;

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::{Conn, Result, StoreError, Tx};

/// The time that a queued post has taken on one account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Place {
    pub account_id: i64,
    pub at: DateTime<Utc>,
    pub post_id: i64,
}

/// The slots of a brand, and the time of their last change.
type QueueRow = (Json<Vec<Slot>>, Option<DateTime<Utc>>);

/// Returns the slots of a brand, and the time of their last change: `None` if there was none.
pub async fn find(conn: &mut Conn, brand_id: i64) -> Result<(Vec<Slot>, Option<DateTime<Utc>>)> {
    const SQL: &str = "SELECT slots, updated_at FROM queues WHERE brand_id = $1";
    let found: Option<QueueRow> = run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_optional(c))?;
    Ok(found.map(|(Json(slots), updated_at)| (slots, updated_at)).unwrap_or_default())
}

/// Locks the queue of a brand until the end of the transaction. Returns the same as [`find`].
pub async fn lock(tx: &mut Tx, brand_id: i64) -> Result<(Vec<Slot>, Option<DateTime<Utc>>)> {
    const SQL: &str = "
        INSERT INTO queues (brand_id, slots)
        VALUES ($1, '[]')
        ON CONFLICT (brand_id) DO UPDATE SET slots = queues.slots
        RETURNING slots, updated_at";
    let rows: Vec<QueueRow> = run!(tx, c => sqlx::query_as(SQL).bind(brand_id).fetch_all(c))?;
    let queue = rows.into_iter().next().map(|(Json(slots), updated_at)| (slots, updated_at));
    queue.ok_or_else(|| StoreError::Decode("a queue was not stored".to_owned()))
}

/// Stores the slots of a brand whose queue is locked.
pub async fn set_slots(tx: &mut Tx, brand_id: i64, slots: &[Slot]) -> Result<()> {
    let now = tx.now;
    execute!(tx, "UPDATE queues SET slots = $2, updated_at = $3 WHERE brand_id = $1", brand_id, Json(slots), now)?;
    Ok(())
}

/// Returns all places of a brand, in the order of their times.
pub async fn places(conn: &mut Conn, brand_id: i64) -> Result<Vec<Place>> {
    const SQL: &str = "
        SELECT account_id, at, post_id
        FROM queue_places
        WHERE brand_id = $1
        ORDER BY at, post_id, account_id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_all(c))?)
}

/// Returns the places of the posts that have not begun, in the order of the queue.
pub async fn waiting_places(conn: &mut Conn, brand_id: i64) -> Result<Vec<Place>> {
    const SQL: &str = "
        SELECT q.account_id, q.at, q.post_id
        FROM queue_places q
        JOIN posts p ON p.id = q.post_id
        WHERE q.brand_id = $1
            AND p.status = 'scheduled'
            AND p.queued
            AND p.deleted_at IS NULL
        ORDER BY q.at, q.post_id, q.account_id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).fetch_all(c))?)
}

/// Takes places for a post. The caller has locked the queue.
pub async fn take(tx: &mut Tx, brand_id: i64, places: &[Place]) -> Result<()> {
    if places.is_empty() {
        return Ok(());
    }
    let sql = tx.for_engine(
        "
        INSERT INTO queue_places (brand_id, account_id, at, post_id)
        SELECT $1, (value ->> 0)::bigint, (value ->> 1)::timestamptz, (value ->> 2)::bigint
        FROM json_array_elements($2::json)",
        "
        INSERT INTO queue_places (brand_id, account_id, at, post_id)
        SELECT $1, value ->> 0, value ->> 1, value ->> 2
        FROM json_each($2)",
    );
    let row = |place: &Place| (place.account_id, time_text(place.at), place.post_id);
    let rows = json!(places.iter().map(row).collect::<Vec<_>>()).to_string();
    execute!(tx, sql, brand_id, &rows)?;
    Ok(())
}

/// Frees the places of a post.
pub async fn leave(tx: &mut Tx, post_id: i64) -> Result<()> {
    execute!(tx, "DELETE FROM queue_places WHERE post_id = $1", post_id)?;
    Ok(())
}

/// Deletes the places before a time whose posts have begun.
pub async fn purge_places(tx: &mut Tx, brand_id: i64, before: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        DELETE FROM queue_places
        WHERE brand_id = $1
            AND at < $2
            AND post_id NOT IN (
                SELECT id
                FROM posts
                WHERE brand_id = $1
                    AND status = 'scheduled'
                    AND deleted_at IS NULL
            )";
    execute!(tx, SQL, brand_id, before)?;
    Ok(())
}

/// Locks posts, in id order, and returns the ids of those that are queued and have not begun.
pub async fn lock_posts(tx: &mut Tx, brand_id: i64, post_ids: &[i64]) -> Result<Vec<i64>> {
    let sql = list_sql!(
        tx,
        "SELECT p.id FROM posts p WHERE p.id",
        "AND p.brand_id = $2 AND p.status = 'scheduled' AND p.queued AND p.deleted_at IS NULL ORDER BY p.id {LOCK}",
        "FOR UPDATE OF p"
    );
    let ids = id_list(post_ids);
    Ok(run!(tx, c => sqlx::query_scalar(sql).bind(&ids).bind(brand_id).fetch_all(c))?)
}

/// Returns the ids of posts, each with the id of one of their targets.
pub async fn targets(conn: &mut Conn, post_ids: &[i64]) -> Result<Vec<(i64, i64)>> {
    let sql = list_sql!(conn, "SELECT post_id, id FROM post_targets WHERE post_id", "ORDER BY post_id, id");
    let ids = id_list(post_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// Moves posts to other times: `places` are all of their new places. The caller has locked the posts and the queue, and
/// moves their jobs.
pub async fn move_posts(tx: &mut Tx, brand_id: i64, times: &[(i64, DateTime<Utc>)], places: &[Place]) -> Result<()> {
    if times.is_empty() {
        return Ok(());
    }
    // All places are freed first, because the posts take the places of each other.
    let sql = list_sql!(tx, "DELETE FROM queue_places WHERE post_id", "");
    let ids = id_list(&times.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    execute!(tx, sql, &ids)?;
    take(tx, brand_id, places).await?;
    // `|| ''` as in `list_sql!`.
    let sql = tx.for_engine(
        "
        WITH moved AS (
            SELECT (value ->> 0)::bigint AS post_id, (value ->> 1)::timestamptz AS at
            FROM json_array_elements($1::json)
            WHERE value ->> 0 = (value ->> 0) || ''
        )
        UPDATE posts
        SET scheduled_at = moved.at, updated_at = $2
        FROM moved
        WHERE id = moved.post_id",
        "
        UPDATE posts
        SET scheduled_at = moved.value ->> 1, updated_at = $2
        FROM json_each($1) moved
        WHERE posts.id = moved.value ->> 0",
    );
    let row = |(id, at): &(i64, DateTime<Utc>)| (*id, time_text(*at));
    let rows = json!(times.iter().map(row).collect::<Vec<_>>()).to_string();
    let now = tx.now;
    execute!(tx, sql, &rows, now)?;
    Ok(())
}
