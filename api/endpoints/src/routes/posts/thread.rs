//! The threads and the first comments in responses.

use crier_domain::catalogue::descriptor;
use crier_domain::failure::Failure;
use crier_domain::post::{
    FirstComment, FirstCommentStatus, PartStatus, Post, StoredFirstComment, Target, TargetStatus, ThreadPart,
};
use crier_store::targets::TargetSummary;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TargetError;
use crate::openapi::schema::TextEnum;

/// A part of a thread.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PostThreadPart")]
pub struct ThreadPartBody {
    #[schemars(extend("examples" = ["We open at 7 o'clock."]))]
    pub content: String,
    /// The IDs of the images and videos of this part, in order.
    pub media: Vec<i64>,
}

/// The comment that Crier publishes under a post.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "PostFirstComment")]
pub struct FirstCommentBody {
    #[schemars(extend("examples" = ["Order at https://example.com"]))]
    pub content: String,
    /// The delay after the post, in seconds.
    #[schemars(extend("examples" = [0]))]
    pub delay_seconds: i64,
}

/// A part of a thread on one account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TargetPart")]
pub struct PartBody {
    /// The number of the part, starting at 1. Part 1 is the post itself.
    #[schemars(extend("examples" = [1]))]
    pub position: u32,
    #[schemars(with = "TextEnum<PartStatus>")]
    pub status: PartStatus,
    /// The ID of the part on the platform.
    #[schemars(extend("examples" = [null]))]
    pub external_id: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
}

/// The first comment on one account.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "TargetFirstComment")]
pub struct TargetComment {
    #[schemars(extend("examples" = ["Order at https://example.com"]))]
    pub content: String,
    /// The delay after the post, in seconds.
    #[schemars(extend("examples" = [0]))]
    pub delay_seconds: i64,
    /// `not_supported` if Crier cannot comment on the platform.
    #[schemars(with = "TextEnum<FirstCommentStatus>")]
    pub status: FirstCommentStatus,
    /// The ID of the comment on the platform.
    #[schemars(extend("examples" = [null]))]
    pub external_id: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub url: Option<String>,
    #[schemars(extend("examples" = [null]))]
    pub error: Option<TargetError>,
}

impl From<ThreadPart> for ThreadPartBody {
    fn from(part: ThreadPart) -> Self {
        Self { content: part.content, media: part.media }
    }
}

impl From<FirstComment> for FirstCommentBody {
    fn from(comment: FirstComment) -> Self {
        Self { content: comment.content, delay_seconds: comment.delay_seconds }
    }
}

/// Returns the number of the part after the first `parts` ones.
fn position_after(parts: usize) -> u32 {
    u32::try_from(parts).unwrap_or(u32::MAX).saturating_add(1)
}

/// Returns the number of the part at which a target failed. `None` if it did not fail or is not a thread.
pub fn failed_part(target: &Target, post: &Post) -> Option<u32> {
    let is_failed = target.status == TargetStatus::Failed && !target.thread(post).is_empty();
    is_failed.then(|| position_after(target.published_parts.len()))
}

/// Like [`failed_part`], from a summary of the target.
pub fn failed_part_of(summary: &TargetSummary, post: &Post) -> Option<u32> {
    let has_parts = summary.own_parts.map_or(!post.thread.is_empty(), |parts| parts > 0);
    let published = summary.published_parts.filter(|_| has_parts)?;
    Some(position_after(usize::try_from(published).unwrap_or_default()))
}

/// Returns the parts of a target. Empty if it is not a thread.
pub fn parts(target: &Target, post: &Post) -> Vec<PartBody> {
    let following = target.thread(post).len();
    if following == 0 {
        return Vec::new();
    }
    (0..=following).map(|index| part(target, index, failed_part(target, post))).collect()
}

fn part(target: &Target, index: usize, failed: Option<u32>) -> PartBody {
    let (published, position) = (&target.published_parts, position_after(index));
    if let Some(part) = published.get(index) {
        return PartBody {
            position,
            status: if part.is_unpublished { PartStatus::Unpublished } else { PartStatus::Published },
            external_id: Some(part.external_id.clone()).filter(|id| !id.is_empty()),
            url: part.url.clone(),
            error: None,
        };
    }
    let is_next = index == published.len();
    let status = if is_next { status_of_next(target.status) } else { PartStatus::Pending };
    let error = target.error.clone().filter(|_| is_next);
    PartBody {
        position,
        status,
        external_id: None,
        url: None,
        error: error.map(|error| TargetError::of(error, failed)),
    }
}

/// Returns the status of the first part that is not published.
const fn status_of_next(status: TargetStatus) -> PartStatus {
    match status {
        TargetStatus::Pending => PartStatus::Pending,
        TargetStatus::Publishing => PartStatus::Publishing,
        TargetStatus::Failed => PartStatus::Failed,
        TargetStatus::Published | TargetStatus::Unpublishing => PartStatus::Published,
        TargetStatus::Unpublished => PartStatus::Unpublished,
    }
}

/// Returns the first comment on an account. `stored`: its progress, if the target was published.
pub fn comment(target: &Target, post: &Post, stored: Option<&StoredFirstComment>) -> Option<TargetComment> {
    let comment = target.first_comment(post)?;
    let is_supported = descriptor(target.platform).capabilities.first_comment.is_some();
    let initial = if is_supported { FirstCommentStatus::Pending } else { FirstCommentStatus::NotSupported };
    let error: Option<Failure> = stored.and_then(|stored| stored.error.clone());
    Some(TargetComment {
        // The post may have changed since its comment was published.
        content: stored.map_or(&comment.content, |stored| &stored.content).clone(),
        delay_seconds: comment.delay_seconds,
        status: stored.map_or(initial, |stored| stored.status),
        external_id: stored.and_then(|stored| stored.external_id.clone()),
        url: stored.and_then(|stored| stored.url.clone()),
        error: error.map(Into::into),
    })
}
