//! Feeds. Whoever changes one, or writes its articles, holds its row first.

use chrono::{DateTime, Utc};

use super::db::{execute, run};
use super::{Conn, Result, StoreError, Tx, jobs};
use crate::domain::feed::{EVERY, Feed, FeedStatus, FeedType, host_of};
use crate::domain::job::{Kind, NewJob};

const COLUMNS: &str = "id, brand_id, name, named, url, type, status, version, found_url, validator_url, etag, last_modified, failures, last_error, last_fetched_at, next_fetch_at, articles_count, created_at, updated_at";

/// A feed as it comes from a client.
#[derive(Debug)]
pub struct NewFeed<'a> {
    pub name: &'a str,
    /// The name is the client's, and not to be replaced by the feed's own.
    pub named: bool,
    pub url: &'a str,
    pub kind: FeedType,
}

/// The job that fetches a feed now; one host's share a lane.
fn fetch_now(tx: &Tx, feed_id: i64, workspace_id: i64, address: &str, trace: Option<&str>) -> NewJob {
    NewJob::new(Kind::FetchFeed, feed_id, tx.now)
        .lane_of_host(host_of(address))
        .workspace(workspace_id)
        .trace(trace.map(str::to_owned))
}

async fn workspace_of(tx: &mut Tx, feed_id: i64) -> Result<i64> {
    const SQL: &str = r"
        SELECT b.workspace_id
        FROM feeds f
        JOIN brands b ON b.id = f.brand_id
        WHERE f.id = $1";
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(feed_id).fetch_one(c))?)
}

/// Stores a feed with the job that fetches it.
pub async fn create(tx: &mut Tx, brand_id: i64, new: &NewFeed<'_>, trace: Option<&str>) -> Result<Feed> {
    const SQL: &str = "INSERT INTO feeds (brand_id, name, named, url, type, status, next_fetch_at, created_at, updated_at) VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $7) RETURNING id";
    let (now, next) = (tx.now, tx.now + EVERY);
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(new.name).bind(new.named).bind(new.url)
        .bind(new.kind).bind(next).bind(now).fetch_one(c))?;
    let workspace = workspace_of(tx, id).await?;
    let job = fetch_now(tx, id, workspace, new.url, trace);
    jobs::enqueue(tx, &job).await?;
    find(tx, brand_id, id).await?.ok_or_else(|| StoreError::Decode("a feed just made is gone".into()))
}

/// The brand's feeds, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<Feed>> {
    let sql = format!("SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 ORDER BY id DESC");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(brand_id).fetch_all(c))?)
}

/// How many feeds the brand has.
pub async fn count(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM feeds WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, feed_id: i64) -> Result<Option<Feed>> {
    let sql = format!("SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 AND id = $2");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(brand_id).bind(feed_id).fetch_optional(c))?)
}

/// The same, holding the row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, feed_id: i64) -> Result<Option<Feed>> {
    let lock = tx.spelt("FOR UPDATE", "");
    let sql = format!("SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 AND id = $2 {lock}");
    Ok(run!(tx, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(brand_id).bind(feed_id).fetch_optional(c))?)
}

/// For the worker and the operator, who know the feed alone.
pub async fn find_any(conn: &mut Conn, feed_id: i64) -> Result<Option<Feed>> {
    let sql = format!("SELECT {COLUMNS} FROM feeds WHERE id = $1");
    Ok(run!(conn, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(feed_id).fetch_optional(c))?)
}

/// The same, holding the row.
pub async fn lock(tx: &mut Tx, feed_id: i64) -> Result<Option<Feed>> {
    let lock = tx.spelt("FOR UPDATE", "");
    let sql = format!("SELECT {COLUMNS} FROM feeds WHERE id = $1 {lock}");
    Ok(run!(tx, c => sqlx::query_as(sqlx::AssertSqlSafe(sql)).bind(feed_id).fetch_optional(c))?)
}

pub async fn rename(tx: &mut Tx, feed_id: i64, name: &str) -> Result<()> {
    const SQL: &str = "UPDATE feeds SET name = $2, named = TRUE, updated_at = $3 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, feed_id, name, now)?;
    Ok(())
}

