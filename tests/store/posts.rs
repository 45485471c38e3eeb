//! Posts, their targets and their attempts.

use crier_domain::failure::{Category, Failure};
use crier_domain::job::{JobKind, NewJob, Outcome};
use crier_domain::platform::Platform;
use crier_domain::post::{
    AttemptOutcome, FirstComment, FirstCommentOverride, Post, PostStatus, StoredScheduleType, TargetOverride,
    TargetStatus, ThreadPart,
};
use crier_store::posts::{LockedPost, NewPost, PostFilter};
use crier_store::targets::{self, NewAttempt, NewTarget, TargetOutcome};
use crier_store::{PageRequest, jobs, posts};
use serde_json::{Map, Value, json};

use crate::support::store::{TestStore, World, new_post, on_both, run_concurrently};

on_both![
    a_post_round_trips,
    a_post_is_visible_only_to_its_brand,
    lists_are_paged_and_filtered_by_status,
    a_deleted_post_is_hidden_from_clients_but_not_workers,
    a_purge_keeps_posts_with_jobs,
    changes_of_a_post_are_serialised,
    targets_keep_the_clients_order_and_overrides,
    a_post_is_created_with_targets_and_jobs,
    a_target_records_its_runs,
    a_new_override_clears_the_marker,
    the_accounts_of_many_posts_are_loaded_in_one_query,
    every_attempt_is_stored,
    a_savepoint_undoes_writes_and_notifications,
];

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn insert(s: &TestStore, post: &Post) -> i64 {
    s.write(async |tx| posts::insert(tx, post).await).await
}

async fn find(s: &TestStore, w: World, id: i64) -> Option<Post> {
    posts::find(&mut s.conn().await, w.brand, id).await.unwrap()
}

async fn a_post_round_trips(s: TestStore) {
    let w = s.create_world().await;
    let mut post = Post {
        content: "Grüße 🥐 'quoted' \"double\" \\ line\nnext".to_owned(),
        schedule_type: StoredScheduleType::Scheduled,
        scheduled_at: Some(s.later(3600)),
        media: vec![3, 1, 2],
        counted: false,
        ..new_post(w, PostStatus::Scheduled)
    };
    post.id = insert(&s, &post).await;
    let found = find(&s, w, post.id).await.unwrap();
    assert_eq!((found.brand_id, found.author_id, found.author_name.as_deref()), (w.brand, Some(w.user), Some("Ann")));
    assert_eq!((found.status, found.schedule_type), (PostStatus::Scheduled, StoredScheduleType::Scheduled));
    assert_eq!(
        (found.content, found.scheduled_at, found.media),
        (post.content.clone(), post.scheduled_at, vec![3, 1, 2])
    );
    assert_eq!((found.counted, found.published_at), (false, None));
    assert_eq!((found.created_at, found.updated_at), (s.now(), s.now()));
    s.advance(9);
    post = Post {
        status: PostStatus::Published,
        content: String::new(),
        schedule_type: StoredScheduleType::Now,
        scheduled_at: None,
        published_at: Some(s.now()),
        media: Vec::new(),
        counted: true,
        ..post
    };
    s.write(async |tx| posts::update(tx, &post).await).await;
    let found = find(&s, w, post.id).await.unwrap();
    assert_eq!(
        (found.status, found.schedule_type, found.scheduled_at),
        (PostStatus::Published, StoredScheduleType::Now, None)
    );
    assert_eq!((found.content.as_str(), found.media.len(), found.counted), ("", 0, true));
    assert_eq!((found.published_at, found.created_at, found.updated_at), (Some(s.now()), s.later(-9), s.now()));
    let without_author = Post { author_id: None, ..new_post(w, PostStatus::Draft) };
    let id = insert(&s, &without_author).await;
    assert_eq!(find(&s, w, id).await.unwrap().author_name, None);
}

async fn a_post_is_visible_only_to_its_brand(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let id = insert(&s, &new_post(w, PostStatus::Draft)).await;
    assert!(find(&s, other, id).await.is_none());
    assert!(find(&s, w, 999).await.is_none());
    assert!(s.write(async |tx| posts::find_for_update(tx, other.brand, id).await).await.is_none());
    assert_eq!(s.write(async |tx| posts::find_for_update(tx, w.brand, id).await).await.unwrap().id, id);
    assert!(s.write(async |tx| posts::lock(tx, 999).await).await.is_none());
}

