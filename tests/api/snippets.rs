//! Snippets, the signatures of accounts, and their place in posts.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(a_snippet_is_created_listed_updated_and_deleted, the_contents_of_a_brand_s_snippets_are_limited,);
on_one_app!(invalid_snippets_are_rejected, a_repeated_key_creates_one_snippet,);

/// Creates a snippet and returns its id.
pub async fn snippet(t: &Tenant<'_>, kind: &str, content: &str) -> i64 {
    let body = json!({ "name": "Closing", "kind": kind, "content": content });
    t.post(&t.path("/snippets"), body).await.data(201)["id"].as_i64().unwrap()
}

fn path_of(t: &Tenant<'_>, snippet: i64) -> String {
    t.path(&format!("/snippets/{snippet}"))
}

async fn a_snippet_is_created_listed_updated_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "name": "Hours", "kind": "text", "content": "Open from 6 to 18.\n" });
    let reply = t.post(&t.path("/snippets"), body).await;
    let created = reply.data(201);
    let path = t.path(&format!("/snippets/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    let at = app.now().to_rfc3339_opts(chrono::SecondsFormat::Micros, true);
    assert_eq!(
        created,
        json!({
            "id": created["id"], "name": "Hours", "kind": "text", "content": "Open from 6 to 18.\n",
            "created_at": at, "updated_at": at,
        })
    );
    let second = snippet(&t, "hashtags", "#bread #rye").await;
    let listed = t.get(&t.path("/snippets")).await.data(200);
    assert_eq!((&listed[0]["id"], &listed[1]), (&json!(second), &created));
    app.clock.advance(TimeDelta::seconds(5));
    let changed = t.put(&path, json!({ "content": "Open from 6 to 20.", "kind": "signature" })).await.data(200);
    assert_eq!(
        (&changed["name"], &changed["kind"], &changed["content"]),
        (&json!("Hours"), &json!("signature"), &json!("Open from 6 to 20."))
    );
    assert_ne!(changed["updated_at"], created["updated_at"]);
    let same = t.put(&path, json!({ "name": null })).await.data(200);
    assert_eq!(same, changed, "omitted fields are unchanged");
    assert_eq!(t.get(&t.path("/snippets")).await.data(200)[1], changed);
    assert_eq!(t.delete(&path).await.expect(204), Value::Null);
    for reply in [t.delete(&path).await, t.put(&path, json!({ "name": "x" })).await] {
        reply.expect_error(404, "not_found");
    }
    t.delete(&path_of(&t, MISSING_ID)).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/snippets")).await.data(200).as_array().unwrap().len(), 1);
}

async fn invalid_snippets_are_rejected(app: TestApp) {
    let t = app.tenant("unlimited").await;
    assert_eq!(t.post(&t.path("/snippets"), json!({})).await.invalid_fields(), ["content", "kind", "name"]);
    let all = json!({ "name": "n".repeat(61), "kind": "footer", "content": "x".repeat(5_001) });
    assert_eq!(t.post(&t.path("/snippets"), all.clone()).await.invalid_fields(), ["content", "kind", "name"]);
    let synonym = json!({ "name": "Hours", "type": "text", "content": "x" });
    assert_eq!(t.post(&t.path("/snippets"), synonym).await.invalid_fields(), ["kind", "type"]);
    let longest = json!({ "name": "ä".repeat(60), "kind": "text", "content": "ä".repeat(5_000) });
    let created = t.post(&t.path("/snippets"), longest).await.data(201);
    let path = path_of(&t, created["id"].as_i64().unwrap());
    assert_eq!(t.put(&path, all).await.invalid_fields(), ["content", "kind", "name"]);
    assert_eq!(t.put(&path, json!({ "name": "", "content": "" })).await.invalid_fields(), ["content", "name"]);
    // A snippet that does not exist is reported before invalid fields.
    t.put(&path_of(&t, MISSING_ID), json!({ "name": "" })).await.expect_error(404, "not_found");
}

async fn a_repeated_key_creates_one_snippet(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "name": "Hours", "kind": "text", "content": "Open from 6 to 18." });
    let create = async || t.request("POST", &t.path("/snippets")).idempotency_key("once").json(&body).send().await;
    let (first, second) = (create().await, create().await);
    assert!(!first.replayed() && second.replayed());
    assert_eq!(first.data(201), second.data(201));
    assert_eq!(app.count_rows("snippets").await, 1);
}

async fn the_contents_of_a_brand_s_snippets_are_limited(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    // 104 snippets of 10,000 bytes fit into 1 MiB, and 105 do not.
    let at = "'2026-01-01T00:00:00.000000Z'";
    let row = format!("({}, 'Long', 'text', '{}', {at}, {at})", t.brand, "ä".repeat(5_000));
    let rows = vec![row; 103].join(", ");
    app.sql(format!("INSERT INTO snippets (brand_id, name, kind, content, created_at, updated_at) VALUES {rows}"))
        .await;
    let long = json!({ "name": "Long", "kind": "text", "content": "ä".repeat(5_000) });
    let created = t.post(&t.path("/snippets"), long.clone()).await.data(201);
    assert_eq!(t.post(&t.path("/snippets"), long.clone()).await.invalid_fields(), ["content"]);
    other.post(&other.path("/snippets"), long.clone()).await.expect(201);
    let short = snippet(&t, "text", "short").await;
    assert_eq!(t.put(&path_of(&t, short), long.clone()).await.invalid_fields(), ["content"]);
    t.put(&path_of(&t, short), json!({ "content": "also short" })).await.expect(200);
    t.delete(&path_of(&t, created["id"].as_i64().unwrap())).await.expect(204);
    t.put(&path_of(&t, short), long).await.expect(200);
}
