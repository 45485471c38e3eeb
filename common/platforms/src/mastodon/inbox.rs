//! The inbox of Mastodon: the notifications about mentions, and the account's own replies.
//!
//! A status visible only to those mentioned (`direct`) is a direct message, and those of one user are one conversation.
//! A reply to one of the account's statuses begins a thread, which contains everything below that reply. A reply below
//! another author's status is a mention. A status names only its parent, so its ancestors are looked up one by one: the
//! call for a whole thread (`context`) may return thousands.
//!
//! Lists are read from oldest to newest, by id (`min_id`). Each sync begins some minutes before the newest known entry,
//! because an entry may become visible after a later one. The first sync reads only the newest page.
//!
//! Sources: docs.joinmastodon.org, `GET /api/v1/notifications`, `GET /api/v1/accounts/:id/statuses`,
//! `GET /api/v1/statuses/:id`, `POST /api/v1/statuses`; entities Notification, Status; "Posting to your profile" for
//! the length of mentions.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConversationType, Platform};
use crier_html::plain_text;
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rest::{Instance, segment};
use super::{Mastodon, Status, key_marker};
use crate::call::Effect;
use crate::inbox::parents::{MAX_LEVELS, Parents};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, context_text};
use crate::text::comparable::is_same;
use crate::{
    CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, marker_field,
};

const MENTIONS: &str = "mentions";
const OWN_REPLIES: &str = "own_replies";
/// Small, because the ancestors of each entry may have to be looked up, and a server allows 300 calls in 5 minutes.
const PAGE: usize = 15;
const OVERLAP: TimeDelta = TimeDelta::minutes(2);
/// The maximum number of pages per sync.
const PAGES_PER_SYNC: u64 = 20;
const DIRECT: &str = "direct";

#[derive(Clone, Debug, Deserialize)]
struct Account {
    id: String,
    acct: String,
    #[serde(default)]
    display_name: String,
    avatar: Option<String>,
}

#[derive(Clone, Debug, Deserialize)]
struct Mention {
    id: String,
    acct: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Post {
    id: String,
    url: Option<String>,
    #[serde(default)]
    content: String,
    #[serde(default)]
    visibility: String,
    account: Account,
    in_reply_to_id: Option<String>,
    in_reply_to_account_id: Option<String>,
    created_at: DateTime<Utc>,
    #[serde(default)]
    mentions: Vec<Mention>,
}

#[derive(Deserialize)]
struct Notification {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    created_at: DateTime<Utc>,
    status: Option<Post>,
}

/// The position in a list.
struct Position {
    /// The next sync reads newer entries than this one.
    from: Option<String>,
    /// The id at which the next page begins.
    page: Option<String>,
    pages: u64,
}

impl Position {
    fn read(cursor: Option<&Value>) -> Self {
        let text = |name: &str| cursor.and_then(|c| c[name].as_str()).map(str::to_owned);
        let pages = cursor.and_then(|c| c["pages"].as_u64()).unwrap_or(0);
        Self { from: text("from"), page: text("page"), pages }
    }

    fn min_id(&self) -> Option<&str> {
        self.page.as_deref().or(self.from.as_deref())
    }

    /// Returns the cursor after a page, and whether another page follows now. `entries` are the ids and times of the
    /// page, newest first.
    fn after(self, entries: &[(String, DateTime<Utc>)], now: DateTime<Utc>) -> (Value, bool) {
        let settled = entries.iter().find(|(_, at)| *at <= now - OVERLAP).map(|(id, _)| id.clone());
        let oldest = || entries.last().map_or("0".to_owned(), |(id, _)| id.clone());
        let newest = entries.first().map(|(id, _)| id.clone());
        let continues = self.min_id().is_some() && entries.len() >= PAGE && newest.as_deref() != self.min_id();
        let from = settled.or(self.from).unwrap_or_else(oldest);
        match newest.filter(|_| continues) {
            Some(page) => {
                let pages = self.pages + 1;
                (json!({ "from": from, "page": page, "pages": pages }), !pages.is_multiple_of(PAGES_PER_SYNC))
            }
            None => (json!({ "from": from }), false),
        }
    }
}

/// The ancestors of a page's statuses: the parent, the author and the URL of each.
#[derive(Default)]
struct Ancestors {
    parents: Parents,
    known: HashMap<String, (String, Option<String>)>,
}

impl Ancestors {
    fn insert(&mut self, post: &Post) {
        self.parents.insert(&post.id, post.in_reply_to_id.as_deref());
        self.known.insert(post.id.clone(), (post.account.id.clone(), post.url.clone()));
    }
}

impl Post {
    fn is_direct(&self) -> bool {
        self.visibility == DIRECT
    }

