//! Limits of content plans: the number of items, and the text size of a plan.

use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, on_one_app};

on_one_app!("unlimited" =>
    text_per_plan_is_capped,
    an_oversized_plan_can_shrink,
    items_per_brand_are_capped,
    plan_lists_have_a_bounded_size,
);

const MIB: usize = 1 << 20;
/// The length of the content of an item that has the maximum size with a title of one character.
const LONG: usize = 65_534;

async fn make(t: &Tenant<'_>, items: Value) -> Reply {
    t.post(&t.path("/content-plans"), json!({ "name": "Plan", "items": items })).await
}

fn items(count: usize, content: usize) -> Value {
    json!(vec![json!({ "title": "t", "content": "x".repeat(content) }); count])
}

async fn create_plan_returning_path(t: &Tenant<'_>, items: Value) -> String {
    t.path(&format!("/content-plans/{}", make(t, items).await.data(201)["id"]))
}

async fn text_per_plan_is_capped(t: Tenant<'_>) {
    // 16 items of 65,535 bytes are 16 bytes less than 1 MiB.
    let path = create_plan_returning_path(&t, items(8, LONG)).await;
    t.post(&format!("{path}/items/bulk"), json!({ "items": items(8, LONG) })).await.expect(201);
    let (one, bulk) = (format!("{path}/items"), format!("{path}/items/bulk"));
    assert_eq!(t.post(&one, json!({ "title": "x".repeat(17) })).await.invalid_fields(), ["items"]);
    // The limit counts bytes and not characters, like the limit of a request body.
    assert_eq!(t.post(&one, json!({ "title": "ä".repeat(9) })).await.invalid_fields(), ["items"]);
    assert_eq!(t.post(&bulk, json!({ "items": items(5, 3) })).await.invalid_fields(), ["items"]);
    let created = t.post(&one, json!({ "title": "x".repeat(16) })).await.data(201);
    let last = format!("{one}/{}", created["id"]);
    let rejected = t.put(&last, json!({ "content": "y" })).await.expect_error(422, "validation_failed");
    let message = rejected["fields"]["content"][0].as_str().unwrap();
    assert!(message.contains("1048576 bytes in total; these would have 1048577"), "{message}");
    t.put(&last, json!({ "title": "x", "content": "y".repeat(15) })).await.expect(200);
    let shown = t.get(&path).await;
    let ids: Vec<Value> = shown.data(200)["items"].as_array().unwrap().iter().map(|i| i["id"].clone()).collect();
    let mut kept: Vec<Value> = ids.iter().map(|id| json!({ "id": id })).collect();
    kept.push(json!({ "title": "z" }));
    assert_eq!(t.put(&path, json!({ "items": kept })).await.invalid_fields(), ["items"]);
    kept[0] = json!({ "id": ids[0], "content": null });
    t.put(&path, json!({ "items": kept })).await.expect(200);
    t.put(&path, json!({ "name": "Renamed" })).await.expect(200);
}

async fn an_oversized_plan_can_shrink(t: Tenant<'_>) {
    let path = create_plan_returning_path(&t, json!([{ "title": "one" }, { "title": "two" }])).await;
    let long = "x".repeat(MIB);
    t.app.sql(format!("UPDATE content_plan_items SET content = '{long}'")).await;
    let ids: Vec<Value> =
        t.get(&path).await.data(200)["items"].as_array().unwrap().iter().map(|i| i["id"].clone()).collect();
    let item = format!("{path}/items/{}", ids[0]);
    t.put(&path, json!({ "name": "Renamed" })).await.expect(200);
    t.put(&item, json!({ "planned_at": "2030-01-01T00:00:00Z" })).await.expect(200);
    assert_eq!(t.put(&item, json!({ "title": "longer" })).await.invalid_fields(), ["content"]);
    assert_eq!(t.post(&format!("{path}/items"), json!({ "title": "three" })).await.invalid_fields(), ["items"]);
    t.put(&path, json!({ "items": [{ "id": ids[0], "title": "o" }, { "id": ids[1] }] })).await.expect(200);
    t.put(&item, json!({ "content": "short" })).await.expect(200);
    t.delete(&item).await.expect(204);
}

async fn items_per_brand_are_capped(t: Tenant<'_>) {
    for _ in 0..9 {
        make(&t, items(500, 0)).await.expect(201);
    }
    let path = create_plan_returning_path(&t, items(498, 0)).await;
    let (one, bulk) = (format!("{path}/items"), format!("{path}/items/bulk"));
    t.post(&bulk, json!({ "items": items(3, 0) })).await.expect_error(402, "limit_reached");
    t.post(&one, json!({ "title": "t" })).await.expect(201);
    make(&t, items(2, 0)).await.expect_error(402, "limit_reached");
    let created = t.post(&one, json!({ "title": "t" })).await.data(201);
    let rejected = t.post(&one, json!({ "title": "t" })).await.expect_error(402, "limit_reached");
    assert!(rejected["message"].as_str().unwrap().contains("at most 5000 items"), "{rejected}");
    // Items can be replaced by the same number of items.
    let mut kept: Vec<Value> = vec![json!({ "title": "new" }); 500];
    t.put(&path, json!({ "items": kept })).await.expect(200);
    kept.push(json!({ "title": "one more" }));
    t.put(&path, json!({ "items": kept })).await.expect_error(402, "limit_reached");
    t.delete(&format!("{one}/{}", created["id"])).await.expect_error(404, "not_found");
    make(&t, json!([])).await.expect(201);
    assert_eq!(t.app.count_rows("content_plan_items").await, 5_000);
}

async fn plan_lists_have_a_bounded_size(t: Tenant<'_>) {
    for _ in 0..10 {
        make(&t, items(500, 0)).await.expect(201);
    }
    // The longest titles, of characters with the most bytes, and texts that do not fit into the list.
    let (title, content) = ("🥐".repeat(200), "x".repeat(2_000));
    t.app.sql(format!("UPDATE content_plan_items SET title = '{title}', content = '{content}'")).await;
    let listed = t.get(&t.path("/content-plans")).await;
    assert!(listed.body.len() < 8 << 20, "{}", listed.body.len());
    let plans = listed.data(200);
    assert!(plans[0]["items"][0].get("content").is_none());
    assert_eq!(plans.as_array().unwrap().iter().map(|p| p["items"].as_array().unwrap().len()).sum::<usize>(), 5_000);
}
