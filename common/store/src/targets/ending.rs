//! How an attempt at a target ends: the target's new state, the attempt itself, and the post if all its targets have
//! ended.

use chrono::{DateTime, Utc};
use crier_domain::failure::Failure;
use crier_domain::job::JobAttempt;
use crier_domain::post::{Attempt, AttemptOutcome, PostEnds, TargetStatus};
use sqlx::types::Json;

use super::super::db::run;
use super::super::{Conn, Result, Tx};

/// The state in which a run left the target.
#[derive(Debug, Clone)]
pub struct TargetEnd {
    pub status: TargetStatus,
    pub external_id: Option<String>,
    pub url: Option<String>,
    pub error: Option<Failure>,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    /// The outcome of the last call is unknown: the next run must find out first.
    pub call_open: bool,
}

/// What ending a target returns.
#[derive(Debug, Clone)]
pub struct TargetEnded {
    /// The status of each target of the post, and when it was published.
    pub ends: Vec<(TargetStatus, Option<DateTime<Utc>>)>,
    /// Whether an endpoint may receive an event of the brand.
    pub has_endpoint: bool,
}

/// Stores the state in which a run left its target, and the attempt that it made. The caller has locked the post's row.
pub async fn end(tx: &mut Tx, target_id: i64, ended: &TargetEnd, attempt: Option<&NewAttempt>) -> Result<TargetEnded> {
    end_with_post(tx, target_id, ended, attempt, None).await
}

/// Does what [`end`] does. If all targets of the post are terminal then, gives the post the status in `post`.
pub async fn end_with_post(
    tx: &mut Tx,
    target_id: i64,
    ended: &TargetEnd,
    attempt: Option<&NewAttempt>,
    post: Option<PostEnds>,
) -> Result<TargetEnded> {
    let (sql, now) = (tx.for_engine(END_PG, END_SQLITE), tx.now);
    let rows: Vec<(TargetStatus, Option<DateTime<Utc>>, bool)> = run!(tx, c => sqlx::query_as(sql)
        .bind(target_id).bind(ended.status).bind(&ended.external_id).bind(&ended.url)
        .bind(ended.error.as_ref().map(Json)).bind(ended.next_attempt_at).bind(ended.published_at)
        .bind(ended.call_open).bind(now).bind(attempt.map(|a| a.number)).bind(attempt.map(|a| a.started_at))
        .bind(attempt.map(|a| a.duration_ms(now))).bind(attempt.map(|a| a.outcome))
        .bind(attempt.and_then(|a| a.status_code)).bind(attempt.and_then(|a| a.error.as_ref()).map(Json))
        .bind(post.map(|post| post.all_published)).bind(post.map(|post| post.all_failed))
        .bind(post.map(|post| post.mixed)).fetch_all(c))?;
    let has_endpoint = rows.iter().any(|(.., has_endpoint)| *has_endpoint);
    Ok(TargetEnded { ends: rows.into_iter().map(|(status, at, _)| (status, at)).collect(), has_endpoint })
}

