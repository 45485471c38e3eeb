//! Reading the messages of an account, and answering them: [`InboxConnector`].
//!
//! **To add a platform's inbox:** `<name>/inbox.rs` with an `InboxConnector`; return it from
//! [`Connector::inbox`]; name what is read in the catalogue (`inbox`) and what can be answered (`replies`); a
//! migration that inserts a row of `inbox_syncs` for the accounts that are connected already; tests against a server
//! that behaves as the platform's documentation specifies, with pages, overlaps, errors and limits. Where the platform
//! says for certain that a message was deleted, [`InboxConnector::deleted`] asks it.
//!
//! A stream is what the platform lists in one order with one cursor: comments, direct messages. One that fails does
//! not hold up the others. Streams overlap what was read before where the platform may show a message late: a message
//! is stored once, by its id. [`newest_first`] reads lists that begin with the newest, [`by_post`] comments that are
//! listed by their posts, [`parents`] finds the comment that begins a thread. [`refused`] is for a stream that needs a
//! permission which the account may lack, [`said`] for a reply whose answer was lost.
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

use super::{CallError, ConnectorAccount, Marker, MarkerSeed, Published, Reconciled, text};

/// How many messages a page may have; a connector asks for fewer.
pub const MAX_PAGE: usize = 1_000;

/// A page of a stream.
#[derive(Clone, Debug, Default)]
pub struct InboxPage {
    pub messages: Vec<FetchedMessage>,
    /// Where the next page begins: stored with the messages, and passed to the next [`InboxConnector::fetch`], in
    /// this run or in a later one.
    pub cursor: Value,
    /// There is more to be read now.
    pub has_more: bool,
    /// The platform does not let the account read this stream, and only a person can change that. It is shown in the
    /// answer of `…/sync`, and is no failure of the look.
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
    /// What [`InboxConnector::fetch`] gave with the newest message.
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

/// A reply to be sent.
#[derive(Clone, Debug)]
pub struct OutgoingReply {
    pub message_id: i64,
    pub text: String,
    pub thread: ReplyThread,
    /// The value returned by [`InboxConnector::marker`], stored before the first call.
    pub marker: Marker,
    /// The attempt number, from 1.
    pub attempt: u32,
    /// When the call began that [`InboxConnector::reconcile`] asks about, by our clock; `None`: it is not known.
    pub called_at: Option<DateTime<Utc>>,
}

/// Reads and answers messages. Each call has the deadline of the connector's HTTP client.
#[async_trait]
pub trait InboxConnector: Send + Sync {
    /// Returns the names of the streams. They are stored with the cursors: never change one.
    fn streams(&self) -> &'static [&'static str];

    /// Returns whether the account with this id has an inbox; `false` where a platform has one for pages alone.
    fn reads(&self, _external_id: &str) -> bool {
        true
    }

    /// Returns how often an account is looked at.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(1)
    }

    /// Reads the page of a stream after the cursor; without one, the first page ever. Changes nothing at the platform.
    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError>;

    /// Returns how many messages [`InboxConnector::deleted`] takes at once; 0: the platform does not say what was deleted.
    fn checked_at_once(&self) -> usize {
        0
    }

    /// Returns which of these messages of the other side (their ids) were deleted at the platform. Only what its
    /// documents make certain: a message that is hidden, or that the account may not see, is none of them.
    async fn deleted(&self, _account: &ConnectorAccount, _ids: &[String]) -> Result<Vec<String>, CallError> {
        Ok(Vec::new())
    }

    /// Returns why the thread cannot be answered now, in a sentence for a person.
    fn refusal(&self, thread: &ReplyThread, now: DateTime<Utc>) -> Option<String>;

    /// Returns why the thread does not take this text, in a sentence.
    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String>;

    /// Creates the marker that [`InboxConnector::reconcile`] looks for; `target_id` of the seed is the message's id.
    fn marker(&self, _seed: MarkerSeed) -> Marker {
        Marker::new()
    }

    /// Returns whether [`InboxConnector::reconcile`] can find replies.
    fn can_reconcile(&self) -> bool;

    /// Sends the reply. The marker is already stored. The id of the result is that of the message when it is fetched.
    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError>;

    /// Looks up the reply of an earlier call whose outcome is unknown.
    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Reconciled, CallError>;
}

/// Returns why a text is too long for a reply, in a sentence.
pub(super) fn check_length(platform: Platform, rules: &TextRules, text: &str) -> Result<(), String> {
    let name = catalogue::descriptor(platform).name;
    let length = text::length(platform, rules, text);
    if let Some(max) = rules.max.filter(|max| length > *max) {
        return Err(format!("{name} accepts at most {max} characters in a reply; this text counts {length}."));
    }
    match rules.max_bytes.filter(|max| text.len() > *max as usize) {
        Some(max) => Err(format!("{name} accepts at most {max} bytes in a reply; this text has {}.", text.len())),
        None => Ok(()),
    }
}

/// Returns the error of a reply to a thread without what is needed to answer it.
pub(super) fn no_context() -> CallError {
    let message = "The data needed to reply in this conversation is missing. It arrives with the next message.";
    CallError::Permanent(Failure::of(Category::Internal, message))
}

/// Returns a text of a thread's context.
pub(super) fn context_text<'a>(thread: &'a ReplyThread, name: &str) -> Result<&'a str, CallError> {
    thread.context.get(name).and_then(Value::as_str).ok_or_else(no_context)
}
