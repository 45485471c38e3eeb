//! The posts on the same accounts at about the same time as another one, for the warnings of its validation.

use std::ops::RangeInclusive;

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::db::run;
use super::sql::sql;
use super::{Conn, Result};

/// Selects the posts that [`find`] returns.
#[derive(Debug)]
pub struct NearbyQuery<'a> {
    pub brand_id: i64,
    /// The post that is changed, which is omitted.
    pub except: Option<i64>,
    /// The text on accounts without their own.
    pub content: &'a str,
    /// The accounts and their own texts.
    pub accounts: Vec<(i64, Option<&'a str>)>,
    /// The time of posts with the same text. Contains `any_text`.
    pub same_text: RangeInclusive<DateTime<Utc>>,
    /// The time of posts with any text.
    pub any_text: RangeInclusive<DateTime<Utc>>,
}

/// A post that is scheduled or published on an account.
#[derive(Debug, Clone, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct NearbyPost {
    pub account_id: i64,
    pub at: DateTime<Utc>,
    pub is_published: bool,
    pub has_same_text: bool,
}

/// The posts that are compared: those with a time in the range, and the newest, because those that are published
/// immediately have no time. Their numbers are limited, so a few posts of a very busy brand may be missed.
const CANDIDATES: &str = "
            SELECT id
            FROM (
                SELECT p.id
                FROM posts p
                WHERE p.brand_id = $1 AND p.scheduled_at >= $2 AND p.scheduled_at <= $3 AND p.deleted_at IS NULL
                ORDER BY p.scheduled_at
                LIMIT 500
            ) AS planned
            UNION
            SELECT id
            FROM (
                SELECT p.id
                FROM posts p
                WHERE p.brand_id = $1 AND p.deleted_at IS NULL
                ORDER BY p.id DESC
                LIMIT 500
            ) AS newest";

/// `id + 0` as in [`list_sql!`](super::jobs::list_sql): the planner expects few candidates, and looks up their targets.
const FOUND: &str = "
        SELECT account_id, at, is_published, has_same_text
        FROM (
            SELECT t.account_id, coalesce(t.published_at, p.scheduled_at, p.updated_at) AS at,
                t.published_at IS NOT NULL AS is_published, coalesce(t.content, p.content) = new_text AS has_same_text
            FROM candidate c
            JOIN posts p ON p.id = c.id
            JOIN post_targets t ON t.post_id = c.id
            JOIN new_target ON new_account = t.account_id
            WHERE c.id = c.id + 0
                AND p.status IN ('scheduled', 'publishing', 'published', 'partially_published')
                AND t.status NOT IN ('failed', 'unpublished')
                AND p.id <> $4
        ) AS nearby
        WHERE at >= $2 AND at <= $3 AND (has_same_text OR at >= $5 AND at <= $6)
        ORDER BY account_id, at
        LIMIT 5000";

/// Returns the scheduled and published posts on these accounts, in the order of the accounts and times.
pub async fn find(conn: &mut Conn, query: &NearbyQuery<'_>) -> Result<Vec<NearbyPost>> {
    if query.accounts.is_empty() {
        return Ok(Vec::new());
    }
    let sql = conn.for_engine(
        sql!(
            "
        WITH candidate AS MATERIALIZED ({CANDIDATES}),
        new_target AS MATERIALIZED (
            SELECT (value ->> 0)::bigint AS new_account, coalesce(value ->> 1, $8) AS new_text
            FROM json_array_elements($7::json)
        )
        {FOUND}",
            CANDIDATES,
            FOUND
        ),
        sql!(
            "
        WITH candidate AS MATERIALIZED ({CANDIDATES}),
        new_target AS MATERIALIZED (
            SELECT value ->> 0 AS new_account, coalesce(value ->> 1, $8) AS new_text
            FROM json_each($7)
        )
        {FOUND}",
            CANDIDATES,
            FOUND
        ),
    );
    let targets = Value::from_iter(query.accounts.iter().map(|(id, own)| json!([id, own]))).to_string();
    let (from, to) = (*query.same_text.start(), *query.same_text.end());
    let (near_from, near_to) = (*query.any_text.start(), *query.any_text.end());
    Ok(run!(conn, c => sqlx::query_as(sql).bind(query.brand_id).bind(from).bind(to)
        .bind(query.except.unwrap_or_default()).bind(near_from).bind(near_to).bind(&targets).bind(query.content)
        .fetch_all(c))?)
}
