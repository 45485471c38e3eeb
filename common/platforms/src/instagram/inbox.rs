//! The inbox of Instagram: comments on the account's posts, with their replies, and direct messages.
//!
//! Both need permissions that publishing does not need, whose names differ between the two logins. A reply goes to the
//! comment that begins the thread. Direct messages are read only.
//!
//! Instagram documents no order for the replies to a comment, so those that did not come with the comment are read
//! completely, once per hour. After a day, replies to a comment that has 25 newer comments on its post are no longer
//! read. A reply has no idempotency key: after a call with an unknown outcome, the replies to the comment are searched
//! for its text. So are the comments on a post for a first comment.
//!
//! Sources: Instagram platform ("Comment moderation", "IG Media: comments", "IG Comment: replies", "Conversations
//! API": the newest 20 messages of each), as of September 2026.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::Failure;
use crier_domain::platform::{ConnectTarget, ConversationType, Platform};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{Instagram, is_by_facebook};
use crate::call::Effect;
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::newest_first::Pass;
use crate::inbox::permission::missing_permission;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::meta::containers::is_id;
use crate::meta::graph::{Access, GraphFailure, List, parse_time};
use crate::meta::inbox::{
    self, INTERVAL, OwnMessage, OwnMessages, Streams, comment_error, find_comment, list, list_below, read, reply_error,
    search,
};
use crate::{
    CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult,
    time_marker,
};

const COMMENTS: &str = "comments";
const MESSAGES: &str = "messages";
const PER_PAGE: &str = "25";
const REPLY_FIELDS: &str = "id,text,timestamp,username,from{id,username}";
/// The number of replies returned with a comment.
const REPLIES_WITH_COMMENT: &str = "10";
const CONVERSATION_FIELDS: &str =
    "id,updated_time,participants,messages.limit(20){id,message,from{id,username},created_time}";

#[derive(Deserialize)]
struct Media {
    id: String,
    permalink: Option<String>,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    comments: List<Value>,
}

#[derive(Clone, Default, Deserialize)]
struct User {
    id: Option<String>,
    username: Option<String>,
}

#[derive(Deserialize)]
struct Comment {
    id: String,
    #[serde(default)]
    text: String,
    #[serde(default)]
    timestamp: String,
    username: Option<String>,
    #[serde(default)]
    from: User,
    #[serde(default)]
    replies: List<Value>,
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
    #[serde(default)]
    from: User,
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

impl User {
    /// The account has another id in messages, so its name is compared as well.
    fn is(&self, account: &ConnectorAccount) -> bool {
        let is_named = |own: &String| self.username.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(own));
        self.id.as_ref() == Some(&account.external_id) || account.username.as_ref().is_some_and(is_named)
    }

    fn participant(&self) -> Option<Participant> {
        let name = self.username.clone();
        // A comment may have its author's name without an id.
        let external_id = self.id.clone().or_else(|| name.as_ref().map(|name| format!("name:{name}")))?;
        Some(Participant { external_id, name: name.clone(), username: name, avatar_url: None })
    }
}

impl Comment {
    fn author(&self) -> User {
        let username = self.from.username.clone().or_else(|| self.username.clone());
        User { username, id: self.from.id.clone() }
    }

    fn message(&self, account: &ConnectorAccount, list: &CommentList, thread: &str) -> Option<FetchedMessage> {
        let (author, sent_at) = (self.author(), parse_time(&self.timestamp)?);
        let is_own = author.is(account);
        (is_id(&self.id) && is_id(thread)).then(|| FetchedMessage {
            external_id: self.id.clone(),
            kind: ConversationType::Comment,
            thread_id: thread.to_owned(),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: if is_own { None } else { author.participant() },
            subject: Some(Subject { external_id: list.post.clone(), url: list.url.clone() }),
            author_name: author.username,
            body: self.text.clone(),
            sent_at,
            reply_context: Map::new(),
        })
    }
}

/// The content of a page of comments.
struct CommentPage {
    messages: Vec<FetchedMessage>,
    continues: bool,
    /// Replies that did not come with their comments.
    replies: Vec<CommentList>,
}

