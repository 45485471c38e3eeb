//! The inbox of an organization's page: the comments on its posts, with their replies. LinkedIn lets no application
//! read messages to users.
//!
//! The order of comments is not documented, so each sync reads all pages of a post's comments, and of the replies to
//! them, and skips what was neither written nor changed since the last one. Comments show the author as a URN. A user's
//! name needs permissions that pages do not have, so participants have an id without a name.
//!
//! LinkedIn limits calls per day, for the application and for the user who connected the page, and does not state the
//! limits. So a page is synced every half hour.
//!
//! Sources: learn.microsoft.com/linkedin ("Posts API", "Find posts by authors": `sortBy`, `count`; `comments.rs` has
//! those of comments), January to August 2026. Not tested with a real page: whether each comment has `commentsSummary`
//! (without it, replies are read too), the direction of `sortBy=CREATED` (the long walk does not depend on it), and
//! whether `serviceErrorCode` 100 always means a missing permission.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::platform::{ConversationType, Platform, TextRules, TextUnit};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::comments::{Comment, Page, WRITE, start_of, time};
use super::pages::URN;
use super::urn::{comment_parts, encoded, is_post};
use super::{Linkedin, LinkedinError};
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::permission::{denied, recently_denied};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const COMMENTS: &str = "comments";
const INTERVAL: TimeDelta = TimeDelta::minutes(30);
const POSTS_PER_PAGE: usize = 10;
/// A page of comments adds at most this many lists of replies.
const COMMENTS_PER_PAGE: usize = 20;
/// The maximum number of calls per sync.
const CALLS_PER_SYNC: u64 = 100;
/// The permissions to read comments, of a user's account and of a page.
const READ: [&str; 2] = ["r_member_social_feed", "r_organization_social_feed"];
const TEXT: TextRules =
    TextRules { max: Some(1_250), unit: TextUnit::Characters, max_bytes: None, max_with_media: None, url_weight: None };

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Post {
    id: String,
    /// Milliseconds.
    created_at: Option<i64>,
    published_at: Option<i64>,
}

impl Post {
    fn published_at(&self) -> Option<DateTime<Utc>> {
        time(self.published_at.or(self.created_at))
    }
}

impl Comment {
    /// Returns the message in its thread, which begins with a comment on the post.
    fn message(&self, page: &str, list: &CommentList) -> Option<FetchedMessage> {
        let external_id = self.urn()?;
        let parent = self.parent_comment.clone().filter(|urn| comment_parts(urn).is_some());
        let is_own = self.actor.as_deref() == Some(page);
        let person = self.actor.clone().filter(|_| !is_own);
        let no_name = |external_id| Participant { external_id, name: None, username: None, avatar_url: None };
        Some(FetchedMessage {
            kind: ConversationType::Comment,
            thread_id: list.thread.clone().or(parent).unwrap_or_else(|| external_id.clone()),
            direction: if is_own { MessageDirection::Outbound } else { MessageDirection::Inbound },
            participant: person.map(no_name),
            subject: Some(Subject { external_id: list.post.clone(), url: list.url.clone() }),
            author_name: None,
            body: self.text(),
            sent_at: self.created_at()?,
            reply_context: Map::new(),
            external_id,
        })
    }
}

impl Linkedin {
    /// Reads a page of posts. Their comments are read next.
    async fn posts(&self, account: &ConnectorAccount, walk: Walk) -> Result<InboxPage, LinkedinError> {
        let start = start_of(walk.page.as_deref());
        let author = encoded(&account.external_id);
        let path = format!("/rest/posts?author={author}&q=author&count={POSTS_PER_PAGE}&start={start}&sortBy=CREATED");
        let found = self.list(account, &path, true).await?;
        let posts: Vec<Post> = found.read(POSTS_PER_PAGE);
        // The order is not documented, so the walk ends at a page that has only old posts.
        let newest = posts.iter().filter_map(Post::published_at).max();
        let since = walk.posts_since();
        let is_new = |post: &Post| post.published_at().is_some_and(|at| at >= since);
        let lists = posts.into_iter().filter(|post| is_post(&post.id) && is_new(post)).map(|post| CommentList {
            url: super::published(&post.id).url,
            post: post.id,
            ..CommentList::default()
        });
        let lists = lists.collect();
        let (cursor, has_more) = walk.after_posts(found.next(start, POSTS_PER_PAGE), newest, lists);
        Ok(InboxPage { cursor, has_more, ..InboxPage::default() })
    }

