use chrono::TimeDelta;
use proptest::prelude::*;

use crier_base::patch_field::PatchField;
use crier_domain::post::{FirstComment, FirstCommentOverride, PublishedPart, ScheduleType, ThreadPart};

use super::*;
use crate::change::{PostChange, PostOverride};

fn now() -> DateTime<Utc> {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn later() -> DateTime<Utc> {
    now() + TimeDelta::days(1)
}

fn post(status: PostStatus) -> Post {
    let schedule_type = match status {
        PostStatus::Draft | PostStatus::PendingApproval => StoredScheduleType::Draft,
        PostStatus::Scheduled => StoredScheduleType::Scheduled,
        _ => StoredScheduleType::Now,
    };
    Post {
        id: 1,
        status,
        content: "hello".into(),
        schedule_type,
        scheduled_at: (status == PostStatus::Scheduled).then(later),
        counted: status != PostStatus::Draft,
        ..Post::draft(1, now())
    }
}

/// A target on account `id`, with the same id.
fn target(id: i64, status: TargetStatus) -> TargetState {
    let pending = Target::new(id, 1, (id, Platform::Sandbox), &TargetOverride::default(), now());
    TargetState { target: Target { status, ..pending }, running: false, repeats_call: false }
}

fn put(schedule_type: Option<ScheduleType>) -> PostChange {
    PostChange { schedule_type: schedule_type.map_or(PatchField::Omitted, PatchField::Value), ..PostChange::default() }
}

fn decide_change(post: &Post, current: &[TargetState], change: &PostChange) -> std::result::Result<Decision, Conflict> {
    decide(post, current, &DesiredPost::from_change(post, current, change), now())
}

const PENDING: TargetStatus = TargetStatus::Pending;

#[test]
fn publishing_or_scheduling_a_draft_counts_once() {
    let (draft, current) = (post(PostStatus::Draft), [target(1, PENDING)]);
    let immediate = decide_change(&draft, &current, &put(Some(ScheduleType::Now))).unwrap();
    assert_eq!(
        (immediate.status, immediate.publish_at, immediate.counts_against_limit),
        (PostStatus::Publishing, Some(now()), true)
    );
    let change = PostChange { scheduled_at: PatchField::Value(later()), ..put(Some(ScheduleType::Scheduled)) };
    let planned = decide_change(&draft, &current, &change).unwrap();
    assert_eq!(
        (planned.status, planned.publish_at, planned.counts_against_limit),
        (PostStatus::Scheduled, Some(later()), true)
    );
    let again = decide_change(&Post { counted: true, ..draft }, &current, &change).unwrap();
    assert!(!again.counts_against_limit);
}

#[test]
fn a_draft_with_a_time_gets_no_job() {
    let change = PostChange { scheduled_at: PatchField::Value(later()), ..put(None) };
    let decision = decide_change(&post(PostStatus::Draft), &[target(1, PENDING)], &change).unwrap();
    assert_eq!((decision.status, decision.publish_at, decision.counts_against_limit), (PostStatus::Draft, None, false));
}

#[test]
fn rescheduling_cancels_jobs_and_editing_content_does_not() {
    let (planned, current) = (post(PostStatus::Scheduled), [target(1, PENDING)]);
    let time = later() + TimeDelta::hours(1);
    let change = PostChange { scheduled_at: PatchField::Value(time), ..put(None) };
    let moved = decide_change(&planned, &current, &change).unwrap();
    assert_eq!((moved.cancel, moved.publish_at, moved.status), (true, Some(time), PostStatus::Scheduled));
    let words =
        decide_change(&planned, &current, &PostChange { content: PatchField::Value("x".into()), ..put(None) }).unwrap();
    assert_eq!((words.cancel, words.publish_at, words.overrides.len()), (false, None, 1));
    let draft = decide_change(&planned, &current, &put(Some(ScheduleType::Draft))).unwrap();
    assert_eq!((draft.cancel, draft.publish_at, draft.status), (true, None, PostStatus::Draft));
}

#[test]
fn a_post_with_a_running_target_is_busy() {
    let busy = TargetState { running: true, ..target(2, PENDING) };
    let (planned, current) = (post(PostStatus::Scheduled), [target(1, PENDING), busy]);
    assert_eq!(decide_change(&planned, &current, &put(Some(ScheduleType::Draft))), Err(Conflict::Busy));
    let words = PostChange { content: PatchField::Value("x".into()), ..put(None) };
    assert_eq!(decide_change(&planned, &current, &words), Err(Conflict::Busy));
    assert!(decide_change(&planned, &current, &put(None)).is_ok());
}

#[test]
fn schedule_now_retries_only_failed_targets() {
    let current = [target(1, TargetStatus::Published), target(2, TargetStatus::Failed)];
    let decision =
        decide_change(&post(PostStatus::PartiallyPublished), &current, &put(Some(ScheduleType::Now))).unwrap();
    assert_eq!(
        (decision.status, decision.retry_targets, decision.publish_at),
        (PostStatus::Publishing, vec![2], Some(now()))
    );
    assert!(!decision.counts_against_limit && decision.overrides.is_empty());
}

#[test]
fn schedule_now_keeps_the_time_of_a_retried_post() {
    for (status, time) in [
        (PostStatus::Scheduled, None),
        (PostStatus::Failed, Some(later())),
        (PostStatus::PartiallyPublished, Some(later())),
    ] {
        let planned = Post { scheduled_at: Some(later()), ..post(status) };
        let desired = DesiredPost::from_change(&planned, &[], &put(Some(ScheduleType::Now)));
        assert_eq!(desired.scheduled_at, time, "{status}");
    }
}

#[test]
fn published_targets_are_immutable_but_failed_ones_are_not() {
    let current = [target(1, TargetStatus::Published), target(2, TargetStatus::Failed)];
    let post = post(PostStatus::PartiallyPublished);
    let all = PostChange { content: PatchField::Value("x".into()), ..put(None) };
    assert_eq!(decide_change(&post, &current, &all), Err(Conflict::Published(1)));
    let override_of = |account_id| PostOverride {
        account_id: Some(account_id),
        target_override: TargetOverride { content: Some("x".into()), ..TargetOverride::default() },
    };
    let one = |account_id| PostChange { overrides: PatchField::Value(vec![override_of(account_id)]), ..put(None) };
    assert_eq!(decide_change(&post, &current, &one(1)), Err(Conflict::Published(1)));
    assert_eq!(decide_change(&post, &current, &one(2)).unwrap().overrides.len(), 1);
    let same = PostChange { content: PatchField::Value("hello".into()), ..put(None) };
    assert!(decide_change(&post, &current, &same).unwrap().overrides.is_empty());
}

#[test]
fn published_parts_are_immutable_but_later_ones_are_not() {
    let part = |content: &str| ThreadPart { content: content.into(), media: Vec::new() };
    let post = Post { thread: vec![part("two"), part("three")], ..post(PostStatus::Failed) };
    let published = |id: &str| PublishedPart {
        external_id: id.into(),
        url: None,
        published_at: now(),
        other_ids: Vec::new(),
        is_unpublished: false,
    };
    let mut failed = target(1, TargetStatus::Failed);
    failed.target.published_parts = vec![published("1"), published("2")];
    let current = [failed.clone()];
    let change = |thread: &[&str]| PostChange {
        thread: PatchField::Value(thread.iter().map(|content| part(content)).collect()),
        ..put(None)
    };
    for thread in [&["two", "three"][..], &["two", "3"], &["two"], &["two", "three", "four"]] {
        assert!(decide_change(&post, &current, &change(thread)).is_ok(), "{thread:?}");
    }
    let of_first = PostChange { content: PatchField::Value("x".into()), ..put(None) };
    let none_follow = TargetOverride { thread: Some(Vec::new()), ..TargetOverride::default() };
    let only_first = PostOverride { account_id: Some(1), target_override: none_follow };
    let only_first = PostChange { overrides: PatchField::Value(vec![only_first]), ..put(None) };
    for rejected in [change(&["2", "three"]), change(&["three"]), change(&[]), of_first, only_first] {
        assert_eq!(decide_change(&post, &current, &rejected), Err(Conflict::Published(1)), "{rejected:?}");
    }
    let now_with_other_end =
        PostChange { schedule_type: PatchField::Value(ScheduleType::Now), ..change(&["two", "3"]) };
    let again = decide_change(&post, &current, &now_with_other_end).unwrap();
    assert_eq!((again.retry_targets, again.overrides.len()), (vec![1], 1));
    // The next part may be on its way.
    failed.target.status = TargetStatus::Publishing;
    let publishing = Post { status: PostStatus::Publishing, ..post };
    let in_flight = decide_change(&publishing, &[failed], &change(&["two", "3"]));
    assert_eq!(in_flight, Err(Conflict::Published(1)));
}

#[test]
fn a_part_with_an_unknown_outcome_is_immutable() {
    let part = |content: &str| ThreadPart { content: content.into(), media: Vec::new() };
    let post = Post { thread: vec![part("two"), part("three")], ..post(PostStatus::Failed) };
    let mut failed = target(1, TargetStatus::Failed);
    failed.target.call_started_at = Some(now());
    let change = |thread: &[&str]| PostChange {
        thread: PatchField::Value(thread.iter().map(|content| part(content)).collect()),
        ..put(Some(ScheduleType::Now))
    };
    let decide_thread = |failed: &TargetState, thread: &[&str]| {
        decide_change(&post, std::slice::from_ref(failed), &change(thread)).map(|decision| decision.retry_targets)
    };
    let unknown = Err(Conflict::UnknownOutcome(1));
    assert_eq!(decide_thread(&failed, &["two", "three"]), Ok(vec![1]));
    for thread in [&["two", "3"][..], &["two"], &["two", "three", "four"], &[]] {
        assert_eq!(decide_thread(&failed, thread), unknown, "{thread:?}");
        let repeated = TargetState { repeats_call: true, ..failed.clone() };
        assert_eq!(decide_thread(&repeated, thread), Ok(vec![1]), "{thread:?}");
    }
    // If the call was that of the second part, the third one can change.
    failed.target.published_parts = vec![PublishedPart {
        external_id: "1".into(),
        url: None,
        published_at: now(),
        other_ids: Vec::new(),
        is_unpublished: false,
    }];
    for thread in [&["two", "3"][..], &["two"], &["two", "three", "four"]] {
        assert_eq!(decide_thread(&failed, thread), Ok(vec![1]), "{thread:?}");
    }
    for thread in [&["2", "three"][..], &[]] {
        assert_eq!(decide_thread(&failed, thread), unknown, "{thread:?}");
    }
}

/// The next run would look up a post with the new text, and that of the call would remain beside it.
#[test]
fn a_post_with_an_unknown_outcome_is_immutable() {
    let (mut unknown, other) = (target(1, TargetStatus::Failed), target(2, TargetStatus::Failed));
    unknown.target.call_started_at = Some(now());
    let post = post(PostStatus::Failed);
    let of_post = PostChange { content: PatchField::Value("new".into()), ..put(Some(ScheduleType::Now)) };
    let of_account = |account_id, target_override| {
        let own = PostOverride { account_id: Some(account_id), target_override };
        PostChange { overrides: PatchField::Value(vec![own]), ..put(Some(ScheduleType::Now)) }
    };
    let content = || TargetOverride { content: Some("new".into()), ..TargetOverride::default() };
    let media = TargetOverride { media: Some(vec![7]), ..TargetOverride::default() };
    let current = [unknown.clone(), other.clone()];
    for change in [&of_post, &of_account(1, content()), &of_account(1, media)] {
        assert_eq!(decide_change(&post, &current, change), Err(Conflict::UnknownOutcome(1)), "{change:?}");
    }
    for change in [&put(Some(ScheduleType::Now)), &of_account(2, content())] {
        assert_eq!(decide_change(&post, &current, change).unwrap().retry_targets, [1, 2], "{change:?}");
    }
    // The platform cannot tell, so a person decides.
    let current = [TargetState { repeats_call: true, ..unknown }, other];
    assert_eq!(decide_change(&post, &current, &of_post).unwrap().retry_targets, [1, 2]);
}

#[test]
fn a_first_comment_can_change_until_its_target_is_published() {
    let comment = FirstComment { content: "new".into(), delay_seconds: 0 };
    let of_post = PostChange { first_comment: PatchField::Value(comment.clone()), ..put(None) };
    let first_comment = Some(FirstCommentOverride::Own(comment));
    let target_override = TargetOverride { first_comment, ..TargetOverride::default() };
    let own = PostOverride { account_id: Some(1), target_override };
    let of_target = PostChange { overrides: PatchField::Value(vec![own]), ..put(None) };
    for status in TargetStatus::ALL {
        let current = [target(1, *status)];
        for (change, overrides) in [(&of_post, 0), (&of_target, 1)] {
            let decision = decide_change(&post(PostStatus::Publishing), &current, change);
            if status.was_published() {
                assert_eq!(decision, Err(Conflict::Published(1)), "{status}");
            } else {
                assert_eq!(decision.unwrap().overrides.len(), overrides, "{status}");
            }
        }
    }
}

#[test]
fn accounts_and_time_are_fixed_once_publishing_started() {
    let current = [target(1, TargetStatus::Failed), target(2, TargetStatus::Failed)];
    let failed = post(PostStatus::Failed);
    let accounts = |ids: &[i64]| PostChange { accounts: PatchField::Value(ids.to_vec()), ..put(None) };
    assert_eq!(decide_change(&failed, &current, &accounts(&[1])), Err(Conflict::Accounts));
    assert_eq!(decide_change(&failed, &current, &accounts(&[1, 2, 3])), Err(Conflict::Accounts));
    assert!(decide_change(&failed, &current, &accounts(&[1, 2])).is_ok());
    let time = PostChange { scheduled_at: PatchField::Value(later()), ..put(None) };
    assert_eq!(decide_change(&failed, &current, &time), Err(Conflict::Time));
}

#[test]
fn draft_accounts_are_added_removed_and_reordered() {
    let current = [target(1, PENDING), target(2, PENDING)];
    let change = PostChange { accounts: PatchField::Value(vec![2, 3]), ..put(None) };
    let decision = decide_change(&post(PostStatus::Draft), &current, &change).unwrap();
    let inserted = NewTarget { account_id: 3, position: 1, target_override: TargetOverride::default() };
    assert_eq!(decision.insert, [inserted]);
    assert_eq!((decision.remove, decision.reposition), (vec![1], vec![(2, 0)]));
}

#[test]
fn omitted_overrides_are_kept_and_null_clears_them() {
    let mut own = target(1, PENDING);
    own.target.content = Some("own".into());
    let (draft, current) = (post(PostStatus::Draft), [own]);
    assert!(decide_change(&draft, &current, &put(None)).unwrap().overrides.is_empty());
    let cleared = decide_change(&draft, &current, &PostChange { overrides: PatchField::Null, ..put(None) }).unwrap();
    assert_eq!(cleared.overrides, [(1, TargetOverride::default())]);
}

#[test]
fn a_pending_post_is_released_only_by_approval() {
    let (pending, current) = (post(PostStatus::PendingApproval), [target(1, PENDING)]);
    for schedule in [ScheduleType::Now, ScheduleType::Scheduled] {
        let rejected = decide_change(&pending, &current, &put(Some(schedule)));
        assert_eq!(rejected, Err(Conflict::NoSuchTransition(PostStatus::PendingApproval)));
    }
    let words = PostChange { content: PatchField::Value("x".into()), ..put(None) };
    assert_eq!(decide_change(&pending, &current, &words).unwrap().status, PostStatus::PendingApproval);
}

#[test]
fn a_post_takes_places_while_it_waits_in_the_queue() {
    let (draft, current) = (post(PostStatus::Draft), [target(1, PENDING)]);
    let queue = put(Some(ScheduleType::Queue));
    let step = |post: &Post, change: &PostChange| {
        let queue = decide_change(post, &current, change).unwrap().queue;
        (queue.frees_places, queue.takes_places)
    };
    assert_eq!(step(&draft, &queue), (false, true));
    let planned = post(PostStatus::Scheduled);
    assert_eq!(step(&planned, &queue), (false, true));
    let queued = Post { queued: true, ..post(PostStatus::Scheduled) };
    let words = PostChange { content: PatchField::Value("x".into()), ..put(None) };
    assert_eq!((step(&queued, &queue), step(&queued, &words)), ((false, false), (false, false)));
    let accounts = PostChange { accounts: PatchField::Value(vec![1, 2]), ..put(None) };
    assert_eq!(step(&queued, &accounts), (true, true));
    let time = PostChange { scheduled_at: PatchField::Value(later()), ..put(None) };
    for leaves in
        [put(Some(ScheduleType::Now)), put(Some(ScheduleType::Draft)), put(Some(ScheduleType::Scheduled)), time]
    {
        assert_eq!(step(&queued, &leaves), (true, false), "{leaves:?}");
        assert!(!DesiredPost::from_change(&queued, &current, &leaves).queued);
    }
    // A published post keeps the mark, and has no place to free.
    let failed = Post { queued: true, ..post(PostStatus::Failed) };
    let retry = put(Some(ScheduleType::Now));
    assert_eq!(step(&failed, &retry), (false, false));
    assert!(DesiredPost::from_change(&failed, &current, &retry).queued);
}

fn any_status() -> impl Strategy<Value = PostStatus> {
    prop::sample::select(PostStatus::ALL)
}

proptest! {
    /// A decision follows the table of transitions, changes no target that is published or in flight, enqueues jobs
    /// only for scheduled or publishing posts, and cancels every job that has another time.
    #[test]
    fn decisions_respect_invariants(
        status in any_status(),
        schedule in prop::option::of(prop::sample::select(ScheduleType::ALL)),
        states in prop::collection::vec((prop::sample::select(TargetStatus::ALL), any::<bool>(), any::<bool>()), 0..5),
        content in prop::option::of("[ab]"),
        accounts in prop::option::of(prop::collection::hash_set(1_i64..7, 0..5)),
        shift in prop::option::of(1_i64..100),
    ) {
        let post = post(status);
        // Before publishing begins, all targets of a post are pending.
        let begun = status.has_begun();
        let current: Vec<TargetState> = (1..).zip(&states).map(|(id, (state, running, open))| {
            let state = if begun { *state } else { PENDING };
            let mut target_state = TargetState { running: *running, ..target(id, state) };
            target_state.target.call_started_at = open.then(now);
            target_state
        }).collect();
        let change = PostChange {
            content: content.map_or(PatchField::Omitted, PatchField::Value),
            accounts: accounts.map_or(PatchField::Omitted, |ids| PatchField::Value(ids.into_iter().collect())),
            scheduled_at: shift.map_or(PatchField::Omitted, |h| PatchField::Value(now() + TimeDelta::hours(h))),
            ..put(schedule)
        };
        let Ok(decision) = decide_change(&post, &current, &change) else { return Ok(()) };
        prop_assert!(decision.status == status || status.to(decision.status).is_ok());
        let fixed = |id: &i64| current.iter().any(|s| s.target.id == *id && (s.is_in_flight() || s.target.status.was_published()));
        prop_assert!(!decision.remove.iter().any(fixed));
        prop_assert!(!decision.retry_targets.iter().any(|id| current.iter().any(|s| s.target.id == *id && s.target.status != TargetStatus::Failed)));
        prop_assert!(!decision.overrides.iter().any(|(id, _)| fixed(id)));
        if decision.publish_at.is_some() {
            prop_assert!(matches!(decision.status, PostStatus::Scheduled | PostStatus::Publishing));
        }
        if status == PostStatus::Scheduled && decision.publish_at.is_some() {
            prop_assert!(decision.cancel);
        }
        if decision.status == PostStatus::Draft || status == PostStatus::Draft {
            prop_assert!(decision.retry_targets.is_empty());
        }
    }
}
