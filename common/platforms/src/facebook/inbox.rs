//! The inbox of a Facebook page: comments on its posts, with their replies, and Messenger conversations.
//!
//! Both need permissions that publishing does not need. Facebook omits the author of a comment whose profile is
//! private. Comments have two levels, so a reply goes to the comment that begins the thread. A page can write to a user
//! within 24 hours after the user's last message; later messages need the tag `HUMAN_AGENT`, for which Meta reviews the
//! application separately.
//!
//! Neither call has an idempotency key: a reply whose response was lost is found by its text. First comments on the
//! page's posts use the same calls.
//!
//! Sources: Graph API v25.0 ("Page Feed", "Object Comments": `filter`, `order`; "Page Conversations": the newest 20
//! messages of each, no pages by time; "Send API"), September 2026; the Messenger Platform's policy of 24 hours.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::Failure;
use crier_domain::platform::{ConnectTarget, ConversationType, Platform, TextRules, TextUnit};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Facebook;
use crate::call::Effect;
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::newest_first::Pass;
use crate::inbox::permission::missing_permission;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::meta::graph::{Access, GraphFailure, List, parse_time};
use crate::meta::inbox::{
    self, INTERVAL, OwnMessage, OwnMessages, Streams, comment_error, find_comment, is_object_id, list, list_below,
    read, reply_error, search,
};
use crate::window::CallWindow;
use crate::{
    CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult,
    time_marker,
};

const COMMENTS: &str = "comments";
const MESSAGES: &str = "messages";
const POSTS_PER_PAGE: &str = "25";
const COMMENTS_PER_PAGE: &str = "50";
const CONVERSATIONS_PER_PAGE: &str = "25";
const COMMENT_FIELDS: &str = "id,message,created_time,from{id,name},parent{id}";
const CONVERSATION_FIELDS: &str =
    "id,updated_time,participants,messages.limit(20){id,message,from{id,name},created_time}";
const WINDOW: TimeDelta = TimeDelta::hours(24);

const fn at_most(max: u32) -> TextRules {
    let unit = TextUnit::Characters;
    TextRules { max: Some(max), unit, max_bytes: None, max_with_media: None, url_weight: None }
}

const COMMENT_TEXT: TextRules = at_most(8_000);
const MESSAGE_TEXT: TextRules = at_most(2_000);

#[derive(Deserialize)]
struct Post {
    id: String,
    permalink_url: Option<String>,
    #[serde(default)]
    created_time: String,
    #[serde(default)]
    comments: List<Value>,
}

#[derive(Clone, Deserialize)]
struct User {
    id: String,
    name: Option<String>,
}

#[derive(Deserialize)]
struct Object {
    id: String,
}

#[derive(Deserialize)]
struct Comment {
    id: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    created_time: String,
    from: Option<User>,
    parent: Option<Object>,
}

#[derive(Deserialize)]
struct Conversation {
    #[serde(default)]
    updated_time: String,
    #[serde(default)]
    participants: List<Value>,
    #[serde(default)]
    messages: List<Value>,
}

#[derive(Deserialize)]
struct Message {
    id: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    created_time: String,
    from: Option<User>,
}

#[derive(Deserialize)]
struct Sent {
    message_id: Option<String>,
}

fn participant(person: &User) -> Participant {
    Participant { external_id: person.id.clone(), name: person.name.clone(), username: None, avatar_url: None }
}

impl Comment {
    fn message(self, page: &str, list: &CommentList) -> Option<FetchedMessage> {
        let thread_id = self.parent.map_or_else(|| self.id.clone(), |parent| parent.id);
        let is_own = self.from.as_ref().is_some_and(|from| from.id == page);
        let sent_at = parse_time(&self.created_time)?;
        (is_object_id(&thread_id) && is_object_id(&self.id)).then(|| FetchedMessage {
            kind: ConversationType::Comment,
            thread_id,
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: self.from.as_ref().filter(|_| !is_own).map(participant),
            subject: Some(Subject { external_id: list.post.clone(), url: list.url.clone() }),
            author_name: self.from.and_then(|from| from.name),
            body: self.message,
            sent_at,
            reply_context: Map::new(),
            external_id: self.id,
        })
    }
}

/// Returns the comments of a page as messages, oldest first.
fn comments(walk: &mut Walk, page: &str, found: &[Value], list: &CommentList) -> (Vec<FetchedMessage>, bool) {
    let found: Vec<Comment> = read(found);
    let times: Vec<_> = found.iter().filter_map(|comment| parse_time(&comment.created_time)).collect();
    let continues = walk.continues(&times);
    walk.record_times(&times);
    let messages = found.into_iter().rev().filter_map(|comment| comment.message(page, list));
    (messages.filter(|message| message.sent_at >= walk.until).collect(), continues)
}

