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
//! A comment has no idempotency key: after a call with an unknown outcome, the comments of the thread are searched for
//! its text.
//!
//! Sources: learn.microsoft.com/linkedin ("Comments API": `socialActions/{urn}/comments`, `commentUrn`,
//! `parentComment`, 201 with `x-restli-id`; "Posts API", "Find posts by authors": `sortBy`, `count`; "Pagination":
//! `start`, `count`, `paging.links`; "Error handling"), January to August 2026. Not tested with a real page: whether
//! each comment has `commentsSummary` (without it, replies are read too), the direction of `sortBy=CREATED` (the long
//! walk does not depend on it), and whether `serviceErrorCode` 100 always means a missing permission.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{FetchedMessage, MessageDirection, Participant, Subject};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, ConversationType, Platform, TextRules, TextUnit};
use http::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::pages::URN;
use super::{Linkedin, LinkedinError};
use crate::call::Effect;
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::own_message::{OwnMessage, find_reply};
use crate::inbox::permission::{denied, missing_permission, recently_denied};
use crate::inbox::{InboxPage, OutgoingReply, ReplyThread, check_length, no_context};
use crate::{CallError, ConnectorAccount, InboxConnector, Marker, MarkerSeed, Published, ReconcileResult, time_marker};

const COMMENTS: &str = "comments";
const INTERVAL: TimeDelta = TimeDelta::minutes(30);
const POSTS_PER_PAGE: usize = 10;
/// A page of comments adds at most this many lists of replies.
const COMMENTS_PER_PAGE: usize = 20;
/// The maximum number of posts, or comments of one post, that are read.
const MAX_ENTRIES: usize = 2_000;
/// The maximum number of calls per sync.
const CALLS_PER_SYNC: u64 = 100;
/// The number of comments per page, and of pages, that are searched for a reply.
const SEARCHED_PER_PAGE: usize = 100;
const MAX_SEARCHED_PAGES: usize = 3;
/// The error code if the application lacks a permission. Any other 403 concerns only the post.
const NO_PERMISSION: &str = "100";
const COMMENT_URN: &str = "urn:li:comment:(";
const TEXT: TextRules =
    TextRules { max: Some(1_250), unit: TextUnit::Characters, max_bytes: None, max_with_media: None, url_weight: None };

