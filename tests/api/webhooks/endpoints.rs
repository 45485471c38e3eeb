//! Webhook endpoints: creation, reading, changes, deletion.

use crier_domain::circuit::Health;
use crier_store::{deliveries, webhooks};
use serde_json::{Value, json};

use super::{create, create_deliveries, ids, subscribe};
use crate::support::app::{Tenant, on_both_apps, on_one_app};

on_both_apps!("unlimited" =>
    an_endpoint_is_created_updated_and_deleted,
    a_replay_contains_the_secret,
    an_update_keeps_omitted_and_null_fields,
    reactivating_an_endpoint_resets_its_health,
    deleting_an_endpoint_deletes_its_deliveries,
    a_rejected_update_changes_nothing,
    events_are_listed,
);
on_one_app!("unlimited" =>
    the_secret_is_shown_on_creation_and_rotation_only,
    invalid_fields_are_reported,
    private_addresses_are_rejected,
    an_endpoint_has_the_documented_fields,
    field_length_limits_are_enforced,
);

async fn an_endpoint_is_created_updated_and_deleted(t: Tenant<'_>) {
    let created = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", created["id"]);
    assert_eq!((&created["is_active"], &created["disabled_reason"]), (&json!(true), &Value::Null));
    let changed = t.put(&path, json!({ "events": ["post.failed"], "is_active": false })).await.data(200);
    assert_eq!((&changed["events"], &changed["url"]), (&json!(["post.failed"]), &json!("https://8.8.8.8/hook")));
    assert_eq!(t.get(&path).await.data(200), changed);
    assert_eq!(t.get("/webhooks").await.data(200), json!([changed]));
    t.delete(&path).await.expect(204);
    t.get(&path).await.expect_error(404, "not_found");
}

async fn the_secret_is_shown_on_creation_and_rotation_only(t: Tenant<'_>) {
    let created = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", created["id"]);
    let secret = created["secret"].as_str().unwrap();
    assert!(secret.starts_with("whsec_") && secret.len() == 46, "{secret}");
    for reply in [t.get(&path).await, t.get("/webhooks").await, t.put(&path, json!({ "is_active": true })).await] {
        assert!(!String::from_utf8_lossy(&reply.body).contains("secret"));
    }
    let rotated = t.request("POST", &format!("{path}/rotate-secret")).send().await.data(200);
    assert!(rotated["secret"].as_str().unwrap().starts_with("whsec_") && rotated["secret"] != created["secret"]);
}

async fn invalid_fields_are_reported(t: Tenant<'_>) {
    let body = json!({ "url": 5, "events": ["nope", 5], "description": 5, "is_active": "yes" });
    let wrong = ["description", "events.0", "events.1", "is_active", "url"];
    assert_eq!(t.post("/webhooks", body).await.invalid_fields(), wrong);
    assert_eq!(
        t.post("/webhooks", json!({ "url": "https://8.8.8.8/", "events": [] })).await.invalid_fields(),
        ["events"]
    );
}

async fn private_addresses_are_rejected(t: Tenant<'_>) {
    let created = create(&t, "https://8.8.8.8/hook").await.data(201);
    let path = format!("/webhooks/{}", created["id"]);
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
        create(&t, url).await.expect_error(422, "invalid_webhook_url");
        t.put(&path, json!({ "url": url })).await.expect_error(422, "invalid_webhook_url");
    }
    assert_eq!(t.get("/webhooks").await.data(200).as_array().unwrap().len(), 1);
}

async fn an_endpoint_has_the_documented_fields(t: Tenant<'_>) {
    let reply = create(&t, "https://8.8.8.8/hook").await;
    let created = reply.data(201);
    let names = |record: &Value| record.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ");
    let fields = "id url events description is_active disabled_reason created_at updated_at";
    assert_eq!(names(&created), fields.replace("created_at", "secret created_at"));
    let path = format!("/webhooks/{}", created["id"]);
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    assert_eq!(names(&t.get(&path).await.data(200)), fields);
    assert_eq!(created["description"], Value::Null);
    let second = subscribe(&t, &["post.failed"]).await;
    let list = t.get("/webhooks").await.expect(200);
    assert_eq!(list.as_object().unwrap().len(), 1, "the list is not paginated");
    assert_eq!(format!("/webhooks/{}", ids(&list["data"])[0]), second, "newest first");
    assert_eq!(list["data"][1], t.get(&path).await.data(200));
}

