//! Comments on videos, and replies to them: reading, publishing, and finding one whose response was lost. First comments
//! and the inbox use the same calls.
//!
//! A comment has no idempotency key: after a call with an unknown outcome, the newest comments on the video or the
//! replies to the comment are searched for its text.
//!
//! Sources: developers.google.com/youtube ("CommentThreads" and "Comments": list, insert, delete; the id of a thread is
//! that of its first comment), November 2026.

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Platform};
use http::Method;
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::rest::{List, NO_PERMISSION, has_reason};
use super::{MANAGE, Youtube, is_id, video_url};
use crate::call::Effect;
use crate::inbox::own_message::{OwnMessage, OwnMessages};
use crate::inbox::permission::missing_permission;
use crate::{CallError, ConnectorAccount, OutgoingPost, Published, ReconcileResult};

pub(super) const THREADS: &str = "/youtube/v3/commentThreads";
pub(super) const COMMENTS: &str = "/youtube/v3/comments";
/// The number of comments per page.
const PER_PAGE: &str = "100";
/// The maximum number of pages that are searched for a comment.
const MAX_SEARCHED_PAGES: usize = 3;

#[derive(Deserialize)]
pub(super) struct Comment {
    pub(super) id: String,
    pub(super) snippet: CommentSnippet,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CommentSnippet {
    #[serde(default)]
    pub(super) text_display: String,
    pub(super) author_display_name: Option<String>,
    pub(super) author_profile_image_url: Option<String>,
    author_channel_id: Option<ChannelId>,
    pub(super) published_at: DateTime<Utc>,
}

#[derive(Deserialize)]
struct ChannelId {
    value: String,
}

/// A comment on a video, with some of the replies to it.
#[derive(Deserialize)]
pub(super) struct Thread {
    pub(super) snippet: ThreadSnippet,
    #[serde(default)]
    pub(super) replies: Replies,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ThreadSnippet {
    /// `None` for a comment on the channel itself.
    pub(super) video_id: Option<String>,
    pub(super) top_level_comment: Comment,
    #[serde(default)]
    pub(super) total_reply_count: usize,
}

#[derive(Default, Deserialize)]
pub(super) struct Replies {
    #[serde(default)]
    pub(super) comments: Vec<Value>,
}

#[derive(Deserialize)]
struct Created {
    id: String,
}

impl Comment {
    /// Returns the id of the author's channel.
    pub(super) fn author(&self) -> Option<&str> {
        self.snippet.author_channel_id.as_ref().map(|channel| channel.value.as_str())
    }

    pub(super) fn is_own(&self, account: &ConnectorAccount) -> bool {
        self.author() == Some(account.external_id.as_str())
    }

    fn own_message(self) -> OwnMessage {
        let CommentSnippet { text_display, published_at, .. } = self.snippet;
        OwnMessage { id: self.id, text: text_display, at: Some(published_at), url: None }
    }
}

/// Returns the failure if the permission is missing. `purpose` completes "does not allow Crier to …".
pub(super) fn missing(purpose: &str) -> Failure {
    missing_permission(Platform::Youtube, ConnectTarget::Default, purpose, MANAGE)
}

/// Converts the error of a call for which the permission is missing.
pub(super) fn with_permission(error: CallError, purpose: &str) -> CallError {
    match has_reason(&error, NO_PERMISSION) {
        true => CallError::Permanent(missing(purpose).from_platform(NO_PERMISSION)),
        false => error,
    }
}

/// Returns whether what a comment belongs to does not exist.
fn is_missing(error: &CallError) -> bool {
    ["videoNotFound", "commentNotFound", "commentThreadNotFound", "parentCommentNotFound"]
        .iter()
        .any(|reason| has_reason(error, reason))
}

impl Youtube {
    /// Requests a page of comments.
    pub(super) async fn comments(
        &self,
        account: &ConnectorAccount,
        path: &str,
        query: &[(&str, &str)],
        page: Option<&str>,
    ) -> Result<List, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self
            .request(Method::GET, path, token.expose_secret())
            .query(query)
            .query(&[("maxResults", PER_PAGE), ("textFormat", "plainText")])
            .query(&page.map(|page| [("pageToken", page)]));
        self.call(Effect::Repeatable, request).await
    }

