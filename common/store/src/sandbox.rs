//! Data of the sandbox, the platform inside Crier: its handles and their timelines.

use chrono::{DateTime, Utc};
use crier_domain::sandbox::{NewSandboxPost, SandboxComment, SandboxMedia};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, Tx};

const POST: &str = "id, handle, root_id, is_comment, content, created_at, media";

/// A post on the sandbox's timeline, or a part of a thread or a first comment under one.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct SandboxPost {
    pub id: i64,
    pub handle: String,
    /// The post under which this one is. `None` for a post on the timeline.
    pub root_id: Option<i64>,
    /// Whether it is a first comment.
    pub is_comment: bool,
    pub content: String,
    #[sqlx(json)]
    pub media: Vec<SandboxMedia>,
    pub created_at: DateTime<Utc>,
}

/// Claims a handle for a workspace, or renews the token of its handle. Returns `false` if another workspace has the
/// handle.
pub async fn claim_handle(tx: &mut Tx, workspace_id: i64, handle: &str) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO sandbox_handles (handle, workspace_id)
        VALUES ($1, $2)
        ON CONFLICT (handle)
        DO UPDATE SET expired = FALSE
        WHERE sandbox_handles.workspace_id = excluded.workspace_id";
    Ok(execute!(tx, SQL, handle, workspace_id)? > 0)
}

/// Returns the workspace that has a handle.
pub async fn owner(conn: &mut Conn, handle: &str) -> Result<Option<i64>> {
    const SQL: &str = "SELECT workspace_id FROM sandbox_handles WHERE handle = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(handle).fetch_optional(c))?)
}

/// Returns whether the handle's token is expired. Returns `None` if the workspace does not have the handle.
pub async fn is_expired(conn: &mut Conn, workspace_id: i64, handle: &str) -> Result<Option<bool>> {
    const SQL: &str = "SELECT expired FROM sandbox_handles WHERE workspace_id = $1 AND handle = $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(handle).fetch_optional(c))?)
}

/// Expires the handle's token (`[expire]`): it is rejected until the account is reconnected.
pub async fn expire(tx: &mut Tx, handle: &str) -> Result<()> {
    execute!(tx, "UPDATE sandbox_handles SET expired = TRUE WHERE handle = $1", handle)?;
    Ok(())
}

/// Publishes a post and returns its id; for a key that was used before, the first post's id. Returns `None` if the
/// workspace does not have the handle, if its token is expired, or if the handle does not have the post that this one
/// replies to.
pub async fn publish(tx: &mut Tx, post: &NewSandboxPost) -> Result<Option<i64>> {
    const SQL: &str = "
        INSERT INTO sandbox_posts (handle, key, content, media, created_at, root_id, is_comment)
        SELECT h.handle, $3, $4, $5, $6, coalesce(parent.root_id, parent.id), $8
        FROM sandbox_handles h
        LEFT JOIN sandbox_posts parent ON parent.handle = h.handle AND parent.id = $7
        WHERE h.workspace_id = $1 AND h.handle = $2 AND NOT h.expired AND ($7 IS NULL OR parent.id IS NOT NULL)
        ON CONFLICT (key)
        DO UPDATE SET key = excluded.key
        RETURNING id";
    let (now, reply) = (tx.now, post.reply_to);
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(post.workspace_id).bind(&post.handle).bind(&post.key)
        .bind(&post.content).bind(Json(&post.media)).bind(now).bind(reply.map(|r| r.parent_id))
        .bind(reply.is_some_and(|r| r.is_comment)).fetch_optional(c))?)
}

/// Deletes a post and the comments of visitors on it, but not the posts under it. Returns `false` if the workspace does
/// not have the handle, if its token is expired, or if the handle has no such post.
pub async fn delete(tx: &mut Tx, workspace_id: i64, handle: &str, post_id: i64) -> Result<bool> {
    const SQL: &str = "
        DELETE FROM sandbox_posts
        WHERE id = $3
            AND handle IN (
                SELECT handle
                FROM sandbox_handles
                WHERE workspace_id = $1 AND handle = $2 AND NOT expired
            )";
    Ok(execute!(tx, SQL, workspace_id, handle, post_id)? > 0)
}

