//! HTTP requests to `/mcp`: who may send them, and the revisions of the protocol.

use crier_domain::access::KeyMode;
use serde_json::{Value, json};

use super::client::{NEW, OLD, names, post, post_new, request, result};
use crate::support::app::{Tenant, TestApp, on_both_apps, on_sqlite_app};

on_both_apps!("pro" =>
    both_revisions_are_served_on_one_path,
    only_allowed_tools_are_listed,
    a_message_counts_against_the_limit_of_its_key,
);
on_sqlite_app!("pro" =>
    a_key_is_required,
    other_hosts_and_origins_are_rejected,
    only_posts_are_accepted,
    invalid_messages_are_rejected,
    every_replica_responds,
    the_path_can_be_switched_off,
);
on_sqlite_app!(no_discovery_document_exists);

async fn both_revisions_are_served_on_one_path(t: Tenant<'_>) {
    let hello = json!({ "protocolVersion": OLD, "capabilities": {}, "clientInfo": { "name": "old", "version": "1" } });
    let old = request(t.app, &t.key, "initialize", hello).await;
    assert_eq!(old["protocolVersion"], OLD, "{old}");
    assert_eq!(old["serverInfo"]["name"], "crier");
    assert!(old["capabilities"]["tools"].is_object(), "{old}");
    let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    assert_eq!(post(t.app, &t.key, &initialized).send().await.status, 202);
    let old_list = request(t.app, &t.key, "tools/list", json!({})).await;
    assert!(old_list.get("resultType").is_none(), "{old_list}");

    let reply = post_new(t.app, &t.key, "server/discover", json!({}), json!({})).send().await;
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let new = result(&reply);
    let versions: Vec<&str> = new["supportedVersions"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    assert!(versions.contains(&NEW) && versions.contains(&OLD), "{new}");
    let new_list = result(&post_new(t.app, &t.key, "tools/list", json!({}), json!({})).send().await);
    assert_eq!(new_list["tools"], old_list["tools"]);
    assert_eq!((&new_list["resultType"], &new_list["cacheScope"]), (&json!("complete"), &json!("private")));
    assert!(new_list["ttlMs"].as_u64() > Some(0), "{}", new_list["ttlMs"]);
}

async fn only_allowed_tools_are_listed(t: Tenant<'_>) {
    let all = names(t.app, &t.key).await;
    assert!((15..=20).contains(&all.len()), "{all:?}");
    let reading = t.app.key_of(t.user, KeyMode::Live, "brands:read,posts:read").await;
    let expected = ["list_brands", "next_slots", "validate_post", "list_posts", "get_post"];
    assert_eq!(names(t.app, &reading).await, expected);
    // A test key changes nothing.
    let test_key = t.app.key_of(t.user, KeyMode::Test, "all").await;
    let readable = names(t.app, &test_key).await;
    assert!(readable.contains(&"get_conversation".to_owned()) && !readable.contains(&"save_draft".to_owned()));
    // A tool that is not listed does not exist.
    let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": { "name": "save_draft" } });
    let error = post(t.app, &reading, &call).send().await.json()["error"].take();
    assert_eq!(error["code"], -32602, "{error}");
}

async fn a_message_counts_against_the_limit_of_its_key(t: Tenant<'_>) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let left =
        |reply: &crate::support::app::Reply| reply.header("x-ratelimit-remaining").unwrap().parse::<i64>().unwrap();
    let before = left(&t.get("/brands").await);
    assert_eq!(left(&post(t.app, &t.key, &list).send().await), before - 1);
}

async fn a_key_is_required(t: Tenant<'_>) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for request in [post(t.app, &t.key, &list).without("authorization"), post(t.app, "svc_live_wrong", &list)] {
        let reply = request.send().await;
        reply.expect_error(401, "unauthorized");
        // Without a `resource_metadata`: clients would begin with OAuth instead of the key.
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"));
    }
}

async fn other_hosts_and_origins_are_rejected(t: Tenant<'_>) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    for (name, value) in [
        ("host", "evil.example"),
        ("origin", "https://evil.example"),
        ("origin", "null"),
        ("origin", "http://127.0.0.1:1"),
    ] {
        let reply = post(t.app, &t.key, &list).header(name, value).send().await;
        assert_eq!(reply.status, 403, "{name}: {value}: {}", reply.text());
    }
    let reply = post(t.app, &t.key, &list).header("origin", &t.app.url).send().await;
    assert_eq!(reply.status, 200, "{}", reply.text());
}

async fn only_posts_are_accepted(t: Tenant<'_>) {
    for method in ["GET", "DELETE", "PUT", "OPTIONS"] {
        let reply = t.app.request_at_root(method, &t.app.url, "/mcp").key(&t.key).send().await;
        assert_eq!(reply.status, 405, "{method}: {}", reply.text());
        assert_eq!(reply.header("allow"), Some("POST"), "{method}");
    }
}

