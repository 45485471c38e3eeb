//! Posts of all brands, for the operator.

use chrono::{DateTime, Utc};
use crier_domain::post::PostStatus;
use serde::Serialize;

use super::db::run;
use super::sql::sql;
use super::{Conn, Result};

/// Filters a list; `None` matches everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostQuery {
    pub status: Option<PostStatus>,
    pub brand_id: Option<i64>,
}

/// A summary of a post.
#[derive(Clone, Debug, Serialize, sqlx_macros::FromRow)]
pub struct PostSummary {
    pub id: i64,
    pub brand_id: i64,
    pub status: PostStatus,
    pub scheduled_at: Option<DateTime<Utc>>,
    pub targets: i64,
    pub failed: i64,
    /// The error of the first failed target.
    pub error: Option<String>,
    /// The beginning of the text.
    pub content: String,
}

const COLUMNS: &str = "
    p.id, p.brand_id, p.status, p.scheduled_at, substr(p.content, 1, 200) AS content,
    (SELECT count(*) FROM post_targets WHERE post_id = p.id) AS targets,
    (SELECT count(*) FROM post_targets WHERE post_id = p.id AND status = 'failed') AS failed,
    (
        SELECT error ->> 'message'
        FROM post_targets
        WHERE post_id = p.id AND status = 'failed'
        ORDER BY position, id
        LIMIT 1
    ) AS error";

/// Lists posts, newest first.
pub async fn list(conn: &mut Conn, query: PostQuery, limit: i64) -> Result<Vec<PostSummary>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM posts p
        WHERE p.deleted_at IS NULL
            AND ($1 = '' OR p.status = $1)
            AND ($2 = 0 OR p.brand_id = $2)
        ORDER BY p.id DESC
        LIMIT $3",
        COLUMNS
    );
    let (status, brand_id) = (query.status.map_or("", PostStatus::as_str), query.brand_id.unwrap_or_default());
    Ok(run!(conn, c => sqlx::query_as(sql).bind(status).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// Lists posts with a target whose job has not started and was due by `now`, oldest first.
pub async fn overdue(conn: &mut Conn, now: DateTime<Utc>, limit: i64) -> Result<Vec<PostSummary>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM posts p
        WHERE p.deleted_at IS NULL
            AND p.id IN (
                SELECT t.post_id
                FROM jobs j
                JOIN post_targets t ON t.id = j.subject_id
                WHERE j.kind = 'publish_target'
                    AND j.state IN ('scheduled', 'ready')
                    AND j.state IN ('scheduled', 'ready', 'running')
                    AND j.run_at <= $1
            )
        ORDER BY p.id
        LIMIT $2",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(now).bind(limit).fetch_all(c))?)
}
