//! Computes the post that results from a change, without database access.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use crier_base::patch_field::PatchField;
use crier_base::steps;
use crier_domain::account::AccountSummary;
use crier_domain::post::{
    FirstComment, FirstCommentOverride, Post, PostStatus, ScheduleType, Target, TargetOverride, TargetStatus,
    ThreadPart,
};
use crier_domain::snippet::signature_for;

use crate::change::PostChange;

/// A stored target and the state of its job.
#[derive(Clone, Debug)]
pub struct TargetState {
    pub target: Target,
    /// Whether a worker is running its job.
    pub running: bool,
    /// Whether a retry repeats a call whose outcome is unknown, instead of looking up its outcome.
    pub repeats_call: bool,
}

impl TargetState {
    /// Returns whether a call to the platform may be in progress.
    pub fn is_in_flight(&self) -> bool {
        let open = self.target.call_started_at.is_some() && self.target.status == TargetStatus::Pending;
        self.running || open || self.target.status == TargetStatus::Publishing
    }

    /// Returns whether a retry looks up the outcome of an earlier call. It finds only what that call published.
    pub fn has_unknown_call(&self) -> bool {
        self.target.call_started_at.is_some() && !self.repeats_call
    }

    /// Returns whether the signature can no longer change: the first part is published, a call may be in progress, or
    /// the outcome of a call is unknown. The next run then looks up a post with the text of that call.
    fn keeps_signature(&self) -> bool {
        let published = self.target.status.was_published() || !self.target.published_parts.is_empty();
        published || self.is_in_flight() || self.target.call_started_at.is_some()
    }

    pub fn current_override(&self) -> TargetOverride {
        self.target.current_override()
    }
}

/// A target of the resulting post.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredTarget {
    pub account_id: i64,
    pub target_override: TargetOverride,
    /// The index in `overrides`, if the request overrides this account.
    pub override_index: Option<usize>,
    /// Whether the target is published, so that its content is final.
    pub published: bool,
    /// The number of parts of its thread that are published.
    pub published_parts: usize,
    /// Whether its signature can no longer change.
    pub keeps_signature: bool,
}

impl DesiredTarget {
    /// Returns whether a part is published, so that its content is final. Part 0 is the post itself.
    pub fn has_published(&self, part: usize) -> bool {
        self.published || part < self.published_parts
    }

    /// Returns the path of a field in the request. `is_own`: whether the override sets it.
    pub fn path(&self, is_own: bool, field: &str) -> String {
        match self.override_index {
            Some(i) if is_own => format!("overrides.{i}.{field}"),
            None if is_own => format!("overrides.{field}"),
            _ => field.to_owned(),
        }
    }
}

/// The post as it would be after the change.
#[derive(Clone, Debug)]
pub struct DesiredPost {
    pub content: String,
    pub media: Vec<i64>,
    pub labels: Vec<String>,
    /// The parts that follow the post.
    pub thread: Vec<ThreadPart>,
    pub first_comment: Option<FirstComment>,
    /// `None` if the request omits it.
    pub schedule_type: Option<ScheduleType>,
    pub scheduled_at: Option<DateTime<Utc>>,
    /// Whether the post takes its time from the brand's queue.
    pub queued: bool,
    pub targets: Vec<DesiredTarget>,
    pub submits: bool,
}

impl DesiredPost {
    pub fn from_change(post: &Post, current: &[TargetState], change: &PostChange) -> Self {
        let old_accounts = current.iter().map(|s| s.target.account_id).collect();
        let accounts = change.accounts.clone().apply_to(old_accounts, Vec::new());
        let overrides = match &change.overrides {
            PatchField::Omitted => None,
            PatchField::Null => Some(&[][..]),
            PatchField::Value(list) => Some(list.as_slice()),
        };
        // Duplicates for one account are rejected later. The first one is used here.
        let mut places = HashMap::new();
        for (place, entry) in overrides.unwrap_or_default().iter().enumerate() {
            places.entry(entry.account_id).or_insert(place);
        }
        let by_account: HashMap<i64, &TargetState> = current.iter().map(|s| (s.target.account_id, s)).collect();
        let target = |account_id: i64| {
            steps::count_step();
            let place = places.get(&Some(account_id)).copied();
            let existing = by_account.get(&account_id);
            let mut target_override = match (overrides, place) {
                (Some(list), Some(place)) => list[place].target_override.clone(),
                (Some(_), None) => TargetOverride::default(),
                (None, _) => existing.map(|s| s.current_override()).unwrap_or_default(),
            };
            target_override.signature = existing.and_then(|s| s.target.signature.clone());
            DesiredTarget {
                account_id,
                target_override,
                override_index: place,
                published: existing.is_some_and(|s| s.target.status.was_published()),
                published_parts: existing.map_or(0, |s| s.target.published_parts.len()),
                keeps_signature: existing.is_some_and(|s| s.keeps_signature()),
            }
        };
        let schedule_type = change.schedule_type.clone().value();
        let scheduled_at = match schedule_type {
            // A retry keeps the time for which the post was scheduled.
            Some(ScheduleType::Now) => post.scheduled_at.filter(|_| post.status.has_begun()),
            _ => match &change.scheduled_at {
                PatchField::Omitted => post.scheduled_at,
                PatchField::Null => None,
                PatchField::Value(at) => Some(*at),
            },
        };
        Self {
            content: change.content.clone().apply_to(post.content.clone(), String::new()),
            media: change.media.clone().apply_to(post.media.clone(), Vec::new()),
            labels: change.labels.clone().apply_to(post.labels.clone(), Vec::new()),
            thread: change.thread.clone().apply_to(post.thread.clone(), Vec::new()),
            first_comment: change.first_comment.clone().map(Some).apply_to(post.first_comment.clone(), None),
            schedule_type,
            scheduled_at,
            queued: is_queued(post, change),
            targets: accounts.into_iter().map(target).collect(),
            submits: false,
        }
    }

