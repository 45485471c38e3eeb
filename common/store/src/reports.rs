//! Reports: the widgets that a brand has chosen.

use crier_domain::report::{Report, ReportWidget};
use sqlx::types::Json;

use super::db::{execute, run};
use super::sql::sql;
use super::{Conn, Page, PageRequest, Result, StoreError, Tx};

const SELECT: &str = "
    SELECT id, brand_id, name, created_at, updated_at, widgets
    FROM reports";

/// Stores a report.
pub async fn create(tx: &mut Tx, brand_id: i64, name: &str, widgets: &[ReportWidget]) -> Result<Report> {
    const SQL: &str = "
        INSERT INTO reports (brand_id, name, created_at, updated_at, widgets)
        VALUES ($1, $2, $3, $3, $4)
        RETURNING id";
    let now = tx.now;
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(brand_id).bind(name).bind(now).bind(Json(widgets))
        .fetch_one(c))?;
    find(tx, brand_id, id).await?.ok_or_else(|| StoreError::Decode("a report was not stored".into()))
}

/// Returns texts that reports may show, for the operator: those of the newest posts, brands and accounts of the
/// installation, at most `limit` each. A text is cut after 1,000 characters.
pub async fn texts(conn: &mut Conn, limit: i64) -> Result<Vec<String>> {
    const SQL: &str = "
        SELECT substr(text, 1, 1000)
        FROM (SELECT content AS text FROM posts ORDER BY id DESC LIMIT $1) AS newest_posts
        UNION ALL
        SELECT name
        FROM (SELECT name FROM brands ORDER BY id DESC LIMIT $1) AS newest_brands
        UNION ALL
        SELECT name
        FROM (SELECT name FROM social_accounts ORDER BY id DESC LIMIT $1) AS newest_accounts";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(limit).fetch_all(c))?)
}

/// Returns how many reports a brand has.
pub async fn count(conn: &mut Conn, brand_id: i64) -> Result<i64> {
    const SQL: &str = "SELECT count(*) FROM reports WHERE brand_id = $1";
    Ok(run!(conn, c => sqlx::query_scalar(SQL).bind(brand_id).fetch_one(c))?)
}

/// Lists the reports of a brand, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64, page: PageRequest) -> Result<Page<Report>> {
    let sql = sql!("{SELECT} WHERE brand_id = $1 ORDER BY id DESC LIMIT $2 OFFSET $3", SELECT);
    let rows = run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(page.per_page)
        .bind(page.offset()).fetch_all(c))?;
    Ok(Page { rows, total: count(conn, brand_id).await? })
}

pub async fn find(conn: &mut Conn, brand_id: i64, report_id: i64) -> Result<Option<Report>> {
    let sql = sql!("{SELECT} WHERE brand_id = $1 AND id = $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(report_id).fetch_optional(c))?)
}

/// Finds a report and locks its row until the end of the transaction.
pub async fn find_for_update(tx: &mut Tx, brand_id: i64, report_id: i64) -> Result<Option<Report>> {
    execute!(tx, "UPDATE reports SET name = name WHERE brand_id = $1 AND id = $2", brand_id, report_id)?;
    find(tx, brand_id, report_id).await
}

/// Renames a report. Returns `false` if it does not exist.
pub async fn rename(tx: &mut Tx, brand_id: i64, report_id: i64, name: &str) -> Result<bool> {
    const SQL: &str = "UPDATE reports SET name = $3, updated_at = $4 WHERE brand_id = $1 AND id = $2";
    let now = tx.now;
    Ok(execute!(tx, SQL, brand_id, report_id, name, now)? > 0)
}

/// Deletes a report with its schedules and deliveries. Returns `false` if it does not exist. Mark its files for
/// deletion first ([`files::mark_of_report_for_deletion`](super::files::mark_of_report_for_deletion)).
pub async fn delete(tx: &mut Tx, brand_id: i64, report_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM reports WHERE brand_id = $1 AND id = $2", brand_id, report_id)? > 0)
}
