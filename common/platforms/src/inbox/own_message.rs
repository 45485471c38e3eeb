//! Finds a reply or a first comment whose response was lost among the account's own messages, for platforms without
//! idempotency keys.

use chrono::{DateTime, Utc};

use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};
use crate::{Published, ReconcileResult};

/// A message that the account sent, which may be the one that is looked up.
pub struct OwnMessage {
    pub id: String,
    pub text: String,
    pub at: Option<DateTime<Utc>>,
    pub url: Option<String>,
}

/// The account's own messages below a post or a message.
pub struct OwnMessages {
    pub messages: Vec<OwnMessage>,
    /// Whether there are no others.
    pub are_complete: bool,
}

impl OwnMessages {
    /// Searches for a message with this text, sent by a call that began at `called_at`. If the message is not found and
    /// there may be others, nothing is known.
    pub fn find(self, text: &str, called_at: Option<DateTime<Utc>>) -> ReconcileResult {
        let listed = self.messages.into_iter().map(|one| Listed {
            at: one.at,
            is_same: is_same(&one.text, text),
            published: Published::new(one.id, one.url),
        });
        match find(CallWindow::of(called_at), listed.collect(), usize::MAX) {
            ReconcileResult::Absent if !self.are_complete => ReconcileResult::Unsupported,
            found => found,
        }
    }
}
