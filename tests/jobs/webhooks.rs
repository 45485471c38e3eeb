//! `deliver_webhook`: attempts, their schedule, and the effect of a response on the endpoint.

use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Lane, NewJob, Outcome};
use crier_domain::webhook::{DeliveryStatus, Webhook};
use crier_domain::webhook_signature::verify;
use crier_store::{deliveries, events, jobs, webhooks};
use crier_worker::engine::Run;
use secrecy::SecretString;
use serde_json::json;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    an_event_is_delivered_and_signed,
    a_failure_is_retried_with_the_same_id_and_body,
    eight_attempts_are_made_with_documented_delays,
    a_retry_after_header_is_respected,
    a_410_disables_the_endpoint,
    a_410_of_an_earlier_url_does_not_disable_the_endpoint,
    five_days_without_a_success_disable_the_endpoint,
    a_success_clears_the_failure_record,
    an_inactive_endpoint_receives_nothing,
    deleting_an_endpoint_cancels_its_deliveries,
    a_delivery_of_a_deleted_endpoint_is_deleted,
    a_replay_is_sent_immediately,
    a_replay_during_an_attempt_is_not_lost,
    a_replay_while_an_inactive_endpoint_fails_is_not_lost,
    endpoint_changes_apply_to_the_next_attempt,
    all_endpoints_receive_the_same_event_id,
    a_blocked_address_is_recorded,
    a_crash_redelivers_with_the_same_id,
    concurrent_runs_of_one_delivery_both_send_it,
    a_backlog_does_not_delay_other_endpoints,
);

/// Sends the scripted responses, then 200.
#[derive(Clone, Default)]
struct Script {
    responses: Arc<Mutex<std::collections::VecDeque<ResponseTemplate>>>,
}

impl Respond for Script {
    fn respond(&self, _request: &Request) -> ResponseTemplate {
        self.responses.lock().unwrap().pop_front().unwrap_or_else(|| ResponseTemplate::new(200))
    }
}

pub(super) struct Receiver {
    server: MockServer,
    script: Script,
}

impl Receiver {
    pub(super) async fn start() -> Self {
        let (server, script) = (MockServer::start().await, Script::default());
        Mock::given(any()).respond_with(script.clone()).mount(&server).await;
        Self { server, script }
    }

    pub(super) fn respond_with_statuses(&self, statuses: impl IntoIterator<Item = u16>) {
        self.respond_with(statuses.into_iter().map(ResponseTemplate::new));
    }

    pub(super) fn respond_with(&self, responses: impl IntoIterator<Item = ResponseTemplate>) {
        self.script.responses.lock().unwrap().extend(responses);
    }

    pub(super) fn clear_responses(&self) {
        self.script.responses.lock().unwrap().clear();
    }

    pub(super) async fn requests(&self) -> Vec<Request> {
        self.server.received_requests().await.unwrap()
    }

    pub(super) fn url(&self) -> String {
        format!("{}/hook", self.server.uri())
    }
}

fn header(request: &Request, name: &str) -> String {
    request.headers.get(name).unwrap().to_str().unwrap().to_owned()
}

/// Creates an endpoint with one pending delivery.
pub(super) async fn endpoint_with_delivery(w: &TestWorker) -> (Receiver, Webhook, i64) {
    let receiver = Receiver::start().await;
    let webhook = w.listen_at(&receiver.url()).await;
    let delivery = emit_event(w).await;
    (receiver, webhook, delivery)
}

/// Emits an event, and returns the newest delivery.
pub(super) async fn emit_event(w: &TestWorker) -> i64 {
    let data = json!({ "post_id": 1, "text": "naïve ☃" });
    w.write(async |tx| events::emit(tx, w.world.brand, EventName::PostPublished, &data, Some("request-1")).await).await;
    w.newest_delivery().await
}

/// Runs the due attempt, and asserts that no other job is due.
pub(super) async fn attempt(w: &TestWorker) {
    w.scheduler.tick().await.unwrap();
    let id = w.notified_job();
    assert!(w.engine.run(id).await);
}

pub(super) async fn advance_to(w: &TestWorker, at: DateTime<Utc>) {
    w.clock.advance(at - w.clock.now());
}

