//! Posts and their targets.
//!
//! [`Post::move_to`] is the only way to change a post's status. It allows these transitions, and a test compares them
//! with [`PostStatus::to`]:
//!
//! ```text
//! draft               ──> draft | scheduled | publishing              PUT draft | scheduled | queue | now
//! draft               ──> pending_approval                            submit
//! pending_approval    ──> draft                                       reject
//! pending_approval    ──> scheduled | publishing                      approve
//! scheduled           ──> draft | scheduled | publishing              PUT draft | scheduled | queue | now
//! scheduled           ──> publishing                                  its time is reached
//! publishing          ──> published | partially_published | failed    all targets have ended
//! partially_published ──> publishing                                  PUT now: only the failed targets
//! failed              ──> publishing                                  PUT now
//! ```

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::failure::{Category, Failure};
use super::platform::Platform;
use super::snippet::parts_with;

crier_base::text_enum! {
    pub enum PostStatus {
        Draft = "draft",
        PendingApproval = "pending_approval",
        Scheduled = "scheduled",
        Publishing = "publishing",
        Published = "published",
        PartiallyPublished = "partially_published",
        Failed = "failed",
    }
}

crier_base::text_enum! {
    /// When a change wants a post to be published.
    pub enum ScheduleType {
        Now = "now",
        Scheduled = "scheduled",
        Draft = "draft",
        /// At the next free slot of the brand's queue ([`super::queue`]).
        Queue = "queue",
    }
}

crier_base::text_enum! {
    /// When a stored post is published. A queued post is `scheduled`.
    pub enum StoredScheduleType { Now = "now", Scheduled = "scheduled", Draft = "draft" }
}

impl ScheduleType {
    /// Returns the type that is stored with the post.
    pub const fn stored(self) -> StoredScheduleType {
        match self {
            Self::Now => StoredScheduleType::Now,
            Self::Scheduled | Self::Queue => StoredScheduleType::Scheduled,
            Self::Draft => StoredScheduleType::Draft,
        }
    }
}

crier_base::text_enum! {
    /// The order of a list of posts.
    pub enum PostSort {
        Newest = "-id",
        /// The next one first. Posts without a scheduled time are last.
        ScheduledAt = "scheduled_at",
        /// Posts that are not published are last.
        LastPublished = "-published_at",
    }
}

crier_base::text_enum! {
    /// A change of several posts.
    pub enum BulkAction {
        Delete = "delete",
        Draft = "draft",
        Submit = "submit",
        Approve = "approve",
        Reject = "reject",
        Schedule = "schedule",
        Shift = "shift",
        Label = "label",
        Unlabel = "unlabel",
    }
}

crier_base::text_enum! {
    /// Whether a post of a bulk change was changed.
    pub enum BulkOutcome { Done = "done", Refused = "refused" }
}

crier_base::text_enum! {
    /// A published target is `unpublishing` while its post is deleted from the platform, then `unpublished`, or
    /// `published` again if that failed.
    pub enum TargetStatus {
        Pending = "pending",
        Publishing = "publishing",
        Published = "published",
        Failed = "failed",
        Unpublishing = "unpublishing",
        Unpublished = "unpublished",
    }
}

crier_base::text_enum! {
    pub enum FirstCommentStatus {
        Pending = "pending",
        Published = "published",
        Failed = "failed",
        NotSupported = "not_supported",
    }
}

crier_base::text_enum! {
    pub enum PartStatus {
        Pending = "pending",
        Publishing = "publishing",
        Published = "published",
        Failed = "failed",
        Unpublished = "unpublished",
    }
}

crier_base::text_enum! {
    /// The outcome of an attempt at a target.
    pub enum AttemptOutcome {
        Published = "published",
        Retried = "retried",
        Failed = "failed",
        Unknown = "unknown",
    }
}

/// The maximum number of labels of a post.
pub const MAX_LABELS: usize = 10;
/// The maximum length of a label, in characters.
pub const MAX_LABEL: usize = 40;

/// The maximum number of parts that follow a post in its thread.
pub const MAX_THREAD: usize = 24;
/// The maximum delay of a first comment, in seconds.
pub const MAX_COMMENT_DELAY: i64 = 3_600;

