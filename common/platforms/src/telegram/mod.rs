//! Telegram, via its Bot API. A bot writes to the channel or group that it was added to.
//!
//! The bot's token is part of every URL, so no URL may ever be shown. `call.rs` creates the errors and never quotes
//! one. A bot cannot list its own messages, so an unknown outcome is final ([`Connector::can_reconcile`] is false).
//!
//! Source: "Telegram Bot API" (core.telegram.org/bots/api), "Making requests", `getMe`, `getChat`, `getChatMember`,
//! `sendMessage`, `sendPhoto`, `sendVideo`, `sendMediaGroup`, `ReplyParameters`, `ResponseParameters`.

mod comments;
mod errors;
mod inbox;
mod unpublish;
mod video;

use async_trait::async_trait;
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::analytics::AccountMetrics;
use crier_domain::catalogue;
use crier_domain::platform::{AccountKind, Descriptor, Platform};
use crier_domain::post::PublishedPart;
use crier_http::multipart::Form;
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::errors::{MethodError, classify_error, strip_prefix};
use super::analytics::MetricsSetAside;
use super::call::{Effect, PlatformClient, connect_error, part, sanitize_message};
use super::metrics::Metrics;
use super::{
    AnalyticsConnector, CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, Image, ImageTransfer,
    InboxConnector, Medium, OutgoingPost, Published, ReconcileResult, RefreshedTokens, ReplyKind, Secrets,
    UnpublishPost, VideoTransfer,
};

/// The characters that are percent-encoded in a token, so that a typed one cannot change the path on the operator's
/// host.
const TOKEN_ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b':').remove(b'-').remove(b'_');

pub(super) struct Telegram {
    caller: PlatformClient,
    base: String,
    metrics: Metrics,
}

impl Telegram {
    pub(super) fn new(config: &PlatformsConfig, clients: &Clients, clock: &Clock) -> Self {
        Self {
            caller: PlatformClient::new(Platform::Telegram, clients.trusted.clone(), clock.clone()),
            base: config.base_url(Platform::Telegram, "https://api.telegram.org"),
            metrics: Metrics::new(Platform::Telegram, config, clock),
        }
    }

    /// Calls a Bot API method with `body`.
    async fn call<T: DeserializeOwned>(
        &self,
        effect: Effect,
        token: &SecretString,
        method: &str,
        body: TelegramBody,
    ) -> Result<T, MethodError> {
        let token = token.expose_secret();
        let url = format!("{}/bot{}/{method}", self.base, utf8_percent_encode(token, TOKEN_ENCODED));
        let request = self.caller.request(Method::POST, &url);
        let (request, video_bytes) = match body {
            TelegramBody::Json(value) => (request.json(&value), 0),
            TelegramBody::Form(form, video_bytes) => (request.multipart(form), video_bytes),
        };
        let response = self.caller.send_bytes(effect, request, video_bytes).await?;
        if response.status.is_success() {
            let reply: Reply<T> = self.caller.read(effect, &response)?;
            return Ok(reply.result);
        }
        let error =
            if response.truncated { None } else { serde_json::from_slice::<TelegramErrorBody>(&response.body).ok() };
        let Some(error) = error else { return Err(self.caller.classify_status(effect, &response, None, None).into()) };
        if let Some(chat) = error.parameters.migrate_to_chat_id {
            return Err(MethodError::Migrated(chat));
        }
        let quoted = sanitize_message(strip_prefix(&error.description), &[token]);
        Err(match (response.status.as_u16(), error.parameters.retry_after) {
            (429, Some(seconds)) => self.caller.rate_limited_for(seconds),
            (status @ (400 | 401 | 403 | 404), _) => classify_error(status, &error.description, quoted),
            _ => self.caller.classify_status(effect, &response, None, quoted),
        }
        .into())
    }

    /// Sends the post to `chat` with the method for its images and videos. A part of a thread replies to the part before.
    async fn send(&self, token: &SecretString, chat: &str, post: &OutgoingPost) -> Result<Published, MethodError> {
        let effect = Effect::Publishes;
        let parent = post.reply_to.as_ref().and_then(|reply| first_message(chat, &reply.parent));
        let form = Form::new().text("chat_id", chat.to_owned());
        let form = match parent {
            Some(parent) => form.text("reply_parameters", reply_parameters(parent).to_string()),
            None => form,
        };
        let media = post.media();
        let messages: Vec<Sent> = match media.as_slice() {
            [] => {
                let mut body = json!({ "chat_id": chat, "text": post.text });
                if let Some(parent) = parent {
                    body["reply_parameters"] = reply_parameters(parent);
                }
                vec![self.call(effect, token, "sendMessage", TelegramBody::Json(body)).await?]
            }
            [Medium::Image(image)] => {
                let form = form.text("caption", post.text.clone()).part("photo", file(image, 0)?);
                vec![self.call(effect, token, "sendPhoto", TelegramBody::Form(form, 0)).await?]
            }
            [Medium::Video(video)] => {
                let form = video::video_form(form, &post.text, video).await?;
                vec![self.call(effect, token, "sendVideo", TelegramBody::Form(form, video.size)).await?]
            }
            media => {
                let form = video::album_form(form, &post.text, media).await?;
                self.call(effect, token, "sendMediaGroup", TelegramBody::Form(form, post.video_bytes())).await?
            }
        };
        // An album has one message per image or video. Comments name the first one.
        let mut ids = messages.iter().map(|m| m.message_id.to_string());
        let published = Published::new(ids.next().unwrap_or_default(), messages.first().and_then(Sent::url));
        Ok(Published { other_ids: ids.collect(), ..published })
    }

