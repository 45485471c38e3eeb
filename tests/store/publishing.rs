//! What follows from the end of a target, and from a dead job.

use crier_domain::event::EventName;
use crier_domain::failure::{Category, Failure};
use crier_domain::job::JobKind;
use crier_domain::post::{AttemptOutcome, PostStatus, Target, TargetStatus};
use crier_domain::webhook::DeliveryStatus;
use crier_jobs::publishing::{self, EndedTarget};
use crier_jobs::{self as jobs};
use crier_store::post_overview::{self, PostQuery};
use crier_store::posts::{self, LockedPost};
use crier_store::targets::{self, NewAttempt, TargetOutcome};
use crier_store::{PageRequest, StoreError, Tx, deliveries, events};
use serde_json::{Value, json};

use crate::support::store::{TestStore, World, on_both};

on_both![
    a_post_ends_with_its_last_target,
    a_post_ends_as_its_targets_have_ended,
    lists_know_what_a_retry_publishes_again,
    targets_that_end_together_end_their_posts,
    concurrent_target_ends_always_end_the_post,
    a_target_waiting_for_a_retry_emits_no_event,
    a_deleted_post_is_unchanged_and_its_events_are_emitted,
    a_dead_job_fails_its_target,
    a_dead_job_ignores_a_finished_target,
    a_dead_job_fails_its_delivery,
];

