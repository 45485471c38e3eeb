//! The changes to a post, from a client, a file, a feed or a rule.

use chrono::{DateTime, Utc};
use crier_base::patch_field::PatchField;
use crier_domain::post::{FirstComment, ScheduleType, TargetOverride, ThreadPart};

/// The maximum length of a text, in characters.
pub const MAX_CONTENT_CHARS: usize = 65_535;
/// The maximum number of accounts of a post.
pub const MAX_ACCOUNTS: usize = 1_000;
/// The maximum number of images of a post. No platform accepts as many.
pub const MAX_MEDIA: usize = 100;

/// The changes to a post. Omitted fields keep their values. Null clears a field. A new post is a change of an empty
/// draft.
#[derive(Clone, Debug, Default)]
pub struct PostChange {
    pub content: PatchField<String>,
    pub schedule_type: PatchField<ScheduleType>,
    pub scheduled_at: PatchField<DateTime<Utc>>,
    pub accounts: PatchField<Vec<i64>>,
    pub media: PatchField<Vec<i64>>,
    /// They replace all existing overrides.
    pub overrides: PatchField<Vec<PostOverride>>,
    pub labels: PatchField<Vec<String>>,
    /// All parts that follow the post in its thread.
    pub thread: PatchField<Vec<ThreadPart>>,
    pub first_comment: PatchField<FirstComment>,
}

/// The override for one account.
#[derive(Clone, Debug, Default)]
pub struct PostOverride {
    /// `None` if it is missing or invalid, which is reported elsewhere.
    pub account_id: Option<i64>,
    pub target_override: TargetOverride,
}

impl PostChange {
    /// Returns the field that is ignored: a time in the past that is sent with `now`.
    pub fn ignored(&self, now: DateTime<Utc>) -> Option<&'static str> {
        let is_past = matches!(self.scheduled_at, PatchField::Value(at) if at <= now);
        (is_past && self.schedule_type == PatchField::Value(ScheduleType::Now)).then_some("scheduled_at")
    }
}