pub async fn find_by_key(conn: &mut Conn, key: &str) -> Result<Option<SandboxPost>> {
    let sql = sql!("SELECT {POST} FROM sandbox_posts WHERE key = $1", POST);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(key).fetch_optional(c))?)
}

/// The maximum number of comments of a post. They are limited because anyone may write them.
pub const MAX_COMMENTS: i64 = 200;

/// Returns a handle's timeline, newest first, starting at the post `from` if any. Returns `None` if no workspace has
/// the handle.
pub async fn timeline(
    conn: &mut Conn,
    handle: &str,
    from: Option<i64>,
    limit: i64,
) -> Result<Option<Vec<SandboxPost>>> {
    const KNOWN: &str = "SELECT handle FROM sandbox_handles WHERE handle = $1";
    let known: Option<String> = run!(conn, c => sqlx::query_scalar(KNOWN).bind(handle).fetch_optional(c))?;
    if known.is_none() {
        return Ok(None);
    }
    let sql = sql!(
        "
        SELECT {POST}
        FROM sandbox_posts
        WHERE handle = $1 AND id <= $2 AND root_id IS NULL
        ORDER BY id DESC
        LIMIT $3",
        POST
    );
    let from = from.unwrap_or(i64::MAX);
    Ok(Some(run!(conn, c => sqlx::query_as(sql).bind(handle).bind(from).bind(limit).fetch_all(c))?))
}

/// Returns the parts of threads and the first comments under these posts, oldest first.
pub async fn replies(conn: &mut Conn, posts: &[i64], limit: i64) -> Result<Vec<SandboxPost>> {
    let sql = list_sql!(
        conn,
        "
        SELECT {POST}
        FROM sandbox_posts
        WHERE root_id",
        "
        ORDER BY id
        LIMIT $2",
        POST,
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(posts)).bind(limit).fetch_all(c))?)
}

/// A post that could not be published to a handle.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct FailedPost {
    pub id: i64,
    /// At most 500 characters.
    pub content: String,
    pub error: String,
    pub failed_at: DateTime<Utc>,
}

/// Returns the newest posts that could not be published to a handle.
pub async fn failed(conn: &mut Conn, handle: &str, limit: i64) -> Result<Vec<FailedPost>> {
    // The inner limit bounds the work for a brand with many failed posts on other accounts.
    const SQL: &str = "
        SELECT p.id, coalesce(substr(t.content, 1, 500), p.content) AS content, t.error ->> 'message' AS error,
            t.updated_at AS failed_at
        FROM (
            SELECT p.id, substr(p.content, 1, 500) AS content, a.id AS account_id
            FROM social_accounts a
            JOIN brand_accounts b ON b.account_id = a.id
            JOIN posts p ON p.brand_id = b.brand_id
            WHERE a.platform = 'sandbox'
                AND a.external_id = $1
                AND p.status IN ('failed', 'partially_published')
                AND p.deleted_at IS NULL
            ORDER BY p.id DESC
            LIMIT 100
        ) AS p
        JOIN post_targets t ON t.post_id = p.id AND t.account_id = p.account_id
        WHERE t.status IN ('failed') AND t.error IS NOT NULL
        ORDER BY p.id DESC
        LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(handle).bind(limit).fetch_all(c))?)
}

/// The result of adding a comment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommentOutcome {
    Added(i64),
    /// The handle does not have this post.
    NoSuchPost,
    /// The post has [`MAX_COMMENTS`].
    Full,
}

/// Counts the posts of a handle on its timeline.
pub async fn count(conn: &mut Conn, handle: &str) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM sandbox_posts WHERE handle = $1 AND root_id IS NULL";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(handle).fetch_one(c))?)
}

