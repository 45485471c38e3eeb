//! Webhook endpoints, their deliveries and every try at them.

use crier_common::domain::event::EventName;
use crier_common::domain::job::{Kind, State};
use crier_common::domain::webhook::{AttemptOutcome, Delivery, DeliveryStatus, MAX_ATTEMPTS};
use crier_common::store::deliveries::{self, AttemptRow, Filter};
use crier_common::store::webhooks::{self, NewWebhook};
use crier_common::store::{PageOf, StoreError, Tx, events};
use secrecy::SecretString;
use serde_json::json;

use crate::support::store::{TestStore, World, cipher, on_both, plain};

on_both![
    an_endpoint_comes_back_as_it_was_stored,
    an_endpoint_is_of_its_user,
    secrets_are_sealed_and_bound_to_their_row,
    an_update_switched_on_again_starts_clean,
    failures_are_dated_from_the_first,
    endpoints_are_counted,
    deliveries_are_of_their_endpoint,
    attempts_leave_the_delivery_as_they_say,
    a_replay_allows_one_more_attempt,
    giving_up_spares_what_has_ended,
    replays_and_attempts_go_one_at_a_time,
    attempts_are_read_as_they_were_recorded,
    a_list_is_narrowed_by_status_and_event,
    recovering_repeats_what_failed_since_then,
    a_recovery_is_given_up_with_its_transaction,
    a_sample_goes_to_one_endpoint_and_is_of_no_brand,
];

const BOTH: [EventName; 2] = [EventName::PostPublished, EventName::BrandCreated];

async fn delivery(s: &TestStore, w: World, webhook: i64) -> Delivery {
    s.write(async |tx| events::emit(tx, w.brand, EventName::BrandCreated, &json!({ "n": 1 }), None).await).await;
    let page = deliveries::list(&mut s.conn().await, webhook, Filter::default(), PageOf { page: 1, per_page: 1 })
        .await
        .unwrap();
    page.rows.into_iter().next().unwrap()
}

async fn again(s: &TestStore, id: i64) -> Delivery {
    deliveries::find_any(&mut s.conn().await, id).await.unwrap().unwrap()
}

async fn an_endpoint_comes_back_as_it_was_stored(s: TestStore) {
    let w = s.world().await;
    let secret = SecretString::from("whsec_a");
    let new =
        NewWebhook { url: "https://x.test/h?a=1", events: &BOTH, description: None, is_active: false, secret: &secret };
    let made = s.write(async |tx| webhooks::create(tx, w.user, &new).await).await;
    assert_eq!((made.user_id, made.url.as_str(), made.events.as_slice()), (w.user, "https://x.test/h?a=1", &BOTH[..]));
    assert_eq!((made.description.as_deref(), made.is_active, made.disabled_reason.as_deref()), (None, false, None));
    assert_eq!((made.created_at, made.updated_at), (s.now(), s.now()));
    let found = webhooks::find(&mut s.conn().await, w.user, made.id).await.unwrap().unwrap();
    assert_eq!((found.id, found.events), (made.id, made.events));
}

async fn an_endpoint_is_of_its_user(s: TestStore) {
    let (w, other) = (s.world().await, s.world_of("bob@example.com").await);
    let (one, two) = (s.webhook(w.user, &BOTH).await, s.webhook(w.user, &BOTH).await);
    let listed = webhooks::list(&mut s.conn().await, w.user).await.unwrap();
    assert_eq!(listed.iter().map(|w| w.id).collect::<Vec<_>>(), [two.id, one.id]);
    assert!(webhooks::list(&mut s.conn().await, other.user).await.unwrap().is_empty());
    assert!(webhooks::find(&mut s.conn().await, other.user, one.id).await.unwrap().is_none());
    assert!(s.write(async |tx| webhooks::find_for_update(tx, other.user, one.id).await).await.is_none());
    assert!(s.write(async |tx| webhooks::find_for_update(tx, w.user, one.id).await).await.is_some());
    let delete = async |user| s.write(async |tx| webhooks::delete(tx, user, one.id).await).await;
    assert!(!delete(other.user).await);
    delivery(&s, w, one.id).await;
    assert!(delete(w.user).await);
    assert!(!delete(w.user).await);
    assert_eq!(s.number("SELECT count(*) FROM webhook_deliveries").await, 1, "its deliveries go along");
}