/// A client that did not receive the response can get the secret only by a request with the same key.
async fn a_replay_contains_the_secret(t: Tenant<'_>) {
    let body = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    let create = async || t.request("POST", "/webhooks").idempotency_key("make").json(&body).send().await;
    let (created, again) = (create().await, create().await);
    assert!(again.replayed() && created.body == again.body && created.header("location") == again.header("location"));
    let path = format!("/webhooks/{}", created.data(201)["id"]);
    let rotate =
        async |key: &str| t.request("POST", &format!("{path}/rotate-secret")).idempotency_key(key).send().await;
    let (first, again) = (rotate("one").await, rotate("one").await);
    assert!(again.replayed() && first.body == again.body);
    let second = rotate("two").await.data(200);
    assert_ne!(second["secret"], first.data(200)["secret"], "another key rotates the secret again");
    let sample = t.post(&format!("{path}/test"), json!({ "event": "brand.created" })).await.data(202);
    let outgoing = deliveries::load_outgoing(&mut t.app.conn().await, &[sample["id"].as_i64().unwrap()]).await;
    let secret = outgoing.unwrap()[0].secret(t.app.cipher()).unwrap();
    assert_eq!(second["secret"], crate::support::store::expose(&secret), "the last secret signs");
    assert_eq!(t.get("/webhooks").await.data(200).as_array().unwrap().len(), 1);
}

async fn field_length_limits_are_enforced(t: Tenant<'_>) {
    let body = |field: &str, value: Value| {
        let mut body = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
        body[field] = value;
        body
    };
    let url = |length: usize| format!("https://8.8.8.8/{}", "x".repeat(length - 16));
    let path = subscribe(&t, &["brand.created"]).await;
    for (field, value) in [
        ("url", json!(url(2049))),
        ("url", json!("https://8.8.8.8/\0")),
        ("events", json!([])),
        ("events", json!("brand.created")),
        ("description", json!("é".repeat(256))),
        ("is_active", json!(1)),
    ] {
        assert_eq!(t.post("/webhooks", body(field, value.clone())).await.invalid_fields(), [field], "{value}");
        assert_eq!(t.put(&path, json!({ field: value })).await.invalid_fields(), [field], "{value}");
    }
    assert_eq!(t.post("/webhooks", json!({})).await.invalid_fields(), ["events", "url"]);
    assert_eq!(t.post("/webhooks", json!({ "url": null, "events": null })).await.invalid_fields(), ["events", "url"]);
    // An empty URL is a string, but not a public address.
    t.post("/webhooks", body("url", json!(""))).await.expect_error(422, "invalid_webhook_url");
    t.put(&path, json!({ "url": "" })).await.expect_error(422, "invalid_webhook_url");
    let longest = json!({ "url": url(2048), "events": ["brand.created", "post.failed", "brand.created"],
        "description": "é".repeat(255), "is_active": false });
    let created = t.post("/webhooks", longest.clone()).await.data(201);
    assert_eq!((&created["url"], &created["description"]), (&longest["url"], &longest["description"]));
    assert_eq!((&created["events"], &created["is_active"]), (&json!(["brand.created", "post.failed"]), &json!(false)));
    let bare = body("description", Value::Null);
    assert_eq!(t.post("/webhooks", bare).await.data(201)["description"], Value::Null);
}

async fn an_update_keeps_omitted_and_null_fields(t: Tenant<'_>) {
    let body = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"], "description": "Production" });
    let path = format!("/webhooks/{}", t.post("/webhooks", body).await.data(201)["id"]);
    let before = t.get(&path).await.data(200);
    t.app.advance(60);
    for change in [json!({}), json!({ "url": null, "events": null, "is_active": null, "unknown": 5 })] {
        let mut after = t.put(&path, change).await.data(200);
        assert_ne!(after["updated_at"], before["updated_at"]);
        after["updated_at"] = before["updated_at"].clone();
        assert_eq!(after, before);
    }
    let change = json!({ "url": "https://8.8.4.4/other", "events": ["post.failed", "post.failed"] });
    let after = t.put(&path, change).await.data(200);
    assert_eq!((&after["url"], &after["events"]), (&json!("https://8.8.4.4/other"), &json!(["post.failed"])));
    assert_eq!(after["description"], "Production");
    assert_eq!(t.put(&path, json!({ "description": "Tests" })).await.data(200)["description"], "Tests");
    let emptied = t.put(&path, json!({ "description": null })).await.data(200);
    assert_eq!((&emptied["description"], &emptied["is_active"]), (&Value::Null, &json!(true)));
    assert_eq!(t.get(&path).await.data(200), emptied);
}

