//! The recipients and payloads of events about posts: every subscribed member of the brand, and no other user.
//! `tests/api/webhooks/events.rs` covers the events of the API.

use crier_domain::access::Role;
use crier_domain::event::EventName;
use crier_store::{PageRequest, brands, deliveries, webhooks};

use crate::support::fake_platform::{PublishStep, permanent};
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    post_events_are_sent_only_to_brand_members,
    every_result_of_a_target_emits_an_event,
    samples_are_delivered_and_retried_like_events,
);

const POSTS: [EventName; 2] = [EventName::PostPublished, EventName::PostFailed];

/// Creates an endpoint of a user. These tests do not call it.
async fn create_endpoint(w: &TestWorker, user: i64, events: &[EventName]) -> i64 {
    w.webhook(user, events).await.id
}

/// Returns the payloads of an endpoint's deliveries, exactly as sent, oldest first.
async fn payloads(w: &TestWorker, webhook: i64) -> Vec<String> {
    let page = PageRequest { page: 1, per_page: 100 };
    let found = deliveries::list(&mut w.conn().await, webhook, Default::default(), page).await.unwrap();
    found.rows.into_iter().rev().map(|delivery| delivery.payload).collect()
}

/// Runs the due publish job, without the deliveries that it causes.
async fn publish(w: &TestWorker, target: i64) {
    let id = w.notified_job_of_target(target).await;
    assert!(w.engine.run(id).await);
    w.s.notifier.take();
}

fn published(w: &TestWorker, post: i64, account: i64, external_id: &str) -> String {
    format!(
        r#"{{"event":"post.published","data":{{"post_id":{post},"brand_id":{},"social_account_id":{account},"platform":"sandbox","external_id":"{external_id}","url":"https://fake.example/{external_id}"}}}}"#,
        w.world.brand
    )
}

fn failed(w: &TestWorker, post: i64, account: i64) -> String {
    format!(
        r#"{{"event":"post.failed","data":{{"post_id":{post},"brand_id":{},"social_account_id":{account},"platform":"sandbox","error":{{"code":"platform_rejected","message":"The fake rejects this."}}}}}}"#,
        w.world.brand
    )
}

async fn post_events_are_sent_only_to_brand_members(w: TestWorker) {
    let (workspace, brand) = (w.world.workspace, w.world.brand);
    let stranger = w.world_of("eve@example.com").await;
    let [editor, outsider, left] = ["bob@example.com", "carl@example.com", "dora@example.com"];
    let [editor, outsider, left] =
        [w.user(workspace, editor).await, w.user(workspace, outsider).await, w.user(workspace, left).await];
    // The outsider owns another brand in the same workspace.
    w.brand(workspace, outsider).await;
    w.member(brand, editor, Role::Editor).await;
    w.member(brand, left, Role::Admin).await;
    let all = [create_endpoint(&w, w.world.user, &POSTS).await, create_endpoint(&w, editor, &POSTS).await];
    let failures_only = create_endpoint(&w, w.world.user, &[EventName::PostFailed]).await;
    let unaffected = [
        create_endpoint(&w, outsider, &POSTS).await,
        create_endpoint(&w, stranger.user, &POSTS).await,
        create_endpoint(&w, left, &POSTS).await,
        create_endpoint(&w, editor, &[EventName::BrandCreated]).await,
    ];
    let disabled = create_endpoint(&w, editor, &POSTS).await;
    w.write(async |tx| webhooks::disable(tx, disabled, "off").await).await;
    w.write(async |tx| brands::remove_member(tx, brand, left).await).await;

    let second = w.another_account("second").await.id;
    w.fake.script_publishes([PublishStep::Publish, PublishStep::Reject(permanent())]);
    let (post, targets) = w.publish(&[w.account.id, second]).await;
    let notified: Vec<i64> = w.s.notifier.take();
    assert_eq!(notified.len(), targets.len());
    for id in notified {
        assert!(w.engine.run(id).await);
    }
    let expected = [published(&w, post, w.account.id, "post-1"), failed(&w, post, second)];
    for hook in all {
        assert_eq!(payloads(&w, hook).await, expected);
    }
    assert_eq!(payloads(&w, failures_only).await, expected[1..]);
    for hook in unaffected.into_iter().chain([disabled]) {
        assert!(payloads(&w, hook).await.is_empty(), "endpoint {hook}");
    }
    assert_eq!(w.count_rows("events").await, 2, "one for each target");
}

async fn every_result_of_a_target_emits_an_event(w: TestWorker) {
    let hook = create_endpoint(&w, w.world.user, &POSTS).await;
    w.fake.script_publishes([PublishStep::Reject(permanent()), PublishStep::Reject(permanent()), PublishStep::Publish]);
    let (post, target) = w.publish_one().await;
    publish(&w, target).await;
    for _ in 0..2 {
        w.publish_again(post).await;
        publish(&w, target).await;
    }
    let account = w.account.id;
    let rejected = failed(&w, post, account);
    assert_eq!(payloads(&w, hook).await, [rejected.clone(), rejected, published(&w, post, account, "post-1")]);
}

async fn samples_are_delivered_and_retried_like_events(w: TestWorker) {
    use crier_domain::webhook::DeliveryStatus;
    use crier_store::events;
    use wiremock::{Mock, MockServer, ResponseTemplate, matchers::any};

    let server = MockServer::start().await;
    let broken = Mock::given(any()).respond_with(ResponseTemplate::new(500)).up_to_n_times(1);
    broken.mount(&server).await;
    Mock::given(any()).respond_with(ResponseTemplate::new(204)).with_priority(9).mount(&server).await;
    let hook = w.listen_at(&server.uri()).await.id;
    let send = async |name| w.write(async |tx| events::emit_sample(tx, hook, name, Some("request-1")).await).await;
    let id = send(EventName::BrandCreated).await;
    assert!(w.engine.run(w.notified_job()).await);
    assert_eq!(w.delivery(id).await.status, DeliveryStatus::Retrying);
    w.clock.advance(w.delivery(id).await.next_attempt_at.unwrap() - w.clock.now());
    w.run_jobs().await;
    let delivery = w.delivery(id).await;
    assert_eq!((delivery.status, delivery.attempts, delivery.response_code), (DeliveryStatus::Succeeded, 2, Some(204)));
    let outcomes: Vec<_> = deliveries::attempts(&mut w.conn().await, id, 10).await.unwrap();
    let outcomes: Vec<_> = outcomes.iter().map(|a| (a.number, a.outcome.as_str(), a.response_code)).collect();
    assert_eq!(outcomes, [(1, "5xx", Some(500)), (2, "2xx", Some(204))]);
    for request in server.received_requests().await.unwrap() {
        assert_eq!(request.body, EventName::BrandCreated.sample().to_string().as_bytes());
        assert_eq!(request.headers["X-Webhook-Event"], "brand.created");
    }
}
