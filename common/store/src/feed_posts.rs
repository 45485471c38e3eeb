//! The articles of feeds that publish, and their outcomes. The caller has locked the row of the feed to write.

use chrono::{DateTime, Utc};
use crier_domain::auto_post::{ArticleKeys, FeedPostStatus, MAX_ARTICLE_AGE, MAX_REMEMBERED};
use crier_domain::feed::{Article, Feed};
use serde_json::json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Result, Tx, feeds};

/// The status of an article that the feed listed before it began to publish.
const KNOWN: &str = "known";
/// The maximum length of a stored reason, in characters.
const MAX_REASON: usize = 500;

/// An article to remember.
#[derive(Clone, Debug)]
pub struct NewFeedPost<'a> {
    /// `None`: the feed listed it before it began to publish.
    pub status: Option<FeedPostStatus>,
    pub guid: &'a str,
    pub keys: ArticleKeys,
    pub title: Option<&'a str>,
    pub url: Option<&'a str>,
    /// Why it is skipped.
    pub reason: Option<String>,
}

impl<'a> NewFeedPost<'a> {
    /// Returns an article that the feed listed before it began to publish.
    pub fn known(article: &'a Article) -> Self {
        Self {
            status: None,
            guid: &article.guid,
            keys: ArticleKeys::of(article.url.as_deref(), article.title.as_deref()),
            title: None,
            url: None,
            reason: None,
        }
    }
}

/// An article that was new, and its outcome.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct FeedPost {
    pub id: i64,
    pub feed_id: i64,
    pub status: FeedPostStatus,
    /// The post that was created, unless it was deleted.
    pub post_id: Option<i64>,
    pub guid: String,
    pub title: Option<String>,
    pub url: Option<String>,
    pub reason: Option<String>,
    pub created_at: DateTime<Utc>,
}

/// Selects the rows of articles. Ignores a deleted post, whose row may remain for a while.
const ROWS: &str = "
    SELECT f.id, f.feed_id, f.status, p.id AS post_id, f.guid, f.title, f.url, f.reason, f.created_at
    FROM feed_posts f
    LEFT JOIN posts p ON p.id = f.post_id AND p.deleted_at IS NULL";

/// Stores articles that are not known by their guid, their link or their page. Returns the ids and the guids of those
/// that were stored, in no order.
pub async fn remember(tx: &mut Tx, feed_id: i64, articles: &[NewFeedPost<'_>]) -> Result<Vec<(i64, String)>> {
    if articles.is_empty() {
        return Ok(Vec::new());
    }
    let sql = tx.for_engine(
        "
            INSERT INTO feed_posts (feed_id, status, guid, link_key, page_key, title, url, reason, created_at)
            SELECT $2, v ->> 'status', v ->> 'guid', v ->> 'link_key', v ->> 'page_key', v ->> 'title', v ->> 'url',
                v ->> 'reason', $3
            FROM json_array_elements($1::json) WITH ORDINALITY AS found (v, n)
            ORDER BY n
            ON CONFLICT DO NOTHING
            RETURNING id, guid",
        "
            INSERT INTO feed_posts (feed_id, status, guid, link_key, page_key, title, url, reason, created_at)
            SELECT $2, value ->> 'status', value ->> 'guid', value ->> 'link_key', value ->> 'page_key',
                value ->> 'title', value ->> 'url', value ->> 'reason', $3
            FROM json_each($1)
            WHERE TRUE
            ORDER BY key
            ON CONFLICT DO NOTHING
            RETURNING id, guid",
    );
    let to_json = |article: &NewFeedPost<'_>| {
        json!({
            "status": article.status.map_or(KNOWN, FeedPostStatus::as_str), "guid": article.guid, "link_key": article.keys.link,
            "page_key": article.keys.page, "title": article.title, "url": article.url, "reason": article.reason,
        })
    };
    let rows: Vec<_> = articles.iter().map(to_json).collect();
    let now = tx.now;
    let stored = run!(tx, c => sqlx::query_as(sql).bind(json!(rows).to_string()).bind(feed_id).bind(now).fetch_all(c))?;
    Ok(stored)
}

