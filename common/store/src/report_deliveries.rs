//! Exports of reports, their recipients, and the recipients who get no emails.

use chrono::{DateTime, NaiveDate, Utc};
use crier_domain::mail::MailStatus;
use crier_domain::report::{ReportDelivery, ReportDeliveryStatus, ReportError, ReportFormat, ReportRecipient};
use sqlx::types::Json;

use super::db::{execute, run};
use super::jobs::{id_list, list_sql};
use super::sql::sql;
use super::{Conn, Page, PageRequest, Result, Tx};

const SELECT: &str = "
    SELECT id, report_id, brand_id, schedule_id, status, format, has_bom, starts_on, ends_on, file_id, size_bytes,
        error, completed_at, created_at, updated_at
    FROM report_deliveries";

/// A new export.
#[derive(Clone, Debug)]
pub struct NewDelivery {
    pub report_id: i64,
    pub brand_id: i64,
    pub schedule_id: Option<i64>,
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark.
    pub has_bom: bool,
    pub starts_on: NaiveDate,
    pub ends_on: NaiveDate,
}

/// Stores a pending delivery and returns its id. The caller has locked its report or schedule.
pub async fn create(tx: &mut Tx, new: &NewDelivery) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO report_deliveries (
            report_id, brand_id, schedule_id, status, format, has_bom, starts_on, ends_on, created_at, updated_at
        )
        VALUES ($1, $2, $3, 'pending', $4, $5, $6, $7, $8, $8)
        RETURNING id";
    let now = tx.now;
    Ok(run!(tx, c => sqlx::query_scalar(SQL).bind(new.report_id).bind(new.brand_id).bind(new.schedule_id)
        .bind(new.format).bind(new.has_bom).bind(new.starts_on).bind(new.ends_on).bind(now).fetch_one(c))?)
}

/// Stores the recipients of a delivery, in this order.
pub async fn add_recipients(tx: &mut Tx, delivery_id: i64, recipients: &[String]) -> Result<()> {
    const SQL: &str = "
        INSERT INTO report_recipients (delivery_id, position, recipient, status)
        VALUES ($1, $2, $3, 'pending')";
    for (position, recipient) in (0_i32..).zip(recipients) {
        execute!(tx, SQL, delivery_id, position, recipient)?;
    }
    Ok(())
}

pub async fn find(conn: &mut Conn, brand_id: i64, delivery_id: i64) -> Result<Option<ReportDelivery>> {
    let sql = sql!("{SELECT} WHERE brand_id = $1 AND id = $2", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(delivery_id).fetch_optional(c))?)
}

/// Finds a delivery by its id only, for the worker, the operator, and sealed links.
pub async fn find_any(conn: &mut Conn, delivery_id: i64) -> Result<Option<ReportDelivery>> {
    let sql = sql!("{SELECT} WHERE id = $1", SELECT);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(delivery_id).fetch_optional(c))?)
}

/// Locks a delivery's row until the end of the transaction, by its id only, for the worker. Locks the report first, as
/// the deletion of a report does.
pub async fn lock(tx: &mut Tx, delivery_id: i64) -> Result<Option<ReportDelivery>> {
    if tx.is_postgres() {
        const LOCK: &str = "
            SELECT d.id
            FROM report_deliveries d
            JOIN reports r ON r.id = d.report_id
            WHERE d.id = $1
            FOR KEY SHARE OF r FOR UPDATE OF d";
        let _: Option<i64> = run!(tx, c => sqlx::query_scalar(LOCK).bind(delivery_id).fetch_optional(c))?;
    }
    find_any(tx, delivery_id).await
}

/// Lists the deliveries of a report, newest first.
pub async fn list(conn: &mut Conn, brand_id: i64, report_id: i64, page: PageRequest) -> Result<Page<ReportDelivery>> {
    const TOTAL: &str = "SELECT count(*) FROM report_deliveries WHERE brand_id = $1 AND report_id = $2";
    let sql = sql!("{SELECT} WHERE brand_id = $1 AND report_id = $2 ORDER BY id DESC LIMIT $3 OFFSET $4", SELECT);
    let rows = run!(conn, c => sqlx::query_as(sql).bind(brand_id).bind(report_id)
        .bind(page.per_page).bind(page.offset()).fetch_all(c))?;
    let total = run!(conn, c => sqlx::query_scalar(TOTAL).bind(brand_id).bind(report_id).fetch_one(c))?;
    Ok(Page { rows, total })
}

