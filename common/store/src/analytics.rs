//! The metrics of posts and accounts: when they are due, their values, and their history.
//!
//! The due time is in the account's row, so any number of schedulers can run, and the next one finds an account that
//! the others missed. The scheduler adds the rows of published targets, so that publishing itself does no extra work.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::platform::Platform;
use serde_json::{Map, Value, json};
use sqlx::types::Json;

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::sql::locking_sql;
use super::{Conn, Result, Tx, jobs};

mod history;

pub use history::{
    AccountSnapshot, DayOfPosts, PostEngagement, PostsByDay, TargetSnapshot, days_of_posts, engagements, of_accounts,
    of_post, posts_by_day,
};

/// How long after its publication a target's metrics are first collected.
const FIRST_COLLECTION: TimeDelta = TimeDelta::hours(1);
/// How long after `published_at` the transaction that published a target may commit.
const COMMIT_LAG: TimeDelta = TimeDelta::minutes(10);
/// When an account is due again if the job that was enqueued for it is lost.
const NEXT_CHECK: TimeDelta = TimeDelta::hours(2);

/// Adds a row for each newly published target, at most `limit`. Returns how many. `early` is the platform whose metrics
/// are due immediately.
pub async fn add_published(tx: &mut Tx, early: Option<Platform>, limit: i64) -> Result<usize> {
    const LOCK: &str = "UPDATE analytics_progress SET seen_until = seen_until WHERE id = 1 RETURNING seen_until";
    // Postgres does not know that few targets are new, and would join the whole tables, so each new target is looked up
    // by its key. On SQLite, times are text, and whole seconds must have no fraction, so that they sort correctly.
    let add = tx.for_engine(
        "
        INSERT INTO target_analytics (target_id, post_id, brand_id, account_id, published_at, next_at)
        SELECT t.id, t.post_id, p.brand_id, t.account_id, t.published_at,
            t.published_at + make_interval(secs => CASE WHEN t.platform = $4 THEN 0::double precision ELSE $3 END)
        FROM (
            SELECT id, post_id, account_id, published_at, platform
            FROM post_targets
            WHERE published_at >= $1
                AND (SELECT a.target_id FROM target_analytics a WHERE a.target_id = post_targets.id) IS NULL
            ORDER BY published_at
            LIMIT $2
        ) t
        CROSS JOIN LATERAL (SELECT brand_id FROM posts WHERE id = t.post_id OFFSET 0) p
        ON CONFLICT DO NOTHING
        RETURNING account_id, published_at, next_at",
        "
        INSERT INTO target_analytics (target_id, post_id, brand_id, account_id, published_at, next_at)
        SELECT t.id, p.id, p.brand_id, t.account_id, t.published_at,
            replace(
                strftime(
                    '%Y-%m-%dT%H:%M:%f+00:00',
                    t.published_at,
                    '+' || CASE WHEN t.platform = $4 THEN 0 ELSE $3 END || ' seconds'
                ),
                '.000',
                ''
            )
        FROM post_targets t
        JOIN posts p ON p.id = t.post_id
        WHERE t.published_at >= $1
            AND NOT EXISTS (SELECT 1 FROM target_analytics a WHERE a.target_id = t.id)
        ORDER BY t.published_at
        LIMIT $2
        ON CONFLICT DO NOTHING
        RETURNING account_id, published_at, next_at",
    );
    let seen: DateTime<Utc> = run!(tx, c => sqlx::query_scalar(LOCK).fetch_one(c))?;
    let seconds = FIRST_COLLECTION.num_seconds();
    let added: Vec<(i64, DateTime<Utc>, DateTime<Utc>)> = run!(tx, c => sqlx::query_as(add).bind(seen - COMMIT_LAG)
        .bind(limit).bind(seconds as f64).bind(early).fetch_all(c))?;
    let is_all = (added.len() as u64) < limit.unsigned_abs();
    let until = if is_all { Some(tx.now) } else { added.iter().map(|(_, at, _)| *at).max() };
    if let Some(until) = until {
        execute!(tx, "UPDATE analytics_progress SET seen_until = $1 WHERE id = 1", until)?;
    }
    // An account is due when the first of its posts is due.
    let mut accounts: Vec<(i64, DateTime<Utc>)> = added.iter().map(|(id, _, at)| (*id, *at)).collect();
    accounts.sort_unstable();
    accounts.dedup_by_key(|(id, _)| *id);
    for (account, at) in accounts {
        const DUE: &str = "UPDATE social_accounts SET metrics_at = $2 WHERE id = $1 AND metrics_at > $2";
        execute!(tx, DUE, account, at)?;
    }
    Ok(added.len())
}

