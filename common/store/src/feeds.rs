//! Feeds. Always lock a feed's row before changing it or writing its articles.

use chrono::{DateTime, Utc};
use crier_domain::auto_post::{AutoPost, TURNED_OFF};
use crier_domain::feed::{FETCH_INTERVAL, Feed, FeedStatus, FeedType, NOTICED_FAILURE, host_of};
use crier_domain::job::{JobKind, NewJob};
use crier_domain::notice::NoticeKind;
use crier_domain::plan::{Feature, Plans};
use sqlx::types::Json;

use super::db::{execute, run};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx, feed_posts, jobs, notices};

const COLUMNS: &str = "
    id, brand_id, name, named, url, type, status, version, found_url, validator_url, etag, last_modified,
    failures, last_error, last_fetched_at, next_fetch_at, articles_count, created_at, updated_at, auto_post_user_id,
    auto_post_since, auto_post_problem, auto_post";

/// A feed as a client sends it.
#[derive(Debug)]
pub struct NewFeed<'a> {
    pub name: &'a str,
    /// Whether the client set the name, so that the feed's own title does not replace it.
    pub named: bool,
    pub url: &'a str,
    pub kind: FeedType,
}

/// Returns the job that fetches a feed now. Each host is a lane.
fn fetch_now(tx: &Tx, feed_id: i64, workspace_id: i64, address: &str, trace: Option<&str>) -> NewJob {
    NewJob::new(JobKind::FetchFeed, feed_id, tx.now)
        .lane_of_host(host_of(address))
        .workspace(workspace_id)
        .trace(trace.map(str::to_owned))
}

async fn workspace_of(tx: &mut Tx, feed_id: i64) -> Result<i64> {
    const SQL: &str = "
        SELECT b.workspace_id
        FROM feeds f
        JOIN brands b ON b.id = f.brand_id
        WHERE f.id = $1";
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(feed_id).fetch_one(c))?)
}

/// Stores a feed with the job that fetches it.
pub async fn create(tx: &mut Tx, brand_id: i64, new: &NewFeed<'_>, trace: Option<&str>) -> Result<Feed> {
    const SQL: &str = "
        INSERT INTO feeds (brand_id, name, named, url, type, status, next_fetch_at, created_at, updated_at)
        VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $7)
        RETURNING id";
    let (now, next) = (tx.now, tx.now + FETCH_INTERVAL);
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(new.name).bind(new.named).bind(new.url)
        .bind(new.kind).bind(next).bind(now).fetch_one(c))?;
    let workspace = workspace_of(tx, id).await?;
    let job = fetch_now(tx, id, workspace, new.url, trace);
    jobs::enqueue(tx, &job).await?;
    find(tx, brand_id, id).await?.ok_or_else(|| StoreError::Decode("a feed was not stored".into()))
}

/// Lists the brand's feeds, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<Feed>> {
    let sql = sql!("SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 ORDER BY id DESC", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

/// Returns the ids, the names and the problems of the brand's feeds that fail, or whose last articles were not posted.
pub async fn with_problem(conn: &mut Conn, brand_id: i64, limit: i64) -> Result<Vec<(i64, String, String)>> {
    const SQL: &str = "
        SELECT id, name, coalesce(auto_post_problem, last_error, '')
        FROM feeds
        WHERE brand_id = $1
            AND (auto_post_problem IS NOT NULL OR status = 'failing')
        ORDER BY id DESC
        LIMIT $2";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(brand_id).bind(limit).fetch_all(c))?)
}

/// Returns how many feeds the brand has.
pub async fn count(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM feeds WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, feed_id: i64) -> Result<Option<Feed>> {
    let sql = sql!("SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 AND id = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(feed_id).fetch_optional(c))?)
}

/// Finds a feed and locks its row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, feed_id: i64) -> Result<Option<Feed>> {
    let sql =
        locking_sql!(tx, "SELECT {COLUMNS} FROM feeds WHERE brand_id = $1 AND id = $2 {LOCK}", "FOR UPDATE", COLUMNS);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(feed_id).fetch_optional(c))?)
}

/// Finds a feed by its id only, for the worker and the operator.
pub async fn find_any(conn: &mut Conn, feed_id: i64) -> Result<Option<Feed>> {
    let sql = sql!("SELECT {COLUMNS} FROM feeds WHERE id = $1", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(feed_id).fetch_optional(c))?)
}

/// Finds a feed by its id only, and locks its row.
pub async fn lock(tx: &mut Tx, feed_id: i64) -> Result<Option<Feed>> {
    let sql = locking_sql!(tx, "SELECT {COLUMNS} FROM feeds WHERE id = $1 {LOCK}", "FOR UPDATE", COLUMNS);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(feed_id).fetch_optional(c))?)
}

