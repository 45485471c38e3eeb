//! Duplicates of posts.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_both_apps!(
    a_duplicate_is_a_draft_with_the_same_content,
    missing_accounts_and_images_are_omitted,
    a_repeated_request
);
on_one_app!(duplicates_pass_the_checks_of_a_create);

async fn a_duplicate_is_a_draft_with_the_same_content(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    let image = t.upload("a.png", &images::png(3, 2), &[]).await.data(201)["id"].clone();
    let body = json!({
        "content": "bread", "accounts": [two, one], "media": [image], "labels": ["x", "y"], "schedule_type": "scheduled",
        "scheduled_at": (app.now() + TimeDelta::hours(3)).to_rfc3339(),
        "overrides": [{ "account_id": one, "content": "rolls", "media": [], "options": { "title": "T" } }],
    });
    let original = t.post(&t.path("/posts"), body).await.data(201);
    let path = t.path(&format!("/posts/{}", original["id"]));
    let jobs = app.count_rows("jobs").await;
    let colleague = t.colleague(Role::Contributor).await;
    let reply = colleague.request("POST", &format!("{path}/duplicate")).send().await;
    let copy = reply.data(201);
    assert_ne!(copy["id"], original["id"]);
    let location = format!("/api/public/v1{}", t.path(&format!("/posts/{}", copy["id"])));
    assert_eq!(reply.header("location"), Some(location.as_str()));
    for field in ["content", "accounts", "media", "labels"] {
        assert_eq!(copy[field], original[field], "{field}");
    }
    for (field, expected) in
        [("status", json!("draft")), ("schedule_type", json!("draft")), ("scheduled_at", Value::Null)]
    {
        assert_eq!(copy[field], expected, "{field}");
    }
    assert_eq!(copy["author"]["id"], colleague.user);
    for n in 0..2_usize {
        for field in ["account_id", "content", "media", "options"] {
            assert_eq!(copy["targets"][n][field], original["targets"][n][field], "{n} {field}");
        }
    }
    assert_eq!(t.get(&path).await.data(200), original);
    assert_eq!(app.count_rows("jobs").await, jobs);
    assert_eq!(app.count_rows("post_media").await, 2);
    assert_eq!(t.get(&t.path("/labels")).await.data(200)[0], json!({ "label": "x", "posts": 2 }));
    assert_eq!(t.get(&t.path("/posts?search=bread")).await.expect(200)["meta"]["total"], 2);
}

async fn missing_accounts_and_images_are_omitted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    let image = t.upload("a.png", &images::png(3, 2), &[]).await.data(201)["id"].clone();
    let options = json!({ "cover_media_id": image, "link_card": { "title": "Bread", "media_id": image } });
    let override_of_two = json!([{ "account_id": two, "media": [image], "options": options }]);
    let body = json!({ "content": "x", "accounts": [one, two], "media": [image], "overrides": override_of_two });
    let path = t.path(&format!("/posts/{}/duplicate", t.post(&t.path("/posts"), body).await.data(201)["id"]));
    t.delete(&t.path(&format!("/media/{image}"))).await.expect(204);
    t.delete(&t.path(&format!("/social-accounts/{one}"))).await.expect(200);
    let copy = t.request("POST", &path).send().await.data(201);
    assert_eq!((&copy["accounts"], &copy["media"]), (&json!([two]), &json!([])));
    assert_eq!(copy["targets"][0]["media"], json!([]));
    assert_eq!(copy["targets"][0]["options"], json!({ "link_card": { "title": "Bread" } }));
    let only_image = json!({ "content": "", "media": [image] });
    assert_eq!(t.post(&t.path("/posts"), only_image).await.invalid_fields(), ["media.0"]);
}

async fn a_repeated_request(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let long = json!({ "content": "x".repeat(65_535), "labels": ["a"] });
    let original = t.post(&t.path("/posts"), long).await.data(201);
    let path = t.path(&format!("/posts/{}/duplicate", original["id"]));
    let send = async || app.request("POST", &path).key(&t.key).idempotency_key("once").send().await;
    // The response is too large to store, so it is rendered again.
    let (first, again) = (send().await, send().await);
    assert!(!first.replayed() && again.replayed());
    assert_eq!(first.data(201), again.data(201));
    assert_eq!(app.count_rows("posts").await, 2);
    t.delete(&t.path(&format!("/posts/{}", first.data(201)["id"]))).await.expect(204);
    send().await.expect_error(404, "not_found");
}

async fn duplicates_pass_the_checks_of_a_create(app: TestApp) {
    let (t, other) = (app.tenant("free").await, app.tenant("unlimited").await);
    let account = t.account("demo").await;
    let post = t.post(&t.path("/posts"), json!({ "content": "x", "accounts": [account] })).await.data(201);
    let path = t.path(&format!("/posts/{}/duplicate", post["id"]));
    // A draft does not count.
    app.set_used_posts(t.workspace, 30).await;
    t.request("POST", &path).send().await.expect(201);
    other.request("POST", &path).send().await.expect_error(403, "brand_forbidden");
    let elsewhere = other.path(&format!("/posts/{}/duplicate", post["id"]));
    other.request("POST", &elsewhere).send().await.expect_error(404, "not_found");
    t.delete(&t.path(&format!("/posts/{}", post["id"]))).await.expect(204);
    t.request("POST", &path).send().await.expect_error(404, "not_found");
    app.set_storage_usage(t.workspace, 0, 1 << 50).await;
    let post = app.newest_id(format!("posts WHERE brand_id = {}", t.brand)).await;
    let full = t.request("POST", &t.path(&format!("/posts/{post}/duplicate"))).send().await;
    full.expect_error(402, "storage_limit_exceeded");
    assert_eq!(app.count_rows("posts WHERE deleted_at IS NULL").await, 1);
}