async fn an_event_is_delivered_and_signed(w: TestWorker) {
    let (receiver, _, id) = endpoint_with_delivery(&w).await;
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Succeeded, Some(200)));
    assert_eq!((delivery.attempts, delivery.max_attempts, delivery.error), (1, 8, None));
    assert_eq!((delivery.next_attempt_at, delivery.last_attempt_at), (None, Some(w.clock.now())));
    let request = receiver.requests().await.remove(0);
    assert_eq!(request.body, delivery.payload.as_bytes(), "the stored payload is what was sent");
    assert_eq!(header(&request, "X-Webhook-Delivery-Id"), id.to_string());
    assert_eq!(header(&request, "X-Webhook-Event"), "post.published");
    let now = w.clock.now().timestamp();
    let signature = header(&request, "X-Webhook-Signature");
    let secret = SecretString::from("whsec_of_the_tests");
    let tolerance = std::time::Duration::ZERO;
    verify(&secret, &signature, &request.body, now, tolerance).unwrap();
    verify(&secret, &signature, b"{}", now, tolerance).unwrap_err();
    assert_eq!(w.count_rows("webhook_attempts WHERE outcome = '2xx'").await, 1);
    assert_eq!(w.count_rows("jobs WHERE state <> 'done'").await, 0);
}

async fn a_failure_is_retried_with_the_same_id_and_body(w: TestWorker) {
    let (receiver, _, id) = endpoint_with_delivery(&w).await;
    receiver.respond_with([ResponseTemplate::new(500).set_body_string("out of order")]);
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Retrying, 1));
    assert_eq!((delivery.response_code, delivery.response_body.as_deref()), (Some(500), Some("out of order")));
    assert!(delivery.error.unwrap().contains("500"));
    let next = delivery.next_attempt_at.unwrap();
    assert!((4_000..=6_000).contains(&(next - w.clock.now()).num_milliseconds()));
    advance_to(&w, next).await;
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.error), (DeliveryStatus::Succeeded, 2, None));
    let requests = receiver.requests().await;
    assert_eq!(requests[0].body, requests[1].body);
    for name in ["X-Webhook-Delivery-Id", "X-Webhook-Event-Id"] {
        assert_eq!(header(&requests[0], name), header(&requests[1], name));
    }
    assert_ne!(header(&requests[0], "X-Webhook-Timestamp"), header(&requests[1], "X-Webhook-Timestamp"));
}

async fn eight_attempts_are_made_with_documented_delays(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses([500, 301, 404, 503, 500, 500, 500, 500]);
    for (number, seconds) in (1..).zip([5, 300, 1_800, 7_200, 18_000, 36_000, 36_000]) {
        attempt(&w).await;
        let delivery = w.delivery(id).await;
        assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Retrying, number));
        let next = delivery.next_attempt_at.unwrap();
        let milliseconds = (next - w.clock.now()).num_milliseconds();
        assert!((seconds * 800..=seconds * 1_200).contains(&milliseconds), "{milliseconds} ms after {number}");
        advance_to(&w, next).await;
    }
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.next_attempt_at), (DeliveryStatus::Failed, 8, None));
    assert_eq!(receiver.requests().await.len(), 8);
    assert_eq!(w.count_rows("jobs WHERE state <> 'done'").await, 0);
    assert!(webhooks::find(&mut w.conn().await, w.world.user, webhook.id).await.unwrap().unwrap().is_active);
}

async fn a_retry_after_header_is_respected(w: TestWorker) {
    let (receiver, _, id) = endpoint_with_delivery(&w).await;
    let response = |status, after: &str| ResponseTemplate::new(status).insert_header("Retry-After", after);
    receiver.respond_with([response(429, "1234"), response(503, "999999"), response(500, "1234")]);
    for expected in [1_234..=1_235, 86_400..=86_400, 1_400..=2_200] {
        attempt(&w).await;
        let next = w.delivery(id).await.next_attempt_at.unwrap();
        let seconds = (next - w.clock.now()).num_seconds();
        assert!(expected.contains(&seconds), "{seconds} s, not {expected:?}");
        advance_to(&w, next).await;
    }
}

