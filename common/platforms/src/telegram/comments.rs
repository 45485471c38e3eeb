//! First comments, which are possible in channels with a linked group of which the bot is a member.
//!
//! Telegram forwards each post of the channel to the linked group; replies to the forward are the comments. The Bot API
//! cannot look up the forward of a post. It is found in two places:
//!
//! - It is pinned in the group, and `getChat` returns the newest pinned message.
//! - The bot gets an update with it, unless the bot has privacy mode and is not an administrator. `getUpdates` without
//!   an offset returns the first 100 updates, and deletes none, so that the inbox loses nothing.
//!
//! So the forward is not found if a newer message is pinned or this one was unpinned, and the update is not among the
//! first 100 either: the inbox deletes updates after ten minutes, Telegram after 24 hours. This concerns delayed comments
//! in channels with frequent posts. Such a comment fails; it never becomes a reply to another post.
//!
//! Source: "Telegram Bot API": `getUpdates`, `getChat`, `Message` (`is_automatic_forward`), `MessageOriginChannel`,
//! `ChatFullInfo` (`linked_chat_id`, `pinned_message`).

use crier_domain::failure::{Category, Failure};
use crier_domain::post::PublishedPart;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Member, MethodError, Sent, Telegram, TelegramBody, first_message};
use crate::call::Effect;
use crate::{CallError, Published};

#[derive(Deserialize)]
struct ChatInfo {
    #[serde(rename = "type", default)]
    kind: String,
    linked_chat_id: Option<i64>,
    pinned_message: Option<Value>,
}

/// A post of a channel, and the linked group to which Telegram forwards it.
struct ForwardedPost<'a> {
    channel: &'a str,
    message: i64,
    group: i64,
}

impl ForwardedPost<'_> {
    /// Returns the id of a message of the group if it is the forward of the post.
    fn id_if_forward(&self, message: &Value) -> Option<i64> {
        let origin = &message["forward_origin"];
        let is_forward = message["is_automatic_forward"].as_bool() == Some(true)
            && message["chat"]["id"].as_i64() == Some(self.group)
            && origin["chat"]["id"].as_i64().is_some_and(|id| id.to_string() == self.channel)
            && origin["message_id"].as_i64() == Some(self.message);
        message["message_id"].as_i64().filter(|_| is_forward)
    }
}

impl Telegram {
    /// Comments on a post of the channel. The id of the comment is `group:message`, as in the inbox.
    pub(super) async fn comment(
        &self,
        token: &SecretString,
        channel: &str,
        post: &PublishedPart,
        text: &str,
    ) -> Result<Published, CallError> {
        let group = self.joined_group(token, channel).await?.ok_or_else(no_group)?;
        let message = first_message(channel, post).ok_or_else(no_forward)?;
        let forward = self.find_forward(token, &ForwardedPost { channel, message, group }).await?;
        let forward = forward.ok_or_else(no_forward)?;
        // Unlike other replies, a comment is not sent if its post was deleted.
        let body = json!({ "chat_id": group, "text": text, "reply_parameters": { "message_id": forward } });
        let sent = self.call(Effect::Publishes, token, "sendMessage", TelegramBody::Json(body)).await;
        let sent: Sent = sent.map_err(MethodError::into_error)?;
        Ok(Published::new(format!("{group}:{}", sent.message_id), sent.url()))
    }

    /// Returns the linked group of a channel. `None` if there is none, or if the bot is not a member of it.
    async fn joined_group(&self, token: &SecretString, channel: &str) -> Result<Option<i64>, CallError> {
        let chat = self.chat_info(token, Value::from(channel)).await?;
        // The linked chat of a group is its channel.
        let Some(group) = chat.linked_chat_id.filter(|_| chat.kind == "channel") else { return Ok(None) };
        let bot = token.expose_secret().split(':').next().and_then(|id| id.parse::<i64>().ok());
        let body = TelegramBody::Json(json!({ "chat_id": group, "user_id": bot }));
        let member: Result<Member, MethodError> = self.call(Effect::Repeatable, token, "getChatMember", body).await;
        match member.map_err(MethodError::into_error) {
            Ok(member) if matches!(member.status.as_str(), "left" | "kicked") => Ok(None),
            Ok(_) => Ok(Some(group)),
            Err(CallError::Permanent(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the id of the forward of a post in the linked group. `None` if it was not found.
    async fn find_forward(&self, token: &SecretString, post: &ForwardedPost<'_>) -> Result<Option<i64>, CallError> {
        let pinned = self.chat_info(token, Value::from(post.group)).await?.pinned_message;
        if let Some(id) = pinned.and_then(|message| post.id_if_forward(&message)) {
            return Ok(Some(id));
        }
        let updates = self.updates(token, None).await?;
        Ok(updates.iter().find_map(|update| post.id_if_forward(&update["message"])))
    }

    async fn chat_info(&self, token: &SecretString, chat: Value) -> Result<ChatInfo, CallError> {
        let body = TelegramBody::Json(json!({ "chat_id": chat }));
        self.call(Effect::Repeatable, token, "getChat", body).await.map_err(MethodError::into_error)
    }
}

fn no_group() -> CallError {
    let message = "The channel has no linked group of which the bot is a member. On Telegram, link a group to the channel \
                   and add the bot to it as an administrator.";
    CallError::Permanent(Failure::with_code(Category::PlatformRejected, "not_supported", message))
}

fn no_forward() -> CallError {
    let message = "Crier did not find the post in the channel's linked group. If no comment is published, make the bot an \
                   administrator of the group.";
    CallError::ParentMissing(Failure::of(Category::PlatformRejected, message))
}
