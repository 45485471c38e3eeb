//! Deliveries: lists, recovery, samples and clean-up.

use chrono::TimeDelta;
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Lane};
use crier_domain::webhook::{Delivery, DeliveryStatus, MAX_ATTEMPTS};
use crier_store::deliveries::{self, DeliveryFilter};
use crier_store::{PageRequest, Tx, events};
use serde_json::json;

use crate::support::store::{TestStore, World, on_both};

on_both![
    a_list_is_filtered_by_status_and_event,
    recovery_replays_failures_since_a_time,
    a_recovery_is_rolled_back_with_its_transaction,
    a_sample_is_sent_to_one_endpoint_without_brand,
    old_deliveries_that_have_ended_are_deleted_in_batches,
];

const EVENTS: [EventName; 2] = [EventName::PostPublished, EventName::BrandCreated];

async fn create_delivery(s: &TestStore, w: World, webhook: i64) -> Delivery {
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &json!({ "n": 1 }), None).await).await;
    let newest = format!("SELECT max(id) FROM webhook_deliveries WHERE webhook_id = {webhook}");
    reload(s, s.number(newest).await).await
}

async fn reload(s: &TestStore, id: i64) -> Delivery {
    deliveries::find_any(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn a_list_is_filtered_by_status_and_event(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await;
    let brand = create_delivery(&s, w, webhook.id).await;
    let post = s.write(async |tx| events::emit_sample(tx, webhook.id, EventName::PostFailed, None).await).await;
    s.sql(format!("UPDATE webhook_deliveries SET status = 'failed' WHERE id = {}", brand.id)).await;
    for status in [None].into_iter().chain(DeliveryStatus::ALL.iter().copied().map(Some)) {
        for event in [None].into_iter().chain(EventName::ALL.iter().copied().map(Some)) {
            let matches = |has: (DeliveryStatus, EventName)| {
                status.is_none_or(|status| status == has.0) && event.is_none_or(|event| event == has.1)
            };
            let all = [
                (post, DeliveryStatus::Pending, EventName::PostFailed),
                (brand.id, DeliveryStatus::Failed, brand.event),
            ];
            let expected: Vec<i64> = all.iter().filter(|(_, s, e)| matches((*s, *e))).map(|(id, ..)| *id).collect();
            let (filter, page) = (DeliveryFilter { status, event }, PageRequest { page: 1, per_page: 1 });
            let found = deliveries::list(&mut s.conn().await, webhook.id, filter, page).await.unwrap();
            let first: Vec<i64> = found.rows.iter().map(|d| d.id).collect();
            assert_eq!(
                (first.as_slice(), found.total),
                (&expected[..expected.len().min(1)], expected.len() as i64),
                "{filter:?}"
            );
        }
    }
}

/// Creates `count` deliveries, one per second; all but the last fail.
async fn create_failed_deliveries(s: &TestStore, w: World, webhook: i64, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(create_delivery(s, w, webhook).await.id);
        s.advance(1);
    }
    s.sql(format!(
        "
        UPDATE webhook_deliveries
        SET status = 'failed', attempts = 8, next_attempt_at = NULL
        WHERE webhook_id = {webhook} AND id < {}",
        ids[count - 1]
    ))
    .await;
    s.sql("UPDATE jobs SET state = 'done'").await;
    ids
}

async fn recovery_replays_failures_since_a_time(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await;
    let started_at = s.now();
    let ids = create_failed_deliveries(&s, w, webhook.id, 4).await;
    let other = s.webhook(w.user, &EVENTS).await;
    let others = create_failed_deliveries(&s, w, other.id, 2).await;
    let since = started_at + TimeDelta::seconds(1);
    s.advance(60);
    let recover = async |after| s.write(async |tx| deliveries::recover(tx, webhook.id, since, after, 1).await).await;
    assert_eq!(recover(ids[1]).await, ids[2..3]);
    assert_eq!(recover(0).await, ids[1..2]);
    assert_eq!(recover(0).await, Vec::<i64>::new(), "no delivery is failed any more");
    for (id, status, max) in [
        (ids[0], DeliveryStatus::Failed, 8),
        (ids[1], DeliveryStatus::Pending, 9),
        (ids[2], DeliveryStatus::Pending, 9),
        (ids[3], DeliveryStatus::Pending, 8),
        (others[0], DeliveryStatus::Failed, 8),
    ] {
        let found = reload(&s, id).await;
        assert_eq!((found.status, found.max_attempts), (status, max), "delivery {id}");
        assert_eq!(found.next_attempt_at == Some(s.now()), max == 9);
    }
}

async fn a_recovery_is_rolled_back_with_its_transaction(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await;
    let started_at = s.now();
    let ids = create_failed_deliveries(&s, w, webhook.id, 3).await;
    assert_eq!(s.discard(async |tx| deliveries::recover(tx, webhook.id, started_at, 0, 9).await).await, ids[..2]);
    assert_eq!((reload(&s, ids[0]).await.status, reload(&s, ids[0]).await.max_attempts), (DeliveryStatus::Failed, 8));
}

async fn a_sample_is_sent_to_one_endpoint_without_brand(s: TestStore) {
    let w = s.create_world().await;
    let (one, other) = (s.webhook(w.user, &[]).await, s.webhook(w.user, &EVENTS).await);
    s.notifier.take();
    let send = async |tx: &mut Tx| events::emit_sample(tx, one.id, EventName::PostPublished, Some("req-1")).await;
    s.discard(send).await;
    assert_eq!(s.number("SELECT count(*) FROM events").await, 0);
    let id = s.write(send).await;
    let found = reload(&s, id).await;
    assert_eq!(
        (found.webhook_id, found.event, found.status),
        (one.id, EventName::PostPublished, DeliveryStatus::Pending)
    );
    assert_eq!((found.attempts, found.max_attempts, found.next_attempt_at), (0, MAX_ATTEMPTS, Some(s.now())));
    assert_eq!(found.payload, EventName::PostPublished.sample().to_string());
    let job = s.show(s.notifier.take()[0]).await;
    assert_eq!(
        (job.kind, job.subject_id, job.lane),
        (JobKind::DeliverWebhook, id, Some(Lane::ManualDelivery(one.id).to_string()))
    );
    assert_eq!((job.state, job.trace.as_deref()), (JobState::Ready, Some("req-1")));
    assert_eq!(s.number("SELECT count(*) FROM events WHERE brand_id IS NULL").await, 1);
    let page = PageRequest { page: 1, per_page: 1 };
    assert_eq!(
        deliveries::list(&mut s.conn().await, other.id, DeliveryFilter::default(), page).await.unwrap().total,
        0
    );
}

async fn delivery_ids(s: &TestStore) -> Vec<i64> {
    const IDS: &str = "SELECT string_agg(id || '', ',') FROM (SELECT id FROM webhook_deliveries ORDER BY id) d";
    s.value::<String>(IDS).await.split(',').map(|id| id.parse().unwrap()).collect()
}

async fn old_deliveries_that_have_ended_are_deleted_in_batches(s: TestStore) {
    let purge = async |after, limit| {
        let before = s.now() - TimeDelta::days(90);
        s.write(async |tx| deliveries::purge(tx, before, after, limit).await).await
    };
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await.id;
    let now = s.now().to_rfc3339();
    let mut ids = Vec::new();
    for status in ["succeeded", "failed", "pending", "retrying", "succeeded"] {
        let id = create_delivery(&s, w, webhook).await.id;
        s.sql(format!("UPDATE webhook_deliveries SET status = '{status}' WHERE id = {id}")).await;
        s.sql(format!(
            "
            INSERT INTO webhook_attempts (delivery_id, number, started_at, duration_ms, outcome)
            VALUES ({id}, 1, '{now}', 7, '5xx')"
        ))
        .await;
        ids.push(id);
    }
    assert_eq!((purge(0, 2).await, delivery_ids(&s).await), (None, ids.clone()), "all of them are young");
    s.advance(89 * 86_400);
    s.write(async |tx| {
        deliveries::replay(tx, ids[4]).await?;
        deliveries::fail(tx, ids[4], "no").await
    })
    .await;
    s.advance(86_400);
    let young = create_delivery(&s, w, webhook).await.id;
    let after_first = [&ids[1..], &[young]].concat();
    assert_eq!((purge(0, 1).await, delivery_ids(&s).await), (Some(ids[0]), after_first));
    let kept = [&ids[2..], &[young]].concat();
    assert_eq!((purge(ids[0], 4).await, delivery_ids(&s).await), (Some(ids[4]), kept), "the last one was retried");
    assert_eq!(s.number("SELECT count(*) FROM webhook_attempts").await, 3);
    assert_eq!(purge(ids[4], 1).await, None, "the next one is young");
    s.advance(365 * 86_400);
    let unfinished = vec![ids[2], ids[3], young];
    assert_eq!((purge(0, 10).await, delivery_ids(&s).await), (None, unfinished), "they have not ended");
    assert_eq!(s.number("SELECT count(*) FROM webhook_attempts").await, 2);
}
