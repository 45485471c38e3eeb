//! Link-in-bio pages and their links.
//!
//! A slug is unique on the installation. Every change of a page increments its version; views and clicks do not. The
//! alt text of its image changes independently, so it is part of [`Version`].

use crier_domain::bio_page::{BioLink, BioPage, LinkIcon, Theme};
use crier_domain::media::Asset;
use serde_json::json;

use super::db::{execute, run};
use super::jobs::id_list;
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx};

const PAGE: &str = "id, brand_id, slug, title, bio, theme, avatar_id, views, version, created_at, updated_at";
const LINK: &str = "id, page_id, position, title, url, icon, is_primary, clicks";

/// A page as a client sends it.
#[derive(Clone, Debug)]
pub struct NewPage<'a> {
    pub title: &'a str,
    pub bio: Option<&'a str>,
    pub theme: Theme,
    /// One of the brand's images. Its row is locked ([`super::post_media::lock_media`]).
    pub avatar_id: Option<i64>,
}

/// The desired state of a link. If `id` is that of one of the page's links, that link is updated.
#[derive(Clone, Debug)]
pub struct LinkEntry {
    pub id: Option<i64>,
    pub title: String,
    pub url: String,
    pub icon: Option<LinkIcon>,
    pub is_primary: bool,
}

/// Creates a page. Returns `None` if the slug is taken. Of two concurrent requests for one slug, only one succeeds.
pub async fn create(tx: &mut Tx, brand_id: i64, slug: &str, page: &NewPage<'_>) -> Result<Option<BioPage>> {
    let sql = sql!(
        "
            INSERT INTO bio_pages (brand_id, slug, title, bio, theme, avatar_id, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $7)
            ON CONFLICT (slug) DO NOTHING
            RETURNING {PAGE}",
        PAGE
    );
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(slug).bind(page.title).bind(page.bio)
        .bind(page.theme).bind(page.avatar_id).bind(now).fetch_optional(c))?)
}

/// Lists the brand's pages, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64) -> Result<Vec<BioPage>> {
    let sql = sql!("SELECT {PAGE} FROM bio_pages WHERE brand_id = $1 ORDER BY id DESC", PAGE);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

/// Returns how many pages the brand has.
pub async fn count_of_brand(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM bio_pages WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Returns the links of all of the brand's pages, ordered within each page.
pub async fn links_of_brand(conn: &mut Conn, brand_id: i64) -> Result<Vec<BioLink>> {
    let sql = sql!(
        "
            SELECT {LINK}
            FROM bio_links
            WHERE page_id IN (SELECT id FROM bio_pages WHERE brand_id = $1)
            ORDER BY page_id DESC, position, id",
        LINK
    );
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).fetch_all(c))?)
}

pub async fn find(conn: &mut Conn, brand_id: i64, page_id: i64) -> Result<Option<BioPage>> {
    let sql = sql!("SELECT {PAGE} FROM bio_pages WHERE brand_id = $1 AND id = $2", PAGE);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(page_id).fetch_optional(c))?)
}

/// Finds a page and locks its row.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, page_id: i64) -> Result<Option<BioPage>> {
    let sql =
        locking_sql!(tx, "SELECT {PAGE} FROM bio_pages WHERE brand_id = $1 AND id = $2 {LOCK}", "FOR UPDATE", PAGE);
    Ok(run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(page_id).fetch_optional(c))?)
}

/// Returns the links of a page, in order.
pub async fn links(conn: &mut Conn, page_id: i64) -> Result<Vec<BioLink>> {
    let sql = sql!("SELECT {LINK} FROM bio_links WHERE page_id = $1 ORDER BY position, id", LINK);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(page_id).fetch_all(c))?)
}

/// Returns whether a page other than `except` has the slug.
pub async fn is_taken(conn: &mut Conn, slug: &str, except: Option<i64>) -> Result<bool> {
    const SQL: &str = "SELECT id FROM bio_pages WHERE slug = $1";
    let found: Option<i64> = run!(conn, c => sqlx::query_scalar(SQL).bind(slug).fetch_optional(c))?;
    Ok(found.is_some_and(|id| Some(id) != except))
}

/// Stores the mutable fields of a page and increments its version. Returns `false` if another page took the slug
/// meanwhile; then the transaction can no longer be used.
pub async fn update(tx: &mut Tx, page: &BioPage) -> Result<bool> {
    const SQL: &str = "
        UPDATE bio_pages
        SET slug = $2, title = $3, bio = $4, theme = $5, avatar_id = $6, version = version + 1,
            updated_at = $7
        WHERE id = $1";
    let now = tx.now;
    let written = execute!(tx, SQL, page.id, &page.slug, &page.title, &page.bio, page.theme, page.avatar_id, now);
    match written.map_err(StoreError::from) {
        Ok(_) => Ok(true),
        Err(error) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error),
    }
}

