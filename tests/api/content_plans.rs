//! Content plans: creation, changes, and scheduling of items as posts.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Reply, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::request::assert_fields;

on_both_apps!(scheduling_an_item_applies_the_post_rules);
on_both_apps!("unlimited" =>
    a_plan_is_created_with_its_items,
    an_update_keeps_omitted_fields,
    updating_items_replaces_the_whole_list,
    bulk_item_creation_is_atomic,
    items_per_plan_are_capped,
    an_item_is_scheduled_as_a_post,
    an_item_becomes_a_draft_or_a_pending_post,
    an_item_has_at_most_one_post,
    concurrent_requests_schedule_an_item_once,
);
on_one_app!("pro" => scheduling_errors_are_reported_in_order, approval_requires_a_plan_feature);
on_one_app!("unlimited" => invalid_fields_are_reported);

fn hours(app: &TestApp, n: i64) -> String {
    (app.now() + TimeDelta::hours(n)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
}

fn id(record: &Value) -> i64 {
    record["id"].as_i64().expect("an id")
}

async fn plan(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/content-plans"), body).await
}

/// Creates a plan with one item, and returns the path and the id of the item.
async fn item(t: &Tenant<'_>, item: Value) -> (String, i64) {
    let created = plan(t, json!({ "name": "Plan", "items": [item] })).await.data(201);
    let item = id(&created["items"][0]);
    (t.path(&format!("/content-plans/{}/items/{item}", created["id"])), item)
}

async fn a_plan_is_created_with_its_items(t: Tenant<'_>) {
    assert_eq!(t.get(&t.path("/content-plans")).await.expect(200), json!({ "data": [] }));
    let reply = plan(
        &t,
        json!({
            "name": "Spring", "starts_on": "2030-01-01", "ends_on": "2030-01-31",
            "items": [{ "title": "Later" }, { "title": "Noon", "content": "Lunch", "planned_at": "2030-07-01T12:00" }]
        }),
    );
    let reply = reply.await;
    let created = reply.data(201);
    let path = t.path(&format!("/content-plans/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    assert_eq!((&created["description"], &created["starts_on"]), (&Value::Null, &json!("2030-01-01")));
    let noon = &created["items"][0];
    assert_fields(noon, json!({ "title": "Noon", "planned_at": "2030-07-01T10:00:00Z", "status": "planned" }));
    assert_fields(noon, json!({ "post_id": null, "content": "Lunch" }));
    assert_eq!((&created["items"][1]["content"], &created["items"][1]["planned_at"]), (&Value::Null, &Value::Null));
    assert_eq!(t.get(&path).await.data(200), created);
    let second = plan(&t, json!({ "name": "Second" })).await.data(201);
    let mut listed = created.clone();
    for item in listed["items"].as_array_mut().unwrap() {
        item.as_object_mut().unwrap().remove("content");
    }
    assert_eq!(t.get(&t.path("/content-plans")).await.expect(200), json!({ "data": [second, listed] }));
    t.delete(&path).await.expect(204);
    t.get(&path).await.expect_error(404, "not_found");
    t.delete(&path).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/content-plans")).await.data(200), json!([second]));
}

async fn an_update_keeps_omitted_fields(t: Tenant<'_>) {
    let body = json!({ "name": "A", "description": "d", "starts_on": "2030-01-01", "ends_on": "2030-01-31", "items": [{ "title": "i" }] });
    let created = plan(&t, body).await.data(201);
    let path = t.path(&format!("/content-plans/{}", created["id"]));
    let renamed = t.put(&path, json!({ "name": "B" })).await.data(200);
    assert_fields(&renamed, json!({ "name": "B", "description": "d", "ends_on": "2030-01-31" }));
    assert_fields(&renamed, json!({ "items": created["items"] }));
    let emptied = t.put(&path, json!({ "description": null, "starts_on": null })).await.data(200);
    assert_eq!((&emptied["description"], &emptied["starts_on"]), (&Value::Null, &Value::Null));
    assert_eq!(t.put(&path, json!({ "starts_on": "2030-02-01" })).await.invalid_fields(), ["ends_on"]);
    let items = format!("{path}/items");
    let reply = t.post(&items, json!({ "title": "New" })).await;
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    let one = format!("{items}/{}", reply.data(201)["id"]);
    let changed = t.put(&one, json!({ "content": "c", "planned_at": "2030-03-01T00:00:00Z" })).await.data(200);
    assert_fields(&changed, json!({ "title": "New", "content": "c", "planned_at": "2030-03-01T00:00:00Z" }));
    let emptied = t.put(&one, json!({ "planned_at": null })).await.data(200);
    assert_eq!((&emptied["content"], &emptied["planned_at"]), (&json!("c"), &Value::Null));
    assert_eq!(t.get(&path).await.data(200)["items"][1], emptied);
    t.delete(&one).await.expect(204);
    t.delete(&one).await.expect_error(404, "not_found");
    assert_eq!(t.get(&path).await.data(200)["items"], created["items"]);
}

async fn updating_items_replaces_the_whole_list(t: Tenant<'_>) {
    let items = json!([{ "title": "goes" }, { "title": "stays", "content": "c" }]);
    let created = plan(&t, json!({ "name": "A", "items": items })).await.data(201);
    let (deleted, kept) = (id(&created["items"][0]), id(&created["items"][1]));
    let path = t.path(&format!("/content-plans/{}", created["id"]));
    for (items, wrong) in [
        (json!([{ "id": MISSING_ID }]), "items.0.id"),
        (json!([{ "id": kept }, { "id": kept }]), "items.1.id"),
        (json!([{ "content": "x" }]), "items.0.title"),
        (json!([{ "id": "x" }]), "items.0.id"),
        (json!(vec![json!({ "title": "t" }); 1_001]), "items"),
    ] {
        assert_eq!(t.put(&path, json!({ "items": items })).await.invalid_fields(), [wrong]);
    }
    assert_eq!(t.get(&path).await.data(200), created);
    let body = json!({ "items": [{ "id": kept, "title": "changed" }, { "title": "new" }] });
    let changed = t.put(&path, body).await.data(200);
    let shown: Vec<_> =
        changed["items"].as_array().unwrap().iter().map(|i| (i["title"].clone(), i["content"].clone())).collect();
    assert_eq!(shown, [(json!("changed"), json!("c")), (json!("new"), Value::Null)]);
    assert_eq!(id(&changed["items"][0]), kept);
    t.put(&format!("{path}/items/{deleted}"), json!({})).await.expect_error(404, "not_found");
    assert_eq!(t.put(&path, json!({ "items": null })).await.data(200)["items"], json!([]));
}

async fn invalid_fields_are_reported(t: Tenant<'_>) {
    for (body, wrong) in [
        (json!({}), vec!["name"]),
        (json!({ "name": "" }), vec!["name"]),
        (json!({ "name": "x".repeat(121), "description": "x".repeat(2_001) }), vec!["description", "name"]),
        (json!({ "name": "x", "starts_on": "31/01/2025", "ends_on": 5 }), vec!["ends_on", "starts_on"]),
        (json!({ "name": "x", "starts_on": "2030-02-01", "ends_on": "2030-01-31" }), vec!["ends_on"]),
        (json!({ "name": "x", "items": "x" }), vec!["items"]),
        (
            json!({ "name": "x", "items": [{}, 5, { "title": "t", "content": 5, "planned_at": "tomorrow" }] }),
            vec!["items.0.title", "items.1", "items.2.content", "items.2.planned_at"],
        ),
    ] {
        assert_eq!(plan(&t, body.clone()).await.invalid_fields(), wrong, "{body}");
    }
    assert_eq!(t.app.count_rows("content_plans").await, 0);
    plan(&t, json!({ "name": "x", "starts_on": "2030-02-01", "ends_on": "2030-02-01" })).await.expect(201);
    let (path, _) = item(&t, json!({ "title": "t" })).await;
    for (body, wrong) in [
        (json!({ "title": "" }), "title"),
        (json!({ "title": "x".repeat(201) }), "title"),
        (json!({ "content": "x".repeat(65_536) }), "content"),
        (json!({ "planned_at": 5 }), "planned_at"),
    ] {
        assert_eq!(t.put(&path, body.clone()).await.invalid_fields(), [wrong], "{body}");
    }
}

async fn bulk_item_creation_is_atomic(t: Tenant<'_>) {
    let created = plan(&t, json!({ "name": "Bulk" })).await.data(201);
    let path = t.path(&format!("/content-plans/{}", created["id"]));
    let bulk = async |items: Value| t.post(&format!("{path}/items/bulk"), json!({ "items": items })).await;
    let many = |n: i64| {
        (0..n).map(|i| json!({ "title": format!("item {i}"), "planned_at": hours(t.app, n - i) })).collect::<Vec<_>>()
    };
    let mut bad = many(3);
    bad[1] = json!({ "title": "" });
    for (items, wrong) in [
        (json!(bad), "items.1.title"),
        (json!([]), "items"),
        (json!(null), "items"),
        (json!(many(501)), "items"),
        (json!([5]), "items.0"),
    ] {
        assert_eq!(bulk(items).await.invalid_fields(), [wrong]);
    }
    assert_eq!(t.app.count_rows("content_plan_items").await, 0);
    let created = bulk(json!(many(500))).await.data(201);
    let titles: Vec<&str> = created.as_array().unwrap().iter().map(|i| i["title"].as_str().unwrap()).collect();
    assert_eq!((titles.len(), titles[0], titles[499]), (500, "item 0", "item 499"), "in the request's order");
    let shown = t.get(&path).await.data(200);
    assert_eq!((&shown["items"][0], &shown["items"][499]), (&created[499], &created[0]), "ordered by time");
}

async fn items_per_plan_are_capped(t: Tenant<'_>) {
    let many = |n: usize| json!(vec![json!({ "title": "t" }); n]);
    let created = plan(&t, json!({ "name": "Full", "items": many(500) })).await.data(201);
    let items = t.path(&format!("/content-plans/{}/items", created["id"]));
    t.post(&format!("{items}/bulk"), json!({ "items": many(499) })).await.expect(201);
    assert_eq!(t.post(&format!("{items}/bulk"), json!({ "items": many(2) })).await.invalid_fields(), ["items"]);
    t.post(&items, json!({ "title": "the last" })).await.expect(201);
    assert_eq!(t.post(&items, json!({ "title": "one more" })).await.invalid_fields(), ["items"]);
    assert_eq!(t.app.count_rows("content_plan_items").await, 1_000);
}

async fn an_item_is_scheduled_as_a_post(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let at = hours(t.app, 2);
    let (path, item) = item(&t, json!({ "title": "Bread", "content": "Fresh bread", "planned_at": at })).await;
    let reply = t.post(&format!("{path}/schedule"), json!({ "account_ids": [account] })).await;
    let mut created = reply.data(201);
    let post = t.path(&format!("/posts/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{post}").as_str()));
    assert_fields(&created, json!({ "status": "scheduled", "schedule_type": "scheduled", "scheduled_at": at }));
    assert_fields(&created, json!({ "content": "Fresh bread", "accounts": [account], "plan_item_id": item }));
    assert_eq!(t.app.count_rows("jobs WHERE state = 'scheduled'").await, 1);
    let plan = t.get(&t.path("/content-plans")).await.data(200)[0]["items"][0].clone();
    assert_eq!((&plan["status"], &plan["post_id"]), (&json!("scheduled"), &created["id"]));
    created.as_object_mut().unwrap().remove("plan_item_id");
    assert_eq!(t.get(&post).await.data(200), created, "the post is an ordinary post");
    t.put(&path, json!({ "content": "Stale bread" })).await.expect(200);
    assert_eq!(t.get(&post).await.data(200), created, "a change of the item does not change the post");
}

async fn an_item_becomes_a_draft_or_a_pending_post(t: Tenant<'_>) {
    let account = t.account("demo").await;
    for at in [json!(hours(t.app, 2)), json!(hours(t.app, -2)), Value::Null] {
        let new = json!({ "title": "t", "content": "c", "planned_at": at });
        let (draft, _) = item(&t, new.clone()).await;
        let created = t.post(&format!("{draft}/schedule"), json!({ "destination": "draft" })).await.data(201);
        assert_fields(&created, json!({ "status": "draft", "scheduled_at": at, "accounts": [] }));
        let (pending, _) = item(&t, new).await;
        let body = json!({ "account_ids": [account], "destination": "approval" });
        let created = t.post(&format!("{pending}/schedule"), body).await.data(201);
        assert_eq!((&created["status"], &created["scheduled_at"]), (&json!("pending_approval"), &at));
        let approved = t.request("POST", &t.path(&format!("/posts/{}/approve", created["id"]))).send().await.data(200);
        let is_future = at == json!(hours(t.app, 2));
        assert_eq!(approved["status"], if is_future { "scheduled" } else { "publishing" });
    }
}

async fn scheduling_an_item_applies_the_post_rules(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (account, theirs) = (t.account("demo").await, other.account("theirs").await);
    let long = "x".repeat(60_000);
    let at = hours(&app, 2);
    for (new, body, wrong) in [
        (json!({ "content": "c", "planned_at": at }), json!({}), vec!["account_ids"]),
        (json!({ "content": "c", "planned_at": at }), json!({ "account_ids": [] }), vec!["account_ids"]),
        (json!({ "content": "c", "planned_at": at }), json!({ "account_ids": "x" }), vec!["account_ids"]),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account, MISSING_ID] }),
            vec!["account_ids.1"],
        ),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account, theirs] }),
            vec!["account_ids.1"],
        ),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account, account] }),
            vec!["account_ids.1"],
        ),
        (json!({ "content": "c" }), json!({ "account_ids": [theirs], "destination": "draft" }), vec!["account_ids.0"]),
        (json!({ "content": "c" }), json!({ "destination": "approval" }), vec!["account_ids"]),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account], "destination": "moon" }),
            vec!["destination"],
        ),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account], "destination": 5 }),
            vec!["destination"],
        ),
        (json!({ "content": "c" }), json!({ "account_ids": [account] }), vec!["planned_at"]),
        (
            json!({ "content": "c", "planned_at": hours(&app, -1) }),
            json!({ "account_ids": [account] }),
            vec!["planned_at"],
        ),
        (
            json!({ "content": "c", "planned_at": hours(&app, 24 * 366 * 6) }),
            json!({ "account_ids": [account] }),
            vec!["planned_at"],
        ),
        (json!({ "planned_at": at }), json!({ "account_ids": [account] }), vec!["content"]),
        (json!({ "content": "" }), json!({ "account_ids": [account], "destination": "draft" }), vec!["content"]),
        (json!({ "content": long, "planned_at": at }), json!({ "account_ids": [account] }), vec!["content"]),
        (
            json!({ "content": "c", "planned_at": at }),
            json!({ "account_ids": [account], "overrides": [{ "account_id": theirs }] }),
            vec!["overrides.0.account_id"],
        ),
    ] {
        let mut new = new;
        new["title"] = json!("t");
        let (path, _) = item(&t, new.clone()).await;
        let invalid = t.post(&format!("{path}/schedule"), body.clone()).await.invalid_fields();
        assert_eq!(invalid, wrong, "{} with {body}", new.to_string().chars().take(80).collect::<String>());
    }
    assert_eq!(app.count_rows("posts").await, 0);
    let (path, _) = item(&t, json!({ "title": "t", "content": "c", "planned_at": at })).await;
    let body = json!({ "account_ids": [account], "overrides": [{ "account_id": account, "content": "mine" }] });
    let created = t.post(&format!("{path}/schedule"), body).await.data(201);
    assert_eq!(created["targets"][0]["content"], "mine");
}