async fn target(s: &TestStore, id: i64) -> Target {
    targets::find(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn status(s: &TestStore, w: World, post: i64) -> PostStatus {
    posts::find(&mut s.conn().await, w.brand, post).await.unwrap().unwrap().status
}

fn published_end(s: &TestStore) -> TargetOutcome {
    TargetOutcome {
        status: TargetStatus::Published,
        external_id: Some("x1".to_owned()),
        url: Some("https://x.test/1".to_owned()),
        error: None,
        next_attempt_at: None,
        published_at: Some(s.now()),
        call_open: false,
        published_parts: None,
    }
}

fn rejected_end(target: &Target) -> TargetOutcome {
    publishing::failed(target, Failure::of(Category::PlatformRejected, "No."))
}

async fn end_target(
    tx: &mut Tx,
    locked: &LockedPost,
    target: &Target,
    end: &TargetOutcome,
    trace: Option<&str>,
) -> Result<(), StoreError> {
    let ended = EndedTarget { locked, target, end: end.clone(), attempt: None, trace };
    publishing::end_targets(tx, &[ended]).await
}

async fn store_end(s: &TestStore, id: i64, ended: &TargetOutcome) {
    let target = target(s, id).await;
    s.write(async |tx| {
        let post = posts::lock(tx, target.post_id).await?.unwrap();
        end_target(tx, &post, &target, ended, Some("req-1")).await
    })
    .await;
}

/// Returns the emitted events, oldest first.
async fn emitted_events(s: &TestStore, webhook: i64) -> Vec<(EventName, Value)> {
    let page =
        deliveries::list(&mut s.conn().await, webhook, Default::default(), PageRequest { page: 1, per_page: 50 })
            .await
            .unwrap();
    let parse = |payload: &str| serde_json::from_str::<Value>(payload).unwrap()["data"].take();
    page.rows.into_iter().rev().map(|d| (d.event, parse(&d.payload))).collect()
}

async fn create_webhook(s: &TestStore, w: World) -> i64 {
    s.webhook(w.user, &[EventName::PostPublished, EventName::PostFailed]).await.id
}

async fn a_post_ends_with_its_last_target(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (all, ids) = s.post(w, &[1, 2]).await;
    store_end(&s, ids[0], &published_end(&s)).await;
    assert_eq!(status(&s, w, all).await, PostStatus::Publishing);
    s.advance(5);
    store_end(&s, ids[1], &published_end(&s)).await;
    let post = posts::find(&mut s.conn().await, w.brand, all).await.unwrap().unwrap();
    assert_eq!((post.status, post.published_at), (PostStatus::Published, Some(s.now())));

    let (some, ids) = s.post(w, &[1, 2]).await;
    store_end(&s, ids[0], &rejected_end(&target(&s, ids[0]).await)).await;
    store_end(&s, ids[1], &published_end(&s)).await;
    assert_eq!(status(&s, w, some).await, PostStatus::PartiallyPublished);

    let (none, ids) = s.post(w, &[1]).await;
    store_end(&s, ids[0], &rejected_end(&target(&s, ids[0]).await)).await;
    assert_eq!(status(&s, w, none).await, PostStatus::Failed);

    let reported = emitted_events(&s, webhook).await;
    let names: Vec<_> = reported.iter().map(|(name, _)| *name).collect();
    use EventName::{PostFailed, PostPublished};
    assert_eq!(names, [PostPublished, PostPublished, PostFailed, PostPublished, PostFailed]);
    let base = json!({ "post_id": all, "brand_id": w.brand, "social_account_id": 1, "platform": "sandbox" });
    let with = |more: Value| {
        let mut all = base.clone();
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    assert_eq!(reported[0].1, with(json!({ "external_id": "x1", "url": "https://x.test/1" })));
    let error = json!({ "code": "platform_rejected", "message": "No." });
    assert_eq!(reported[2].1, with(json!({ "post_id": some, "error": error })));
}

/// Returns every combination of up to two targets.
fn combinations() -> Vec<Vec<TargetStatus>> {
    let mut all = vec![Vec::new()];
    for (n, one) in TargetStatus::ALL.iter().enumerate() {
        all.push(vec![*one]);
        all.extend(TargetStatus::ALL[n..].iter().map(|other| vec![*one, *other]));
    }
    all
}

/// The statement that ends a target computes the post's status as `PostStatus::of_targets` does.
async fn a_post_ends_as_its_targets_have_ended(s: TestStore) {
    use TargetStatus::{Failed, Published, Publishing};
    let w = s.create_world().await;
    for last in [Published, Failed, Publishing] {
        for others in combinations() {
            let accounts: Vec<i64> = (0..=others.len() as i64).collect();
            let (post, ids) = s.post(w, &accounts).await;
            let before = s.now();
            for (id, status) in ids.iter().zip(&others) {
                let at = format!("'{}'", before.to_rfc3339());
                let at = if *status == Published { at.as_str() } else { "NULL" };
                s.sql(format!("UPDATE post_targets SET status = '{status}', published_at = {at} WHERE id = {id}"))
                    .await;
            }
            s.advance(1);
            let id = *ids.last().unwrap();
            let end = match last {
                Published => published_end(&s),
                _ => TargetOutcome { status: last, ..rejected_end(&target(&s, id).await) },
            };
            store_end(&s, id, &end).await;
            let all: Vec<_> = others.iter().copied().chain([last]).collect();
            let after = posts::find(&mut s.conn().await, w.brand, post).await.unwrap().unwrap();
            assert_eq!(after.status, PostStatus::of_targets(&all).unwrap_or(PostStatus::Publishing), "{all:?}");
            let newest = match (last, others.contains(&Published)) {
                _ if after.status == PostStatus::Publishing => None,
                (Published, _) => Some(s.now()),
                (_, true) => Some(before),
                (_, false) => None,
            };
            assert_eq!(after.published_at, newest, "{all:?}");
        }
    }
}

/// The statements of lists repeat the rule of `Target::is_retried`.
async fn lists_know_what_a_retry_publishes_again(s: TestStore) {
    let w = s.create_world().await;
    for status in TargetStatus::ALL {
        let (post, ids) = s.post(w, &[1]).await;
        s.sql(format!("UPDATE post_targets SET status = '{status}' WHERE id = {}", ids[0])).await;
        let is_retried = target(&s, ids[0]).await.is_retried();
        let mut conn = s.conn().await;
        let summaries = targets::target_summaries(&mut conn, &[post]).await.unwrap();
        assert_eq!(summaries[0].published_parts.is_some(), is_retried, "{status}");
        let newest = &post_overview::list(&mut conn, PostQuery::default(), 1).await.unwrap()[0];
        assert_eq!((newest.id, newest.failed), (post, i64::from(is_retried)), "{status}");
    }
}

/// One statement ends several targets: all targets of a post, some of them, and one that will be retried.
async fn targets_that_end_together_end_their_posts(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (all, all_ids) = s.post(w, &[1, 2]).await;
    let (some, some_ids) = s.post(w, &[1, 2]).await;
    let (mixed, mixed_ids) = s.post(w, &[1, 2]).await;
    let (waiting, waiting_ids) = s.post(w, &[1]).await;
    let (deleted, deleted_ids) = s.post(w, &[1]).await;
    let (other, other_ids) = s.post(w, &[1]).await;
    s.write(async |tx| posts::delete(tx, deleted).await).await;
    let locked = s.write(async |tx| posts::lock_each(tx, &[other, waiting, mixed, some, all, deleted]).await).await;
    assert_eq!(
        locked.iter().map(|locked| locked.post.id).collect::<Vec<_>>(),
        [all, some, mixed, waiting, deleted, other]
    );

    let waiting_end = |target: &Target| TargetOutcome {
        status: TargetStatus::Publishing,
        next_attempt_at: Some(s.later(10)),
        call_open: true,
        published_parts: None,
        ..rejected_end(target)
    };
    let attempt = NewAttempt {
        number: 1,
        started_at: s.now(),
        outcome: AttemptOutcome::Retried,
        status_code: Some(503),
        error: Some(Failure::of(Category::PlatformError, "Later: \u{1f635} \"quoted\".")),
    };
    let mut running = Vec::new();
    for id in [all_ids[0], mixed_ids[0], all_ids[1], some_ids[1], mixed_ids[1], waiting_ids[0], deleted_ids[0]] {
        running.push(target(&s, id).await);
    }
    s.advance(5);
    let ended: Vec<_> = running
        .iter()
        .map(|target| {
            let locked = locked.iter().find(|locked| locked.post.id == target.post_id).unwrap();
            let (end, attempt) = match target.id {
                id if id == mixed_ids[0] => (rejected_end(target), None),
                id if id == waiting_ids[0] => (waiting_end(target), Some(attempt.clone())),
                _ => (published_end(&s), None),
            };
            EndedTarget { locked, target, end, attempt, trace: None }
        })
        .collect();
    s.write(async |tx| publishing::end_targets(tx, &ended).await).await;
    s.write(async |tx| publishing::end_targets(tx, &[]).await).await;

    let of = async |post| status(&s, w, post).await;
    assert_eq!(of(all).await, PostStatus::Published);
    assert_eq!(of(some).await, PostStatus::Publishing, "one of its targets has not ended");
    assert_eq!(of(mixed).await, PostStatus::PartiallyPublished);
    assert_eq!(of(waiting).await, PostStatus::Publishing);
    assert_eq!(s.number("SELECT count(*) FROM posts WHERE status = 'publishing' AND deleted_at IS NOT NULL").await, 1);
    assert_eq!(of(other).await, PostStatus::Publishing);
    assert_eq!(target(&s, other_ids[0]).await.status, TargetStatus::Pending);
    assert_eq!(target(&s, some_ids[0]).await.status, TargetStatus::Pending);
    let found = target(&s, waiting_ids[0]).await;
    assert_eq!((found.status, found.next_attempt_at), (TargetStatus::Publishing, Some(s.later(10))));
    let found = target(&s, all_ids[1]).await;
    assert_eq!((found.external_id.as_deref(), found.published_at, found.error), (Some("x1"), Some(s.now()), None));
    let stored = targets::attempts(&mut s.conn().await, waiting, 10).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!((stored[0].duration_ms, stored[0].status_code, &stored[0].error), (5_000, Some(503), &attempt.error));
    assert!(targets::attempts(&mut s.conn().await, all, 10).await.unwrap().is_empty());
    assert_eq!(emitted_events(&s, webhook).await.len(), 6, "one for each target that has ended");
}

async fn concurrent_target_ends_always_end_the_post(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (post, ids) = s.post(w, &[1, 2, 3, 4, 5, 6]).await;
    let (ended, targets) = (published_end(&s), targets::list(&mut s.conn().await, post).await.unwrap());
    crate::support::store::run_concurrently(ids.len(), |n| {
        let (store, target, ended) = (s.store.clone(), targets[n].clone(), ended.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            let post = posts::lock(&mut tx, target.post_id).await.unwrap().unwrap();
            end_target(&mut tx, &post, &target, &ended, None).await.unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    assert_eq!(status(&s, w, post).await, PostStatus::Published);
    assert_eq!(emitted_events(&s, webhook).await.len(), 6);
}

async fn a_target_waiting_for_a_retry_emits_no_event(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (post, ids) = s.post(w, &[1]).await;
    let waiting_end = TargetOutcome {
        status: TargetStatus::Pending,
        next_attempt_at: Some(s.later(10)),
        ..rejected_end(&target(&s, ids[0]).await)
    };
    store_end(&s, ids[0], &waiting_end).await;
    assert_eq!(status(&s, w, post).await, PostStatus::Publishing);
    assert_eq!(target(&s, ids[0]).await.next_attempt_at, Some(s.later(10)));
    assert!(emitted_events(&s, webhook).await.is_empty());
}

async fn a_deleted_post_is_unchanged_and_its_events_are_emitted(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (post, ids) = s.post(w, &[1]).await;
    s.write(async |tx| posts::delete(tx, post).await).await;
    store_end(&s, ids[0], &published_end(&s)).await;
    assert_eq!(emitted_events(&s, webhook).await.len(), 1);
    assert_eq!(s.number("SELECT count(*) FROM posts WHERE status = 'publishing'").await, 1);
}

async fn a_dead_job_fails_its_target(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (post, ids) = s.post(w, &[1]).await;
    s.write(async |tx| targets::start(tx, ids[0]).await).await;
    s.write(async |tx| targets::mark_call(tx, ids[0], &serde_json::Map::new()).await).await;
    let report_dead = async |id| s.write(async |tx| jobs::on_dead(tx, JobKind::PublishTarget, id, None).await).await;
    report_dead(ids[0]).await;
    let found = target(&s, ids[0]).await;
    assert_eq!((found.status, found.error.unwrap().category), (TargetStatus::Failed, Category::Internal));
    assert!(found.call_started_at.is_some(), "the crash was inside the call: its outcome is unknown");
    assert_eq!(status(&s, w, post).await, PostStatus::Failed);
    assert_eq!(emitted_events(&s, webhook).await.len(), 1);
    report_dead(ids[0]).await;
    report_dead(999).await;
    assert_eq!(emitted_events(&s, webhook).await.len(), 1, "one event");
    s.write(async |tx| jobs::on_dead(tx, JobKind::Noop, 1, None).await).await;
}

async fn a_dead_job_ignores_a_finished_target(s: TestStore) {
    let w = s.create_world().await;
    let (post, ids) = s.post(w, &[1]).await;
    store_end(&s, ids[0], &published_end(&s)).await;
    s.write(async |tx| jobs::on_dead(tx, JobKind::PublishTarget, ids[0], None).await).await;
    assert_eq!(target(&s, ids[0]).await.status, TargetStatus::Published);
    assert_eq!(status(&s, w, post).await, PostStatus::Published);
}

/// The run ends while its job is declared dead: the second transaction sees what the first one wrote.
#[tokio::test]
async fn a_dead_job_and_its_concurrent_result_are_consistent() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    let (post, ids) = s.post(w, &[1]).await;
    let running = target(&s, ids[0]).await;
    let mut ending = s.begin().await.unwrap();
    let held = posts::lock(&mut ending, post).await.unwrap().unwrap();
    let dead_job = s.write(async |tx| jobs::on_dead(tx, JobKind::PublishTarget, ids[0], None).await);
    let end = async {
        s.until_blocked(1).await;
        end_target(&mut ending, &held, &running, &published_end(&s), None).await.unwrap();
        ending.commit().await.unwrap();
    };
    tokio::join!(dead_job, end);
    assert_eq!(target(&s, ids[0]).await.status, TargetStatus::Published);
    assert_eq!(status(&s, w, post).await, PostStatus::Published);
    let names: Vec<_> = emitted_events(&s, webhook).await.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, [EventName::PostPublished]);
}

async fn a_dead_job_fails_its_delivery(s: TestStore) {
    let w = s.create_world().await;
    let webhook = create_webhook(&s, w).await;
    s.write(async |tx| events::emit(tx, w.brand, EventName::PostFailed, &json!({}), None).await).await;
    let id = s.number("SELECT id FROM webhook_deliveries").await;
    s.write(async |tx| jobs::on_dead(tx, JobKind::DeliverWebhook, id, None).await).await;
    let found = deliveries::find(&mut s.conn().await, webhook, id).await.unwrap().unwrap();
    assert_eq!(found.status, DeliveryStatus::Failed);
    assert!(found.error.is_some());
}
