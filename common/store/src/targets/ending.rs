//! The end of an attempt at a target: stores the target's new state and the attempt, and ends the post if all its
//! targets have ended.

use chrono::{DateTime, Utc};
use crier_domain::failure::Failure;
use crier_domain::job::{JobAttempt, MAX_SHOWN_ATTEMPTS};
use crier_domain::post::{
    Attempt, AttemptOutcome, FinalPostStatuses, FirstCommentOverride, PostStatus, PublishedPart, TargetStatus,
};
use serde_json::{Value, json};

use super::super::db::{run, time_text};
use super::super::{Conn, Result, Tx};

/// The state of a target after a run.
#[derive(Debug, Clone)]
pub struct TargetOutcome {
    pub status: TargetStatus,
    pub external_id: Option<String>,
    pub url: Option<String>,
    pub error: Option<Failure>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    /// The outcome of the last call is unknown: the next run must find out first.
    pub call_open: bool,
    /// All parts of the thread that are on the platform, if this run published some. The marker and the
    /// uploads are deleted, because the next part needs others.
    pub published_parts: Option<Vec<PublishedPart>>,
}

/// A target whose run ends, and what is stored for it.
#[derive(Debug, Clone, Copy)]
pub struct TargetUpdate<'a> {
    pub target_id: i64,
    pub end: &'a TargetOutcome,
    /// The attempt of its run.
    pub attempt: Option<&'a NewAttempt>,
    /// Whether the post ends if this was the last of its targets: it is being published.
    pub ends_post: bool,
}

/// Stores the state of a target after a run, and the attempt. The caller has locked the post's row.
pub async fn end(tx: &mut Tx, target_id: i64, end: &TargetOutcome, attempt: Option<&NewAttempt>) -> Result<()> {
    end_each(tx, &[TargetUpdate { target_id, end, attempt, ends_post: false }]).await?;
    Ok(())
}

/// A target whose state was stored.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct StoredTarget {
    pub id: i64,
    /// Whether the brand has an active endpoint.
    pub has_endpoint: bool,
    /// As it is stored: it may have changed during the run.
    #[sqlx(json(nullable))]
    pub first_comment: Option<FirstCommentOverride>,
}

/// Does what [`end`] does for several targets, in one statement, and ends the posts whose targets are then all
/// terminal. Returns the targets.
pub async fn end_each(tx: &mut Tx, ending: &[TargetUpdate<'_>]) -> Result<Vec<StoredTarget>> {
    if ending.is_empty() {
        return Ok(Vec::new());
    }
    let (sql, now, post) = (tx.for_engine(END_PG, END_SQLITE), tx.now, FinalPostStatuses::of(PostStatus::Publishing)?);
    let rows = Value::from_iter(ending.iter().map(|ending| ending.row(now))).to_string();
    Ok(run!(tx, c => sqlx::query_as(sql).bind(&rows).bind(now).bind(post.all_published)
        .bind(post.all_failed).bind(post.mixed).fetch_all(c))?)
}

impl TargetUpdate<'_> {
    fn row(&self, now: DateTime<Utc>) -> Value {
        let (end, attempt) = (self.end, self.attempt);
        json!([
            self.target_id,
            end.status,
            end.external_id,
            end.url,
            end.error,
            end.next_attempt_at.map(time_text),
            end.published_at.map(time_text),
            end.call_open,
            self.ends_post,
            attempt.map(|a| a.number),
            attempt.map(|a| time_text(a.started_at)),
            attempt.map(|a| a.duration_ms(now)),
            attempt.map(|a| a.outcome),
            attempt.and_then(|a| a.status_code),
            attempt.and_then(|a| a.error.as_ref()),
            end.published_parts,
        ])
    }
}

/// `all_targets` is a `UNION`, because the statement does not see its own changes. The post's status is that of
/// `PostStatus::of_targets`. `value || ''` as in `list_sql!`.
const END_PG: &str = "
    WITH runs AS MATERIALIZED (
        SELECT (value ->> 0)::bigint AS target_id, value
        FROM json_array_elements($1::json)
        WHERE value ->> 0 = (value ->> 0) || ''
    ),
    ended_targets AS (
        UPDATE post_targets t
        SET status = value ->> 1, external_id = value ->> 2, url = value ->> 3, error = (value ->> 4)::jsonb,
            next_attempt_at = (value ->> 5)::timestamptz, published_at = (value ->> 6)::timestamptz,
            call_started_at = CASE WHEN (value ->> 7)::boolean THEN call_started_at ELSE NULL END,
            marker = CASE WHEN value ->> 15 IS NULL THEN marker ELSE NULL END,
            uploads = CASE WHEN value ->> 15 IS NULL THEN uploads ELSE NULL END,
            video_uploads = CASE WHEN value ->> 15 IS NULL THEN video_uploads ELSE NULL END,
            published_parts = coalesce((value ->> 15)::jsonb, published_parts), updated_at = $2
        FROM runs
        WHERE t.id = runs.target_id
        RETURNING t.id, t.post_id, t.status, t.published_at, t.first_comment, (value ->> 8)::boolean AS ends_post
    ),
    stored_attempts AS (
        INSERT INTO target_attempts (
            target_id, number, started_at, duration_ms, outcome, status_code, error, created_at, updated_at
        )
        SELECT target_id, (value ->> 9)::integer, (value ->> 10)::timestamptz, (value ->> 11)::bigint, value ->> 12,
            (value ->> 13)::integer, (value ->> 14)::jsonb, $2, $2
        FROM runs
        WHERE value ->> 9 IS NOT NULL AND target_id IN (SELECT id FROM ended_targets)
    ),
    all_targets AS (
        SELECT post_id, status, published_at, ends_post
        FROM ended_targets
        UNION ALL
        SELECT t.post_id, t.status, t.published_at, FALSE
        FROM (SELECT DISTINCT post_id FROM ended_targets) of_post
        JOIN post_targets t ON t.post_id = of_post.post_id
        WHERE t.id NOT IN (SELECT id FROM ended_targets)
    ),
    ended_posts AS (
        UPDATE posts
        SET status = CASE
                WHEN all_ends.failed = 0 THEN $3
                WHEN all_ends.published = 0 THEN $4
                ELSE $5
            END,
            published_at = all_ends.newest, updated_at = $2
        FROM (
            SELECT post_id, count(*) AS targets, max(published_at) AS newest,
                count(*) FILTER (WHERE status IN ('published', 'unpublishing', 'unpublished')) AS published,
                count(*) FILTER (WHERE status = 'failed') AS failed
            FROM all_targets
            GROUP BY post_id
            HAVING bool_or(ends_post)
        ) all_ends
        WHERE posts.id = all_ends.post_id
            AND all_ends.published + all_ends.failed = all_ends.targets
    )
    SELECT id, first_comment,
        EXISTS (
            SELECT 1
            FROM posts p
            JOIN brand_members m ON m.brand_id = p.brand_id
            JOIN webhooks w ON w.user_id = m.user_id
            WHERE p.id = ended_targets.post_id AND w.is_active
        ) AS has_endpoint
    FROM ended_targets";

