//! The inbox.

use async_trait::async_trait;
use chrono::{DateTime, SubsecRound as _, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MAX_BODY, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::untrusted::{self, MAX_ID, MAX_NAME};
use serde_json::Value;

use super::{SanitizingConnector, storable_time};
use crate::inbox::{InboxConnector, InboxPage, MAX_CURSOR, MAX_PAGE, OutgoingReply, ReplyThread};
use crate::window::with_platform_clock;
use crate::{CallError, ConnectorAccount, Marker, MarkerSeed, Published, ReconcileResult};

/// The maximum size of the context of a thread's replies, in bytes of JSON.
const MAX_CONTEXT: usize = 4 * 1024;

/// Returns the wrapped connector's implementation. [`SanitizingConnector::inbox`] has checked that it exists.
fn inbox_of(this: &SanitizingConnector) -> Result<&dyn InboxConnector, CallError> {
    let missing = || CallError::Permanent(Failure::of(Category::Internal, "This platform has no inbox."));
    this.0.inbox().ok_or_else(missing)
}

#[async_trait]
impl InboxConnector for SanitizingConnector {
    fn streams(&self) -> &'static [&'static str] {
        self.0.inbox().map_or(&[], InboxConnector::streams)
    }

    fn reads(&self, external_id: &str) -> bool {
        self.0.inbox().is_some_and(|inbox| inbox.reads(external_id))
    }

    fn interval(&self) -> TimeDelta {
        self.0.inbox().map_or(TimeDelta::hours(1), InboxConnector::interval)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let page = inbox_of(self)?.fetch(account, stream, cursor).await.map_err(CallError::checked)?;
        let cursor = page.cursor.to_string();
        // Neither can be truncated, because messages would be lost.
        if page.messages.len() > MAX_PAGE || cursor.len() > MAX_CURSOR || cursor.contains("\\u0000") {
            let message = "The platform returned more messages, or a longer cursor, than can be stored.";
            return Err(CallError::Permanent(Failure::of(Category::PlatformError, message)));
        }
        let messages = page.messages.into_iter().filter_map(sanitized_message).collect();
        Ok(InboxPage { messages, unavailable: page.unavailable.map(Failure::checked), ..page })
    }

    fn deletion_check_limit(&self) -> usize {
        self.0.inbox().map_or(0, InboxConnector::deletion_check_limit).min(MAX_PAGE)
    }

    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let mut deleted = inbox_of(self)?.deleted(account, ids).await.map_err(CallError::checked)?;
        deleted.retain(|id| ids.contains(id));
        Ok(deleted)
    }

    fn rejection(&self, thread: &ReplyThread, now: DateTime<Utc>) -> Option<String> {
        match self.0.inbox() {
            Some(inbox) => inbox.rejection(thread, now),
            None => Some("This platform has no inbox.".to_owned()),
        }
    }

    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String> {
        self.0.inbox().map_or(Ok(()), |inbox| inbox.check_text(thread, text))
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        self.0.inbox().map(|inbox| inbox.marker(seed)).unwrap_or_default()
    }

    fn can_reconcile(&self) -> bool {
        self.0.inbox().is_some_and(InboxConnector::can_reconcile)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        inbox_of(self)?.reply(account, reply).await.map(Published::sanitized).map_err(CallError::checked)
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let found = with_platform_clock(inbox_of(self)?.reconcile(account, reply)).await;
        found.map(ReconcileResult::sanitized).map_err(CallError::checked)
    }
}

/// Returns a storable message. `None` if an id cannot be stored unchanged, because it could then identify another
/// message, or if the message has no valid time.
fn sanitized_message(message: FetchedMessage) -> Option<FetchedMessage> {
    let is_id = |id: &str| !id.is_empty() && untrusted::line(id, MAX_ID) == id;
    if !is_id(&message.external_id) || !is_id(&message.thread_id) {
        return None;
    }
    let sent_at = storable_time(Some(message.sent_at))?.trunc_subsecs(6);
    let participant = message.participant.map(|p| Participant {
        external_id: untrusted::line(&p.external_id, MAX_ID),
        name: p.name.and_then(|name| untrusted::some_line(&name, MAX_NAME)),
        username: p.username.and_then(|name| untrusted::some_line(&name, MAX_NAME)),
        avatar_url: p.avatar_url.as_deref().and_then(untrusted::http_url),
    });
    let subject = message.subject.filter(|subject| is_id(&subject.external_id));
    let context = Value::Object(message.reply_context).to_string();
    let context = Some(context).filter(|json| json.len() <= MAX_CONTEXT && !json.contains("\\u0000"));
    Some(FetchedMessage {
        sent_at,
        participant,
        subject: subject.map(|s| Subject { url: s.url.as_deref().and_then(untrusted::http_url), ..s }),
        author_name: message.author_name.and_then(|name| untrusted::some_line(&name, MAX_NAME)),
        body: untrusted::text(&message.body, MAX_BODY),
        reply_context: context.and_then(|json| serde_json::from_str(&json).ok()).unwrap_or_default(),
        ..message
    })
}
