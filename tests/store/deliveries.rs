//! Deliveries: lists, recovery and samples.

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
];

const BOTH: [EventName; 2] = [EventName::PostPublished, EventName::BrandCreated];

async fn delivery(s: &TestStore, w: World, webhook: i64) -> Delivery {
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &json!({ "n": 1 }), None).await).await;
    let newest = format!("SELECT max(id) FROM webhook_deliveries WHERE webhook_id = {webhook}");
    again(s, s.number(newest).await).await
}

async fn again(s: &TestStore, id: i64) -> Delivery {
    deliveries::find_any(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn a_list_is_filtered_by_status_and_event(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let brand = delivery(&s, w, webhook.id).await;
    let post = s.write(async |tx| events::emit_sample(tx, webhook.id, EventName::PostFailed, None).await).await;
    s.sql(format!("UPDATE webhook_deliveries SET status = 'failed' WHERE id = {}", brand.id)).await;
    for status in [None].into_iter().chain(DeliveryStatus::ALL.iter().copied().map(Some)) {
        for event in [None].into_iter().chain(EventName::ALL.iter().copied().map(Some)) {
            let passes = |has: (DeliveryStatus, EventName)| {
                status.is_none_or(|status| status == has.0) && event.is_none_or(|event| event == has.1)
            };
            let all = [
                (post, DeliveryStatus::Pending, EventName::PostFailed),
                (brand.id, DeliveryStatus::Failed, brand.event),
            ];
            let wanted: Vec<i64> = all.iter().filter(|(_, s, e)| passes((*s, *e))).map(|(id, ..)| *id).collect();
            let (filter, page) = (DeliveryFilter { status, event }, PageRequest { page: 1, per_page: 1 });
            let found = deliveries::list(&mut s.conn().await, webhook.id, filter, page).await.unwrap();
            let first: Vec<i64> = found.rows.iter().map(|d| d.id).collect();
            assert_eq!(
                (first.as_slice(), found.total),
                (&wanted[..wanted.len().min(1)], wanted.len() as i64),
                "{filter:?}"
            );
        }
    }
}

/// Creates `count` deliveries, one second apart; all but the last have failed.
async fn failures(s: &TestStore, w: World, webhook: i64, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.push(delivery(s, w, webhook).await.id);
        s.advance(1);
    }
    s.sql(format!("UPDATE webhook_deliveries SET status = 'failed', attempts = 8, next_attempt_at = NULL WHERE webhook_id = {webhook} AND id < {}", ids[count - 1])).await;
    s.sql("UPDATE jobs SET state = 'done'").await;
    ids
}

async fn recovery_replays_failures_since_a_time(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let begun = s.now();
    let ids = failures(&s, w, webhook.id, 4).await;
    let other = s.webhook(w.user, &BOTH).await;
    let others = failures(&s, w, other.id, 2).await;
    let since = begun + TimeDelta::seconds(1);
    s.advance(60);
    let recover = async || s.write(async |tx| deliveries::recover(tx, webhook.id, since).await).await;
    assert_eq!(recover().await, ids[1..3]);
    assert_eq!(recover().await, Vec::<i64>::new(), "no delivery is failed any more");
    for (id, status, max) in [
        (ids[0], DeliveryStatus::Failed, 8),
        (ids[1], DeliveryStatus::Pending, 9),
        (ids[2], DeliveryStatus::Pending, 9),
        (ids[3], DeliveryStatus::Pending, 8),
        (others[0], DeliveryStatus::Failed, 8),
    ] {
        let found = again(&s, id).await;
        assert_eq!((found.status, found.max_attempts), (status, max), "delivery {id}");
        assert_eq!(found.next_attempt_at == Some(s.now()), max == 9);
    }
}

async fn a_recovery_is_rolled_back_with_its_transaction(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let begun = s.now();
    let ids = failures(&s, w, webhook.id, 3).await;
    assert_eq!(s.discard(async |tx| deliveries::recover(tx, webhook.id, begun).await).await, ids[..2]);
    assert_eq!((again(&s, ids[0]).await.status, again(&s, ids[0]).await.max_attempts), (DeliveryStatus::Failed, 8));
}

async fn a_sample_is_sent_to_one_endpoint_without_brand(s: TestStore) {
    let w = s.create_world().await;
    let (one, other) = (s.webhook(w.user, &[]).await, s.webhook(w.user, &BOTH).await);
    s.notifier.take();
    let send = async |tx: &mut Tx| events::emit_sample(tx, one.id, EventName::PostPublished, Some("req-1")).await;
    s.discard(send).await;
    assert_eq!(s.number("SELECT count(*) FROM events").await, 0);
    let id = s.write(send).await;
    let found = again(&s, id).await;
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
