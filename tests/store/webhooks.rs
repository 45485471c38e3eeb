//! Webhook endpoints and their deliveries.

use crier_domain::circuit::Health;
use crier_domain::event::EventName;
use crier_domain::webhook::{Delivery, Webhook};
use crier_store::deliveries::{self, DeliveryFilter};
use crier_store::webhooks::{self, NewWebhook};
use crier_store::{PageRequest, StoreError, events};
use secrecy::SecretString;
use serde_json::json;

use crate::support::store::{TestStore, World, cipher, expose, on_both};

on_both![
    an_endpoint_round_trips,
    an_endpoint_is_visible_only_to_its_user,
    secrets_are_encrypted_and_bound_to_their_row,
    reenabling_an_endpoint_or_another_url_clears_its_failure_record,
    clean_failure_records_are_skipped,
    disabling_is_idempotent_and_notifies_the_owner,
    missed_deliveries_are_counted_per_outage,
    endpoints_are_counted,
    deliveries_are_visible_only_to_their_endpoint,
];

const EVENTS: [EventName; 2] = [EventName::PostPublished, EventName::BrandCreated];

async fn create_delivery(s: &TestStore, w: World, webhook: i64) -> Delivery {
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &json!({ "n": 1 }), None).await).await;
    let page =
        deliveries::list(&mut s.conn().await, webhook, DeliveryFilter::default(), PageRequest { page: 1, per_page: 1 })
            .await
            .unwrap();
    page.rows.into_iter().next().unwrap()
}

async fn an_endpoint_round_trips(s: TestStore) {
    let w = s.create_world().await;
    let secret = SecretString::from("whsec_a");
    let new = NewWebhook {
        url: "https://x.test/h?a=1",
        events: &EVENTS,
        description: None,
        is_active: false,
        secret: &secret,
    };
    let created = s.write(async |tx| webhooks::create(tx, w.user, &new).await).await;
    assert_eq!(
        (created.user_id, created.url.as_str(), created.events.as_slice()),
        (w.user, "https://x.test/h?a=1", &EVENTS[..])
    );
    assert_eq!(
        (created.description.as_deref(), created.is_active, created.disabled_reason.as_deref()),
        (None, false, None)
    );
    assert_eq!((created.created_at, created.updated_at), (s.now(), s.now()));
    let found = webhooks::find(&mut s.conn().await, w.user, created.id).await.unwrap().unwrap();
    assert_eq!((found.id, found.events), (created.id, created.events));
}

async fn an_endpoint_is_visible_only_to_its_user(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let (one, two) = (s.webhook(w.user, &EVENTS).await, s.webhook(w.user, &EVENTS).await);
    let listed = webhooks::list(&mut s.conn().await, w.user).await.unwrap();
    assert_eq!(listed.iter().map(|w| w.id).collect::<Vec<_>>(), [two.id, one.id]);
    assert!(webhooks::list(&mut s.conn().await, other.user).await.unwrap().is_empty());
    assert!(webhooks::find(&mut s.conn().await, other.user, one.id).await.unwrap().is_none());
    assert!(s.write(async |tx| webhooks::find_for_update(tx, other.user, one.id).await).await.is_none());
    assert!(s.write(async |tx| webhooks::find_for_update(tx, w.user, one.id).await).await.is_some());
    let delete = async |user| s.write(async |tx| webhooks::delete(tx, user, one.id).await).await;
    assert!(!delete(other.user).await);
    create_delivery(&s, w, one.id).await;
    assert!(delete(w.user).await);
    assert!(!delete(w.user).await);
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 1, "its deliveries are deleted too");
}