pub async fn rename(tx: &mut Tx, feed_id: i64, name: &str) -> Result<()> {
    const SQL: &str = "UPDATE feeds SET name = $2, named = TRUE, updated_at = $3 WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, feed_id, name, now)?;
    Ok(())
}

/// Changes a feed's URL and fetches the feed. Deletes the data from the old URL, including the articles. `name` is the
/// name until the feed's own title is known. It is ignored if a user named the feed. A feed that publishes posts none of
/// the articles that the next fetch finds.
pub async fn move_to(tx: &mut Tx, feed_id: i64, url: &str, name: &str, trace: Option<&str>) -> Result<()> {
    const SQL: &str = "
        UPDATE feeds
        SET url = $2, name = CASE WHEN named THEN name ELSE $3 END, status = 'pending',
            version = version + 1, found_url = NULL, validator_url = NULL, etag = NULL,
            last_modified = NULL, failures = 0, last_error = NULL, last_fetched_at = NULL,
            next_fetch_at = $4, articles_count = 0, updated_at = $5, auto_post_since = NULL
        WHERE id = $1";
    let (now, next) = (tx.now, tx.now + FETCH_INTERVAL);
    execute!(tx, SQL, feed_id, url, name, next, now)?;
    execute!(tx, "DELETE FROM articles WHERE feed_id = $1", feed_id)?;
    // Otherwise, an article of the new URL that has the same guid would be posted.
    feed_posts::skip_waiting(tx, feed_id, "The URL of the feed was changed before the post was created.").await?;
    // A fetch that is running finds a different version when it ends, and is repeated.
    let workspace = workspace_of(tx, feed_id).await?;
    let job = fetch_now(tx, feed_id, workspace, url, trace);
    jobs::run_now(tx, &job).await
}

/// Stores the settings by which a feed publishes in the name of a user. `None`: it does not publish. Articles that wait
/// are skipped if it no longer publishes. The caller has locked the row.
pub async fn set_auto_post(tx: &mut Tx, feed_id: i64, settings: Option<&AutoPost>, user_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE feeds
        SET auto_post = $2, auto_post_user_id = $3, auto_post_problem = NULL, auto_post_problem_at = NULL,
            updated_at = $4
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, feed_id, settings.map(Json), user_id, now)?;
    if !settings.is_some_and(|settings| settings.is_active) {
        // Otherwise, they would be posted if publishing were turned on again before their jobs run.
        feed_posts::skip_waiting(tx, feed_id, TURNED_OFF).await?;
    }
    Ok(())
}

/// Sets the time since which new articles are posted. The caller has locked the row.
pub async fn set_auto_post_since(tx: &mut Tx, feed_id: i64, since: Option<DateTime<Utc>>) -> Result<()> {
    execute!(tx, "UPDATE feeds SET auto_post_since = $2 WHERE id = $1", feed_id, since)?;
    Ok(())
}

/// Records why articles were not posted, and notifies the members. The caller has locked the row.
pub async fn set_auto_post_problem(tx: &mut Tx, feed_id: i64, problem: &str) -> Result<()> {
    match record_auto_post_problem(tx, feed_id, problem).await? {
        Some(brand_id) => notices::add(tx, NoticeKind::FeedNotPosted, brand_id, feed_id).await,
        None => Ok(()),
    }
}

/// Records why articles were not posted, without notifying the members again. The caller has locked the row. Returns the
/// brand; `None` if the feed does not exist.
pub async fn record_auto_post_problem(tx: &mut Tx, feed_id: i64, problem: &str) -> Result<Option<i64>> {
    const SQL: &str = "
        UPDATE feeds
        SET auto_post_problem = $2, auto_post_problem_at = $3
        WHERE id = $1
        RETURNING brand_id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(feed_id).bind(problem).bind(now).fetch_optional(c))?)
}

/// Clears a problem that occurred before an article appeared, because the article was posted. The caller has locked the
/// row.
pub async fn clear_auto_post_problem(tx: &mut Tx, feed_id: i64, appeared_at: DateTime<Utc>) -> Result<()> {
    const SQL: &str = "
        UPDATE feeds
        SET auto_post_problem = NULL, auto_post_problem_at = NULL
        WHERE id = $1 AND auto_post_problem_at < $2";
    execute!(tx, SQL, feed_id, appeared_at)?;
    Ok(())
}

/// Deletes a feed with its articles. Its job finds no subject and ends.
pub async fn delete(tx: &mut Tx, brand_id: i64, feed_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM feeds WHERE brand_id = $1 AND id = $2", brand_id, feed_id)? > 0)
}