    /// Decides on the signature of each target, by that of its account.
    ///
    /// This happens when the post is written, and the signature is stored with the target: what was checked and approved
    /// is what is published. If it were added when the post is published, an account's signature that was changed in
    /// between could make the text too long for the platform, and nobody would know before the post fails. The next
    /// change of the post decides anew, as long as the target can still change.
    pub fn sign(&mut self, accounts: &HashMap<i64, AccountSummary>) {
        for target in self.targets.iter_mut().filter(|target| !target.keeps_signature) {
            steps::count_step();
            let own = &mut target.target_override;
            let text = own.content.as_deref().unwrap_or(&self.content);
            let signature = accounts.get(&target.account_id).and_then(|account| account.signature.as_deref());
            own.signature = signature.and_then(|signature| signature_for(signature, text)).map(str::to_owned);
        }
    }

    /// Returns the status after the change. `None` if a post of this status cannot be changed like this.
    pub fn status(&self, from: PostStatus) -> Option<PostStatus> {
        let next = match self.schedule_type {
            _ if self.submits => PostStatus::PendingApproval,
            None => return Some(from),
            // Only an approval schedules or publishes a pending post. `draft` does not change its status.
            Some(schedule_type) if from == PostStatus::PendingApproval => {
                return (schedule_type == ScheduleType::Draft).then_some(from);
            }
            Some(ScheduleType::Draft) => PostStatus::Draft,
            Some(ScheduleType::Scheduled | ScheduleType::Queue) => PostStatus::Scheduled,
            Some(ScheduleType::Now) => PostStatus::Publishing,
        };
        from.to(next).ok()
    }

    pub fn account_ids(&self) -> Vec<i64> {
        self.targets.iter().map(|target| target.account_id).collect()
    }

    /// Returns whether the change gives the post a slot of the queue: it enters the queue, or its accounts change there.
    pub fn needs_slot(&self, post: &Post, change: &PostChange) -> bool {
        let is_waiting = post.queued && post.status == PostStatus::Scheduled;
        let is_placed = is_waiting && change.accounts == PatchField::Omitted;
        self.queued && !is_placed && self.status(post.status) == Some(PostStatus::Scheduled)
    }

    /// Returns the content published on an account, without the signature.
    pub fn content_of<'a>(&'a self, own: &'a TargetOverride) -> &'a str {
        own.content.as_deref().unwrap_or(&self.content)
    }

    /// Returns the parts that follow the text on an account.
    pub fn thread_of<'a>(&'a self, own: &'a TargetOverride) -> &'a [ThreadPart] {
        own.thread.as_deref().unwrap_or(&self.thread)
    }

    /// Returns the targets with the images of a part of the post, not with those of an override. Part 0 is the post
    /// itself.
    pub fn targets_with_media_of(&self, part: usize) -> impl Iterator<Item = &DesiredTarget> {
        self.targets.iter().filter(move |target| match part {
            0 => target.target_override.media.is_none(),
            _ => target.target_override.thread.is_none(),
        })
    }

    /// Returns whether a part of the post is published on each of these targets, so that its images are final.
    pub fn has_final_media(&self, part: usize) -> bool {
        let mut targets = self.targets_with_media_of(part).peekable();
        targets.peek().is_some() && targets.all(|target| target.has_published(part))
    }

    /// Returns the first comment on an account, even if its platform has no comments.
    pub fn first_comment_of<'a>(&'a self, own: &'a TargetOverride) -> Option<&'a FirstComment> {
        match &own.first_comment {
            None => self.first_comment.as_ref(),
            Some(FirstCommentOverride::Off) => None,
            Some(FirstCommentOverride::Own(comment)) => Some(comment),
        }
    }

    /// Returns all images of the post, its thread and its overrides, without duplicates.
    pub fn all_media(&self) -> Vec<i64> {
        distinct_media(&self.media, &self.thread, self.targets.iter().map(|target| &target.target_override))
    }

    pub fn media_of<'a>(&'a self, own: &'a TargetOverride) -> &'a [i64] {
        own.media.as_deref().unwrap_or(&self.media)
    }
}

/// Returns whether the post takes its time from the queue. A post that gets a time of its own, or becomes a draft, leaves
/// the queue.
fn is_queued(post: &Post, change: &PostChange) -> bool {
    if post.status.has_begun() {
        return post.queued;
    }
    match change.schedule_type {
        PatchField::Value(ScheduleType::Queue) => true,
        PatchField::Value(ScheduleType::Now | ScheduleType::Scheduled | ScheduleType::Draft) => false,
        PatchField::Omitted | PatchField::Null => post.queued && change.scheduled_at == PatchField::Omitted,
    }
}

/// Returns the images of a post, its thread and its overrides, without duplicates.
pub fn distinct_media<'a>(
    media: &[i64],
    thread: &[ThreadPart],
    overrides: impl Iterator<Item = &'a TargetOverride>,
) -> Vec<i64> {
    let mut all = media.to_vec();
    all.extend(thread.iter().flat_map(|part| &part.media));
    all.extend(overrides.flat_map(TargetOverride::all_media));
    all.sort_unstable();
    all.dedup();
    all
}
