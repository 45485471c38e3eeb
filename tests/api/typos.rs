//! Unknown fields and query parameters: typos are rejected; others are ignored and listed in the response.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::checks;
use super::tenancy::TenantRecords;
use crate::support::app::{Reply, Tenant, on_one_app, on_sqlite_app};
use crate::support::document::resolve;
use crate::support::images;

on_one_app!("unlimited" =>
    a_typo_never_publishes,
    every_endpoint_rejects_typos_in_its_body,
    a_replay_names_the_same_ignored_fields,
    only_validation_reports_an_expired_account,
    publishing_now_rejects_a_future_time,
);

on_sqlite_app!("unlimited" =>
    every_endpoint_rejects_typos_in_its_query,
    typos_are_reported_with_the_other_problems,
    ignored_names_are_listed,
    a_wrong_part_of_a_form_is_named,
    a_body_full_of_unknown_names_gets_a_response,
);

fn ignored(reply: &Reply) -> &str {
    reply.header("crier-ignored-fields").unwrap_or_default()
}

async fn a_typo_never_publishes(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let body = |name: &str, value: Value| {
        let mut body = json!({ "content": "x", "schedule_type": "now", "accounts": [account] });
        body[name] = value;
        body
    };
    for (name, meant) in [
        ("media_ids", "media"),
        ("account_ids", "accounts"),
        ("text", "content"),
        ("sheduled_at", "scheduled_at"),
        ("scheduledAt", "scheduled_at"),
        ("schedule_typ", "schedule_type"),
        ("overides", "overrides"),
    ] {
        let error = t.post(&t.path("/posts"), body(name, json!(1))).await.expect_error(422, "validation_failed");
        let problem = format!("Unknown field; did you mean `{meant}`?");
        assert_eq!(error["fields"], json!({ name: [problem] }));
        let validated = t.post(&t.path("/posts/validate"), body(name, json!(1))).await;
        assert_eq!(validated.invalid_fields(), [name]);
    }
    let option = json!([{ "account_id": account, "options": { "visibilty": "private" } }]);
    let rejected = t.post(&t.path("/posts"), body("overrides", option)).await;
    assert_eq!(rejected.invalid_fields(), ["overrides.0.options.visibilty"]);
    assert_eq!(t.app.count_rows("posts").await, 0);

    let draft = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201);
    let path = t.path(&format!("/posts/{}", draft["id"]));
    assert_eq!(
        t.put(&path, json!({ "schedule_type": "now", "account": account })).await.invalid_fields()[0],
        "account"
    );
    assert_eq!(t.get(&path).await.data(200), draft);
}

/// Returns the example with its first field twice, the second time in capitals, and the name of that field.
fn with_typo(example: &Value) -> Option<(Value, String)> {
    let (name, value) = example.as_object()?.iter().next()?;
    let typo = name.to_uppercase();
    let mut body = example.clone();
    body[&typo] = value.clone();
    Some((body, typo))
}

async fn every_endpoint_rejects_typos_in_its_body(t: Tenant<'_>) {
    let records = TenantRecords::of(&t).await;
    let mut rejected = 0;
    for e in checks::all(t.app).await {
        t.app.clock.advance(TimeDelta::minutes(1));
        let Some((body, typo)) = e.body.as_ref().and_then(with_typo) else { continue };
        let path = e.at(t.brand, |name| records.id(&e.path, name));
        let reply = t.request(&e.method, &path).json(&body).send().await;
        let fields = reply.invalid_fields();
        assert!(fields.contains(&typo), "{} {}: {fields:?}", e.method, e.path);
        rejected += 1;
    }
    assert!(rejected > 25, "{rejected}");
}

async fn every_endpoint_rejects_typos_in_its_query(t: Tenant<'_>) {
    let records = TenantRecords::of(&t).await;
    let document = t.get("/openapi.json").await.json();
    let mut rejected = 0;
    for e in checks::all(t.app).await {
        let parameters = &document["paths"][&e.path][e.method.to_lowercase()]["parameters"];
        let parameters = parameters.as_array().unwrap().iter().map(|p| resolve(&document, p));
        let names = parameters.filter(|p| p["in"] == "query").map(|p| p["name"].as_str());
        for name in names.flatten() {
            t.app.clock.advance(TimeDelta::minutes(1));
            let typo = name.to_uppercase();
            let path = format!("{}?{typo}=1&page=0", e.at(t.brand, |id| records.id(&e.path, id)));
            let fields = t.request(&e.method, &path).send().await.invalid_fields();
            assert!(fields.contains(&typo), "{path}: {fields:?}");
            rejected += 1;
        }
    }
    assert!(rejected > 20, "{rejected}");
}

