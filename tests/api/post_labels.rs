//! Labels of posts.

use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(labels_are_stored_and_counted, labels_of_deleted_posts_are_not_counted, a_published_post_can_be_labelled);
on_one_app!(invalid_labels_are_reported, a_contributor_labels_only_drafts);

/// Creates a draft with these labels, and returns its path.
async fn draft(t: &Tenant<'_>, labels: Value) -> String {
    let created = t.post(&t.path("/posts"), json!({ "content": "x", "labels": labels })).await.data(201);
    t.path(&format!("/posts/{}", created["id"]))
}

async fn labels(t: &Tenant<'_>) -> Value {
    t.get(&t.path("/labels")).await.data(200)
}

async fn labels_are_stored_and_counted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    assert_eq!(labels(&t).await, json!([]));
    let one = draft(&t, json!([" spring ", "Sale", "spring"])).await;
    draft(&t, json!(["spring", "été"])).await;
    let plain = draft(&t, json!(null)).await;
    assert_eq!(t.get(&one).await.data(200)["labels"], json!(["spring", "Sale"]));
    assert_eq!(t.get(&plain).await.data(200)["labels"], json!([]));
    let listed = t.get(&t.path("/posts")).await.data(200);
    assert_eq!((&listed[0]["labels"], &listed[1]["labels"]), (&json!([]), &json!(["spring", "été"])));
    let counted =
        json!([{ "label": "Sale", "posts": 1 }, { "label": "spring", "posts": 2 }, { "label": "été", "posts": 1 }]);
    assert_eq!(labels(&t).await, counted);
    // Omitted labels remain, also if the post has targets.
    let account = t.account("demo").await;
    let changed = t.put(&one, json!({ "content": "y", "accounts": [account] })).await.data(200);
    assert_eq!(changed["labels"], json!(["spring", "Sale"]));
    assert_eq!(t.put(&one, json!({ "labels": ["new", "Sale"] })).await.data(200)["labels"], json!(["new", "Sale"]));
    assert_eq!(t.put(&plain, json!({ "labels": ["new"] })).await.data(200)["labels"], json!(["new"]));
    let counted = json!([
        { "label": "Sale", "posts": 1 }, { "label": "new", "posts": 2 }, { "label": "spring", "posts": 1 },
        { "label": "été", "posts": 1 },
    ]);
    assert_eq!(labels(&t).await, counted);
    assert_eq!(t.put(&one, json!({ "labels": null })).await.data(200)["labels"], json!([]));
    assert_eq!(t.put(&plain, json!({ "labels": [] })).await.data(200)["labels"], json!([]));
    assert_eq!(app.count_rows("post_labels").await, 2);
    let with_targets = json!({ "content": "x", "accounts": [account], "labels": ["new"] });
    assert_eq!(t.post(&t.path("/posts"), with_targets).await.data(201)["labels"], json!(["new"]));
    assert_eq!(app.count_rows("post_labels WHERE label = 'new'").await, 1);
}

async fn labels_of_deleted_posts_are_not_counted(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (one, two) = (draft(&t, json!(["a", "b"])).await, draft(&t, json!(["b"])).await);
    draft(&other, json!(["c"])).await;
    t.delete(&one).await.expect(204);
    assert_eq!(labels(&t).await, json!([{ "label": "b", "posts": 1 }]));
    t.delete(&two).await.expect(204);
    assert_eq!(labels(&t).await, json!([]));
    assert_eq!(labels(&other).await, json!([{ "label": "c", "posts": 1 }]));
    app.delete_brand(other.brand).await;
    assert_eq!(app.count_rows("post_labels").await, 0);
}

async fn a_published_post_can_be_labelled(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body = json!({ "content": "x", "accounts": [account], "schedule_type": "now" });
    let id = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    let path = t.path(&format!("/posts/{id}"));
    app.end_post(id, "published", &["published"]).await;
    app.delete_jobs().await;
    let changed = t.put(&path, json!({ "labels": ["done"] })).await.data(200);
    assert_eq!((&changed["labels"], &changed["status"]), (&json!(["done"]), &json!("published")));
    assert_eq!(app.count_rows("jobs").await, 0);
}

async fn invalid_labels_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let path = draft(&t, json!(["x".repeat(40)])).await;
    let many: Vec<String> = (0..11).map(|n| n.to_string()).collect();
    for (wrong, field) in [
        (json!(many), "labels"),
        (json!("a"), "labels"),
        (json!(["a", ""]), "labels.1"),
        (json!(["  "]), "labels.0"),
        (json!([1]), "labels.0"),
        (json!(["x".repeat(41)]), "labels.0"),
        (json!(["\u{0}"]), "labels.0"),
    ] {
        let body = json!({ "content": "x", "labels": wrong });
        assert_eq!(t.post(&t.path("/posts"), body.clone()).await.invalid_fields(), [field], "{wrong}");
        assert_eq!(t.put(&path, body.clone()).await.invalid_fields(), [field], "{wrong}");
        assert_eq!(t.post(&t.path("/posts/validate"), body).await.invalid_fields(), [field], "{wrong}");
    }
    for typo in ["label", "tags", "lables"] {
        let mut body = json!({ "content": "x" });
        body[typo] = json!(["a"]);
        assert_eq!(t.post(&t.path("/posts"), body).await.invalid_fields(), [typo]);
    }
    assert_eq!(app.count_rows("posts").await, 1);
}

async fn a_contributor_labels_only_drafts(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let path = draft(&contributor, json!(["mine"])).await;
    assert_eq!(contributor.put(&path, json!({ "labels": ["ours"] })).await.data(200)["labels"], json!(["ours"]));
    contributor.get(&t.path("/labels")).await.expect(200);
    t.put(&path, json!({ "accounts": [account], "schedule_type": "now" })).await.expect(200);
    contributor.put(&path, json!({ "labels": [] })).await.expect_error(403, "insufficient_scope");
}