async fn secrets_are_encrypted_and_bound_to_their_row(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (s.webhook(w.user, &EVENTS).await, s.webhook(w.user, &EVENTS).await);
    let (first, second) = (create_delivery(&s, w, one.id).await.id, create_delivery(&s, w, two.id).await.id);
    let secret = async |delivery| {
        let found = deliveries::load_outgoing(&mut s.conn().await, &[delivery]).await?;
        Ok(expose(&found[0].secret(&cipher())?).to_owned())
    };
    assert_eq!(secret(first).await.unwrap(), "whsec_of_the_tests");
    let sealed: Vec<u8> = s.value(format!("SELECT secret FROM webhooks WHERE id = {}", one.id)).await;
    assert!(!sealed.windows(5).any(|bytes| bytes == b"whsec"));
    s.advance(1);
    s.write(async |tx| webhooks::set_secret(tx, one.id, &SecretString::from("whsec_new")).await).await;
    assert_eq!(secret(first).await.unwrap(), "whsec_new");
    assert_eq!(webhooks::find(&mut s.conn().await, w.user, one.id).await.unwrap().unwrap().updated_at, s.now());
    s.sql(format!(
        "UPDATE webhooks SET secret = (SELECT secret FROM webhooks WHERE id = {}) WHERE id = {}",
        one.id, two.id
    ))
    .await;
    assert!(matches!(secret(second).await, Err(StoreError::Secret(_))));
}

/// Returns the failure record of an endpoint.
async fn failure_record(s: &TestStore, id: i64) -> Health {
    s.write(async |tx| webhooks::lock_health(tx, &[id], true).await).await[0].1
}

async fn reenabling_an_endpoint_or_another_url_clears_its_failure_record(s: TestStore) {
    let w = s.create_world().await;
    let mut webhook = s.webhook(w.user, &EVENTS).await;
    let failing = Health { failing_since: Some(s.now()), strikes: 12 };
    s.write(async |tx| webhooks::set_record(tx, webhook.id, failing).await).await;
    s.advance(5);
    // A change of its events keeps the failure record.
    webhook.events = vec![EventName::PostFailed];
    s.write(async |tx| webhooks::update(tx, &webhook).await).await;
    assert_eq!(failure_record(&s, webhook.id).await, failing);
    webhook.url = "https://other.test".to_owned();
    s.write(async |tx| webhooks::update(tx, &webhook).await).await;
    assert_eq!(failure_record(&s, webhook.id).await, Health::default());
    s.write(async |tx| webhooks::set_record(tx, webhook.id, failing).await).await;
    let disable = async |reason| s.write(async |tx| webhooks::disable(tx, webhook.id, reason).await).await;
    assert!(disable("no success in 5 days").await);
    let found = webhooks::find(&mut s.conn().await, w.user, webhook.id).await.unwrap().unwrap();
    assert_eq!((found.is_active, found.disabled_reason.as_deref()), (false, Some("no success in 5 days")));
    assert_eq!((found.url.as_str(), found.events), ("https://other.test", vec![EventName::PostFailed]));
    // Disabling it again keeps the first reason.
    assert!(!disable("another").await);
    let found = webhooks::find(&mut s.conn().await, w.user, webhook.id).await.unwrap().unwrap();
    assert_eq!(found.disabled_reason.as_deref(), Some("no success in 5 days"));
    webhook.is_active = true;
    webhook.disabled_reason = None;
    s.write(async |tx| webhooks::update(tx, &webhook).await).await;
    assert_eq!(failure_record(&s, webhook.id).await, Health::default());
}

async fn clean_failure_records_are_skipped(s: TestStore) {
    let w = s.create_world().await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(s.webhook(w.user, &EVENTS).await.id);
    }
    let failing = [
        (ids[2], Health { failing_since: None, strikes: 3 }),
        (ids[3], Health { failing_since: Some(s.now()), strikes: 1 }),
    ];
    for (id, health) in failing {
        s.write(async |tx| webhooks::set_record(tx, id, health).await).await;
    }
    let records =
        async |all| s.write(async |tx| webhooks::lock_health(tx, &[ids[3], ids[0], ids[2], 999], all).await).await;
    assert_eq!(records(false).await, failing);
    assert_eq!(records(true).await, [(ids[0], Health::default()), failing[0], failing[1]]);
}