async fn disabled_reason(w: &TestWorker, webhook: &Webhook) -> Option<String> {
    let found = webhooks::find(&mut w.conn().await, w.world.user, webhook.id).await.unwrap().unwrap();
    assert_eq!(found.is_active, found.disabled_reason.is_none());
    found.disabled_reason
}

async fn a_410_disables_the_endpoint(w: TestWorker) {
    let (receiver, webhook, first) = endpoint_with_delivery(&w).await;
    let second = emit_event(&w).await;
    receiver.respond_with_statuses([410]);
    w.run_jobs().await;
    assert!(disabled_reason(&w, &webhook).await.unwrap().contains("410"));
    let (first, second) = (w.delivery(first).await, w.delivery(second).await);
    assert_eq!((first.status, first.response_code, first.next_attempt_at), (DeliveryStatus::Failed, Some(410), None));
    assert_eq!((second.status, second.attempts), (DeliveryStatus::Failed, 0), "waiting deliveries have failed");
    assert!(second.error.unwrap().contains("inactive"));
    assert_eq!(receiver.requests().await.len(), 1);
    emit_event(&w).await;
    assert_eq!(w.count_rows("webhook_deliveries").await, 2, "it receives no more events");
}

/// The owner moves the endpoint, and removes the earlier receiver, while an attempt is in progress.
async fn a_410_of_an_earlier_url_does_not_disable_the_endpoint(w: TestWorker) {
    let (first, webhook, id) = endpoint_with_delivery(&w).await;
    let second = Receiver::start().await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    first.respond_with_statuses([410]);
    let result = w.run_claimed(&claimed).await;
    w.advance(1);
    w.write(async |tx| webhooks::update(tx, &Webhook { url: second.url(), ..webhook.clone() }).await).await;
    assert!(w.settle_result(&claimed, &result).await);
    assert_eq!(disabled_reason(&w, &webhook).await, None);
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Retrying, Some(410)));
    advance_to(&w, delivery.next_attempt_at.unwrap()).await;
    attempt(&w).await;
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Succeeded);
    assert_eq!((first.requests().await.len(), second.requests().await.len()), (1, 1));
}

async fn five_days_without_a_success_disable_the_endpoint(w: TestWorker) {
    let (receiver, webhook, _) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses(std::iter::repeat_n(500, 40));
    let started_at = w.clock.now();
    attempt(&w).await;
    while w.clock.now() - started_at < TimeDelta::days(5) - TimeDelta::hours(12) {
        w.clock.advance(TimeDelta::hours(11));
        w.run_jobs().await;
        assert_eq!(disabled_reason(&w, &webhook).await, None, "not yet");
    }
    w.clock.advance(started_at + TimeDelta::days(5) - w.clock.now());
    let last = emit_event(&w).await;
    w.run_jobs().await;
    assert!(disabled_reason(&w, &webhook).await.unwrap().contains("5 days"));
    assert_eq!((w.delivery(last).await.status, w.delivery(last).await.attempts), (DeliveryStatus::Failed, 1));
}

async fn a_success_clears_the_failure_record(w: TestWorker) {
    let (receiver, webhook, _) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses([500, 200, 500]);
    attempt(&w).await;
    w.clock.advance(TimeDelta::days(4));
    w.run_jobs().await;
    w.clock.advance(TimeDelta::days(4));
    emit_event(&w).await;
    w.run_jobs().await;
    assert_eq!((receiver.requests().await.len(), disabled_reason(&w, &webhook).await), (3, None));
}

async fn an_inactive_endpoint_receives_nothing(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    w.run_jobs().await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.next_attempt_at), (DeliveryStatus::Failed, 0, None));
    assert!(delivery.error.unwrap().contains("inactive") && receiver.requests().await.is_empty());
}

async fn deleting_an_endpoint_cancels_its_deliveries(w: TestWorker) {
    let (receiver, webhook, _) = endpoint_with_delivery(&w).await;
    assert!(w.write(async |tx| webhooks::delete(tx, w.world.user, webhook.id).await).await);
    w.run_jobs().await;
    assert_eq!(w.count_rows("jobs WHERE state = 'cancelled'").await, 1);
    assert!(receiver.requests().await.is_empty());
}