    /// Checks that the bot may write to the chat. The error is a sentence for the user who connects it.
    async fn check_write_access(&self, token: &SecretString, chat: &Chat, bot: i64) -> Result<(), ConnectError> {
        let title = chat.name();
        let body = TelegramBody::Json(json!({ "chat_id": chat.id, "user_id": bot }));
        let member: Result<Member, _> = self.call(Effect::Repeatable, token, "getChatMember", body).await;
        let member = member.map_err(|failure| match failure.into_error() {
            CallError::Permanent(_) => {
                ConnectError::Rejected(format!("The bot is not a member of {title}; add it there first."))
            }
            other => connect_error(other, None),
        })?;
        let channel = chat.kind == "channel";
        let (allowed, remedy) = match member.status.as_str() {
            "creator" => (true, ""),
            "administrator" => (!channel || member.can_post_messages, "give it the right to post messages"),
            "member" => (!channel, "make it an administrator with the right to post messages"),
            "restricted" => (member.can_send_messages, "let it send messages"),
            _ => (false, "add it there first"),
        };
        if allowed {
            Ok(())
        } else {
            Err(ConnectError::Rejected(format!("The bot is not allowed to post to {title}: {remedy}.")))
        }
    }
}

#[async_trait]
impl Connector for Telegram {
    fn descriptor(&self) -> &'static Descriptor {
        catalogue::descriptor(Platform::Telegram)
    }

    async fn connect(&self, _workspace_id: i64, credentials: &Secrets) -> Result<Connected, ConnectError> {
        let to_connect_error = |failed: MethodError| connect_error(failed.into_error(), None);
        let token = credentials.require("bot_token").map_err(|e| connect_error(e, None))?;
        let chat_id = credentials.require("chat_id").map_err(|e| connect_error(e, None))?;
        let bot: User = self
            .call(Effect::Repeatable, &token, "getMe", TelegramBody::Json(json!({})))
            .await
            .map_err(to_connect_error)?;

        let typed = chat_id.expose_secret().trim();
        let query = |id: &str| TelegramBody::Json(json!({ "chat_id": id }));
        let chat: Chat = match self.call(Effect::Repeatable, &token, "getChat", query(typed)).await {
            // A group that became a supergroup returns its new id.
            Err(MethodError::Migrated(id)) => {
                self.call(Effect::Repeatable, &token, "getChat", query(&id.to_string())).await
            }
            response => response,
        }
        .map_err(to_connect_error)?;
        // A private chat has no members to query. If the bot can see it, the user wrote to the bot.
        if chat.kind != "private" {
            self.check_write_access(&token, &chat, bot.id).await?;
        }
        let id = chat.id.to_string();
        Ok(Connected {
            name: chat.name(),
            profile_url: chat.username.as_ref().map(|name| format!("https://t.me/{name}")),
            username: chat.username,
            // The URL of an image contains the bot's token.
            avatar_url: None,
            kind: AccountKind::Channel,
            token_expires_at: None,
            renewal: None,
            limits: None,
            application: None,
            // The numeric id stays the same when the @name changes.
            secrets: credentials.with(&[("chat_id", &id)]),
            external_id: id,
        })
    }

    fn analytics(&self) -> Option<&dyn AnalyticsConnector> {
        Some(self)
    }

    fn inbox(&self) -> Option<&dyn InboxConnector> {
        Some(self)
    }

    async fn refresh(&self, account: &ConnectorAccount) -> Result<RefreshedTokens, CallError> {
        let token = account.secrets.require("bot_token")?;
        let checked: Result<User, _> =
            self.call(Effect::Repeatable, &token, "getMe", TelegramBody::Json(json!({}))).await;
        checked.map_err(MethodError::into_error)?;
        Ok(RefreshedTokens { secrets: None, token_expires_at: None, refresh_expires_at: None })
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    fn image_transfer(&self) -> ImageTransfer {
        ImageTransfer::Inline
    }

    fn video_transfer(&self) -> VideoTransfer {
        VideoTransfer::Inline
    }

    async fn publish(&self, account: &ConnectorAccount, post: &OutgoingPost) -> Result<Published, CallError> {
        let token = account.secrets.require("bot_token")?;
        let chat = account.secrets.require("chat_id")?;
        if let Some(reply) = post.reply_to.as_ref().filter(|reply| reply.kind == ReplyKind::Comment) {
            return self.comment(&token, chat.expose_secret(), &reply.parent, &post.text).await;
        }
        match self.send(&token, chat.expose_secret(), post).await {
            // Nothing was posted: the chat has a new id, which is stored with the result.
            Err(MethodError::Migrated(id)) => {
                let id = id.to_string();
                let published = self.send(&token, &id, post).await.map_err(MethodError::into_error)?;
                Ok(Published { secrets: Some(account.secrets.with(&[("chat_id", &id)])), ..published })
            }
            result => result.map_err(MethodError::into_error),
        }
    }

    async fn reconcile(&self, _account: &ConnectorAccount, _post: &OutgoingPost) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }

    async fn unpublish(&self, account: &ConnectorAccount, post: &UnpublishPost) -> Result<(), CallError> {
        self.delete_messages(account, post).await
    }
}

