//! The inbox of Telegram: private chats with the bot, comments on a channel's posts (in its discussion group, of which
//! the bot must be a member), and replies to the bot in a group.
//!
//! Telegram keeps a bot's updates for 24 hours in one queue, and deletes those before the offset of a call. Accounts
//! that share a bot share its queue, and each must read all of it. So an offset is sent only after the page was stored,
//! and only for updates that are some minutes old (or if the page is full). A webhook would take over the queue; Crier
//! sets none.
//!
//! A bot cannot list its own messages, so an unknown outcome of a reply is final. In a group, an update names the post
//! and the message that it replies to, but not those between, so a conversation is one user under one post.
//!
//! Source: "Telegram Bot API": `getUpdates`, `Message` (`message_thread_id`, `is_automatic_forward`, `sender_chat`),
//! `ChatFullInfo` (`linked_chat_id`), `ReplyParameters`.

use std::collections::BTreeMap;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConversationType, Platform};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{MethodError, Sent, Telegram, TelegramBody, reply_parameters};
use crate::call::Effect;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::{CallError, ConnectorAccount, InboxConnector, Published, ReconcileResult};

const UPDATES: &str = "updates";
const PAGE: usize = 100;
/// The minimum age of an update before Telegram deletes it, so that other accounts with the same bot have read it.
const RETENTION: TimeDelta = TimeDelta::minutes(10);
/// The fields of a message without text that contain media.
const MEDIA: [&str; 9] =
    ["photo", "video", "animation", "audio", "voice", "video_note", "document", "sticker", "location"];

#[derive(Deserialize)]
struct Update {
    update_id: i64,
    #[serde(alias = "edited_message")]
    message: Option<Value>,
}

#[derive(Deserialize)]
struct Incoming {
    message_id: i64,
    date: i64,
    chat: super::Chat,
    from: Option<Sender>,
    sender_chat: Option<Named>,
    message_thread_id: Option<i64>,
    #[serde(default)]
    is_automatic_forward: bool,
    reply_to_message: Option<ReplyTarget>,
    text: Option<String>,
    caption: Option<String>,
}

/// The message that a message replies to.
#[derive(Deserialize)]
struct ReplyTarget {
    message_id: i64,
    from: Option<Sender>,
    sender_chat: Option<Named>,
    #[serde(default)]
    is_automatic_forward: bool,
    forward_origin: Option<Origin>,
}

#[derive(Deserialize)]
struct Origin {
    message_id: Option<i64>,
    chat: Option<Named>,
}

#[derive(Deserialize)]
struct Named {
    id: i64,
    username: Option<String>,
}

#[derive(Deserialize)]
struct Sender {
    id: i64,
    #[serde(default)]
    first_name: String,
    last_name: Option<String>,
    username: Option<String>,
}

#[derive(Deserialize)]
struct Linked {
    linked_chat_id: Option<i64>,
}

impl Sender {
    fn name(&self) -> String {
        match &self.last_name {
            Some(last) => format!("{} {last}", self.first_name),
            None => self.first_name.clone(),
        }
    }

    fn participant(&self) -> Participant {
        Participant {
            external_id: self.id.to_string(),
            name: Some(self.name()),
            username: self.username.clone(),
            // The URL of an image contains the bot's token.
            avatar_url: None,
        }
    }
}

/// The chats that belong to an account.
struct Chats {
    /// The channel or group.
    own: String,
    /// The channel's discussion group.
    linked: Option<i64>,
    bot: String,
}

impl Chats {
    fn is_ours(&self, chat: Option<&Named>) -> bool {
        chat.is_some_and(|chat| chat.id.to_string() == self.own || Some(chat.id) == self.linked)
    }

    /// Returns whether a message of a group is from the account: a post of the channel, or a message of the bot.
    fn is_from_us(&self, target: &ReplyTarget) -> bool {
        let is_bot = target.from.as_ref().is_some_and(|from| from.id.to_string() == self.bot);
        target.is_automatic_forward || is_bot || self.is_ours(target.sender_chat.as_ref())
    }