/// Replaces the links of a page with the entries, in their order. A link whose id is in the entries keeps its clicks;
/// the others are deleted. The caller has locked or just inserted the page's row.
pub async fn set_links(tx: &mut Tx, page_id: i64, entries: &[LinkEntry]) -> Result<()> {
    let kept: Vec<i64> = entries.iter().filter_map(|entry| entry.id).collect();
    delete_other_links(tx, page_id, &kept).await?;
    if !kept.is_empty() {
        update_links(tx, page_id, &link_rows(entries, |entry| entry.id.is_some())).await?;
    }
    if kept.len() < entries.len() {
        add_links(tx, page_id, &link_rows(entries, |entry| entry.id.is_none())).await?;
    }
    Ok(())
}

/// Returns entries as JSON rows, each with its position among all entries.
fn link_rows(entries: &[LinkEntry], is_included: impl Fn(&LinkEntry) -> bool) -> String {
    let included = (1..).zip(entries).filter(|(_, entry): &(i32, &LinkEntry)| is_included(entry));
    let row = |(position, entry): (i32, &LinkEntry)| {
        json!([entry.id, position, entry.title, entry.url, entry.icon, i32::from(entry.is_primary)])
    };
    let rows: Vec<_> = included.map(row).collect();
    serde_json::Value::from(rows).to_string()
}

async fn delete_other_links(tx: &mut Tx, page_id: i64, kept: &[i64]) -> Result<()> {
    let delete = tx.for_engine(
        "
            DELETE FROM bio_links
            WHERE page_id = $2
                AND id NOT IN (SELECT value::bigint FROM json_array_elements_text($1::json))",
        "
            DELETE FROM bio_links
            WHERE page_id = $2 AND id NOT IN (SELECT value FROM json_each($1))",
    );
    execute!(tx, delete, id_list(kept), page_id)?;
    Ok(())
}

/// Updates links. `rows` is from [`link_rows`].
async fn update_links(tx: &mut Tx, page_id: i64, rows: &str) -> Result<()> {
    let change = tx.for_engine(
        "
            UPDATE bio_links
            SET position = e.position, title = e.title, url = e.url, icon = e.icon, is_primary = e.is_primary
            FROM (
                SELECT (value ->> 0)::bigint AS id, (value ->> 1)::integer AS position, value ->> 2 AS title,
                    value ->> 3 AS url, value ->> 4 AS icon, value ->> 5 = '1' AS is_primary
                FROM json_array_elements($1::json)
            ) e
            WHERE bio_links.id = e.id AND bio_links.page_id = $2",
        "
            UPDATE bio_links
            SET position = e.position, title = e.title, url = e.url, icon = e.icon, is_primary = e.is_primary
            FROM (
                SELECT value ->> 0 AS id, value ->> 1 AS position, value ->> 2 AS title, value ->> 3 AS url,
                    value ->> 4 AS icon, value ->> 5 AS is_primary
                FROM json_each($1)
            ) e
            WHERE bio_links.id = e.id AND bio_links.page_id = $2",
    );
    execute!(tx, change, rows, page_id)?;
    Ok(())
}

/// Adds links. `rows` is from [`link_rows`].
async fn add_links(tx: &mut Tx, page_id: i64, rows: &str) -> Result<()> {
    let add = tx.for_engine(
        "
            INSERT INTO bio_links (page_id, position, title, url, icon, is_primary)
            SELECT $2, (value ->> 1)::integer, value ->> 2, value ->> 3, value ->> 4, value ->> 5 = '1'
            FROM json_array_elements($1::json) WITH ORDINALITY AS new (value, n)
            ORDER BY n",
        "
            INSERT INTO bio_links (page_id, position, title, url, icon, is_primary)
            SELECT $2, value ->> 1, value ->> 2, value ->> 3, value ->> 4, value ->> 5
            FROM json_each($1)
            ORDER BY key",
    );
    execute!(tx, add, rows, page_id)?;
    Ok(())
}

/// Deletes a page with its links, and returns the slug, which is free again. Returns `None` if the page does not exist.
pub async fn delete(tx: &mut Tx, brand_id: i64, page_id: i64) -> Result<Option<String>> {
    const SQL: &str = "DELETE FROM bio_pages WHERE brand_id = $1 AND id = $2 RETURNING slug";
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(page_id).fetch_optional(c))?)
}