async fn secrets_are_sealed_and_bound_to_their_row(s: TestStore) {
    let w = s.world().await;
    let (one, two) = (s.webhook(w.user, &BOTH).await, s.webhook(w.user, &BOTH).await);
    let recipient = async |id| webhooks::recipient(&mut s.conn().await, &cipher(), id).await;
    let found = recipient(one.id).await.unwrap().unwrap();
    assert_eq!(
        (found.url.as_str(), found.is_active, plain(&found.secret)),
        (one.url.as_str(), true, "whsec_of_the_tests")
    );
    let sealed: Vec<u8> = s.value(format!("SELECT secret FROM webhooks WHERE id = {}", one.id)).await;
    assert!(!sealed.windows(5).any(|bytes| bytes == b"whsec"));
    s.advance(1);
    s.write(async |tx| webhooks::set_secret(tx, one.id, &SecretString::from("whsec_new")).await).await;
    assert_eq!(plain(&recipient(one.id).await.unwrap().unwrap().secret), "whsec_new");
    assert_eq!(webhooks::find(&mut s.conn().await, w.user, one.id).await.unwrap().unwrap().updated_at, s.now());
    s.sql(format!(
        "UPDATE webhooks SET secret = (SELECT secret FROM webhooks WHERE id = {}) WHERE id = {}",
        one.id, two.id
    ))
    .await;
    assert!(matches!(recipient(two.id).await, Err(StoreError::Secret(_))));
    assert!(recipient(999).await.unwrap().is_none());
}

async fn an_update_switched_on_again_starts_clean(s: TestStore) {
    let w = s.world().await;
    let mut webhook = s.webhook(w.user, &BOTH).await;
    let since = s.now();
    s.write(async |tx| webhooks::failed(tx, webhook.id).await).await;
    s.advance(5);
    // Changed while it is on: its record stays.
    webhook.url = "https://other.test".to_owned();
    webhook.events = vec![EventName::PostFailed];
    s.write(async |tx| webhooks::update(tx, &webhook).await).await;
    assert_eq!(s.write(async |tx| webhooks::failed(tx, webhook.id).await).await, Some(since));
    s.write(async |tx| webhooks::disable(tx, webhook.id, "no success in 5 days").await).await;
    let found = webhooks::find(&mut s.conn().await, w.user, webhook.id).await.unwrap().unwrap();
    assert_eq!((found.is_active, found.disabled_reason.as_deref()), (false, Some("no success in 5 days")));
    assert_eq!((found.url.as_str(), found.events), ("https://other.test", vec![EventName::PostFailed]));
    // The reason of one that is off already stays as it is.
    s.write(async |tx| webhooks::disable(tx, webhook.id, "another").await).await;
    let found = webhooks::find(&mut s.conn().await, w.user, webhook.id).await.unwrap().unwrap();
    assert_eq!(found.disabled_reason.as_deref(), Some("no success in 5 days"));
    webhook.is_active = true;
    webhook.disabled_reason = None;
    s.write(async |tx| webhooks::update(tx, &webhook).await).await;
    assert_eq!(s.write(async |tx| webhooks::failed(tx, webhook.id).await).await, Some(s.now()));
}

async fn failures_are_dated_from_the_first(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let failed = async || s.write(async |tx| webhooks::failed(tx, webhook.id).await).await;
    let first = s.now();
    assert_eq!(failed().await, Some(first));
    s.advance(60);
    assert_eq!(failed().await, Some(first));
    s.write(async |tx| webhooks::succeeded(tx, webhook.id).await).await;
    s.advance(60);
    assert_eq!(failed().await, Some(s.now()));
    assert_eq!(s.write(async |tx| webhooks::failed(tx, 999).await).await, None);
}

async fn endpoints_are_counted(s: TestStore) {
    assert_eq!(webhooks::counts(&mut s.conn().await).await.unwrap(), (0, 0, 0));
    let w = s.world().await;
    s.webhook(w.user, &BOTH).await;
    let mut off = s.webhook(w.user, &BOTH).await;
    off.is_active = false;
    s.write(async |tx| webhooks::update(tx, &off).await).await;
    for _ in 0..3 {
        let disabled = s.webhook(w.user, &BOTH).await;
        s.write(async |tx| webhooks::disable(tx, disabled.id, "gone").await).await;
    }
    assert_eq!(webhooks::counts(&mut s.conn().await).await.unwrap(), (1, 1, 3));
}

