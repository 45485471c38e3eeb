//! Posts. A deleted post is hidden from clients immediately. Its row is deleted when its targets have no unfinished
//! jobs.

use crier_domain::post::{Post, PostStatus, ThreadPart};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx, post_words, queues};

mod create;
mod search;

pub use create::{NewPost, create};
pub use search::{PostFilter, count_fitting, find_each, ids_before, list, search};

const COLUMNS: &str = "
    p.id, p.brand_id, p.author_id, u.name AS author_name, p.status, p.content, p.schedule_type, p.scheduled_at,
    p.published_at, p.queued, p.recurring_id, p.external_ref, p.media, p.labels, p.thread, p.first_comment, p.counted,
    p.reject_reason, p.created_at, p.updated_at";

const FROM: &str = "FROM posts p LEFT JOIN users u ON u.id = p.author_id";

/// Selects posts, and whether each of them is deleted.
const SELECT: &str = sql!(
    "
    SELECT {COLUMNS}, p.deleted_at IS NOT NULL AS is_deleted
    {FROM}",
    COLUMNS,
    FROM
);

/// Stores a new post with the words of its text and returns its id. Ignores `post.id`.
pub async fn insert(tx: &mut Tx, post: &Post) -> Result<i64> {
    let sql = tx.for_engine(
        "
        WITH new_post AS (
            INSERT INTO posts (
                brand_id, author_id, status, content, schedule_type, scheduled_at, published_at, media, counted,
                created_at, updated_at, labels, thread, first_comment, queued, recurring_id, external_ref
            )
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $13, $14, $15, $16, $17)
            RETURNING id
        ),
        new_words AS (
            INSERT INTO post_words (brand_id, word, post_id)
            SELECT $1, value, id
            FROM new_post
            CROSS JOIN json_array_elements_text($12::json)
        )
        SELECT id
        FROM new_post",
        // Ids ascend, so the post with the highest id is this one.
        "
        INSERT INTO posts (
            brand_id, author_id, status, content, schedule_type, scheduled_at, published_at, media, counted,
            created_at, updated_at, labels, thread, first_comment, queued, recurring_id, external_ref
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10, $11, $13, $14, $15, $16, $17);
        INSERT INTO post_words (brand_id, word, post_id)
        SELECT $1, value, (SELECT max(id) FROM posts)
        FROM json_each($12);
        SELECT max(id)
        FROM posts",
    );
    let (words, now) = (post_words::encode(post), tx.now);
    let ids: Vec<i64> = run!(tx, c => sqlx::query_scalar(sql).bind(post.brand_id).bind(post.author_id)
        .bind(post.status).bind(&post.content).bind(post.schedule_type).bind(post.scheduled_at)
        .bind(post.published_at).bind(Json(&post.media)).bind(post.counted).bind(now).bind(Json(&post.labels))
        .bind(&words).bind(Json(&post.thread)).bind(post.first_comment.as_ref().map(Json))
        .bind(post.queued).bind(post.recurring_id).bind(&post.external_ref).fetch_all(c))?;
    ids.first().copied().ok_or_else(|| StoreError::Decode("a post was not stored".to_owned()))
}

/// Stores the mutable fields of a post. If its text changes, also call [`post_words::replace`].
pub async fn update(tx: &mut Tx, post: &Post) -> Result<()> {
    const SQL: &str = "
        UPDATE posts
        SET status = $2, content = $3, schedule_type = $4, scheduled_at = $5, published_at = $6, media = $7,
            counted = $8, updated_at = $9, labels = $10, thread = $11, first_comment = $12, queued = $13,
            reject_reason = $14
        WHERE id = $1";
    let now = tx.now;
    execute!(
        tx,
        SQL,
        post.id,
        post.status,
        &post.content,
        post.schedule_type,
        post.scheduled_at,
        post.published_at,
        Json(&post.media),
        post.counted,
        now,
        Json(&post.labels),
        Json(&post.thread),
        post.first_comment.as_ref().map(Json),
        post.queued,
        &post.reject_reason
    )?;
    Ok(())
}

