//! The checks that all endpoints share, in the documented order, for every endpoint in the OpenAPI document.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use chrono::TimeDelta;
use crier_domain::access::{KeyMode, Scope};
use serde_json::Value;

use crate::support::app::{BARE, MISSING_ID, Reply, Request, Tenant, TestApp, on_one_app};
use crate::support::document::resolve;

on_one_app!(
    checks_run_in_the_documented_order,
    every_endpoint_accepts_its_documented_scope,
    a_wrong_method_returns_405_without_a_key,
    malformed_api_keys_are_rejected,
    unknown_paths_return_not_found,
);

/// An endpoint as the OpenAPI document describes it.
#[derive(Debug)]
pub struct DocumentedEndpoint {
    pub method: String,
    pub path: String,
    pub scope: String,
    pub feature: bool,
    pub writes: bool,
    /// Whether a test key is rejected.
    pub needs_live_key: bool,
    pub body: Option<Value>,
    pub body_required: bool,
}

impl DocumentedEndpoint {
    pub fn is_nested(&self) -> bool {
        self.path.contains("{brand}")
    }

    /// Returns the names of the id parameters, except that of the brand.
    pub fn ids(&self) -> Vec<&str> {
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        names.filter(|name| *name != "brand").collect()
    }

    /// Returns the path with the brand and the other ids filled in.
    pub fn at(&self, brand: i64, id: impl Fn(&str) -> i64) -> String {
        let filled = self.path.split('/').map(|part| match part.strip_prefix('{').and_then(|p| p.strip_suffix('}')) {
            Some("brand") => brand.to_string(),
            Some(name) => id(name).to_string(),
            None => part.to_owned(),
        });
        filled.collect::<Vec<_>>().join("/")
    }
}

/// Returns all endpoints in the OpenAPI document.
pub async fn all(app: &TestApp) -> Vec<DocumentedEndpoint> {
    let document = app.request("GET", "/openapi.json").send().await.expect(200);
    let mut out = Vec::new();
    for (path, operations) in document["paths"].as_object().expect("paths") {
        // A response without a body has no error code.
        for (method, operation) in
            operations.as_object().expect("operations").iter().filter(|(name, _)| *name != "head")
        {
            let description = operation["description"].as_str().expect("a description");
            let scope = description.split("Scope: `").nth(1).and_then(|rest| rest.split('`').next());
            let parameters = operation["parameters"].as_array().expect("parameters");
            let forbidden = &resolve(&document, &operation["responses"]["403"])["description"];
            out.push(DocumentedEndpoint {
                method: method.to_uppercase(),
                path: path.clone(),
                scope: scope.expect("a scope").to_owned(),
                feature: description.contains("Plan feature: "),
                writes: parameters.iter().any(|p| resolve(&document, p)["name"] == "Idempotency-Key"),
                needs_live_key: forbidden.as_str().is_some_and(|codes| codes.contains("test_mode_write_forbidden")),
                body: operation.pointer("/requestBody/content/application~1json/example").cloned(),
                body_required: operation["requestBody"]["required"] == true,
            });
        }
    }
    assert!(out.len() >= 28, "{} endpoints", out.len());
    out
}

/// Builds a request without a key. The endpoints of resumable uploads need the version of their protocol.
fn call<'a>(app: &'a TestApp, e: &DocumentedEndpoint, path: &str) -> Request<'a> {
    app.request(&e.method, path).header("tus-resumable", "1.0.0")
}

/// Builds a request without a key and with an invalid body.
fn wrong<'a>(app: &'a TestApp, e: &DocumentedEndpoint, path: &str) -> Request<'a> {
    call(app, e, path).raw("{not json")
}

/// Each mistake is reported in the documented order, whatever else is wrong.
async fn checks_run_in_the_documented_order(app: TestApp) {
    let (full, bare, other) = (app.tenant("unlimited").await, app.tenant(BARE).await, app.tenant("unlimited").await);
    // Test keys with all scopes but this one, and with only this one.
    let mut keys: BTreeMap<String, (String, String)> = BTreeMap::new();
    for e in all(&app).await {
        let name = format!("{} {}", e.method, e.path);
        // The rate limits of the keys start again.
        app.clock.advance(TimeDelta::minutes(1));
        if let Entry::Vacant(entry) = keys.entry(e.scope.clone()) {
            let others: Vec<&str> = Scope::ALL.iter().map(|s| s.as_str()).filter(|s| *s != e.scope).collect();
            let weak = app.key_of(full.user, KeyMode::Test, &others.join(",")).await;
            entry.insert((weak, app.key_of(full.user, KeyMode::Test, &e.scope).await));
        }
        let (weak, test) = &keys[&e.scope];
        let path = e.at(full.brand, |_| MISSING_ID);
        let foreign = e.at(other.brand, |_| MISSING_ID);
        assert_rejected(&name, &wrong(&app, &e, &foreign).send().await, 401, "unauthorized");
        assert_rejected(&name, &wrong(&app, &e, &foreign).key(weak).send().await, 403, "insufficient_scope");
        let reply = wrong(&app, &e, &foreign).key(test).send().await;
        if e.needs_live_key {
            assert_rejected(&name, &reply, 403, "test_mode_write_forbidden");
        } else {
            assert_ne!(
                (reply.status, reply.json()["error"]["code"].as_str()),
                (403, Some("test_mode_write_forbidden"))
            );
        }
        if e.is_nested() {
            assert_rejected(&name, &wrong(&app, &e, &foreign).key(&full.key).send().await, 403, "brand_forbidden");
            let nowhere = e.at(MISSING_ID, |_| MISSING_ID);
            assert_rejected(&name, &wrong(&app, &e, &nowhere).key(&full.key).send().await, 403, "brand_forbidden");
        }
        if e.feature {
            let unpaid = e.at(bare.brand, |_| MISSING_ID);
            assert_rejected(&name, &wrong(&app, &e, &unpaid).key(&bare.key).send().await, 402, "feature_not_available");
        }
        assert_request_checks(&app, &full, &e, &path, &name).await;
    }
}