/// A part of a thread. The first part is the post itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadPart {
    pub content: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub media: Vec<i64>,
}

/// A part of a thread that is on the platform. It was published from [`ThreadPart`], or is the post itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPart {
    /// The platform's id. Empty if it is unknown.
    pub external_id: String,
    pub url: Option<String>,
    pub published_at: DateTime<Utc>,
    /// The platform's ids of what else belongs to it: the other messages of an album on Telegram.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_ids: Vec<String>,
    /// Whether it was deleted from the platform by an unpublish.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_unpublished: bool,
}

/// The comment that is published under a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstComment {
    pub content: String,
    /// The delay after the post, from 0 to [`MAX_COMMENT_DELAY`].
    pub delay_seconds: i64,
}

impl FirstComment {
    /// Returns the first comment of a post on an account with this override.
    pub fn of<'a>(post: &'a Post, own: Option<&'a FirstCommentOverride>) -> Option<&'a Self> {
        match own {
            None => post.first_comment.as_ref(),
            Some(FirstCommentOverride::Off) => None,
            Some(FirstCommentOverride::Own(comment)) => Some(comment),
        }
    }
}

/// The first comment on one account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FirstCommentOverride {
    /// No comment, although the post has one.
    Off,
    Own(FirstComment),
}

/// A transition that the table does not allow.
#[derive(Clone, Copy, Debug, thiserror::Error, PartialEq, Eq)]
#[error("A post cannot change from {from} to {to}.")]
pub struct PostTransitionError {
    pub from: PostStatus,
    pub to: PostStatus,
}

impl PostStatus {
    /// Returns the next status if the table allows the transition.
    pub fn to(self, next: Self) -> Result<Self, PostTransitionError> {
        use PostStatus::{Draft, Failed, PartiallyPublished, PendingApproval, Published, Publishing, Scheduled};
        let allowed = match self {
            Draft => matches!(next, Draft | PendingApproval | Scheduled | Publishing),
            PendingApproval => matches!(next, Draft | Scheduled | Publishing),
            Scheduled => matches!(next, Draft | Scheduled | Publishing),
            Publishing => matches!(next, Published | PartiallyPublished | Failed),
            Failed | PartiallyPublished => matches!(next, Publishing),
            Published => false,
        };
        allowed.then_some(next).ok_or(PostTransitionError { from: self, to: next })
    }

    /// Returns whether publishing has begun, so that the accounts and the time of the post are final.
    pub const fn has_begun(self) -> bool {
        !matches!(self, Self::Draft | Self::PendingApproval | Self::Scheduled)
    }

    /// Returns the status of a post whose targets are all terminal; `None` if one is not.
    pub fn of_targets(targets: &[TargetStatus]) -> Option<Self> {
        let published = targets.iter().filter(|s| s.was_published()).count();
        let failed = targets.iter().filter(|s| **s == TargetStatus::Failed).count();
        match (published, failed) {
            (p, f) if p + f < targets.len() => None,
            (_, 0) => Some(Self::Published),
            (0, _) => Some(Self::Failed),
            _ => Some(Self::PartiallyPublished),
        }
    }
}

/// The status that a post gets when the last of its targets ends ([`PostStatus::of_targets`]), for a statement that
/// counts the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinalPostStatuses {
    pub all_published: PostStatus,
    pub all_failed: PostStatus,
    pub mixed: PostStatus,
}

impl FinalPostStatuses {
    /// Returns the statuses that can follow `current`; fails if the table does not allow one of them.
    pub fn of(current: PostStatus) -> Result<Self, PostTransitionError> {
        use TargetStatus::{Failed, Published};
        let after = |targets: &[TargetStatus]| current.to(PostStatus::of_targets(targets).unwrap_or(current));
        Ok(Self {
            all_published: after(&[Published])?,
            all_failed: after(&[Failed])?,
            mixed: after(&[Published, Failed])?,
        })
    }
}

impl TargetStatus {
    pub const fn is_terminal(self) -> bool {
        self.was_published() || matches!(self, Self::Failed)
    }

