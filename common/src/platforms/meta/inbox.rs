//! What the inboxes of Meta's platforms share: permissions that are missing, and replies whose answer was lost.
//!
//! Meta answers "does not exist" (100/33) for what an account may not see and for what was deleted. Neither says that
//! the account's access has ended: that shows when it publishes.

use chrono::{DateTime, TimeDelta, Utc};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::graph::GraphFailure;
use super::insights::is_gone;
use crate::domain::failure::{Category, Failure};
use crate::platforms::inbox::refused::refused;
use crate::platforms::inbox::{InboxPage, OutgoingReply};
use crate::platforms::{CallError, ConnectorAccount, Published, Reconciled, marker_time};

/// How often an account is looked at. A page or a profile that few people see has some 5,000 calls a day.
pub(in crate::platforms) const INTERVAL: TimeDelta = TimeDelta::minutes(5);

/// By how much Meta's clock may be behind ours.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);
/// A server that sends more than it was asked for is not read further.
const MAX_ENTRIES: usize = 100;
/// A message to a person whose last one is older than 24 hours.
const WINDOW_CLOSED: [i64; 2] = [2_018_065, 2_018_278];

/// Returns whether an id may become a part of an address: digits, in one or two parts.
pub(in crate::platforms) fn is_object_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 100 && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// Returns the entries of a list that can be read: one that cannot must not hide the others.
pub(in crate::platforms) fn read<T: DeserializeOwned>(entries: &[Value]) -> Vec<T> {
    entries.iter().take(MAX_ENTRIES).filter_map(|entry| T::deserialize(entry).ok()).collect()
}

fn is_permission(failure: &GraphFailure) -> bool {
    matches!(failure.code, 3 | 10 | 200..=299)
}

/// Returns what a look gets for a page of a stream. `again`: the cursor to begin with again; `has_page`: the platform
/// was asked for a page that it named before; `missing`: the failure where the permission is missing.
pub(in crate::platforms) fn page_read(
    account: &ConnectorAccount,
    now: DateTime<Utc>,
    read: Result<InboxPage, GraphFailure>,
    again: Value,
    has_page: bool,
    missing: Failure,
) -> Result<InboxPage, CallError> {
    match read {
        Ok(page) => Ok(page),
        Err(failure) if is_permission(&failure) || is_gone(&failure) => Ok(refused(account, again, now, missing)),
        // The page is not known any more.
        Err(GraphFailure { error: CallError::Permanent(_), .. }) if has_page => {
            Ok(InboxPage { cursor: again, ..InboxPage::default() })
        }
        Err(failure) => Err(failure.error),
    }
}

/// Returns the error of a reply.
pub(in crate::platforms) fn of_reply(failure: GraphFailure, missing: Failure) -> CallError {
    let code = failure.error.failure().platform_code.clone().unwrap_or_default();
    let said = |category, message: &str| CallError::Permanent(Failure::of(category, message).from_platform(&code));
    match &failure {
        GraphFailure { subcode: Some(subcode), .. } if WINDOW_CLOSED.contains(subcode) => {
            said(Category::PlatformRejected, "The 24 hours in which this person can be answered are over.")
        }
        failure if is_permission(failure) => CallError::Permanent(missing.from_platform(&code)),
        failure if is_gone(failure) => said(Category::PlatformRejected, "What is answered here is not there any more."),
        _ => failure.error,
    }
}

/// A message of the account itself, that may be a reply whose answer was lost.
pub(in crate::platforms) struct Said {
    pub(in crate::platforms) id: String,
    pub(in crate::platforms) text: String,
    pub(in crate::platforms) at: Option<DateTime<Utc>>,
    pub(in crate::platforms) url: Option<String>,
}

/// Looks for a reply among what the account said, the newest first, by its words and time.
pub(in crate::platforms) fn find_reply(
    reply: &OutgoingReply,
    said: impl DoubleEndedIterator<Item = Said>,
) -> Result<Reconciled, CallError> {
    let since = marker_time(&reply.marker)? - CLOCK_SKEW;
    let is_it = |one: &Said| {
        let is_since = one.at.is_some_and(|at| at >= since);
        is_since && one.text.trim() == reply.text.trim() && !reply.sent.contains(&one.id)
    };
    let found = said.rev().find(is_it);
    Ok(found.map_or(Reconciled::Absent, |one| Reconciled::Found(Published::new(one.id, one.url))))
}
