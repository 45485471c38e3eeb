//! Reads the messages of an account and sends replies: [`InboxConnector`].
//!
//! **To add a platform's inbox:** create `<name>/inbox.rs` with an `InboxConnector` and return it from
//! [`Connector::inbox`]. Add the kinds of conversations that are read (`inbox`) and that can be replied to (`replies`)
//! to the catalogue. Add a migration that inserts a row of `inbox_syncs` for the accounts that are already connected.
//! Test it against a server that behaves as the platform's documentation specifies, with pages, overlaps, errors and
//! limits. If the platform reports deleted messages reliably, implement [`InboxConnector::deleted`].
//!
//! A stream is a list of messages in one order with one cursor: comments, or direct messages. If one stream fails, the
//! others continue. A stream overlaps what was read before if the platform may show a message late; each message is
//! stored once, by its id. [`newest_first`] reads lists that begin with the newest entry, [`by_post`] reads comments
//! that are listed by post, and [`parents`] finds the comment that begins a thread. [`permission`] handles streams that
//! need a permission which the account may lack, and [`own_message`] replies whose response was lost.
//!
//! [`Connector::inbox`]: super::Connector::inbox

pub(super) mod by_post;
pub(super) mod newest_first;
pub(super) mod own_message;
pub(super) mod parents;
pub(super) mod permission;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{Conversation, FetchedMessage};
use crier_domain::failure::{Category, Failure};
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{ConversationType, Platform, TextRules};
use serde_json::{Map, Value};

use super::{CallError, ConnectorAccount, Marker, MarkerSeed, Published, ReconcileResult, text};

/// The maximum number of messages per page. The largest page that a connector requests has 6,875: 25 posts of Instagram
/// with 25 comments each, with 10 replies each.
pub const MAX_PAGE: usize = 10_000;
/// The maximum size of a stream's cursor, in bytes of JSON.
pub const MAX_CURSOR: usize = 16 * 1024;

/// A page of a stream.
#[derive(Clone, Debug, Default)]
pub struct InboxPage {
    pub messages: Vec<FetchedMessage>,
    /// The position of the next page. It is stored with the messages and passed to the next [`InboxConnector::fetch`],
    /// in this run or a later one.
    pub cursor: Value,
    /// Whether more messages are available now.
    pub has_more: bool,
    /// Set if the platform does not let the account read this stream until a user changes something. `…/sync` returns
    /// it, and the sync succeeds.
    pub unavailable: Option<Failure>,
}

/// The conversation that a reply goes to.
#[derive(Clone, Debug)]
pub struct ReplyThread {
    pub kind: ConversationType,
    pub thread_id: String,
    pub participant_external_id: Option<String>,
    pub subject_external_id: Option<String>,
    pub last_inbound_at: Option<DateTime<Utc>>,
    /// The limits of the account, for [`InboxConnector::check_text`].
    pub limits: Option<AccountLimits>,
    /// The context that [`InboxConnector::fetch`] returned with the newest message, at the time of a reply's first
    /// attempt.
    pub context: Map<String, Value>,
}

impl From<&Conversation> for ReplyThread {
    fn from(c: &Conversation) -> Self {
        Self {
            kind: c.kind,
            thread_id: c.thread_id.clone(),
            participant_external_id: c.participant_external_id.clone(),
            subject_external_id: c.subject_external_id.clone(),
            last_inbound_at: c.last_inbound_at,
            limits: None,
            context: c.reply_context.clone(),
        }
    }
}

/// A reply to send.
#[derive(Clone, Debug)]
pub struct OutgoingReply {
    pub message_id: i64,
    pub text: String,
    pub thread: ReplyThread,
    /// The value returned by [`InboxConnector::marker`], stored before the first call.
    pub marker: Marker,
    /// The attempt number, from 1.
    pub attempt: u32,
    /// The time, by Crier's clock, of the call that [`InboxConnector::reconcile`] looks up. `None` if unknown.
    pub called_at: Option<DateTime<Utc>>,
}

/// Reads messages and sends replies. Each call has the deadline of the connector's HTTP client.
#[async_trait]
pub trait InboxConnector: Send + Sync {
    /// Returns the names of the streams. They are stored with the cursors, so they must never change.
    fn streams(&self) -> &'static [&'static str];

    /// Returns whether the account with this id has an inbox. `false` for a user's account if the platform has inboxes
    /// for pages only.
    fn reads(&self, _external_id: &str) -> bool {
        true
    }

    /// Returns the interval between syncs of an account.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(1)
    }

    /// Reads the page of a stream at the cursor, or the first page if there is none. Changes nothing on the platform.
    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError>;

    /// Returns the maximum number of messages per call of [`InboxConnector::deleted`]. 0 if the platform does not
    /// report deleted messages.
    fn deletion_check_limit(&self) -> usize {
        0
    }

    /// Returns the ids of the received messages that were deleted on the platform. Includes only those that the
    /// platform documents as deleted: not hidden ones, nor those that the account may not see.
    async fn deleted(&self, _account: &ConnectorAccount, _ids: &[String]) -> Result<Vec<String>, CallError> {
        Ok(Vec::new())
    }

    /// Returns why the thread cannot be replied to now, as a sentence for users.
    fn rejection(&self, _thread: &ReplyThread, _now: DateTime<Utc>) -> Option<String> {
        None
    }

    /// Returns an error if the thread does not accept this text, as a sentence for users.
    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String>;

    /// Creates the marker that [`InboxConnector::reconcile`] searches for. `target_id` of the seed is the message's id.
    fn marker(&self, _seed: MarkerSeed) -> Marker {
        Marker::new()
    }

    /// Returns whether [`InboxConnector::reconcile`] can find replies.
    fn can_reconcile(&self) -> bool {
        true
    }

    /// Sends the reply. The marker is already stored. The returned id equals that of the message when it is fetched.
    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError>;

    /// Looks up the reply of an earlier call whose outcome is unknown.
    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError>;
}

/// Returns an error if a text is too long for a reply, as a sentence for users.
pub(super) fn check_length(platform: Platform, rules: &TextRules, text: &str) -> Result<(), String> {
    let name = catalogue::descriptor(platform).name;
    let length = text::length(platform, rules, text);
    if let Some(max) = rules.max.filter(|max| length > *max) {
        return Err(format!("{name} accepts at most {max} characters in a reply; this text has {length}."));
    }
    match rules.max_bytes.filter(|max| text.len() > *max as usize) {
        Some(max) => Err(format!("{name} accepts at most {max} bytes in a reply; this text has {}.", text.len())),
        None => Ok(()),
    }
}

/// Returns the error of a reply to a thread whose context is incomplete.
pub(super) fn no_context() -> CallError {
    let message = "The data needed to reply in this conversation is missing. It arrives with the next message.";
    CallError::Permanent(Failure::of(Category::Internal, message))
}

/// Returns a string from a thread's context.
pub(super) fn context_text<'a>(thread: &'a ReplyThread, name: &str) -> Result<&'a str, CallError> {
    thread.context.get(name).and_then(Value::as_str).ok_or_else(no_context)
}
