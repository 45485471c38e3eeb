//! The inbox: conversations with people on the platforms, and replies to them.

use std::collections::HashMap;

use crier_domain::account::AccountStatus;
use crier_domain::catalogue::descriptor;
use crier_domain::conversation::{self, ConversationStatus, MessageDirection, MessageStatus};
use crier_domain::plan::Feature;
use crier_domain::platform::{ConversationType, Platform};
use crier_platforms::inbox::ReplyThread;
use crier_store::conversations::{self, replies};
use crier_store::{Conn, Tx, accounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};
use crate::routes::posts::TargetError;

pub mod assign;
pub mod list;
pub mod read;
pub mod reply;
pub mod show;
pub mod status;
pub mod sync;
pub mod tags;

pub const TAG: &str = "Inbox";
pub const FEATURES: &[Feature] = &[Feature::Inbox];

/// The maximum number of messages in a conversation's details and their total size, in bytes. The newest are included.
const MAX_MESSAGES: i64 = 500;
const MAX_MESSAGES_SIZE: i64 = 2 << 20;

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        show::endpoint().erase(),
        reply::endpoint().erase(),
        status::endpoint().erase(),
        assign::endpoint().erase(),
        tags::endpoint().erase(),
        read::endpoint().erase(),
        sync::endpoint().erase(),
    ]
}

/// The other participant in a conversation, as named by the platform.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Participant {
    pub name: Option<String>,
    pub username: Option<String>,
    #[schemars(url)]
    pub avatar_url: Option<String>,
    pub external_id: Option<String>,
}

/// The subject of a conversation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConversationSubject {
    pub external_id: String,
    #[schemars(url)]
    pub url: Option<String>,
    /// The ID of the brand's post, if Crier published it.
    pub post_id: Option<i64>,
}

/// The fields of a conversation, with or without its messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConversationFields {
    #[schemars(with = "TextEnum<ConversationType>")]
    pub r#type: ConversationType,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    pub account_id: i64,
    #[schemars(with = "TextEnum<ConversationStatus>")]
    pub status: ConversationStatus,
    pub participant: Participant,
    pub subject: Option<ConversationSubject>,
    pub assignee_id: Option<i64>,
    pub tags: Vec<String>,
    pub unread_count: i32,
    pub can_reply: bool,
    /// The reason Crier cannot reply, as a sentence. Null if `can_reply` is true.
    #[schemars(extend("x-extension" = true))]
    pub reply_refusal: Option<String>,
    pub snoozed_until: Option<ScheduledTimestamp>,
    pub last_message_at: Timestamp,
    pub last_message_preview: String,
    /// The direction of the message in `last_message_preview`. Null if all messages are deleted.
    #[schemars(with = "Option<TextEnum<MessageDirection>>", extend("x-extension" = true))]
    pub last_message_direction: Option<MessageDirection>,
}

/// A conversation. For the type `dm`, it is with one person on one account. For `comment` and `mention`, it is one
/// thread.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Conversation {
    pub id: i64,
    #[serde(flatten)]
    pub fields: ConversationFields,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The author of a message: a name on the platform or a Crier user.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MessageAuthor {
    pub name: Option<String>,
    pub user_id: Option<i64>,
}