/// The event was emitted while the endpoint was deleted.
async fn a_delivery_of_a_deleted_endpoint_is_deleted(w: TestWorker) {
    let (receiver, _, _) = endpoint_with_delivery(&w).await;
    let delete = "UPDATE webhook_deliveries SET webhook_id = 0";
    w.sql(match w.is_postgres() {
        true => delete.to_owned(),
        false => format!("PRAGMA foreign_keys = OFF; {delete}; PRAGMA foreign_keys = ON"),
    })
    .await;
    w.run_jobs().await;
    assert_eq!(w.count_rows("jobs WHERE state = 'cancelled'").await, 1);
    assert_eq!(w.count_rows("webhook_deliveries").await, 0);
    assert!(receiver.requests().await.is_empty());
}

/// Retries a delivery as the API does.
pub(super) async fn replay(w: &TestWorker, webhook: &Webhook, id: i64) {
    let job = NewJob::new(JobKind::DeliverWebhook, id, w.clock.now()).lane(Lane::ManualDelivery(webhook.id));
    w.write(async |tx| {
        deliveries::replay(tx, id).await?;
        jobs::run_now(tx, &job).await
    })
    .await;
}

async fn a_replay_is_sent_immediately(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    receiver.respond_with_statuses([500, 500]);
    attempt(&w).await;
    // While the delivery waits for its next attempt, and after it has finished.
    replay(&w, &webhook, id).await;
    attempt(&w).await;
    assert_eq!((w.delivery(id).await.attempts, w.delivery(id).await.max_attempts), (2, 9));
    replay(&w, &webhook, id).await;
    attempt(&w).await;
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Succeeded);
    replay(&w, &webhook, id).await;
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Pending);
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.max_attempts), (DeliveryStatus::Succeeded, 4, 11));
    let ids: std::collections::BTreeSet<_> =
        receiver.requests().await.iter().map(|r| header(r, "X-Webhook-Delivery-Id")).collect();
    assert_eq!(ids.len(), 1);
}

async fn a_replay_during_an_attempt_is_not_lost(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    // The last allowed attempt.
    w.sql("UPDATE webhook_deliveries SET attempts = 7").await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    receiver.respond_with_statuses([500]);
    let result = w.run_claimed(&claimed).await;
    replay(&w, &webhook, id).await;
    assert!(w.settle_result(&claimed, &result).await);
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.max_attempts), (DeliveryStatus::Retrying, 8, 9));
    attempt(&w).await;
    assert_eq!((w.delivery(id).await.status, w.delivery(id).await.attempts), (DeliveryStatus::Succeeded, 9));
}

/// The owner enables the endpoint and retries the delivery after the run has found the endpoint inactive, and before
/// the result of the run is stored.
async fn a_replay_while_an_inactive_endpoint_fails_is_not_lost(w: TestWorker) {
    let (receiver, webhook, id) = endpoint_with_delivery(&w).await;
    let claimed = w.claim(&[w.notified_job()], "w").await.remove(0);
    w.write(async |tx| webhooks::update(tx, &Webhook { is_active: false, ..webhook.clone() }).await).await;
    let result = w.run_claimed(&claimed).await;
    w.write(async |tx| webhooks::update(tx, &webhook).await).await;
    replay(&w, &webhook, id).await;
    assert!(w.settle_result(&claimed, &result).await);
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Pending);
    attempt(&w).await;
    assert_eq!((w.delivery(id).await.status, w.delivery(id).await.attempts), (DeliveryStatus::Succeeded, 1));
    assert_eq!(receiver.requests().await.len(), 1);
}

async fn endpoint_changes_apply_to_the_next_attempt(w: TestWorker) {
    let (first, webhook, id) = endpoint_with_delivery(&w).await;
    let second = Receiver::start().await;
    first.respond_with_statuses([500]);
    attempt(&w).await;
    let secret = SecretString::from("whsec_another_one");
    w.write(async |tx| {
        webhooks::update(tx, &Webhook { url: second.url(), ..webhook.clone() }).await?;
        webhooks::set_secret(tx, webhook.id, &secret).await
    })
    .await;
    advance_to(&w, w.delivery(id).await.next_attempt_at.unwrap()).await;
    attempt(&w).await;
    let request = second.requests().await.remove(0);
    let signature = header(&request, "X-Webhook-Signature");
    verify(&secret, &signature, &request.body, w.clock.now().timestamp(), std::time::Duration::ZERO).unwrap();
    assert_eq!(first.requests().await.len(), 1);
}