async fn deliveries_are_of_their_endpoint(s: TestStore) {
    let w = s.world().await;
    let (one, two) = (s.webhook(w.user, &BOTH).await, s.webhook(w.user, &[]).await);
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(delivery(&s, w, one.id).await.id);
    }
    ids.reverse();
    let list = async |webhook, page| {
        let found = deliveries::list(&mut s.conn().await, webhook, Filter::default(), PageOf { page, per_page: 2 })
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
    }
}

async fn attempts_leave_the_delivery_as_they_say(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let d = delivery(&s, w, webhook.id).await;
    let (row, next) = (attempt(&s, &d, 1), Some(s.later(5)));
    s.write(async |tx| deliveries::record(tx, &row, DeliveryStatus::Retrying, next).await).await;
    let found = again(&s, d.id).await;
    assert_eq!((found.status, found.attempts, found.response_code), (DeliveryStatus::Retrying, 1, Some(503)));
    assert_eq!((found.error.as_deref(), found.response_body.as_deref()), (Some("HTTP 503"), Some("später")));
    assert_eq!((found.next_attempt_at, found.last_attempt_at, found.duration_ms), (next, Some(s.now()), Some(31)));
    s.advance(5);
    let row =
        AttemptRow { outcome: "2xx", response_code: Some(204), error: None, response_body: None, ..attempt(&s, &d, 2) };
    s.write(async |tx| deliveries::record(tx, &row, DeliveryStatus::Succeeded, None).await).await;
    let found = again(&s, d.id).await;
    assert_eq!((found.status, found.attempts, found.response_code), (DeliveryStatus::Succeeded, 2, Some(204)));
    assert_eq!((found.error, found.response_body, found.next_attempt_at), (None, None, None));
    assert_eq!((found.last_attempt_at, found.updated_at), (Some(s.now()), s.now()));
    assert_eq!(s.number("SELECT count(*) FROM webhook_attempts").await, 2);
}

async fn a_replay_allows_one_more_attempt(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    for ended in [DeliveryStatus::Succeeded, DeliveryStatus::Failed] {
        let d = delivery(&s, w, webhook.id).await;
        let row = attempt(&s, &d, 8);
        s.write(async |tx| deliveries::record(tx, &row, ended, None).await).await;
        s.advance(60);
        s.write(async |tx| deliveries::replay(tx, d.id).await).await;
        let found = again(&s, d.id).await;
        assert_eq!((found.status, found.attempts, found.max_attempts), (DeliveryStatus::Pending, 8, 9));
        assert_eq!(found.next_attempt_at, Some(s.now()));
    }
    let d = delivery(&s, w, webhook.id).await;
    let (row, next) = (attempt(&s, &d, 1), Some(s.later(300)));
    s.write(async |tx| deliveries::record(tx, &row, DeliveryStatus::Retrying, next).await).await;
    s.write(async |tx| deliveries::replay(tx, d.id).await).await;
    let found = again(&s, d.id).await;
    assert_eq!((found.status, found.max_attempts, found.next_attempt_at), (DeliveryStatus::Retrying, 9, Some(s.now())));
}

async fn giving_up_spares_what_has_ended(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let give_up = async |id| s.write(async |tx| deliveries::give_up(tx, id, "inactive").await).await;
    let (open, done) = (delivery(&s, w, webhook.id).await, delivery(&s, w, webhook.id).await);
    let row = AttemptRow { error: None, ..attempt(&s, &done, 1) };
    s.write(async |tx| deliveries::record(tx, &row, DeliveryStatus::Succeeded, None).await).await;
    give_up(open.id).await;
    give_up(done.id).await;
    let (open, done) = (again(&s, open.id).await, again(&s, done.id).await);
    assert_eq!(
        (open.status, open.error.as_deref(), open.next_attempt_at),
        (DeliveryStatus::Failed, Some("inactive"), None)
    );
    assert_eq!((done.status, done.error), (DeliveryStatus::Succeeded, None));
}