enum TelegramBody {
    Json(Value),
    /// With the number of bytes of its videos.
    Form(Form, u64),
}

/// Telegram reports the number of members of a chat, and no metrics of posts.
#[async_trait]
impl AnalyticsConnector for Telegram {
    async fn account_metrics(
        &self,
        account: &ConnectorAccount,
        _set_aside: &mut MetricsSetAside,
    ) -> Result<AccountMetrics, CallError> {
        let (token, chat) = (account.secrets.require("bot_token")?, account.secrets.require("chat_id")?);
        let body = TelegramBody::Json(json!({ "chat_id": chat.expose_secret() }));
        let members: Result<i64, _> = self.call(Effect::Repeatable, &token, "getChatMemberCount", body).await;
        match members {
            Ok(members) => Ok(self.metrics.account(|name| (name == "getChatMemberCount").then_some(members))),
            Err(MethodError::Migrated(_)) => Ok(AccountMetrics::default()),
            Err(MethodError::Call(error)) => Err(error),
        }
    }
}

/// Returns the id of the message of a post, the first one of an album. `None` if it is not in this chat.
fn first_message(chat: &str, post: &PublishedPart) -> Option<i64> {
    post.external_id.parse().ok().filter(|_| is_in_chat(chat, post.url.as_deref()))
}

/// Returns whether a post with this URL is in the chat. Otherwise it is in the group from which the chat was upgraded,
/// and its id may be that of another message of the chat. Only groups that were not upgraded have posts without URLs.
fn is_in_chat(chat: &str, url: Option<&str>) -> bool {
    url.is_some() || !chat.starts_with("-100")
}

/// Returns the reference to the message that a message replies to. If that was deleted, the message is still sent.
fn reply_parameters(message: i64) -> Value {
    json!({ "message_id": message, "allow_sending_without_reply": true })
}

fn file(image: &Image, index: usize) -> Result<crier_http::multipart::Part, CallError> {
    part(&image.bytes, &image.filename, &image.mime_type)
        .ok_or_else(|| CallError::invalid(format!("The type of image {} cannot be sent.", index + 1)))
}

#[derive(Deserialize)]
struct Reply<T> {
    result: T,
}

#[derive(Deserialize)]
struct TelegramErrorBody {
    #[serde(default)]
    description: String,
    #[serde(default)]
    parameters: Parameters,
}

#[derive(Deserialize, Default)]
struct Parameters {
    retry_after: Option<i64>,
    migrate_to_chat_id: Option<i64>,
}

#[derive(Deserialize)]
struct User {
    id: i64,
}

#[derive(Deserialize)]
struct Chat {
    id: i64,
    #[serde(rename = "type", default)]
    kind: String,
    title: Option<String>,
    username: Option<String>,
    first_name: Option<String>,
    last_name: Option<String>,
}

impl Chat {
    fn name(&self) -> String {
        let person = || {
            let parts: Vec<&str> =
                [&self.first_name, &self.last_name].into_iter().flatten().map(String::as_str).collect();
            (!parts.is_empty()).then(|| parts.join(" "))
        };
        self.title.clone().or_else(person).or_else(|| self.username.clone()).unwrap_or_else(|| self.id.to_string())
    }
}

#[derive(Deserialize)]
struct Member {
    status: String,
    #[serde(default)]
    can_post_messages: bool,
    #[serde(default)]
    can_send_messages: bool,
}

#[derive(Deserialize)]
struct Sent {
    message_id: i64,
    chat: Option<Chat>,
}

impl Sent {
    /// Returns `t.me/<name>/<id>` for a public chat, or else the link that its members can open (with the id of the
    /// channel or supergroup, without the Bot API's prefix `-100`).
    fn url(&self) -> Option<String> {
        let chat = self.chat.as_ref()?;
        if let Some(name) = &chat.username {
            return (chat.kind != "private").then(|| format!("https://t.me/{name}/{}", self.message_id));
        }
        let id = chat.id.to_string();
        id.strip_prefix("-100").map(|inner| format!("https://t.me/c/{inner}/{}", self.message_id))
    }
}