    /// Returns the message in its thread. `None` if no other user takes part in it.
    fn message(self, own: &str, ancestors: &Ancestors) -> Option<FetchedMessage> {
        let is_own = self.account.id == own;
        let mentioned = self.mentions.iter().find(|mention| mention.id != own);
        let (other, acct) = match (is_own, mentioned) {
            (false, _) => (self.account.id.clone(), self.account.acct.clone()),
            (true, Some(mention)) => (mention.id.clone(), mention.acct.clone()),
            (true, None) => return None,
        };
        let root = ancestors.parents.top(&self.id);
        let (author, url) = ancestors.known.get(root).cloned().unwrap_or_default();
        let (kind, thread_id) = match (self.is_direct(), author == own) {
            (true, _) => (ConversationType::Dm, other.as_str()),
            (false, true) => (ConversationType::Comment, ancestors.parents.below_top(&self.id)),
            (false, false) => (ConversationType::Mention, root),
        };
        // A status of the account in someone else's thread begins no conversation.
        if is_own && kind == ConversationType::Mention {
            return None;
        }
        let subject = (!self.is_direct()).then(|| Subject { external_id: root.to_owned(), url });
        let context = [("id", self.id.clone()), ("acct", acct), ("visibility", self.visibility.clone())];
        let name = Some(self.account.display_name.clone()).filter(|name| !name.trim().is_empty());
        let name = name.unwrap_or_else(|| self.account.acct.clone());
        let participant = Participant {
            external_id: self.account.id.clone(),
            name: Some(name.clone()),
            username: Some(self.account.acct.clone()),
            avatar_url: self.account.avatar.clone(),
        };
        Some(FetchedMessage {
            kind,
            thread_id: thread_id.to_owned(),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: (!is_own).then_some(participant),
            subject,
            author_name: Some(name),
            body: plain_text(&self.content),
            sent_at: self.created_at,
            reply_context: context.into_iter().map(|(name, text)| (name.to_owned(), Value::from(text))).collect(),
            external_id: self.id,
        })
    }
}

/// Returns the readable entries of a list. An unreadable entry must not hide the others.
fn readable<T: DeserializeOwned>(list: Vec<Value>) -> Vec<T> {
    list.into_iter().take(PAGE).filter_map(|entry| serde_json::from_value(entry).ok()).collect()
}

/// Returns the text with a mention of the recipient, unless it contains one.
fn addressed(text: &str, acct: &str) -> String {
    let mention = format!("@{acct}");
    if text.split_whitespace().any(|word| word == mention) { text.to_owned() } else { format!("{mention} {text}") }
}

/// Returns a text without its leading mentions.
fn without_mentions(text: &str) -> &str {
    let mut text = text.trim_start();
    while let Some((_, rest)) = text.split_once(char::is_whitespace).filter(|(word, _)| word.starts_with('@')) {
        text = rest.trim_start();
    }
    text
}

impl Mastodon {
    async fn page<T: DeserializeOwned>(
        &self,
        instance: &Instance<'_>,
        path: &str,
        filter: &[(&str, &str)],
        min_id: Option<&str>,
    ) -> Result<Vec<T>, CallError> {
        let limit = PAGE.to_string();
        let mut query = vec![("limit", limit.as_str())];
        query.extend(filter);
        query.extend(min_id.map(|id| ("min_id", id)));
        Ok(readable(instance.call(Effect::Repeatable, instance.request(Method::GET, path).query(&query)).await?))
    }

