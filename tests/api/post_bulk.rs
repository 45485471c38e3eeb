//! Bulk changes of posts.

use chrono::TimeDelta;
use crier_domain::access::Role;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(
    each_post_is_changed_as_by_its_own_endpoint,
    a_rejected_post_does_not_undo_the_others,
    a_change_that_exceeds_the_cap_is_undone,
    a_repeated_request_changes_nothing_again,
    concurrent_requests_do_not_block_each_other,
);
on_one_app!(
    labels_are_added_and_removed,
    roles_are_those_of_the_single_endpoints,
    posts_of_others_are_not_found,
    invalid_requests_are_reported,
);

fn hours(app: &TestApp, n: i64) -> String {
    (app.now() + TimeDelta::hours(n)).format("%FT%TZ").to_string()
}

async fn create(t: &Tenant<'_>, body: Value) -> i64 {
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

async fn drafts(t: &Tenant<'_>, account: i64, n: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for _ in 0..n {
        ids.push(create(t, json!({ "content": "x", "accounts": [account] })).await);
    }
    ids
}

async fn bulk(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/posts/bulk"), body).await
}

/// Changes posts, and returns for each of them `done` or the code of its error.
async fn outcomes(t: &Tenant<'_>, ids: &[i64], action: &str, more: Value) -> Vec<String> {
    let mut body = json!({ "ids": ids, "action": action });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let results = bulk(t, body).await.data(200);
    let results = results.as_array().unwrap();
    assert_eq!(results.iter().map(|result| result["id"].as_i64().unwrap()).collect::<Vec<_>>(), ids);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let outcome = |result: &Value| match result["error"].is_null() {
        true => text(&result["outcome"]),
        false => {
            assert_eq!(result["outcome"], "refused");
            text(&result["error"]["code"])
        }
    };
    results.iter().map(outcome).collect()
}

async fn post(t: &Tenant<'_>, id: i64) -> Value {
    t.get(&t.path(&format!("/posts/{id}"))).await.data(200)
}

async fn each_post_is_changed_as_by_its_own_endpoint(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    app.delete_jobs().await;
    let ids = drafts(&t, account, 3).await;
    let done = ["done", "done", "done"];
    let reversed = [ids[2], ids[0], ids[1]];
    assert_eq!(outcomes(&t, &reversed, "schedule", json!({ "scheduled_at": hours(&app, 2) })).await, done);
    for id in &ids {
        let found = post(&t, *id).await;
        assert_eq!((&found["status"], &found["scheduled_at"]), (&json!("scheduled"), &json!(hours(&app, 2))));
    }
    assert_eq!(app.count_rows("jobs WHERE state = 'scheduled'").await, 3);
    assert_eq!(outcomes(&t, &ids, "shift", json!({ "shift_minutes": -60 })).await, done);
    assert_eq!(post(&t, ids[1]).await["scheduled_at"], hours(&app, 1));
    assert_eq!(outcomes(&t, &ids, "draft", json!({})).await, done);
    assert_eq!(app.count_rows("jobs WHERE state = 'scheduled'").await, 0);
    assert_eq!(outcomes(&t, &ids, "submit", json!({})).await, done);
    assert_eq!(post(&t, ids[0]).await["status"], "pending_approval");
    assert_eq!(outcomes(&t, &ids[..1], "reject", json!({})).await, ["done"]);
    assert_eq!(post(&t, ids[0]).await["status"], "draft");
    app.notifier.take();
    // The time of the post is used, if there is one.
    t.put(&t.path(&format!("/posts/{}", ids[2])), json!({ "scheduled_at": null })).await.expect(200);
    assert_eq!(outcomes(&t, &ids[1..], "approve", json!({})).await, ["done", "done"]);
    assert_eq!(post(&t, ids[1]).await["status"], "scheduled");
    assert_eq!(post(&t, ids[2]).await["status"], "publishing");
    assert_eq!(app.notifier.take().len(), 1);
    assert_eq!(outcomes(&t, &ids[..1], "schedule", json!({})).await, ["done"]);
    assert_eq!(outcomes(&t, &ids, "delete", json!({})).await, done);
    assert_eq!(t.get(&t.path("/posts")).await.data(200), json!([]));
    assert_eq!(app.count_rows("jobs WHERE state IN ('scheduled', 'ready')").await, 0);
}