async fn an_item_has_at_most_one_post(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (path, _) = item(&t, json!({ "title": "t", "content": "c", "planned_at": hours(t.app, 2) })).await;
    let schedule = async || t.post(&format!("{path}/schedule"), json!({ "account_ids": [account] })).await;
    let first = schedule().await.data(201);
    schedule().await.expect_error(409, "item_already_scheduled");
    t.delete(&t.path(&format!("/posts/{}", first["id"]))).await.expect(204);
    let plan = t.get(&t.path("/content-plans")).await.data(200)[0]["items"][0].clone();
    assert_eq!((&plan["status"], &plan["post_id"]), (&json!("planned"), &Value::Null));
    let second = schedule().await.data(201);
    assert_ne!(first["id"], second["id"]);
    schedule().await.expect_error(409, "item_already_scheduled");
}

/// The order is: validation, the state of the item, the cap.
async fn scheduling_errors_are_reported_in_order(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (path, _) = item(&t, json!({ "title": "t", "content": "c", "planned_at": hours(t.app, 2) })).await;
    let schedule = async |account: i64| t.post(&format!("{path}/schedule"), json!({ "account_ids": [account] })).await;
    let first = schedule(account).await.data(201);
    t.app.set_used_posts(t.workspace, 1_000).await;
    assert_eq!(schedule(MISSING_ID).await.invalid_fields(), ["account_ids.0"]);
    schedule(account).await.expect_error(409, "item_already_scheduled");
    t.delete(&t.path(&format!("/posts/{}", first["id"]))).await.expect(204);
    schedule(account).await.expect_error(402, "limit_reached");
    t.app.clock.advance(TimeDelta::hours(3));
    assert_eq!(schedule(account).await.invalid_fields(), ["planned_at"], "its time is in the past");
}

