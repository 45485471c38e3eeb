//! `Idempotency-Key`: one request, one effect, however often it is sent.

use serde_json::json;

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps};
use crate::support::store::{lock_table, run_concurrently};

on_both_apps!(concurrent_requests_with_one_key_run_once);
on_both_apps!("unlimited" =>
    a_repeated_request_is_replayed,
    reusing_a_key_for_another_request_is_rejected,
    a_rejected_request_releases_its_key,
    a_request_sent_again_while_it_runs_is_in_progress,
    malformed_idempotency_keys_are_rejected,
    a_key_is_locked_during_a_platform_call,
    a_panic_releases_the_key,
);

async fn count_brands_named(t: &Tenant<'_>, name: &str) -> usize {
    let brands = t.get("/brands").await.data(200);
    brands.as_array().unwrap().iter().filter(|b| b["name"] == name).count()
}

#[track_caller]
fn same(first: &Reply, again: &Reply) {
    assert!(first.status < 300 && !first.replayed() && again.replayed(), "{first:?}\n{again:?}");
    assert_eq!((first.status, &first.body), (again.status, &again.body));
    assert_eq!(first.header("location"), again.header("location"));
    assert_ne!(first.header("x-request-id"), again.header("x-request-id"));
}

async fn a_repeated_request_is_replayed(t: Tenant<'_>) {
    let send = async |method: &str, path: &str, body: Option<serde_json::Value>, key: &str| {
        let request = t.app.request(method, path).key(&t.key).idempotency_key(key);
        match body {
            Some(body) => request.json(&body).send().await,
            None => request.send().await,
        }
    };
    let body = Some(json!({ "name": "Once" }));
    let first = send("POST", "/brands", body.clone(), "one").await;
    same(&first, &send("POST", "/brands", body, "one").await);
    assert_eq!(count_brands_named(&t, "Once").await, 1);
    assert_eq!(
        first.header("location"),
        Some(format!("/api/public/v1/brands/{}", first.json()["data"]["id"]).as_str())
    );

    let post = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201)["id"].as_i64().unwrap();
    let path = t.path(&format!("/posts/{post}"));
    let first = send("PUT", &path, Some(json!({ "content": "y" })), "two").await;
    same(&first, &send("PUT", &path, Some(json!({ "content": "y" })), "two").await);
    let first = send("DELETE", &path, None, "three").await;
    same(&first, &send("DELETE", &path, None, "three").await);
    assert_eq!((first.status, first.body.len()), (204, 0));
    t.delete(&path).await.expect_error(404, "not_found");
}