async fn a_rejected_post_does_not_undo_the_others(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let good = drafts(&t, account, 2).await;
    let without_accounts = create(&t, json!({ "content": "x" })).await;
    let published = drafts(&t, account, 1).await[0];
    app.end_post(published, "published", &["published"]).await;
    let ids = [good[1], without_accounts, MISSING_ID, published, good[0]];
    let body = json!({ "ids": ids, "action": "schedule", "scheduled_at": hours(&app, 2) });
    let reply = bulk(&t, body).await;
    let results = reply.data(200);
    assert_eq!(results[0], json!({ "id": good[1], "outcome": "done", "error": null }));
    let codes = [1_usize, 2, 3].map(|n| results[n]["error"]["code"].clone());
    assert_eq!(codes, ["validation_failed", "not_found", "post_not_editable"]);
    // The error is that of the post's own endpoint.
    let at = json!({ "schedule_type": "scheduled", "scheduled_at": hours(&app, 2) });
    let own = t.put(&t.path(&format!("/posts/{without_accounts}")), at).await;
    let mut expected = own.expect_error(422, "validation_failed");
    expected["request_id"] = json!(reply.header("x-request-id"));
    assert_eq!(results[1]["error"], expected);
    assert!(expected["fields"]["accounts"].is_array(), "{expected}");
    assert_eq!(post(&t, good[0]).await["status"], "scheduled");
    assert_eq!(post(&t, without_accounts).await["status"], "draft");
    let again = outcomes(&t, &ids, "shift", json!({ "shift_minutes": -600 })).await;
    let expected = ["validation_failed", "validation_failed", "not_found", "validation_failed", "validation_failed"];
    assert_eq!(again, expected, "in the past, or without a time");
    assert_eq!(
        outcomes(&t, &ids[1..4], "approve", json!({})).await,
        ["post_not_pending", "not_found", "post_not_pending"]
    );
    assert_eq!(outcomes(&t, &ids[3..], "submit", json!({})).await, ["post_not_submittable", "post_not_submittable"]);
}

/// The posts that exceed the cap are rejected after their jobs were written.
async fn a_change_that_exceeds_the_cap_is_undone(app: TestApp) {
    let t = app.tenant("business").await;
    let account = t.account("demo").await;
    let ids = drafts(&t, account, 4).await;
    app.delete_jobs().await;
    app.set_used_posts(t.workspace, 20_000 - 2).await;
    let found = outcomes(&t, &ids, "schedule", json!({ "scheduled_at": hours(&app, 2) })).await;
    assert_eq!(found, ["done", "done", "limit_reached", "limit_reached"]);
    assert_eq!(app.used_posts(t.workspace).await, 20_000);
    assert_eq!(app.count_rows("jobs").await, 2);
    for (id, status) in ids.iter().zip(["scheduled", "scheduled", "draft", "draft"]) {
        let found = post(&t, *id).await;
        assert_eq!((&found["status"], found["scheduled_at"].is_null()), (&json!(status), status == "draft"));
    }
}

async fn a_repeated_request_changes_nothing_again(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let ids = drafts(&t, account, 2).await;
    outcomes(&t, &ids, "schedule", json!({ "scheduled_at": hours(&app, 5) })).await;
    let body = json!({ "ids": [ids[0], MISSING_ID, ids[1]], "action": "shift", "shift_minutes": 60 });
    let path = t.path("/posts/bulk");
    let send = async || app.request("POST", &path).key(&t.key).idempotency_key("once").json(&body).send().await;
    let (first, again) = (send().await, send().await);
    assert!(!first.replayed() && again.replayed());
    assert_eq!(first.data(200), again.data(200));
    for id in ids {
        assert_eq!(post(&t, id).await["scheduled_at"], hours(&app, 6));
    }
    let test = app.key_of(t.user, crier_domain::access::KeyMode::Test, "all").await;
    let reply = app.request("POST", &path).key(&test).idempotency_key("test").json(&body).send().await;
    reply.expect_error(403, "test_mode_write_forbidden");
}

