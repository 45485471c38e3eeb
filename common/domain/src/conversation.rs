//! The inbox: conversations with people on a platform, and their messages.
//!
//! A `dm` conversation is one person on one account; a `comment` or `mention` conversation is one thread. An account
//! that is in several brands has a conversation in each of them, with a copy of the messages: status, assignee, tags
//! and what is unread are the brand's own.

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
    /// Returns the status after a new message of the other side.
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
    /// `received` is of what was read from the platform, also of what the account said elsewhere; the others are of
    /// replies.
    pub enum MessageStatus { Received = "received", Pending = "pending", Sent = "sent", Failed = "failed" }
}

/// The maximum length of a stored message, in characters. A longer one is cut.
pub const MAX_BODY: usize = 20_000;
/// The maximum length of the preview, in characters.
pub const MAX_PREVIEW: usize = 200;
/// The maximum number of tags of a conversation.
pub const MAX_TAGS: usize = 20;
/// The maximum length of a tag, in characters.
pub const MAX_TAG: usize = 40;

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Conversation {
    pub id: i64,
    pub brand_id: i64,
    pub account_id: i64,
    pub platform: Platform,
    #[sqlx(rename = "type")]
    pub kind: ConversationType,
    pub status: ConversationStatus,
    pub unread_count: i32,
    pub assignee_id: Option<i64>,
    pub snoozed_until: Option<DateTime<Utc>>,
    pub last_message_at: DateTime<Utc>,
    pub last_inbound_at: Option<DateTime<Utc>>,
    /// The post of the brand that is commented.
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
    #[sqlx(json)]
    pub reply_context: Map<String, Value>,
}

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Message {
    pub id: i64,
    pub conversation_id: i64,
    pub direction: MessageDirection,
    pub status: MessageStatus,
    pub sent_at: DateTime<Utc>,
    pub author_user_id: Option<i64>,
    /// The start of a call whose outcome is not known.
    pub call_started_at: Option<DateTime<Utc>>,
    pub attempts: i32,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// When it was seen that it had been deleted at the platform; it has no text then.
    pub deleted_at: Option<DateTime<Utc>>,
    pub external_id: Option<String>,
    pub author_name: Option<String>,
    #[sqlx(json(nullable))]
    pub marker: Option<Map<String, Value>>,
    #[sqlx(json(nullable))]
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

/// What a thread is about: a post of the account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    pub external_id: String,
    pub url: Option<String>,
}

/// A message as the platform shows it, with the thread that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedMessage {
    /// Unique in the account, over all its streams. The same message has the same id each time.
    pub external_id: String,
    pub kind: ConversationType,
    /// The same for all messages of a thread.
    pub thread_id: String,
    pub direction: MessageDirection,
    /// The other side of the thread; `None` if this message does not name it.
    pub participant: Option<Participant>,
    pub subject: Option<Subject>,
    pub author_name: Option<String>,
    /// Plain text. A later one under the same id replaces it.
    pub body: String,
    pub sent_at: DateTime<Utc>,
    /// What the connector needs to answer the thread after this message.
    pub reply_context: Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_message_opens_what_rests_but_not_spam() {
        let after: Vec<_> = ConversationStatus::ALL.iter().map(|status| status.after_inbound().as_str()).collect();
        assert_eq!(after, ["open", "assigned", "open", "open", "spam"]);
    }
}
