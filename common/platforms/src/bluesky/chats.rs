//! Direct messages of Bluesky. They are on a separate server, to which the personal data server forwards requests.
//!
//! An app password has access to them only if the user chose so when creating it. Otherwise, the server returns
//! `InvalidToken` for each call. That must not end the account's access to everything else, so no error in this file
//! expires the account. The notifications, which are read first, do that.
//!
//! A message has no idempotency key. After a call with an unknown outcome, the newest messages of the conversation are
//! searched.
//!
//! Sources: lexicons `chat.bsky.convo.listConvos`, `getMessages`, `sendMessage`, `defs#messageInput` (1,000 graphemes,
//! 10,000 bytes); AT Protocol, "Service proxying".

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConversationType, TextRules, TextUnit};
use crier_http::RequestBuilder;
use http::Method;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::Bluesky;
use super::inbox::Profile;
use super::record::Mentions;
use super::xrpc::{Server, XrpcError};
use crate::call::Effect;
use crate::inbox::newest_first::Pass;
use crate::inbox::{InboxPage, OutgoingReply};
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};
use crate::{CallError, ConnectorAccount, Published, ReconcileResult};

/// The limits of a direct message.
pub(super) const TEXT: TextRules = TextRules {
    max: Some(1_000),
    unit: TextUnit::Graphemes,
    max_bytes: Some(10_000),
    max_with_media: None,
    url_weight: None,
};

const SERVICE: &str = "did:web:api.bsky.chat#bsky_chat";
/// The number of conversations per page, and the number of messages per call. If a conversation has more new messages,
/// only the newest `MESSAGES * MESSAGE_PAGES` are read.
const CONVERSATIONS: &str = "5";
const MESSAGES: &str = "100";
const MESSAGE_PAGES: usize = 2;
/// The pause after the server denied access.
const DENIED_PAUSE: TimeDelta = TimeDelta::minutes(10);