/// Enqueues a job for each active account of these platforms that is due, at most `limit`, the longest overdue first.
/// Returns how many accounts were due, of any platform.
pub async fn enqueue_due(tx: &mut Tx, platforms: &[Platform], limit: i64) -> Result<usize> {
    // With one condition for both, the whole index would be scanned. `NULLS FIRST` is its order.
    let sql = locking_sql!(
        tx,
        "
        WITH never AS MATERIALIZED (
            SELECT id
            FROM social_accounts
            WHERE metrics_at IS NULL
            ORDER BY metrics_at NULLS FIRST
            LIMIT (SELECT $2)
            {LOCK}
        ),
        due AS MATERIALIZED (
            SELECT id
            FROM social_accounts
            WHERE metrics_at <= $1
            ORDER BY metrics_at NULLS FIRST
            LIMIT (SELECT $2)
            {LOCK}
        ),
        chosen AS MATERIALIZED (
            SELECT id FROM never
            UNION ALL
            SELECT id FROM due
            LIMIT (SELECT $2)
        )
        UPDATE social_accounts
        SET metrics_at = $3
        WHERE id IN (SELECT id FROM chosen WHERE id = id + 0)
        RETURNING id, workspace_id, platform, status = 'active'",
        "FOR UPDATE SKIP LOCKED"
    );
    let (now, next) = (tx.now, tx.now + NEXT_CHECK);
    let due: Vec<(i64, i64, Platform, bool)> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    for (id, workspace, _, _) in due.iter().filter(|(.., platform, active)| *active && platforms.contains(platform)) {
        let job = NewJob::new(JobKind::CollectAnalytics, *id, now).lane(Lane::Account(*id)).workspace(*workspace);
        jobs::enqueue(tx, &job).await?;
    }
    Ok(due.len())
}

/// Returns the earliest time at which an active account's metrics are due, by platform.
pub async fn earliest_due(conn: &mut Conn) -> Result<Vec<(Platform, DateTime<Utc>)>> {
    const SQL: &str = "
        SELECT platform, min(metrics_at)
        FROM social_accounts
        WHERE status = 'active'
            AND metrics_at IS NOT NULL
        GROUP BY platform";
    Ok(run!(conn, c => sqlx::query_as(SQL).fetch_all(c))?)
}

/// A published target whose metrics are due.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct DueTarget {
    pub target_id: i64,
    pub external_id: Option<String>,
    /// The marker of the publish call if there is no id, otherwise `None`.
    pub marker: Option<Json<Map<String, Value>>>,
    pub published_at: DateTime<Utc>,
}

/// Returns an account's targets whose metrics are due, the longest overdue first.
pub async fn due_targets(conn: &mut Conn, account_id: i64, now: DateTime<Utc>, limit: i64) -> Result<Vec<DueTarget>> {
    const SQL: &str = "
        SELECT a.target_id, t.external_id, CASE WHEN t.external_id IS NULL THEN t.marker END AS marker, a.published_at
        FROM target_analytics a
        JOIN post_targets t ON t.id = a.target_id
        WHERE a.account_id = $1
            AND a.next_at <= $2
        ORDER BY a.next_at
        LIMIT $3";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(account_id).bind(now).bind(limit).fetch_all(c))?)
}

/// Returns when an account's own metrics were last collected.
pub async fn last_of_account(conn: &mut Conn, account_id: i64) -> Result<Option<DateTime<Utc>>> {
    const SQL: &str = "SELECT max(at) FROM account_metrics WHERE account_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).fetch_one(c))?)
}

/// Returns the time zone of the account's first brand.
pub async fn zone_of_account(conn: &mut Conn, account_id: i64) -> Result<Option<String>> {
    const SQL: &str = "
        SELECT b.timezone
        FROM brand_accounts m
        JOIN brands b ON b.id = m.brand_id
        WHERE m.account_id = $1
        ORDER BY b.id
        LIMIT 1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).fetch_optional(c))?)
}

