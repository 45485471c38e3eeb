//! What the platform inside Crier keeps: its handles and their timelines.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// A picture of a sandbox post.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxPicture {
    /// A path on our own host.
    pub url: String,
    /// Empty where nobody said what it shows.
    pub alt: String,
}

/// A post on the sandbox's timeline.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SandboxPost {
    pub id: i64,
    pub handle: String,
    pub content: String,
    #[sqlx(json)]
    pub media: Vec<SandboxPicture>,
    pub created_at: DateTime<Utc>,
}

/// Takes a handle for a workspace, or finds that it has it; `false` where another workspace was first.
pub async fn claim_handle(tx: &mut Tx, workspace_id: i64, handle: &str) -> Result<bool> {
    const SQL: &str = "INSERT INTO sandbox_handles (handle, workspace_id, created_at) VALUES ($1, $2, $3) ON CONFLICT (handle) DO UPDATE SET expired = FALSE WHERE sandbox_handles.workspace_id = excluded.workspace_id";
    let now = tx.now;
    Ok(execute!(tx, SQL, handle, workspace_id, now)? > 0)
}

/// The workspace that has a handle.
pub async fn owner(conn: &mut Conn, handle: &str) -> Result<Option<i64>> {
    const SQL: &str = "SELECT workspace_id FROM sandbox_handles WHERE handle = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(handle).fetch_optional(c))?)
}

/// Whether the handle's token is good; `None` where there is no such handle in the workspace.
pub async fn is_expired(conn: &mut Conn, workspace_id: i64, handle: &str) -> Result<Option<bool>> {
    const SQL: &str = "SELECT expired FROM sandbox_handles WHERE workspace_id = $1 AND handle = $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(handle).fetch_optional(c))?)
}

/// `[expire]`: the token is refused until the account is connected again.
pub async fn expire(tx: &mut Tx, handle: &str) -> Result<()> {
    execute!(tx, "UPDATE sandbox_handles SET expired = TRUE WHERE handle = $1", handle)?;
    Ok(())
}

/// Publishes under a key; the same key again gives the first one's id.
pub async fn publish(tx: &mut Tx, handle: &str, key: &str, content: &str, media: &[SandboxPicture]) -> Result<i64> {
    const SQL: &str = "INSERT INTO sandbox_posts (handle, key, content, media, created_at) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (key) DO UPDATE SET key = excluded.key RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(handle).bind(key).bind(content).bind(Json(media)).bind(now)
        .fetch_one(c))?)
}

pub async fn find_by_key(conn: &mut Conn, key: &str) -> Result<Option<SandboxPost>> {
    const SQL: &str = "SELECT id, handle, content, media, created_at FROM sandbox_posts WHERE key = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(key).fetch_optional(c))?)
}

/// A handle's timeline, newest first; `None` where nobody has the handle.
pub async fn timeline(conn: &mut Conn, handle: &str, limit: i64) -> Result<Option<Vec<SandboxPost>>> {
    let known: Option<String> = run!(conn, c => sqlx::query_scalar("SELECT handle FROM sandbox_handles WHERE handle = $1").bind(handle).fetch_optional(c))?;
    if known.is_none() {
        return Ok(None);
    }
    const SQL: &str =
        "SELECT id, handle, content, media, created_at FROM sandbox_posts WHERE handle = $1 ORDER BY id DESC LIMIT $2";
    Ok(Some(run!(conn, c => sqlx::query_as(SQL).bind(handle).bind(limit).fetch_all(c))?))
}

/// A visitor's comment.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct SandboxComment {
    pub id: i64,
    pub post_id: i64,
    pub name: String,
    pub body: String,
    pub created_at: DateTime<Utc>,
}

/// Adds a comment under a post of the handle; `None` where there is no such post.
pub async fn comment(tx: &mut Tx, handle: &str, post_id: i64, name: &str, body: &str) -> Result<Option<i64>> {
    const SQL: &str = "INSERT INTO sandbox_comments (post_id, name, body, created_at) SELECT id, $3, $4, $5 FROM sandbox_posts WHERE handle = $1 AND id = $2 RETURNING id";
    let now = tx.now;
    Ok(
        run!(tx, c => sqlx::query_scalar(SQL).bind(handle).bind(post_id).bind(name).bind(body).bind(now).fetch_optional(c))?,
    )
}

/// The comments under the newest posts of a handle, oldest first.
pub async fn comments(conn: &mut Conn, handle: &str, limit: i64) -> Result<Vec<SandboxComment>> {
    const SQL: &str = "SELECT c.id, c.post_id, c.name, c.body, c.created_at FROM sandbox_comments c JOIN sandbox_posts p ON p.id = c.post_id WHERE p.handle = $1 ORDER BY c.id LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(handle).bind(limit).fetch_all(c))?)
}
