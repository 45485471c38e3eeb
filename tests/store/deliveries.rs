//! Deliveries: lists, recovery, samples and settles.

use chrono::TimeDelta;
use crier_domain::event::EventName;
use crier_domain::job::{ClaimedJob, JobKind, JobState, Lane};
use crier_domain::webhook::{Delivery, DeliveryStatus, MAX_ATTEMPTS};
use crier_store::deliveries::{self, AttemptRow, AttemptUpdate, DeliveryFilter};
use crier_store::jobs::lanes;
use crier_store::{PageRequest, Result, Tx, events};
use serde_json::json;

use crate::support::store::{TestStore, World, on_both};

on_both![
    a_list_is_filtered_by_status_and_event,
    recovery_replays_failures_since_a_time,
    a_recovery_is_rolled_back_with_its_transaction,
    a_sample_is_sent_to_one_endpoint_without_brand,
    deliveries_are_settled_in_one_statement,
    a_lost_lease_undoes_the_whole_statement,
    an_unhealthy_endpoint_is_not_settled_in_one_statement,
    a_deletion_undoes_the_whole_statement,
    a_settle_in_one_statement_wakes_a_waiting_job,
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
    assert_eq!(s.discard(async |tx| deliveries::recover(tx, webhook.id, started_at).await).await, ids[..2]);
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

/// Creates deliveries and claims their jobs.
async fn claim_deliveries(s: &TestStore, w: World, webhook: i64, count: usize) -> Vec<(Delivery, ClaimedJob)> {
    let mut all = Vec::new();
    for _ in 0..count {
        let delivery = create_delivery(s, w, webhook).await;
        let job = s.number(format!("SELECT id FROM jobs WHERE subject_id = {}", delivery.id)).await;
        all.push((delivery, s.claim(&[job], "w").await.remove(0)));
    }
    s.notifier.take();
    all
}

/// Settles the deliveries as successful attempts, in one statement.
async fn settle(s: &TestStore, runs: &[(Delivery, ClaimedJob)]) -> Result<bool> {
    let row = |delivery: &Delivery| AttemptRow {
        delivery_id: delivery.id,
        number: 1,
        started_at: s.now(),
        duration_ms: 7,
        outcome: "2xx",
        response_code: Some(204),
        error: None,
        response_body: Some("thanks".to_owned()),
        status: DeliveryStatus::Succeeded,
        next_attempt_at: None,
    };
    let ended = runs.iter().map(|(d, job)| AttemptUpdate { webhook_id: d.webhook_id, row: row(d), job });
    let all: Vec<_> = ended.collect();
    let mut tx = s.store.begin_single().await.unwrap();
    let settled = deliveries::settle(&mut tx, &all).await?;
    tx.commit().await.unwrap();
    Ok(settled)
}

/// Asserts that the settle wrote nothing.
async fn assert_running(s: &TestStore, runs: &[(Delivery, ClaimedJob)]) {
    for (delivery, job) in runs {
        assert_eq!(
            (reload(s, delivery.id).await.status, s.state(job.id).await),
            (DeliveryStatus::Pending, JobState::Running)
        );
    }
    assert_eq!(s.number("SELECT count(*) FROM webhook_attempts").await, 0);
}

async fn deliveries_are_settled_in_one_statement(s: TestStore) {
    if !s.is_postgres() {
        return;
    }
    let w = s.create_world().await;
    let (one, two) = (s.webhook(w.user, &EVENTS).await, s.webhook(w.user, &[EventName::BrandCreated]).await);
    let runs = claim_deliveries(&s, w, one.id, 2).await;
    let others = s.number("SELECT count(*) FROM webhook_deliveries").await;
    assert_eq!(others, 4, "each event goes to both endpoints");
    s.advance(3);
    assert!(settle(&s, &runs).await.unwrap());
    for (delivery, job) in &runs {
        let after = reload(&s, delivery.id).await;
        assert_eq!((after.status, after.attempts, after.response_code), (DeliveryStatus::Succeeded, 1, Some(204)));
        assert_eq!((after.next_attempt_at, after.response_body.as_deref()), (None, Some("thanks")));
        let row = s.show(job.id).await;
        assert_eq!((row.state, row.finished_at, row.lease_until), (JobState::Done, Some(s.now()), None));
        let attempts = deliveries::attempts(&mut s.conn().await, delivery.id).await.unwrap();
        assert_eq!(attempts.iter().map(|a| (a.number, a.duration_ms)).collect::<Vec<_>>(), [(1, 7)]);
    }
    assert_eq!(
        s.number(format!(
            "SELECT count(*) FROM webhook_deliveries WHERE webhook_id = {} AND status = 'pending'",
            two.id
        ))
        .await,
        2
    );
    assert!(settle(&s, &runs).await.is_err(), "they are settled already");
    assert_eq!(s.number("SELECT count(*) FROM webhook_attempts").await, 2);
}

async fn a_lost_lease_undoes_the_whole_statement(s: TestStore) {
    if !s.is_postgres() {
        return;
    }
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await.id;
    let runs = claim_deliveries(&s, w, webhook, 2).await;
    for (fence, worker) in [(0, "w"), (1, "another")] {
        let mut lost = runs.clone();
        (lost[1].1.fence, lost[1].1.worker) = (fence, worker.to_owned());
        assert!(settle(&s, &lost).await.is_err());
        assert_running(&s, &runs).await;
    }
    assert!(settle(&s, &runs).await.unwrap());
}

async fn an_unhealthy_endpoint_is_not_settled_in_one_statement(s: TestStore) {
    if !s.is_postgres() {
        return;
    }
    let w = s.create_world().await;
    let (one, two) = (s.webhook(w.user, &EVENTS).await.id, s.webhook(w.user, &EVENTS).await.id);
    let mut runs = claim_deliveries(&s, w, one, 1).await;
    runs.extend(claim_deliveries(&s, w, two, 1).await);
    for record in ["strikes = 1", "failing_since = now(), strikes = 0"] {
        s.sql(format!("UPDATE webhooks SET {record} WHERE id = {two}")).await;
        assert!(!settle(&s, &runs).await.unwrap(), "{record}");
        assert_running(&s, &runs).await;
    }
    assert!(settle(&s, &runs[..1]).await.unwrap(), "the other endpoint's record is clean");
}

async fn a_deletion_undoes_the_whole_statement(s: TestStore) {
    if !s.is_postgres() {
        return;
    }
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await.id;
    let runs = claim_deliveries(&s, w, webhook, 2).await;
    s.sql(format!("DELETE FROM webhook_deliveries WHERE id = {}", runs[0].0.id)).await;
    assert!(settle(&s, &runs).await.is_err());
    assert!(!settle(&s, &runs[..1]).await.unwrap(), "nothing is written for a delivery that is gone");
    assert_running(&s, &runs[1..]).await;
    assert_eq!(s.state(runs[0].1.id).await, JobState::Running);
}

async fn a_settle_in_one_statement_wakes_a_waiting_job(s: TestStore) {
    if !s.is_postgres() {
        return;
    }
    let w = s.create_world().await;
    let webhook = s.webhook(w.user, &EVENTS).await.id;
    s.write(async |tx| lanes::narrow_lane(tx, &Lane::Endpoint(webhook).to_string(), 1).await).await;
    let runs = claim_deliveries(&s, w, webhook, 1).await;
    let next = create_delivery(&s, w, webhook).await.id;
    let next = s.number(format!("SELECT id FROM jobs WHERE subject_id = {next}")).await;
    assert!(s.claim(&[next], "w").await.is_empty(), "the lane is full");
    s.notifier.take();
    assert!(settle(&s, &runs).await.unwrap());
    assert_eq!(s.notifier.take(), [next]);
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