    /// Reads a page of the comments on a post, or of the replies to a comment.
    async fn comments(
        &self,
        account: &ConnectorAccount,
        mut walk: Walk,
        list: CommentList,
    ) -> Result<InboxPage, LinkedinError> {
        let urn = list.thread.as_deref().unwrap_or(&list.post);
        let start = start_of(list.page.as_deref());
        let (found, unavailable) = match self.comments_of(account, urn, start, COMMENTS_PER_PAGE).await {
            // The post or comment was deleted meanwhile, with its comments.
            Err(LinkedinError { status: Some(StatusCode::NOT_FOUND), .. }) => (Page::default(), None),
            // Other posts can still be read.
            Err(failed) if failed.status == Some(StatusCode::FORBIDDEN) && !failed.is_permission() => {
                (Page::default(), Some(failed.error.failure().clone()))
            }
            found => (found?, None),
        };
        let comments: Vec<Comment> = found.read(COMMENTS_PER_PAGE);
        walk.record_times(&comments.iter().filter_map(Comment::changed_at).collect::<Vec<_>>());
        let is_new = |comment: &&Comment| comment.changed_at().is_some_and(|at| at >= walk.until);
        let new = comments.iter().filter(is_new);
        let mut messages: Vec<_> = new.filter_map(|one| one.message(&account.external_id, &list)).collect();
        messages.sort_by_key(|message| message.sent_at);
        let may_have_below = comments.iter().filter(|one| list.thread.is_none() && one.may_have_replies());
        let below = |thread| CommentList { thread: Some(thread), page: None, ..list.clone() };
        let below = may_have_below.filter_map(Comment::urn).map(below).collect();
        let (cursor, has_more) = walk.after_list_with_below(found.next(start, COMMENTS_PER_PAGE), below);
        Ok(InboxPage { messages, cursor, has_more, unavailable })
    }
}

#[async_trait]
impl InboxConnector for Linkedin {
    fn streams(&self) -> &'static [&'static str] {
        &[COMMENTS]
    }

    fn reads(&self, external_id: &str) -> bool {
        external_id.starts_with(URN)
    }

    fn interval(&self) -> TimeDelta {
        INTERVAL
    }

    async fn fetch(
        &self,
        account: &ConnectorAccount,
        _stream: &str,
        cursor: Option<&Value>,
    ) -> Result<InboxPage, CallError> {
        if !self.reads(&account.external_id) {
            return Ok(InboxPage::default());
        }
        let (now, missing) = (self.client.now(), Self::missing(account, "read this account's comments", READ));
        if let Some(page) = recently_denied(account, cursor, now, &missing) {
            return Ok(page);
        }
        let mut walk = Walk::read(cursor, now);
        walk.pages_per_sync = CALLS_PER_SYNC;
        let (restart, has_page) = (walk.restart(), walk.page.is_some());
        match walk.list().cloned() {
            Some(list) => match self.comments(account, walk, list).await {
                Err(failed) if failed.is_permission() => Ok(denied(account, restart, now, missing)),
                read => Ok(read?),
            },
            None => match self.posts(account, walk).await {
                // The page token is no longer valid.
                Err(LinkedinError { error: CallError::Permanent(_), .. }) if has_page => {
                    Ok(InboxPage { cursor: restart, ..InboxPage::default() })
                }
                read => Ok(read?),
            },
        }
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Linkedin, &TEXT, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let thread = reply.thread.thread_id.as_str();
        let (object, _) = comment_parts(thread).ok_or_else(no_context)?;
        let missing = Self::missing(account, "reply to this account's comments", WRITE);
        let message = "The message to reply to no longer exists.";
        let sent = self.comment(account, object, Some(thread), &reply.text).await;
        sent.map_err(|failed| failed.of_comment(missing, CallError::Permanent, message))
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let thread = reply.thread.thread_id.as_str();
        comment_parts(thread).ok_or_else(no_context)?;
        self.find_comment(account, thread, &reply.text, reply.called_at).await
    }
}