async fn invalid_messages_are_rejected(t: Tenant<'_>) {
    let code = |reply: &crate::support::app::Reply| reply.json()["error"]["code"].clone();
    let unknown =
        post_new(t.app, &t.key, "tools/list", json!({}), json!({})).header("mcp-protocol-version", "2030-01-01");
    let reply = unknown.send().await;
    assert_eq!(reply.status, 400, "{}", reply.text());
    let mismatch = post_new(t.app, &t.key, "tools/list", json!({}), json!({})).header("mcp-method", "tools/call");
    let reply = mismatch.send().await;
    assert_eq!((reply.status, code(&reply)), (400, json!(-32020)), "{}", reply.text());
    let reply = post_new(t.app, &t.key, "no/method", json!({}), json!({})).send().await;
    assert_eq!((reply.status, code(&reply)), (404, json!(-32601)), "{}", reply.text());
    for raw in ["", "{", "[]", "17", "null"] {
        let reply = post(t.app, &t.key, &json!({})).raw(raw).send().await;
        assert_eq!((reply.status, code(&reply)), (400, json!(-32700)), "{raw}: {}", reply.text());
    }
    for message in [
        json!({ "jsonrpc": "2.0", "id": null, "method": "ping" }),
        json!({ "jsonrpc": "2.0", "id": 1.5, "method": "ping" }),
        json!({ "jsonrpc": "2.0", "id": [1], "method": "ping" }),
        json!({ "jsonrpc": "1.0", "id": 1, "method": "ping" }),
        json!({ "id": 1, "method": "ping" }),
        json!({}),
    ] {
        let reply = post(t.app, &t.key, &message).send().await;
        assert_eq!((reply.status, code(&reply)), (400, json!(-32600)), "{message}: {}", reply.text());
    }
    for id in [json!(0), json!(-1), json!(""), json!("a"), json!(i64::MAX)] {
        let reply = post(t.app, &t.key, &json!({ "jsonrpc": "2.0", "id": id, "method": "ping" })).send().await;
        assert_eq!((reply.status, &reply.json()["id"]), (200, &id), "{}", reply.text());
    }
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let reply = post(t.app, &t.key, &ping).header("content-type", "text/plain").send().await;
    assert_eq!(reply.status, 415, "{}", reply.text());
    // Nothing waits for a response of the client.
    let answer = json!({ "jsonrpc": "2.0", "id": 1, "result": {} });
    assert_eq!(post(t.app, &t.key, &answer).send().await.status, 400);
    let many =
        format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{{\"x\":[{}0]}}}}", "0,".repeat(30_000));
    post(t.app, &t.key, &json!({})).raw(many).send().await.expect_error(413, "payload_too_large");
    let large = format!("\"{}\"", "x".repeat(2 << 20));
    post(t.app, &t.key, &json!({})).raw(large).send().await.expect_error(413, "payload_too_large");
}

async fn every_replica_responds(t: Tenant<'_>) {
    let replica = t.app.replica().await;
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let first = result(&post(t.app, &t.key, &list).send().await);
    let host = t.app.url.trim_start_matches("http://");
    let second = post(t.app, &t.key, &list).to(format!("{replica}/mcp")).header("host", host).send().await;
    assert_eq!(result(&second), first);
}

/// Clients that find one ignore the key that their user configured.
async fn no_discovery_document_exists(app: TestApp) {
    for path in [
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/mcp",
        "/.well-known/oauth-authorization-server",
        "/.well-known/oauth-authorization-server/mcp",
        "/.well-known/openid-configuration",
        "/mcp/.well-known/oauth-protected-resource",
    ] {
        for accept in ["application/json", "text/html,*/*"] {
            let reply = app.request_at_root("GET", &app.url, path).header("accept", accept).send().await;
            assert_eq!(reply.status, 404, "{path}: {}", reply.text());
        }
    }
}

async fn the_path_can_be_switched_off(t: Tenant<'_>) {
    let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let replica = t.app.replica_without_mcp().await;
    for path in [
        "/mcp",
        "/mcp/oauth",
        "/mcp/oauth/token",
        "/mcp/oauth/register",
        "/mcp/oauth/revoke",
        "/.well-known/oauth-protected-resource/mcp/oauth",
        "/.well-known/oauth-authorization-server/mcp/oauth",
    ] {
        let reply = post(t.app, &t.key, &list).to(format!("{replica}{path}")).send().await;
        assert_eq!(reply.status, 404, "{path}: {}", reply.text());
    }
}