async fn concurrent_requests_do_not_block_each_other(app: TestApp) {
    let t = app.tenant("business").await;
    let account = t.account("demo").await;
    let ids = drafts(&t, account, 10).await;
    let mut reversed = ids.clone();
    reversed.reverse();
    outcomes(&t, &ids, "schedule", json!({ "scheduled_at": hours(&app, 50) })).await;
    let shift = |n: usize| {
        let (t, ids) = (&t, if n.is_multiple_of(2) { &ids } else { &reversed });
        async move { outcomes(t, ids, "shift", json!({ "shift_minutes": 60 })).await }
    };
    for found in join_all((0..6).map(shift)).await {
        assert!(found.iter().all(|outcome| outcome == "done"), "{found:?}");
    }
    for id in ids {
        assert_eq!(post(&t, id).await["scheduled_at"], hours(&app, 56));
    }
}

async fn labels_are_added_and_removed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let full: Vec<String> = (0..10).map(|n| n.to_string()).collect();
    let one = create(&t, json!({ "content": "x", "labels": ["a"] })).await;
    let two = create(&t, json!({ "content": "x", "labels": full })).await;
    let three = create(&t, json!({ "content": "x" })).await;
    let ids = [one, two, three];
    let label = |label: &str| json!({ "label": label });
    assert_eq!(outcomes(&t, &ids, "label", label(" b ")).await, ["done", "validation_failed", "done"]);
    assert_eq!(outcomes(&t, &ids, "label", label("b")).await, ["done", "validation_failed", "done"]);
    assert_eq!(outcomes(&t, &ids[1..2], "label", label("5")).await, ["done"], "it has the label");
    let labels = async |id: i64| post(&t, id).await["labels"].clone();
    assert_eq!((labels(one).await, labels(three).await), (json!(["a", "b"]), json!(["b"])));
    assert_eq!(labels(two).await, json!(full));
    assert_eq!(outcomes(&t, &ids, "unlabel", label("b")).await, ["done", "done", "done"]);
    assert_eq!((labels(one).await, labels(three).await), (json!(["a"]), json!([])));
    assert_eq!(labels(two).await, json!(full));
}

async fn roles_are_those_of_the_single_endpoints(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let (contributor, editor) = (t.colleague(Role::Contributor).await, t.colleague(Role::Editor).await);
    let ids = drafts(&contributor, account, 2).await;
    let forbidden = ["insufficient_scope", "insufficient_scope"];
    let at = json!({ "scheduled_at": hours(&app, 2) });
    assert_eq!(outcomes(&contributor, &ids, "schedule", at.clone()).await, forbidden);
    assert_eq!(outcomes(&contributor, &ids, "label", json!({ "label": "a" })).await, ["done", "done"]);
    assert_eq!(outcomes(&contributor, &ids, "submit", json!({})).await, ["done", "done"]);
    assert_eq!(outcomes(&contributor, &ids, "label", json!({ "label": "b" })).await, forbidden);
    for action in ["approve", "reject"] {
        assert_eq!(outcomes(&contributor, &ids, action, json!({})).await, forbidden);
        assert_eq!(outcomes(&editor, &ids, action, json!({})).await, forbidden);
    }
    assert_eq!(outcomes(&t, &ids[..1], "reject", json!({})).await, ["done"]);
    assert_eq!(outcomes(&editor, &ids[..1], "schedule", at).await, ["done"]);
    assert_eq!(outcomes(&contributor, &ids, "delete", json!({})).await, ["insufficient_scope", "done"]);
    let pro = app.tenant("pro").await;
    let id = create(&pro, json!({ "content": "x" })).await;
    for action in ["submit", "approve", "reject"] {
        let reply = bulk(&pro, json!({ "ids": [id], "action": action })).await;
        reply.expect_error(402, "feature_not_available");
    }
    assert_eq!(outcomes(&pro, &[id], "draft", json!({})).await, ["done"]);
}

