//! Responses that are too large to store under their `Idempotency-Key`. A replay renders them again.

use chrono::TimeDelta;
use crier_store::brands;
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps};

on_both_apps!("unlimited" =>
    large_responses_are_rendered_again_on_replay,
    small_responses_are_replayed_unchanged,
    replays_of_deleted_records_return_404,
    every_large_write_response_can_be_replayed,
    replays_of_large_responses_check_brand_access,
    post_lists_have_a_bounded_size,
);

/// The maximum stored size of a response, including the encryption overhead.
const MAX_STORED_BYTES: i64 = (64 << 10) + 256;

fn text() -> String {
    "x".repeat(60_000)
}

/// A request under one key that can be sent repeatedly.
struct RepeatableRequest<'a> {
    t: &'a Tenant<'a>,
    key: String,
    method: &'static str,
    path: String,
    body: Value,
}

impl<'a> RepeatableRequest<'a> {
    fn new(t: &'a Tenant<'a>, method: &'static str, path: String, body: Value) -> Self {
        Self { t, key: t.app.fresh_key(), method, path, body }
    }

    async fn send(&self) -> Reply {
        self.t
            .app
            .request(self.method, &self.path)
            .key(&self.t.key)
            .idempotency_key(&self.key)
            .json(&self.body)
            .send()
            .await
    }
}

async fn largest(app: &TestApp) -> i64 {
    app.number("SELECT CAST(coalesce(max(octet_length(response)), 0) AS BIGINT) FROM idempotency_keys").await
}

#[track_caller]
fn same(first: &Reply, again: &Reply) {
    assert!(first.status < 300 && !first.replayed() && again.replayed(), "{} {}", first.status, again.status);
    assert_eq!(first.status, again.status);
    assert!(first.body == again.body, "another body");
    assert_eq!(first.header("location"), again.header("location"));
}

fn id(reply: &Reply) -> i64 {
    reply.json()["data"]["id"].as_i64().expect("an id")
}

fn items(count: usize) -> Value {
    json!(vec![json!({ "title": "t", "content": text() }); count])
}

async fn large_responses_are_rendered_again_on_replay(t: Tenant<'_>) {
    let create =
        RepeatableRequest::new(&t, "POST", t.path("/content-plans"), json!({ "name": "Large", "items": items(15) }));
    let first = create.send().await;
    assert!(first.body.len() > 900_000);
    same(&first, &create.send().await);
    assert_eq!(t.app.count_rows("content_plans").await, 1);
    // A small change of a large plan.
    let path = t.path(&format!("/content-plans/{}", id(&first)));
    for n in 0..5 {
        let rename = RepeatableRequest::new(&t, "PUT", path.clone(), json!({ "name": format!("Name {n}") }));
        same(&rename.send().await, &rename.send().await);
    }
    assert_eq!(largest(t.app).await, 0, "only ids are stored");
    assert_eq!(t.app.count_rows("idempotency_keys WHERE records IS NOT NULL").await, 6);
    // A replay returns the current state.
    let again = create.send().await;
    assert!(again.replayed() && again.json()["data"]["name"] == "Name 4", "{}", again.status);
    let other = RepeatableRequest { body: json!({ "name": "Other" }), ..create };
    other.send().await.expect_error(409, "idempotency_key_reused");
    t.app.clock.advance(TimeDelta::hours(24));
    assert!(!other.send().await.replayed());
}

async fn small_responses_are_replayed_unchanged(t: Tenant<'_>) {
    let create =
        RepeatableRequest::new(&t, "POST", t.path("/content-plans"), json!({ "name": "Small", "items": items(1) }));
    let first = create.send().await;
    t.put(&t.path(&format!("/content-plans/{}", id(&first))), json!({ "name": "Other" })).await.expect(200);
    same(&first, &create.send().await);
    assert!((1..MAX_STORED_BYTES).contains(&largest(t.app).await));
    t.delete(&t.path(&format!("/content-plans/{}", id(&first)))).await.expect(204);
    same(&first, &create.send().await);
}

async fn replays_of_deleted_records_return_404(t: Tenant<'_>) {
    let plan =
        RepeatableRequest::new(&t, "POST", t.path("/content-plans"), json!({ "name": "Large", "items": items(3) }));
    let path = t.path(&format!("/content-plans/{}", id(&plan.send().await)));
    let bulk = RepeatableRequest::new(&t, "POST", format!("{path}/items/bulk"), json!({ "items": items(2) }));
    let created = bulk.send().await.data(201);
    let post = RepeatableRequest::new(&t, "POST", t.path("/posts"), json!({ "content": "\u{1f950}".repeat(30_000) }));
    let post_path = t.path(&format!("/posts/{}", id(&post.send().await)));
    t.delete(&post_path).await.expect(204);
    t.delete(&format!("{path}/items/{}", created[0]["id"])).await.expect(204);
    let left = bulk.send().await;
    assert!(left.replayed());
    assert_eq!(left.data(201), json!([created[1]]), "the remaining items");
    t.delete(&path).await.expect(204);
    for (once, rows) in
        [(&plan, "content_plans"), (&bulk, "content_plan_items"), (&post, "posts WHERE deleted_at IS NULL")]
    {
        let reply = once.send().await;
        let error = reply.expect_error(404, "not_found");
        assert!(reply.replayed() && error["message"].as_str().unwrap().contains("deleted since"), "{error}");
        assert_eq!(t.app.count_rows(rows).await, 0);
    }
}