    async fn mentions(&self, instance: &Instance<'_>, own: &str, position: Position) -> Result<InboxPage, CallError> {
        let path = "/api/v1/notifications";
        let found: Vec<Notification> = self.page(instance, path, &[("types[]", "mention")], position.min_id()).await?;
        let entries: Vec<_> = found.iter().map(|entry| (entry.id.clone(), entry.created_at)).collect();
        let posts = found.into_iter().filter(|entry| entry.kind == "mention").filter_map(|entry| entry.status);
        let messages = self.thread_messages(instance, own, posts.collect()).await?;
        let (cursor, has_more) = position.after(&entries, self.client.now());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    async fn own_replies(
        &self,
        instance: &Instance<'_>,
        own: &str,
        position: Position,
    ) -> Result<InboxPage, CallError> {
        let path = format!("/api/v1/accounts/{}/statuses", segment(own));
        let found: Vec<Post> = self.page(instance, &path, &[("exclude_reblogs", "true")], position.min_id()).await?;
        let entries: Vec<_> = found.iter().map(|post| (post.id.clone(), post.created_at)).collect();
        let is_reply = |post: &Post| post.in_reply_to_account_id.as_deref().is_some_and(|id| id != own);
        let posts = found.into_iter().filter(|post| post.account.id == own && (is_reply(post) || post.is_direct()));
        let messages = self.thread_messages(instance, own, posts.collect()).await?;
        let (cursor, has_more) = position.after(&entries, self.client.now());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    /// Returns the statuses as messages in their threads.
    async fn thread_messages(
        &self,
        instance: &Instance<'_>,
        own: &str,
        posts: Vec<Post>,
    ) -> Result<Vec<FetchedMessage>, CallError> {
        let mut ancestors = Ancestors::default();
        posts.iter().for_each(|post| ancestors.insert(post));
        for _ in 0..MAX_LEVELS {
            let ids = posts.iter().filter(|post| !post.is_direct()).map(|post| post.id.as_str());
            let missing = ancestors.parents.missing(ids);
            if missing.is_empty() {
                break;
            }
            for id in missing {
                // If an ancestor was deleted or is hidden from the account, its child begins the thread.
                ancestors.parents.insert(&id, None);
                let request = instance.request(Method::GET, &format!("/api/v1/statuses/{}", segment(&id)));
                let response = self.client.send(Effect::Repeatable, request).await?;
                match response.status {
                    StatusCode::NOT_FOUND | StatusCode::FORBIDDEN | StatusCode::GONE => {}
                    status if status.is_success() => {
                        let post: Post = self.client.read(Effect::Repeatable, &response)?;
                        if post.id == id {
                            ancestors.insert(&post);
                        }
                    }
                    _ => return Err(self.client.classify_status(Effect::Repeatable, &response, None, None)),
                }
            }
        }
        // Oldest first: messages with the same time are stored in this order.
        Ok(posts.into_iter().rev().filter_map(|post| post.message(own, &ancestors)).collect())
    }
}

#[async_trait]
impl InboxConnector for Mastodon {
    fn streams(&self) -> &'static [&'static str] {
        &[MENTIONS, OWN_REPLIES]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let (instance, own) = (self.instance(account)?, account.secrets.require("account_id")?);
        let (own, position) = (own.expose_secret(), Position::read(cursor));
        let read = match stream {
            OWN_REPLIES => self.own_replies(&instance, own, position).await,
            _ => self.mentions(&instance, own, position).await,
        };
        match read {
            Err(CallError::Permanent(failure)) if failure.message.contains("scope") => {
                let message = "This account was connected without permission to read messages to it. Connect it again.";
                let failure = Failure::with_code(Category::Account, "missing_permission", message);
                let cursor = cursor.cloned().unwrap_or_default();
                Ok(InboxPage { cursor, unavailable: Some(failure), ..InboxPage::default() })
            }
            read => read,
        }
    }

    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String> {
        let acct = thread.context.get("acct").and_then(Value::as_str).unwrap_or_default();
        let descriptor = catalogue::descriptor(Platform::Mastodon).with_limits(thread.limits.as_ref());
        check_length(Platform::Mastodon, &descriptor.capabilities.text, &addressed(text, acct))
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        key_marker("crier-reply", seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let instance = self.instance(account)?;
        let context = |name| context_text(&reply.thread, name);
        let body = json!({
            "status": addressed(&reply.text, context("acct")?),
            "in_reply_to_id": context("id")?,
            "visibility": context("visibility")?,
        });
        let request = instance
            .request(Method::POST, "/api/v1/statuses")
            .header("Idempotency-Key", marker_field(&reply.marker, "key")?)
            .json(&body);
        Ok(instance.call::<Status>(Effect::Publishes, request).await?.published())
    }

    /// Ignores leading mentions, because [`addressed`] may have added one.
    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let (instance, own) = (self.instance(account)?, account.secrets.require("account_id")?);
        let (parent, wanted) = (context_text(&reply.thread, "id")?, without_mentions(&reply.text));
        let is_candidate = |status: &Status| status.in_reply_to_id.as_deref() == Some(parent);
        let text_matches = |text: &str| is_same(without_mentions(text), wanted);
        instance.find(own.expose_secret(), reply.called_at, is_candidate, text_matches).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(ids: std::ops::Range<i64>, now: DateTime<Utc>) -> Vec<(String, DateTime<Utc>)> {
        ids.rev().map(|id| (id.to_string(), now - TimeDelta::seconds(100 - id))).collect()
    }

    #[test]
    fn a_list_is_read_forwards_and_the_newest_again() {
        let now = DateTime::UNIX_EPOCH + TimeDelta::days(1);
        let (first, more) = Position::read(None).after(&entries(1..16, now), now);
        assert_eq!((first, more), (json!({ "from": "1" }), false), "all are new");
        assert_eq!(Position::read(None).after(&[], now).0, json!({ "from": "0" }));
        let at = |from: &str| Position { from: Some(from.to_owned()), page: None, pages: 0 };
        let later = now + TimeDelta::minutes(2);
        let (next, more) = at("1").after(&entries(2..17, now), later);
        assert_eq!((next, more), (json!({ "from": "16", "page": "16", "pages": 1 }), true));
        let short = &entries(2..5, now);
        assert_eq!(at("1").after(short, now).0, json!({ "from": "1" }), "they are read again");
        assert_eq!(at("1").after(short, later).0, json!({ "from": "4" }));
        let (same, more) = at("16").after(&entries(2..17, now), now);
        assert_eq!((same, more), (json!({ "from": "16" }), false), "a page that leads nowhere ends");
    }

    #[test]
    fn mentions_are_added_and_left_out() {
        assert_eq!(addressed("Hi", "vera@b.example"), "@vera@b.example Hi");
        assert_eq!(addressed("Hi @vera", "vera"), "Hi @vera");
        assert_eq!(without_mentions("@vera@b.example @bob Hi @ann"), "Hi @ann");
        assert_eq!(without_mentions("@vera"), "@vera");
    }
}