async fn lists_are_paged_and_filtered_by_status(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let mut ids = Vec::new();
    for n in 0..5 {
        let status = if n % 2 == 0 { PostStatus::Draft } else { PostStatus::Failed };
        ids.push(insert(&s, &new_post(w, status)).await);
    }
    insert(&s, &new_post(other, PostStatus::Draft)).await;
    let deleted = insert(&s, &new_post(w, PostStatus::Draft)).await;
    s.write(async |tx| posts::delete(tx, deleted).await).await;
    let list = async |status, page, per_page| {
        let filter = PostFilter { status, ..PostFilter::default() };
        let found = posts::list(&mut s.conn().await, w.brand, &filter, PageRequest { page, per_page }).await.unwrap();
        (found.rows.iter().map(|p| p.id).collect::<Vec<_>>(), found.total)
    };
    assert_eq!(list(None, 1, 2).await, (vec![ids[4], ids[3]], 5));
    assert_eq!(list(None, 3, 2).await, (vec![ids[0]], 5));
    assert_eq!(list(None, 4, 2).await, (vec![], 5));
    assert_eq!(list(Some(PostStatus::Draft), 1, 2).await, (vec![ids[4], ids[2]], 3));
    assert_eq!(list(Some(PostStatus::Draft), 2, 2).await, (vec![ids[0]], 3));
    assert_eq!(list(Some(PostStatus::Published), 1, 2).await, (vec![], 0));
}

async fn a_deleted_post_is_hidden_from_clients_but_not_workers(s: TestStore) {
    let w = s.create_world().await;
    let (id, targets) = s.post(w, &[1]).await;
    s.write(async |tx| posts::delete(tx, id).await).await;
    assert!(find(&s, w, id).await.is_none());
    assert!(s.write(async |tx| posts::find_for_update(tx, w.brand, id).await).await.is_none());
    let LockedPost { post, is_deleted } = s.write(async |tx| posts::lock(tx, id).await).await.unwrap();
    assert_eq!((post.id, post.author_name.as_deref(), is_deleted), (id, Some("Ann"), true));
    assert!(targets::find(&mut s.conn().await, targets[0]).await.unwrap().is_some());
    let (existing, _) = s.post(w, &[1]).await;
    assert!(!s.write(async |tx| posts::lock(tx, existing).await).await.unwrap().is_deleted);
}

async fn a_purge_keeps_posts_with_jobs(s: TestStore) {
    let w = s.create_world().await;
    let purge = async |limit| s.write(async |tx| posts::purge(tx, limit).await).await;
    let mut created = Vec::new();
    for n in 0..5 {
        let (post, targets) = s.post(w, &[1, 2]).await;
        if n > 0 {
            s.write(async |tx| posts::delete(tx, post).await).await;
        }
        created.push((post, targets));
    }
    // Post 0 is not deleted. Post 1 has a running job, 2 a scheduled one, 3 a finished one, and 4 has no job.
    let running = s.enqueue_job(JobKind::PublishTarget, created[1].1[1], None).await;
    let held = s.claim(&[running], "w").await.remove(0);
    let waiting = s.job_at(JobKind::PublishTarget, created[2].1[0], None, s.later(60)).await;
    let ended = s.enqueue_job(JobKind::PublishTarget, created[3].1[0], None).await;
    let end = s.claim(&[ended], "w").await.remove(0);
    assert!(s.settle(&end, Outcome::Abort("no".to_owned())).await);
    // A job of another kind with the same subject id is unrelated.
    s.enqueue_job(JobKind::Noop, created[4].1[0], None).await;
    assert_eq!((purge(1).await, purge(1).await, purge(1).await), (1, 1, 0));
    assert!(s.settle(&held, Outcome::Done).await);
    assert_eq!(purge(10).await, 1);
    s.write(async |tx| crier_store::jobs::operate::cancel(tx, waiting).await).await;
    assert_eq!(purge(10).await, 1);
    assert_eq!(s.number("SELECT count(*) FROM posts").await, 1);
    assert_eq!(s.number("SELECT count(*) FROM post_targets").await, 2);
}

