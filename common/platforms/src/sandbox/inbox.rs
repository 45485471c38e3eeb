//! The comments on the sandbox's page, and the replies to them. Each comment of a visitor is a thread.
//!
//! A comment may become visible after a later one, because transactions commit in any order. So each pass over the
//! pages begins some time before the newest known comment, but not after the start of the previous pass, whose first
//! pages may be much older than its last one.

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::ConversationType;
use crier_domain::sandbox::SandboxComment;
use serde_json::{Map, Value, json};

use super::super::inbox::{InboxPage, OutgoingReply, ReplyThread};
use super::super::{
    CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, marker_field,
};
use super::{Sandbox, post_path, token_rejected, unavailable};

const COMMENTS: &str = "comments";
/// The maximum length of a reply, in characters, equal to that of a visitor's comment.
const MAX_REPLY: usize = 2_000;
const PAGE: usize = 50;
/// Longer than any transaction that writes a comment.
const OVERLAP: TimeDelta = TimeDelta::minutes(1);

/// The start of the next page, the newest comment so far, and the time at which this pass began.
#[derive(Clone, Copy)]
struct Cursor {
    at: DateTime<Utc>,
    id: i64,
    newest: DateTime<Utc>,
    began: Option<DateTime<Utc>>,
}

impl Cursor {
    fn read(value: Option<&Value>) -> Self {
        let time = |name: &str| value.and_then(|v| v[name].as_str()).and_then(|text| text.parse().ok());
        let at = time("at").unwrap_or(DateTime::UNIX_EPOCH);
        let id = value.and_then(|v| v["id"].as_i64()).unwrap_or(0);
        Self { at, id, newest: time("newest").unwrap_or(at), began: time("began") }
    }

    fn to_value(self) -> Value {
        let text = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Micros, true);
        json!({ "at": text(self.at), "id": self.id, "newest": text(self.newest), "began": self.began.map(text) })
    }

    /// Returns the cursor after a page, and whether another page follows now.
    fn after(self, page: &[SandboxComment], now: DateTime<Utc>) -> (Self, bool) {
        let began = self.began.unwrap_or(now);
        let newest = page.iter().map(|comment| comment.created_at).fold(self.newest, DateTime::max);
        match page.last() {
            Some(last) if page.len() == PAGE => {
                (Self { at: last.created_at, id: last.id, newest, began: Some(began) }, true)
            }
            _ => (Self { at: newest.min(began) - OVERLAP, id: 0, newest, began: None }, false),
        }
    }
}

impl Sandbox {
    fn message(&self, account: &ConnectorAccount, comment: SandboxComment) -> FetchedMessage {
        let thread = comment.parent_id.unwrap_or(comment.id);
        let participant =
            Participant { external_id: comment.name.clone(), name: Some(comment.name.clone()), ..Default::default() };
        let url = format!("{}{}", self.public_url, post_path(&account.external_id, comment.post_id));
        FetchedMessage {
            external_id: comment.id.to_string(),
            kind: ConversationType::Comment,
            thread_id: thread.to_string(),
            direction: if comment.is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: (!comment.is_own).then_some(participant),
            subject: Some(Subject { external_id: comment.post_id.to_string(), url: Some(url) }),
            author_name: Some(comment.name),
            body: comment.body,
            sent_at: comment.created_at,
            reply_context: Map::new(),
        }
    }
}

fn sent(id: i64) -> Published {
    Published::new(id.to_string(), None)
}

#[async_trait]
impl InboxConnector for Sandbox {
    fn streams(&self) -> &'static [&'static str] {
        &[COMMENTS]
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        if self.is_expired(account).await? {
            return Err(token_rejected());
        }
        let (from, now) = (Cursor::read(cursor), self.clock.now());
        let found = self.store.comments_after(&account.external_id, (from.at, from.id), PAGE).await;
        let found = found.map_err(unavailable)?;
        let (next, has_more) = from.after(&found, now);
        let messages = found.into_iter().map(|comment| self.message(account, comment)).collect();
        Ok(InboxPage { messages, cursor: next.to_value(), has_more, unavailable: None })
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        match text.chars().count() {
            count if count > MAX_REPLY => {
                Err(format!("The sandbox accepts at most {MAX_REPLY} characters in a reply; this text has {count}."))
            }
            _ => Ok(()),
        }
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        let key = format!("reply-{}-{:016x}", seed.target_id, seed.random);
        Marker::from_iter([("key".to_owned(), Value::from(key))])
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let key = marker_field(&reply.marker, "key")?;
        self.apply_directive(account, &reply.text, reply.attempt).await?;
        let comment = reply.thread.thread_id.parse().unwrap_or(0);
        let handle = &account.external_id;
        let written = self.store.reply(account.workspace_id, handle, comment, key, &reply.text).await;
        match written.map_err(unavailable)? {
            Some(id) => Ok(sent(id)),
            None if self.is_expired(account).await? => Err(token_rejected()),
            None => {
                let message = "The comment is no longer on the sandbox's page.";
                Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message)))
            }
        }
    }

    async fn reconcile(
        &self,
        _account: &ConnectorAccount,
        reply: &OutgoingReply,
    ) -> Result<ReconcileResult, CallError> {
        let key = marker_field(&reply.marker, "key")?;
        let found = self.store.find_reply(key).await.map_err(unavailable)?;
        Ok(found.map_or(ReconcileResult::Absent, |id| ReconcileResult::Found(sent(id))))
    }
}