    async fn insert(&self, account: &ConnectorAccount, path: &str, snippet: Value) -> Result<String, CallError> {
        let token = account.secrets.require("access_token")?;
        let request = self.request(Method::POST, path, token.expose_secret()).query(&[("part", "snippet")]);
        let request = request.json(&json!({ "snippet": snippet }));
        let created: Created = self.call(Effect::Publishes, request).await?;
        Ok(created.id)
    }

    /// Publishes a first comment on a video.
    pub(super) async fn publish_comment(
        &self,
        account: &ConnectorAccount,
        video: &str,
        text: &str,
    ) -> Result<Published, CallError> {
        let snippet = json!({
            "channelId": account.external_id,
            "videoId": video,
            "topLevelComment": { "snippet": { "textOriginal": text } },
        });
        match self.insert(account, THREADS, snippet).await {
            Ok(id) => {
                let url = is_id(&id).then(|| format!("{}&lc={id}", video_url(video)));
                Ok(Published::new(id, url))
            }
            Err(error) if is_missing(&error) => {
                let message = "The video to comment on does not exist.";
                Err(CallError::ParentMissing(Failure::of(Category::PlatformRejected, message)))
            }
            Err(error) => Err(with_permission(error, "comment on this account's posts")),
        }
    }

    /// Replies to the comment that begins a thread.
    pub(super) async fn reply_to(
        &self,
        account: &ConnectorAccount,
        comment: &str,
        text: &str,
    ) -> Result<Published, CallError> {
        let snippet = json!({ "parentId": comment, "textOriginal": text });
        match self.insert(account, COMMENTS, snippet).await {
            Ok(id) => Ok(Published::new(id, None)),
            Err(error) if is_missing(&error) => {
                let message = "The comment to reply to no longer exists.";
                Err(CallError::Permanent(Failure::of(Category::PlatformRejected, message)))
            }
            Err(error) => Err(with_permission(error, "reply to this account's comments")),
        }
    }

    /// Looks up the first comment of an earlier call.
    pub(super) async fn reconcile_comment(
        &self,
        account: &ConnectorAccount,
        video: &str,
        comment: &OutgoingPost,
    ) -> Result<ReconcileResult, CallError> {
        let query = [("part", "snippet"), ("videoId", video), ("order", "time")];
        let first = |list: &List| {
            list.read::<Thread>().into_iter().map(|thread| thread.snippet.top_level_comment).collect::<Vec<_>>()
        };
        self.find_comment(account, (THREADS, &query[..]), first, &comment.text, comment.called_at).await
    }

    /// Looks up the reply of an earlier call to the comment that begins a thread.
    pub(super) async fn find_reply(
        &self,
        account: &ConnectorAccount,
        parent: &str,
        text: &str,
        called_at: Option<DateTime<Utc>>,
    ) -> Result<ReconcileResult, CallError> {
        let query = [("part", "snippet"), ("parentId", parent)];
        self.find_comment(account, (COMMENTS, &query[..]), List::read::<Comment>, text, called_at).await
    }

    /// Searches a list for an own comment. `read` returns the comments of a page.
    async fn find_comment(
        &self,
        account: &ConnectorAccount,
        (path, query): (&str, &[(&str, &str)]),
        read: impl Fn(&List) -> Vec<Comment>,
        text: &str,
        called_at: Option<DateTime<Utc>>,
    ) -> Result<ReconcileResult, CallError> {
        let (mut messages, mut page) = (Vec::new(), None::<String>);
        for _ in 0..MAX_SEARCHED_PAGES {
            let found = match self.comments(account, path, query, page.as_deref()).await {
                // The video or the comment was deleted, and the comments below it.
                Err(error) if is_missing(&error) => return Ok(ReconcileResult::Absent),
                found => found?,
            };
            let own = read(&found).into_iter().filter(|comment| comment.is_own(account));
            messages.extend(own.map(Comment::own_message));
            page = found.next();
            if page.is_none() {
                return Ok(OwnMessages { messages, are_complete: true }.find(text, called_at));
            }
        }
        Ok(OwnMessages { messages, are_complete: false }.find(text, called_at))
    }
}