async fn concurrent_requests_schedule_an_item_once(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (path, _) = item(&t, json!({ "title": "t", "content": "c", "planned_at": hours(t.app, 2) })).await;
    let path = &format!("{path}/schedule");
    let calls = (0..12).map(|n| {
        let destination = ["calendar", "draft", "approval"][n % 3];
        t.post(path, json!({ "account_ids": [account], "destination": destination }))
    });
    let replies = futures::future::join_all(calls).await;
    let created: Vec<&Reply> = replies.iter().filter(|r| r.status == 201).collect();
    assert_eq!(created.len(), 1);
    for reply in replies.iter().filter(|r| r.status != 201) {
        reply.expect_error(409, "item_already_scheduled");
    }
    assert_eq!(t.app.count_rows("posts").await, 1);
    assert_eq!(t.app.used_posts(t.workspace).await, i64::from(created[0].data(201)["status"] != "draft"));
}

async fn approval_requires_a_plan_feature(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (path, _) = item(&t, json!({ "title": "t", "content": "c" })).await;
    let body = json!({ "account_ids": [account], "destination": "approval" });
    t.post(&format!("{path}/schedule"), body.clone()).await.expect_error(402, "feature_not_available");
    t.post(&t.path("/content-plans/1/items/999999/schedule"), body).await.expect_error(402, "feature_not_available");
    assert_eq!(t.app.count_rows("posts").await, 0);
}
