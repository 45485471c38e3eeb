//! Webhook endpoints and their deliveries.

use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps};

on_both_apps!(
    an_endpoint_is_made_changed_and_deleted,
    the_secret_is_shown_twice_in_its_life,
    what_is_not_valid_is_told,
    private_addresses_are_refused,
    a_delivery_can_be_tried_again,
    events_are_listed,
);

async fn create(t: &Tenant<'_>, url: &str) -> Reply {
    t.post("/webhooks", json!({ "url": url, "events": ["brand.created", "post.failed"] })).await
}

async fn an_endpoint_is_made_changed_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let made = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", made["id"]);
    assert_eq!((&made["is_active"], &made["disabled_reason"]), (&json!(true), &Value::Null));
    let changed = t.put(&path, json!({ "events": ["post.failed"], "is_active": false })).await.data(200);
    assert_eq!((&changed["events"], &changed["url"]), (&json!(["post.failed"]), &json!("https://8.8.8.8/hook")));
    assert_eq!(t.get(&path).await.data(200), changed);
    assert_eq!(t.get("/webhooks").await.data(200), json!([changed]));
    t.delete(&path).await.expect(204);
    t.get(&path).await.refused(404, "not_found");
}

async fn the_secret_is_shown_twice_in_its_life(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let made = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", made["id"]);
    let secret = made["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 46, "{secret}");
    for reply in [t.get(&path).await, t.get("/webhooks").await, t.put(&path, json!({ "is_active": true })).await] {
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
    }
    let rotated = t.request("POST", &format!("{path}/rotate-secret")).send().await.data(200);
    assert!(rotated["secret"].as_str().unwrap().starts_with("whsec_") && rotated["secret"] != made["secret"]);
}

async fn what_is_not_valid_is_told(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "url": 5, "events": ["nope", 5], "description": 5, "is_active": "yes" });
    let wrong = ["description", "events.0", "events.1", "is_active", "url"];
    assert_eq!(t.post("/webhooks", body).await.invalid(), wrong);
    assert_eq!(t.post("/webhooks", json!({ "url": "https://8.8.8.8/", "events": [] })).await.invalid(), ["events"]);
}

async fn private_addresses_are_refused(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let made = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", made["id"]);
    for url in [
        "nope",
        "http://example.org/",
        "https://127.0.0.1/",
        "https://10.0.0.1/",
        "https://169.254.169.254/latest",
        "https://[::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://0x7f.1/",
        "https://localhost/",
    ] {
        create(&t, url).await.refused(422, "invalid_webhook_url");
        t.put(&path, json!({ "url": url })).await.refused(422, "invalid_webhook_url");
    }
    assert_eq!(t.get("/webhooks").await.data(200).as_array().unwrap().len(), 1);
}

async fn a_delivery_can_be_tried_again(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let hook = create(&t, "https://8.8.8.8/hook").await.data(201)["id"].clone();
    t.post("/brands", json!({ "name": "Told" })).await.expect(201);
    let path = format!("/webhooks/{hook}/deliveries");
    let delivery = t.get(&path).await.data(200)[0].take();
    assert_eq!((&delivery["status"], &delivery["max_attempts"]), (&json!("pending"), &json!(8)));
    let retry = format!("{path}/{}/retry", delivery["id"]);
    let again = t.request("POST", &retry).send().await.data(200);
    assert_eq!((&again["id"], &again["max_attempts"]), (&delivery["id"], &json!(9)));
    assert_eq!(app.number("SELECT count(*) FROM jobs").await, 1);
    t.put(&format!("/webhooks/{hook}"), json!({ "is_active": false })).await.expect(200);
    t.request("POST", &retry).send().await.refused(409, "webhook_inactive");
    let other = create(&t, "https://8.8.4.4/hook").await.data(201)["id"].clone();
    let stray = format!("/webhooks/{other}/deliveries/{}/retry", delivery["id"]);
    t.request("POST", &stray).send().await.refused(404, "not_found");
}

async fn events_are_listed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let events = t.get("/webhook-events").await.data(200);
    assert_eq!(events.as_array().unwrap().len(), 12);
    assert!(events[0]["name"].is_string() && events[0]["description"].is_string() && events[0]["sample"].is_object());
}
