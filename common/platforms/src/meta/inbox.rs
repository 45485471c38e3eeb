//! The common parts of the inboxes of Meta's platforms: their two streams, missing permissions, and replies and first
//! comments whose response was lost. To add a platform of Meta, implement [`Streams`] and call [`fetch`] in its
//! `fetch`.
//!
//! Meta returns "does not exist" (100/33) both for what an account may not see and for what was deleted. Neither means
//! that the account's access has ended; publishing detects that.

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use http::Method;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::graph::{Access, GraphFailure, List};
use super::insights::is_gone;
use crate::call::Effect;
use crate::inbox::InboxPage;
use crate::inbox::by_post::{CommentList, Walk};
use crate::inbox::newest_first::Pass;
pub(crate) use crate::inbox::own_message::{OwnMessage, OwnMessages};
use crate::inbox::permission::{denied, recently_denied};
use crate::{CallError, ConnectorAccount, ReconcileResult};

/// The interval between syncs of an account. A page or profile with few viewers has about 5,000 calls per day.
pub(crate) const INTERVAL: TimeDelta = TimeDelta::minutes(5);

/// The maximum number of entries read from a page.
const MAX_ENTRIES: usize = 100;
/// The number of comments per page, and of pages, that are searched for a reply or a first comment.
const SEARCHED_PER_PAGE: &str = "50";
const MAX_SEARCHED_PAGES: usize = 4;
/// The errors of a message to a user whose last message is older than 24 hours.
const WINDOW_CLOSED: [i64; 2] = [2_018_065, 2_018_278];

/// Returns whether an id consists of digits, in one or two parts, so that it may become part of a URL.
pub(crate) fn is_object_id(id: &str) -> bool {
    !id.is_empty() && id.len() <= 100 && id.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_')
}

/// Returns the readable entries of a list. An unreadable entry must not hide the others.
pub(crate) fn read<T: DeserializeOwned>(entries: &[Value]) -> Vec<T> {
    entries.iter().take(MAX_ENTRIES).filter_map(|entry| T::deserialize(entry).ok()).collect()
}

/// Returns whether a permission is missing.
pub(crate) fn is_permission(failure: &GraphFailure) -> bool {
    matches!(failure.code, 3 | 10 | 200..=299)
}

/// Requests a page of a list, starting at `after`.
pub(crate) async fn list(
    access: &Access<'_>,
    path: &str,
    query: &[(&str, &str)],
    after: Option<&str>,
) -> Result<List<Value>, GraphFailure> {
    let request = access.request(Method::GET, path).query(query).query(&after.map(|after| [("after", after)]));
    access.call_with_codes(Effect::Repeatable, request).await
}

/// Like [`list`], for the comments of a post or the replies to a comment. If that was deleted meanwhile, the page is
/// empty.
pub(crate) async fn list_below(
    access: &Access<'_>,
    path: &str,
    query: &[(&str, &str)],
    after: Option<&str>,
) -> Result<List<Value>, GraphFailure> {
    match list(access, path, query, after).await {
        Err(failure) if is_gone(&failure) => Ok(List::default()),
        found => found,
    }
}

/// Requests the comments below a post or a comment, up to a maximum. Returns whether these are all.
pub(crate) async fn search<T: DeserializeOwned>(
    access: &Access<'_>,
    path: &str,
    query: &[(&str, &str)],
) -> Result<(Vec<T>, bool), GraphFailure> {
    let (mut after, mut all) = (None::<String>, Vec::new());
    let limit = [("limit", SEARCHED_PER_PAGE)];
    let query = [query, &limit[..]].concat();
    for _ in 0..MAX_SEARCHED_PAGES {
        let found = list(access, path, &query, after.as_deref()).await?;
        all.extend(read::<T>(&found.data));
        after = found.next();
        if after.is_none() {
            // A next page without a token cannot be read.
            return Ok((all, !found.has_next_page()));
        }
    }
    Ok((all, false))
}

