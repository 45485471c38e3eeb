//! A client of `/mcp`, as small as the protocol allows.

use http::Method;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp};
use crate::support::request::{Reply, Request};

/// The newest revision, whose requests say themselves what the client can do.
pub const NEW: &str = "2026-07-28";
/// The last revision with `initialize`.
pub const OLD: &str = "2025-11-25";

/// Begins a POST of a message of the old revision.
pub fn post<'a>(app: &'a TestApp, key: &str, message: &Value) -> Request<'a> {
    app.request_at_root(Method::POST.as_str(), &app.url, "/mcp")
        .key(key)
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", OLD)
        .json(message)
}

/// Begins a POST of a message of the newest revision, from a client with these capabilities.
pub fn post_new<'a>(app: &'a TestApp, key: &str, method: &str, mut params: Value, capabilities: Value) -> Request<'a> {
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": capabilities,
    });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    let request = post(app, key, &message).header("mcp-protocol-version", NEW).header("mcp-method", method);
    match params["name"].as_str() {
        Some(name) => request.header("mcp-name", name),
        None => request,
    }
}

/// Returns the result of a response.
#[track_caller]
pub fn result(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text());
    let mut message = reply.json();
    assert!(message["error"].is_null(), "{message}");
    message["result"].take()
}

/// Calls a method of the old revision.
pub async fn request(app: &TestApp, key: &str, method: &str, params: Value) -> Value {
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
    result(&post(app, key, &message).send().await)
}

/// Calls a tool, and returns its whole result.
pub async fn call(t: &Tenant<'_>, tool: &str, arguments: Value) -> Value {
    call_with(t.app, &t.key, tool, arguments).await
}

pub async fn call_with(app: &TestApp, key: &str, tool: &str, arguments: Value) -> Value {
    request(app, key, "tools/call", json!({ "name": tool, "arguments": arguments })).await
}

/// Calls a tool that succeeds, and returns its structured content.
#[track_caller]
pub fn done(mut result: Value) -> Value {
    assert_eq!(result["isError"], false, "{result}");
    let content = result["structuredContent"].take();
    let text: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(text, content, "the text of a result is its structured content");
    content
}

/// Returns the error of a tool that fails with this code.
#[track_caller]
pub fn failed(mut result: Value, code: &str) -> Value {
    assert_eq!(result["isError"], true, "{result}");
    let error = result["structuredContent"]["error"].take();
    assert_eq!(error["code"], code, "{error}");
    error
}

/// Calls a tool that requests confirmation, and confirms it, as a model does for its user.
pub async fn confirmed(t: &Tenant<'_>, tool: &str, mut arguments: Value) -> Value {
    let error = failed(call(t, tool, arguments.clone()).await, "confirmation_required");
    arguments["confirm"] = error["confirm"].clone();
    call(t, tool, arguments).await
}

/// Returns the names of the listed tools.
pub async fn names(app: &TestApp, key: &str) -> Vec<String> {
    let tools = request(app, key, "tools/list", json!({})).await["tools"].take();
    tools.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}