async fn every_large_write_response_can_be_replayed(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let long = "\u{1f950}".repeat(30_000);
    let later = (t.app.now() + TimeDelta::hours(5)).to_rfc3339();
    let links: Vec<Value> = (0..100)
        .map(|n| json!({ "title": "t", "url": format!("https://example.com/{n}/{}", "p".repeat(2_000)) }))
        .collect();
    let send = async |method: &'static str, path: String, body: Value| {
        let once = RepeatableRequest::new(&t, method, path, body);
        let (first, again) = (once.send().await, once.send().await);
        assert!(
            first.body.len() > 64 << 10,
            "{method} {} is small: {:.300}",
            once.path,
            String::from_utf8_lossy(&first.body)
        );
        same(&first, &again);
        first.json()["data"].clone()
    };
    let post = send("POST", t.path("/posts"), json!({ "content": long })).await;
    let path = t.path(&format!("/posts/{}", post["id"]));
    let overrides = json!([{ "account_id": account, "content": "short" }]);
    send("PUT", path.clone(), json!({ "accounts": [account], "overrides": overrides })).await;
    send("PUT", path, json!({ "media": [] })).await;
    let body = json!({ "name": "P", "items": [{ "title": "t", "content": long, "planned_at": later }] });
    let plan = send("POST", t.path("/content-plans"), body).await;
    let path = t.path(&format!("/content-plans/{}", plan["id"]));
    let item = send("POST", format!("{path}/items"), json!({ "title": "t", "content": long })).await;
    send("PUT", format!("{path}/items/{}", item["id"]), json!({ "planned_at": later })).await;
    send("POST", format!("{path}/items/bulk"), json!({ "items": items(2) })).await;
    send("PUT", path.clone(), json!({ "name": "Q" })).await;
    let schedule = format!("{path}/items/{}/schedule", item["id"]);
    let created = send("POST", schedule, json!({ "destination": "draft" })).await;
    assert_eq!(created["plan_item_id"], item["id"]);
    let page = send("POST", t.path("/link-in-bio"), json!({ "title": "Links", "links": links })).await;
    send("PUT", t.path(&format!("/link-in-bio/{}", page["id"])), json!({ "theme": "dark" })).await;
    let note = json!({ "type": "note", "options": { "text": "ä".repeat(16 << 10) } });
    let report = send("POST", t.path("/reports"), json!({ "name": "R", "widgets": [note, note] })).await;
    send("PUT", t.path(&format!("/reports/{}", report["id"])), json!({ "name": "S" })).await;
    // The text for this platform is short, so that the post can be published.
    let body =
        json!({ "content": long, "accounts": [account], "overrides": [{ "account_id": account, "content": "short" }] });
    let draft = send("POST", t.path("/posts"), body).await;
    let path = t.path(&format!("/posts/{}", draft["id"]));
    for verb in ["submit", "reject", "submit", "approve"] {
        send("POST", format!("{path}/{verb}"), json!({})).await;
    }
    assert!(largest(t.app).await < MAX_STORED_BYTES);
}

async fn replays_of_large_responses_check_brand_access(t: Tenant<'_>) {
    let create =
        RepeatableRequest::new(&t, "POST", t.path("/content-plans"), json!({ "name": "Large", "items": items(3) }));
    create.send().await.expect(201);
    t.app.write(async |tx| brands::remove_member(tx, t.brand, t.user).await).await;
    create.send().await.expect_error(403, "brand_forbidden");
}

/// A control character is one byte of text and six bytes of JSON.
async fn post_lists_have_a_bounded_size(t: Tenant<'_>) {
    let mut created = Vec::new();
    for _ in 0..33 {
        created.push(t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201)["id"].clone());
    }
    t.app.sql(format!("UPDATE posts SET content = '{}'", "\u{1}".repeat(65_535))).await;
    created.reverse();
    for query in ["per_page=100", "per_page=30&status=draft", "per_page=21", ""] {
        let (mut next, mut listed) = (format!("{}/api/public/v1{}?{query}", t.app.url, t.path("/posts")), Vec::new());
        while !next.is_empty() {
            let reply = t.app.visit("GET", &next).key(&t.key).send().await;
            assert!(reply.body.len() < 3 << 20, "{next}: {}", reply.body.len());
            let page = reply.expect(200);
            assert_eq!(page["meta"]["from"], listed.len() + 1, "{next}");
            let posts = page["data"].as_array().expect("a list");
            assert!(posts.len() as i64 <= page["meta"]["per_page"].as_i64().expect("a number"), "{next}");
            listed.extend(posts.iter().map(|post| post["id"].clone()));
            next = page["links"]["next"].as_str().unwrap_or_default().to_owned();
        }
        assert_eq!(listed, created, "{query}");
    }
    let none = t.get(&t.path("/posts?per_page=100&status=failed")).await.expect(200);
    assert_eq!((&none["data"], &none["meta"]["per_page"]), (&json!([]), &json!(100)));
}