/// Returns the comments of a page with their replies, oldest first.
fn comments(account: &ConnectorAccount, walk: &mut Walk, found: &[Value], list: &CommentList) -> CommentPage {
    let found: Vec<Comment> = read(found);
    let times: Vec<_> = found.iter().filter_map(|comment| parse_time(&comment.timestamp)).collect();
    let continues = walk.continues(&times);
    walk.record_times(&times);
    let (mut messages, mut replies) = (Vec::new(), Vec::new());
    for comment in found.iter().rev() {
        let below: Vec<Comment> = read(&comment.replies.data);
        let times: Vec<_> = below.iter().filter_map(|reply| parse_time(&reply.timestamp)).collect();
        walk.record_times(&times);
        let thread = list.thread.as_deref().unwrap_or(&comment.id);
        messages.extend(comment.message(account, list, thread));
        messages.extend(below.iter().filter_map(|reply| reply.message(account, list, thread)));
        let page = comment.replies.next().filter(|_| walk.is_long && is_id(&comment.id));
        let thread = Some(comment.id.clone());
        replies.extend(page.map(|page| CommentList { thread, page: Some(page), ..list.clone() }));
    }
    messages.retain(|message| message.sent_at >= walk.until);
    CommentPage { messages, continues, replies }
}

fn comment_fields() -> String {
    format!("{REPLY_FIELDS},replies.limit({REPLIES_WITH_COMMENT}){{{REPLY_FIELDS}}}")
}

impl Conversation {
    fn messages(self, account: &ConnectorAccount, until: DateTime<Utc>) -> Vec<FetchedMessage> {
        let people: Vec<User> = read(&self.participants.data);
        let person = people.iter().find(|person| !person.is(account)).and_then(User::participant);
        let Some(person) = person else { return Vec::new() };
        let message = |message: Message| {
            let is_own = message.from.is(account);
            Some(FetchedMessage {
                external_id: message.id,
                kind: ConversationType::Dm,
                thread_id: person.external_id.clone(),
                direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
                participant: Some(person.clone()),
                subject: None,
                author_name: message.from.username,
                body: message.message,
                sent_at: parse_time(&message.created_time).filter(|at| *at >= until)?,
                reply_context: Map::new(),
            })
        };
        read::<Message>(&self.messages.data).into_iter().rev().filter_map(message).collect()
    }
}

impl Instagram {
    /// Returns the failure if the permission of a stream is missing. `what` completes "does not allow Crier to …".
    fn missing_for(account: &ConnectorAccount, stream: &str, what: &str) -> Failure {
        let target = if is_by_facebook(account) { ConnectTarget::Page } else { ConnectTarget::Default };
        let permission = match (stream, target) {
            (COMMENTS, ConnectTarget::Default) => "instagram_business_manage_comments",
            (COMMENTS, ConnectTarget::Page) => "instagram_manage_comments",
            (_, ConnectTarget::Default) => "instagram_business_manage_messages",
            (_, ConnectTarget::Page) => "instagram_manage_messages",
        };
        missing_permission(Platform::Instagram, target, what, permission)
    }

    /// Returns the failure if the permission for comments is missing.
    pub(super) fn missing_for_comments(account: &ConnectorAccount, what: &str) -> Failure {
        Self::missing_for(account, COMMENTS, what)
    }

    /// Comments on a post, or replies to a comment. `path` is the list that the comment is added to.
    async fn comment(&self, account: &ConnectorAccount, path: &str, text: &str) -> Result<Published, GraphFailure> {
        let access = self.access(account)?;
        let request = access.request(Method::POST, path).json(&json!({ "message": text }));
        let created: Created = access.call_with_codes(Effect::Publishes, request).await?;
        Ok(Published::new(created.id, None))
    }

    /// Returns the account's own comments in a list, in any order.
    async fn own_comments(&self, account: &ConnectorAccount, path: &str) -> Result<OwnMessages, GraphFailure> {
        let query = [("fields", REPLY_FIELDS)];
        let (found, are_complete) = search::<Comment>(&self.access(account)?, path, &query).await?;
        let own = found.into_iter().filter(|one| one.author().is(account));
        let own_message =
            |one: Comment| OwnMessage { at: parse_time(&one.timestamp), id: one.id, text: one.text, url: None };
        Ok(OwnMessages { messages: own.map(own_message).collect(), are_complete })
    }

    /// Publishes a first comment on a post of the account.
    pub(super) async fn publish_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        text: &str,
    ) -> Result<Published, CallError> {
        let missing = Self::missing_for_comments(account, "comment on this account's posts");
        let published = self.comment(account, &format!("{post}/comments"), text).await;
        published.map_err(|failure| comment_error(failure, missing))
    }

    /// Looks up the first comment of an earlier call.
    pub(super) async fn reconcile_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        comment: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let own = self.own_comments(account, &format!("{post}/comments")).await;
        find_comment(&comment.text, comment.called_at, own)
    }
}