    /// Returns whether the post was published on the account, even if it was deleted there later.
    pub const fn was_published(self) -> bool {
        matches!(self, Self::Published | Self::Unpublishing | Self::Unpublished)
    }
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Post {
    pub id: i64,
    pub brand_id: i64,
    pub author_id: Option<i64>,
    pub author_name: Option<String>,
    pub status: PostStatus,
    pub content: String,
    pub schedule_type: StoredScheduleType,
    pub scheduled_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    /// Whether the post takes its time from the brand's queue.
    pub queued: bool,
    /// The rule of which the post is an occurrence.
    pub recurring_id: Option<i64>,
    /// The client's own name of an imported post.
    pub external_ref: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub media: Vec<i64>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub labels: Vec<String>,
    /// The parts that follow the post on platforms with threads.
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub thread: Vec<ThreadPart>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub first_comment: Option<FirstComment>,
    /// Whether the post was counted against `posts_per_month`: it counts once, when it first leaves draft.
    pub counted: bool,
    /// Why the post was not approved. `None` once its status changes again.
    pub reject_reason: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Post {
    /// Returns an empty draft that is not stored yet.
    pub fn draft(brand_id: i64, now: DateTime<Utc>) -> Self {
        Self {
            id: 0,
            brand_id,
            author_id: None,
            author_name: None,
            status: PostStatus::Draft,
            content: String::new(),
            schedule_type: StoredScheduleType::Draft,
            scheduled_at: None,
            published_at: None,
            queued: false,
            recurring_id: None,
            external_ref: None,
            media: Vec::new(),
            labels: Vec::new(),
            thread: Vec::new(),
            first_comment: None,
            counted: false,
            reject_reason: None,
            created_at: now,
            updated_at: now,
        }
    }

    /// Changes the status if the table allows the transition.
    pub fn move_to(&mut self, next: PostStatus) -> Result<(), PostTransitionError> {
        self.status = self.status.to(next)?;
        self.reject_reason = None;
        Ok(())
    }
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Target {
    pub id: i64,
    pub post_id: i64,
    pub account_id: i64,
    pub platform: Platform,
    pub status: TargetStatus,
    /// The override for this account; `None`: the post's content.
    pub content: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub media: Option<Vec<i64>>,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub options: Map<String, Value>,
    /// The signature that is appended to the text ([`parts_with`]), not to the parts that follow it.
    pub signature: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub thread: Option<Vec<ThreadPart>>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub first_comment: Option<FirstCommentOverride>,
    /// The parts of a thread that are on the platform, beginning with the post itself. Empty if the post is not a
    /// thread and has no `other_ids`: then only `external_id` and `url` are set.
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub published_parts: Vec<PublishedPart>,
    /// The marker of the part that is published next. Created by [`crier_platforms::Connector::marker`] and stored before the first call.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub marker: Option<Map<String, Value>>,
    /// The start of a call whose outcome is unknown; `None` if the outcome of the last call is known.
    pub call_started_at: Option<DateTime<Utc>>,
    pub external_id: Option<String>,
    pub url: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<Failure>,
    pub attempts: i32,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

impl Target {
    /// Returns the override for its account.
    pub fn current_override(&self) -> TargetOverride {
        TargetOverride {
            content: self.content.clone(),
            media: self.media.clone(),
            options: self.options.clone(),
            signature: self.signature.clone(),
            thread: self.thread.clone(),
            first_comment: self.first_comment.clone(),
        }
    }

    /// Returns the parts that follow the text.
    pub fn thread<'a>(&'a self, post: &'a Post) -> &'a [ThreadPart] {
        self.thread.as_deref().unwrap_or(&post.thread)
    }

    /// Returns the first comment on its account, even if the platform has no comments.
    pub fn first_comment<'a>(&'a self, post: &'a Post) -> Option<&'a FirstComment> {
        FirstComment::of(post, self.first_comment.as_ref())
    }

    /// Returns whether a retry of the post publishes this target again.
    pub fn is_retried(&self) -> bool {
        self.status == TargetStatus::Failed
    }

    /// Returns whether the post may be on the platform although the target has failed: the outcome of its last call is
    /// unknown.
    pub fn may_be_published(&self) -> bool {
        self.is_retried() && self.error.as_ref().is_some_and(|error| error.category == Category::OutcomeUnknown)
    }

    /// Returns the text that is published: the target's own or that of the post, with the signature.
    pub fn text(&self, post: &Post) -> String {
        parts_with(self.signature.as_deref(), self.content.as_deref().unwrap_or(&post.content)).concat()
    }

    /// Returns a pending target.
    pub fn new(
        id: i64,
        post_id: i64,
        (account_id, platform): (i64, Platform),
        overrides: &TargetOverride,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            post_id,
            account_id,
            platform,
            status: TargetStatus::Pending,
            content: overrides.content.clone(),
            media: overrides.media.clone(),
            options: overrides.options.clone(),
            signature: overrides.signature.clone(),
            thread: overrides.thread.clone(),
            first_comment: overrides.first_comment.clone(),
            published_parts: Vec::new(),
            marker: None,
            call_started_at: None,
            external_id: None,
            url: None,
            error: None,
            attempts: 0,
            next_attempt_at: None,
            published_at: None,
            created_at: now,
            updated_at: now,
        }
    }
}

/// The option for the image that is shown before a video plays.
pub const COVER_OPTION: &str = "cover_media_id";

/// Returns the image of the link card, and the cover of the video, that options name.
pub fn option_media(options: &Map<String, Value>) -> impl Iterator<Item = i64> {
    let card = options.get("link_card").and_then(|card| card.get("media_id")?.as_i64());
    let cover = options.get(COVER_OPTION).and_then(Value::as_i64);
    card.into_iter().chain(cover)
}

/// The part of a post that applies to one account only: the overrides submitted with the post, and the signature.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetOverride {
    pub content: Option<String>,
    pub media: Option<Vec<i64>>,
    pub options: Map<String, Value>,
    /// Not submitted: that of the account, unless the text contains it.
    pub signature: Option<String>,
    /// An empty list: only the first part is published on the account.
    #[serde(default)]
    pub thread: Option<Vec<ThreadPart>>,
    #[serde(default)]
    pub first_comment: Option<FirstCommentOverride>,
}

impl TargetOverride {
    /// Returns the images and videos of the override, those of its thread, the image of its link card, and the cover of
    /// its video.
    pub fn all_media(&self) -> impl Iterator<Item = i64> {
        let thread = self.thread.iter().flatten().flat_map(|part| &part.media);
        self.media.iter().flatten().chain(thread).copied().chain(option_media(&self.options))
    }
}

/// The first comment of a published target, and the progress of its job.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct StoredFirstComment {
    pub target_id: i64,
    pub content: String,
    pub status: FirstCommentStatus,
    /// Created by [`crier_platforms::Connector::marker`] and stored before the first call.
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub marker: Option<Map<String, Value>>,
    /// The start of a call whose outcome is unknown; `None` if the outcome of the last call is known.
    pub call_started_at: Option<DateTime<Utc>>,
    pub external_id: Option<String>,
    pub url: Option<String>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<Failure>,
    pub attempts: i32,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub published_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// An attempt at a target.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Attempt {
    pub id: i64,
    pub target_id: i64,
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub outcome: AttemptOutcome,
    pub status_code: Option<i32>,
    #[cfg_attr(feature = "sqlx", sqlx(json(nullable)))]
    pub error: Option<Failure>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The transitions of the table in the module's documentation.
    fn documented() -> BTreeSet<(PostStatus, PostStatus)> {
        let lines = include_str!("post.rs").lines().filter_map(|line| line.strip_prefix("//! ")?.split_once(" ──> "));
        let parse = |word: &str| word.trim().parse().expect("a status");
        lines
            .flat_map(|(from, rest)| {
                let (nexts, _cause) = rest.split_once("   ").expect("a cause");
                nexts.split('|').map(move |next| (parse(from), parse(next))).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn the_documented_transitions_are_the_allowed_ones() {
        let all = || PostStatus::ALL.iter().copied();
        let pairs = all().flat_map(|from| all().map(move |next| (from, next)));
        let allowed: BTreeSet<_> = pairs.filter(|(from, next)| from.to(*next).is_ok()).collect();
        assert_eq!(documented(), allowed);
    }
}
