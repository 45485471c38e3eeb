//! Endpoints that fail, hang or recover: how many worker slots they use, and that the other endpoints are unaffected.

use std::sync::Arc;
use std::time::Duration;

use crier_config::Concurrency;
use crier_domain::circuit::{MAX_OPEN_ATTEMPTS, OPENS_AT};
use crier_domain::event::EventName;
use crier_domain::job::JobKind;
use crier_domain::webhook::{DeliveryStatus, Webhook};
use crier_queue::memory::MemoryNotifier;
use crier_store::jobs::{dispatch, operate};
use crier_store::{Store, events, webhooks};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::webhooks::{Receiver, advance_to, attempt, emit_event, endpoint_with_delivery, replay};
use crate::support::client::until;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::cipher;

worker_on_both!(
    failures_open_the_circuit_and_a_success_closes_it,
    a_single_delivery_keeps_its_retry_schedule,
    a_manual_replay_bypasses_an_open_circuit,
    reenabling_an_endpoint_closes_its_circuit,
    the_backlog_of_a_disabled_endpoint_fails_immediately,
    hanging_endpoints_release_their_slots,
);

/// Returns the number of places of the endpoint's lane. `None`: the lane is not narrowed.
async fn places(w: &TestWorker, webhook: &Webhook) -> Option<i64> {
    let lane = format!("endpoint:{}", webhook.id);
    operate::lane(&mut w.conn().await, &lane, w.clock.now()).await.unwrap().places
}

async fn waiting(w: &TestWorker) -> i64 {
    w.count_rows("jobs WHERE state = 'ready' AND waiting").await
}

const BACKLOG: i64 = 40;

/// Creates an endpoint with a backlog whose failures have opened its circuit.
async fn open_circuit(w: &TestWorker) -> (Receiver, Webhook) {
    let (receiver, webhook, _) = endpoint_with_delivery(w).await;
    for _ in 1..BACKLOG {
        emit_event(w).await;
    }
    receiver.respond_with_statuses(std::iter::repeat_n(500, usize::try_from(OPENS_AT).unwrap()));
    for id in w.s.notifier.take() {
        w.engine.run(id).await;
    }
    assert_eq!(places(w, &webhook).await, Some(MAX_OPEN_ATTEMPTS));
    (receiver, webhook)
}

async fn failures_open_the_circuit_and_a_success_closes_it(w: TestWorker) {
    let (receiver, webhook) = open_circuit(&w).await;
    let failed = usize::try_from(OPENS_AT).unwrap();
    assert_eq!(receiver.requests().await.len(), failed, "nothing is sent while the circuit is open");
    assert_eq!(waiting(&w).await, BACKLOG - i64::from(OPENS_AT));
    w.run_jobs().await;
    assert_eq!(receiver.requests().await.len(), failed, "the pause has not ended");
    assert_eq!(w.sum("attempts", "webhook_deliveries").await, i64::from(OPENS_AT));
    // The pause grows with each failure, and only a few attempts follow it.
    receiver.respond_with_statuses(std::iter::repeat_n(500, 4));
    w.advance(1);
    w.scheduler.tick().await.unwrap();
    let notified = w.s.notifier.take();
    assert_eq!(notified.len(), usize::try_from(MAX_OPEN_ATTEMPTS).unwrap());
    for id in notified {
        w.engine.run(id).await;
    }
    let requests = receiver.requests().await.len();
    assert_eq!(
        (requests, places(&w, &webhook).await),
        (failed + 1, Some(MAX_OPEN_ATTEMPTS)),
        "the first failure pauses it again"
    );
    // The endpoint recovers: the next attempt releases the other deliveries, and failed ones are retried on schedule.
    receiver.clear_responses();
    w.advance(30);
    w.run_jobs().await;
    assert_eq!(places(&w, &webhook).await, None);
    w.advance(3_600);
    w.run_jobs().await;
    let done = "webhook_deliveries WHERE status = 'succeeded' AND attempts <= 2";
    assert_eq!((w.count_rows(done).await, waiting(&w).await), (BACKLOG, 0));
    let lanes = (w.count_rows("narrow_lanes").await, w.count_rows("paused_lanes").await);
    assert_eq!(lanes, (0, 0), "no lane stays narrowed or paused");
}