/// Adds a comment of a visitor to a post on the handle's timeline.
pub async fn comment(tx: &mut Tx, handle: &str, post_id: i64, name: &str, body: &str) -> Result<CommentOutcome> {
    // Concurrent comments must not exceed the limit: on Postgres, the lock on the post's row serializes them.
    let find = locking_sql!(
        tx,
        "SELECT id FROM sandbox_posts WHERE handle = $1 AND id = $2 AND root_id IS NULL {LOCK}",
        "FOR UPDATE"
    );
    let found: Option<i64> = run!(tx, c => sqlx::query_scalar(find).bind(handle).bind(post_id).fetch_optional(c))?;
    if found.is_none() {
        return Ok(CommentOutcome::NoSuchPost);
    }
    const SQL: &str = "
        INSERT INTO sandbox_comments (post_id, name, body, created_at, handle)
        SELECT $1, $2, $3, $4, $6
        WHERE (SELECT count(*) FROM sandbox_comments WHERE post_id = $1) < $5
        RETURNING id";
    let now = tx.now;
    let id: Option<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(post_id).bind(name).bind(body).bind(now)
        .bind(MAX_COMMENTS).bind(handle).fetch_optional(c))?;
    Ok(id.map_or(CommentOutcome::Full, CommentOutcome::Added))
}

/// A comment, and the number of comments of its post.
#[derive(Debug, Clone, sqlx_macros::FromRow)]
pub struct CountedComment {
    #[sqlx(flatten)]
    pub comment: SandboxComment,
    pub total: i64,
}

/// Returns the newest comments of each post, at most `each` per post, oldest first.
pub async fn comments(conn: &mut Conn, posts: &[i64], each: i64) -> Result<Vec<CountedComment>> {
    let sql = list_sql!(
        conn,
        "
        SELECT id, post_id, name, body, created_at, is_own, parent_id, total
        FROM (
            SELECT id, post_id, name, body, created_at, is_own, parent_id,
                count(*) OVER (PARTITION BY post_id) AS total,
                row_number() OVER (PARTITION BY post_id ORDER BY id DESC) AS place
            FROM sandbox_comments
            WHERE post_id",
        "
        ) AS placed
        WHERE place <= $2
        ORDER BY id"
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id_list(posts)).bind(each).fetch_all(c))?)
}

/// Replies to a comment under a key, and returns the reply's id; for a key that was used before, the first reply's id.
/// Returns `None` if the workspace does not have the handle, if its token is expired, or if the handle has no such
/// comment. [`MAX_COMMENTS`] does not apply.
pub async fn reply(
    tx: &mut Tx,
    workspace_id: i64,
    handle: &str,
    comment_id: i64,
    key: &str,
    body: &str,
) -> Result<Option<i64>> {
    const SQL: &str = "
        INSERT INTO sandbox_comments (post_id, name, body, created_at, handle, is_own, parent_id, key)
        SELECT c.post_id, h.handle, $4, $5, h.handle, TRUE, c.id, $6
        FROM sandbox_handles h
        JOIN sandbox_comments c ON c.id = $3 AND c.handle = h.handle
        WHERE h.workspace_id = $1 AND h.handle = $2 AND NOT h.expired
        ON CONFLICT (key) WHERE key IS NOT NULL
        DO UPDATE SET key = excluded.key
        RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(handle).bind(comment_id).bind(body).bind(now)
        .bind(key).fetch_optional(c))?)
}

/// Returns the id of the reply that was written under a key.
pub async fn find_reply(conn: &mut Conn, key: &str) -> Result<Option<i64>> {
    const SQL: &str = "SELECT id FROM sandbox_comments WHERE key = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(key).fetch_optional(c))?)
}

/// Returns the comments of a handle after this time and id, in their order, including the replies.
pub async fn comments_after(
    conn: &mut Conn,
    handle: &str,
    after: (DateTime<Utc>, i64),
    limit: i64,
) -> Result<Vec<SandboxComment>> {
    const SQL: &str = "
        SELECT id, post_id, name, body, created_at, is_own, parent_id
        FROM sandbox_comments
        WHERE handle = $1 AND (created_at, id) > ($2, $3)
        ORDER BY created_at, id
        LIMIT $4";
    let (at, id) = after;
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(handle).bind(at).bind(id).bind(limit).fetch_all(c))?)
}