    fn message(&self, message: Incoming) -> Option<FetchedMessage> {
        let body = message.text.clone().or_else(|| message.caption.clone()).unwrap_or_default();
        let sent_at = DateTime::from_timestamp(message.date, 0)?;
        let chat = message.chat.id;
        let from = message.from.as_ref()?;
        let context = Map::from_iter([
            ("chat".to_owned(), Value::from(chat)),
            ("message".to_owned(), Value::from(message.message_id)),
        ]);
        let base = FetchedMessage {
            external_id: format!("{chat}:{}", message.message_id),
            kind: ConversationType::Dm,
            thread_id: chat.to_string(),
            direction: MessageDirection::Inbound,
            participant: Some(from.participant()),
            subject: None,
            author_name: Some(from.name()),
            body,
            sent_at,
            reply_context: context,
        };
        if message.chat.kind == "private" {
            return Some(base);
        }
        let in_our_chat = chat.to_string() == self.own || Some(chat) == self.linked;
        let target = message.reply_to_message.as_ref().filter(|_| in_our_chat && !message.is_automatic_forward)?;
        let thread = message.message_thread_id.unwrap_or(0);
        // An administrator who writes as the channel or the group replies to a user.
        let is_own = self.is_ours(message.sender_chat.as_ref());
        let person = match is_own {
            true => target.from.as_ref().filter(|_| !self.is_from_us(target))?,
            false if self.is_from_us(target) => from,
            false => return None,
        };
        Some(FetchedMessage {
            kind: ConversationType::Comment,
            thread_id: format!("{chat}:{thread}:{}", person.id),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: (!is_own).then(|| person.participant()),
            subject: self.subject(target, message.message_thread_id),
            author_name: Some(if is_own { message.chat.name() } else { person.name() }),
            ..base
        })
    }

    /// Returns the commented post, if the message names it.
    fn subject(&self, target: &ReplyTarget, thread: Option<i64>) -> Option<Subject> {
        if let Some(Origin { message_id: Some(id), chat: Some(channel) }) = &target.forward_origin {
            let url = channel.username.as_ref().map(|name| format!("https://t.me/{name}/{id}"));
            return (channel.id.to_string() == self.own).then(|| Subject { external_id: id.to_string(), url });
        }
        let is_group = self.linked.is_none();
        is_group.then(|| Subject { external_id: thread.unwrap_or(target.message_id).to_string(), url: None })
    }
}

/// Returns the message of an update, unless it only reports an event (a user joined).
fn incoming(update: &Update) -> Option<Incoming> {
    let value = update.message.as_ref()?;
    let has_content = value["text"].is_string() || value["caption"].is_string();
    let has_content = has_content || MEDIA.iter().any(|kind| !value[*kind].is_null());
    Incoming::deserialize(value).ok().filter(|_| has_content)
}

/// Returns the time at which an update was queued. `None` if it does not matter.
fn queued_at(update: &Update) -> Option<DateTime<Utc>> {
    let message = update.message.as_ref()?;
    DateTime::from_timestamp(message["edit_date"].as_i64().or(message["date"].as_i64())?, 0)
}

/// Returns the cursor after a page, and whether another page follows now.
fn after(cursor: Option<i64>, updates: &[Update], now: DateTime<Utc>) -> (Value, bool) {
    let is_full = updates.len() >= PAGE;
    let is_old = |update: &&Update| is_full || queued_at(update).is_none_or(|at| at <= now - RETENTION);
    let last = updates.iter().take_while(is_old).last().map(|update| update.update_id.saturating_add(1));
    (json!({ "offset": last.or(cursor) }), is_full)
}

/// Converts the error of reading the queue.
fn queue_error(error: MethodError) -> CallError {
    let error = error.into_error();
    if error.failure().platform_code.as_deref() != Some("409") {
        return error;
    }
    let failure = |text: &str| Failure::of(Category::Account, text).from_platform("409");
    if error.failure().message.contains("webhook") {
        return CallError::Permanent(failure(
            "Another program receives this bot's messages through a webhook. Delete the webhook with deleteWebhook, or \
             connect a bot that only Crier uses.",
        ));
    }
    CallError::Transient(failure("Another program reads this bot's messages at the same time."))
}

impl Telegram {
    /// Returns the first page of the bot's updates, beginning at the offset. Without an offset, Telegram deletes none.
    pub(super) async fn updates(&self, token: &SecretString, offset: Option<i64>) -> Result<Vec<Value>, CallError> {
        let mut body = json!({ "limit": PAGE, "timeout": 0, "allowed_updates": ["message", "edited_message"] });
        if let Some(offset) = offset {
            body["offset"] = Value::from(offset);
        }
        let read = self.call(Effect::Repeatable, token, "getUpdates", TelegramBody::Json(body)).await;
        read.map_err(queue_error)
    }

