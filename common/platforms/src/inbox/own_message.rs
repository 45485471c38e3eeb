//! Finds a reply whose response was lost among what the account said, where a platform takes no key of ours.

use chrono::{DateTime, Utc};

use super::OutgoingReply;
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};
use crate::{Published, Reconciled};

/// A message of the account itself, that may be a reply whose answer was lost.
pub struct OwnMessage {
    pub id: String,
    pub text: String,
    pub at: Option<DateTime<Utc>>,
    pub url: Option<String>,
}

/// Looks for a reply among all that the account said lately, by its words and time.
pub fn find_reply(reply: &OutgoingReply, messages: impl Iterator<Item = OwnMessage>) -> Reconciled {
    let listed = messages.map(|one| Listed {
        at: one.at,
        is_same: is_same(&one.text, &reply.text),
        published: Published::new(one.id, one.url),
    });
    find(CallWindow::of(reply.called_at), listed.collect(), usize::MAX)
}
