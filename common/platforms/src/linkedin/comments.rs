//! Comments on posts, and replies to them: reading, publishing, and finding one whose response was lost. First comments
//! and the inbox of pages use the same calls.
//!
//! A comment has no idempotency key: after a call with an unknown outcome, the comments on the post or the replies to
//! the comment are searched for its text. LinkedIn lets applications read the comments of pages, but not of users.
//!
//! Sources: learn.microsoft.com/linkedin ("Comments API": `socialActions/{urn}/comments`, `commentUrn`,
//! `parentComment`, 201 with `x-restli-id`; "Pagination": `start`, `count`, `paging.links`; "Error handling"), January
//! to August 2026. Not tested with a real account: whether `object` may be the URN of the post instead of its activity.

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Platform};
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::urn::{comment_parts, comment_urn, encoded, is_object};
use super::{Linkedin, LinkedinError, author};
use crate::call::Effect;
use crate::inbox::own_message::{OwnMessage, OwnMessages};
use crate::inbox::permission::missing_permission;
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult};

/// The maximum number of posts, or comments of one post, that are read.
const MAX_ENTRIES: usize = 2_000;
/// The number of comments per page, and of pages, that are searched for a comment.
const SEARCHED_PER_PAGE: usize = 100;
const MAX_SEARCHED_PAGES: usize = 3;
/// The error code if the application lacks a permission. Any other 403 concerns only the post.
const NO_PERMISSION: &str = "100";
/// The permissions to write comments, of a user's account and of a page.
pub(super) const WRITE: [&str; 2] = ["w_member_social_feed", "w_organization_social_feed"];