async fn posts_of_others_are_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let foreign = create(&other, json!({ "content": "x" })).await;
    let deleted = create(&t, json!({ "content": "x" })).await;
    t.delete(&t.path(&format!("/posts/{deleted}"))).await.expect(204);
    let second = t.post("/brands", json!({ "name": "Second" })).await.data(201)["id"].clone();
    let elsewhere = t.post(&format!("/brands/{second}/posts"), json!({ "content": "x" })).await.data(201);
    let ids = [foreign, deleted, elsewhere["id"].as_i64().unwrap()];
    for (action, more) in [("delete", json!({})), ("label", json!({ "label": "a" }))] {
        assert_eq!(outcomes(&t, &ids, action, more).await, ["not_found", "not_found", "not_found"]);
    }
    let body = json!({ "ids": [foreign], "action": "delete" });
    t.post(&other.path("/posts/bulk"), body).await.expect_error(403, "brand_forbidden");
    assert_eq!(post(&other, foreign).await["labels"], json!([]));
}

async fn invalid_requests_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let id = create(&t, json!({ "content": "x" })).await;
    let many: Vec<i64> = (1..=101).collect();
    for (body, wrong) in [
        (json!({}), vec!["action", "ids"]),
        (json!({ "ids": [], "action": "delete" }), vec!["ids"]),
        (json!({ "ids": many, "action": "delete" }), vec!["ids"]),
        (json!({ "ids": [id, id], "action": "delete" }), vec!["ids.1"]),
        (json!({ "ids": ["x"], "action": "delete" }), vec!["ids.0"]),
        (json!({ "ids": [id], "action": "publish" }), vec!["action"]),
        (json!({ "ids": [id], "action": "shift" }), vec!["shift_minutes"]),
        (json!({ "ids": [id], "action": "shift", "shift_minutes": 1.5 }), vec!["shift_minutes"]),
        (json!({ "ids": [id], "action": "shift", "shift_minutes": i64::MAX }), vec!["shift_minutes"]),
        (json!({ "ids": [id], "action": "label" }), vec!["label"]),
        (json!({ "ids": [id], "action": "unlabel", "label": " " }), vec!["label"]),
        (json!({ "ids": [id], "action": "label", "label": "x".repeat(41) }), vec!["label"]),
        (json!({ "ids": [id], "action": "schedule", "scheduled_at": "soon" }), vec!["scheduled_at"]),
        (json!({ "ids": [id], "action": "delete", "label": "a", "shift_minutes": 5 }), vec!["label", "shift_minutes"]),
        (
            json!({ "ids": [id], "action": "shift", "shift_minutes": 5, "scheduled_at": hours(&app, 1) }),
            vec!["scheduled_at"],
        ),
        (json!({ "post_ids": [id], "action": "delete" }), vec!["ids", "post_ids"]),
    ] {
        assert_eq!(bulk(&t, body.clone()).await.invalid_fields(), wrong, "{body}");
    }
    let now = app.now().to_rfc3339();
    app.sql(format!(
        "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 2001) \
         INSERT INTO post_targets (post_id, account_id, platform, position, status, options, created_at, updated_at) \
         SELECT {id}, 1000 + n, 'sandbox', n, 'pending', '{{}}', '{now}', '{now}' FROM c"
    ))
    .await;
    assert_eq!(bulk(&t, json!({ "ids": [id], "action": "delete" })).await.invalid_fields(), ["ids"]);
    post(&t, id).await;
}
