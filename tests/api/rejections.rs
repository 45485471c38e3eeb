//! Rejected requests to the endpoints that need more than one transaction. Whatever the reason, no row of any table
//! changes, and no platform and no AI provider is called.

use std::collections::BTreeMap;

use crier_runtime::sandbox;
use serde_json::{Value, json};

use crate::support::ai_server::AiApp;
use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp};
use crate::support::images::png;
use crate::support::store::{TestStore, on_both};

on_both!(a_rejected_request_writes_nothing, an_account_over_the_cap_claims_no_handle);

/// Tables that record only the request, such as the time at which its key was used.
const IGNORED_TABLES: &[&str] = &["api_keys"];

/// Returns all rows of each table, as text.
async fn rows(app: &TestApp) -> BTreeMap<String, String> {
    let tables = match app.is_postgres() {
        true => "SELECT string_agg(tablename::text, ',') FROM pg_tables WHERE schemaname = 'public'",
        false => "SELECT group_concat(name, ',') FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'",
    };
    let mut all = BTreeMap::new();
    for table in app.value::<String>(tables).await.split(',').filter(|table| !IGNORED_TABLES.contains(table)) {
        let sql = match app.is_postgres() {
            true => format!("SELECT coalesce(string_agg(t::text, chr(10) ORDER BY t::text), '') FROM {table} t"),
            false => {
                let columns = format!(
                    r#"
                    SELECT group_concat('quote("' || name || '")', ' || '','' || ')
                    FROM pragma_table_info('{table}')"#
                );
                let row = app.value::<String>(columns).await;
                format!(
                    "SELECT coalesce(group_concat(r, char(10)), '') FROM (SELECT {row} AS r FROM {table} ORDER BY r)"
                )
            }
        };
        all.insert(table.to_owned(), app.value::<String>(sql).await);
    }
    assert!(all.len() > 30, "{} tables", all.len());
    all
}

async fn send(t: &Tenant<'_>, method: &str, path: &str, body: Option<&Value>) -> Reply {
    match body {
        Some(body) => t.request(method, path).json(body).send().await,
        None => t.request(method, path).send().await,
    }
}