/// A page of a list.
#[derive(Default, Deserialize)]
struct Page {
    #[serde(default)]
    elements: Vec<Value>,
    #[serde(default)]
    paging: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Post {
    id: String,
    /// Milliseconds.
    created_at: Option<i64>,
    published_at: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Comment {
    /// The number of the comment.
    id: Option<String>,
    comment_urn: Option<String>,
    /// The post's activity.
    object: Option<String>,
    parent_comment: Option<String>,
    /// Missing if the application may not see the author.
    actor: Option<String>,
    message: Option<Text>,
    created: Option<Change>,
    last_modified: Option<Change>,
    comments_summary: Option<Value>,
}

#[derive(Deserialize)]
struct Text {
    #[serde(default)]
    text: String,
}

#[derive(Deserialize)]
struct Change {
    /// Milliseconds.
    time: i64,
}

impl Page {
    /// Returns the start of the next page. A page may have fewer entries than requested, because some are hidden.
    fn next(&self, start: usize, requested: usize) -> Option<String> {
        let number = |name: &str| self.paging[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let count = number("count").filter(|count| (1..=requested).contains(count)).unwrap_or(requested);
        let next = start.checked_add(count)?;
        let links = self.paging["links"].as_array().map(Vec::as_slice).unwrap_or_default();
        let has_link = links.iter().any(|link| link["rel"] == "next");
        let continues = has_link || number("total").map_or(self.elements.len() >= count, |total| total > next);
        (continues && next < MAX_ENTRIES).then(|| next.to_string())
    }

    /// Returns the readable entries. An unreadable entry must not hide the others.
    fn read<T: serde::de::DeserializeOwned>(&self, requested: usize) -> Vec<T> {
        self.elements.iter().take(requested).filter_map(|entry| T::deserialize(entry).ok()).collect()
    }
}

/// Parses the start of a page from a token of [`Page::next`].
fn start_of(page: Option<&str>) -> usize {
    page.and_then(|page| page.parse().ok()).unwrap_or(0)
}

/// Returns whether a URN is that of a post, so that it may become part of a URL.
fn is_post(urn: &str) -> bool {
    let number = urn.strip_prefix("urn:li:share:").or(urn.strip_prefix("urn:li:ugcPost:"));
    number.is_some_and(is_number)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Returns the two parts of `urn:li:comment:(urn:li:activity:1,2)`.
fn comment_parts(urn: &str) -> Option<(&str, &str)> {
    let (object, number) = urn.strip_prefix(COMMENT_URN)?.strip_suffix(')')?.split_once(',')?;
    (is_object(object) && is_number(number)).then_some((object, number))
}

fn is_object(urn: &str) -> bool {
    let parts = urn.strip_prefix("urn:li:").and_then(|rest| rest.split_once(':'));
    parts.is_some_and(|(kind, number)| {
        is_number(number) && kind.len() <= 40 && kind.bytes().all(|byte| byte.is_ascii_alphanumeric())
    })
}

fn comment_urn(object: &str, number: &str) -> Option<String> {
    (is_object(object) && is_number(number)).then(|| format!("{COMMENT_URN}{object},{number})"))
}

fn encoded(urn: &str) -> String {
    utf8_percent_encode(urn, NON_ALPHANUMERIC).to_string()
}

fn time(at: Option<i64>) -> Option<DateTime<Utc>> {
    at.and_then(DateTime::from_timestamp_millis)
}

impl Post {
    fn published_at(&self) -> Option<DateTime<Utc>> {
        time(self.published_at.or(self.created_at))
    }
}

impl Comment {
    fn urn(&self) -> Option<String> {
        let named = self.comment_urn.clone().filter(|urn| comment_parts(urn).is_some());
        named.or_else(|| comment_urn(self.object.as_deref()?, self.id.as_deref()?))
    }

    fn created_at(&self) -> Option<DateTime<Utc>> {
        time(self.created.as_ref().map(|change| change.time))
    }

    /// Returns the time of the last change.
    fn changed_at(&self) -> Option<DateTime<Utc>> {
        self.created_at().max(time(self.last_modified.as_ref().map(|change| change.time)))
    }

    /// Returns whether there may be replies. Only a count of 0 excludes them.
    fn may_have_replies(&self) -> bool {
        let summary = self.comments_summary.as_ref();
        let number = summary.and_then(|summary| summary["aggregatedTotalComments"].as_u64());
        number.is_none_or(|number| number > 0)
    }

    fn text(&self) -> String {
        self.message.as_ref().map(|message| message.text.clone()).unwrap_or_default()
    }

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

fn missing(action: &str, permission: &str) -> Failure {
    missing_permission(
        Platform::Linkedin,
        ConnectTarget::Page,
        &format!("{action} this account's comments"),
        permission,
    )
}

impl LinkedinError {
    fn is_permission(&self) -> bool {
        let code = self.error.failure().platform_code.as_deref();
        self.status == Some(StatusCode::FORBIDDEN) && code == Some(NO_PERMISSION)
    }

    /// Converts the error to that of a reply.
    fn reply_error(self) -> CallError {
        let code = self.error.failure().platform_code.clone().unwrap_or_default();
        let permanent =
            |category, message: &str| CallError::Permanent(Failure::of(category, message).from_platform(&code));
        match self.status {
            Some(StatusCode::FORBIDDEN) if self.is_permission() => {
                CallError::Permanent(missing("reply to", "w_organization_social_feed").from_platform(&code))
            }
            Some(StatusCode::NOT_FOUND) => {
                permanent(Category::PlatformRejected, "The message to reply to no longer exists.")
            }
            _ => self.error,
        }
    }
}

impl Linkedin {
    async fn list(&self, account: &ConnectorAccount, path: &str, is_finder: bool) -> Result<Page, LinkedinError> {
        let token = account.secrets.require("access_token")?;
        let mut request = self.request(Method::GET, path, &token);
        if is_finder {
            request = request.header("X-RestLi-Method", "FINDER");
        }
        let response = self.send(Effect::Repeatable, request).await?;
        Ok(self.client.read(Effect::Repeatable, &response)?)
    }

    /// Requests a page of the comments on a post, or of the replies to a comment.
    async fn comments_of(
        &self,
        account: &ConnectorAccount,
        urn: &str,
        start: usize,
        count: usize,
    ) -> Result<Page, LinkedinError> {
        let path = format!("/rest/socialActions/{}/comments?start={start}&count={count}", encoded(urn));
        self.list(account, &path, false).await
    }

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

    /// Returns the page's own messages in a thread, newest first, and whether they are complete.
    async fn own_messages(
        &self,
        account: &ConnectorAccount,
        thread: &str,
    ) -> Result<(Vec<OwnMessage>, bool), LinkedinError> {
        let (mut own_messages, mut page, mut is_all) = (Vec::new(), None::<String>, false);
        for _ in 0..MAX_SEARCHED_PAGES {
            let start = start_of(page.as_deref());
            let found = self.comments_of(account, thread, start, SEARCHED_PER_PAGE).await?;
            let comments: Vec<Comment> = found.read(SEARCHED_PER_PAGE);
            let own = comments.into_iter().filter(|one| one.actor.as_deref() == Some(&account.external_id));
            own_messages.extend(own.filter_map(|one| {
                Some(OwnMessage { id: one.urn()?, text: one.text(), at: one.created_at(), url: None })
            }));
            page = found.next(start, SEARCHED_PER_PAGE);
            if page.is_none() {
                is_all = true;
                break;
            }
        }
        own_messages.sort_by_key(|one| std::cmp::Reverse(one.at));
        Ok((own_messages, is_all))
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
        let (now, missing) = (self.client.now(), missing("read", "r_organization_social_feed"));
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

    fn refusal(&self, _thread: &ReplyThread, _now: DateTime<Utc>) -> Option<String> {
        None
    }

    fn check_text(&self, _thread: &ReplyThread, text: &str) -> Result<(), String> {
        check_length(Platform::Linkedin, &TEXT, text)
    }

    fn marker(&self, seed: MarkerSeed) -> Marker {
        time_marker(seed)
    }

    fn can_reconcile(&self) -> bool {
        true
    }

    /// Sends plain text: only posts use the "little text format".
    async fn reply(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<Published, CallError> {
        let thread = reply.thread.thread_id.as_str();
        let (object, _) = comment_parts(thread).ok_or_else(no_context)?;
        let body = json!({
            "actor": account.external_id,
            "object": object,
            "message": { "text": reply.text },
            "parentComment": thread,
        });
        let token = account.secrets.require("access_token")?;
        let path = format!("/rest/socialActions/{}/comments", encoded(thread));
        let request = self.request(Method::POST, &path, &token).json(&body);
        let response = self.send(Effect::Publishes, request).await.map_err(LinkedinError::reply_error)?;
        let urn_in_body = serde_json::from_slice::<Comment>(&response.body).ok().and_then(|comment| comment.urn());
        let number = response.headers.get("x-restli-id").and_then(|id| id.to_str().ok());
        let urn = urn_in_body.or_else(|| comment_urn(object, number?));
        urn.map(|urn| Published::new(urn, None)).ok_or_else(|| {
            let message = "LinkedIn accepted the reply but returned no ID: it may have been published.";
            CallError::Unknown(Failure::of(Category::OutcomeUnknown, message))
        })
    }

    async fn reconcile(&self, account: &ConnectorAccount, reply: &OutgoingReply) -> Result<ReconcileResult, CallError> {
        let thread = reply.thread.thread_id.as_str();
        comment_parts(thread).ok_or_else(no_context)?;
        let (own_messages, is_all) = match self.own_messages(account, thread).await {
            // The message that was replied to was deleted, and its replies with it.
            Err(LinkedinError { status: Some(StatusCode::NOT_FOUND), .. }) => return Ok(ReconcileResult::Absent),
            own_messages => own_messages?,
        };
        Ok(match find_reply(reply, own_messages.into_iter()) {
            ReconcileResult::Absent if !is_all => ReconcileResult::Unsupported,
            found => found,
        })
    }
}