pub async fn find(conn: &mut Conn, brand_id: i64, post_id: i64) -> Result<Option<Post>> {
    let sql =
        sql!("SELECT {COLUMNS} {FROM} WHERE p.brand_id = $1 AND p.id = $2 AND p.deleted_at IS NULL", COLUMNS, FROM);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(post_id).fetch_optional(c))?)
}

/// Returns which of the clients' own names of posts are in use in the brand.
pub async fn with_external_refs(conn: &mut Conn, brand_id: i64, names: &[&str]) -> Result<Vec<String>> {
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let sql = conn.for_engine(
        "
        SELECT external_ref
        FROM posts
        WHERE brand_id = $2
            AND deleted_at IS NULL
            AND external_ref IS NOT NULL
            AND external_ref IN (SELECT value FROM json_array_elements_text($1::json))",
        "
        SELECT external_ref
        FROM posts
        WHERE brand_id = $2
            AND deleted_at IS NULL
            AND external_ref IS NOT NULL
            AND external_ref IN (SELECT value FROM json_each($1))",
    );
    let list = serde_json::json!(names).to_string();
    Ok(run!(conn, c => sqlx::query_scalar(sql).bind(&list).bind(brand_id).fetch_all(c))?)
}

/// Returns the ids and statuses of posts, in any order. Leaves out those that do not belong to the brand.
pub async fn statuses(conn: &mut Conn, brand_id: i64, post_ids: &[i64]) -> Result<Vec<(i64, PostStatus)>> {
    if post_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = list_sql!(conn, "SELECT id, status FROM posts WHERE id", "AND brand_id = $2 AND deleted_at IS NULL");
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(post_ids)).bind(brand_id).fetch_all(c))?)
}

/// Finds a post and locks its row: changes of the post, and starts and ends of its targets, must not overlap.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, post_id: i64) -> Result<Option<Post>> {
    let sql = locking_sql!(
        tx,
        "SELECT {COLUMNS} {FROM} WHERE p.brand_id = $1 AND p.id = $2 AND p.deleted_at IS NULL {LOCK}",
        "FOR UPDATE OF p",
        COLUMNS,
        FROM
    );
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(post_id).fetch_optional(c))?)
}

/// Finds posts and locks their rows, in id order, like [`find_for_update`]. Leaves out those that do not belong to the
/// brand or are deleted.
pub async fn find_each_for_update(tx: &mut Tx, brand_id: i64, post_ids: &[i64]) -> Result<Vec<Post>> {
    let sql = list_sql!(
        tx,
        "SELECT {COLUMNS} {FROM} WHERE p.id",
        // As in `find_each`.
        "AND p.brand_id + 0 = $2 AND p.deleted_at IS NULL ORDER BY p.id {LOCK}",
        "FOR UPDATE OF p",
        COLUMNS,
        FROM
    );
    let ids = id_list(post_ids);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&ids).bind(brand_id).fetch_all(c))?)
}

/// Finds a post by its id only, for the operator.
pub async fn find_any(conn: &mut Conn, post_id: i64) -> Result<Option<Post>> {
    let sql = sql!("SELECT {COLUMNS} {FROM} WHERE p.id = $1 AND p.deleted_at IS NULL", COLUMNS, FROM);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(post_id).fetch_optional(c))?)
}

/// A post that a worker has locked.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct LockedPost {
    #[sqlx(flatten)]
    pub post: Post,
    pub is_deleted: bool,
}

/// Locks a post by its id only, for the worker. Also finds a post that was deleted while one of its targets was being
/// published.
pub async fn lock(tx: &mut Tx, post_id: i64) -> Result<Option<LockedPost>> {
    let sql = locking_sql!(tx, "{SELECT} WHERE p.id = $1 {LOCK}", "FOR UPDATE OF p", SELECT);
    lock_one(tx, sql, post_id).await
}

/// Locks the post of a target.
pub async fn lock_of_target(tx: &mut Tx, target_id: i64) -> Result<Option<LockedPost>> {
    let sql = locking_sql!(
        tx,
        "{SELECT} WHERE p.id = (SELECT post_id FROM post_targets WHERE id = $1) {LOCK}",
        "FOR UPDATE OF p",
        SELECT
    );
    lock_one(tx, sql, target_id).await
}

