//! Posts for the console's calendar and home page, by their planned or published time and by account. Texts are cut
//! after 300 characters, and threads and first comments are omitted.

use chrono::{DateTime, Utc};
use crier_domain::post::{Post, PostStatus};

use super::db::run;
use super::sql::sql;
use super::{Conn, Result};

const COLUMNS: &str = "
    p.id, p.brand_id, p.author_id, NULL AS author_name, p.status, substr(p.content, 1, 300) AS content, p.schedule_type,
    p.scheduled_at, p.published_at, p.queued, p.recurring_id, p.external_ref, p.media, p.labels,
    coalesce(nullif(p.thread, p.thread), '[]') AS thread, NULL AS first_comment, p.counted, p.reject_reason,
    p.created_at, p.updated_at";

/// Returns a brand's next scheduled posts.
pub async fn upcoming(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<Vec<Post>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM posts p
        WHERE p.brand_id = $1 AND p.status = 'scheduled' AND p.deleted_at IS NULL
        ORDER BY p.scheduled_at, p.id
        LIMIT $2",
        COLUMNS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// Selects the posts that [`between`] returns.
#[derive(Debug, Clone, Copy)]
pub struct CalendarQuery {
    pub brand_id: i64,
    pub from: DateTime<Utc>,
    /// Exclusive.
    pub to: DateTime<Utc>,
    pub status: Option<PostStatus>,
    /// Only posts with a target on this account.
    pub account_id: Option<i64>,
}

/// Returns a brand's posts whose time is in the range, in the order of these times: the scheduled time, or else the time
/// of publication, or else the time of creation. Leaves out drafts without a time.
pub async fn between(conn: &mut Conn, query: &CalendarQuery, limit: i64) -> Result<Vec<Post>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM posts p
        WHERE p.brand_id = $1
            AND p.deleted_at IS NULL
            AND (p.scheduled_at IS NOT NULL OR p.status <> 'draft')
            AND p.listed_at >= $2
            AND p.listed_at < $3
            AND ($4 = '' OR p.status = $4)
            AND (
                $5 = 0
                OR EXISTS (SELECT 1 FROM post_targets t WHERE t.post_id = p.id AND t.account_id = $5)
            )
        ORDER BY p.listed_at, p.id
        LIMIT $6",
        COLUMNS
    );
    let (status, account) = (query.status.map_or("", PostStatus::as_str), query.account_id.unwrap_or_default());
    Ok(run!(conn, c => sqlx::query_as(sql).bind(query.brand_id).bind(query.from).bind(query.to)
        .bind(status).bind(account).bind(limit).fetch_all(c))?)
}
