//! The inbox of Threads: replies to the account's posts, and mentions. There are no direct messages.
//!
//! There is no list of all replies, so they are requested for each post that has any. A reply names the post at the top
//! of the tree and its parent; the posts between are looked up. A direct reply to the account's post begins a thread.
//! Users have a name, but no id.
//!
//! A reply is a container that names its parent, and is then published. After a call with an unknown outcome, the
//! account's replies under the same post are searched for its text.
//!
//! Sources: Threads API ("Replies and conversations", "Mentions", "Reply to posts"), as of January to September 2026.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::catalogue;
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::Failure;
use crier_domain::platform::{ConnectTarget, ConversationType, Platform};
use http::Method;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Threads;
use crate::call::Effect;
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::newest_first::Pass;
use crate::inbox::parents::{MAX_LEVELS, Parents};
use crate::inbox::permission::missing_permission;
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, context_text};
use crate::meta::containers::{ContainerRequest, is_id, missing_reply_permission};
use crate::meta::graph::{Access, GraphFailure, List, parse_time};
use crate::meta::inbox::{self, INTERVAL, Streams, list, list_below, read, reply_error};
use crate::meta::insights::is_gone;
use crate::text::comparable::is_same;
use crate::window::{CallWindow, Listed, find};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const REPLIES: &str = "replies";
const MENTIONS: &str = "mentions";
const POSTS_PER_PAGE: &str = "25";
const REPLIES_PER_PAGE: &str = "50";
/// The maximum number of the account's recent replies that are searched.
const MAX_RECENT_REPLIES: usize = 50;
const FIELDS: &str = "id,text,username,timestamp,permalink,root_post,replied_to,is_reply_owned_by_me";
/// The maximum number of posts that are looked up for one page, one call each.
const MAX_LOOKED_UP: usize = 10;
/// The context's key for the id to reply to.
const REPLY_TO: &str = "reply_to";

#[derive(Deserialize)]
struct Post {
    id: String,
    permalink: Option<String>,
    #[serde(default)]
    timestamp: String,
    has_replies: Option<bool>,
}

#[derive(Deserialize)]
struct Object {
    id: String,
}

/// A reply or a mention.
#[derive(Deserialize)]
struct Reply {
    id: String,
    #[serde(default)]
    text: String,
    username: Option<String>,
    #[serde(default)]
    timestamp: String,
    permalink: Option<String>,
    root_post: Option<Object>,
    replied_to: Option<Object>,
    #[serde(default)]
    is_reply_owned_by_me: bool,
}

/// The parent of a reply.
#[derive(Deserialize)]
struct Link {
    replied_to: Option<Object>,
}

impl Reply {
    fn is_own(&self, account: &ConnectorAccount) -> bool {
        let is_named = |name: &String| account.username.as_ref().is_some_and(|own| own.eq_ignore_ascii_case(name));
        self.is_reply_owned_by_me || self.username.as_ref().is_some_and(is_named)
    }

    fn message(
        self,
        account: &ConnectorAccount,
        kind: ConversationType,
        thread_id: String,
        subject: Subject,
    ) -> Option<FetchedMessage> {
        let (is_own, sent_at) = (self.is_own(account), parse_time(&self.timestamp)?);
        let person = self.username.clone().filter(|_| !is_own).map(|name| Participant {
            external_id: name.to_lowercase(),
            name: Some(name.clone()),
            username: Some(name),
            avatar_url: None,
        });
        is_id(&self.id).then(|| FetchedMessage {
            kind,
            thread_id,
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: person,
            subject: Some(subject),
            author_name: self.username,
            body: self.text,
            sent_at,
            reply_context: Map::from_iter([(REPLY_TO.to_owned(), Value::from(self.id.clone()))]),
            external_id: self.id,
        })
    }
}

#[async_trait]
impl Streams for Threads {
    const BELOW_POSTS: &'static str = REPLIES;

    fn now(&self) -> DateTime<Utc> {
        self.client.now()
    }