/// Returns the recipients of deliveries, in their order.
pub async fn recipients_of(conn: &mut Conn, delivery_ids: &[i64]) -> Result<Vec<ReportRecipient>> {
    let sql = list_sql!(
        conn,
        "SELECT delivery_id, recipient, status, error FROM report_recipients WHERE delivery_id",
        "ORDER BY delivery_id, position"
    );
    let ids = id_list(delivery_ids);
    Ok(run!(conn, c => sqlx::query_as(sql).bind(&ids).fetch_all(c))?)
}

/// The names of a delivery's report, brand and workspace.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct DeliveryNames {
    pub report: String,
    pub brand: String,
    pub workspace: String,
}

/// Returns the names that a delivery's file shows.
pub async fn names_of(conn: &mut Conn, delivery: &ReportDelivery) -> Result<Option<DeliveryNames>> {
    const SQL: &str = "
        SELECT r.name AS report, b.name AS brand, w.name AS workspace
        FROM reports r
        JOIN brands b ON b.id = r.brand_id
        JOIN workspaces w ON w.id = b.workspace_id
        WHERE r.id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(delivery.report_id).fetch_optional(c))?)
}

/// The new state of a delivery.
#[derive(Clone, Debug)]
pub struct DeliveryProgress<'a> {
    pub status: ReportDeliveryStatus,
    pub file: Option<DeliveredFile>,
    pub error: Option<&'a ReportError>,
}

/// The stored file of a delivery.
#[derive(Clone, Copy, Debug)]
pub struct DeliveredFile {
    pub id: i64,
    pub size_bytes: i64,
    /// When it is deleted. `None` means with its report.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Updates a delivery whose row is locked. The caller checks the transition of the status
/// ([`ReportDeliveryStatus::to`]).
pub async fn progress(tx: &mut Tx, delivery_id: i64, to: &DeliveryProgress<'_>) -> Result<()> {
    const SQL: &str = "
        UPDATE report_deliveries
        SET status = $2, file_id = $3, size_bytes = $4, expires_at = $5, error = $6, updated_at = $7,
            completed_at = CASE WHEN $8 THEN $7 END
        WHERE id = $1";
    let (now, error, is_terminal) = (tx.now, to.error.map(Json), to.status.is_terminal());
    let (file, size, expires) = match to.file {
        Some(file) => (Some(file.id), Some(file.size_bytes), file.expires_at),
        None => (None, None, None),
    };
    execute!(tx, SQL, delivery_id, to.status, file, size, expires, error, now, is_terminal)?;
    Ok(())
}

/// Records the email to a recipient, by the position in the list.
pub async fn set_mail(tx: &mut Tx, delivery_id: i64, position: i32, mail_id: i64) -> Result<()> {
    const SQL: &str = "UPDATE report_recipients SET mail_id = $3 WHERE delivery_id = $1 AND position = $2";
    execute!(tx, SQL, delivery_id, position, mail_id)?;
    Ok(())
}

/// Marks the email to a recipient as failed, by the position in the list.
pub async fn fail_recipient(tx: &mut Tx, delivery_id: i64, position: i32, error: &ReportError) -> Result<()> {
    const SQL: &str = "
        UPDATE report_recipients
        SET status = 'failed', error = $3
        WHERE delivery_id = $1 AND position = $2";
    execute!(tx, SQL, delivery_id, position, Json(error))?;
    Ok(())
}

/// Marks all pending emails of a delivery without a file as failed.
pub async fn fail_recipients(tx: &mut Tx, delivery_id: i64, error: &ReportError) -> Result<()> {
    const SQL: &str = "
        UPDATE report_recipients
        SET status = 'failed', error = $2
        WHERE delivery_id = $1 AND status = 'pending'";
    execute!(tx, SQL, delivery_id, Json(error))?;
    Ok(())
}

/// Makes a delivery's recipients for whom no email was created pending again, for a retry by the operator.
pub async fn retry_recipients(tx: &mut Tx, delivery_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE report_recipients
        SET status = 'pending', error = NULL
        WHERE delivery_id = $1 AND mail_id IS NULL";
    execute!(tx, SQL, delivery_id)?;
    Ok(())
}

/// Records the status of an email, if it belongs to a report.
pub async fn record_mail(tx: &mut Tx, mail_id: i64, status: MailStatus, error: Option<&ReportError>) -> Result<()> {
    const SQL: &str = "UPDATE report_recipients SET status = $2, error = $3 WHERE mail_id = $1";
    execute!(tx, SQL, mail_id, status, error.map(Json))?;
    Ok(())
}

/// Stops all emails of a workspace's reports to a mailbox, at the recipient's request. Returns `false` if the workspace
/// does not exist. A repeated request changes nothing.
pub async fn unsubscribe(tx: &mut Tx, workspace_id: i64, mailbox: &str) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO report_mail_stops (workspace_id, recipient, reason, is_unsubscribed, created_at)
        SELECT id, $2, 'unsubscribed', TRUE, $3
        FROM workspaces
        WHERE id = $1
        ON CONFLICT (workspace_id, recipient)
        DO UPDATE SET is_unsubscribed = TRUE";
    let now = tx.now;
    Ok(execute!(tx, SQL, workspace_id, mailbox, now)? > 0)
}

