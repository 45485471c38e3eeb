//! Events: their recipients, payloads and transactions.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::circuit::Health;
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Outcome};
use crier_domain::webhook::{DeliveryStatus, MAX_ATTEMPTS};
use crier_store::jobs::engine;
use crier_store::jobs::operate::{self, JobQuery};
use crier_store::{PageRequest, deliveries, events, webhooks};
use serde_json::{Value, json};

use crate::support::store::{TestStore, on_both};

on_both![
    an_event_reaches_subscribed_endpoints,
    an_event_without_subscribers_is_not_stored,
    an_event_without_subscribers_leaves_earlier_deliveries_alone,
    an_event_is_rolled_back_with_its_transaction,
    events_without_deliveries_are_deleted_in_batches,
];

const PUBLISHED: EventName = EventName::PostPublished;

async fn emit(s: &TestStore, brand: i64, name: EventName, data: &Value) -> usize {
    s.write(async |tx| events::emit(tx, brand, name, data, Some("req-1")).await).await
}

async fn an_event_reaches_subscribed_endpoints(s: TestStore) {
    let (w, stranger) = (s.create_world().await, s.world_of("eve@example.com").await);
    let bob = s.user(w.workspace, "bob@example.com").await;
    let carl = s.user(w.workspace, "carl@example.com").await;
    s.member(w.brand, bob, Role::Editor).await;
    let first = s.webhook(w.user, &[EventName::PostFailed, PUBLISHED]).await;
    let second = s.webhook(w.user, &[PUBLISHED]).await;
    let third = s.webhook(bob, &[PUBLISHED]).await;
    s.webhook(bob, &[EventName::PostFailed]).await;
    // A user of the workspace who is not a member of the brand, a member of another brand, and a disabled endpoint.
    s.webhook(carl, &[PUBLISHED]).await;
    s.webhook(stranger.user, &[PUBLISHED]).await;
    let disabled = s.webhook(w.user, &[PUBLISHED]).await;
    s.write(async |tx| webhooks::disable(tx, disabled.id, "off").await).await;
    s.notifier.take();

    let data = json!({ "post_id": 5, "text": "Grüße 🥐", "nothing": null });
    assert_eq!(emit(&s, w.brand, PUBLISHED, &data).await, 3);
    assert_eq!(s.number("SELECT count(*) FROM events").await, 1);
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 3);
    let mut jobs = Vec::new();
    let mut received = Vec::new();
    for webhook in [first.id, second.id, third.id] {
        let page =
            deliveries::list(&mut s.conn().await, webhook, Default::default(), PageRequest { page: 1, per_page: 10 })
                .await
                .unwrap();
        assert_eq!((page.total, page.rows.len()), (1, 1));
        let delivery = &page.rows[0];
        assert_eq!((delivery.event, delivery.status), (PUBLISHED, DeliveryStatus::Pending));
        assert_eq!((delivery.attempts, delivery.max_attempts), (0, MAX_ATTEMPTS));
        assert_eq!((delivery.next_attempt_at, delivery.created_at), (Some(s.now()), s.now()));
        received.push((delivery.event_id, delivery.payload.clone()));
        let lane = Some(format!("endpoint:{webhook}"));
        let filter = JobQuery { lane, ..JobQuery::default() };
        let of_lane = operate::list(&mut s.conn().await, &filter, 10).await.unwrap();
        assert_eq!(of_lane.len(), 1);
        assert_eq!((of_lane[0].kind, of_lane[0].subject_id), (JobKind::DeliverWebhook, delivery.id));
        assert_eq!((of_lane[0].state, of_lane[0].trace.as_deref()), (JobState::Ready, Some("req-1")));
        jobs.push(of_lane[0].id);
    }
    assert!(received.iter().all(|one| *one == received[0]), "all get the same event, byte for byte");
    let payload: Value = serde_json::from_str(&received[0].1).unwrap();
    assert_eq!(payload, json!({ "event": "post.published", "data": data }));
    assert_eq!(s.notifier.take(), jobs);

    assert_eq!(emit(&s, stranger.brand, PUBLISHED, &data).await, 1);
    s.write(async |tx| crier_store::brands::remove_member(tx, w.brand, bob).await).await;
    assert_eq!(emit(&s, w.brand, PUBLISHED, &data).await, 2, "a former member receives no event");
}