/// Forgets the oldest articles of a feed, if there are more than [`MAX_REMEMBERED`]. Keeps those that were posted in
/// the last days: otherwise, a feed that lists thousands of articles could exceed its daily maximum, and post an article
/// again.
pub async fn forget_oldest(tx: &mut Tx, feed_id: i64) -> Result<()> {
    const SQL: &str = "
        DELETE FROM feed_posts
        WHERE feed_id = $1
            AND id <= (
                SELECT id
                FROM feed_posts
                WHERE feed_id = $1
                ORDER BY id DESC
                LIMIT 1 OFFSET $2
            )
            AND status <> 'waiting'
            AND (status <> 'posted' OR created_at < $3)";
    let kept_since = tx.now - MAX_ARTICLE_AGE;
    execute!(tx, SQL, feed_id, MAX_REMEMBERED, kept_since)?;
    Ok(())
}

/// Returns how many articles that appeared since a time are posted, or wait for it.
pub async fn count_since(conn: &mut Conn, feed_id: i64, since: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "
        SELECT count(*)
        FROM feed_posts
        WHERE feed_id = $1
            AND status IN ('waiting', 'posted')
            AND created_at >= $2";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(feed_id).bind(since).fetch_one(c))?)
}

/// Returns whether an article that appeared since a time was skipped for this reason.
pub async fn has_skipped_since(conn: &mut Conn, feed_id: i64, since: DateTime<Utc>, reason: &str) -> Result<bool> {
    const SQL: &str = "
        SELECT EXISTS (
            SELECT 1
            FROM feed_posts
            WHERE feed_id = $1 AND status = 'skipped' AND created_at >= $2 AND reason = $3
        )";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(feed_id).bind(since).bind(reason).fetch_one(c))?)
}

/// Lists the articles that appeared since the feed began to publish, newest first.
pub async fn list(conn: &mut Conn, feed_id: i64, limit: i64) -> Result<Vec<FeedPost>> {
    let sql = sql!(
        "
        {ROWS}
        WHERE f.feed_id = $1
            AND f.status <> 'known'
        ORDER BY f.id DESC
        LIMIT $2",
        ROWS
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(feed_id).bind(limit).fetch_all(c))?)
}

/// Finds an article by its id only, for the worker and the operator.
pub async fn find(conn: &mut Conn, id: i64) -> Result<Option<FeedPost>> {
    let sql = sql!("{ROWS} WHERE f.id = $1", ROWS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(id).fetch_optional(c))?)
}

/// Finds an article by its id only, and locks the row of its feed.
pub async fn lock(tx: &mut Tx, id: i64) -> Result<Option<(Feed, FeedPost)>> {
    let Some(found) = find(tx, id).await? else { return Ok(None) };
    let Some(feed) = feeds::lock(tx, found.feed_id).await? else { return Ok(None) };
    // Another transaction may have changed it before the lock.
    Ok(find(tx, id).await?.map(|article| (feed, article)))
}

/// Records the post of a waiting article.
pub async fn mark_posted(tx: &mut Tx, id: i64, post_id: i64) -> Result<()> {
    execute!(tx, "UPDATE feed_posts SET status = 'posted', post_id = $2 WHERE id = $1", id, post_id)?;
    Ok(())
}

/// Records why waiting articles are not posted.
pub async fn skip(tx: &mut Tx, ids: &[i64], reason: &str) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = list_sql!(tx, "UPDATE feed_posts SET status = 'skipped', reason = $2 WHERE id", "AND status = 'waiting'");
    let reason: String = reason.chars().take(MAX_REASON).collect();
    execute!(tx, sql, id_list(ids), reason)?;
    Ok(())
}

/// Records why all waiting articles of a feed are not posted.
pub async fn skip_waiting(tx: &mut Tx, feed_id: i64, reason: &str) -> Result<()> {
    const SQL: &str = "UPDATE feed_posts SET status = 'skipped', reason = $2 WHERE feed_id = $1 AND status = 'waiting'";
    execute!(tx, SQL, feed_id, reason)?;
    Ok(())
}

/// Makes a skipped article wait again. Returns `false` if it is not skipped.
pub async fn retry(tx: &mut Tx, id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE feed_posts
        SET status = 'waiting', reason = NULL
        WHERE id = $1 AND status IN ('skipped', 'waiting')";
    Ok(execute!(tx, SQL, id)? > 0)
}
