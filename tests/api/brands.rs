//! Brands.

use crier_domain::access::Role;
use crier_store::brands;
use serde_json::json;

use crate::support::app::{Tenant, on_both_apps};
use crate::support::request::assert_fields;

on_both_apps!("unlimited" =>
    a_brand_is_created_and_read,
    all_invalid_fields_are_reported_together,
    a_workspace_has_at_most_a_thousand_brands,
    a_user_without_a_brand_can_create_one,
    creating_a_brand_sends_a_webhook,
);
on_both_apps!("pro" => members_and_usage_are_listed);

async fn a_brand_is_created_and_read(t: Tenant<'_>) {
    let body =
        json!({ "name": "Acme", "description": "Bread", "website": "https://acme.example/", "timezone": "Asia/Tokyo" });
    let reply = t.post("/brands", body.clone()).await;
    let created = reply.data(201);
    for (field, value) in body.as_object().unwrap() {
        assert_eq!(&created[field], value);
    }
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1/brands/{}", created["id"]).as_str()));
    assert_eq!(t.get(&format!("/brands/{}", created["id"])).await.data(200), created);
    let list = t.get("/brands").await.expect(200);
    assert_eq!(list.as_object().unwrap().keys().collect::<Vec<_>>(), ["data"]);
    assert_eq!(list["data"][0], created);
    assert!(created["created_at"].as_str().unwrap().ends_with(".000000Z"));
    let bare = t.post("/brands", json!({ "name": "Bare", "website": null })).await.data(201);
    assert_fields(&bare, json!({ "timezone": "UTC", "website": null, "description": null }));
}

async fn all_invalid_fields_are_reported_together(t: Tenant<'_>) {
    let body = json!({ "description": 5, "website": "nope", "timezone": "Mars/Olympus" });
    assert_eq!(t.post("/brands", body).await.invalid_fields(), ["description", "name", "timezone", "website"]);
    let max = json!({ "name": "é".repeat(120), "description": "日".repeat(2000) });
    t.post("/brands", max).await.expect(201);
    for name in [json!(""), json!("x".repeat(121)), json!("a\0b"), json!(null), json!([])] {
        assert_eq!(t.post("/brands", json!({ "name": name })).await.invalid_fields(), ["name"]);
    }
}

async fn creating_a_brand_sends_a_webhook(t: Tenant<'_>) {
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    let hook = t.post("/webhooks", hook).await.data(201)["id"].clone();
    let reply = t.post("/brands", json!({ "name": "Told" })).await;
    let created = reply.data(201);
    let deliveries = t.get(&format!("/webhooks/{hook}/deliveries")).await.expect(200);
    let payload = json!({ "event": "brand.created", "data": { "brand_id": created["id"], "name": "Told" } });
    assert_eq!(deliveries["data"][0]["payload"], payload);
    assert_eq!(deliveries["meta"]["total"], 1);
    assert_eq!(t.app.newest_job().await.trace.as_deref(), reply.header("x-request-id"));
    assert_eq!(t.app.notifier.take().len(), 1);
}

/// No plan has more brands, because the list of brands is not paginated.
async fn a_workspace_has_at_most_a_thousand_brands(t: Tenant<'_>) {
    t.app.copy_newest_row("brands", 998, &[]).await;
    t.post("/brands", json!({ "name": "The last" })).await.expect(201);
    let error = t.post("/brands", json!({ "name": "Too many" })).await.expect_error(402, "limit_reached");
    let message = error["message"].as_str().unwrap();
    assert!(message.contains("at most 1000 brands") && !message.contains("larger plan"), "{message}");
}

/// A new user has no brand either.
async fn a_user_without_a_brand_can_create_one(t: Tenant<'_>) {
    let colleague = t.colleague(Role::Editor).await;
    t.app.write(async |tx| brands::remove_member(tx, t.brand, colleague.user).await).await;
    colleague.get(&t.path("")).await.expect_error(403, "brand_forbidden");
    let created = colleague.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].take();
    let members = colleague.get(&format!("/brands/{created}/members")).await.data(200);
    assert_fields(&members[0], json!({ "id": colleague.user, "role": "owner" }));
    assert_eq!(members.as_array().unwrap().len(), 1);
}

async fn members_and_usage_are_listed(t: Tenant<'_>) {
    let editor = t.colleague(Role::Editor).await;
    let members = editor.get(&t.path("/members")).await.data(200);
    let roles: Vec<_> = members.as_array().unwrap().iter().map(|m| m["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["editor", "owner"]);
    t.account("demo").await;
    let usage = t.get(&t.path("/usage")).await.data(200);
    assert_fields(&usage, json!({ "plan": "pro", "brands": { "used": 1, "limit": 5 } }));
    assert_fields(&usage, json!({ "social_accounts": { "used": 1, "limit": 15 } }));
    assert_fields(&usage, json!({ "posts_per_month": { "used": 0, "limit": 1000 } }));
}
