//! The inbox: conversations with people on a platform, and their messages.
//!
//! A `dm` conversation contains the messages of one person on one account; a `comment` or `mention` conversation
//! contains one thread. An account of several brands has a conversation in each of them, with its own copy of the
//! messages: status, assignee, tags and unread count belong to the brand.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use super::failure::Failure;
use super::platform::{ConversationType, Platform};

crier_base::text_enum! {
    pub enum ConversationStatus {
        Open = "open",
        Assigned = "assigned",
        Snoozed = "snoozed",
        Resolved = "resolved",
        Spam = "spam",
    }
}

impl ConversationStatus {
    /// Returns the status after an inbound message.
    pub const fn after_inbound(self) -> Self {
        match self {
            Self::Snoozed | Self::Resolved => Self::Open,
            Self::Open | Self::Assigned | Self::Spam => self,
        }
    }
}

crier_base::text_enum! {
    pub enum MessageDirection { Inbound = "inbound", Outbound = "outbound" }
}

crier_base::text_enum! {
    /// `received`: read from the platform, including messages that the account sent outside of Crier. The others are
    /// the statuses of replies.
    pub enum MessageStatus { Received = "received", Pending = "pending", Sent = "sent", Failed = "failed" }
}

/// The maximum length of a stored message, in characters. Longer ones are truncated.
pub const MAX_BODY: usize = 20_000;
/// The maximum length of the preview, in characters.
pub const MAX_PREVIEW: usize = 200;
/// The maximum number of tags of a conversation.
pub const MAX_TAGS: usize = 20;
/// The maximum length of a tag, in characters.
pub const MAX_TAG: usize = 40;

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Conversation {
    pub id: i64,
    pub brand_id: i64,
    pub account_id: i64,
    pub platform: Platform,
    #[cfg_attr(feature = "sqlx", sqlx(rename = "type"))]
    pub kind: ConversationType,
    pub status: ConversationStatus,
    pub unread_count: i32,
    pub assignee_id: Option<i64>,
    pub snoozed_until: Option<DateTime<Utc>>,
    pub last_message_at: DateTime<Utc>,
    pub last_inbound_at: Option<DateTime<Utc>>,
    /// The brand's post that the comments are about.
    pub post_id: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub thread_id: String,
    pub participant_external_id: Option<String>,
    pub participant_name: Option<String>,
    pub participant_username: Option<String>,
    pub participant_avatar_url: Option<String>,
    pub subject_external_id: Option<String>,
    pub subject_url: Option<String>,
    pub last_message_preview: String,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub reply_context: Map<String, Value>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Message {
    pub id: i64,
    pub conversation_id: i64,
    pub direction: MessageDirection,
    pub status: MessageStatus,
    pub sent_at: DateTime<Utc>,
    pub author_user_id: Option<i64>,
    /// The start of a call whose outcome is unknown.
    pub call_started_at: Option<DateTime<Utc>>,
    pub attempts: i32,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// When Crier noticed that the message was deleted at the platform. Then it has no text.
    pub deleted_at: Option<DateTime<Utc>>,
    pub external_id: Option<String>,
    pub author_name: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub marker: Option<Map<String, Value>>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<Failure>,
    pub body: String,
}

/// A person on the platform.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Participant {
    pub external_id: String,
    pub name: Option<String>,
    pub username: Option<String>,
    pub avatar_url: Option<String>,
}

/// The subject of a thread: a post of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub external_id: String,
    pub url: Option<String>,
}

/// A message as read from the platform, with its thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMessage {
    /// Unique within the account, across all its streams, and the same each time the message is read.
    pub external_id: String,
    pub kind: ConversationType,
    /// The same for all messages of a thread.
    pub thread_id: String,
    pub direction: MessageDirection,
    /// The other person in the thread; `None` if this message does not name that person.
    pub participant: Option<Participant>,
    pub subject: Option<Subject>,
    pub author_name: Option<String>,
    /// Plain text. A text that is read later for the same id replaces it.
    pub body: String,
    pub sent_at: DateTime<Utc>,
    /// The data that the connector needs to reply to this message.
    pub reply_context: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inbound_message_reopens_a_conversation_unless_it_is_spam() {
        let after: Vec<_> = ConversationStatus::ALL.iter().map(|status| status.after_inbound().as_str()).collect();
        assert_eq!(after, ["open", "assigned", "open", "open", "spam"]);
    }
}
