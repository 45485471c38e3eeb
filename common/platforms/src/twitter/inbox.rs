//! The inbox of X: posts that mention the account. X charges for each post and each author that it returns, so they are
//! read every half hour, and none from before the connect. Direct messages are not read, because X now encrypts them
//! end to end.
//!
//! A conversation is one of X's conversations. A reply is a post that names its parent; X lets applications reply only
//! to posts that mention the account. A reply has no idempotency key: after a call with an unknown outcome, the
//! account's newest replies to that post are searched for its text.
//!
//! Sources: docs.x.com and `openapi.json` 2.167 of August 2026 (`/2/users/{id}/mentions`: `start_time`,
//! `pagination_token`; `/2/tweets`: `reply`), the rules for replies of applications of February 2026.

use async_trait::async_trait;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConversationType, Platform};
use http::{Method, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::super::window::{CallWindow, Listed, find};
use super::recent::{MAX_RECENT_POSTS, comparable_reply, plain};
use super::{Created, Twitter, published};
use crate::call::Effect;
use crate::inbox::permission::{denied, recently_denied};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, context_text};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const MENTIONS: &str = "mentions";
const PER_PAGE: &str = "100";
/// The maximum number of entries read from a page.
const MAX_ENTRIES: usize = 100;
/// The maximum delay with which X shows a mention.
const OVERLAP: TimeDelta = TimeDelta::minutes(5);
/// X returns only the newest 800 mentions.
const MAX_PAGES: u64 = 8;
/// The context's key for the id of the post to reply to.
const POST_KEY: &str = "post";

#[derive(Deserialize)]
struct Mentions {
    #[serde(default)]
    data: Vec<Value>,
    #[serde(default)]
    includes: Includes,
    #[serde(default)]
    meta: Meta,
}

#[derive(Default, Deserialize)]
struct Includes {
    #[serde(default)]
    users: Vec<Value>,
}

#[derive(Default, Deserialize)]
struct Meta {
    next_token: Option<String>,
}

#[derive(Deserialize)]
struct Mention {
    id: String,
    #[serde(default)]
    text: String,
    author_id: String,
    conversation_id: Option<String>,
    created_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct User {
    id: String,
    #[serde(default)]
    username: String,
    #[serde(default)]
    name: String,
    profile_image_url: Option<String>,
}

impl User {
    fn participant(&self) -> Participant {
        let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        Participant {
            external_id: self.id.clone(),
            name: some(&self.name),
            username: some(&self.username),
            avatar_url: self.profile_image_url.clone(),
        }
    }
}

impl Mention {
    fn message(self, users: &[User]) -> FetchedMessage {
        let author = users.iter().find(|user| user.id == self.author_id).map(User::participant);
        let participant =
            author.unwrap_or_else(|| Participant { external_id: self.author_id, ..Participant::default() });
        let thread_id = self.conversation_id.unwrap_or_else(|| self.id.clone());
        let url = format!("https://x.com/i/status/{thread_id}");
        FetchedMessage {
            kind: ConversationType::Mention,
            direction: MessageDirection::Inbound,
            subject: Some(Subject { external_id: thread_id.clone(), url: Some(url) }),
            thread_id,
            author_name: participant.name.clone(),
            participant: Some(participant),
            body: plain(&self.text),
            sent_at: self.created_at,
            reply_context: Map::from_iter([(POST_KEY.to_owned(), Value::from(self.id.clone()))]),
            external_id: self.id,
        }
    }
}

/// The position in the list of mentions.
struct Position {
    /// Older mentions have been read.
    since: DateTime<Utc>,
    /// The time at which the first page was requested.
    began: DateTime<Utc>,
    page: Option<String>,
    pages: u64,
}

impl Position {
    fn of(cursor: Option<&Value>, now: DateTime<Utc>) -> Option<Self> {
        let time = |name: &str| cursor.and_then(|c| c[name].as_str()).and_then(|text| text.parse().ok());
        Some(Self {
            since: time("since")?,
            began: time("began").unwrap_or(now),
            page: cursor.and_then(|c| c["page"].as_str()).map(str::to_owned),
            pages: cursor.and_then(|c| c["pages"].as_u64()).unwrap_or(0),
        })
    }