async fn an_event_without_subscribers_is_not_stored(s: TestStore) {
    let w = s.create_world().await;
    s.webhook(w.user, &[PUBLISHED]).await;
    assert_eq!(emit(&s, w.brand, EventName::BrandCreated, &json!({})).await, 0);
    assert_eq!(emit(&s, 999, PUBLISHED, &json!({})).await, 0);
    for table in ["events", "webhook_deliveries", "jobs"] {
        assert_eq!(s.number(format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
}

/// Otherwise, a delivery whose job has ended would get another job.
async fn an_event_without_subscribers_leaves_earlier_deliveries_alone(s: TestStore) {
    let w = s.create_world().await;
    s.webhook(w.user, &[PUBLISHED]).await;
    s.notifier.take();
    assert_eq!(emit(&s, w.brand, PUBLISHED, &json!({})).await, 1);
    let held = s.claim(&s.notifier.take(), "w").await;
    assert!(s.write(async |tx| engine::settle(tx, &[(&held[0], Outcome::Done)]).await).await);
    assert_eq!(emit(&s, w.brand, EventName::PostFailed, &json!({})).await, 0);
    assert_eq!(s.number("SELECT count(*) FROM jobs").await, 1);
    assert_eq!(s.number("SELECT count(*) FROM events").await, 1);
}

async fn an_event_is_rolled_back_with_its_transaction(s: TestStore) {
    let w = s.create_world().await;
    s.webhook(w.user, &[PUBLISHED]).await;
    let recipients = s.discard(async |tx| events::emit(tx, w.brand, PUBLISHED, &json!({}), None).await).await;
    assert_eq!(recipients, 1);
    for table in ["events", "webhook_deliveries", "jobs"] {
        assert_eq!(s.number(format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    assert!(s.notifier.take().is_empty());
}

/// On Postgres, a deletion or an update of the failure record may lock an endpoint: no event waits for it.
#[tokio::test]
async fn an_event_does_not_wait_for_a_locked_endpoint() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let (kept, deleted) = (s.webhook(w.user, &[PUBLISHED]).await, s.webhook(w.user, &[PUBLISHED]).await);
    let mut deleting = s.begin().await.unwrap();
    assert!(webhooks::delete(&mut deleting, w.user, deleted.id).await.unwrap());
    let mut failing = s.begin().await.unwrap();
    let failing_health = Health { failing_since: None, strikes: 1 };
    webhooks::lock_health(&mut failing, &[kept.id], true).await.unwrap();
    webhooks::set_record(&mut failing, kept.id, failing_health).await.unwrap();
    let no_data = json!({});
    let emitted = tokio::time::timeout(std::time::Duration::from_secs(60), emit(&s, w.brand, PUBLISHED, &no_data));
    assert_eq!(emitted.await.expect("it waits for an endpoint"), 2);
    failing.commit().await.unwrap();
    deleting.commit().await.unwrap();
    // The jobs of both deliveries do this; only the delivery of the deleted endpoint is removed.
    let delivery = async |id| s.number(format!("SELECT id FROM webhook_deliveries WHERE webhook_id = {id}")).await;
    for id in [delivery(kept.id).await, delivery(deleted.id).await] {
        s.write(async |tx| deliveries::delete_orphan(tx, id).await).await;
    }
    assert_eq!(s.number("SELECT webhook_id FROM webhook_deliveries").await, kept.id);
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 1);
}

async fn event_ids(s: &TestStore) -> Vec<i64> {
    const IDS: &str = "SELECT string_agg(id || '', ',') FROM (SELECT id FROM events ORDER BY id) e";
    s.value::<String>(IDS).await.split(',').map(|id| id.parse().unwrap()).collect()
}

async fn events_without_deliveries_are_deleted_in_batches(s: TestStore) {
    let purge = async |after, limit| {
        let before = s.now() - TimeDelta::days(90);
        s.write(async |tx| events::purge(tx, before, after, limit).await).await
    };
    let w = s.create_world().await;
    s.webhook(w.user, &[PUBLISHED]).await;
    let deleted = s.webhook(w.user, &[PUBLISHED, EventName::PostFailed]).await.id;
    for name in [EventName::PostFailed, PUBLISHED, EventName::PostFailed, PUBLISHED] {
        emit(&s, w.brand, name, &json!({})).await;
    }
    let ids = event_ids(&s).await;
    assert_eq!((purge(0, 10).await, event_ids(&s).await), (None, ids.clone()), "all of them have deliveries");
    // The events for the deleted endpoint alone, the first and the third, have no deliveries then.
    assert!(s.write(async |tx| webhooks::delete(tx, w.user, deleted).await).await);
    assert_eq!((purge(0, 2).await, event_ids(&s).await), (None, ids[1..].to_vec()), "the second one is young");
    s.advance(90 * 86_400);
    assert_eq!((purge(0, 1).await, event_ids(&s).await), (Some(ids[1]), ids[1..].to_vec()), "it has a delivery");
    assert_eq!((purge(ids[1], 1).await, event_ids(&s).await), (Some(ids[2]), vec![ids[1], ids[3]]));
    s.sql(format!("DELETE FROM webhook_deliveries WHERE event_id = {}", ids[1])).await;
    assert_eq!((purge(0, 10).await, event_ids(&s).await), (None, vec![ids[3]]));
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 1, "no delivery is deleted with them");
}