impl Conversation {
    fn messages(self, page: &str, until: DateTime<Utc>) -> Vec<FetchedMessage> {
        let people: Vec<User> = read(&self.participants.data);
        let Some(person) = people.iter().find(|person| person.id != page && is_object_id(&person.id)) else {
            return Vec::new();
        };
        let message = |message: Message| {
            let is_own = message.from.as_ref().is_some_and(|from| from.id == page);
            Some(FetchedMessage {
                kind: ConversationType::Dm,
                thread_id: person.id.clone(),
                direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
                participant: Some(participant(person)),
                subject: None,
                author_name: message.from.and_then(|from| from.name),
                body: message.message,
                sent_at: parse_time(&message.created_time).filter(|at| *at >= until)?,
                reply_context: Map::new(),
                external_id: message.id,
            })
        };
        read::<Message>(&self.messages.data).into_iter().rev().filter_map(message).collect()
    }
}

#[async_trait]
impl Streams for Facebook {
    const BELOW_POSTS: &'static str = COMMENTS;

    fn now(&self) -> DateTime<Utc> {
        self.client.now()
    }

    fn access_of(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError> {
        self.access(account)
    }

    fn missing(_account: &ConnectorAccount, stream: &str) -> Failure {
        let (what, permissions) = match stream {
            COMMENTS => ("read this account's comments", "pages_read_user_content"),
            _ => ("read this account's messages", "pages_messaging"),
        };
        missing_permission(Platform::Facebook, ConnectTarget::Default, what, permissions)
    }

    async fn posts(access: &Access<'_>, account: &ConnectorAccount, mut walk: Walk) -> Result<InboxPage, GraphFailure> {
        let page = account.external_id.as_str();
        let comment_list = format!("comments.filter(stream).order(reverse_chronological).limit({COMMENTS_PER_PAGE})");
        let fields = format!("id,permalink_url,created_time,{comment_list}{{{COMMENT_FIELDS}}}");
        let since = walk.posts_since().timestamp().to_string();
        let query = [("fields", fields.as_str()), ("limit", POSTS_PER_PAGE), ("since", since.as_str())];
        let found = list(access, &format!("{page}/feed"), &query, walk.page.as_deref()).await?;
        let posts: Vec<Post> = read(&found.data);
        let oldest = posts.iter().filter_map(|post| parse_time(&post.created_time)).min();
        let (mut messages, mut lists) = (Vec::new(), Vec::new());
        for post in posts.into_iter().filter(|post| is_object_id(&post.id)) {
            let mut list = CommentList { post: post.id, url: post.permalink_url, ..CommentList::default() };
            let (new, continues) = comments(&mut walk, page, &post.comments.data, &list);
            messages.extend(new);
            list.page = post.comments.next().filter(|_| continues);
            lists.extend(list.page.is_some().then_some(list));
        }
        let (cursor, has_more) = walk.after_posts(found.next(), oldest, lists);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    async fn below_post(
        access: &Access<'_>,
        account: &ConnectorAccount,
        mut walk: Walk,
        list: CommentList,
    ) -> Result<InboxPage, GraphFailure> {
        let query = [
            ("fields", COMMENT_FIELDS),
            ("filter", "stream"),
            ("order", "reverse_chronological"),
            ("limit", COMMENTS_PER_PAGE),
        ];
        let found = list_below(access, &format!("{}/comments", list.post), &query, list.page.as_deref()).await?;
        let (messages, continues) = comments(&mut walk, &account.external_id, &found.data, &list);
        let (cursor, has_more) = walk.after_list(found.next().filter(|_| continues), Vec::new());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    async fn newest_first(
        access: &Access<'_>,
        account: &ConnectorAccount,
        pass: Pass,
    ) -> Result<InboxPage, GraphFailure> {
        let page = account.external_id.as_str();
        let query = [("platform", "MESSENGER"), ("fields", CONVERSATION_FIELDS), ("limit", CONVERSATIONS_PER_PAGE)];
        let found = list(access, &format!("{page}/conversations"), &query, pass.page.as_deref()).await?;
        let conversations: Vec<Conversation> = read(&found.data);
        let times: Vec<_> = conversations.iter().filter_map(|one| parse_time(&one.updated_time)).collect();
        let messages = conversations.into_iter().flat_map(|one| one.messages(page, pass.until)).collect();
        let (cursor, has_more) = pass.after(&times, found.next());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

/// Returns the page's own messages among these.
fn own(page: &str, messages: Vec<Message>) -> Vec<OwnMessage> {
    let own = messages.into_iter().filter(|one| one.from.as_ref().is_some_and(|from| from.id == page));
    let own_message =
        |one: Message| OwnMessage { at: parse_time(&one.created_time), id: one.id, text: one.message, url: None };
    own.map(own_message).collect()
}

impl Facebook {
    /// Returns the page's newest messages in a conversation. They are complete if they reach back to the call that is
    /// looked up.
    async fn own_messages(
        &self,
        account: &ConnectorAccount,
        person: &str,
        called_at: Option<DateTime<Utc>>,
    ) -> Result<OwnMessages, GraphFailure> {
        let (access, page) = (self.access(account)?, account.external_id.as_str());
        let query = [("platform", "MESSENGER"), ("user_id", person), ("fields", CONVERSATION_FIELDS)];
        let found = list(&access, &format!("{page}/conversations"), &query, None).await?;
        let conversations: Vec<Conversation> = read(&found.data);
        let messages: Vec<_> = conversations.iter().flat_map(|one| read::<Message>(&one.messages.data)).collect();
        let times: Vec<_> = messages.iter().map(|one| parse_time(&one.created_time)).collect();
        let has_next_page = conversations.iter().any(|one| one.messages.has_next_page());
        let window = CallWindow::of(called_at).with_next_page(has_next_page);
        let are_complete = window.is_covered(&times, usize::MAX);
        Ok(OwnMessages { messages: own(page, messages), are_complete })
    }

    /// Returns the page's own comments directly below a post or a comment.
    async fn own_comments(&self, account: &ConnectorAccount, object: &str) -> Result<OwnMessages, GraphFailure> {
        let query = [("fields", "id,message,created_time,from{id,name}"), ("order", "reverse_chronological")];
        let path = format!("{object}/comments");
        let (found, are_complete) = search::<Message>(&self.access(account)?, &path, &query).await?;
        Ok(OwnMessages { messages: own(&account.external_id, found), are_complete })
    }

    /// Comments on a post, or replies to a comment. No fields are requested, because Meta creates the comment, then
    /// rejects the fields, and a second attempt would be a duplicate.
    async fn comment(&self, account: &ConnectorAccount, object: &str, text: &str) -> Result<Published, GraphFailure> {
        let access = self.access(account)?;
        let request = access.request(Method::POST, &format!("{object}/comments")).json(&json!({ "message": text }));
        let created: Object = access.call_with_codes(Effect::Publishes, request).await?;
        Ok(Published::new(created.id, None))
    }

    /// Publishes a first comment on a post of the page.
    pub(super) async fn publish_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        text: &str,
    ) -> Result<Published, CallError> {
        let missing = missing_engagement("comment on this account's posts");
        self.comment(account, post, text).await.map_err(|failure| comment_error(failure, missing))
    }

    /// Looks up the first comment of an earlier call.
    pub(super) async fn reconcile_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        comment: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        find_comment(&comment.text, comment.called_at, self.own_comments(account, post).await)
    }
}

/// Returns the failure if the permission for the page's own comments is missing.
pub(super) fn missing_engagement(what: &str) -> Failure {
    missing_permission(Platform::Facebook, ConnectTarget::Default, what, "pages_manage_engagement")
}

/// Returns the thread's id, which becomes part of a URL.
fn thread_id(thread: &ReplyThread) -> Result<&str, CallError> {
    let id = thread.thread_id.as_str();
    if is_object_id(id) { Ok(id) } else { Err(no_context()) }
}

#[async_trait]
impl InboxConnector for Facebook {
    fn streams(&self) -> &'static [&'static str] {
        &[COMMENTS, MESSAGES]
    }

    fn interval(&self) -> TimeDelta {
        INTERVAL
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        inbox::fetch(self, account, stream, cursor).await
    }

    fn rejection(&self, thread: &ReplyThread, now: DateTime<Utc>) -> Option<String> {
        let is_open = thread.last_inbound_at.is_some_and(|at| now - at < WINDOW);
        (thread.kind == ConversationType::Dm && !is_open).then(|| {
            "Facebook allows a page to reply to a person only within 24 hours of the person's last message. That time \
             has passed."
                .to_owned()
        })
    }

    fn check_text(&self, thread: &ReplyThread, text: &str) -> Result<(), String> {
        let rules = if thread.kind == ConversationType::Dm { &MESSAGE_TEXT } else { &COMMENT_TEXT };
        check_length(Platform::Facebook, rules, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let thread = thread_id(&reply.thread)?;
        if reply.thread.kind == ConversationType::Dm {
            let access = self.access(account)?;
            let body = json!({
                "recipient": { "id": thread },
                "messaging_type": "RESPONSE",
                "message": { "text": reply.text },
            });
            let request = access.request(Method::POST, &format!("{}/messages", account.external_id)).json(&body);
            let sent: Result<Sent, GraphFailure> = access.call_with_codes(Effect::Publishes, request).await;
            let missing = missing_permission(
                Platform::Facebook,
                ConnectTarget::Default,
                "reply to this account's messages",
                "pages_messaging",
            );
            let sent = sent.map_err(|failure| reply_error(failure, missing))?;
            return Ok(Published::new(sent.message_id.unwrap_or_default(), None));
        }
        let missing = missing_engagement("reply to this account's comments");
        self.comment(account, thread, &reply.text).await.map_err(|failure| reply_error(failure, missing))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let own = match reply.thread.kind {
            ConversationType::Dm => self.own_messages(account, &reply.thread.thread_id, reply.called_at).await,
            ConversationType::Comment | ConversationType::Mention => {
                self.own_comments(account, thread_id(&reply.thread)?).await
            }
        };
        find_comment(&reply.text, reply.called_at, own)
    }
}