/// Gives a feed another URL, and fetches it from there. What was known of the old one goes, its articles too. `name`: the
/// name until the feed tells its own; it is not used where a user gave one.
pub async fn move_to(tx: &mut Tx, feed_id: i64, url: &str, name: &str, trace: Option<&str>) -> Result<()> {
    const SQL: &str = "UPDATE feeds SET url = $2, name = CASE WHEN named THEN name ELSE $3 END, status = 'pending', version = version + 1, found_url = NULL, validator_url = NULL, etag = NULL, last_modified = NULL, failures = 0, last_error = NULL, last_fetched_at = NULL, next_fetch_at = $4, articles_count = 0, updated_at = $5 WHERE id = $1";
    let (now, next) = (tx.now, tx.now + EVERY);
    execute!(tx, SQL, feed_id, url, name, next, now)?;
    execute!(tx, "DELETE FROM articles WHERE feed_id = $1", feed_id)?;
    // A fetch that is under way finds another version at its end, and is made again.
    let workspace = workspace_of(tx, feed_id).await?;
    let job = fetch_now(tx, feed_id, workspace, url, trace);
    jobs::hasten(tx, &job).await
}

/// Deletes a feed with its articles; its job finds no subject and ends.
pub async fn delete(tx: &mut Tx, brand_id: i64, feed_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM feeds WHERE brand_id = $1 AND id = $2", brand_id, feed_id)? > 0)
}

/// Enqueues a fetch for feeds that are due, the longest due first, at most `limit`; gives how many. They are not due again
/// for a while, whatever becomes of the jobs: a fetch that ends says when the next is. One that has a job already keeps it.
pub async fn enqueue_due(tx: &mut Tx, limit: i64) -> Result<usize> {
    let sql = tx.spelt(
        "WITH found AS MATERIALIZED (SELECT id FROM feeds WHERE next_fetch_at <= $1 ORDER BY next_fetch_at LIMIT (SELECT $2) FOR UPDATE SKIP LOCKED) UPDATE feeds SET next_fetch_at = $3 WHERE id IN (SELECT id FROM found WHERE id = id + 0) RETURNING id, coalesce(found_url, url), (SELECT b.workspace_id FROM brands b WHERE b.id = feeds.brand_id)",
        "UPDATE feeds SET next_fetch_at = $3 WHERE id IN (SELECT id FROM feeds WHERE next_fetch_at <= $1 ORDER BY next_fetch_at LIMIT $2) RETURNING id, coalesce(found_url, url), (SELECT b.workspace_id FROM brands b WHERE b.id = feeds.brand_id)",
    );
    let (now, next) = (tx.now, tx.now + EVERY);
    let due: Vec<(i64, String, i64)> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    for (id, address, workspace) in &due {
        let job = fetch_now(tx, *id, *workspace, address, None);
        jobs::enqueue(tx, &job).await?;
    }
    Ok(due.len())
}

/// What a good fetch tells of the feed itself.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// `None`: nothing is new.
    pub changed: Option<Changed>,
    pub next_fetch_at: DateTime<Utc>,
}

/// What the feed's document says of it.
#[derive(Debug, Clone)]
pub struct Changed {
    /// Its own name for itself.
    pub title: Option<String>,
    pub kind: FeedType,
    pub found_url: Option<String>,
    pub validator_url: Option<String>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub articles_count: i64,
}

/// A good fetch. Whoever calls this holds the row.
pub async fn fetched(tx: &mut Tx, feed_id: i64, fetched: &Fetched) -> Result<()> {
    const GOOD: &str = "UPDATE feeds SET status = $2, failures = 0, last_error = NULL, last_fetched_at = $3, next_fetch_at = $4, updated_at = $3 WHERE id = $1";
    const CHANGED: &str = "UPDATE feeds SET name = CASE WHEN named OR $2 = '' THEN name ELSE $2 END, type = $3, found_url = $4, validator_url = $5, etag = $6, last_modified = $7, articles_count = $8 WHERE id = $1";
    let now = tx.now;
    execute!(tx, GOOD, feed_id, FeedStatus::Active, now, fetched.next_fetch_at)?;
    if let Some(c) = &fetched.changed {
        execute!(
            tx,
            CHANGED,
            feed_id,
            c.title.as_deref().unwrap_or_default(),
            c.kind,
            &c.found_url,
            &c.validator_url,
            &c.etag,
            &c.last_modified,
            c.articles_count
        )?;
    }
    Ok(())
}

/// A failed fetch: why, in words for the feed's owner. `lost`: where the feed was found it is no more, so that it is looked
/// for again. Whoever calls this holds the row.
pub async fn failed(tx: &mut Tx, feed_id: i64, why: &str, lost: bool, next_fetch_at: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "UPDATE feeds SET status = $2, failures = failures + 1, last_error = $3, last_fetched_at = $4, next_fetch_at = $5, found_url = CASE WHEN $6 THEN NULL ELSE found_url END, validator_url = CASE WHEN $6 THEN NULL ELSE validator_url END, updated_at = $4 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, feed_id, FeedStatus::Failing, why, now, next_fetch_at, lost)?;
    Ok(())
}