/// Returns a page and its links by the slug only, for visitors. The page is read first, so its version is that of the
/// links or an older one. If the page changes in between, the next version check finds it.
pub async fn by_slug(conn: &mut Conn, slug: &str) -> Result<Option<(BioPage, Vec<BioLink>)>> {
    let sql = sql!("SELECT {PAGE} FROM bio_pages WHERE slug = $1", PAGE);
    let page: Option<BioPage> = run!(conn, c => sqlx::query_as(sql).bind(slug).fetch_optional(c))?;
    match page {
        None => Ok(None),
        Some(page) => {
            let links = links(conn, page.id).await?;
            Ok(Some((page, links)))
        }
    }
}

/// Returns the image of a page.
pub async fn avatar(conn: &mut Conn, page: &BioPage) -> Result<Option<Asset>> {
    match page.avatar_id {
        Some(id) => super::media::find(conn, page.brand_id, id).await,
        None => Ok(None),
    }
}

/// Returns whether a page shows the image. The caller has locked its row ([`super::media::lock`]).
pub async fn is_avatar(conn: &mut Conn, media_id: i64) -> Result<bool> {
    const SQL: &str = "SELECT EXISTS (SELECT 1 FROM bio_pages WHERE avatar_id = $1)";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(media_id).fetch_one(c))?)
}

/// Identifies a rendering of a page.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Version {
    pub page_id: i64,
    pub version: i64,
    /// The alt text of its image: the only part of the image that can change.
    pub alt_text: Option<String>,
}

impl Version {
    pub fn of(page: &BioPage, avatar: Option<&Asset>) -> Self {
        Self { page_id: page.id, version: page.version, alt_text: avatar.and_then(|asset| asset.alt_text.clone()) }
    }
}

/// Returns the id and the version of the page that has the slug.
pub async fn version(conn: &mut Conn, slug: &str) -> Result<Option<Version>> {
    const SQL: &str = "
        SELECT p.id AS page_id, p.version, m.alt_text
        FROM bio_pages p
        LEFT JOIN media m ON m.id = p.avatar_id
        WHERE p.slug = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(slug).fetch_optional(c))?)
}

/// Adds views of pages and clicks on links, each as an id and a number. Skips deleted pages and links.
///
/// Locks the pages' rows first, including those of the clicked links, in id order. So counting and changing a page
/// ([`find_for_update`]) wait for each other without a deadlock.
pub async fn add_counts(tx: &mut Tx, views: &[(i64, u64)], clicks: &[(i64, u64)]) -> Result<()> {
    let ids = |counts: &[(i64, u64)]| id_list(&counts.iter().map(|(id, _)| *id).collect::<Vec<_>>());
    if tx.is_postgres() {
        const LOCK: &str = "
            SELECT id
            FROM bio_pages
            WHERE id IN (SELECT value::bigint FROM json_array_elements_text($1::json))
                OR id IN (
                    SELECT page_id
                    FROM bio_links
                    WHERE id IN (SELECT value::bigint FROM json_array_elements_text($2::json))
                )
            ORDER BY id
            FOR NO KEY UPDATE";
        let (views, clicks) = (ids(views), ids(clicks));
        let _: Vec<i64> = run!(tx, c => sqlx::query_scalar(LOCK).bind(&views).bind(&clicks).fetch_all(c))?;
    }
    // The numbers in the bind, as rows.
    const PG: &str = "
        (
            SELECT (value ->> 0)::bigint AS id, (value ->> 1)::bigint AS n
            FROM json_array_elements($1::json)
        ) added";
    const SQLITE: &str = "(SELECT value ->> 0 AS id, value ->> 1 AS n FROM json_each($1)) added";
    let add_views = tx.for_engine(
        sql!("UPDATE bio_pages SET views = views + added.n FROM {PG} WHERE bio_pages.id = added.id", PG),
        sql!("UPDATE bio_pages SET views = views + added.n FROM {SQLITE} WHERE bio_pages.id = added.id", SQLITE),
    );
    let add_clicks = tx.for_engine(
        sql!("UPDATE bio_links SET clicks = clicks + added.n FROM {PG} WHERE bio_links.id = added.id", PG),
        sql!("UPDATE bio_links SET clicks = clicks + added.n FROM {SQLITE} WHERE bio_links.id = added.id", SQLITE),
    );
    for (sql, counts) in [(add_views, views), (add_clicks, clicks)] {
        if !counts.is_empty() {
            execute!(tx, sql, json!(counts).to_string())?;
        }
    }
    Ok(())
}
