//! Comments that are published under a post.

use crier_domain::platform::Platform;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(
    a_first_comment_is_stored_and_removed,
    a_first_comment_can_differ_on_each_account,
    the_progress_of_a_comment_is_shown,
    a_platform_without_comments_does_not_keep_a_comment,
);
on_one_app!(invalid_comments_are_reported, comments_follow_the_rules_of_their_platform, platforms_without_comments);

async fn create(t: &Tenant<'_>, body: Value) -> (String, Value) {
    let created = t.post(&t.path("/posts"), body).await.data(201);
    (t.path(&format!("/posts/{}", created["id"])), created)
}

async fn a_first_comment_is_stored_and_removed(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body = json!({ "content": "x", "accounts": [account], "first_comment": { "content": "more" } });
    let (path, created) = create(&t, body).await;
    assert_eq!(created["first_comment"], json!({ "content": "more", "delay_seconds": 0 }));
    let expected = json!({
        "content": "more", "delay_seconds": 0, "status": "pending", "external_id": null, "url": null, "error": null,
    });
    assert_eq!(created["targets"][0]["first_comment"], expected);
    assert_eq!(t.get(&path).await.data(200), created);
    let later = json!({ "content": "later", "delay_seconds": 3600 });
    let changed = t.put(&path, json!({ "first_comment": later })).await.data(200);
    assert_eq!((&changed["first_comment"], &changed["content"]), (&later, &json!("x")));
    assert_eq!(t.get(&t.path("/posts")).await.data(200)[0]["first_comment"], later);
    assert_eq!(t.put(&path, json!({ "content": "y" })).await.data(200)["first_comment"], later);
    let removed = t.put(&path, json!({ "first_comment": null })).await.data(200);
    assert_eq!((&removed["first_comment"], &removed["targets"][0]["first_comment"]), (&Value::Null, &Value::Null));
}

async fn a_first_comment_can_differ_on_each_account(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("one").await, t.account("two").await, t.account("three").await];
    let overrides = json!([
        { "account_id": accounts[1], "first_comment": null },
        { "account_id": accounts[2], "first_comment": { "content": "own", "delay_seconds": 5 } },
    ]);
    let body = json!({
        "content": "x", "accounts": accounts, "first_comment": { "content": "more" }, "overrides": overrides,
    });
    let (path, created) = create(&t, body).await;
    let contents = |post: &Value| [0, 1, 2].map(|n: usize| post["targets"][n]["first_comment"]["content"].clone());
    assert_eq!(contents(&created), [json!("more"), Value::Null, json!("own")]);
    let changed = t.put(&path, json!({ "first_comment": { "content": "new" } })).await.data(200);
    assert_eq!(contents(&changed), [json!("new"), Value::Null, json!("own")]);
    let cleared = t.put(&path, json!({ "overrides": [{ "account_id": accounts[1] }] })).await.data(200);
    assert_eq!(contents(&cleared), [json!("new"), json!("new"), json!("new")]);
}

async fn invalid_comments_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    for (comment, wrong) in [
        (json!("x"), "first_comment"),
        (json!({}), "first_comment.content"),
        (json!({ "content": "" }), "first_comment.content"),
        (json!({ "content": "x".repeat(65_536) }), "first_comment.content"),
        (json!({ "content": "x", "delay_seconds": -1 }), "first_comment.delay_seconds"),
        (json!({ "content": "x", "delay_seconds": 3_601 }), "first_comment.delay_seconds"),
    ] {
        let body = json!({ "content": "x", "accounts": [account], "first_comment": comment });
        assert_eq!(t.post(&t.path("/posts"), body).await.invalid_fields(), [wrong], "{comment}");
        let own = json!([{ "account_id": account, "first_comment": comment }]);
        let body = json!({ "content": "x", "accounts": [account], "overrides": own });
        let fields = t.post(&t.path("/posts"), body).await.invalid_fields();
        assert_eq!(fields, [format!("overrides.0.{wrong}")], "{comment}");
    }
}