async fn all_endpoints_receive_the_same_event_id(w: TestWorker) {
    let (first, _, _) = endpoint_with_delivery(&w).await;
    w.run_jobs().await;
    let second = Receiver::start().await;
    w.listen_at(&second.url()).await;
    emit_event(&w).await;
    w.run_jobs().await;
    let (first, second) = (first.requests().await, second.requests().await);
    assert_eq!((first.len(), second.len()), (2, 1));
    assert_eq!(header(&first[1], "X-Webhook-Event-Id"), header(&second[0], "X-Webhook-Event-Id"));
    assert_ne!(header(&first[1], "X-Webhook-Delivery-Id"), header(&second[0], "X-Webhook-Delivery-Id"));
    assert_ne!(header(&first[0], "X-Webhook-Event-Id"), header(&first[1], "X-Webhook-Event-Id"));
}

async fn a_blocked_address_is_recorded(w: TestWorker) {
    w.listen_at("https://10.0.0.1/hook").await;
    let id = emit_event(&w).await;
    attempt(&w).await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.response_code), (DeliveryStatus::Retrying, None));
    assert!(delivery.error.is_some());
    assert_eq!(w.count_rows("webhook_attempts WHERE outcome = 'blocked'").await, 1);
}

async fn a_crash_redelivers_with_the_same_id(w: TestWorker) {
    let (receiver, _, id) = endpoint_with_delivery(&w).await;
    // The worker dies while it waits for the response.
    receiver.respond_with([ResponseTemplate::new(200).set_delay(std::time::Duration::from_secs(3_600))]);
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    w.poll_until(async || receiver.requests().await.len() == 1).await;
    doomed.kill().await;
    w.advance(LEASE_EXPIRY_SECONDS);
    w.run_jobs().await;
    let requests = receiver.requests().await;
    assert_eq!(requests.len(), 2);
    assert_eq!(header(&requests[0], "X-Webhook-Delivery-Id"), header(&requests[1], "X-Webhook-Delivery-Id"));
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts), (DeliveryStatus::Succeeded, 1));
}

/// A run that lost its lease may overlap the rescued run. The fence decides which result is stored.
async fn concurrent_runs_of_one_delivery_both_send_it(w: TestWorker) {
    w.leaves_jobs();
    let (receiver, _, _) = endpoint_with_delivery(&w).await;
    let run = Run::new(w.claim(&[w.notified_job()], "w").await.remove(0));
    let handler = w.handler(JobKind::DeliverWebhook);
    let (one, other) = tokio::join!(handler.run(&run), handler.run(&run));
    for result in [one, other] {
        let (tx, outcome) = w.write_result(&run.job, &result).await;
        tx.rollback().await.unwrap();
        assert_eq!(outcome, Outcome::Done);
    }
    assert_eq!(receiver.requests().await.len(), 2);
}

async fn a_backlog_does_not_delay_other_endpoints(w: TestWorker) {
    w.leaves_jobs();
    // An endpoint that never responds uses all places of its lane, and further deliveries wait for the lane.
    let (dead, _, _) = endpoint_with_delivery(&w).await;
    let cap = JobKind::DeliverWebhook.limits().lane_cap.unwrap();
    dead.respond_with((0..cap).map(|_| ResponseTemplate::new(200).set_delay(std::time::Duration::from_secs(3_600))));
    for _ in 0..cap + 9 {
        emit_event(&w).await;
    }
    let doomed = w.killable_worker().await;
    for id in w.s.notifier.take() {
        doomed.start(id);
    }
    w.poll_until(async || w.count_rows("jobs WHERE waiting").await == 10).await;
    assert_eq!(w.count_rows("jobs WHERE state = 'running'").await, cap);
    let live = Receiver::start().await;
    w.listen_at(&live.url()).await;
    let id = emit_event(&w).await;
    let job = w.newest_job_of(JobKind::DeliverWebhook, id).await;
    assert!(w.engine.run(job).await);
    assert_eq!((w.delivery(id).await.status, w.state(job).await), (DeliveryStatus::Succeeded, JobState::Done));
    doomed.kill().await;
}
