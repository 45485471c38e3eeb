//! Schedules of reports, and when they are due.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::zone;
use crier_domain::recurrence::Frequency;
use crier_domain::report::ReportFormat;
use crier_domain::report_schedule::ReportSchedule;
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::{locking_sql, sql};
use super::{Conn, Result, StoreError, Tx, brands};

const SELECT: &str = "
    SELECT s.id, s.report_id, s.frequency, s.cron, s.time, s.format, s.has_bom, s.recipients, s.next_run_at,
        s.last_run_at, s.created_at, s.updated_at
    FROM report_schedules s";

/// The maximum difference between two time zones: UTC+14 and UTC-12.
const MAX_ZONE_DIFFERENCE: TimeDelta = TimeDelta::hours(26);

/// A schedule as a client sends it.
#[derive(Clone, Debug)]
pub struct NewSchedule<'a> {
    pub frequency: Frequency,
    pub cron: Option<&'a str>,
    pub time: Option<&'a str>,
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark.
    pub has_bom: bool,
    pub recipients: &'a [String],
    pub next_run_at: DateTime<Utc>,
}

/// Stores a schedule. The caller has locked its report.
pub async fn create(tx: &mut Tx, report_id: i64, new: &NewSchedule<'_>) -> Result<ReportSchedule> {
    const SQL: &str = "
        INSERT INTO report_schedules (
            report_id, frequency, cron, time, format, has_bom, recipients, next_run_at, created_at, updated_at
        )
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $9)
        RETURNING id";
    let now = tx.now;
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(report_id).bind(new.frequency).bind(new.cron)
        .bind(new.time).bind(new.format).bind(new.has_bom).bind(Json(new.recipients)).bind(new.next_run_at).bind(now).fetch_one(c))?;
    let sql = sql!("{SELECT} WHERE s.id = $1", SELECT);
    let created = run!(tx, c => sqlx::query_as(sql).bind(id).fetch_optional(c))?;
    created.ok_or_else(|| StoreError::Decode("a schedule was not stored".into()))
}

/// Returns the schedules of reports, oldest first.
pub async fn of_reports(conn: &mut Conn, report_ids: &[i64]) -> Result<Vec<ReportSchedule>> {
    let sql = list_sql!(
        conn,
        "SELECT id, report_id, frequency, cron, time, format, has_bom, recipients, next_run_at, last_run_at, \
         created_at, updated_at FROM report_schedules WHERE report_id",
        "ORDER BY id"
    );
    let ids = id_list(report_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// The workspace, the brand and the report of a schedule.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct ScheduleNames {
    pub brand: String,
    pub report: String,
}

/// Returns the workspace, the brand and the report of a schedule. Returns `None` if the schedule was deleted.
pub async fn names_of(conn: &mut Conn, schedule_id: i64) -> Result<Option<ScheduleNames>> {
    const SQL: &str = "
        SELECT b.name AS brand, r.name AS report
        FROM report_schedules s
        JOIN reports r ON r.id = s.report_id
        JOIN brands b ON b.id = r.brand_id
        WHERE s.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(schedule_id).fetch_optional(c))?)
}

/// Deletes a schedule of a report. Returns `false` if it does not exist.
pub async fn delete(tx: &mut Tx, report_id: i64, schedule_id: i64) -> Result<bool> {
    Ok(execute!(tx, "DELETE FROM report_schedules WHERE report_id = $1 AND id = $2", report_id, schedule_id)? > 0)
}

/// A schedule that is due, with the data for its export.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct DueSchedule {
    #[sqlx(flatten)]
    pub schedule: ReportSchedule,
    pub brand_id: i64,
    pub workspace_id: i64,
    pub plan: String,
    pub timezone: String,
    /// Whether an earlier export has not finished.
    pub is_busy: bool,
}

/// A due schedule, or why its row cannot be read (a newer version may have written it). Such a row must not prevent the
/// others from running.
pub struct DueRow {
    pub id: i64,
    pub schedule: sqlx::Result<DueSchedule>,
}

impl<'r, R> sqlx::FromRow<'r, R> for DueRow
where
    R: sqlx::Row,
    DueSchedule: sqlx::FromRow<'r, R>,
    i64: sqlx::Decode<'r, R::Database> + sqlx::Type<R::Database>,
    &'static str: sqlx::ColumnIndex<R>,
{
    fn from_row(row: &'r R) -> sqlx::Result<Self> {
        Ok(Self { id: row.try_get("id")?, schedule: DueSchedule::from_row(row) })
    }
}

/// Locks and returns schedules that are due, at most `limit`, the longest overdue first. Leaves out those that another
/// scheduler has locked.
pub async fn due(tx: &mut Tx, limit: i64) -> Result<Vec<DueRow>> {
    let sql = locking_sql!(
        tx,
        "
        SELECT s.id, s.report_id, s.frequency, s.cron, s.time, s.format, s.has_bom, s.recipients, s.next_run_at,
            s.last_run_at, s.created_at, s.updated_at, r.brand_id, b.workspace_id, w.plan, b.timezone,
            EXISTS (
                SELECT 1
                FROM report_deliveries d
                WHERE d.schedule_id = s.id
                    AND d.status IN ('pending', 'processing')
            ) AS is_busy
        FROM report_schedules s
        JOIN reports r ON r.id = s.report_id
        JOIN brands b ON b.id = r.brand_id
        JOIN workspaces w ON w.id = b.workspace_id
        WHERE s.next_run_at <= $1
        ORDER BY s.next_run_at
        LIMIT $2
        {LOCK}",
        "FOR UPDATE OF s SKIP LOCKED"
    );
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_as(sql).bind(now).bind(limit).fetch_all(c))?)
}

/// Records when a schedule runs next, and if `has_run`, that it has run now.
pub async fn advance(tx: &mut Tx, schedule_id: i64, next_run_at: DateTime<Utc>, has_run: bool) -> Result<()> {
    const SQL: &str = "
        UPDATE report_schedules
        SET next_run_at = $2, last_run_at = CASE WHEN $3 THEN $4 ELSE last_run_at END
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, schedule_id, next_run_at, has_run, now)?;
    Ok(())
}

/// Gives the schedules of a brand new times, because the brand's time zone has changed. A schedule that is already due
/// still runs, and so does one whose time has passed only in the new time zone. The caller has locked the brand.
pub async fn follow_time_zone(tx: &mut Tx, brand_id: i64) -> Result<()> {
    let sql = locking_sql!(
        tx,
        "{SELECT}
        JOIN reports r ON r.id = s.report_id
        WHERE r.brand_id = $1
            AND s.next_run_at > $2
        ORDER BY s.id
        {LOCK}",
        "FOR UPDATE OF s",
        SELECT
    );
    let Some(brand) = brands::find(tx, brand_id).await? else { return Ok(()) };
    let (now, zone) = (tx.now, zone(Some(&brand.timezone)));
    let waiting: Vec<ReportSchedule> = run!(tx, c => sqlx::query_as(sql).bind(brand_id).bind(now).fetch_all(c))?;
    for schedule in waiting {
        let since = schedule.last_run_at.unwrap_or(schedule.created_at).max(now - MAX_ZONE_DIFFERENCE);
        if let Some(next) = schedule.next_after(since, zone) {
            advance(tx, schedule.id, next, false).await?;
        }
    }
    Ok(())
}
