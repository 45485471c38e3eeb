//! Posts by the time at which they go out or went out, for people who look at a brand's plans.

use chrono::{DateTime, Utc};

use super::db::run;
use super::{Conn, Result};
use crate::domain::post::{Post, PostStatus};

const COLUMNS: &str = "
    p.id, p.brand_id, p.author_id, NULL AS author_name, p.status, substr(p.content, 1, 300) AS content, p.schedule_type,
    p.scheduled_at, p.published_at, p.media, p.counted, p.created_at, p.updated_at";

/// Returns a brand's next scheduled posts. Their texts are cut after 300 characters.
pub async fn upcoming(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<Vec<Post>> {
    let sql = format!(
        "
        SELECT {COLUMNS}
        FROM posts p
        WHERE p.brand_id = $1 AND p.status = 'scheduled' AND p.deleted_at IS NULL
        ORDER BY p.scheduled_at, p.id
        LIMIT $2"
    );
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// What [`between`] returns.
#[derive(Debug, Clone, Copy)]
pub struct CalendarQuery {
    pub brand_id: i64,
    pub from: DateTime<Utc>,
    /// Exclusive.
    pub to: DateTime<Utc>,
    pub status: Option<PostStatus>,
    /// Only posts that go to this account.
    pub account_id: Option<i64>,
}

/// Returns a brand's posts that are planned for a time in the range, or were published at once in it; in their order. A
/// post that was published at once has its creation as its time. Texts are cut after 300 characters.
pub async fn between(conn: &mut Conn, query: &CalendarQuery, limit: i64) -> Result<Vec<Post>> {
    // The two halves have an index each.
    const FILTER: &str = "
            AND p.deleted_at IS NULL
            AND ($4 = '' OR p.status = $4)
            AND (
                $5 = 0
                OR EXISTS (SELECT 1 FROM post_targets t WHERE t.post_id = p.id AND t.account_id = $5)
            )";
    let sql = format!(
        "
        SELECT *
        FROM (
            SELECT {COLUMNS}
            FROM posts p
            WHERE p.brand_id = $1 AND p.scheduled_at >= $2 AND p.scheduled_at < $3 {FILTER}
            UNION ALL
            SELECT {COLUMNS}
            FROM posts p
            WHERE p.brand_id = $1 AND p.scheduled_at IS NULL AND p.status <> 'draft' AND p.created_at >= $2
                AND p.created_at < $3 {FILTER}
        ) AS planned
        ORDER BY coalesce(scheduled_at, created_at), id
        LIMIT $6"
    );
    let (status, account) = (query.status.map_or("", PostStatus::as_str), query.account_id.unwrap_or_default());
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(query.brand_id).bind(query.from).bind(query.to)
        .bind(status).bind(account).bind(limit).fetch_all(c))?)
}
