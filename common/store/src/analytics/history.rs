//! What was collected: the metrics of periods, of accounts and of posts.

use chrono::{DateTime, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use serde_json::{Value, json};

use crate::db::{run, time_text};
use crate::jobs::{id_list, list_sql};
use crate::{Conn, Result};

/// A day's posts and their newest metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct DayOfPosts {
    /// The index in the list of days, starting at 0.
    pub day: i64,
    pub posts: i64,
    #[sqlx(flatten)]
    pub metrics: PostMetrics,
}

/// Sums up the posts of a brand, or only those on one of its accounts, by the days on which they were published. Leaves
/// out days without posts. A day is a pair of its start and its end, which is exclusive.
pub async fn days_of_posts(
    conn: &mut Conn,
    brand_id: i64,
    account_id: Option<i64>,
    days: &[(DateTime<Utc>, DateTime<Utc>)],
) -> Result<Vec<DayOfPosts>> {
    // The join starts with the day, so that its posts are a range of the index: with LATERAL on Postgres, and on SQLite
    // with CROSS JOIN, which fixes the order.
    let sql = conn.for_engine(
        "
        SELECT day.n - 1 AS day, sums.*
        FROM jsonb_array_elements($2::jsonb) WITH ORDINALITY AS day (value, n)
        CROSS JOIN LATERAL (
            SELECT count(DISTINCT post_id) AS posts, sum(impressions)::bigint AS impressions,
                sum(reach)::bigint AS reach, sum(likes)::bigint AS likes, sum(comments)::bigint AS comments,
                sum(shares)::bigint AS shares, sum(clicks)::bigint AS clicks
            FROM target_analytics
            WHERE brand_id = $1
                AND published_at >= (day.value ->> 0)::timestamptz
                AND published_at < (day.value ->> 1)::timestamptz
                AND ($3 = 0 OR account_id = $3)
        ) sums
        WHERE sums.posts > 0",
        "
        SELECT day.key AS day, count(DISTINCT a.post_id) AS posts, sum(a.impressions) AS impressions,
            sum(a.reach) AS reach, sum(a.likes) AS likes, sum(a.comments) AS comments, sum(a.shares) AS shares,
            sum(a.clicks) AS clicks
        FROM json_each($2) day
        CROSS JOIN target_analytics a
            ON a.brand_id = $1
            AND a.published_at >= day.value ->> 0
            AND a.published_at < day.value ->> 1
            AND ($3 = 0 OR a.account_id = $3)
        GROUP BY day.key",
    );
    let days =
        Value::from_iter(days.iter().map(|(start, end)| json!([time_text(*start), time_text(*end)]))).to_string();
    let account_id = account_id.unwrap_or_default();
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(&days).bind(account_id).fetch_all(c))?)
}

/// The posts of a period.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostsByDay {
    /// Without days that have no posts.
    pub days: Vec<DayOfPosts>,
    /// All days together. A post that was published on two days, on different accounts, counts once.
    pub total: DayOfPosts,
}

/// Does the same as [`days_of_posts`] for consecutive days, and sums up all of them.
pub async fn posts_by_day(
    conn: &mut Conn,
    brand_id: i64,
    account_id: Option<i64>,
    days: &[(DateTime<Utc>, DateTime<Utc>)],
) -> Result<PostsByDay> {
    // The whole period follows the days as another one.
    let period = days.first().zip(days.last()).map(|((start, _), (_, end))| (*start, *end));
    let ranges: Vec<_> = days.iter().copied().chain(period).collect();
    let found = days_of_posts(conn, brand_id, account_id, &ranges).await?;
    let is_day = |one: &DayOfPosts| usize::try_from(one.day).is_ok_and(|day| day < days.len());
    let (days, period): (Vec<_>, Vec<_>) = found.into_iter().partition(is_day);
    Ok(PostsByDay { days, total: period.into_iter().next().unwrap_or_default() })
}

/// An account's metrics at one time.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct AccountSnapshot {
    pub account_id: i64,
    pub at: DateTime<Utc>,
    #[sqlx(flatten)]
    pub metrics: AccountMetrics,
}

/// Returns the metrics of accounts in a period, oldest first. The end is exclusive.
pub async fn of_accounts(
    conn: &mut Conn,
    account_ids: &[i64],
    (start, end): (DateTime<Utc>, DateTime<Utc>),
) -> Result<Vec<AccountSnapshot>> {
    let sql = list_sql!(
        conn,
        "SELECT account_id, at, followers, following, posts FROM account_metrics WHERE account_id",
        "AND at >= $2 AND at < $3 ORDER BY at"
    );
    let ids = id_list(account_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).bind(start).bind(end).fetch_all(c))?)
}

/// A target's metrics at one time.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct TargetSnapshot {
    pub target_id: i64,
    pub at: DateTime<Utc>,
    #[sqlx(flatten)]
    pub metrics: PostMetrics,
}

/// Returns the metrics of a post's targets since a time, oldest first.
pub async fn of_post(conn: &mut Conn, post_id: i64, since: DateTime<Utc>) -> Result<Vec<TargetSnapshot>> {
    // With `id + 0`, Postgres expects few targets, and looks their metrics up instead of reading all.
    const SQL: &str = "
        SELECT f.target_id, f.at, f.impressions, f.reach, f.likes, f.comments, f.shares, f.clicks
        FROM post_targets t
        JOIN target_metrics f ON f.target_id = t.id
        WHERE t.post_id = $1
            AND t.id = t.id + 0
            AND f.at >= $2
        ORDER BY f.at";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(post_id).bind(since).fetch_all(c))?)
}

/// A published post and its engagements. `engagements` is `None` if no platform reports any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct PostEngagement {
    pub published_at: DateTime<Utc>,
    pub engagements: Option<i64>,
}

/// Returns the engagements of the brand's newest posts since a time, or of those on one of its accounts. `limit` is the
/// maximum number of targets; those of a post are summed.
pub async fn engagements(
    conn: &mut Conn,
    brand_id: i64,
    account_id: Option<i64>,
    since: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<PostEngagement>> {
    // Null for a post without any metric: `coalesce(…) - coalesce(…)` is null then, otherwise 0.
    const SQL: &str = "
        SELECT min(published_at) AS published_at,
            CAST(sum(
                coalesce(likes, comments, shares, clicks) - coalesce(likes, comments, shares, clicks)
                    + coalesce(likes, 0) + coalesce(comments, 0) + coalesce(shares, 0) + coalesce(clicks, 0)
            ) AS bigint) AS engagements
        FROM (
            SELECT post_id, published_at, likes, comments, shares, clicks
            FROM target_analytics
            WHERE brand_id = $1
                AND published_at >= $2
                AND ($4 = 0 OR account_id = $4)
            ORDER BY published_at DESC
            LIMIT $3
        ) newest
        GROUP BY post_id";
    let account_id = account_id.unwrap_or_default();
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(since).bind(limit).bind(account_id)
        .fetch_all(c))?)
}