#[async_trait]
impl Streams for Instagram {
    const BELOW_POSTS: &'static str = COMMENTS;

    fn now(&self) -> DateTime<Utc> {
        self.client.now()
    }

    fn access_of(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError> {
        self.access(account)
    }

    fn missing(account: &ConnectorAccount, stream: &str) -> Failure {
        Self::missing_for(account, stream, &format!("read this account's {stream}"))
    }

    async fn posts(access: &Access<'_>, account: &ConnectorAccount, mut walk: Walk) -> Result<InboxPage, GraphFailure> {
        let fields = format!("id,timestamp,permalink,comments.limit({PER_PAGE}){{{}}}", comment_fields());
        let query = [("fields", fields.as_str()), ("limit", PER_PAGE)];
        let found = list(access, &format!("{}/media", account.external_id), &query, walk.page.as_deref()).await?;
        let posts: Vec<Media> = read(&found.data);
        let oldest = posts.iter().filter_map(|post| parse_time(&post.timestamp)).min();
        let (mut messages, mut lists, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for post in posts.into_iter().filter(|post| is_id(&post.id)) {
            let mut list = CommentList { post: post.id, url: post.permalink, ..CommentList::default() };
            let new = comments(account, &mut walk, &post.comments.data, &list);
            messages.extend(new.messages);
            replies.extend(new.replies);
            list.page = post.comments.next().filter(|_| new.continues);
            lists.extend(list.page.is_some().then_some(list));
        }
        // Comments come first, in case there are more lists than a cursor holds.
        lists.extend(replies);
        let (cursor, has_more) = walk.after_posts(found.next(), oldest, lists);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    /// Reads the comments of a post, or the replies to a comment.
    async fn below_post(
        access: &Access<'_>,
        account: &ConnectorAccount,
        mut walk: Walk,
        list: CommentList,
    ) -> Result<InboxPage, GraphFailure> {
        let (path, fields) = match &list.thread {
            Some(comment) => (format!("{comment}/replies"), REPLY_FIELDS.to_owned()),
            None => (format!("{}/comments", list.post), comment_fields()),
        };
        let query = [("fields", fields.as_str()), ("limit", PER_PAGE)];
        let found = list_below(access, &path, &query, list.page.as_deref()).await?;
        let new = comments(account, &mut walk, &found.data, &list);
        let next = found.next().filter(|_| new.continues || list.thread.is_some());
        let (cursor, has_more) = walk.after_list(next, new.replies);
        Ok(InboxPage { messages: new.messages, cursor, has_more, unavailable: None })
    }

    async fn newest_first(
        access: &Access<'_>,
        account: &ConnectorAccount,
        pass: Pass,
    ) -> Result<InboxPage, GraphFailure> {
        let query = [("platform", "instagram"), ("fields", CONVERSATION_FIELDS), ("limit", PER_PAGE)];
        // With a page's token, `me` is the page.
        let found = list(access, "me/conversations", &query, pass.page.as_deref()).await?;
        let conversations: Vec<Conversation> = read(&found.data);
        let times: Vec<_> = conversations.iter().filter_map(|one| parse_time(&one.updated_time)).collect();
        let messages = conversations.into_iter().flat_map(|one| one.messages(account, pass.until)).collect();
        let (cursor, has_more) = pass.after(&times, found.next());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

/// Returns the path of the replies to the comment that begins the thread.
fn replies(thread: &ReplyThread) -> Result<String, CallError> {
    let id = thread.thread_id.as_str();
    let is_comment = is_id(id) && thread.kind == ConversationType::Comment;
    if is_comment { Ok(format!("{id}/replies")) } else { Err(no_context()) }
}

#[async_trait]
impl InboxConnector for Instagram {
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

    fn rejection(&self, thread: &ReplyThread, _now: DateTime<Utc>) -> Option<String> {
        (thread.kind == ConversationType::Dm)
            .then(|| "Crier can only read Instagram direct messages. Reply to this one on Instagram.".to_owned())
    }

    /// A comment has the same maximum length as a caption.
    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Instagram, &catalogue::descriptor(Platform::Instagram).capabilities.text, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let path = replies(&reply.thread)?;
        let missing = Self::missing_for_comments(account, "reply to this account's comments");
        self.comment(account, &path, &reply.text).await.map_err(|failure| reply_error(failure, missing))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let own = self.own_comments(account, &replies(&reply.thread)?).await;
        find_comment(&reply.text, reply.called_at, own)
    }
}