    fn access_of(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError> {
        Ok(self.access(account.secrets.require("access_token")?))
    }

    fn missing(_account: &ConnectorAccount, stream: &str) -> Failure {
        let (what, permission) = match stream {
            REPLIES => ("read this account's replies", "threads_read_replies"),
            _ => ("read this account's mentions", "threads_manage_mentions"),
        };
        missing_permission(Platform::Threads, ConnectTarget::Default, what, permission)
    }

    async fn posts(access: &Access<'_>, account: &ConnectorAccount, walk: Walk) -> Result<InboxPage, GraphFailure> {
        let query = [("fields", "id,timestamp,permalink,has_replies"), ("limit", POSTS_PER_PAGE)];
        let found = list(access, &format!("{}/threads", account.external_id), &query, walk.page.as_deref()).await?;
        let posts: Vec<Post> = read(&found.data);
        let oldest = posts.iter().filter_map(|post| parse_time(&post.timestamp)).min();
        let since = walk.posts_since();
        let is_wanted = |post: &Post| {
            let is_recent = parse_time(&post.timestamp).is_some_and(|at| at >= since);
            is_recent && is_id(&post.id) && post.has_replies != Some(false)
        };
        let wanted = posts.into_iter().filter(is_wanted);
        let lists = wanted.map(|post| CommentList { post: post.id, url: post.permalink, ..CommentList::default() });
        let (cursor, has_more) = walk.after_posts(found.next(), oldest, lists.collect());
        Ok(InboxPage { cursor, has_more, ..InboxPage::default() })
    }

    /// Reads the replies to a post, on all levels.
    async fn below_post(
        access: &Access<'_>,
        account: &ConnectorAccount,
        mut walk: Walk,
        list: CommentList,
    ) -> Result<InboxPage, GraphFailure> {
        let query = [("fields", FIELDS), ("reverse", "true"), ("limit", REPLIES_PER_PAGE)];
        let found = list_below(access, &format!("{}/conversation", list.post), &query, list.page.as_deref()).await?;
        let replies: Vec<Reply> = read(&found.data);
        let times: Vec<_> = replies.iter().filter_map(|reply| parse_time(&reply.timestamp)).collect();
        let continues = walk.continues(&times);
        walk.record_times(&times);
        let mut parents = Parents::default();
        for reply in &replies {
            add(&mut parents, &reply.id, reply.replied_to.as_ref(), &list.post);
        }
        let is_new = |reply: &Reply| parse_time(&reply.timestamp).is_some_and(|at| at >= walk.until);
        let new: Vec<Reply> = replies.into_iter().filter(is_new).collect();
        Self::look_up_parents(access, &new, &list.post, &mut parents).await?;
        let subject = Subject { external_id: list.post.clone(), url: list.url.clone() };
        let message = |reply: Reply| {
            let thread = parents.top(&reply.id).to_owned();
            reply.message(account, ConversationType::Comment, thread, subject.clone())
        };
        // Oldest first, because the times are whole seconds.
        let messages = new.into_iter().rev().filter_map(message).collect();
        let (cursor, has_more) = walk.after_list(found.next().filter(|_| continues), Vec::new());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    async fn newest_first(
        access: &Access<'_>,
        account: &ConnectorAccount,
        pass: Pass,
    ) -> Result<InboxPage, GraphFailure> {
        let query = [("fields", FIELDS), ("limit", REPLIES_PER_PAGE)];
        let found = list(access, &format!("{}/mentions", account.external_id), &query, pass.page.as_deref()).await?;
        let mentions: Vec<Reply> = read(&found.data);
        let times: Vec<_> = mentions.iter().filter_map(|mention| parse_time(&mention.timestamp)).collect();
        let message = |mention: Reply| {
            let root = mention.root_post.as_ref().map_or_else(|| mention.id.clone(), |root| root.id.clone());
            let url = mention.permalink.clone().filter(|_| root == mention.id);
            mention.message(account, ConversationType::Mention, root.clone(), Subject { external_id: root, url })
        };
        let new = mentions.into_iter().rev().filter_map(message).filter(|message| message.sent_at >= pass.until);
        let messages = new.filter(|message| message.direction == MessageDirection::Inbound).collect();
        let (cursor, has_more) = pass.after(&times, found.next());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

impl Threads {
    async fn look_up_parents(
        access: &Access<'_>,
        replies: &[Reply],
        post: &str,
        parents: &mut Parents,
    ) -> Result<(), GraphFailure> {
        let mut calls = 0;
        for _ in 0..MAX_LEVELS {
            for id in parents.missing(replies.iter().map(|reply| reply.id.as_str())) {
                calls += 1;
                if calls > MAX_LOOKED_UP {
                    return Ok(());
                }
                // If an ancestor was deleted, its child begins the thread.
                parents.insert(&id, None);
                let request = access.request(Method::GET, &id).query(&[("fields", "id,replied_to")]);
                match access.call_with_codes::<Link>(Effect::Repeatable, request).await {
                    Ok(link) => add(parents, &id, link.replied_to.as_ref(), post),
                    Err(failure) if is_gone(&failure) => {}
                    Err(failure) => return Err(failure),
                }
            }
        }
        Ok(())
    }
}

/// Adds the parent of a reply. A reply to the post begins a thread.
fn add(parents: &mut Parents, id: &str, replied_to: Option<&Object>, post: &str) {
    let above = replied_to.map(|above| above.id.as_str()).filter(|above| *above != post && is_id(above));
    parents.insert(id, above);
}

#[async_trait]
impl InboxConnector for Threads {
    fn streams(&self) -> &'static [&'static str] {
        &[REPLIES, MENTIONS]
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

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Threads, &catalogue::descriptor(Platform::Threads).capabilities.text, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let request = ContainerRequest::from_iter([
            ("media_type".to_owned(), json!("TEXT")),
            ("text".to_owned(), Value::from(reply.text.as_str())),
            ("reply_to_id".to_owned(), Value::from(context_text(&reply.thread, REPLY_TO)?)),
        ]);
        let created = self.containers(account)?.publish_unstored(&request).await;
        created.map_err(|failure| reply_error(failure, missing_reply_permission()))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let access = self.access_of(account)?;
        let query = [("fields", FIELDS), ("limit", &MAX_RECENT_REPLIES.to_string())];
        let request = access.request(Method::GET, &format!("{}/replies", account.external_id)).query(&query);
        let found: List<Value> = access.call(Effect::Repeatable, request).await?;
        let names = |object: &Option<Object>, id: Option<&str>| {
            id.is_some() && object.as_ref().map(|object| object.id.as_str()) == id
        };
        let (root, above) = (reply.thread.subject_external_id.as_deref(), context_text(&reply.thread, REPLY_TO).ok());
        // The post at the top tells less: two replies may have the same text.
        let here = |one: &Reply| match one.replied_to {
            Some(_) => names(&one.replied_to, above),
            None => names(&one.root_post, root),
        };
        let window = CallWindow::of(reply.called_at).with_next_page(found.has_next_page());
        let listed = read::<Reply>(&found.data).into_iter().map(|one| Listed {
            at: parse_time(&one.timestamp),
            is_same: here(&one) && is_same(&one.text, &reply.text),
            published: Published::new(one.id, one.permalink),
        });
        Ok(find(window, listed.collect(), MAX_RECENT_REPLIES))
    }
}
