//! Posts.
//!
//! `request.rs` has the fields of a post in requests. `crier_posts` validates every change and writes it, for these
//! endpoints and for everything else that creates posts.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::Platform;
use crier_domain::post::{self, PostStatus, StoredFirstComment, StoredScheduleType, TargetStatus};
use crier_store::{Conn, Tx, first_comments, posts, targets};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::response::{ScheduledTimestamp, Timestamp};

pub mod approve;
pub mod attempts;
pub mod bulk;
pub mod create;
pub mod delete;
mod draft;
pub mod duplicate;
pub mod export;
pub mod labels;
pub mod list;
pub mod reject;
pub mod request;
pub mod show;
pub mod split;
pub mod status;
pub mod submit;
pub mod thread;
pub mod unpublish;
pub mod update;
pub mod validate;

#[cfg(test)]
mod check_tests;

pub use draft::create_draft;
pub use show::{find, show};
use thread::{FirstCommentBody, PartBody, TargetComment, ThreadPartBody};

pub const TAG: &str = "Posts";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        list::endpoint().erase(),
        export::endpoint().erase(),
        labels::endpoint().erase(),
        create::endpoint().erase(),
        validate::endpoint().erase(),
        split::endpoint().erase(),
        bulk::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        duplicate::endpoint().erase(),
        submit::endpoint().erase(),
        approve::endpoint().erase(),
        reject::endpoint().erase(),
        unpublish::endpoint().erase(),
        status::endpoint().erase(),
        attempts::endpoint().erase(),
    ]
}

/// Locks and returns the post in the path; 404 if it does not exist. Fails if it is no longer what the caller saw.
pub async fn lock(cx: &Context, tx: &mut Tx) -> Result<post::Post> {
    let found = posts::find_for_update(tx, cx.brand()?.id, cx.id("post")?).await?;
    let post = found.ok_or_else(|| ApiError::not_found("post"))?;
    check_version(cx.version, &post)?;
    Ok(post)
}

/// Fails if the post, whose row is locked, is no longer what the caller saw.
fn check_version(seen: Option<DateTime<Utc>>, post: &post::Post) -> Result<()> {
    if seen.is_none_or(|version| version == post.updated_at) {
        return Ok(());
    }
    let message = "The post was changed in the meantime. Check it again before you continue.";
    Err(ApiError::new(ErrorCode::PostNotEditable, message))
}

/// The reason a target failed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TargetError {
    /// A stable error code.
    pub code: String,
    pub message: String,
    /// The category of the error. Only the category determines whether Crier retries automatically.
    #[schemars(with = "TextEnum<Category>")]
    pub category: Category,
    pub retryable: bool,
    /// The platform's own error code, unchanged.
    pub platform_code: Option<String>,
    /// The number of the part at which a thread failed on an account. Otherwise null.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub part: Option<u32>,
}

/// A post on one account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "Target")]
pub struct TargetBody {
    pub id: i64,
    pub account_id: i64,
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    #[schemars(with = "TextEnum<TargetStatus>")]
    pub status: TargetStatus,
    /// The text for this account. Null uses the post's text.
    #[schemars(extend("examples" = [null]))]
    pub content: Option<String>,
    /// The IDs of the images and videos for this account. Null uses those of the post.
    #[schemars(extend("examples" = [null]))]
    pub media: Option<Vec<i64>>,
    pub options: Map<String, Value>,
    /// The account's signature, which is appended to the text. Crier decides this when the post is created or updated.
    /// Null if the account has none or the text contains it.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub signature: Option<String>,
    /// The parts that follow the text on this account. Null uses the post's parts.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub thread: Option<Vec<ThreadPartBody>>,
    /// The progress of the thread's parts. Part 1 is the post itself. Empty if only the post is published.
    #[schemars(extend("x-extension" = true, "examples" = [[]]))]
    pub parts: Vec<PartBody>,
    /// The first comment on this account, with its progress. Null if there is none.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub first_comment: Option<TargetComment>,
    /// The ID of the post on the platform.
    #[schemars(extend("examples" = [null]))]
    pub external_id: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
    /// The number of attempts.
    #[schemars(extend("examples" = [0]))]
    pub attempts: i32,
    #[schemars(extend("examples" = [null]))]
    pub next_attempt_at: Option<Timestamp>,
    #[schemars(extend("examples" = [null]))]
    pub published_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The author of a post.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Author {
    pub id: i64,
    #[schemars(extend("examples" = ["Ann"]))]
    pub name: String,
}

/// The fields that every representation of a post has.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostFields {
    #[schemars(with = "TextEnum<PostStatus>", extend("examples" = ["scheduled"]))]
    pub status: PostStatus,
    #[schemars(extend("examples" = ["Fresh bread!"]))]
    pub content: String,
    #[schemars(with = "TextEnum<StoredScheduleType>", extend("examples" = ["scheduled"]))]
    pub schedule_type: StoredScheduleType,
    pub scheduled_at: Option<ScheduledTimestamp>,
    #[schemars(extend("examples" = [null]))]
    pub published_at: Option<Timestamp>,
    /// Whether the post takes its time from the brand's queue.
    #[schemars(extend("x-extension" = true, "examples" = [false]))]
    pub queued: bool,
    /// The ID of the recurring post that created this post. Null if none did.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub recurring_id: Option<i64>,
    /// The client's own name for an imported post. Null for other posts.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub external_ref: Option<String>,
    /// The IDs of the post's accounts, in order.
    pub accounts: Vec<i64>,
    /// The IDs of the post's images and videos, in order.
    #[schemars(extend("x-extension" = true))]
    pub media: Vec<i64>,
    #[schemars(extend("x-extension" = true, "examples" = [["spring"]]))]
    pub labels: Vec<String>,
    /// The parts that follow the post in its thread.
    #[schemars(extend("x-extension" = true, "examples" = [[]]))]
    pub thread: Vec<ThreadPartBody>,
    /// The comment to publish under the post.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub first_comment: Option<FirstCommentBody>,
    /// The error of the first failed target. Null unless the post is failed or partially published.
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
}

