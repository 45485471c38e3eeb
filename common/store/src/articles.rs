//! Articles of feeds. The caller has looked up the feed by its brand, and locks the feed's row to write.

use chrono::{DateTime, Utc};
use crier_domain::feed::{Article, FoundArticle, KnownArticle, MAX_ARTICLES};
use serde_json::json;

use super::db::{execute, run, time_text};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Result, Tx};

const COLUMNS: &str = "
    id, feed_id, guid, title, url, summary, author, image_url, published_at, created_at, updated_at";

/// Lists articles, newest first.
pub async fn list(conn: &mut Conn, feed_id: i64) -> Result<Vec<Article>> {
    let sql = sql!(
        "
        SELECT {COLUMNS}
        FROM articles
        WHERE feed_id = $1
        ORDER BY published_at DESC, id DESC
        LIMIT $2",
        COLUMNS
    );
    let limit = i64::try_from(MAX_ARTICLES).unwrap_or(i64::MAX);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(feed_id).bind(limit).fetch_all(c))?)
}

pub async fn find(conn: &mut Conn, feed_id: i64, article_id: i64) -> Result<Option<Article>> {
    let sql = sql!("SELECT {COLUMNS} FROM articles WHERE feed_id = $1 AND id = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(feed_id).bind(article_id).fetch_optional(c))?)
}

/// Finds an article by its guid.
pub async fn find_by_guid(conn: &mut Conn, feed_id: i64, guid: &str) -> Result<Option<Article>> {
    let sql = sql!("SELECT {COLUMNS} FROM articles WHERE feed_id = $1 AND guid = $2", COLUMNS);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(feed_id).bind(guid).fetch_optional(c))?)
}

/// Returns what is compared with a fetched feed, of all stored articles.
pub async fn known(conn: &mut Conn, feed_id: i64) -> Result<Vec<KnownArticle>> {
    const SQL: &str = "SELECT id, guid, url, published_at, digest FROM articles WHERE feed_id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(feed_id).fetch_all(c))?)
}

/// An article to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArticleRow {
    pub found: FoundArticle,
    pub published_at: DateTime<Utc>,
    pub digest: String,
}

/// The changes that a fetch makes to a feed's articles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// In this order, so that the newest has the highest id.
    pub insert: Vec<ArticleRow>,
    pub update: Vec<(i64, ArticleRow)>,
    pub delete: Vec<i64>,
}

impl Changes {
    pub fn is_empty(&self) -> bool {
        self.insert.is_empty() && self.update.is_empty() && self.delete.is_empty()
    }
}

fn to_json(id: Option<i64>, row: &ArticleRow) -> serde_json::Value {
    let f = &row.found;
    json!({
        "id": id, "guid": f.guid, "title": f.title, "url": f.url, "summary": f.summary, "author": f.author,
        "image_url": f.image_url, "published_at": time_text(row.published_at), "digest": row.digest
    })
}

/// Writes the changes, in one statement for each kind of change.
pub async fn write(tx: &mut Tx, feed_id: i64, changes: &Changes) -> Result<()> {
    let now = tx.now;
    if !changes.delete.is_empty() {
        let sql = list_sql!(tx, "DELETE FROM articles WHERE id", "AND feed_id = $2");
        execute!(tx, sql, id_list(&changes.delete), feed_id)?;
    }
    if !changes.update.is_empty() {
        let sql = tx.for_engine(
            "
                UPDATE articles
                SET title = v ->> 'title', url = v ->> 'url', summary = v ->> 'summary',
                    author = v ->> 'author', image_url = v ->> 'image_url',
                    published_at = (v ->> 'published_at')::timestamptz, digest = v ->> 'digest',
                    updated_at = $3
                FROM (SELECT value AS v FROM json_array_elements($1::json)) found
                WHERE articles.id = (v ->> 'id')::bigint AND articles.feed_id = $2",
            "
                UPDATE articles
                SET title = v ->> 'title', url = v ->> 'url', summary = v ->> 'summary',
                    author = v ->> 'author', image_url = v ->> 'image_url',
                    published_at = v ->> 'published_at', digest = v ->> 'digest', updated_at = $3
                FROM (SELECT value AS v FROM json_each($1)) found
                WHERE articles.id = v ->> 'id' AND articles.feed_id = $2",
        );
        let rows: Vec<_> = changes.update.iter().map(|(id, row)| to_json(Some(*id), row)).collect();
        execute!(tx, sql, json!(rows).to_string(), feed_id, now)?;
    }
    if !changes.insert.is_empty() {
        let sql = tx.for_engine(
            "
                INSERT INTO articles (
                    feed_id, guid, title, url, summary, author, image_url, published_at, digest, created_at,
                    updated_at
                )
                SELECT $2, v ->> 'guid', v ->> 'title', v ->> 'url', v ->> 'summary', v ->> 'author',
                    v ->> 'image_url', (v ->> 'published_at')::timestamptz, v ->> 'digest', $3, $3
                FROM json_array_elements($1::json) WITH ORDINALITY AS found (v, n)
                ORDER BY n",
            "
                INSERT INTO articles (
                    feed_id, guid, title, url, summary, author, image_url, published_at, digest, created_at,
                    updated_at
                )
                SELECT $2, value ->> 'guid', value ->> 'title', value ->> 'url', value ->> 'summary',
                    value ->> 'author', value ->> 'image_url', value ->> 'published_at', value ->> 'digest',
                    $3, $3
                FROM json_each($1)
                ORDER BY key",
        );
        let rows: Vec<_> = changes.insert.iter().map(|row| to_json(None, row)).collect();
        execute!(tx, sql, json!(rows).to_string(), feed_id, now)?;
    }
    Ok(())
}