/// A page of a list.
#[derive(Default, Deserialize)]
pub(super) struct Page {
    elements: Vec<Value>,
    #[serde(default)]
    paging: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Comment {
    /// The number of the comment.
    id: Option<String>,
    comment_urn: Option<String>,
    /// The post's activity.
    object: Option<String>,
    pub(super) parent_comment: Option<String>,
    /// Missing if the application may not see the author.
    pub(super) actor: Option<String>,
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
    pub(super) fn next(&self, start: usize, requested: usize) -> Option<String> {
        let number = |name: &str| self.paging[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let count = number("count").filter(|count| (1..=requested).contains(count)).unwrap_or(requested);
        let next = start.checked_add(count)?;
        let continues =
            has_next_link(&self.paging) || number("total").map_or(self.elements.len() >= count, |total| total > next);
        (continues && next < MAX_ENTRIES).then(|| next.to_string())
    }

    /// Returns the readable entries. An unreadable entry must not hide the others.
    pub(super) fn read<T: serde::de::DeserializeOwned>(&self, requested: usize) -> Vec<T> {
        self.elements.iter().take(requested).filter_map(|entry| T::deserialize(entry).ok()).collect()
    }
}

/// Returns whether a page links to a next one.
pub(super) fn has_next_link(paging: &Value) -> bool {
    paging["links"].as_array().is_some_and(|links| links.iter().any(|link| link["rel"] == "next"))
}

/// Parses the start of a page from a token of [`Page::next`].
pub(super) fn start_of(page: Option<&str>) -> usize {
    page.and_then(|page| page.parse().ok()).unwrap_or(0)
}

pub(super) fn time(at: Option<i64>) -> Option<DateTime<Utc>> {
    at.and_then(DateTime::from_timestamp_millis)
}

impl Comment {
    pub(super) fn urn(&self) -> Option<String> {
        let named = self.comment_urn.clone().filter(|urn| comment_parts(urn).is_some());
        named.or_else(|| comment_urn(self.object.as_deref()?, self.id.as_deref()?))
    }

    pub(super) fn created_at(&self) -> Option<DateTime<Utc>> {
        time(self.created.as_ref().map(|change| change.time))
    }

    /// Returns the time of the last change.
    pub(super) fn changed_at(&self) -> Option<DateTime<Utc>> {
        self.created_at().max(time(self.last_modified.as_ref().map(|change| change.time)))
    }

    /// Returns whether there may be replies. Only a count of 0 excludes them.
    pub(super) fn may_have_replies(&self) -> bool {
        let summary = self.comments_summary.as_ref();
        let number = summary.and_then(|summary| summary["aggregatedTotalComments"].as_u64());
        number.is_none_or(|number| number > 0)
    }

    pub(super) fn text(&self) -> String {
        self.message.as_ref().map(|message| message.text.clone()).unwrap_or_default()
    }
}

fn comments_path(urn: &str) -> String {
    format!("/rest/socialActions/{}/comments", encoded(urn))
}

impl LinkedinError {
    pub(super) fn is_permission(&self) -> bool {
        let code = self.error.failure().platform_code.as_deref();
        self.status == Some(StatusCode::FORBIDDEN) && code == Some(NO_PERMISSION)
    }

    /// Converts the error of a call. `missing` is the failure if its permission is missing.
    pub(super) fn with_permission(self, missing: Failure) -> CallError {
        if self.is_permission() { CallError::Permanent(missing.from_platform(NO_PERMISSION)) } else { self.error }
    }

    /// Like [`LinkedinError::with_permission`], for a comment. `not_found` creates the error, with this message, if
    /// the post or comment that it belongs to does not exist.
    pub(super) fn of_comment(
        self,
        missing: Failure,
        not_found: impl FnOnce(Failure) -> CallError,
        message: &str,
    ) -> CallError {
        if self.status != Some(StatusCode::NOT_FOUND) {
            return self.with_permission(missing);
        }
        let code = self.error.failure().platform_code.clone().unwrap_or_default();
        not_found(Failure::of(Category::PlatformRejected, message).from_platform(code))
    }
}

impl Linkedin {
    /// Returns the failure if a permission is missing. `what` completes "does not allow Crier to …". The names are
    /// those of a user's account and of a page.
    pub(super) fn missing(account: &ConnectorAccount, what: &str, names: [&str; 2]) -> Failure {
        let [member, organization] = names;
        let (target, name) = match Self::is_page(account) {
            true => (ConnectTarget::Page, organization),
            false => (ConnectTarget::Default, member),
        };
        missing_permission(Platform::Linkedin, target, what, name)
    }

    pub(super) async fn list(
        &self,
        account: &ConnectorAccount,
        path: &str,
        is_finder: bool,
    ) -> Result<Page, LinkedinError> {
        let token = account.secrets.require("access_token")?;
        let mut request = self.request(Method::GET, path, &token);
        if is_finder {
            request = request.header("X-RestLi-Method", "FINDER");
        }
        let response = self.send(Effect::Repeatable, request).await?;
        Ok(self.client.read(Effect::Repeatable, &response)?)
    }

    /// Requests a page of the comments on a post, or of the replies to a comment.
    pub(super) async fn comments_of(
        &self,
        account: &ConnectorAccount,
        urn: &str,
        start: usize,
        count: usize,
    ) -> Result<Page, LinkedinError> {
        let path = format!("{}?start={start}&count={count}", comments_path(urn));
        self.list(account, &path, false).await
    }

    /// Returns the page's own comments on a post, or replies to a comment.
    async fn own_comments(&self, account: &ConnectorAccount, urn: &str) -> Result<OwnMessages, LinkedinError> {
        let (mut messages, mut page) = (Vec::new(), None::<String>);
        for _ in 0..MAX_SEARCHED_PAGES {
            let start = start_of(page.as_deref());
            let found = self.comments_of(account, urn, start, SEARCHED_PER_PAGE).await?;
            let comments: Vec<Comment> = found.read(SEARCHED_PER_PAGE);
            let own = comments.into_iter().filter(|one| one.actor.as_deref() == Some(&account.external_id));
            messages.extend(own.filter_map(|one| {
                Some(OwnMessage { id: one.urn()?, text: one.text(), at: one.created_at(), url: None })
            }));
            page = found.next(start, SEARCHED_PER_PAGE);
            if page.is_none() {
                return Ok(OwnMessages { messages, are_complete: true });
            }
        }
        Ok(OwnMessages { messages, are_complete: false })
    }

    /// Looks up a comment of the page on a post, or a reply to a comment.
    pub(super) async fn find_comment(
        &self,
        account: &ConnectorAccount,
        urn: &str,
        text: &str,
        called_at: Option<DateTime<Utc>>,
    ) -> Result<ReconcileResult, CallError> {
        match self.own_comments(account, urn).await {
            // The post or comment was deleted, and the comments below it.
            Err(LinkedinError { status: Some(StatusCode::NOT_FOUND), .. }) => Ok(ReconcileResult::Absent),
            own => Ok(own?.find(text, called_at)),
        }
    }

    /// Comments on a post, or replies to a comment (`parent`). Sends plain text: only posts use the "little text
    /// format".
    pub(super) async fn comment(
        &self,
        account: &ConnectorAccount,
        object: &str,
        parent: Option<&str>,
        text: &str,
    ) -> Result<Published, LinkedinError> {
        let mut body = json!({ "actor": author(account), "object": object, "message": { "text": text } });
        if let Some(parent) = parent {
            body["parentComment"] = Value::from(parent);
        }
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, &comments_path(parent.unwrap_or(object)), &token).json(&body);
        let response = self.send(Effect::Publishes, request).await?;
        let urn_in_body = serde_json::from_slice::<Comment>(&response.body).ok().and_then(|comment| comment.urn());
        let number = response.headers.get("x-restli-id").and_then(|id| id.to_str().ok());
        let urn = urn_in_body.or_else(|| comment_urn(object, number?));
        urn.map(|urn| Published::new(urn, None)).ok_or_else(|| {
            let message = "LinkedIn accepted the comment but returned no ID: it may have been published.";
            CallError::Unknown(Failure::of(Category::OutcomeUnknown, message)).into()
        })
    }

    /// Publishes a first comment on a post.
    pub(super) async fn publish_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        text: &str,
    ) -> Result<Published, CallError> {
        if !is_object(post) {
            return Err(self.client.unknown_post());
        }
        let missing = Self::missing(account, "comment on this account's posts", WRITE);
        let message = "The post to comment on does not exist.";
        let published = self.comment(account, post, None, text).await;
        published.map_err(|failed| failed.of_comment(missing, CallError::ParentMissing, message))
    }

    /// Looks up the first comment of an earlier call.
    pub(super) async fn reconcile_comment(
        &self,
        account: &ConnectorAccount,
        post: &str,
        comment: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        if !Self::is_page(account) {
            return Ok(ReconcileResult::Unsupported);
        }
        if !is_object(post) {
            return Err(self.client.unknown_post());
        }
        self.find_comment(account, post, &comment.text, comment.called_at).await
    }
}