/// A post with its targets and its author.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PostDetail {
    pub id: i64,
    #[serde(flatten)]
    pub fields: PostFields,
    pub targets: Vec<TargetBody>,
    /// Null if the user was deleted.
    pub author: Option<Author>,
    /// The reason for rejecting the post. Null if there is none, and after the next change of the status.
    #[schemars(extend("x-extension" = true, "examples" = [null]))]
    pub reject_reason: Option<String>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<Failure> for TargetError {
    fn from(f: Failure) -> Self {
        Self {
            code: f.code,
            message: f.message,
            category: f.category,
            retryable: f.category.is_retryable(),
            platform_code: f.platform_code,
            part: None,
        }
    }
}

impl TargetError {
    /// Returns the failure of a target, at a part of its thread.
    fn of(failure: Failure, part: Option<u32>) -> Self {
        Self { part, ..failure.into() }
    }
}

impl TargetBody {
    /// `comment`: the progress of the first comment.
    fn new(t: post::Target, p: &post::Post, comment: Option<&StoredFirstComment>) -> Self {
        let (parts, first_comment) = (thread::parts(&t, p), thread::comment(&t, p, comment));
        let failed_part = thread::failed_part(&t, p);
        Self {
            id: t.id,
            account_id: t.account_id,
            platform: t.platform,
            status: t.status,
            content: t.content,
            media: t.media,
            options: t.options,
            signature: t.signature,
            thread: t.thread.map(to_thread),
            parts,
            first_comment,
            external_id: t.external_id,
            url: t.url,
            error: t.error.map(|error| TargetError::of(error, failed_part)),
            attempts: t.attempts,
            next_attempt_at: t.next_attempt_at.map(Into::into),
            published_at: t.published_at.map(Into::into),
            created_at: t.created_at.into(),
            updated_at: t.updated_at.into(),
        }
    }
}

fn to_thread(parts: Vec<post::ThreadPart>) -> Vec<ThreadPartBody> {
    parts.into_iter().map(Into::into).collect()
}

impl PostFields {
    /// `targets`: the post's targets in order, each with its account, status and error.
    fn new<'a>(
        p: post::Post,
        targets: impl Iterator<Item = (i64, TargetStatus, Option<&'a TargetError>)> + Clone,
    ) -> Self {
        Self {
            status: p.status,
            content: p.content,
            schedule_type: p.schedule_type,
            scheduled_at: p.scheduled_at.map(Into::into),
            published_at: p.published_at.map(Into::into),
            queued: p.queued,
            recurring_id: p.recurring_id,
            external_ref: p.external_ref,
            accounts: targets.clone().map(|(account_id, ..)| account_id).collect(),
            media: p.media,
            labels: p.labels,
            thread: to_thread(p.thread),
            first_comment: p.first_comment.map(Into::into),
            error: error_of(p.status, targets.map(|(_, status, error)| (status, error))),
        }
    }
}

/// Returns the error of a post: the error of its first failed target, if the post failed or is partially published.
fn error_of<'a>(
    status: PostStatus,
    targets: impl IntoIterator<Item = (TargetStatus, Option<&'a TargetError>)>,
) -> Option<TargetError> {
    if !matches!(status, PostStatus::Failed | PostStatus::PartiallyPublished) {
        return None;
    }
    let failed = targets.into_iter().find(|(status, _)| *status == TargetStatus::Failed);
    failed.and_then(|(_, error)| error.cloned())
}

impl PostDetail {
    /// Returns a post of which no target is published.
    pub fn new(p: post::Post, targets: Vec<post::Target>) -> Self {
        Self::with_comments(p, targets, &HashMap::new())
    }

    /// `comments`: the progress of the first comments, by target.
    fn with_comments(
        mut p: post::Post,
        targets: Vec<post::Target>,
        comments: &HashMap<i64, StoredFirstComment>,
    ) -> Self {
        let (id, created_at, updated_at) = (p.id, p.created_at.into(), p.updated_at.into());
        let author = p.author_id.zip(p.author_name.take()).map(|(id, name)| Author { id, name });
        let reject_reason = p.reject_reason.take();
        let target = |t: post::Target| {
            let comment = comments.get(&t.id);
            TargetBody::new(t, &p, comment)
        };
        let targets: Vec<TargetBody> = targets.into_iter().map(target).collect();
        let states = targets.iter().map(|t| (t.account_id, t.status, t.error.as_ref()));
        Self { id, fields: PostFields::new(p, states), targets, author, reject_reason, created_at, updated_at }
    }

    /// Loads the post's targets, and the progress of their first comments.
    pub async fn load(conn: &mut Conn, p: post::Post) -> Result<Self> {
        let targets = targets::list(conn, p.id).await?;
        // A comment is stored when its target is published.
        let has_comments = targets.iter().any(|t| t.status.was_published() && t.first_comment(&p).is_some());
        let comments = if has_comments { first_comments::of_post(conn, p.id).await? } else { Vec::new() };
        let comments = comments.into_iter().map(|comment| (comment.target_id, comment)).collect();
        Ok(Self::with_comments(p, targets, &comments))
    }
}
