//! The metrics of posts and accounts that reports show. `analytics::days_of_posts` reads the days of a period.

use chrono::{DateTime, Utc};
use crier_domain::analytics::PostMetrics;
use crier_domain::platform::Platform;

use super::db::run;
use super::sql::sql;
use super::{Conn, Result};

/// A period. The end is exclusive.
pub type TimeRange = (DateTime<Utc>, DateTime<Utc>);

/// A published target, with its newest metrics.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct PublishedPost {
    pub published_at: DateTime<Utc>,
    pub platform: Platform,
    /// The account's name. `None` if it was disconnected.
    pub account: Option<String>,
    /// The beginning of the published text.
    pub text: String,
    pub url: Option<String>,
    #[sqlx(flatten)]
    pub metrics: PostMetrics,
}

const SELECT: &str = "
    SELECT a.published_at, t.platform, s.name AS account, substr(coalesce(t.content, p.content), 1, $5) AS text, t.url,
        a.impressions, a.reach, a.likes, a.comments, a.shares, a.clicks
    FROM target_analytics a
    JOIN post_targets t ON t.id = a.target_id
    JOIN posts p ON p.id = a.post_id
    LEFT JOIN social_accounts s ON s.id = a.account_id
    WHERE a.brand_id = $1
        AND a.published_at >= $2
        AND a.published_at < $3";

/// Lists what a brand published in a period, at most `limit`, newest first. Texts are cut after `text` characters.
pub async fn newest(
    conn: &mut Conn,
    brand_id: i64,
    (start, end): TimeRange,
    limit: i64,
    text: i32,
) -> Result<Vec<PublishedPost>> {
    let sql = sql!("{SELECT} ORDER BY a.published_at DESC LIMIT $4", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(start).bind(end).bind(limit)
        .bind(text).fetch_all(c))?)
}

/// Lists what a brand published in a period, at most `limit`, by engagements, highest first. Leaves out posts without
/// any metric.
pub async fn most_engaging(
    conn: &mut Conn,
    brand_id: i64,
    (start, end): TimeRange,
    limit: i64,
    text: i32,
) -> Result<Vec<PublishedPost>> {
    let sql = sql!(
        "{SELECT}
            AND coalesce(a.likes, a.comments, a.shares, a.clicks) IS NOT NULL
        ORDER BY coalesce(a.likes, 0) + coalesce(a.comments, 0) + coalesce(a.shares, 0) + coalesce(a.clicks, 0) DESC,
            a.published_at DESC
        LIMIT $4",
        SELECT
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(start).bind(end).bind(limit)
        .bind(text).fetch_all(c))?)
}

/// Counts what a brand published in a period, up to `limit`.
pub async fn count(conn: &mut Conn, brand_id: i64, (start, end): TimeRange, limit: i64) -> Result<i64> {
    const SQL: &str = "
        SELECT count(*)
        FROM (
            SELECT 1
            FROM target_analytics
            WHERE brand_id = $1
                AND published_at >= $2
                AND published_at < $3
            LIMIT $4
        ) AS published";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).bind(start).bind(end).bind(limit).fetch_one(c))?)
}

/// The number and the metrics of a brand's posts on one account in a period.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct AccountPosts {
    pub account_id: i64,
    pub posts: i64,
    #[sqlx(flatten)]
    pub metrics: PostMetrics,
}

/// Sums up what a brand published in a period, by account.
pub async fn by_account(conn: &mut Conn, brand_id: i64, (start, end): TimeRange) -> Result<Vec<AccountPosts>> {
    const SQL: &str = "
        SELECT account_id, count(*) AS posts, CAST(sum(impressions) AS bigint) AS impressions,
            CAST(sum(reach) AS bigint) AS reach, CAST(sum(likes) AS bigint) AS likes,
            CAST(sum(comments) AS bigint) AS comments, CAST(sum(shares) AS bigint) AS shares,
            CAST(sum(clicks) AS bigint) AS clicks
        FROM target_analytics
        WHERE brand_id = $1
            AND published_at >= $2
            AND published_at < $3
        GROUP BY account_id";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(start).bind(end).fetch_all(c))?)
}
