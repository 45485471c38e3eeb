//! The inbox of Reddit: replies to the account's posts and comments, comments that mention it, and private messages.
//!
//! A message names its post but not the comments between, so a conversation is one user under one post. Reddit is
//! moving private messages to its chat, which has no API; those that still arrive are read and can be replied to.
//!
//! A reply has no idempotency key: after a call with an unknown outcome, the account's newest comments, or the messages
//! that it sent, are searched for its text.
//!
//! Sources: www.reddit.com/dev/api (`/message/inbox` and `/message/sent`, scope `privatemessages`;
//! `/user/{name}/comments`, scope `history`; `/api/info`, scope `read`). `[deleted]` and `[removed]` are not
//! documented; github.com/Pyprohly/reddit-api-doc-notes ("Comment") describes them, and public clients compare `author`
//! and `body` with them.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::ConversationType;
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::super::text::comparable::is_same;
use super::super::window::{CallWindow, Listed, find};
use super::comments::url_of;
use super::rest::is_forbidden;
use super::{MAX_RECENT_POSTS, Reddit, user_name};
use crate::call::Effect;
use crate::inbox::newest_first::Pass;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, context_text};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const INBOX: &str = "inbox";
const PAGE: &str = "100";
/// The maximum number of comments per call that checks for deletions.
const MAX_CHECKED: usize = 100;
/// The text that Reddit shows instead of the author and the body of a comment that its author or a moderator deleted.
const DELETED: &str = "[deleted]";
const REMOVED: &str = "[removed]";

#[derive(Deserialize)]
struct Listing {
    data: Children,
}

#[derive(Deserialize)]
struct Children {
    #[serde(default)]
    children: Vec<Value>,
    after: Option<String>,
}

/// A comment or a private message.
#[derive(Deserialize)]
pub(super) struct Message {
    /// `t1_…` or `t4_…`.
    name: String,
    /// Missing if a subreddit or Reddit itself is the author.
    author: Option<String>,
    #[serde(default)]
    pub(super) body: String,
    /// The name of the post or comment above.
    pub(super) parent_id: Option<String>,
    permalink: Option<String>,
    /// Unix seconds.
    created_utc: f64,
    #[serde(rename = "type", default)]
    kind: String,
    /// `/r/{subreddit}/comments/{post}/{title}/{comment}/?context=3`
    #[serde(default)]
    context: String,
    #[serde(default)]
    was_comment: bool,
}

impl Message {
    fn sent_at(&self) -> Option<DateTime<Utc>> {
        // The cast saturates, and the result is not a valid date.
        DateTime::from_timestamp(self.created_utc as i64, 0)
    }

    /// Returns the message as an entry of a search. `is_same`: whether it is the message that is searched for.
    pub(super) fn listed(self, is_same: bool) -> Listed {
        Listed { at: self.sent_at(), is_same, published: Published::new(self.name, url_of(self.permalink)) }
    }

    /// Returns the subreddit and the id of the post.
    fn post(&self) -> Option<(&str, &str)> {
        let (subreddit, rest) = self.context.strip_prefix("/r/")?.split_once("/comments/")?;
        let id = rest.split('/').next()?;
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
        is_id.then_some((subreddit, id))
    }

    /// Returns whether its author or a moderator deleted the comment. Comments of a deleted account keep their body.
    fn is_deleted(&self) -> bool {
        let has_no_author = self.author.as_deref().is_none_or(|author| author == DELETED);
        has_no_author && (self.body == DELETED || self.body == REMOVED)
    }

    fn message(self, own: &str) -> Option<FetchedMessage> {
        let author = self.author.clone().filter(|author| !author.eq_ignore_ascii_case(own))?;
        let sent_at = self.sent_at()?;
        let person = author.to_lowercase();
        let (kind, thread_id, subject) = match (self.was_comment, self.post()) {
            (false, _) => (ConversationType::Dm, person.clone(), None),
            (true, Some((subreddit, post))) => {
                let kind = match self.kind == "username_mention" {
                    true => ConversationType::Mention,
                    false => ConversationType::Comment,
                };
                let url = Some(format!("https://www.reddit.com/r/{subreddit}/comments/{post}/"));
                (kind, format!("{post}:{person}"), Some(Subject { external_id: format!("t3_{post}"), url }))
            }
            (true, None) => return None,
        };
        let participant = Participant {
            external_id: person,
            name: Some(author.clone()),
            username: Some(author.clone()),
            avatar_url: None,
        };
        Some(FetchedMessage {
            kind,
            thread_id,
            direction: MessageDirection::Inbound,
            participant: Some(participant),
            subject,
            author_name: Some(author),
            body: self.body,
            sent_at,
            reply_context: Map::from_iter([("thing".to_owned(), Value::from(self.name.clone()))]),
            external_id: self.name,
        })
    }
}