/// Looks up a comment among the account's own comments below a post or a comment.
pub(crate) fn find_comment(
    text: &str,
    called_at: Option<DateTime<Utc>>,
    own: Result<OwnMessages, GraphFailure>,
) -> Result<ReconcileResult, CallError> {
    match own {
        Ok(own) => Ok(own.find(text, called_at)),
        // The post or comment was deleted, and the comments below it, or the account may not read them.
        Err(failure) if is_gone(&failure) => Ok(ReconcileResult::Unsupported),
        Err(failure) => Err(failure.error),
    }
}

/// The two streams of an inbox: what users write below the account's posts, and a list with the newest entries first.
#[async_trait]
pub(crate) trait Streams {
    /// The name of the stream below posts. The other stream is a list.
    const BELOW_POSTS: &'static str;

    fn now(&self) -> DateTime<Utc>;

    fn access_of(&self, account: &ConnectorAccount) -> Result<Access<'_>, CallError>;

    /// Returns the failure of a stream whose permission is missing.
    fn missing(account: &ConnectorAccount, stream: &str) -> Failure;

    /// Reads a page of posts with the comments included in it, and records which posts have more.
    async fn posts(access: &Access<'_>, account: &ConnectorAccount, walk: Walk) -> Result<InboxPage, GraphFailure>;

    /// Reads another page of the comments below a post.
    async fn below_post(
        access: &Access<'_>,
        account: &ConnectorAccount,
        walk: Walk,
        list: CommentList,
    ) -> Result<InboxPage, GraphFailure>;

    /// Reads a page of the other stream.
    async fn newest_first(
        access: &Access<'_>,
        account: &ConnectorAccount,
        pass: Pass,
    ) -> Result<InboxPage, GraphFailure>;
}

/// Reads a page of a stream.
pub(crate) async fn fetch<S: Streams>(
    platform: &S,
    account: &ConnectorAccount,
    stream: &str,
    cursor: Option<&Value>,
) -> Result<InboxPage, CallError> {
    let (now, missing) = (platform.now(), S::missing(account, stream));
    if let Some(page) = recently_denied(account, cursor, now, &missing) {
        return Ok(page);
    }
    let access = platform.access_of(account)?;
    let (restart, has_page, read) = if stream == S::BELOW_POSTS {
        let walk = Walk::read(cursor, now);
        let (restart, has_page) = (walk.restart(), walk.page.is_some() || walk.list().is_some());
        let read = match walk.list().cloned() {
            Some(list) => S::below_post(&access, account, walk, list).await,
            None => S::posts(&access, account, walk).await,
        };
        (restart, has_page, read)
    } else {
        let pass = Pass::read(cursor, now);
        (pass.restart(), pass.page.is_some(), S::newest_first(&access, account, pass).await)
    };
    match read {
        Ok(page) => Ok(page),
        Err(failure) if is_permission(&failure) || is_gone(&failure) => Ok(denied(account, restart, now, missing)),
        // The page token is no longer valid.
        Err(GraphFailure { error: CallError::Permanent(_), .. }) if has_page => {
            Ok(InboxPage { cursor: restart, ..InboxPage::default() })
        }
        Err(failure) => Err(failure.error),
    }
}

/// Converts the error to that of a first comment.
pub(crate) fn comment_error(failure: GraphFailure, missing: Failure) -> CallError {
    if !is_gone(&failure) {
        return reply_error(failure, missing);
    }
    let code = failure.error.failure().platform_code.clone().unwrap_or_default();
    let message = "The post to comment on does not exist, or the account may not comment on it.";
    CallError::ParentMissing(Failure::of(Category::PlatformRejected, message).from_platform(code))
}

/// Converts the error to that of a reply.
pub(crate) fn reply_error(failure: GraphFailure, missing: Failure) -> CallError {
    let code = failure.error.failure().platform_code.clone().unwrap_or_default();
    let permanent = |category, message: &str| CallError::Permanent(Failure::of(category, message).from_platform(&code));
    match &failure {
        GraphFailure { subcode: Some(subcode), .. } if WINDOW_CLOSED.contains(subcode) => permanent(
            Category::PlatformRejected,
            "This person's last message is more than 24 hours old, so the account can no longer reply.",
        ),
        failure if is_permission(failure) => CallError::Permanent(missing.from_platform(&code)),
        failure if is_gone(failure) => {
            permanent(Category::PlatformRejected, "The message to reply to no longer exists.")
        }
        _ => failure.error,
    }
}