async fn a_rejected_request_writes_nothing(s: TestStore) {
    let app = AiApp::start(s).await;
    // The plan has all features, and the smallest caps.
    let (t, other) = (app.tenant("business").await, app.tenant("unlimited").await);
    let _ = app.connector.real.set(sandbox::connector(&app.store.store, app.url.clone()));
    other.account("taken").await;
    let account = t.account("demo").await;
    let feed = t.post(&t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })).await.data(201)["id"].clone();
    let hook = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] });
    let hook = t.post("/webhooks", hook).await.data(201)["id"].clone();
    t.upload("a.png", &png(30, 30), &[]).await.expect(201);
    app.set_plan(t.workspace, "pro").await;
    app.set_storage_usage(t.workspace, 1 << 50, 0).await;
    app.set_used_credits(t.workspace, 5_000).await;
    for n in 1..15 {
        t.account(&format!("a{n}")).await;
    }
    let connects = app.connector.connects.load(std::sync::atomic::Ordering::SeqCst);

    let connect = |platform: &str, handle: Value| json!({ "platform": platform, "credentials": { "handle": handle } });
    let private = json!({ "url": "https://127.0.0.1/x" });
    let hook_to = |url: &str| json!({ "url": url, "events": ["brand.created"] });
    let (accounts, nowhere) = (t.path("/social-accounts"), MISSING_ID);
    let prompt = json!({ "prompt": "bread" });
    let cases: Vec<(&str, String, Option<Value>, u16, &str)> = vec![
        ("POST", accounts.clone(), Some(connect("sandbox", json!("new"))), 402, "limit_reached"),
        ("POST", accounts.clone(), Some(connect("sandbox", json!("taken"))), 422, "invalid_credentials"),
        ("POST", accounts.clone(), Some(connect("sandbox", json!("No handle"))), 422, "validation_failed"),
        ("POST", accounts.clone(), Some(connect("sandbox", json!(5))), 422, "validation_failed"),
        ("POST", accounts.clone(), Some(connect("instagram", json!("x"))), 422, "validation_failed"),
        ("POST", format!("{accounts}/{nowhere}/refresh"), None, 404, "not_found"),
        ("DELETE", format!("{accounts}/{nowhere}"), None, 404, "not_found"),
        ("POST", t.path("/feeds"), Some(private.clone()), 422, "invalid_source_url"),
        ("POST", t.path("/feeds"), Some(json!({ "name": "x" })), 422, "validation_failed"),
        ("PUT", t.path(&format!("/feeds/{feed}")), Some(private.clone()), 422, "invalid_source_url"),
        ("PUT", t.path(&format!("/feeds/{nowhere}")), Some(json!({ "name": "x" })), 404, "not_found"),
        ("POST", t.path("/media/from-url"), Some(private.clone()), 422, "invalid_source_url"),
        ("POST", t.path("/media/from-url"), Some(json!({})), 422, "validation_failed"),
        ("POST", "/webhooks".to_owned(), Some(hook_to("https://127.0.0.1/x")), 422, "invalid_webhook_url"),
        ("POST", "/webhooks".to_owned(), Some(json!({ "url": "https://8.8.8.8/x" })), 422, "validation_failed"),
        ("PUT", format!("/webhooks/{hook}"), Some(hook_to("https://127.0.0.1/x")), 422, "invalid_webhook_url"),
        ("PUT", format!("/webhooks/{nowhere}"), Some(hook_to("https://8.8.8.8/x")), 404, "not_found"),
        ("POST", t.path("/ai/captions"), Some(prompt.clone()), 402, "insufficient_credits"),
        ("POST", t.path("/ai/captions"), Some(json!({})), 422, "validation_failed"),
        ("POST", t.path("/ai/hashtags"), Some(json!({ "content": "bread" })), 402, "insufficient_credits"),
        ("POST", t.path("/ai/hashtags"), Some(json!({ "content": 5 })), 422, "validation_failed"),
        ("POST", t.path("/ai/images"), Some(prompt.clone()), 402, "storage_limit_exceeded"),
        ("POST", t.path("/ai/images"), Some(json!({ "prompt": "" })), 422, "validation_failed"),
    ];
    let before = rows(&app).await;
    for (method, path, body, status, code) in &cases {
        let reply = send(&t, method, path, body.as_ref()).await;
        let what = format!("{method} {path} {body:?}: {}", reply.json());
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (*status, Some(*code)), "{what}");
        assert_eq!(rows(&app).await, before, "{what}");
    }
    t.upload("b.png", &png(31, 30), &[]).await.expect_error(402, "storage_limit_exceeded");
    assert_eq!(rows(&app).await, before);
    app.set_storage_usage(t.workspace, 0, 0).await;
    let before = rows(&app).await;
    t.post(&t.path("/ai/images"), prompt).await.expect_error(402, "insufficient_credits");
    t.upload("b.png", b"no image", &[]).await;
    assert_eq!(rows(&app).await, before);
    assert_eq!(app.ai.request_bodies().await.len(), 0);
    let calls = app.connector.connects.load(std::sync::atomic::Ordering::SeqCst) - connects;
    // A handle that the brand may already have needs a call: only the response shows whether it counts against the cap.
    assert_eq!(calls, 3);
    assert!(app.connector.revoked.lock().unwrap().is_empty());
    let list = t.get(&accounts).await.data(200);
    assert!(list.as_array().unwrap().iter().any(|a| a["id"] == account));
}

/// A platform on which the brand has no account is not called either.
async fn an_account_over_the_cap_claims_no_handle(s: TestStore) {
    let app = TestApp::start(s).await;
    let (t, other) = (app.tenant("free").await, app.tenant("free").await);
    let _ = app.connector.real.set(sandbox::connector(&app.store.store, app.url.clone()));
    for n in 0..3 {
        t.account(&format!("h{n}")).await;
    }
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "wanted" } });
    t.post(&t.path("/social-accounts"), body.clone()).await.expect_error(402, "limit_reached");
    assert_eq!(app.count_rows("sandbox_handles").await, 3);
    other.post(&other.path("/social-accounts"), body).await.expect(201);
    // The three accounts now belong to another platform.
    app.sql(format!("UPDATE social_accounts SET platform = 'telegram' WHERE workspace_id = {}", t.workspace)).await;
    let connects = || app.connector.connects.load(std::sync::atomic::Ordering::SeqCst);
    let before = connects();
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "h9" } });
    t.post(&t.path("/social-accounts"), body).await.expect_error(402, "limit_reached");
    assert_eq!(connects(), before);
}
