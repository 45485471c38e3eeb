//! The metrics of posts and accounts that reports and the list of top posts show. `analytics::days_of_posts` reads the
//! days of a period.

use chrono::{DateTime, Utc};
use crier_domain::analytics::{PostMetric, PostMetrics};
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

/// A published post and the sums of its newest metrics on all accounts, or on one account.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct TopPost {
    pub post_id: i64,
    /// The first time at which it was published on one of these accounts.
    pub published_at: DateTime<Utc>,
    /// The first 200 characters of the post's text.
    pub text: String,
    #[sqlx(flatten)]
    pub metrics: PostMetrics,
}

/// Selects the posts that [`top_posts`] returns.
#[derive(Clone, Copy, Debug)]
pub struct TopPostsQuery {
    pub brand_id: i64,
    /// Only posts on this account.
    pub account_id: Option<i64>,
    pub range: TimeRange,
    pub metric: PostMetric,
}

/// Lists the posts of a brand that were published in a period, at most `limit`, by a metric, highest first. Leaves out
/// posts of which the metric is not known.
pub async fn top_posts(conn: &mut Conn, query: TopPostsQuery, limit: i64) -> Result<Vec<TopPost>> {
    // A post is looked up by its key, and the text only of the posts that are returned. Engagements are null for a post
    // without any of their metrics: `coalesce(…) - coalesce(…)` is null then, otherwise 0.
    const SQL: &str = "
        SELECT post_id, published_at, (SELECT substr(p.content, 1, 200) FROM posts p WHERE p.id = best.post_id) AS text,
            impressions, reach, likes, comments, shares, clicks
        FROM (
            SELECT *
            FROM (
                SELECT sums.*,
                    CASE $5
                        WHEN 'impressions' THEN impressions
                        WHEN 'reach' THEN reach
                        WHEN 'likes' THEN likes
                        WHEN 'comments' THEN comments
                        WHEN 'shares' THEN shares
                        WHEN 'clicks' THEN clicks
                        ELSE coalesce(likes, comments, shares, clicks) - coalesce(likes, comments, shares, clicks)
                            + coalesce(likes, 0) + coalesce(comments, 0) + coalesce(shares, 0) + coalesce(clicks, 0)
                    END AS score
                FROM (
                    SELECT post_id, min(published_at) AS published_at, CAST(sum(impressions) AS bigint) AS impressions,
                        CAST(sum(reach) AS bigint) AS reach, CAST(sum(likes) AS bigint) AS likes,
                        CAST(sum(comments) AS bigint) AS comments, CAST(sum(shares) AS bigint) AS shares,
                        CAST(sum(clicks) AS bigint) AS clicks
                    FROM target_analytics
                    WHERE brand_id = $1
                        AND published_at >= $2
                        AND published_at < $3
                        AND ($4 = 0 OR account_id = $4)
                    GROUP BY post_id
                ) AS sums
            ) AS scored
            WHERE score IS NOT NULL
                AND (SELECT p.deleted_at FROM posts p WHERE p.id = scored.post_id) IS NULL
            ORDER BY score DESC, published_at DESC, post_id DESC
            LIMIT $6
        ) AS best
        ORDER BY score DESC, published_at DESC, post_id DESC";
    let (start, end) = query.range;
    let account_id = query.account_id.unwrap_or_default();
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(query.brand_id).bind(start).bind(end).bind(account_id)
        .bind(query.metric.as_str()).bind(limit).fetch_all(c))?)
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
