//! The outbox: emails and their status. An email is written in the transaction that causes it. A `send_mail` job sends
//! it to the mail server.

use chrono::{DateTime, Utc};
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::mail::Mail;

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// A new email.
#[derive(Debug, Default)]
pub struct NewMail<'a> {
    pub recipient: &'a str,
    pub subject: &'a str,
    pub body_text: &'a str,
    /// The same text as HTML.
    pub body_html: Option<&'a str>,
    /// The URL that unsubscribes the recipient from emails of this kind, with one request (RFC 8058).
    pub unsubscribe_url: Option<&'a str>,
    /// The report delivery that it sends. The email is deleted with the delivery.
    pub delivery_id: Option<i64>,
    /// Whether the delivery's file is attached.
    pub has_file: bool,
    pub message_id: &'a str,
}

/// Stores an email on behalf of a user, with the job that sends it. It is deleted with the user.
pub async fn enqueue_mail(tx: &mut Tx, user_id: i64, new: &NewMail<'_>, trace: Option<&str>) -> Result<i64> {
    const SQL: &str = "
        INSERT INTO mails (
            user_id, recipient, subject, body_text, message_id, status, created_at, body_html, unsubscribe_url,
            delivery_id, has_file
        )
        VALUES ($1, $2, $3, $4, $5, 'pending', $6, $7, $8, $9, $10)
        RETURNING id";
    let now = tx.now;
    let id: i64 = run!(tx, c => sqlx::query_scalar(SQL).bind(user_id).bind(new.recipient).bind(new.subject)
        .bind(new.body_text).bind(new.message_id).bind(now).bind(new.body_html).bind(new.unsubscribe_url)
        .bind(new.delivery_id).bind(new.has_file).fetch_one(c))?;
    let lane = if new.has_file { Lane::MailFiles } else { Lane::MailServer };
    let job = NewJob::new(JobKind::SendMail, id, now).lane(lane).trace(trace.map(str::to_owned));
    super::jobs::enqueue(tx, &job).await?;
    Ok(id)
}

/// Finds an email by its id only, for the worker and the operator.
pub async fn find(conn: &mut Conn, mail_id: i64) -> Result<Option<Mail>> {
    const SQL: &str = "
        SELECT id, user_id, recipient, subject, body_text, message_id, status, error, created_at, sent_at, body_html,
            unsubscribe_url, delivery_id, has_file
        FROM mails
        WHERE id = $1";
    Ok(run!(conn, c => sqlx::query_as(SQL).bind(mail_id).fetch_optional(c))?)
}

/// Locks the row until the end of the transaction.
pub async fn lock(tx: &mut Tx, mail_id: i64) -> Result<()> {
    execute!(tx, "UPDATE mails SET status = status WHERE id = $1", mail_id)?;
    Ok(())
}

/// Records that the mail server accepted the email, and deletes its text, which may contain a link that gives access: to
/// sign in, to accept an invitation, or to the file of a report.
pub async fn mark_sent(tx: &mut Tx, mail_id: i64) -> Result<()> {
    const SQL: &str = "
        UPDATE mails
        SET status = 'sent', sent_at = $2, error = NULL, body_text = '', body_html = NULL, unsubscribe_url = NULL
        WHERE id = $1";
    let now = tx.now;
    execute!(tx, SQL, mail_id, now)?;
    Ok(())
}

/// Records why the email must wait.
pub async fn mark_deferred(tx: &mut Tx, mail_id: i64, reason: &str) -> Result<()> {
    execute!(tx, "UPDATE mails SET error = $2 WHERE id = $1 AND status = 'pending'", mail_id, reason)?;
    Ok(())
}

/// Marks the email as failed, with a reason.
pub async fn mark_failed(tx: &mut Tx, mail_id: i64, reason: &str) -> Result<()> {
    const SQL: &str = "
        UPDATE mails
        SET status = 'failed', error = $2
        WHERE id = $1 AND status = 'pending'";
    execute!(tx, SQL, mail_id, reason)?;
    Ok(())
}

/// Deletes finished emails that were created by `before`, at most `limit`, oldest first. The state of a report's email
/// remains in its delivery. Returns how many.
pub async fn purge(tx: &mut Tx, before: DateTime<Utc>, limit: i64) -> Result<u64> {
    // Checks the status again on the row itself, because the operator may have retried the email meanwhile.
    const SQL: &str = "
        DELETE FROM mails
        WHERE id IN (
            SELECT id
            FROM mails
            WHERE status <> 'pending'
                AND created_at <= $1
            ORDER BY created_at
            LIMIT $2
        )
            AND status <> 'pending'";
    Ok(execute!(tx, SQL, before, limit)?)
}

/// Makes a failed email pending again. Returns `false` if it does not exist or has not failed.
pub async fn retry_failed(tx: &mut Tx, mail_id: i64) -> Result<bool> {
    const SQL: &str = "
        UPDATE mails
        SET status = 'pending', error = NULL
        WHERE id = $1 AND status = 'failed'";
    Ok(execute!(tx, SQL, mail_id)? > 0)
}