async fn changes_of_a_post_are_serialised(s: TestStore) {
    let w = s.create_world().await;
    let (id, _) = s.post(w, &[]).await;
    run_concurrently(8, |n| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let mut post = if n % 2 == 0 {
                posts::lock(&mut tx, id).await.unwrap().unwrap().post
            } else {
                posts::find_for_update(&mut tx, w.brand, id).await.unwrap().unwrap()
            };
            post.content.push('.');
            posts::update(&mut tx, &post).await.unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    assert_eq!(find(&s, w, id).await.unwrap().content, "Fresh bread........");
}

async fn targets_keep_the_clients_order_and_overrides(s: TestStore) {
    let w = s.create_world().await;
    let (post, _) = s.post(w, &[]).await;
    let overrides = TargetOverride {
        content: Some("Only here".to_owned()),
        media: Some(vec![9, 8]),
        options: object(json!({ "title": "T", "deep": { "list": [1, null, "ü"] } })),
        signature: Some("— Ann".to_owned()),
        thread: Some(vec![ThreadPart { content: "Next".to_owned(), media: vec![7] }]),
        first_comment: Some(FirstCommentOverride::Off),
    };
    let target = |(account_id, position)| NewTarget { account_id, position, target_override: overrides.clone() };
    let new = [(7, 2), (8, 0), (9, 1)].map(target);
    let new = new.each_ref().map(|new| (new, Platform::Bluesky));
    let ids = s.write(async |tx| targets::insert(tx, post, &new).await).await;
    let again = target((7, 3));
    let duplicate = s.try_write(async |tx| targets::insert(tx, post, &[(&again, Platform::Bluesky)]).await).await;
    assert!(duplicate.unwrap_err().is_unique_violation());
    let list = async || {
        let found = targets::list(&mut s.conn().await, post).await.unwrap();
        found.iter().map(|t| t.account_id).collect::<Vec<_>>()
    };
    assert_eq!(list().await, [8, 9, 7]);
    let found = targets::find(&mut s.conn().await, ids[0]).await.unwrap().unwrap();
    assert_eq!((found.post_id, found.account_id, found.platform), (post, 7, Platform::Bluesky));
    let stored = (found.content, found.media, found.options, found.signature);
    assert_eq!(stored, (overrides.content, overrides.media, overrides.options, overrides.signature));
    assert_eq!((found.thread, found.first_comment), (overrides.thread, overrides.first_comment));
    assert_eq!((found.status, found.attempts, found.marker, found.error), (TargetStatus::Pending, 0, None, None));
    s.write(async |tx| targets::set_position(tx, ids[0], -1).await).await;
    assert_eq!(list().await, [7, 8, 9]);
    s.write(async |tx| targets::delete(tx, ids[1]).await).await;
    assert_eq!(list().await, [7, 9]);
    assert!(targets::find(&mut s.conn().await, ids[1]).await.unwrap().is_none());
    assert!(targets::list(&mut s.conn().await, 999).await.unwrap().is_empty());
}

async fn a_post_is_created_with_targets_and_jobs(s: TestStore) {
    let w = s.create_world().await;
    let overrides = TargetOverride {
        content: Some("Only here".to_owned()),
        media: Some(vec![9]),
        signature: Some("— Ann".to_owned()),
        ..TargetOverride::default()
    };
    let two = NewTarget { account_id: 2, position: 0, target_override: overrides };
    let one = NewTarget { account_id: 1, position: 1, target_override: TargetOverride::default() };
    let job = NewJob::new(JobKind::PublishTarget, 0, s.now()).workspace(w.workspace);
    let post = new_post(w, PostStatus::Publishing);
    let create = async |targets: &[(&NewTarget, Platform)]| {
        let new = NewPost { post: &post, targets, job: Some(&job), counted_in: Some(w.workspace) };
        s.write(async |tx| posts::create(tx, new).await).await
    };
    let (id, target_ids) = create(&[(&two, Platform::Bluesky), (&one, Platform::Sandbox)]).await;
    let targets = targets::list(&mut s.conn().await, id).await.unwrap();
    let found: Vec<_> = targets.iter().map(|t| (t.id, t.account_id, t.platform, t.content.as_deref())).collect();
    let expected =
        [(target_ids[0], 2, Platform::Bluesky, Some("Only here")), (target_ids[1], 1, Platform::Sandbox, None)];
    assert_eq!((target_ids.len(), found.as_slice()), (2, expected.as_slice()));
    assert_eq!((targets[0].media.as_deref(), targets[1].media.as_deref()), (Some(&[9][..]), None));
    assert_eq!((targets[0].signature.as_deref(), targets[1].signature.as_deref()), (Some("— Ann"), None));
    let notified: Vec<_> = s.notifier.take();
    assert_eq!(notified.len(), 2, "one job for each target");
    let lanes = "SELECT count(*) FROM jobs WHERE state = 'ready' AND lane IN ('account:1', 'account:2')";
    assert_eq!(s.number(lanes).await, 2);

    let (without_targets, target_ids) = create(&[]).await;
    assert_eq!((without_targets > id, target_ids), (true, Vec::new()));
    assert_eq!(s.number("SELECT count(*) FROM jobs").await, 2);
}

async fn a_savepoint_undoes_writes_and_notifications(s: TestStore) {
    let now = s.now();
    let job = |subject| NewJob::new(JobKind::Noop, subject, now);
    let mut tx = s.begin().await.unwrap();
    jobs::enqueue(&mut tx, &job(1)).await.unwrap();
    let savepoint = tx.set_savepoint().await.unwrap();
    jobs::enqueue(&mut tx, &job(2)).await.unwrap();
    tx.roll_back_to(savepoint).await.unwrap();
    let savepoint = tx.set_savepoint().await.unwrap();
    jobs::enqueue(&mut tx, &job(3)).await.unwrap();
    tx.release(savepoint).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE subject_id IN (1, 3)").await, 2);
    assert_eq!(s.number("SELECT count(*) FROM jobs").await, 2);
    assert_eq!(s.notifier.take().len(), 2);
}

async fn a_target_records_its_runs(s: TestStore) {
    let w = s.create_world().await;
    let (_, targets_) = s.post(w, &[1]).await;
    let id = targets_[0];
    let find = async || targets::find(&mut s.conn().await, id).await.unwrap().unwrap();
    s.write(async |tx| targets::start(tx, id).await).await;
    let found = find().await;
    assert_eq!((found.status, found.attempts, found.updated_at), (TargetStatus::Publishing, 1, s.now()));

    s.advance(1);
    let marker = object(json!({ "rkey": "abc", "target_id": id }));
    s.write(async |tx| targets::mark_call(tx, id, &marker).await).await;
    let found = find().await;
    assert_eq!((found.marker.as_ref(), found.call_started_at), (Some(&marker), Some(s.now())));

    // The response never arrived: the call stays open, and the next run looks it up.
    let error = Failure::of(Category::Network, "No response.").from_platform(504);
    let mut ended = TargetOutcome {
        status: TargetStatus::Pending,
        external_id: None,
        url: None,
        error: Some(error.clone()),
        next_attempt_at: Some(s.later(10)),
        published_at: None,
        call_open: true,
        published_parts: None,
    };
    s.advance(1);
    s.write(async |tx| targets::end(tx, id, &ended, None).await).await;
    let found = find().await;
    assert_eq!(
        (found.status, found.error, found.next_attempt_at),
        (TargetStatus::Pending, Some(error), Some(s.later(9)))
    );
    assert_eq!((found.marker.as_ref(), found.call_started_at), (Some(&marker), Some(s.later(-1))));

    s.write(async |tx| targets::start(tx, id).await).await;
    let found = find().await;
    assert_eq!((found.attempts, found.next_attempt_at, found.call_started_at), (2, None, Some(s.later(-1))));

    ended = TargetOutcome {
        status: TargetStatus::Published,
        external_id: Some("at://x".to_owned()),
        url: Some("https://x.test".to_owned()),
        error: None,
        next_attempt_at: None,
        published_at: Some(s.now()),
        call_open: false,
        published_parts: None,
    };
    s.write(async |tx| targets::end(tx, id, &ended, None).await).await;
    let found = find().await;
    assert_eq!((found.status, found.error, found.call_started_at), (TargetStatus::Published, None, None));
    assert_eq!((found.external_id, found.url, found.published_at), (ended.external_id, ended.url, Some(s.now())));

    s.write(async |tx| targets::reset(tx, id, false).await).await;
    let found = find().await;
    assert_eq!((found.status, found.next_attempt_at, found.attempts), (TargetStatus::Pending, None, 2));
}

/// A look-up with the marker of the old content returns the old post. While a call has an unknown outcome, that is the
/// post to find, so the marker is kept.
async fn a_new_override_clears_the_marker(s: TestStore) {
    let w = s.create_world().await;
    let (_, targets_) = s.post(w, &[1]).await;
    let id = targets_[0];
    let marker = object(json!({ "key": "old" }));
    s.write(async |tx| targets::mark_call(tx, id, &marker).await).await;
    s.advance(1);
    let comment = FirstComment { content: "Hi".to_owned(), delay_seconds: 60 };
    let overrides = TargetOverride {
        content: Some("New".to_owned()),
        signature: Some("— Ann".to_owned()),
        thread: Some(Vec::new()),
        first_comment: Some(FirstCommentOverride::Own(comment)),
        ..TargetOverride::default()
    };
    s.write(async |tx| targets::set_overrides(tx, id, &overrides).await).await;
    let found = targets::find(&mut s.conn().await, id).await.unwrap().unwrap();
    assert_eq!((found.content.as_deref(), found.signature.as_deref()), (Some("New"), Some("— Ann")));
    assert_eq!((&found.thread, &found.first_comment), (&overrides.thread, &overrides.first_comment));
    assert_eq!((found.media, found.options), (None, Map::new()));
    assert_eq!((found.marker, found.call_started_at, found.updated_at), (Some(marker), Some(s.later(-1)), s.now()));
    s.write(async |tx| targets::reset(tx, id, true).await).await;
    s.write(async |tx| targets::set_overrides(tx, id, &overrides).await).await;
    let found = targets::find(&mut s.conn().await, id).await.unwrap().unwrap();
    assert_eq!((found.marker, found.call_started_at), (None, None));
}

async fn the_accounts_of_many_posts_are_loaded_in_one_query(s: TestStore) {
    let w = s.create_world().await;
    let (one, _) = s.post(w, &[5, 3, 4]).await;
    let (two, _) = s.post(w, &[3]).await;
    let (three, _) = s.post(w, &[8]).await;
    let account_ids = async |ids: &[i64]| {
        let found = targets::target_summaries(&mut s.conn().await, ids).await.unwrap();
        let mut pairs: Vec<_> = found.iter().map(|t| (t.post_id, t.account_id)).collect();
        pairs.sort_by_key(|pair| pair.0);
        pairs
    };
    assert_eq!(account_ids(&[two, one, 999]).await, [(one, 5), (one, 3), (one, 4), (two, 3)]);
    assert!(account_ids(&[]).await.is_empty());
    assert_eq!(account_ids(&[three]).await, [(three, 8)]);
}

async fn every_attempt_is_stored(s: TestStore) {
    let w = s.create_world().await;
    let (post, ids) = s.post(w, &[1, 2]).await;
    let (_, other) = s.post(w, &[1]).await;
    let error = Failure::with_code(Category::RateLimited, "slow_down", "Wait.").from_platform("429");
    let started_at = s.now();
    s.advance(2);
    let first = NewAttempt {
        number: 1,
        started_at,
        outcome: AttemptOutcome::Retried,
        status_code: Some(429),
        error: Some(error.clone()),
    };
    let second = NewAttempt { outcome: AttemptOutcome::Published, status_code: None, error: None, ..first.clone() };
    // A clock that was set back produces no negative duration.
    let after_clock_change =
        NewAttempt { number: 2, started_at: s.later(5), outcome: AttemptOutcome::Unknown, ..second.clone() };
    let other_account = NewAttempt { outcome: AttemptOutcome::Failed, ..second.clone() };
    let ended = TargetOutcome {
        status: TargetStatus::Publishing,
        external_id: None,
        url: None,
        error: None,
        next_attempt_at: None,
        published_at: None,
        call_open: false,
        published_parts: None,
    };
    for (id, attempt) in
        [(ids[0], &first), (ids[1], &second), (ids[0], &after_clock_change), (other[0], &other_account)]
    {
        s.write(async |tx| targets::end(tx, id, &ended, Some(attempt)).await).await;
    }
    let found = targets::attempts(&mut s.conn().await, post, 10).await.unwrap();
    let seen: Vec<_> = found.iter().map(|a| (a.target_id, a.number, a.outcome, a.duration_ms)).collect();
    assert_eq!(
        seen,
        [
            (ids[0], 2, AttemptOutcome::Unknown, 0),
            (ids[1], 1, AttemptOutcome::Published, 2_000),
            (ids[0], 1, AttemptOutcome::Retried, 2_000),
        ]
    );
    let latest = targets::attempts(&mut s.conn().await, post, 1).await.unwrap();
    assert_eq!(latest.iter().map(|a| a.id).collect::<Vec<_>>(), [found[0].id]);
    assert_eq!((found[2].status_code, found[2].error.as_ref()), (Some(429), Some(&error)));
    assert_eq!((found[2].started_at, found[2].created_at, found[1].error.as_ref()), (started_at, s.now(), None));
}
