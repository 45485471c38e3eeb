//! Delivery attempts and their effect on the delivery.

use crier_domain::event::EventName;
use crier_domain::webhook::{Delivery, DeliveryOutcome, DeliveryStatus};
use crier_store::deliveries::{self, AttemptRow};
use crier_store::events;
use serde_json::json;

use crate::support::store::{TestStore, World, cipher, expose, on_both, run_concurrently};

on_both![
    outgoing_deliveries_are_loaded_in_one_batch,
    attempts_update_their_delivery,
    operators_are_shown_the_latest_attempts,
    attempts_are_recorded_in_one_batch,
    deleted_deliveries_are_skipped,
    a_replay_allows_one_more_attempt,
    failing_a_delivery_ignores_finished_ones,
    replays_and_attempts_are_serialised,
    attempts_round_trip,
];

/// Emits an event; returns the newest delivery.
async fn create_delivery(s: &TestStore, w: World) -> Delivery {
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &json!({ "n": 1 }), None).await).await;
    reload(s, s.number("SELECT max(id) FROM webhook_deliveries").await).await
}

async fn reload(s: &TestStore, id: i64) -> Delivery {
    deliveries::find_any(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn world_with_endpoint(s: &TestStore) -> World {
    let w = s.create_world().await;
    s.webhook(w.user, &[EventName::BrandCreated]).await;
    w
}

async fn record(s: &TestStore, attempts: &[AttemptRow]) -> Vec<i64> {
    s.write(async |tx| deliveries::record(tx, attempts).await).await.into_iter().collect()
}

fn attempt(s: &TestStore, delivery: &Delivery, number: i32) -> AttemptRow {
    AttemptRow {
        delivery_id: delivery.id,
        number,
        started_at: s.now(),
        duration_ms: 31,
        outcome: "5xx",
        response_code: Some(503),
        error: Some("HTTP 503".to_owned()),
        response_body: Some("später".to_owned()),
        status: DeliveryStatus::Retrying,
        next_attempt_at: Some(s.later(5)),
    }
}

fn success(s: &TestStore, delivery: &Delivery, number: i32) -> AttemptRow {
    AttemptRow {
        outcome: "2xx",
        response_code: Some(204),
        error: None,
        response_body: None,
        status: DeliveryStatus::Succeeded,
        next_attempt_at: None,
        ..attempt(s, delivery, number)
    }
}

async fn outgoing_deliveries_are_loaded_in_one_batch(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let (one, two) = (create_delivery(&s, w).await, create_delivery(&s, w).await);
    let mut found = deliveries::load_outgoing(&mut s.conn().await, &[two.id, 999, one.id]).await.unwrap();
    found.sort_by_key(|d| d.id);
    assert_eq!(found.len(), 2);
    for (found, d) in found.iter().zip([&one, &two]) {
        assert_eq!((found.id, found.webhook_id, found.event_id), (d.id, d.webhook_id, d.event_id));
        assert_eq!((found.event, found.status, found.attempts), (d.event, d.status, d.attempts));
        assert_eq!((found.max_attempts, found.created_at, &found.payload), (d.max_attempts, d.created_at, &d.payload));
        assert!(
            found.is_active
                && found.url.starts_with("https://")
                && expose(&found.secret(&cipher()).unwrap()) == "whsec_of_the_tests"
        );
    }
}

async fn attempts_update_their_delivery(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let d = create_delivery(&s, w).await;
    let first = attempt(&s, &d, 1);
    assert_eq!(record(&s, std::slice::from_ref(&first)).await, [d.id]);
    let found = reload(&s, d.id).await;
    assert_eq!((found.status, found.attempts, found.response_code), (DeliveryStatus::Retrying, 1, Some(503)));
    assert_eq!((found.error.as_deref(), found.response_body.as_deref()), (Some("HTTP 503"), Some("später")));
    assert_eq!((found.next_attempt_at, found.last_attempt_at), (first.next_attempt_at, Some(s.now())));
    assert_eq!((found.duration_ms, found.updated_at), (Some(31), s.now()));
    // A time is stored identically whether it is bound or part of a text.
    let matching = "
        SELECT count(*)
        FROM webhook_deliveries d
        JOIN webhook_attempts a ON a.started_at = d.updated_at AND a.started_at = d.last_attempt_at
        WHERE d.created_at = d.updated_at";
    assert_eq!(s.number(matching).await, 1);
    s.advance(5);
    record(&s, &[success(&s, &d, 2)]).await;
    let found = reload(&s, d.id).await;
    assert_eq!((found.status, found.attempts, found.response_code), (DeliveryStatus::Succeeded, 2, Some(204)));
    assert_eq!((found.error, found.response_body, found.next_attempt_at), (None, None, None));
    assert_eq!((found.last_attempt_at, found.updated_at), (Some(s.now()), s.now()));
    let attempts = deliveries::attempt_summaries(&mut s.conn().await, d.id).await.unwrap();
    let recorded: Vec<_> = attempts.iter().map(|t| (t.number, t.outcome.as_str(), t.error.as_deref())).collect();
    assert_eq!(recorded, [(1, "5xx", Some("HTTP 503")), (2, "2xx", None)]);
}

async fn operators_are_shown_the_latest_attempts(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let d = create_delivery(&s, w).await;
    for number in 1..=103 {
        record(&s, &[attempt(&s, &d, number)]).await;
    }
    let attempts = deliveries::attempt_summaries(&mut s.conn().await, d.id).await.unwrap();
    assert_eq!(attempts.iter().map(|one| one.number).collect::<Vec<_>>(), (4..=103).collect::<Vec<_>>());
}

async fn attempts_are_recorded_in_one_batch(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let mut rows = Vec::new();
    for number in 1..=120 {
        let d = create_delivery(&s, w).await;
        let body = format!("{number} \"quoted\" \\ \u{1} naïve ☃ 'x' $1 \u{10ffff}");
        rows.push(AttemptRow { response_body: Some(body), ..attempt(&s, &d, number) });
    }
    let ids: Vec<i64> = rows.iter().map(|row| row.delivery_id).collect();
    assert_eq!(record(&s, &rows).await, ids);
    for row in &rows {
        let found = reload(&s, row.delivery_id).await;
        assert_eq!((found.attempts, found.response_body), (row.number, row.response_body.clone()));
        assert_eq!(deliveries::attempt_summaries(&mut s.conn().await, row.delivery_id).await.unwrap().len(), 1);
    }
    let matching = "
        SELECT count(*)
        FROM webhook_attempts a
        JOIN webhook_deliveries d
            ON d.id = a.delivery_id
                AND d.response_body = a.response_body
                AND d.error = a.error
                AND d.attempts = a.number";
    assert_eq!(s.number(matching).await, 120);
}

async fn deleted_deliveries_are_skipped(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let (kept, deleted) = (create_delivery(&s, w).await, create_delivery(&s, w).await);
    s.sql(format!("DELETE FROM webhook_deliveries WHERE id = {}", deleted.id)).await;
    assert_eq!(record(&s, &[attempt(&s, &deleted, 1), attempt(&s, &kept, 1)]).await, [kept.id]);
    assert_eq!(s.number("SELECT delivery_id FROM webhook_attempts").await, kept.id);
    let held = s.write(async |tx| deliveries::lock_each(tx, &[deleted.id, kept.id]).await).await;
    assert_eq!(held.into_iter().collect::<Vec<_>>(), [(kept.id, 8)]);
    assert!(record(&s, &[attempt(&s, &deleted, 1)]).await.is_empty());
}

async fn a_replay_allows_one_more_attempt(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    for ended in [DeliveryStatus::Succeeded, DeliveryStatus::Failed] {
        let d = create_delivery(&s, w).await;
        record(&s, &[AttemptRow { status: ended, next_attempt_at: None, ..attempt(&s, &d, 8) }]).await;
        s.advance(60);
        s.write(async |tx| deliveries::replay(tx, d.id).await).await;
        let found = reload(&s, d.id).await;
        assert_eq!((found.status, found.attempts, found.max_attempts), (DeliveryStatus::Pending, 8, 9));
        assert_eq!(found.next_attempt_at, Some(s.now()));
    }
    let d = create_delivery(&s, w).await;
    record(&s, &[attempt(&s, &d, 1)]).await;
    s.write(async |tx| deliveries::replay(tx, d.id).await).await;
    let found = reload(&s, d.id).await;
    assert_eq!((found.status, found.max_attempts, found.next_attempt_at), (DeliveryStatus::Retrying, 9, Some(s.now())));
}

async fn failing_a_delivery_ignores_finished_ones(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let fail = async |id| s.write(async |tx| deliveries::fail(tx, id, "inactive").await).await;
    let (open, done) = (create_delivery(&s, w).await, create_delivery(&s, w).await);
    record(&s, &[success(&s, &done, 1)]).await;
    fail(open.id).await;
    fail(done.id).await;
    let (open, done) = (reload(&s, open.id).await, reload(&s, done.id).await);
    assert_eq!(
        (open.status, open.error.as_deref(), open.next_attempt_at),
        (DeliveryStatus::Failed, Some("inactive"), None)
    );
    assert_eq!((done.status, done.error), (DeliveryStatus::Succeeded, None));
}

async fn replays_and_attempts_are_serialised(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let d = create_delivery(&s, w).await;
    let success = success(&s, &d, 1);
    run_concurrently(6, |_| {
        let (store, success) = (s.store.clone(), success.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            let held = deliveries::lock(&mut tx, success.delivery_id).await.unwrap().unwrap();
            deliveries::record(&mut tx, &[AttemptRow { number: held.attempts + 1, ..success }]).await.unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    assert_eq!(reload(&s, d.id).await.attempts, 6);
    assert!(s.write(async |tx| deliveries::lock(tx, 999).await).await.is_none());
}

async fn attempts_round_trip(s: TestStore) {
    let w = world_with_endpoint(&s).await;
    let (one, other) = (create_delivery(&s, w).await, create_delivery(&s, w).await);
    let without_response = AttemptRow { response_code: None, error: None, response_body: None, ..attempt(&s, &one, 1) };
    let rows: Vec<_> = (1..)
        .zip(DeliveryOutcome::ALL)
        .map(|(number, outcome)| AttemptRow { number, outcome: outcome.as_str(), ..without_response.clone() })
        .chain([attempt(&s, &one, 99)])
        .collect();
    for row in rows.iter().chain([&attempt(&s, &other, 1)]) {
        record(&s, std::slice::from_ref(row)).await;
        s.advance(1);
    }
    let found = deliveries::attempts(&mut s.conn().await, one.id, 100).await.unwrap();
    assert_eq!(found.len(), rows.len(), "attempts of the other delivery are excluded");
    for (found, row) in found.iter().zip(&rows) {
        assert_eq!((found.number, found.outcome.as_str()), (row.number, row.outcome), "oldest first");
        assert_eq!((found.started_at, found.duration_ms), (row.started_at, row.duration_ms));
        assert_eq!(
            (found.response_code, &found.error, &found.response_body),
            (row.response_code, &row.error, &row.response_body)
        );
    }
    let latest = deliveries::attempts(&mut s.conn().await, one.id, 2).await.unwrap();
    assert_eq!(latest, found[found.len() - 2..], "the latest ones, oldest first");
    assert!(deliveries::attempts(&mut s.conn().await, 999, 100).await.unwrap().is_empty());
}
