//! Deletes posts, parts of threads and first comments.
//!
//! Source: "Telegram Bot API": `deleteMessages`, `deleteMessage` (its limits).

use std::collections::BTreeSet;

use crier_domain::failure::{Category, Failure};
use secrecy::ExposeSecret;
use serde_json::json;

use super::{MethodError, Telegram, TelegramBody, is_in_chat};
use crate::call::Effect;
use crate::{CallError, ConnectorAccount, UnpublishPost};

impl Telegram {
    /// Deletes the messages of a post. Telegram skips those that no longer exist.
    pub(super) async fn delete_messages(
        &self,
        account: &ConnectorAccount,
        post: &UnpublishPost,
    ) -> Result<(), CallError> {
        let (token, own) = (account.secrets.require("bot_token")?, account.secrets.require("chat_id")?);
        let (chat, messages) = messages_of(own.expose_secret(), post);
        if messages.is_empty() {
            let message =
                "Crier cannot delete this post because the chat's ID has changed since. Delete it on Telegram.";
            return Err(CallError::Permanent(Failure::with_code(Category::Account, "not_supported", message)));
        }
        let body = TelegramBody::Json(json!({ "chat_id": chat, "message_ids": messages }));
        let deleted: Result<bool, MethodError> = self.call(Effect::Repeatable, &token, "deleteMessages", body).await;
        match deleted.map_err(MethodError::into_error) {
            Err(error) if !error.failure().message.contains("message to delete not found") => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns the chat of a post and the ids of its messages there. No ids if it is not in the account's chat.
fn messages_of<'a>(own: &'a str, post: &'a UnpublishPost) -> (&'a str, BTreeSet<i64>) {
    // The id of a first comment begins with its group.
    if let Some((group, message)) = post.external_id.rsplit_once(':') {
        return (group, message.parse::<i64>().into_iter().collect());
    }
    let ids = std::iter::once(&post.external_id).chain(&post.other_ids);
    let ids = ids.filter(|_| is_in_chat(own, post.url.as_deref()));
    (own, ids.filter_map(|id| id.parse().ok()).collect())
}