async fn typos_are_reported_with_the_other_problems(t: Tenant<'_>) {
    let body = json!({ "contnet": "x", "schedule_type": "later", "accounts": "x", "nope": 1 });
    let reply = t.post(&t.path("/posts"), body).await;
    assert_eq!(reply.invalid_fields(), ["accounts", "content", "contnet", "schedule_type"]);
    assert_eq!(ignored(&reply), "nope");
    let reply = t.get(&t.path("/posts?pgae=2&per_page=x&status=nope&nope=1")).await;
    assert_eq!(reply.invalid_fields(), ["per_page", "pgae", "status"]);
    assert_eq!(ignored(&reply), "nope");
    // A missing record is reported before a typo.
    t.put(&t.path("/posts/999999"), json!({ "contnet": "x" })).await.expect_error(404, "not_found");
    // A typo is reported before a conflicting state.
    let hook = json!({ "url": "https://8.8.8.8/", "events": ["post.failed"], "is_activ": false });
    assert_eq!(t.post("/webhooks", hook).await.invalid_fields(), ["is_activ"]);
    assert_eq!(t.get("/webhooks").await.data(200), json!([]));
}

async fn ignored_names_are_listed(t: Tenant<'_>) {
    let body = json!({ "name": "Known", "nope": { "a": [1] }, "id": 7_777_777, "x\r\ny": 1, "color": "red" });
    let reply = t.post("/brands?utm_source=mail", body).await;
    let created = reply.data(201);
    assert!(created.get("nope").is_none() && created["id"] != 7_777_777);
    assert_eq!(ignored(&reply), "utm_source, nope, id, x%0D%0Ay, color");
    assert_eq!(ignored(&t.post("/brands", json!({ "name": "Known" })).await), "");
    let reply = t.get(&t.path("/posts?utm_source=mail&page=1")).await;
    reply.expect(200);
    assert_eq!(ignored(&reply), "utm_source");
    // The record from a response can be sent back unchanged.
    let mut post = t.post(&t.path("/posts"), json!({ "content": "x" })).await.data(201);
    let path = t.path(&format!("/posts/{}", post["id"]));
    post["content"] = json!("y");
    let reply = t.put(&path, post).await;
    assert_eq!(reply.data(200)["content"], "y");
    let read_only = "id, status, published_at, queued, recurring_id, external_ref, error, targets, author, \
         reject_reason, created_at, updated_at";
    assert_eq!(ignored(&reply), read_only);
    let many: Value = (0..500).map(|n| (format!("nope{n}"), json!(n))).collect::<serde_json::Map<_, _>>().into();
    let reply = t.put(&path, many).await;
    reply.expect(200);
    assert!(ignored(&reply).starts_with("nope0, nope1, ") && ignored(&reply).ends_with(", ..."), "{}", ignored(&reply));
}

async fn a_replay_names_the_same_ignored_fields(t: Tenant<'_>) {
    let send = async || {
        let body = json!({ "name": "Once", "nope": 1 });
        t.app.request("POST", "/brands").key(&t.key).idempotency_key("once").json(&body).send().await
    };
    let (first, again) = (send().await, send().await);
    assert!(!first.replayed() && again.replayed());
    assert_eq!((ignored(&first), ignored(&again)), ("nope", "nope"));
}

async fn publishing_now_rejects_a_future_time(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let at = |hours: i64| (t.app.now() + TimeDelta::hours(hours)).to_rfc3339();
    let body =
        |time: String| json!({ "content": "x", "schedule_type": "now", "scheduled_at": time, "accounts": [account] });
    for path in ["/posts", "/posts/validate"] {
        assert_eq!(t.post(&t.path(path), body(at(2))).await.invalid_fields(), ["scheduled_at"], "{path}");
    }
    assert_eq!(t.app.count_rows("posts").await, 0);
    let past = t.post(&t.path("/posts"), body(at(-2))).await;
    assert_eq!((past.data(201)["status"].as_str(), ignored(&past)), (Some("publishing"), "scheduled_at"));
    let draft = json!({ "content": "x", "accounts": [account], "scheduled_at": at(5) });
    let path = t.path(&format!("/posts/{}", t.post(&t.path("/posts"), draft).await.data(201)["id"]));
    let now = json!({ "schedule_type": "now", "scheduled_at": at(5) });
    assert_eq!(t.put(&path, now).await.invalid_fields(), ["scheduled_at"]);
    // A time that only the stored draft has is not an error.
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.data(200)["status"], "publishing");
}