/// The statement does not see what it changes itself, hence the `UNION`. `post` counts like `PostStatus::of_targets`.
const END_PG: &str = "
    WITH ended AS (
        UPDATE post_targets
        SET status = $2, external_id = $3, url = $4, error = $5, next_attempt_at = $6, published_at = $7,
            call_started_at = CASE WHEN $8 THEN call_started_at ELSE NULL END, updated_at = $9
        WHERE id = $1
        RETURNING id, post_id, status, published_at
    ),
    attempt AS (
        INSERT INTO target_attempts (
            target_id, number, started_at, duration_ms, outcome, status_code, error, created_at, updated_at
        )
        SELECT id, $10, $11, $12, $13, $14, $15, $9, $9
        FROM ended
        WHERE $10 IS NOT NULL
    ),
    target AS (
        SELECT post_id, status, published_at
        FROM ended
        UNION ALL
        SELECT t.post_id, t.status, t.published_at
        FROM ended
        JOIN post_targets t ON t.post_id = ended.post_id AND t.id <> ended.id
    ),
    post AS (
        UPDATE posts
        SET status = CASE
                WHEN all_ends.failed = 0 THEN $16
                WHEN all_ends.published = 0 THEN $17
                ELSE $18
            END,
            published_at = all_ends.newest, updated_at = $9
        FROM (
            SELECT post_id, count(*) AS targets, max(published_at) AS newest,
                count(*) FILTER (WHERE status = 'published') AS published,
                count(*) FILTER (WHERE status = 'failed') AS failed
            FROM target
            GROUP BY post_id
        ) all_ends
        WHERE posts.id = all_ends.post_id
            AND all_ends.published + all_ends.failed = all_ends.targets
            AND $16 IS NOT NULL
    )
    SELECT status, published_at,
        EXISTS (
            SELECT 1
            FROM posts p
            JOIN brand_members m ON m.brand_id = p.brand_id
            JOIN webhooks w ON w.user_id = m.user_id
            WHERE p.id = target.post_id AND w.is_active
        )
    FROM target";

/// The same in several statements, which are sent together; the last one returns the rows.
const END_SQLITE: &str = "
    UPDATE post_targets
    SET status = $2, external_id = $3, url = $4, error = $5, next_attempt_at = $6, published_at = $7,
        call_started_at = CASE WHEN $8 THEN call_started_at ELSE NULL END, updated_at = $9
    WHERE id = $1;
    INSERT INTO target_attempts (
        target_id, number, started_at, duration_ms, outcome, status_code, error, created_at, updated_at
    )
    SELECT $1, $10, $11, $12, $13, $14, $15, $9, $9
    WHERE $10 IS NOT NULL;
    UPDATE posts
    SET status = CASE
            WHEN all_ends.failed = 0 THEN $16
            WHEN all_ends.published = 0 THEN $17
            ELSE $18
        END,
        published_at = all_ends.newest, updated_at = $9
    FROM (
        SELECT post_id, count(*) AS targets, max(published_at) AS newest,
            count(*) FILTER (WHERE status = 'published') AS published,
            count(*) FILTER (WHERE status = 'failed') AS failed
        FROM post_targets
        WHERE post_id = (SELECT post_id FROM post_targets WHERE id = $1)
        GROUP BY post_id
    ) all_ends
    WHERE posts.id = all_ends.post_id
        AND all_ends.published + all_ends.failed = all_ends.targets
        AND $16 IS NOT NULL;
    SELECT t.status, t.published_at,
        EXISTS (
            SELECT 1
            FROM posts p
            JOIN brand_members m ON m.brand_id = p.brand_id
            JOIN webhooks w ON w.user_id = m.user_id
            WHERE p.id = t.post_id AND w.is_active
        )
    FROM post_targets t
    WHERE t.post_id = (SELECT post_id FROM post_targets WHERE id = $1)";

/// An attempt to be stored.
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

/// Returns every attempt at every target of a post, newest first.
pub async fn attempts(conn: &mut Conn, post_id: i64) -> Result<Vec<Attempt>> {
    const SQL: &str = "
        SELECT a.id, a.target_id, a.number, a.started_at, a.duration_ms, a.outcome, a.status_code, a.error,
            a.created_at, a.updated_at
        FROM target_attempts a
        JOIN post_targets t ON t.id = a.target_id
        WHERE t.post_id = $1
        ORDER BY a.id DESC";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(post_id).fetch_all(c))?)
}

/// Returns every attempt at one target, oldest first.
pub async fn attempt_summaries(conn: &mut Conn, target_id: i64) -> Result<Vec<JobAttempt>> {
    const SQL: &str = "
        SELECT number, started_at, duration_ms, outcome, error ->> 'message' AS error
        FROM target_attempts
        WHERE target_id = $1
        ORDER BY id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(target_id).fetch_all(c))?)
}
