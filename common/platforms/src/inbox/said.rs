//! Finds a reply whose answer was lost among what the account said, where a platform takes no key of ours.

use chrono::{DateTime, TimeDelta, Utc};

use super::OutgoingReply;
use crate::{CallError, Published, Reconciled, marker_time};

/// By how much a platform's clock may be behind ours.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);

/// A message of the account itself, that may be a reply whose answer was lost.
pub struct Said {
    pub id: String,
    pub text: String,
    pub at: Option<DateTime<Utc>>,
    pub url: Option<String>,
}

/// Looks for a reply among what the account said, the newest first, by its words and time.
pub fn find_reply(reply: &OutgoingReply, said: impl DoubleEndedIterator<Item = Said>) -> Result<Reconciled, CallError> {
    let since = marker_time(&reply.marker)? - CLOCK_SKEW;
    let is_it = |one: &Said| {
        let is_since = one.at.is_some_and(|at| at >= since);
        is_since && one.text.trim() == reply.text.trim() && !reply.sent.contains(&one.id)
    };
    let found = said.rev().find(is_it);
    Ok(found.map_or(Reconciled::Absent, |one| Reconciled::Found(Published::new(one.id, one.url))))
}