async fn replays_and_attempts_go_one_at_a_time(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let d = delivery(&s, w, webhook.id).await;
    crate::support::store::at_once(6, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let held = deliveries::lock(&mut tx, d.id).await.unwrap().unwrap();
            let row = AttemptRow {
                delivery_id: held.id,
                number: held.attempts + 1,
                started_at: tx.now,
                duration_ms: 1,
                outcome: "2xx",
                response_code: Some(200),
                error: None,
                response_body: None,
            };
            deliveries::record(&mut tx, &row, DeliveryStatus::Succeeded, None).await.unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    assert_eq!(again(&s, d.id).await.attempts, 6);
    assert!(s.write(async |tx| deliveries::lock(tx, 999).await).await.is_none());
}

async fn attempts_are_read_as_they_were_recorded(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let (one, other) = (delivery(&s, w, webhook.id).await, delivery(&s, w, webhook.id).await);
    let bare = AttemptRow { response_code: None, error: None, response_body: None, ..attempt(&s, &one, 1) };
    let rows: Vec<_> = (1..)
        .zip(AttemptOutcome::ALL)
        .map(|(number, outcome)| AttemptRow { number, outcome: outcome.as_str(), ..bare.clone() })
        .chain([attempt(&s, &one, 99)])
        .collect();
    for row in rows.iter().chain([&attempt(&s, &other, 1)]) {
        s.write(async |tx| deliveries::record(tx, row, DeliveryStatus::Retrying, None).await).await;
        s.advance(1);
    }
    let found = deliveries::attempts(&mut s.conn().await, one.id).await.unwrap();
    assert_eq!(found.len(), rows.len(), "those of the other delivery are not among them");
    for (found, row) in found.iter().zip(&rows) {
        assert_eq!((found.number, found.outcome.as_str()), (row.number, row.outcome), "oldest first");
        assert_eq!((found.started_at, found.duration_ms), (row.started_at, row.duration_ms));
        assert_eq!(
            (found.response_code, &found.error, &found.response_body),
            (row.response_code, &row.error, &row.response_body)
        );
    }
    assert!(deliveries::attempts(&mut s.conn().await, 999).await.unwrap().is_empty());
}

async fn a_list_is_narrowed_by_status_and_event(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let brand = delivery(&s, w, webhook.id).await;
    let post = s.write(async |tx| events::emit_sample(tx, webhook.id, EventName::PostFailed, None).await).await;
    let row = attempt(&s, &brand, 8);
    s.write(async |tx| deliveries::record(tx, &row, DeliveryStatus::Failed, None).await).await;
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
            let (filter, page) = (Filter { status, event }, PageOf { page: 1, per_page: 1 });
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

/// So many deliveries, a second apart, of which all but the last have failed.
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

async fn recovering_repeats_what_failed_since_then(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let begun = s.now();
    let ids = failures(&s, w, webhook.id, 4).await;
    let other = s.webhook(w.user, &BOTH).await;
    let others = failures(&s, w, other.id, 2).await;
    let since = begun + chrono::TimeDelta::seconds(1);
    s.advance(60);
    let recover = async || s.write(async |tx| deliveries::recover(tx, webhook.id, since).await).await;
    assert_eq!(recover().await, ids[1..3]);
    assert_eq!(recover().await, Vec::<i64>::new(), "none of them is failed any more");
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

async fn a_recovery_is_given_up_with_its_transaction(s: TestStore) {
    let w = s.world().await;
    let webhook = s.webhook(w.user, &BOTH).await;
    let begun = s.now();
    let ids = failures(&s, w, webhook.id, 3).await;
    assert_eq!(s.discard(async |tx| deliveries::recover(tx, webhook.id, begun).await).await, ids[..2]);
    assert_eq!((again(&s, ids[0]).await.status, again(&s, ids[0]).await.max_attempts), (DeliveryStatus::Failed, 8));
}

async fn a_sample_goes_to_one_endpoint_and_is_of_no_brand(s: TestStore) {
    let w = s.world().await;
    let (one, other) = (s.webhook(w.user, &[]).await, s.webhook(w.user, &BOTH).await);
    s.bell.take();
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
    let job = s.show(s.bell.take()[0]).await;
    assert_eq!((job.kind, job.subject_id, job.lane), (Kind::DeliverWebhook, id, Some(format!("endpoint:{}", one.id))));
    assert_eq!((job.state, job.trace.as_deref()), (State::Ready, Some("req-1")));
    assert_eq!(s.number("SELECT count(*) FROM events WHERE brand_id IS NULL").await, 1);
    let page = PageOf { page: 1, per_page: 1 };
    assert_eq!(deliveries::list(&mut s.conn().await, other.id, Filter::default(), page).await.unwrap().total, 0);
}