/// Does the same in several statements, which are sent together, because SQLite has no `UPDATE` in `WITH`. The last one
/// returns the rows.
const END_SQLITE: &str = "
    UPDATE post_targets
    SET status = value ->> 1, external_id = value ->> 2, url = value ->> 3, error = nullif(value -> 4, 'null'),
        next_attempt_at = value ->> 5, published_at = value ->> 6,
        call_started_at = CASE WHEN value ->> 7 THEN call_started_at ELSE NULL END,
        marker = CASE WHEN value ->> 15 IS NULL THEN marker ELSE NULL END,
        uploads = CASE WHEN value ->> 15 IS NULL THEN uploads ELSE NULL END,
        video_uploads = CASE WHEN value ->> 15 IS NULL THEN video_uploads ELSE NULL END,
        published_parts = coalesce(nullif(value -> 15, 'null'), published_parts), updated_at = $2
    FROM json_each($1)
    WHERE post_targets.id = value ->> 0;
    INSERT INTO target_attempts (
        target_id, number, started_at, duration_ms, outcome, status_code, error, created_at, updated_at
    )
    SELECT value ->> 0, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13,
        nullif(value -> 14, 'null'), $2, $2
    FROM json_each($1)
    WHERE value ->> 9 IS NOT NULL;
    UPDATE posts
    SET status = CASE
            WHEN all_ends.failed = 0 THEN $3
            WHEN all_ends.published = 0 THEN $4
            ELSE $5
        END,
        published_at = all_ends.newest, updated_at = $2
    FROM (
        SELECT post_id, count(*) AS targets, max(published_at) AS newest,
            count(*) FILTER (WHERE status IN ('published', 'unpublishing', 'unpublished')) AS published,
            count(*) FILTER (WHERE status = 'failed') AS failed
        FROM post_targets
        WHERE post_id IN (
            SELECT t.post_id
            FROM json_each($1)
            JOIN post_targets t ON t.id = value ->> 0
            WHERE value ->> 8
        )
        GROUP BY post_id
    ) all_ends
    WHERE posts.id = all_ends.post_id
        AND all_ends.published + all_ends.failed = all_ends.targets;
    SELECT t.id, t.first_comment,
        EXISTS (
            SELECT 1
            FROM posts p
            JOIN brand_members m ON m.brand_id = p.brand_id
            JOIN webhooks w ON w.user_id = m.user_id
            WHERE p.id = t.post_id AND w.is_active
        ) AS has_endpoint
    FROM json_each($1)
    JOIN post_targets t ON t.id = value ->> 0";

/// An attempt to store.
#[derive(Debug, Clone)]
pub struct NewAttempt {
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub outcome: AttemptOutcome,
    pub status_code: Option<i32>,
    pub error: Option<Failure>,
}

impl NewAttempt {
    fn duration_ms(&self, now: DateTime<Utc>) -> i64 {
        (now - self.started_at).num_milliseconds().max(0)
    }
}

/// Returns the latest attempts at the targets of a post, at most `limit`, newest first.
pub async fn attempts(conn: &mut Conn, post_id: i64, limit: i64) -> Result<Vec<Attempt>> {
    const SQL: &str = "
        SELECT a.id, a.target_id, a.number, a.started_at, a.duration_ms, a.outcome, a.status_code, a.error,
            a.created_at, a.updated_at
        FROM target_attempts a
        JOIN post_targets t ON t.id = a.target_id
        WHERE t.post_id = $1
        ORDER BY a.id DESC
        LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(post_id).bind(limit).fetch_all(c))?)
}

/// Returns the latest attempts at one target for the operator, oldest first.
pub async fn attempt_summaries(conn: &mut Conn, target_id: i64) -> Result<Vec<JobAttempt>> {
    const SQL: &str = "
        SELECT number, started_at, duration_ms, outcome, error ->> 'message' AS error
        FROM target_attempts
        WHERE target_id = $1
        ORDER BY id DESC
        LIMIT $2";
    let mut found: Vec<JobAttempt> =
        run!(conn, c => sqlx::query_as(SQL).bind(target_id).bind(MAX_SHOWN_ATTEMPTS).fetch_all(c))?;
    found.reverse();
    Ok(found)
}