#[derive(Deserialize)]
struct Conversations {
    convos: Vec<Value>,
    cursor: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chat {
    id: String,
    #[serde(default)]
    members: Vec<Profile>,
    last_message: Option<Last>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Last {
    sent_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Messages {
    messages: Vec<Value>,
    cursor: Option<String>,
}

/// A message. Deleted messages have no text, so they fail to parse and are skipped.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message {
    id: String,
    text: String,
    sender: Sender,
    sent_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct Sender {
    did: String,
}

/// Converts the error of a call to one that does not expire the account.
fn chat_error(failed: XrpcError) -> CallError {
    match failed.error {
        // A new session of the same app password would have no access either.
        error if is_access_denied(&failed.name, &error) => CallError::Permanent(no_access()),
        error => error,
    }
}

fn is_access_denied(name: &str, error: &CallError) -> bool {
    let is_auth = matches!(error, CallError::Reauth(_) | CallError::AuthExpired(_));
    is_auth && name != "ExpiredToken"
}

fn no_access() -> Failure {
    let message = "This app password cannot read or send direct messages. On Bluesky, create one that allows access to \
                   direct messages, then connect the account again with it.";
    Failure::with_code(Category::Account, "missing_permission", message)
}

impl Bluesky {
    fn chat(&self, account: &ConnectorAccount, method: Method, name: &str) -> Result<RequestBuilder, CallError> {
        let (server, access) = (self.server(&account.secrets), account.secrets.require("access_jwt")?);
        let request = if method == Method::POST { server.post(name) } else { server.get(name) };
        Ok(request.header("atproto-proxy", SERVICE).bearer_auth(access.expose_secret()))
    }

    async fn get_chat<T: DeserializeOwned>(
        &self,
        account: &ConnectorAccount,
        name: &str,
        query: &[(&str, &str)],
    ) -> Result<T, XrpcError> {
        let server: Server = self.server(&account.secrets);
        server.call(Effect::Repeatable, self.chat(account, Method::GET, name)?.query(query)).await
    }

    /// Reads a page of conversations with their new messages.
    pub(super) async fn chats(
        &self,
        account: &ConnectorAccount,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let now = self.trusted.now();
        let denied_until = cursor.and_then(|c| c["denied_until"].as_str()?.parse::<DateTime<Utc>>().ok());
        let pass = Pass::read(cursor, now);
        if let (Some(cursor), true) = (cursor, denied_until.is_some_and(|until| now < until)) {
            return Ok(InboxPage { cursor: cursor.clone(), unavailable: Some(no_access()), ..InboxPage::default() });
        }
        match self.chats_page(account, pass.clone()).await {
            Ok(page) => Ok(page),
            Err(failed) if is_access_denied(&failed.name, &failed.error) => {
                let mut cursor = pass.restart();
                let until = (now + DENIED_PAUSE).to_rfc3339_opts(SecondsFormat::Micros, true);
                cursor["denied_until"] = Value::from(until);
                Ok(InboxPage { cursor, unavailable: Some(no_access()), ..InboxPage::default() })
            }
            // The page token is no longer valid.
            Err(XrpcError { error: CallError::Permanent(_), .. }) if pass.page.is_some() => {
                Ok(InboxPage { cursor: pass.restart(), ..InboxPage::default() })
            }
            Err(failed) => Err(failed.error),
        }
    }

    async fn chats_page(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, XrpcError> {
        let mut query = vec![("limit", CONVERSATIONS)];
        query.extend(pass.page.as_deref().map(|page| ("cursor", page)));
        let found: Conversations = self.get_chat(account, "chat.bsky.convo.listConvos", &query).await?;
        let chats: Vec<Chat> = found.convos.iter().filter_map(|chat| Chat::deserialize(chat).ok()).collect();
        let times: Vec<_> = chats.iter().filter_map(|chat| Some(chat.last_message.as_ref()?.sent_at)).collect();
        let mut messages = Vec::new();
        for chat in chats {
            if chat.last_message.as_ref().is_some_and(|last| last.sent_at >= pass.until) {
                messages.extend(self.messages_since(account, &chat, pass.until).await?);
            }
        }
        // A conversation without messages has no time, so it does not end the pass.
        let (cursor, has_more) = pass.after(&times, found.cursor);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    async fn messages_since(
        &self,
        account: &ConnectorAccount,
        chat: &Chat,
        since: DateTime<Utc>,
    ) -> Result<Vec<FetchedMessage>, XrpcError> {
        let (mut found, mut page) = (Vec::new(), None);
        for _ in 0..MESSAGE_PAGES {
            let (read, next) = self.messages(account, &chat.id, page.as_deref()).await?;
            let reached = read.iter().any(|message| message.sent_at < since);
            found.extend(read.into_iter().filter(|message| message.sent_at >= since));
            page = next;
            if reached || page.is_none() {
                break;
            }
        }
        Ok(found.into_iter().rev().map(|message| chat.message(&account.external_id, message)).collect())
    }

    /// Returns messages of a conversation, newest first, and the token of the next page.
    async fn messages(
        &self,
        account: &ConnectorAccount,
        chat: &str,
        page: Option<&str>,
    ) -> Result<(Vec<Message>, Option<String>), XrpcError> {
        let mut query = vec![("convoId", chat), ("limit", MESSAGES)];
        query.extend(page.map(|page| ("cursor", page)));
        let found: Messages = self.get_chat(account, "chat.bsky.convo.getMessages", &query).await?;
        let limit = MESSAGES.parse().unwrap_or(usize::MAX);
        let messages = found.messages.iter().take(limit).filter_map(|message| Message::deserialize(message).ok());
        Ok((messages.collect(), found.cursor))
    }

    pub(super) async fn send_message(
        &self,
        account: &ConnectorAccount,
        reply: &OutgoingReply,
    ) -> Result<Published, CallError> {
        let server = self.server(&account.secrets);
        let chat = &reply.thread.thread_id;
        let mut message = json!({ "text": reply.text });
        let facets = self.facets(&server, &reply.text, &mut Mentions::new()).await;
        if !facets.is_empty() {
            message["facets"] = Value::from(facets);
        }
        let body = json!({ "convoId": chat, "message": message });
        let request = self.chat(account, Method::POST, "chat.bsky.convo.sendMessage")?.json(&body);
        let sent: Result<Message, _> = server.call(Effect::Publishes, request).await;
        Ok(sent.map_err(chat_error)?.published(chat))
    }

    /// Searches for the message of an earlier call.
    pub(super) async fn find_message(
        &self,
        account: &ConnectorAccount,
        reply: &OutgoingReply,
    ) -> Result<ReconcileResult, CallError> {
        let chat = &reply.thread.thread_id;
        let (newest, next) = self.messages(account, chat, None).await.map_err(chat_error)?;
        // Deleted messages are omitted from a page.
        let window = CallWindow::of(reply.called_at).with_next_page(next.is_some());
        let listed = newest.into_iter().map(|message| Listed {
            at: Some(message.sent_at),
            is_same: message.sender.did == account.external_id && is_same(&message.text, &reply.text),
            published: message.published(chat),
        });
        Ok(find(window, listed.collect(), MESSAGES.parse().unwrap_or(usize::MAX)))
    }
}

impl Chat {
    fn message(&self, own: &str, message: Message) -> FetchedMessage {
        let sender = self.members.iter().find(|member| member.did == message.sender.did);
        let other = self.members.iter().find(|member| member.did != own);
        FetchedMessage {
            external_id: message.external_id(&self.id),
            kind: ConversationType::Dm,
            thread_id: self.id.clone(),
            direction: match message.sender.did == own {
                true => MessageDirection::Outbound,
                false => MessageDirection::Inbound,
            },
            participant: other.map(Profile::participant),
            subject: None,
            author_name: sender.map(Profile::name),
            body: message.text,
            sent_at: message.sent_at,
            reply_context: Map::new(),
        }
    }
}

impl Message {
    fn external_id(&self, chat: &str) -> String {
        format!("{chat}/{}", self.id)
    }

    fn published(&self, chat: &str) -> Published {
        Published::new(self.external_id(chat), None)
    }
}
