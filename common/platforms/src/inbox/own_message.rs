//! Finds a reply whose response was lost among the account's own messages, for platforms without idempotency keys.

use chrono::{DateTime, Utc};

use super::OutgoingReply;
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};
use crate::{Published, ReconcileResult};

/// A message that the account sent, which may be the reply.
pub struct OwnMessage {
    pub id: String,
    pub text: String,
    pub at: Option<DateTime<Utc>>,
    pub url: Option<String>,
}

/// Searches the account's recent messages for a reply, by its text and time.
pub fn find_reply(reply: &OutgoingReply, messages: impl Iterator<Item = OwnMessage>) -> ReconcileResult {
    let listed = messages.map(|one| Listed {
        at: one.at,
        is_same: is_same(&one.text, &reply.text),
        published: Published::new(one.id, one.url),
    });
    find(CallWindow::of(reply.called_at), listed.collect(), usize::MAX)
}