/// Returns the plan of the account's workspace.
pub async fn plan_of_account(conn: &mut Conn, account_id: i64) -> Result<Option<String>> {
    const SQL: &str = "
        SELECT w.plan
        FROM social_accounts a
        JOIN workspaces w ON w.id = a.workspace_id
        WHERE a.id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(account_id).fetch_optional(c))?)
}

/// How long a metric that the platform rejected is not requested.
const UNAVAILABLE_FOR: TimeDelta = TimeDelta::hours(24);

/// Returns the metrics that are not requested for an account, because its platform rejected them.
pub async fn set_aside(conn: &mut Conn, account_id: i64, now: DateTime<Utc>) -> Result<BTreeSet<String>> {
    Ok(unavailable_metrics_of(conn, &[account_id], now).await?.into_iter().map(|(_, name)| name).collect())
}

/// Does the same as [`set_aside`] for several accounts. Returns the accounts' ids with the metrics.
pub async fn unavailable_metrics_of(
    conn: &mut Conn,
    account_ids: &[i64],
    now: DateTime<Utc>,
) -> Result<Vec<(i64, String)>> {
    let sql = list_sql!(
        conn,
        "SELECT account_id, name FROM metrics_set_aside WHERE until > $2 AND account_id",
        "ORDER BY account_id, name"
    );
    let ids = id_list(account_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).bind(now).fetch_all(c))?)
}

/// Records metrics that the platform rejected for an account, and deletes expired records.
pub async fn record_unavailable_metrics(tx: &mut Tx, account_id: i64, names: &[String]) -> Result<()> {
    const DELETE_EXPIRED: &str = "DELETE FROM metrics_set_aside WHERE account_id = $1 AND until <= $2";
    const SQL: &str = "
        INSERT INTO metrics_set_aside (account_id, name, until)
        SELECT id, $2, $3
        FROM social_accounts
        WHERE id = $1
        ON CONFLICT (account_id, name) DO UPDATE SET until = excluded.until";
    if names.is_empty() {
        return Ok(());
    }
    let now = tx.now;
    execute!(tx, DELETE_EXPIRED, account_id, now)?;
    for name in names {
        execute!(tx, SQL, account_id, name, now + UNAVAILABLE_FOR)?;
    }
    Ok(())
}

/// Stores the id and the URL that a platform assigned to a post after it was published.
pub async fn record_id(tx: &mut Tx, target_id: i64, external_id: &str, url: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE post_targets
        SET external_id = $2, url = $3, updated_at = $4
        WHERE id = $1
            AND status = 'published'
            AND external_id IS NULL";
    let now = tx.now;
    execute!(tx, SQL, target_id, external_id, url, now)?;
    Ok(())
}

/// The collected metrics of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectedMetrics {
    pub target_id: i64,
    /// `None` if the platform no longer has the post.
    pub metrics: Option<PostMetrics>,
    pub next_at: Option<DateTime<Utc>>,
}

/// Stores the collected metrics of targets, in at most three statements. A metric that the platform stops returning (X
/// returns clicks for a month) keeps its last value.
pub async fn record_posts(tx: &mut Tx, collected: &[CollectedMetrics]) -> Result<()> {
    let deleted: Vec<i64> = collected.iter().filter(|one| one.metrics.is_none()).map(|one| one.target_id).collect();
    if !deleted.is_empty() {
        mark_deleted(tx, &deleted).await?;
    }
    let row = |one: &CollectedMetrics| {
        let m = one.metrics?;
        let next_at = one.next_at.map(time_text);
        Some(json!([one.target_id, m.impressions, m.reach, m.likes, m.comments, m.shares, m.clicks, next_at]))
    };
    let seen: Vec<Value> = collected.iter().filter_map(row).collect();
    if !seen.is_empty() {
        let rows = Value::from(seen).to_string();
        update_newest(tx, &rows).await?;
        add_snapshots(tx, &rows).await?;
    }
    Ok(())
}

