//! `POST /webhooks/{webhook}/test`: sends a sample event to one endpoint.

use crier_domain::event::EventName;
use serde_json::{Value, json};

use super::{open_jobs, subscribe};
use crate::support::app::{Tenant, on_one_app};
use crate::support::request::assert_fields;

on_one_app!("unlimited" =>
    every_event_has_a_sample_delivery,
    a_sample_ignores_the_endpoint_subscriptions,
    a_repeated_key_sends_one_sample,
    unknown_events_are_rejected,
    samples_to_an_inactive_endpoint_are_rejected,
);

async fn every_event_has_a_sample_delivery(t: Tenant<'_>) {
    let hook = subscribe(&t, &["brand.created"]).await;
    let events = t.get("/webhook-events").await.data(200);
    for event in events.as_array().unwrap() {
        let reply = t.post(&format!("{hook}/test"), json!({ "event": event["name"] })).await;
        let created = reply.data(202);
        let path = format!("{hook}/deliveries/{}", created["id"]);
        assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
        assert_fields(&created, json!({ "event": event["name"], "status": "pending", "max_attempts": 8 }));
        assert_fields(&created, json!({ "payload": event["sample"] }));
        assert_eq!(t.get(&path).await.data(200), created);
        assert_eq!(open_jobs(&t, created["id"].as_i64().unwrap()).await, 1);
        assert_eq!(t.app.newest_job().await.trace.as_deref(), reply.header("x-request-id"));
        assert_eq!(t.app.notifier.take().len(), 1, "it is sent now");
    }
    assert_eq!(t.app.count_rows("events WHERE brand_id IS NULL").await, 17);
}

async fn a_sample_ignores_the_endpoint_subscriptions(t: Tenant<'_>) {
    let (one, other) = (subscribe(&t, &["brand.created"]).await, subscribe(&t, &["post.failed"]).await);
    t.post(&format!("{one}/test"), json!({ "event": "post.failed" })).await.expect(202);
    let total = async |hook: &str| t.get(&format!("{hook}/deliveries")).await.expect(200)["meta"]["total"].clone();
    assert_eq!((total(&one).await, total(&other).await), (json!(1), json!(0)));
    assert_eq!(t.get(&one).await.data(200)["events"], json!(["brand.created"]), "its subscriptions are unchanged");
}

async fn a_repeated_key_sends_one_sample(t: Tenant<'_>) {
    let hook = subscribe(&t, &["brand.created"]).await;
    let send = async |key: &str| {
        t.request("POST", &format!("{hook}/test"))
            .idempotency_key(key)
            .json(&json!({ "event": "post.failed" }))
            .send()
            .await
    };
    let first = send("once").await;
    let again = send("once").await;
    assert!(again.replayed() && first.body == again.body && first.header("location") == again.header("location"));
    assert_eq!(t.get(&format!("{hook}/deliveries")).await.expect(200)["meta"]["total"], 1);
    t.request("POST", &format!("{hook}/test"))
        .json(&json!({ "event": "post.failed" }))
        .without("idempotency-key")
        .send()
        .await
        .expect_error(400, "idempotency_key_required");
    for table in ["events", "webhook_deliveries", "jobs"] {
        assert_eq!(t.app.count_rows(table).await, 1, "{table}");
    }
}

async fn unknown_events_are_rejected(t: Tenant<'_>) {
    let hook = subscribe(&t, &["brand.created"]).await;
    let test = format!("{hook}/test");
    t.put(&hook, json!({ "is_active": false })).await.expect(200);
    for event in [json!("nope"), json!(""), json!(5), json!(["post.failed"]), Value::Null] {
        assert_eq!(t.post(&test, json!({ "event": event })).await.invalid_fields(), ["event"], "{event}");
    }
    assert_eq!(t.post(&test, json!({})).await.invalid_fields(), ["event"]);
    t.request("POST", &test).send().await.expect_error(400, "invalid_json");
    t.post("/webhooks/999999/test", json!({ "event": "nope" })).await.expect_error(404, "not_found");
    assert_eq!(t.app.count_rows("events").await, 0);
}

async fn samples_to_an_inactive_endpoint_are_rejected(t: Tenant<'_>) {
    let hook = subscribe(&t, &[EventName::BrandCreated.as_str()]).await;
    t.put(&hook, json!({ "is_active": false })).await.expect(200);
    let body = json!({ "event": "brand.created" });
    t.post(&format!("{hook}/test"), body.clone()).await.expect_error(409, "webhook_inactive");
    assert_eq!(t.app.count_rows("events").await, 0);
    t.put(&hook, json!({ "is_active": true })).await.expect(200);
    t.post(&format!("{hook}/test"), body).await.expect(202);
}