async fn lock_one(tx: &mut Tx, sql: &'static str, id: i64) -> Result<Option<LockedPost>> {
    Ok(run!(tx, c => sqlx::query_as(sql).bind(id).fetch_optional(c))?)
}

/// Locks the posts of several targets, in id order, like [`lock`]. If `wait` is false, omits posts that another
/// transaction has locked.
pub async fn lock_of_targets(tx: &mut Tx, target_ids: &[i64], wait: bool) -> Result<Vec<LockedPost>> {
    let sql = if wait {
        list_sql!(
            tx,
            "{SELECT} WHERE p.id IN (SELECT post_id FROM post_targets WHERE id",
            ") ORDER BY p.id {LOCK}",
            "FOR UPDATE OF p",
            SELECT
        )
    } else {
        list_sql!(
            tx,
            "{SELECT} WHERE p.id IN (SELECT post_id FROM post_targets WHERE id",
            ") ORDER BY p.id {LOCK}",
            "FOR UPDATE OF p SKIP LOCKED",
            SELECT
        )
    };
    lock_all(tx, sql, target_ids).await
}

/// Locks several posts, in id order, like [`lock`].
pub async fn lock_each(tx: &mut Tx, post_ids: &[i64]) -> Result<Vec<LockedPost>> {
    let sql = list_sql!(tx, "{SELECT} WHERE p.id", "ORDER BY p.id {LOCK}", "FOR UPDATE OF p", SELECT);
    lock_all(tx, sql, post_ids).await
}

async fn lock_all(tx: &mut Tx, sql: &'static str, ids: &[i64]) -> Result<Vec<LockedPost>> {
    let ids = id_list(ids);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// The maximum number of labels that [`labels`] returns.
pub const MAX_LISTED_LABELS: i64 = 1_000;

/// Returns the labels of a brand's posts, each with the number of posts, in the order of their bytes. Returns at most
/// [`MAX_LISTED_LABELS`].
pub async fn labels(conn: &mut Conn, brand_id: i64) -> Result<Vec<(String, i64)>> {
    const SQL: &str = "
        SELECT label, count(*)
        FROM post_labels
        WHERE brand_id = $1
        GROUP BY label
        ORDER BY label
        LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(MAX_LISTED_LABELS).fetch_all(c))?)
}

/// Hides a post from clients, and removes it from the queue.
pub async fn delete(tx: &mut Tx, post_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE posts SET deleted_at = $2 WHERE id = $1 RETURNING brand_id, queued, content, thread";
    let now = tx.now;
    let deleted: Option<(i64, bool, String, Json<Vec<ThreadPart>>)> =
        run!(tx, c => sqlx::query_as(SQL).bind(post_id).bind(now).fetch_optional(c))?;
    let Some((brand_id, queued, content, Json(thread))) = deleted else { return Ok(()) };
    if queued {
        queues::leave(tx, post_id).await?;
    }
    post_words::remove(tx, brand_id, post_id, &post_words::of(&content, &thread)).await
}

/// Deletes the rows of deleted posts whose targets have no unfinished jobs, at most `limit`. Returns how many. The jobs
/// are counted instead of joined, so that only those of these posts are looked up.
pub async fn purge(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        WITH deletable AS MATERIALIZED (
            SELECT p.id
            FROM posts p
            WHERE p.deleted_at IS NOT NULL
                AND (
                    SELECT coalesce(sum((
                        SELECT count(*)
                        FROM jobs j
                        WHERE j.kind IN ('publish_target', 'publish_comment', 'unpublish_target')
                            AND j.subject_id = t.id
                            AND j.state IN ('scheduled', 'ready', 'running')
                    )), 0)
                    FROM post_targets t
                    WHERE t.post_id = p.id
                ) = 0
            ORDER BY p.deleted_at
            LIMIT (SELECT $1)
        )
        DELETE FROM posts
        WHERE id IN (SELECT id FROM deletable WHERE id = id + 0)";
    Ok(execute!(tx, SQL, limit)?)
}