/// Invariant: an endpoint with few deliveries keeps the documented retry times. Eight failures do not open the circuit.
async fn a_single_delivery_keeps_its_retry_schedule(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses([500; 8]);
    for _ in 0..7 {
        attempt(&w).await;
        advance_to(&w, w.delivery(id).await.next_attempt_at.unwrap()).await;
    }
    attempt(&w).await;
    assert_eq!((w.delivery(id).await.status, places(&w, &webhook).await), (DeliveryStatus::Failed, None));
}

async fn a_manual_replay_bypasses_an_open_circuit(w: TestWorker) {
    let (receiver, webhook) = open_circuit(&w).await;
    let last = w.newest_delivery().await;
    replay(&w, &webhook, last).await;
    assert!(w.engine.run(w.notified_job()).await);
    assert_eq!(w.delivery(last).await.status, DeliveryStatus::Succeeded);
    assert_eq!(receiver.requests().await.len(), usize::try_from(OPENS_AT).unwrap() + 1);
    assert_eq!(places(&w, &webhook).await, None, "and its success closes the circuit");
}

async fn reenabling_an_endpoint_closes_its_circuit(w: TestWorker) {
    let (_receiver, webhook) = open_circuit(&w).await;
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    assert_eq!(places(&w, &webhook).await, None);
    w.run_jobs().await;
    assert_eq!(w.count_rows("jobs WHERE state = 'ready'").await, 0, "waiting deliveries have failed");
    w.write(async |tx| webhooks::update(tx, &webhook).await).await;
    let id = emit_event(&w).await;
    w.run_jobs().await;
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Succeeded);
}

async fn the_backlog_of_a_disabled_endpoint_fails_immediately(w: TestWorker) {
    let (receiver, webhook) = open_circuit(&w).await;
    receiver.respond_with_statuses([410]);
    w.advance(1);
    w.run_jobs().await;
    assert_eq!(
        w.count_rows("webhook_deliveries WHERE status = 'failed'").await,
        BACKLOG - i64::from(OPENS_AT),
        "all except those that wait for their next attempt"
    );
    assert_eq!(places(&w, &webhook).await, None);
    assert!(!webhooks::find(&mut w.conn().await, w.world.user, webhook.id).await.unwrap().unwrap().is_active);
}

/// Two endpoints accept connections and never respond, with more deliveries each than this worker has slots: a third
/// endpoint still receives its events.
async fn hanging_endpoints_release_their_slots(w: TestWorker) {
    w.leaves_jobs();
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", silent.local_addr().unwrap());
    for _ in 0..2 {
        w.listen_at(&url).await;
    }
    let notifier = Arc::new(MemoryNotifier::default());
    let store = Store::new(w.db().clone(), w.clock.clone(), cipher(), notifier.clone());
    let stop = CancellationToken::new();
    let engine = w.engine_for(store.clone(), &[JobKind::DeliverWebhook]);
    let worker =
        tokio::spawn(crier_worker::run(engine.clone(), notifier, Concurrency::each(4), Duration::ZERO, stop.clone()));
    let emit = async || {
        let mut tx = store.begin().await.unwrap();
        let data = serde_json::json!({});
        events::emit(&mut tx, w.world.brand, EventName::PostPublished, &data, None).await.unwrap();
        tx.commit().await.unwrap();
    };
    for _ in 0..6 {
        emit().await;
    }
    let all_hang = || async {
        // Renotifies like the scheduler: the database may have been too busy for a claim.
        let mut tx = store.begin().await.unwrap();
        dispatch::renotify_stale(&mut tx, JobKind::DeliverWebhook, w.later(1), 100).await.unwrap();
        tx.commit().await.unwrap();
        (engine.held().len() == 12).then_some(())
    };
    until("all hang", all_hang).await;
    let live = Receiver::start().await;
    w.listen_at(&live.url()).await;
    emit().await;
    until("the third endpoint is called", || async { (live.requests().await.len() == 1).then_some(()) }).await;
    stop.cancel();
    worker.await.unwrap();
}
