//! Counts of the emails of a workspace per UTC day, for the limit of its plan and the limit per address. The counts
//! remain when the reports are deleted.
//!
//! Addresses are mailboxes (`crier_mail::mailbox`): spellings that reach the same mailbox count together.

use chrono::{DateTime, NaiveDate, Utc};

use super::db::{execute, run};
use super::{Conn, Result, Tx};

/// The maximum number of emails of one kind per UTC day from a workspace to an address.
pub const MAX_PER_ADDRESS: i64 = 24;

const REPORT: &str = "report";
/// Emails about problems.
const DIGEST: &str = "digest";
const INVITATION: &str = "invitation";

/// Whether an email may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MailDecision {
    Allowed,
    /// The workspace may send no more today, by the limit of its plan or the limit for invitations.
    WorkspaceLimit,
    /// The address gets no more from this workspace today.
    AddressLimit,
}

/// Counts an email with a report to each mailbox that may get one. `cap` is the plan's limit per day.
pub async fn take_reports(
    tx: &mut Tx,
    workspace_id: i64,
    cap: Option<u64>,
    mailboxes: &[String],
) -> Result<Vec<MailDecision>> {
    take(tx, workspace_id, REPORT, cap, mailboxes).await
}

/// Counts an invitation to a mailbox, if it may get one. `cap` is the workspace's limit per day.
pub async fn take_invitation(tx: &mut Tx, workspace_id: i64, cap: u64, mailbox: String) -> Result<MailDecision> {
    let decisions = take(tx, workspace_id, INVITATION, Some(cap), &[mailbox]).await?;
    Ok(decisions.first().copied().unwrap_or(MailDecision::WorkspaceLimit))
}

/// Counts an email to each mailbox that may get one. Locks a row of the workspace until the end of the transaction, so
/// that its emails of a kind are counted one at a time.
async fn take(
    tx: &mut Tx,
    workspace_id: i64,
    kind: &str,
    cap: Option<u64>,
    mailboxes: &[String],
) -> Result<Vec<MailDecision>> {
    const LOCK: &str = "
        INSERT INTO mail_counts (workspace_id, day, kind, recipient, mails)
        VALUES ($1, $2, $3, '', 0)
        ON CONFLICT (workspace_id, day, kind, recipient)
        DO UPDATE SET mails = mail_counts.mails
        RETURNING mails";
    const ADD: &str = "
        UPDATE mail_counts
        SET mails = mails + $4
        WHERE workspace_id = $1 AND day = $2 AND kind = $3 AND recipient = ''";
    if mailboxes.is_empty() {
        return Ok(Vec::new());
    }
    let day = tx.now.date_naive();
    let used: i64 = run!(tx, c => sqlx::query_scalar(LOCK).bind(workspace_id).bind(day).bind(kind).fetch_one(c))?;
    let cap = cap.map_or(i64::MAX, |cap| i64::try_from(cap).unwrap_or(i64::MAX));
    let (mut taken, mut decisions) = (0_i64, Vec::with_capacity(mailboxes.len()));
    for mailbox in mailboxes {
        decisions.push(if used.saturating_add(taken) >= cap {
            MailDecision::WorkspaceLimit
        } else if take_address(tx, workspace_id, kind, mailbox).await? {
            taken += 1;
            MailDecision::Allowed
        } else {
            MailDecision::AddressLimit
        });
    }
    execute!(tx, ADD, workspace_id, day, kind, taken)?;
    Ok(decisions)
}

/// Counts an email about problems to the mailbox of a user. Returns `false` if the mailbox gets no more today, or if
/// the user does not exist.
pub async fn take_digest(tx: &mut Tx, user_id: i64, mailbox: &str) -> Result<bool> {
    const WORKSPACE: &str = "SELECT workspace_id FROM users WHERE id = $1";
    let found: Option<i64> = run!(tx, c => sqlx::query_scalar(WORKSPACE).bind(user_id).fetch_optional(c))?;
    match found {
        Some(workspace_id) => take_address(tx, workspace_id, DIGEST, mailbox).await,
        None => Ok(false),
    }
}

async fn take_address(tx: &mut Tx, workspace_id: i64, kind: &str, mailbox: &str) -> Result<bool> {
    const SQL: &str = "
        INSERT INTO mail_counts (workspace_id, day, kind, recipient, mails)
        VALUES ($1, $2, $3, $4, 1)
        ON CONFLICT (workspace_id, day, kind, recipient)
        DO UPDATE SET mails = mail_counts.mails + 1
        WHERE mail_counts.mails < $5";
    let day = tx.now.date_naive();
    Ok(execute!(tx, SQL, workspace_id, day, kind, mailbox, MAX_PER_ADDRESS)? > 0)
}

/// Returns how many emails with reports were counted for a workspace on this UTC day.
pub async fn reports(conn: &mut Conn, workspace_id: i64, now: DateTime<Utc>) -> Result<i64> {
    const SQL: &str = "
        SELECT mails
        FROM mail_counts
        WHERE workspace_id = $1 AND day = $2 AND kind = $3 AND recipient = ''";
    let day = now.date_naive();
    let found: Option<i64> =
        run!(conn, c => sqlx::query_scalar(SQL).bind(workspace_id).bind(day).bind(REPORT).fetch_optional(c))?;
    Ok(found.unwrap_or_default())
}

/// Deletes counts of days before `day`, at most `limit`. Returns how many.
pub async fn purge(tx: &mut Tx, day: NaiveDate, limit: i64) -> Result<u64> {
    const SQL: &str = "
        DELETE FROM mail_counts
        WHERE (workspace_id, day, kind, recipient) IN (
            SELECT workspace_id, day, kind, recipient
            FROM mail_counts
            WHERE day < $1
            ORDER BY day
            LIMIT $2
        )";
    Ok(execute!(tx, SQL, day, limit)?)
}