/// Enqueues fetches of due feeds, at most `limit`, the longest overdue first. Returns how many feeds were due.
/// Postpones their next fetch, so that they are not due again if a job fails; a fetch sets it when it ends. A feed that
/// has a job keeps it. Feeds of a workspace whose plan does not include feeds are not fetched.
pub async fn enqueue_due(tx: &mut Tx, limit: i64, plans: &Plans) -> Result<usize> {
    let sql = locking_sql!(
        tx,
        "
        WITH due AS MATERIALIZED (
            SELECT id
            FROM feeds
            WHERE next_fetch_at <= $1
            ORDER BY next_fetch_at
            LIMIT (SELECT $2)
            {LOCK}
        )
        UPDATE feeds
        SET next_fetch_at = $3
        WHERE id IN (SELECT id FROM due WHERE id = id + 0)
        RETURNING id, coalesce(found_url, url),
            (SELECT b.workspace_id FROM brands b WHERE b.id = feeds.brand_id),
            (
                SELECT w.plan
                FROM brands b
                JOIN workspaces w ON w.id = b.workspace_id
                WHERE b.id = feeds.brand_id
            )",
        "FOR UPDATE SKIP LOCKED"
    );
    let (now, next) = (tx.now, tx.now + FETCH_INTERVAL);
    let due: Vec<(i64, String, i64, String)> =
        run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).bind(next).fetch_all(c))?;
    for (id, address, workspace, _) in due.iter().filter(|(.., plan)| plans.include(plan, Feature::FeedReader)) {
        let job = fetch_now(tx, *id, *workspace, address, None);
        jobs::enqueue(tx, &job).await?;
    }
    Ok(due.len())
}

/// The result of a successful fetch.
#[derive(Debug, Clone, Default)]
pub struct FetchUpdate {
    /// `None` if nothing has changed.
    pub changed: Option<FeedUpdate>,
    pub next_fetch_at: DateTime<Utc>,
}

/// What the fetched document contains about the feed itself.
#[derive(Debug, Clone)]
pub struct FeedUpdate {
    /// The feed's own title.
    pub title: Option<String>,
    pub kind: FeedType,
    pub found_url: Option<String>,
    pub validator_url: Option<String>,
    pub etag: Option<String>,
    pub last_modified: Option<String>,
    pub articles_count: i64,
}

/// Records a successful fetch. The caller has locked the row.
pub async fn record_success(tx: &mut Tx, feed_id: i64, fetched: &FetchUpdate) -> Result<()> {
    const SUCCEEDED: &str = "
        UPDATE feeds
        SET status = $2, failures = 0, last_error = NULL, last_fetched_at = $3, next_fetch_at = $4,
            updated_at = $3
        WHERE id = $1";
    const CHANGED: &str = "
        UPDATE feeds
        SET name = CASE WHEN named OR $2 = '' THEN name ELSE $2 END, type = $3, found_url = $4,
            validator_url = $5, etag = $6, last_modified = $7, articles_count = $8
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SUCCEEDED, feed_id, FeedStatus::Active, now, fetched.next_fetch_at)?;
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

/// Replaces the values for conditional requests with those of a 304 response. Keeps a value that the response does not
/// have. The caller has locked the row.
pub async fn replace_conditions(
    tx: &mut Tx,
    feed_id: i64,
    etag: Option<&str>,
    last_modified: Option<&str>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE feeds
        SET etag = coalesce($2, etag), last_modified = coalesce($3, last_modified)
        WHERE id = $1";
    if etag.is_some() || last_modified.is_some() {
        execute!(tx, SQL, feed_id, etag, last_modified)?;
    }
    Ok(())
}

/// Records a failed fetch, with a reason for the feed's owner. If `is_lost`, the feed is no longer at the URL where it
/// was found, and the next fetch searches for it again. Notifies the members if the feed has failed several times. The
/// caller has locked the row.
pub async fn record_failure(
    tx: &mut Tx,
    feed_id: i64,
    reason: &str,
    is_lost: bool,
    next_fetch_at: DateTime<Utc>,
) -> Result<()> {
    const SQL: &str = "
        UPDATE feeds
        SET status = $2, failures = failures + 1, last_error = $3, last_fetched_at = $4, next_fetch_at = $5,
            found_url = CASE WHEN $6 THEN NULL ELSE found_url END,
            validator_url = CASE WHEN $6 THEN NULL ELSE validator_url END, updated_at = $4
        WHERE id = $1
        RETURNING brand_id, failures";
    let now = tx.now;
    let failed: Option<(i64, i32)> = run!(tx, c => sqlx::query_as(SQL).bind(feed_id).bind(FeedStatus::Failing)
        .bind(reason).bind(now).bind(next_fetch_at).bind(is_lost).fetch_optional(c))?;
    match failed {
        Some((brand_id, NOTICED_FAILURE)) => notices::add(tx, NoticeKind::FeedFailing, brand_id, feed_id).await,
        _ => Ok(()),
    }
}