/// Resumes emails to a recipient who unsubscribed, at the recipient's request.
pub async fn resubscribe(tx: &mut Tx, to: &Subscription<'_>) -> Result<()> {
    const SQL: &str = "
        DELETE FROM report_mail_stops
        WHERE workspace_id = $1
            AND recipient = $2
            AND is_unsubscribed";
    execute!(tx, SQL, to.workspace_id, to.mailbox)?;
    Ok(())
}

/// Stops all emails of a workspace's reports to the recipient of an email that a mail server permanently rejected.
pub async fn stop_rejected(tx: &mut Tx, mail_id: i64, reason: &str) -> Result<()> {
    const SQL: &str = "
        INSERT INTO report_mail_stops (workspace_id, recipient, reason, created_at)
        SELECT b.workspace_id, $2, $3, $4
        FROM report_recipients p
        JOIN report_deliveries d ON d.id = p.delivery_id
        JOIN brands b ON b.id = d.brand_id
        WHERE p.mail_id = $1
        ON CONFLICT (workspace_id, recipient)
        DO NOTHING";
    const RECIPIENT: &str = "SELECT recipient FROM report_recipients WHERE mail_id = $1";
    let recipient: Option<String> = run!(tx, c => sqlx::query_scalar(RECIPIENT).bind(mail_id).fetch_optional(c))?;
    let Some(recipient) = recipient else { return Ok(()) };
    let now = tx.now;
    execute!(tx, SQL, mail_id, recipient.to_lowercase(), reason, now)?;
    Ok(())
}

/// A recipient of a workspace's reports.
#[derive(Clone, Copy, Debug)]
pub struct Subscription<'a> {
    pub workspace_id: i64,
    pub address: &'a str,
    /// The mailbox of the address.
    pub mailbox: &'a str,
}

/// Why a recipient gets no emails.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct MailStop {
    /// Whether the recipient unsubscribed. Otherwise a mail server rejected the address.
    pub is_unsubscribed: bool,
    pub reason: String,
}

/// Returns why a recipient gets no emails. Returns `None` if emails may be sent. Recipients unsubscribe by mailbox; mail
/// servers reject an address.
pub async fn mail_stop(conn: &mut Conn, to: &Subscription<'_>) -> Result<Option<MailStop>> {
    const SQL: &str = "
        SELECT is_unsubscribed, reason
        FROM report_mail_stops
        WHERE workspace_id = $1
            AND recipient IN ($2, $3)
            AND (is_unsubscribed OR recipient = $2)
        ORDER BY is_unsubscribed DESC
        LIMIT 1";
    let address = to.address.to_lowercase();
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(to.workspace_id).bind(&address).bind(to.mailbox).fetch_optional(c))?)
}

/// Resumes emails of the workspace's reports to recipients whom a mail server rejected, because a user has entered them
/// again. Recipients who unsubscribed remain unsubscribed.
pub async fn resume_rejected(tx: &mut Tx, workspace_id: i64, recipients: &[String]) -> Result<()> {
    const SQL: &str = "
        DELETE FROM report_mail_stops
        WHERE workspace_id = $1
            AND recipient = $2
            AND NOT is_unsubscribed";
    for recipient in recipients {
        execute!(tx, SQL, workspace_id, recipient.to_lowercase())?;
    }
    Ok(())
}

/// Removes the files from expired deliveries, at most `limit`, and marks the files for deletion. Returns how many.
pub async fn expire_files(tx: &mut Tx, limit: i64) -> Result<u64> {
    const SQL: &str = "
        SELECT id
        FROM report_deliveries
        WHERE file_id IS NOT NULL
            AND expires_at <= $1
        ORDER BY expires_at
        LIMIT $2";
    let now = tx.now;
    let found: Vec<i64> = run!(tx, c => sqlx::query_scalar(SQL).bind(now).bind(limit).fetch_all(c))?;
    super::files::mark_of_deliveries_for_deletion(tx, &found).await?;
    let sql = list_sql!(tx, "UPDATE report_deliveries SET file_id = NULL, updated_at = $2 WHERE id", "");
    Ok(execute!(tx, sql, id_list(&found), now)?)
}
