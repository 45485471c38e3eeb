//! Caps that are the same in every plan: link-in-bio pages, feeds, snippets, recurring posts and content plans of a
//! brand, webhook endpoints of a user.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps};

on_both_apps!(
    link_in_bio_pages_per_brand_are_capped,
    feeds_per_brand_are_capped,
    content_plans_per_brand_are_capped,
    snippets_per_brand_are_capped,
    recurring_posts_per_brand_are_capped,
    webhook_endpoints_per_user_are_capped,
);
on_both_apps!("unlimited" => link_text_per_page_is_capped);

/// Asserts that exactly `room` of more concurrent requests succeed, and that the deletion of a record makes room.
async fn fill_to_cap(t: &Tenant<'_>, path: &str, body: &Value, room: usize) {
    let replies = join_all((0..room + 3).map(|_| t.post(path, body.clone()))).await;
    let created: Vec<Value> = replies.iter().filter(|reply| reply.status == 201).map(|reply| reply.data(201)).collect();
    assert_eq!(created.len(), room);
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        let error = reply.expect_error(402, "limit_reached");
        assert!(error["message"].as_str().unwrap().contains("Delete some first"), "{error}");
    }
    t.delete(&format!("{path}/{}", created[0]["id"])).await.expect(204);
    t.post(path, body.clone()).await.expect(201);
    t.post(path, body.clone()).await.expect_error(402, "limit_reached");
}

async fn link_in_bio_pages_per_brand_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    for n in 0..22 {
        t.post(&t.path("/link-in-bio"), json!({ "title": "Page", "slug": format!("page-{n}") })).await.expect(201);
    }
    let body = json!({ "title": "Another" });
    fill_to_cap(&t, &t.path("/link-in-bio"), &body, 3).await;
    assert_eq!(t.post(&t.path("/link-in-bio"), json!({})).await.invalid_fields(), ["title"], "caps are checked last");
    other.post(&other.path("/link-in-bio"), body).await.expect(201);
}

async fn feeds_per_brand_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let body = json!({ "url": "https://8.8.8.8/feed.xml" });
    t.post(&t.path("/feeds"), body.clone()).await.expect(201);
    app.copy_newest_row("feeds", 96, &[]).await;
    fill_to_cap(&t, &t.path("/feeds"), &body, 3).await;
    other.post(&other.path("/feeds"), body).await.expect(201);
}

async fn content_plans_per_brand_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let body = json!({ "name": "Plan" });
    t.post(&t.path("/content-plans"), body.clone()).await.expect(201);
    app.copy_newest_row("content_plans", 96, &[]).await;
    fill_to_cap(&t, &t.path("/content-plans"), &body, 3).await;
    assert_eq!(t.post(&t.path("/content-plans"), json!({})).await.invalid_fields(), ["name"], "caps are checked last");
    other.post(&other.path("/content-plans"), body).await.expect(201);
}

async fn snippets_per_brand_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let body = json!({ "name": "Another", "kind": "text", "content": "x" });
    t.post(&t.path("/snippets"), body.clone()).await.expect(201);
    app.copy_newest_row("snippets", 496, &[]).await;
    fill_to_cap(&t, &t.path("/snippets"), &body, 3).await;
    other.post(&other.path("/snippets"), body).await.expect(201);
}

async fn recurring_posts_per_brand_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let body = json!({ "name": "Another", "variations": [{ "content": "x" }], "frequency": "daily" });
    t.post(&t.path("/recurring-posts"), body.clone()).await.expect(201);
    app.copy_newest_row("recurring_posts", 46, &[]).await;
    fill_to_cap(&t, &t.path("/recurring-posts"), &body, 3).await;
    other.post(&other.path("/recurring-posts"), body).await.expect(201);
}

async fn webhook_endpoints_per_user_are_capped(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let body = json!({ "url": "https://8.8.8.8/hook", "events": ["post.published"] });
    for _ in 0..47 {
        t.post("/webhooks", body.clone()).await.expect(201);
    }
    fill_to_cap(&t, "/webhooks", &body, 3).await;
    other.post("/webhooks", body).await.expect(201);
}

async fn link_text_per_page_is_capped(t: Tenant<'_>) {
    // 100 links of 2,500 bytes fit into 256 KiB, and 100 of 2,700 do not.
    let links = |umlauts: usize| {
        let url = format!("https://example.com/{}", "ä".repeat(umlauts));
        json!(vec![json!({ "title": "t".repeat(80), "url": url }); 100])
    };
    let path = t.path("/link-in-bio");
    assert_eq!(t.post(&path, json!({ "title": "Page", "links": links(1_300) })).await.invalid_fields(), ["links"]);
    let created = t.post(&path, json!({ "title": "Page", "links": links(1_200) })).await.data(201);
    let page = format!("{path}/{}", created["id"]);
    assert_eq!(t.put(&page, json!({ "links": links(1_300) })).await.invalid_fields(), ["links"]);
    // The links of a page that already exceeds the limit can be saved unchanged, or reduced.
    t.app.sql(format!("UPDATE bio_links SET url = 'https://example.com/{}'", "ä".repeat(1_300))).await;
    let ids: Vec<Value> = created["links"].as_array().unwrap().iter().map(|link| json!({ "id": link["id"] })).collect();
    t.put(&page, json!({ "title": "Renamed", "links": ids })).await.expect(200);
    let mut longer = ids[..99].to_vec();
    longer.push(json!({ "id": ids[99]["id"], "title": "t".repeat(81) }));
    assert_eq!(t.put(&page, json!({ "links": longer })).await.invalid_fields(), ["links"]);
    t.put(&page, json!({ "links": ids[..99] })).await.expect(200);
}
