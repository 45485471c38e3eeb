//! The inbox of YouTube: comments on the channel's videos, with the replies to them. A reply goes to the comment that
//! begins the thread.
//!
//! YouTube lists the comments of all videos, the newest first, each with some of the replies to it. The others are read
//! if one of these is new. So a reply to a comment that has many replies and no other new one is missed. All lists are
//! walked as other platforms' lists of posts: the newest page in each sync, and once per hour those of the last 30 days.
//!
//! All accounts of an application share a quota of 10,000 units per day. A page is one unit, and a reply is 50.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::platform::{ConversationType, Platform, TextRules, TextUnit};
use serde::Deserialize as _;
use serde_json::{Map, Value};

use super::comments::{COMMENTS, Comment, THREADS, Thread, missing};
use super::rest::{List, NO_PERMISSION, has_reason};
use super::{Youtube, is_id, video_url};
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::permission::{denied, recently_denied};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

/// The name of the stream.
const STREAM: &str = "comments";
const TEXT: TextRules = TextRules {
    max: Some(10_000),
    unit: TextUnit::Characters,
    max_bytes: None,
    max_with_media: None,
    url_weight: None,
};

impl Comment {
    fn participant(&self) -> Option<Participant> {
        let name = self.snippet.author_display_name.clone();
        // A comment of a deleted channel may have its author's name without an id.
        let by_name = || name.as_ref().map(|name| format!("name:{name}"));
        Some(Participant {
            external_id: self.author().map(str::to_owned).or_else(by_name)?,
            // The name is the handle of the channel.
            username: name.as_deref().and_then(|name| name.strip_prefix('@')).map(str::to_owned),
            name,
            avatar_url: self.snippet.author_profile_image_url.clone(),
        })
    }

    fn message(&self, account: &ConnectorAccount, thread: &str, video: Option<&str>) -> Option<FetchedMessage> {
        let is_own = self.is_own(account);
        (is_id(&self.id) && is_id(thread)).then(|| FetchedMessage {
            external_id: self.id.clone(),
            kind: ConversationType::Comment,
            thread_id: thread.to_owned(),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: if is_own { None } else { self.participant() },
            subject: video.map(|id| Subject { external_id: id.to_owned(), url: Some(video_url(id)) }),
            author_name: self.snippet.author_display_name.clone(),
            body: self.snippet.text_display.clone(),
            sent_at: self.snippet.published_at,
            reply_context: Map::new(),
        })
    }
}

/// Returns the time of each comment.
fn times(comments: &[Comment]) -> Vec<DateTime<Utc>> {
    comments.iter().map(|comment| comment.snippet.published_at).collect()
}

impl Youtube {
    /// Reads a page of threads.
    async fn threads(&self, account: &ConnectorAccount, mut walk: Walk) -> Result<InboxPage, CallError> {
        let channel = account.external_id.as_str();
        let query = [("part", "snippet,replies"), ("allThreadsRelatedToChannelId", channel), ("order", "time")];
        let found = self.comments(account, THREADS, &query, walk.page.as_deref()).await?;
        let threads: Vec<Thread> = found.read();
        let oldest = threads.iter().map(|thread| thread.snippet.top_level_comment.snippet.published_at).min();
        let (mut messages, mut lists) = (Vec::new(), Vec::new());
        // The oldest first.
        for thread in threads.into_iter().rev() {
            let (first, video) = (thread.snippet.top_level_comment, thread.snippet.video_id.filter(|id| is_id(id)));
            let id = first.id.clone();
            let replies = thread.replies.comments.iter().take(100);
            let replies: Vec<Comment> = replies.filter_map(|reply| Comment::deserialize(reply).ok()).collect();
            let has_more = thread.snippet.total_reply_count > replies.len();
            let comments: Vec<Comment> = [first].into_iter().chain(replies).collect();
            let times = times(&comments);
            walk.record_times(&times);
            if has_more && is_id(&id) && times.iter().any(|at| *at >= walk.until) {
                let post = video.clone().unwrap_or_default();
                lists.push(CommentList { post, thread: Some(id.clone()), ..CommentList::default() });
            }
            messages.extend(comments.iter().filter_map(|one| one.message(account, &id, video.as_deref())));
        }
        messages.retain(|message: &FetchedMessage| message.sent_at >= walk.until);
        let (cursor, has_more) = walk.after_posts(found.next(), oldest, lists);
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }

    /// Reads a page of the replies to a comment, whose order is not documented.
    async fn replies(
        &self,
        account: &ConnectorAccount,
        mut walk: Walk,
        list: &CommentList,
        thread: &str,
    ) -> Result<InboxPage, CallError> {
        let query = [("part", "snippet"), ("parentId", thread)];
        let found = match self.comments(account, COMMENTS, &query, list.page.as_deref()).await {
            // The comment was deleted.
            Err(error) if has_reason(&error, "commentNotFound") => List::default(),
            found => found?,
        };
        let replies: Vec<Comment> = found.read();
        walk.record_times(&times(&replies));
        let video = Some(list.post.as_str()).filter(|id| !id.is_empty());
        let messages = replies.iter().filter_map(|reply| reply.message(account, thread, video));
        let messages = messages.filter(|message| message.sent_at >= walk.until).collect();
        let (cursor, has_more) = walk.after_list(found.next(), Vec::new());
        Ok(InboxPage { messages, cursor, has_more, unavailable: None })
    }
}

/// Returns the id of the comment that begins a thread.
fn first_comment(thread: &ReplyThread) -> Result<&str, CallError> {
    let id = thread.thread_id.as_str();
    if is_id(id) && thread.kind == ConversationType::Comment { Ok(id) } else { Err(no_context()) }
}

#[async_trait]
impl InboxConnector for Youtube {
    fn streams(&self) -> &'static [&'static str] {
        &[STREAM]
    }

    /// The quota is shared by all accounts of the application.
    fn interval(&self) -> TimeDelta {
        TimeDelta::minutes(15)
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        let (now, missing) = (self.client.now(), missing("read this account's comments"));
        if let Some(page) = recently_denied(account, cursor, now, &missing) {
            return Ok(page);
        }
        let walk = Walk::read(cursor, now);
        let (restart, list) = (walk.restart(), walk.list().cloned());
        let has_page = walk.page.is_some() || list.is_some();
        let thread = list.as_ref().and_then(|list| Some((list, list.thread.as_deref()?)));
        let read = match thread {
            Some((list, thread)) => self.replies(account, walk, list, thread).await,
            None => self.threads(account, walk).await,
        };
        match read {
            Err(error) if has_reason(&error, NO_PERMISSION) => Ok(denied(account, restart, now, missing)),
            // The page token is no longer valid.
            Err(CallError::Permanent(_)) if has_page => Ok(InboxPage { cursor: restart, ..InboxPage::default() }),
            read => read,
        }
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Youtube, &TEXT, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        self.reply_to(account, first_comment(&reply.thread)?, &reply.text).await
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        self.find_reply(account, first_comment(&reply.thread)?, &reply.text, reply.called_at).await
    }
}