impl Reddit {
    async fn listing(
        &self,
        account: &ConnectorAccount,
        path: &str,
        query: &[(&str, &str)],
    ) -> Result<(Vec<Message>, Option<String>), CallError> {
        let session = self.session(account)?;
        let request = session.request(Method::GET, path).query(&[("raw_json", "1")]).query(query);
        let found: Listing = session.call(Effect::Repeatable, request).await?;
        // An unreadable entry must not hide the others.
        let readable =
            found.data.children.iter().take(100).filter_map(|child| Message::deserialize(&child["data"]).ok());
        Ok((readable.collect(), found.data.after))
    }

    /// Returns the account's newest comments, or the newest messages that it sent, and the token of the next page.
    pub(super) async fn newest(
        &self,
        account: &ConnectorAccount,
        path: &str,
    ) -> Result<(Vec<Message>, Option<String>), CallError> {
        self.listing(account, path, &[("sort", "new"), ("limit", &MAX_RECENT_POSTS.to_string())]).await
    }

    async fn messages(&self, account: &ConnectorAccount, pass: Pass) -> Result<InboxPage, CallError> {
        // `mark=false`: reading must not mark messages as read.
        let mut query = vec![("limit", PAGE), ("mark", "false")];
        query.extend(pass.page.as_deref().map(|page| ("after", page)));
        let (found, next) = self.listing(account, "/message/inbox", &query).await?;
        let times: Vec<_> = found.iter().filter_map(Message::sent_at).collect();
        let own = user_name(account)?;
        let new = found.into_iter().filter(|message| message.sent_at().is_some_and(|at| at >= pass.until));
        // Oldest first, because the times are whole seconds.
        let messages = new.rev().filter_map(|message| message.message(own)).collect();
        let (cursor, has_more) = pass.after(&times, next);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

#[async_trait]
impl InboxConnector for Reddit {
    fn streams(&self) -> &'static [&'static str] {
        &[INBOX]
    }

    /// All accounts of an application share a limit of 100 calls per minute.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(2)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let pass = Pass::read(cursor, self.client.now());
        let (restart, has_page) = (pass.restart(), pass.page.is_some());
        match self.messages(account, pass).await {
            Err(CallError::Permanent(failure)) if is_forbidden(&failure) => {
                let message = "Reddit does not allow Crier to read this account's messages. It was connected without the \
                               scope privatemessages. Connect it again.";
                let failure = Failure::with_code(Category::Account, "missing_permission", message);
                Ok(InboxPage { cursor: restart, unavailable: Some(failure), ..InboxPage::default() })
            }
            // The page token is no longer valid.
            Err(CallError::Permanent(_)) if has_page => Ok(InboxPage { cursor: restart, ..InboxPage::default() }),
            read => read,
        }
    }

    fn deletion_check_limit(&self) -> usize {
        MAX_CHECKED
    }

    /// Checks only comments, and only with the scope `read`, which nothing else needs: the operator may request it.
    async fn deleted(&self, account: &ConnectorAccount, ids: &[String]) -> Result<Vec<String>, CallError> {
        let comments: Vec<&str> = ids.iter().map(String::as_str).filter(|id| id.starts_with("t1_")).collect();
        if comments.is_empty() {
            return Ok(Vec::new());
        }
        let (found, _) = match self.listing(account, "/api/info", &[("id", comments.join(",").as_str())]).await {
            Err(CallError::Permanent(failure)) if is_forbidden(&failure) => return Ok(Vec::new()),
            found => found?,
        };
        Ok(found.into_iter().filter(Message::is_deleted).map(|message| message.name).collect())
    }

    /// The limit of comments and messages, 10,000 characters, equals that of Crier's replies.
    fn check_text(&self, _thread: &ReplyThread, _text: &str) -> Result<(), String> {
        Ok(())
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        self.session(account)?.comment(context_text(&reply.thread, "thing")?, &reply.text).await
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let path = match reply.thread.kind {
            ConversationType::Dm => "/message/sent".to_owned(),
            ConversationType::Comment | ConversationType::Mention => {
                format!("/user/{}/comments", user_name(account)?)
            }
        };
        let parent = context_text(&reply.thread, "thing")?;
        let (newest, next) = self.newest(account, &path).await?;
        let window = CallWindow::of(reply.called_at).with_next_page(next.is_some());
        let listed = newest.into_iter().map(|message| {
            // Private messages may not name what they reply to.
            let is_below = message.parent_id.as_deref().is_none_or(|id| id == parent);
            let is_reply = is_below && is_same(&message.body, &reply.text);
            message.listed(is_reply)
        });
        Ok(find(window, listed.collect(), MAX_RECENT_POSTS))
    }
}