async fn reusing_a_key_for_another_request_is_rejected(t: Tenant<'_>) {
    let path = t.path("/posts");
    let send = async |method: &str, path: &str, body: &str| {
        t.app.request(method, path).key(&t.key).idempotency_key("k").raw(body).send().await
    };
    let created = send("POST", &path, r#"{"content":"x"}"#).await.data(201);
    let own = format!("{path}/{}", created["id"]);
    for (method, path, body) in [
        ("POST", path.as_str(), r#"{"content":"y"}"#),
        ("POST", path.as_str(), r#"{"content": "x"}"#),
        ("POST", path.as_str(), "{not json"),
        ("POST", &format!("{path}?x=1"), r#"{"content":"x"}"#),
        ("POST", "/brands", r#"{"content":"x"}"#),
        ("PUT", &own, r#"{"content":"x"}"#),
        ("DELETE", &own, ""),
    ] {
        send(method, path, body).await.expect_error(409, "idempotency_key_reused");
    }
    assert_eq!(t.get(&own).await.data(200)["content"], "x");
}

async fn a_rejected_request_releases_its_key(t: Tenant<'_>) {
    let send = async |path: &str, body: &str| {
        t.app.request("POST", path).key(&t.key).idempotency_key("k").raw(body).send().await
    };
    send("/brands", "{}").await.expect_error(422, "validation_failed");
    send("/brands", "{").await.expect_error(400, "invalid_json");
    send(&t.path("/posts/999999/submit"), "").await.expect_error(404, "not_found");
    let rejected = r#"{"platform":"sandbox","credentials":{"handle":"refused"}}"#;
    send(&t.path("/social-accounts"), rejected).await.expect_error(422, "invalid_credentials");
    let first = send("/brands", r#"{"name":"Freed"}"#).await;
    same(&first, &send("/brands", r#"{"name":"Freed"}"#).await);
}

/// The plan has room for one more brand. A request that another process already carried out must return that brand, and
/// not the error that the cap is reached.
async fn concurrent_requests_with_one_key_run_once(app: TestApp) {
    let t = app.tenant("pro").await;
    for _ in 0..3 {
        t.post("/brands", json!({ "name": "B" })).await.expect(201);
    }
    let urls = [app.url.clone(), app.replica().await];
    let replies = run_concurrently(30, |n| {
        let (url, key) = (format!("{}/api/public/v1/brands", urls[n % 2]), t.key.clone());
        async move {
            let http = crier_http::HttpClient::trusted(std::time::Duration::from_secs(30), 1 << 20);
            let request = http.request(http::Method::POST, &url).bearer_auth(key).header("idempotency-key", "k");
            let response = http.send(request.json(&json!({ "name": "Fifth" }))).await.expect("a response");
            Reply { status: response.status.as_u16(), headers: response.headers, body: response.body.to_vec() }
        }
    })
    .await;
    assert_eq!(count_brands_named(&t, "Fifth").await, 1);
    let (created, waiting): (Vec<_>, Vec<_>) = replies.iter().partition(|r| r.status == 201);
    assert_eq!(created.iter().filter(|r| !r.replayed()).count(), 1);
    assert!(created.iter().all(|r| r.body == created[0].body));
    for reply in waiting {
        reply.expect_error(409, "idempotency_in_progress");
        assert_eq!(reply.header("retry-after"), Some("1"));
    }
}

async fn a_request_sent_again_while_it_runs_is_in_progress(t: Tenant<'_>) {
    let path = t.path("/posts");
    let send = || t.app.request("POST", &path).key(&t.key).idempotency_key("k").json(&json!({ "content": "x" })).send();
    let mut tx = t.app.begin().await.unwrap();
    if t.app.is_postgres() {
        lock_table(&mut tx, "posts").await;
    }
    let (rejected, running) = futures::future::select(Box::pin(send()), Box::pin(send())).await.factor_first();
    rejected.expect_error(409, "idempotency_in_progress");
    drop(tx);
    same(&running.await, &send().await);
}

async fn malformed_idempotency_keys_are_rejected(t: Tenant<'_>) {
    let send = async |key: &str| {
        t.app.request("POST", "/brands").key(&t.key).idempotency_key(key).json(&json!({ "name": "K" })).send().await
    };
    for key in ["~", "!", &"k".repeat(255)] {
        send(key).await.expect(201);
    }
    for key in ["a b", "a\tb", &"k".repeat(256), &"k".repeat(4000)] {
        send(key).await.expect_error(400, "idempotency_key_invalid");
    }
    send("").await.expect_error(400, "idempotency_key_required");
}

async fn a_key_is_locked_during_a_platform_call(t: Tenant<'_>) {
    let path = t.path("/social-accounts");
    let body = json!({ "platform": "sandbox", "credentials": { "handle": "waits" } });
    let send = || t.app.request("POST", &path).key(&t.key).idempotency_key("k").json(&body).send();
    let second = async {
        t.app.connector.waiting.acquire().await.expect("the first one waits").forget();
        let reply = send().await;
        t.app.connector.go.add_permits(1);
        reply
    };
    let (first, second) = tokio::join!(send(), second);
    second.expect_error(409, "idempotency_in_progress");
    assert_eq!(second.header("retry-after"), Some("1"));
    same(&first, &send().await);
    assert_eq!(t.app.connector.connects.load(std::sync::atomic::Ordering::SeqCst), 1);
}

async fn a_panic_releases_the_key(t: Tenant<'_>) {
    let path = t.path("/social-accounts");
    let send = async |handle: &str| {
        let body = json!({ "platform": "sandbox", "credentials": { "handle": handle } });
        t.app.request("POST", &path).key(&t.key).idempotency_key("k").json(&body).send().await
    };
    let error = send("panics").await.expect_error(500, "internal_error");
    assert!(!error["message"].as_str().unwrap().contains("panic"));
    // A separate task ends the lease. Until then, the key is in use.
    for _ in 0..1_000 {
        let reply = send("fine").await;
        if reply.status == 201 {
            return;
        }
        assert_eq!(reply.status, 409, "{reply:?}");
        tokio::task::yield_now().await;
    }
    panic!("the key was not released");
}