async fn endpoints_are_counted(s: TestStore) {
    assert_eq!(webhooks::counts(&mut s.conn().await).await.unwrap(), (0, 0, 0));
    let w = s.create_world().await;
    s.webhook(w.user, &EVENTS).await;
    let mut inactive = s.webhook(w.user, &EVENTS).await;
    inactive.is_active = false;
    s.write(async |tx| webhooks::update(tx, &inactive).await).await;
    for _ in 0..3 {
        let disabled = s.webhook(w.user, &EVENTS).await;
        s.write(async |tx| webhooks::disable(tx, disabled.id, "gone").await).await;
    }
    assert_eq!(webhooks::counts(&mut s.conn().await).await.unwrap(), (1, 1, 3));
}

async fn deliveries_are_visible_only_to_their_endpoint(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (s.webhook(w.user, &EVENTS).await, s.webhook(w.user, &[]).await);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(create_delivery(&s, w, one.id).await.id);
    }
    ids.reverse();
    let list = async |webhook, page| {
        let found = deliveries::list(
            &mut s.conn().await,
            webhook,
            DeliveryFilter::default(),
            PageRequest { page, per_page: 2 },
        )
        .await
        .unwrap();
        (found.rows.iter().map(|d| d.id).collect::<Vec<_>>(), found.total)
    };
    assert_eq!(list(one.id, 1).await, (ids[..2].to_vec(), 3));
    assert_eq!(list(one.id, 2).await, (ids[2..].to_vec(), 3));
    assert_eq!(list(two.id, 1).await, (vec![], 0));
    assert!(deliveries::find(&mut s.conn().await, one.id, ids[0]).await.unwrap().is_some());
    assert!(deliveries::find(&mut s.conn().await, two.id, ids[0]).await.unwrap().is_none());
    assert!(deliveries::find_any(&mut s.conn().await, 999).await.unwrap().is_none());
}

async fn disabling_is_idempotent_and_notifies_the_owner(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await;
    let disabled = async || webhooks::disabled(&mut s.conn().await, w.user, webhook.id).await.unwrap();
    assert!(disabled().await.is_none(), "it is on");
    let since = s.now();
    let failing = Health { failing_since: Some(since), strikes: 1 };
    s.write(async |tx| webhooks::set_record(tx, webhook.id, failing).await).await;
    s.advance(5);
    let disable = async |reason| s.write(async |tx| webhooks::disable(tx, webhook.id, reason).await).await;
    assert!(disable("gone").await);
    assert!(!disable("gone again").await);
    let found = disabled().await.unwrap();
    assert_eq!((found.description, found.failing_since), (webhook.description.clone(), Some(since)));
    assert!(webhooks::disabled(&mut s.conn().await, w.user + 1, webhook.id).await.unwrap().is_none(), "another user");
    assert_eq!(s.count_rows("notices WHERE kind = 'webhook_disabled'").await, 1, "its owner is notified once");
    s.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    assert!(disabled().await.is_none(), "its owner disabled it");
    assert!(!s.write(async |tx| webhooks::disable(tx, 999, "gone").await).await);
}

async fn missed_deliveries_are_counted_per_outage(s: TestStore) {
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await.id;
    let mut created = Vec::new();
    for _ in 0..5 {
        created.push((create_delivery(&s, w, webhook).await.id, s.now()));
        s.advance(10);
    }
    s.webhook(w.user, &EVENTS).await;
    create_delivery(&s, w, webhook).await;
    let since = s.now();
    let undelivered = async || deliveries::undelivered(&mut s.conn().await, webhook, since).await.unwrap();
    assert_eq!(undelivered().await, (6, Some(created[0].1)), "those that wait are older than the first failure");
    for (n, status) in [(0, "failed"), (1, "succeeded"), (2, "retrying")] {
        s.sql(format!("UPDATE webhook_deliveries SET status = '{status}' WHERE id = {}", created[n].0)).await;
    }
    assert_eq!(undelivered().await, (4, Some(created[2].1)), "an earlier failure belongs to another outage");
    s.write(async |tx| deliveries::fail(tx, created[2].0, "no more").await).await;
    assert_eq!(undelivered().await, (4, Some(created[2].1)), "a failure during the outage counts");
}