async fn only_validation_reports_an_expired_account(t: Tenant<'_>) {
    let (good, bad) = (t.account("good").await, t.account("bad").await);
    t.app.expire_account(bad).await;
    for (schedule_type, status) in [("now", "publishing"), ("scheduled", "scheduled")] {
        let at = (t.app.now() + TimeDelta::hours(2)).to_rfc3339();
        let at = (schedule_type == "scheduled").then_some(at);
        let body =
            json!({ "content": "x", "schedule_type": schedule_type, "scheduled_at": at, "accounts": [good, bad] });
        let validated = t.post(&t.path("/posts/validate"), body.clone()).await.data(200);
        let problem = &validated["targets"][1]["problems"][0];
        assert_eq!((&validated["valid"], &validated["targets"][0]["problems"]), (&json!(false), &json!([])));
        assert_eq!((&problem["field"], &problem["code"]), (&json!("accounts.1"), &json!("account_expired")));
        assert!(problem["message"].as_str().unwrap().contains("Refresh or reconnect"), "{problem}");
        assert_eq!(t.post(&t.path("/posts"), body).await.data(201)["status"], status);
    }
}

async fn a_wrong_part_of_a_form_is_named(t: Tenant<'_>) {
    let png = images::png(3, 2);
    let send = async |parts: &[(&str, Option<&str>, &[u8])]| {
        let mut body = Vec::new();
        for (name, file, bytes) in parts {
            let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
            body.extend(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"{file}\r\n\r\n").into_bytes());
            body.extend([*bytes, b"\r\n"].concat());
        }
        body.extend(b"--b--\r\n");
        let request = t.request("POST", &t.path("/media")).raw(body);
        request.header("content-type", "multipart/form-data; boundary=b").send().await
    };
    let reply = send(&[("image", Some("a.png"), &png), ("alt_text", None, b"Bread")]).await;
    let error = reply.expect_error(422, "validation_failed");
    assert_eq!(error["fields"]["image"], json!(["Unknown part; did you mean `file`?"]));
    let expected =
        "The form has no part with this name. It has `image` (a file), `alt_text`. Send the image or video as `file`.";
    assert_eq!(error["fields"]["file"], json!([expected]));
    let reply = send(&[("alt_txt", None, b"Bread"), ("nope", Some("b"), b"x"), ("file", Some("a.png"), &png)]).await;
    assert_eq!((reply.invalid_fields(), ignored(&reply)), (vec!["alt_txt".to_owned()], "nope"));
    assert_eq!(send(&[]).await.invalid_fields(), ["file"]);
    let long = "x".repeat(10_000);
    let reply = send(&[(&long, Some("a"), b"x"), ("file", None, b"")]).await;
    assert!(reply.body.len() < 2_000, "{}", reply.body.len());
    assert_eq!(t.app.count_rows("media").await, 0);
    let reply = send(&[("file", Some("a.png"), &png), ("color", None, b"red")]).await;
    reply.expect(201);
    assert_eq!(ignored(&reply), "color");
}

async fn a_body_full_of_unknown_names_gets_a_response(t: Tenant<'_>) {
    // Anagrams pass the quick checks and are compared in full.
    let anagram = |n: usize| {
        let (mut left, mut n) = ("scheduled_at".chars().collect::<Vec<char>>(), n * 25_000 + 7);
        let mut name = String::new();
        while !left.is_empty() {
            name.push(left.remove(n % left.len()));
            n /= left.len() + 1;
        }
        name
    };
    let body: serde_json::Map<String, Value> = (0..19_000).map(|n| (anagram(n), json!(0))).collect();
    let reply = t.post(&t.path("/posts/validate"), body.into()).await;
    // One of them is two edits away from the name.
    assert_eq!(reply.invalid_fields(), ["content", "escheduld_at"]);
    assert!(ignored(&reply).len() < 1_100);
}