    /// Returns the cursor after a page, and whether another page follows.
    fn after(&self, next: Option<String>) -> (Value, bool) {
        let pages = self.pages + 1;
        match next.filter(|next| pages < MAX_PAGES && next.len() <= 512 && self.page.as_ref() != Some(next)) {
            Some(page) => {
                let (since, began) = (text(self.since), text(self.began));
                (json!({ "since": since, "began": began, "page": page, "pages": pages }), true)
            }
            None => (start(self.began), false),
        }
    }
}

/// Returns the cursor that reads mentions from `since` on.
fn start(since: DateTime<Utc>) -> Value {
    json!({ "since": text(since) })
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn missing() -> Failure {
    let message = "X does not allow Crier to read this account's mentions. The X application may lack access to them in \
                   X's developer console, or the account was connected without the scopes tweet.read and users.read.";
    Failure::with_code(Category::Account, "missing_permission", message)
}

impl Twitter {
    async fn mentions(&self, account: &ConnectorAccount, position: &Position) -> Result<InboxPage, CallError> {
        let since = text(position.since - OVERLAP);
        let mut query = vec![
            ("max_results", PER_PAGE),
            ("start_time", since.as_str()),
            ("expansions", "author_id"),
            ("tweet.fields", "author_id,conversation_id,created_at"),
            ("user.fields", "name,username,profile_image_url"),
        ];
        query.extend(position.page.as_deref().map(|page| ("pagination_token", page)));
        let token = account.secrets.require("access_token")?;
        let path = format!("{}/mentions", Self::user_path(account));
        let request = self.request(Method::GET, &path, token.expose_secret()).query(&query);
        let response = self.client.send(Effect::Repeatable, request).await?;
        if !response.status.is_success() {
            return Err(self.classify(Effect::Repeatable, &response));
        }
        let found: Mentions = self.client.read(Effect::Repeatable, &response)?;
        // An unreadable entry must not hide the others.
        let users: Vec<User> =
            found.includes.users.iter().take(MAX_ENTRIES).filter_map(|user| User::deserialize(user).ok()).collect();
        let mentions = found.data.iter().take(MAX_ENTRIES).filter_map(|one| Mention::deserialize(one).ok());
        let of_others = mentions.filter(|mention| mention.author_id != account.external_id);
        let mut messages: Vec<_> = of_others.map(|mention| mention.message(&users)).collect();
        // Oldest first, because the times are whole seconds.
        messages.reverse();
        let (cursor, has_more) = position.after(found.meta.next_token);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

fn is_forbidden(failure: &Failure) -> bool {
    failure.platform_code.as_deref() == Some(StatusCode::FORBIDDEN.as_str())
}

#[async_trait]
impl InboxConnector for Twitter {
    fn streams(&self) -> &'static [&'static str] {
        &[MENTIONS]
    }

    /// Each mention costs the operator money.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(30)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let now = self.client.now();
        if let Some(page) = recently_denied(account, cursor, now, &missing()) {
            return Ok(page);
        }
        let Some(position) = Position::of(cursor, now) else {
            return Ok(InboxPage { cursor: start(now), ..InboxPage::default() });
        };
        match self.mentions(account, &position).await {
            Err(CallError::Permanent(failure)) if is_forbidden(&failure) => {
                Ok(denied(account, start(position.since), now, missing()))
            }
            // The page token is no longer valid.
            Err(CallError::Permanent(_)) if position.page.is_some() => {
                Ok(InboxPage { cursor: start(position.since), ..InboxPage::default() })
            }
            page => page,
        }
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Twitter, &catalogue::descriptor(Platform::Twitter).capabilities.text, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let post_id = context_text(&reply.thread, POST_KEY)?;
        let body = json!({ "text": reply.text, "reply": { "in_reply_to_tweet_id": post_id } });
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, "/tweets", token.expose_secret()).json(&body);
        let created: Created = self.call(Effect::Publishes, request).await?;
        Ok(published(account, &created.id))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let parent = context_text(&reply.thread, POST_KEY)?;
        let (newest, wanted) = (self.newest(account).await?, comparable_reply(&reply.text));
        let listed = newest.tweets.iter().map(|post| Listed {
            at: post.created_at,
            is_same: post.replied_to() == Some(parent) && comparable_reply(post.whole_text()) == wanted,
            published: published(account, &post.id),
        });
        let window = CallWindow::of(reply.called_at).with_next_page(newest.has_next_page());
        Ok(find(window, listed.collect(), MAX_RECENT_POSTS))
    }
}
