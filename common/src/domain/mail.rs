//! A mail that Crier sends.
//!
//! It is `pending` until the mail server has taken it (`sent`) or nobody tries any more (`failed`); an operator who runs the
//! job of a failed one again makes it `pending`.

use chrono::{DateTime, Utc};

crate::text_enum! {
    pub enum MailStatus { Pending = "pending", Sent = "sent", Failed = "failed" }
}

/// A row of the outbox.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Mail {
    pub id: i64,
    /// On whose behalf; the recipient may be somebody else.
    pub user_id: i64,
    pub recipient: String,
    pub subject: String,
    pub body_text: String,
    /// Made once, with the row, and the same at every try: whoever gets the mail twice can see that it is one.
    pub message_id: String,
    pub status: MailStatus,
    /// Why it has failed, or has to wait.
    pub error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub sent_at: Option<DateTime<Utc>>,
}
