//! The inbox of Tumblr: replies to the blog's posts, reblogs with added text, and mentions. They are read only, because
//! the API has no call to reply.
//!
//! An entry names its post but not its parent, so a conversation is one blog under one post.
//!
//! Source: github.com/tumblr/docs (`api.md`: `/blog/{b}/notifications`, newest first; 1,000 calls per hour and 5,000
//! per day for all blogs of an application).

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::ConversationType;
use http::Method;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Tumblr;
use crate::call::Effect;
use crate::inbox::newest_first::Pass;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread};
use crate::{CallError, ConnectorAccount, InboxConnector, Published, ReconcileResult};

const ACTIVITY: &str = "activity";
const REJECTION: &str =
    "Tumblr does not allow applications to reply to replies and mentions. Reply to this one on Tumblr.";
const TYPES: [&str; 4] = ["reply", "reblog_with_content", "mention_in_reply", "mention_in_post"];
/// The maximum number of entries read from a page.
const MAX_ENTRIES: usize = 200;

#[derive(Deserialize)]
struct Notifications {
    #[serde(default)]
    notifications: Vec<Value>,
    #[serde(rename = "_links")]
    links: Option<Links>,
}

#[derive(Deserialize)]
struct Links {
    /// Only its presence matters. The next page is requested by time.
    next: Option<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Entry {
    id: Value,
    #[serde(rename = "type")]
    kind: String,
    /// Unix seconds.
    timestamp: i64,
    target_post_id: Option<Value>,
    post_id: Option<Value>,
    from_tumblelog_name: Option<String>,
    reply_text: Option<String>,
    added_text: Option<String>,
}

/// Returns an id, which is a number or a text of letters, digits and hyphens.
fn id(value: &Value) -> Option<String> {
    match value {
        Value::Number(number) => Some(number.to_string()),
        Value::String(text) => {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b':'));
            (is_plain && !text.is_empty()).then(|| text.clone())
        }
        _ => None,
    }
}

impl Entry {
    fn sent_at(&self) -> Option<DateTime<Utc>> {
        DateTime::from_timestamp(self.timestamp, 0)
    }

    fn message(self, blog: &str) -> Option<FetchedMessage> {
        let author = self.from_tumblelog_name.clone().filter(|author| !author.eq_ignore_ascii_case(blog))?;
        let target = self.target_post_id.as_ref().and_then(id);
        let (kind, post, owner) = match self.kind.as_str() {
            "reply" | "reblog_with_content" => (ConversationType::Comment, target?, blog),
            // The post belongs to another blog.
            _ => (ConversationType::Mention, self.post_id.as_ref().and_then(id).or(target)?, author.as_str()),
        };
        let person = author.to_lowercase();
        Some(FetchedMessage {
            external_id: id(&self.id)?,
            kind,
            thread_id: format!("{post}:{person}"),
            direction: MessageDirection::Inbound,
            subject: Some(Subject { url: Some(format!("https://www.tumblr.com/{owner}/{post}")), external_id: post }),
            participant: Some(Participant {
                external_id: person,
                name: Some(author.clone()),
                username: Some(author.clone()),
                avatar_url: None,
            }),
            body: self.reply_text.or(self.added_text).unwrap_or_default(),
            sent_at: DateTime::from_timestamp(self.timestamp, 0)?,
            author_name: Some(author),
            reply_context: Map::new(),
        })
    }
}

impl Tumblr {
    async fn activity(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, CallError> {
        let token = account.secrets.require("access_token")?;
        let mut query: Vec<(&str, &str)> = vec![("rollups", "false")];
        query.extend(TYPES.map(|kind| ("types[]", kind)));
        query.extend(pass.page.as_deref().map(|before| ("before", before)));
        let path = Self::blog_path(account, "notifications");
        let request = self.request(Method::GET, &path, token.expose_secret()).query(&query);
        let found: Notifications = self.call(Effect::Repeatable, request).await?;
        // An unreadable entry must not hide the others.
        let readable = found.notifications.iter().take(MAX_ENTRIES).filter_map(|one| Entry::deserialize(one).ok());
        let entries: Vec<Entry> = readable.collect();
        let times: Vec<_> = entries.iter().filter_map(Entry::sent_at).collect();
        // Entries of the same second may be on the next page.
        let oldest = times.iter().min().map(|oldest| (oldest.timestamp() + 1).to_string());
        let has_next = found.links.is_some_and(|links| links.next.is_some());
        let blog = account.username.as_deref().unwrap_or(&account.external_id);
        let new = entries.into_iter().rev().filter(|entry| entry.sent_at().is_some_and(|at| at >= pass.until));
        let wanted = new.filter(|entry| TYPES.contains(&entry.kind.as_str()));
        let messages = wanted.filter_map(|entry| entry.message(blog)).collect();
        let (cursor, has_more) = pass.after(&times, oldest.filter(|_| has_next));
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

#[async_trait]
impl InboxConnector for Tumblr {
    fn streams(&self) -> &'static [&'static str] {
        &[ACTIVITY]
    }

    /// All blogs of an application share a limit of 5,000 calls per day.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(30)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        self.activity(account, Pass::read(cursor, self.client.now())).await
    }

    fn rejection(&self, _thread: &ReplyThread, _now: DateTime<Utc>) -> Option<String> {
        Some(REJECTION.to_owned())
    }

    fn check_text(&self, _thread: &ReplyThread, _text: &str) -> Result<(), String> {
        Err(REJECTION.to_owned())
    }

    fn can_reconcile(&self) -> bool {
        false
    }

    async fn reply(&self, _account: &ConnectorAccount, _reply: &OutgoingReply) -> Result<Published, CallError> {
        Err(CallError::Permanent(Failure::of(Category::PlatformRejected, REJECTION)))
    }

    async fn reconcile(
        &self,
        _account: &ConnectorAccount,
        _reply: &OutgoingReply,
    ) -> Result<ReconcileResult, CallError> {
        Ok(ReconcileResult::Unsupported)
    }
}