async fn comments_follow_the_rules_of_their_platform(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let link = format!("https://a.example/{}", "x".repeat(300));
    for (platform, fits, long) in [
        (Platform::Twitter, link.clone(), "x".repeat(281)),
        (Platform::Bluesky, "x".repeat(300), link.clone()),
        (Platform::Facebook, "x".repeat(8_000), "x".repeat(8_001)),
        (Platform::Linkedin, "(".repeat(1_250), "(".repeat(1_251)),
        (Platform::Wordpress, "x".to_owned(), " ".to_owned()),
    ] {
        let account = t.account_on(platform).await;
        let body = |comment: &str| {
            json!({
                "content": "x", "accounts": [account], "schedule_type": "now", "first_comment": { "content": comment },
            })
        };
        let checked = t.post(&t.path("/posts/validate"), body(&fits)).await.data(200);
        assert_eq!(checked["valid"], true, "{platform}: {checked}");
        let error = t.post(&t.path("/posts"), body(&long)).await.expect_error(422, "validation_failed");
        let message = error["fields"]["first_comment.content"][0].as_str().unwrap();
        assert!(message.starts_with(&format!("Account {account} (Demo), first comment: ")), "{message}");
        let own = json!([{ "account_id": account, "first_comment": { "content": long } }]);
        let own = json!({ "content": "x", "accounts": [account], "schedule_type": "now", "overrides": own });
        let fields = t.post(&t.path("/posts"), own).await.invalid_fields();
        assert_eq!(fields, ["overrides.0.first_comment.content"], "{platform}");
        // A draft is not checked.
        let draft = json!({ "content": "x", "accounts": [account], "first_comment": { "content": long } });
        t.post(&t.path("/posts"), draft).await.expect(201);
    }
}

async fn platforms_without_comments(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account_on(Platform::Tumblr).await;
    let body = json!({
        "content": "x", "accounts": [account], "schedule_type": "now", "first_comment": { "content": "more" },
    });
    let checked = t.post(&t.path("/posts/validate"), body.clone()).await.data(200);
    let warning = &checked["targets"][0]["warnings"][0];
    assert_eq!(checked["valid"], true);
    assert_eq!((&warning["field"], &warning["code"]), (&json!("first_comment"), &json!("first_comment_not_supported")));
    let (_, created) = create(&t, body).await;
    assert_eq!(created["targets"][0]["first_comment"]["status"], "not_supported");
    let own = |comment: Value| {
        let own = json!([{ "account_id": account, "first_comment": comment }]);
        json!({ "content": "x", "accounts": [account], "schedule_type": "now", "overrides": own })
    };
    let fields = t.post(&t.path("/posts"), own(json!({ "content": "more" }))).await.invalid_fields();
    assert_eq!(fields, ["overrides.0.first_comment"]);
    create(&t, own(Value::Null)).await;
}

async fn the_progress_of_a_comment_is_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("one").await, t.account("two").await];
    let body = json!({
        "content": "x", "accounts": accounts, "schedule_type": "now", "first_comment": { "content": "more" },
    });
    let (path, created) = create(&t, body).await;
    let id = created["id"].as_i64().unwrap();
    app.end_post(id, "partially_published", &["published", "failed"]).await;
    let error = r#"{"code":"platform_rejected","message":"No.","category":"platform_rejected"}"#;
    app.sql(format!(
        "INSERT INTO first_comments (target_id, content, status, error, created_at, updated_at) \
         SELECT id, 'more', 'failed', '{error}', created_at, created_at FROM post_targets \
         WHERE post_id = {id} AND status = 'published'"
    ))
    .await;
    let shown = t.get(&path).await.data(200);
    let comments = [0, 1].map(|n: usize| &shown["targets"][n]["first_comment"]);
    assert_eq!((&comments[0]["status"], &comments[1]["status"]), (&json!("failed"), &json!("pending")));
    assert_eq!((&comments[0]["error"]["code"], &comments[1]["error"]), (&json!("platform_rejected"), &Value::Null));
    assert_eq!(shown["targets"][0]["status"], "published");

    // A published comment is final, like its post.
    let other = json!({ "content": "other" });
    t.put(&path, json!({ "first_comment": other })).await.expect_error(409, "post_not_editable");
    let own = |n: usize| json!({ "overrides": [{ "account_id": accounts[n], "first_comment": other }] });
    t.put(&path, own(0)).await.expect_error(409, "post_not_editable");
    let changed = t.put(&path, own(1)).await.data(200);
    assert_eq!(changed["targets"][1]["first_comment"]["content"], "other");
}

async fn a_platform_without_comments_does_not_keep_a_comment(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account_on(Platform::Tumblr).await, t.account("demo").await];
    let body = json!({
        "content": "x", "accounts": accounts, "schedule_type": "now", "first_comment": { "content": "more" },
    });
    let (path, created) = create(&t, body).await;
    let id = created["id"].as_i64().unwrap();
    app.end_post(id, "partially_published", &["published", "failed"]).await;
    let changed = t.put(&path, json!({ "first_comment": { "content": "other" } })).await.data(200);
    assert_eq!(changed["targets"][0]["first_comment"]["status"], "not_supported");
    assert_eq!(changed["targets"][1]["first_comment"]["content"], "other");
    app.end_post(id, "published", &["published", "published"]).await;
    t.put(&path, json!({ "first_comment": null })).await.expect_error(409, "post_not_editable");
}