    /// Returns the discussion group of a channel.
    async fn linked_chat(&self, token: &SecretString, chat: &str) -> Result<Option<i64>, CallError> {
        let body = TelegramBody::Json(json!({ "chat_id": chat }));
        let found: Result<Linked, MethodError> = self.call(Effect::Repeatable, token, "getChat", body).await;
        match found.map_err(MethodError::into_error) {
            Ok(found) => Ok(found.linked_chat_id),
            // The bot is no longer in the chat, but private chats continue.
            Err(CallError::Permanent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send_reply(
        &self,
        token: &SecretString,
        chat: i64,
        target: i64,
        text: &str,
    ) -> Result<Published, MethodError> {
        let body = json!({ "chat_id": chat, "text": text, "reply_parameters": reply_parameters(target) });
        let sent: Sent = self.call(Effect::Publishes, token, "sendMessage", TelegramBody::Json(body)).await?;
        Ok(Published::new(format!("{chat}:{}", sent.message_id), sent.url()))
    }
}

#[async_trait]
impl InboxConnector for Telegram {
    fn streams(&self) -> &'static [&'static str] {
        &[UPDATES]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let (token, own) = (account.secrets.require("bot_token")?, account.secrets.require("chat_id")?);
        let offset = cursor.and_then(|cursor| cursor["offset"].as_i64());
        let found = self.updates(&token, offset).await?;
        let updates = found.into_iter().take(PAGE).filter_map(|update| serde_json::from_value(update).ok());
        let updates: Vec<Update> = updates.collect();
        let messages: Vec<Incoming> = updates.iter().filter_map(incoming).collect();
        let own = own.expose_secret();
        let is_elsewhere = |m: &Incoming| m.chat.kind != "private" && m.chat.id.to_string() != own;
        let linked = match messages.iter().any(is_elsewhere) {
            true => self.linked_chat(&token, own).await?,
            false => None,
        };
        let bot = token.expose_secret().split(':').next().unwrap_or_default().to_owned();
        let chats = Chats { own: own.to_owned(), linked, bot };
        let (cursor, has_more) = after(offset, &updates, self.caller.now());
        // Keeps the newest version of each message, because a message and its edits are separate updates.
        let newest: BTreeMap<_, _> = messages.into_iter().map(|m| ((m.chat.id, m.message_id), m)).collect();
        let messages = newest.into_values().filter_map(|message| chats.message(message)).collect();
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Telegram, &catalogue::descriptor(Platform::Telegram).capabilities.text, text)
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let token = account.secrets.require("bot_token")?;
        let number = |name: &str| reply.thread.context.get(name).and_then(Value::as_i64).ok_or_else(no_context);
        let (chat, target) = (number("chat")?, number("message")?);
        match self.send_reply(&token, chat, target, &reply.text).await {
            // Nothing was sent: the group has a new id.
            Err(MethodError::Migrated(chat)) => {
                self.send_reply(&token, chat, target, &reply.text).await.map_err(MethodError::into_error)
            }
            result => result.map_err(MethodError::into_error),
        }
    }

    async fn reconcile(
        &self,
        _account: &ConnectorAccount,
        _reply: &OutgoingReply,
    ) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(id: i64, age: i64) -> Update {
        Update { update_id: id, message: Some(json!({ "date": 1_000_000 - age })) }
    }

    #[test]
    fn only_old_updates_are_deleted_unless_the_page_is_full() {
        let now = DateTime::from_timestamp(1_000_000, 0).unwrap_or_default();
        let of = |updates: &[Update]| after(Some(3), updates, now);
        assert_eq!(of(&[]), (json!({ "offset": 3 }), false));
        assert_eq!(of(&[update(5, 900), update(6, 600), update(7, 5)]), (json!({ "offset": 7 }), false));
        assert_eq!(of(&[update(5, 5), update(6, 900)]), (json!({ "offset": 3 }), false), "in order");
        let full: Vec<_> = (0..100).map(|id| update(id, 1)).collect();
        assert_eq!(of(&full), (json!({ "offset": 100 }), true));
        assert_eq!(after(None, &[], now).0, json!({ "offset": null }));
    }
}
