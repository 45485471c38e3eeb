//! The tools of agents with access tokens, at `/mcp/oauth`.

use std::collections::BTreeSet;

use crier_store::{PageRequest, idempotency};
use serde_json::{Value, json};

use super::{Allowed, SCOPES, connect};
use crate::support::app::{TestApp, on_both_apps};
use crate::support::request::Reply;

on_both_apps!(
    an_application_calls_tools,
    a_token_is_required,
    a_tool_beyond_the_scopes_requests_more,
    limits_of_the_grant_apply_to_tools,
);

async fn send(app: &TestApp, path: &str, token: &str, method: &str, params: Value) -> Reply {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    app.request_at_root("POST", &app.url, path).key(token).json(&message).send().await
}

async fn call(app: &TestApp, token: &str, tool: &str, arguments: Value) -> Reply {
    send(app, "/mcp/oauth", token, "tools/call", json!({ "name": tool, "arguments": arguments })).await
}

async fn an_application_calls_tools(app: TestApp) {
    let t = app.tenant("pro").await;
    let (_, tokens) = connect(&t, Allowed::default()).await;
    let listed = send(&app, "/mcp/oauth", &tokens.access, "tools/list", json!({})).await.json();
    let names: Vec<&str> =
        listed["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"save_draft") && !names.contains(&"list_conversations"), "{names:?}");
    let saved = call(&app, &tokens.access, "save_draft", json!({ "brand_id": t.brand, "content": "Bread" })).await;
    assert_eq!(saved.json()["result"]["structuredContent"]["data"]["content"], "Bread", "{}", saved.text());
    // The user sees which application wrote it.
    let page = PageRequest { page: 1, per_page: 10 };
    let writes = idempotency::list(&mut app.conn().await, t.user, None, page, app.now()).await.unwrap();
    assert_eq!(writes.rows[0].name.as_deref(), Some("Agent"));
}

async fn a_token_is_required(app: TestApp) {
    let t = app.tenant("pro").await;
    let (_, tokens) = connect(&t, Allowed::default()).await;
    for (path, token) in
        [("/mcp/oauth", "svc_oat_wrong"), ("/mcp/oauth", t.key.as_str()), ("/mcp/oauth", &tokens.refresh)]
    {
        let reply = send(&app, path, token, "tools/list", json!({})).await;
        reply.expect_error(401, "unauthorized");
        let challenge = reply.header("www-authenticate").unwrap();
        assert!(challenge.ends_with(", error=\"invalid_token\""), "{challenge}");
        let document = challenge.split('"').nth(1).unwrap();
        assert_eq!(app.visit("GET", document).send().await.json()["resource"], format!("{}/mcp/oauth", app.url));
    }
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let reply = app.request_at_root("POST", &app.url, "/mcp/oauth").json(&list).send().await;
    reply.expect_error(401, "unauthorized");
    let challenge = reply.header("www-authenticate").unwrap();
    assert!(challenge.contains("resource_metadata=") && !challenge.contains("error"), "{challenge}");
    // A token is for its resource only.
    let reply = send(&app, "/mcp", &tokens.access, "tools/list", json!({})).await;
    reply.expect_error(401, "unauthorized");
    assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    app.request("GET", "/brands").key(&tokens.access).send().await.expect_error(401, "unauthorized");
}

async fn a_tool_beyond_the_scopes_requests_more(app: TestApp) {
    let t = app.tenant("pro").await;
    let (_, tokens) = connect(&t, Allowed::default()).await;
    let reply = call(&app, &tokens.access, "list_conversations", json!({ "brand_id": t.brand })).await;
    reply.expect_error(403, "insufficient_scope");
    let challenge = reply.header("www-authenticate").unwrap();
    assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
    // The scopes that the application has remain part of its next request.
    let (_, scopes) = challenge.trim_end_matches('"').rsplit_once('"').unwrap();
    let scopes: BTreeSet<&str> = scopes.split(' ').collect();
    assert_eq!(scopes, SCOPES.split(' ').chain(["inbox:read"]).collect::<BTreeSet<_>>(), "{challenge}");
    // No application can get the scope of this tool, so it would ask the user again and again.
    let reply = call(&app, &tokens.access, "reply_to_conversation", json!({ "brand_id": t.brand })).await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (200, &json!(-32602)), "{}", reply.text());
    assert_eq!(reply.header("www-authenticate"), None);
}

async fn limits_of_the_grant_apply_to_tools(app: TestApp) {
    let t = app.tenant("pro").await;
    let other = app.tenant("pro").await;
    app.member(other.brand, t.user, crier_domain::access::Role::Editor).await;
    let brands = [t.brand];
    let allowed = Allowed { brands: Some(&brands), role_limit: Some(crier_domain::access::Role::Contributor) };
    let (_, tokens) = connect(&t, allowed).await;
    let listed = call(&app, &tokens.access, "list_brands", json!({})).await.json();
    let brands = listed["result"]["structuredContent"]["data"].as_array().unwrap().clone();
    assert_eq!(brands.len(), 1, "{listed}");
    let error = call(&app, &tokens.access, "list_posts", json!({ "brand_id": other.brand })).await.json();
    assert_eq!(error["result"]["structuredContent"]["error"]["code"], "brand_forbidden", "{error}");
    let account = t.account("demo").await;
    let draft = json!({ "brand_id": t.brand, "content": "Bread", "accounts": [account] });
    let id = call(&app, &tokens.access, "save_draft", draft).await.json()["result"]["structuredContent"]["data"]["id"]
        .clone();
    let mut publish = json!({ "brand_id": t.brand, "post_id": id });
    let asked = call(&app, &tokens.access, "publish_post", publish.clone()).await.json();
    publish["confirm"] = asked["result"]["structuredContent"]["error"]["confirm"].clone();
    let error = call(&app, &tokens.access, "publish_post", publish).await.json();
    assert_eq!(error["result"]["structuredContent"]["error"]["code"], "insufficient_scope", "{error}");
}