/// A message in a conversation.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    pub id: i64,
    #[schemars(with = "TextEnum<MessageDirection>")]
    pub direction: MessageDirection,
    /// The text of the message. Empty if `deleted_at` is set.
    pub body: String,
    pub author: MessageAuthor,
    /// The status of the message. `received` means that Crier read it from the platform, even if the account wrote it
    /// there. The other values are for replies.
    #[schemars(with = "TextEnum<MessageStatus>")]
    pub status: MessageStatus,
    pub external_id: Option<String>,
    /// The reason a reply failed or is retried.
    pub error: Option<TargetError>,
    pub sent_at: Timestamp,
    /// The time at which Crier found that the message had been deleted on the platform.
    #[schemars(extend("x-extension" = true))]
    pub deleted_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A conversation with its messages.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ConversationDetail {
    pub id: i64,
    #[serde(flatten)]
    pub fields: ConversationFields,
    /// The newest 500 messages with at most 2 MiB of text, oldest first.
    pub messages: Vec<Message>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<conversation::Message> for Message {
    fn from(m: conversation::Message) -> Self {
        Self {
            id: m.id,
            direction: m.direction,
            body: m.body,
            author: MessageAuthor { name: m.author_name, user_id: m.author_user_id },
            status: m.status,
            external_id: m.external_id,
            error: m.error.map(Into::into),
            sent_at: m.sent_at.into(),
            deleted_at: m.deleted_at.map(Timestamp),
            created_at: m.created_at.into(),
            updated_at: m.updated_at.into(),
        }
    }
}

impl Conversation {
    fn new(
        c: conversation::Conversation,
        tags: Vec<String>,
        reply_refusal: Option<String>,
        last_message_direction: Option<MessageDirection>,
    ) -> Self {
        let fields = ConversationFields {
            r#type: c.kind,
            platform: c.platform,
            account_id: c.account_id,
            status: c.status,
            participant: Participant {
                name: c.participant_name,
                username: c.participant_username,
                avatar_url: c.participant_avatar_url,
                external_id: c.participant_external_id,
            },
            subject: c.subject_external_id.map(|external_id| ConversationSubject {
                external_id,
                url: c.subject_url,
                post_id: c.post_id,
            }),
            assignee_id: c.assignee_id,
            tags,
            unread_count: c.unread_count,
            can_reply: reply_refusal.is_none(),
            reply_refusal,
            snoozed_until: c.snoozed_until.map(ScheduledTimestamp),
            last_message_at: c.last_message_at.into(),
            last_message_preview: c.last_message_preview,
            last_message_direction,
        };
        Self { id: c.id, fields, created_at: c.created_at.into(), updated_at: c.updated_at.into() }
    }

    /// Returns conversations with the parts that are stored in other tables.
    async fn load(cx: &Context, conn: &mut Conn, rows: Vec<conversation::Conversation>) -> Result<Vec<Self>> {
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let accounts: Vec<i64> = rows.iter().map(|row| row.account_id).collect();
        let tags = conversations::tags(conn, &ids).await?;
        let accounts = accounts::summaries(conn, cx.brand()?.id, &accounts).await?;
        let directions: HashMap<_, _> = conversations::last_directions(conn, &ids).await?.into_iter().collect();
        let records = rows.into_iter().map(|row| {
            let own = tags.iter().filter(|(id, _)| *id == row.id).map(|(_, tag)| tag.clone()).collect();
            let account = accounts.iter().find(|account| account.id == row.account_id);
            let reply_refusal = reply_refusal(cx, &row, account.map(|account| account.status));
            let direction = directions.get(&row.id).copied();
            Self::new(row, own, reply_refusal, direction)
        });
        Ok(records.collect())
    }
}

impl ConversationDetail {
    async fn load(cx: &Context, conn: &mut Conn, row: conversation::Conversation) -> Result<Self> {
        let messages = replies::messages(conn, row.id, MAX_MESSAGES, MAX_MESSAGES_SIZE).await?;
        let loaded = Conversation::load(cx, conn, vec![row]).await?.pop();
        let c = loaded.ok_or_else(|| ApiError::bug("a conversation was not rendered"))?;
        let messages = messages.into_iter().map(Message::from).collect();
        Ok(Self { id: c.id, fields: c.fields, messages, created_at: c.created_at, updated_at: c.updated_at })
    }
}

fn missing() -> ApiError {
    ApiError::not_found("conversation")
}

/// Locks the conversation in the path.
async fn lock(cx: &Context, tx: &mut Tx) -> Result<conversation::Conversation> {
    conversations::lock(tx, cx.brand()?.id, cx.id("conversation")?).await?.ok_or_else(missing)
}

/// Returns the reason why Crier cannot reply to a conversation. `account` is the status of its account, if the brand
/// has it.
fn reply_refusal(cx: &Context, c: &conversation::Conversation, account: Option<AccountStatus>) -> Option<String> {
    let name = descriptor(c.platform).name;
    match account {
        None => return Some("The account is no longer connected to this brand. Connect it again.".to_owned()),
        Some(AccountStatus::Expired) => {
            return Some("The account's access has expired. Refresh or reconnect it.".to_owned());
        }
        Some(AccountStatus::Active) => {}
    }
    let connector = cx.app.platforms.get(c.platform);
    match connector.as_ref().and_then(|connector| connector.inbox()) {
        Some(inbox) => inbox.rejection(&ReplyThread::from(c), cx.now),
        None => Some(format!("Crier cannot send replies on {name}. Reply on the platform.")),
    }
}