/// Marks targets as deleted on their platform. Their metrics are not collected any more.
async fn mark_deleted(tx: &mut Tx, target_ids: &[i64]) -> Result<()> {
    let sql = list_sql!(tx, "UPDATE target_analytics SET is_gone = TRUE, next_at = NULL WHERE target_id", "");
    execute!(tx, sql, id_list(target_ids))?;
    Ok(())
}

/// Stores the newest metrics of targets. `rows` is the JSON from [`record_posts`].
async fn update_newest(tx: &mut Tx, rows: &str) -> Result<()> {
    let newest = tx.for_engine(
        "
        UPDATE target_analytics a
        SET impressions = coalesce((value ->> 1)::bigint, impressions), reach = coalesce((value ->> 2)::bigint, reach),
            likes = coalesce((value ->> 3)::bigint, likes), comments = coalesce((value ->> 4)::bigint, comments),
            shares = coalesce((value ->> 5)::bigint, shares), clicks = coalesce((value ->> 6)::bigint, clicks),
            next_at = (value ->> 7)::timestamptz, is_gone = FALSE
        FROM json_array_elements($1::json)
        WHERE a.target_id = (value ->> 0)::bigint",
        "
        UPDATE target_analytics
        SET impressions = coalesce(value ->> 1, impressions), reach = coalesce(value ->> 2, reach),
            likes = coalesce(value ->> 3, likes), comments = coalesce(value ->> 4, comments),
            shares = coalesce(value ->> 5, shares), clicks = coalesce(value ->> 6, clicks),
            next_at = value ->> 7, is_gone = FALSE
        FROM json_each($1)
        WHERE target_id = value ->> 0",
    );
    execute!(tx, newest, rows)?;
    Ok(())
}

/// Adds a point to the history of each target that still exists. `rows` is the JSON from [`record_posts`].
async fn add_snapshots(tx: &mut Tx, rows: &str) -> Result<()> {
    let now = tx.now;
    let snapshot = tx.for_engine(
        "
        INSERT INTO target_metrics (target_id, at, impressions, reach, likes, comments, shares, clicks)
        SELECT a.target_id, $2, (value ->> 1)::bigint, (value ->> 2)::bigint, (value ->> 3)::bigint,
            (value ->> 4)::bigint, (value ->> 5)::bigint, (value ->> 6)::bigint
        FROM json_array_elements($1::json)
        JOIN target_analytics a ON a.target_id = (value ->> 0)::bigint
        ON CONFLICT DO NOTHING",
        "
        INSERT INTO target_metrics (target_id, at, impressions, reach, likes, comments, shares, clicks)
        SELECT a.target_id, $2, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5, value ->> 6
        FROM json_each($1)
        JOIN target_analytics a ON a.target_id = value ->> 0
        WHERE TRUE
        ON CONFLICT DO NOTHING",
    );
    execute!(tx, snapshot, rows, now)?;
    Ok(())
}

/// Stores an account's metrics.
pub async fn record_account(tx: &mut Tx, account_id: i64, metrics: &AccountMetrics) -> Result<()> {
    const SQL: &str = "
        INSERT INTO account_metrics (account_id, at, followers, following, posts)
        SELECT id, $2, $3, $4, $5
        FROM social_accounts
        WHERE id = $1
        ON CONFLICT DO NOTHING";
    let now = tx.now;
    execute!(tx, SQL, account_id, now, metrics.followers, metrics.following, metrics.posts)?;
    Ok(())
}

/// Sets when an account is due again: at `latest`, or earlier if the metrics of one of its posts are due before that,
/// but not before `earliest`.
pub async fn set_next(
    tx: &mut Tx,
    account_id: i64,
    earliest: DateTime<Utc>,
    latest: DateTime<Utc>,
) -> Result<DateTime<Utc>> {
    // SQLite uses the partial index only if the statement repeats its condition, `next_at IS NOT NULL`.
    const NEXT: &str = "SELECT min(next_at) FROM target_analytics WHERE account_id = $1 AND next_at IS NOT NULL";
    let next: Option<DateTime<Utc>> = run!(tx, c => sqlx::query_scalar(NEXT).bind(account_id).fetch_one(c))?;
    let next = next.map_or(latest, |next| next.min(latest)).max(earliest);
    execute!(tx, "UPDATE social_accounts SET metrics_at = $2 WHERE id = $1", account_id, next)?;
    Ok(next)
}