async fn a_rejected_update_changes_nothing(t: Tenant<'_>) {
    let path = subscribe(&t, &["brand.created"]).await;
    let before = t.get(&path).await.data(200);
    t.app.advance(60);
    t.put(&path, json!({ "url": "https://10.0.0.1/", "is_active": false }))
        .await
        .expect_error(422, "invalid_webhook_url");
    assert_eq!(t.put(&path, json!({ "events": ["nope"], "is_active": false })).await.invalid_fields(), ["events.0"]);
    t.put("/webhooks/999999", json!({ "url": "https://10.0.0.1/" })).await.expect_error(404, "not_found");
    assert_eq!(t.get(&path).await.data(200), before);
}

/// Disables an endpoint, as Crier does after it has failed for too long.
async fn disable(t: &Tenant<'_>, path: &str) {
    let id = path.trim_start_matches("/webhooks/").parse().unwrap();
    t.app
        .write(async |tx| {
            webhooks::set_record(tx, id, Health { failing_since: Some(tx.now), strikes: 12 }).await?;
            webhooks::disable(tx, id, "no delivery succeeded for 5 days").await
        })
        .await;
}

async fn reactivating_an_endpoint_resets_its_health(t: Tenant<'_>) {
    let path = subscribe(&t, &["brand.created"]).await;
    disable(&t, &path).await;
    let shown = t.get(&path).await.data(200);
    assert_eq!((&shown["is_active"], shown["disabled_reason"].is_string()), (&json!(false), true));
    let failing = "webhooks WHERE failing_since IS NOT NULL AND strikes > 0";
    for change in [json!({ "events": ["post.failed"] }), json!({ "is_active": false })] {
        let after = t.put(&path, change).await.data(200);
        assert_eq!(after["disabled_reason"], shown["disabled_reason"], "the reason is kept while disabled");
        assert_eq!(t.app.count_rows(failing).await, 1);
    }
    let after = t.put(&path, json!({ "is_active": true })).await.data(200);
    assert_eq!((&after["is_active"], &after["disabled_reason"]), (&json!(true), &Value::Null));
    assert_eq!(t.get(&path).await.data(200), after);
    assert_eq!(t.app.count_rows(failing).await, 0);
    // An endpoint that its owner disables has no `disabled_reason`.
    let off = t.put(&path, json!({ "is_active": false })).await.data(200);
    assert_eq!((&off["is_active"], &off["disabled_reason"]), (&json!(false), &Value::Null));
}

async fn deleting_an_endpoint_deletes_its_deliveries(t: Tenant<'_>) {
    let (hook, deliveries) = create_deliveries(&t, 2).await;
    t.app.fail_deliveries(&deliveries[..1]).await;
    let other = subscribe(&t, &["brand.created"]).await;
    t.delete(&hook).await.expect(204);
    for path in [hook.clone(), format!("{hook}/deliveries"), format!("{hook}/deliveries/{}", deliveries[0])] {
        t.get(&path).await.expect_error(404, "not_found");
    }
    t.request("POST", &format!("{hook}/deliveries/{}/retry", deliveries[1]))
        .send()
        .await
        .expect_error(404, "not_found");
    t.delete(&hook).await.expect_error(404, "not_found");
    assert_eq!(t.app.count_rows("webhook_deliveries").await, 0);
    assert_eq!(ids(&t.get("/webhooks").await.data(200)).len(), 1);
    t.get(&other).await.expect(200);
}

async fn events_are_listed(t: Tenant<'_>) {
    let events = t.get("/webhook-events").await.data(200);
    let all = events.as_array().unwrap();
    assert_eq!(all.len(), 17);
    for event in all {
        assert_eq!(event.as_object().unwrap().keys().collect::<Vec<_>>(), ["name", "description", "sample"]);
        assert!(event["description"].is_string() && event["sample"]["event"] == event["name"], "{event}");
        assert!(event["sample"]["data"].is_object(), "{event}");
    }
    let names: Vec<_> = all.iter().map(|event| event["name"].clone()).collect();
    let every = t.post("/webhooks", json!({ "url": "https://8.8.8.8/hook", "events": names })).await.data(201);
    assert_eq!(every["events"], json!(names), "every event can be subscribed to");
}
