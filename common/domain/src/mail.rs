//! An email that Crier sends.
//!
//! It is `pending` until the mail server has accepted it (`sent`) or its job has failed (`failed`). If the job of a
//! failed email runs again, the email is `pending` again.

use chrono::{DateTime, Utc};

crier_base::text_enum! {
    pub enum MailStatus { Pending = "pending", Sent = "sent", Failed = "failed" }
}

/// A row of the outbox.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Mail {
    pub id: i64,
    /// The user on whose behalf the email is sent; the recipient may be someone else.
    pub user_id: i64,
    pub recipient: String,
    pub subject: String,
    /// Empty if the email is `sent`.
    pub body_text: String,
    /// Created with the row and used for every attempt, so that mail programs recognize duplicates.
    pub message_id: String,
    pub status: MailStatus,
    /// Why the email failed or must wait.
    pub error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub sent_at: Option<DateTime<Utc>>,
    pub body_html: Option<String>,
    pub unsubscribe_url: Option<String>,
    /// The report delivery that the email announces.
    pub delivery_id: Option<i64>,
    /// Whether the delivery's file is attached.
    pub has_file: bool,
}