async fn assert_request_checks(app: &TestApp, caller: &Tenant<'_>, e: &DocumentedEndpoint, path: &str, name: &str) {
    if e.writes {
        assert_rejected(name, &wrong(app, e, path).key(&caller.key).send().await, 400, "idempotency_key_required");
        let reply = wrong(app, e, path).key(&caller.key).idempotency_key("a b").send().await;
        assert_rejected(name, &reply, 400, "idempotency_key_invalid");
    }
    if e.body.is_some() {
        assert_rejected(
            name,
            &wrong(app, e, path).key(&caller.key).idempotency_key("syntax").send().await,
            400,
            "invalid_json",
        );
        let wrong_type =
            wrong(app, e, path).header("content-type", "text/plain").key(&caller.key).idempotency_key("syntax");
        assert_rejected(name, &wrong_type.send().await, 415, "unsupported_media_type");
        if e.body_required {
            let empty = call(app, e, path).key(&caller.key).idempotency_key("syntax");
            assert_rejected(name, &empty.send().await, 400, "invalid_json");
        }
    }
    if !e.ids().is_empty() {
        let mut request = call(app, e, path).key(&caller.key).idempotency_key("nowhere");
        // A missing record is reported before invalid fields.
        if e.body.is_some() {
            request = request.raw(r#"{"url": 5, "content": 5, "reason": 5}"#);
        }
        assert_rejected(name, &request.send().await, 404, "not_found");
    }
}

#[track_caller]
fn assert_rejected(name: &str, reply: &Reply, status: u16, code: &str) {
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!(reply.status, status, "{name} should be rejected with {status} {code}: {text}");
    reply.expect_error(status, code);
    if status == 401 {
        assert_eq!(reply.header("www-authenticate"), Some("Bearer"), "{name}");
    }
}

/// A key with only the scope that an endpoint names is accepted.
async fn every_endpoint_accepts_its_documented_scope(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    let mut keys: BTreeMap<String, String> = BTreeMap::new();
    for e in all(&app).await {
        // The rate limits of the keys start again.
        app.clock.advance(TimeDelta::minutes(1));
        if let Entry::Vacant(entry) = keys.entry(e.scope.clone()) {
            entry.insert(app.key_of(owner.user, KeyMode::Live, &e.scope).await);
        }
        let key = &keys[&e.scope];
        let reply = app.request(&e.method, &e.at(owner.brand, |_| MISSING_ID)).key(key).send().await;
        assert!(![401, 402, 403, 405, 500].contains(&reply.status), "{} {}: {reply:?}", e.method, e.path);
    }
}

async fn a_wrong_method_returns_405_without_a_key(app: TestApp) {
    for (method, path, allow) in [
        ("PATCH", "/brands", "GET, HEAD, POST"),
        ("DELETE", "/brands", "GET, HEAD, POST"),
        ("PUT", "/brands/1/posts", "GET, HEAD, POST"),
        ("POST", "/brands/1/posts/1/status", "GET, HEAD"),
        ("DELETE", "/brands/1/social-accounts/platforms", "GET, HEAD"),
        ("GET", "/brands/1/posts/1/submit", "POST"),
        ("BREW", "/brands/1", "GET, HEAD"),
    ] {
        let reply = app.request(method, path).send().await;
        reply.expect_error(405, "method_not_allowed");
        assert_eq!(reply.header("allow"), Some(allow), "{method} {path}");
    }
}

async fn malformed_api_keys_are_rejected(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    let body = &owner.key["svc_live_".len()..];
    for bad in [
        "Bearer".to_owned(),
        "Basic dTpw".to_owned(),
        owner.key.clone(),
        format!("Bearer svc_test_{body}"),
        format!("Bearer {}x", owner.key),
        format!("Bearer svc_live_{}", "a".repeat(40)),
        format!("Bearer svc_live_{}!", &body[1..]),
    ] {
        let reply = app.request("GET", "/brands").header("authorization", &bad).send().await;
        reply.expect_error(401, "unauthorized");
    }
    for scheme in ["bearer", "BEARER"] {
        let value = format!("{scheme} {}", owner.key);
        app.request("GET", "/brands").header("authorization", &value).send().await.expect(200);
    }
}

async fn unknown_paths_return_not_found(app: TestApp) {
    let owner = app.tenant("unlimited").await;
    for path in ["", "/", "/nope", "/brands/1/nope", "/brands/1/posts/1/nope/x"] {
        app.request("GET", path).send().await.expect_error(404, "not_found");
    }
    for id in ["99999999999999999999", "9223372036854775808", "abc", "-1", "0", "1.5", "+1", "%20"] {
        owner.get(&owner.path(&format!("/posts/{id}"))).await.expect_error(404, "not_found");
        owner.get(&format!("/brands/{id}")).await.expect_error(404, "not_found");
        owner.delete(&format!("/webhooks/{id}")).await.expect_error(404, "not_found");
    }
    owner.get(&format!("/brands/{}", i64::MAX)).await.expect_error(403, "brand_forbidden");
}
