//! The option `link_card` of a post.

use crier_domain::platform::Platform;
use crier_store::{media, post_media};
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::images;

on_one_app!(a_link_card_is_checked_with_the_post);
on_both_apps!(the_image_of_a_link_card_is_in_use);

async fn bluesky(t: &Tenant<'_>) -> i64 {
    t.account_on(Platform::Bluesky).await
}

async fn upload(t: &Tenant<'_>) -> i64 {
    t.upload("a.png", &images::png(20, 20), &[]).await.data(201)["id"].as_i64().unwrap()
}

fn body(account: i64, card: Value) -> Value {
    json!({
        "content": "See https://example.com",
        "accounts": [account],
        "schedule_type": "scheduled",
        "scheduled_at": "2026-07-01T09:30:00Z",
        "overrides": [{ "account_id": account, "options": { "link_card": card } }],
    })
}

async fn a_link_card_is_checked_with_the_post(app: TestApp) {
    let (t, stranger) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let (account, mine, theirs) = (bluesky(&t).await, upload(&t).await, upload(&stranger).await);
    for wrong in [
        json!("off"),
        json!({ "url": "ftp://example.com" }),
        json!({ "title": "x".repeat(301) }),
        json!({ "description": "x".repeat(1_001) }),
        json!({ "media_id": "x" }),
        json!({ "media_id": theirs }),
        json!({ "media_id": 999_999 }),
    ] {
        let field = "overrides.0.options.link_card";
        assert_eq!(t.post(&t.path("/posts"), body(account, wrong.clone())).await.invalid_fields(), [field], "{wrong}");
        let checked = t.post(&t.path("/posts/validate"), body(account, wrong.clone())).await.data(200);
        let problem = &checked["targets"][0]["problems"][0];
        assert_eq!((&problem["field"], &problem["code"]), (&json!(field), &json!("option_invalid")), "{wrong}");
    }
    for right in [
        json!(false),
        json!(true),
        json!(null),
        json!({ "title": "Mine" }),
        json!({ "url": "https://other.example", "title": "Mine", "description": "By me", "media_id": mine }),
    ] {
        let checked = t.post(&t.path("/posts/validate"), body(account, right.clone())).await.data(200);
        assert_eq!(checked["valid"], true, "{right}: {checked}");
        let created = t.post(&t.path("/posts"), body(account, right.clone())).await.data(201);
        assert_eq!(created["targets"][0]["options"]["link_card"], right);
    }
}

async fn the_image_of_a_link_card_is_in_use(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, image) = (bluesky(&t).await, upload(&t).await);
    let created = t.post(&t.path("/posts"), body(account, json!({ "media_id": image }))).await.data(201);
    assert!(post_media::in_use(&mut app.conn().await, image).await.unwrap());
    t.delete(&t.path(&format!("/media/{image}"))).await.expect_error(409, "media_in_use");
    let path = t.path(&format!("/posts/{}", created["id"]));
    t.put(&path, json!({ "overrides": null })).await.expect(200);
    assert!(!post_media::in_use(&mut app.conn().await, image).await.unwrap());

    // A draft may contain a deleted image, but it cannot be scheduled.
    let draft = json!({ "schedule_type": "draft", "scheduled_at": null });
    let mut new = body(account, json!({ "media_id": image }));
    new.as_object_mut().unwrap().extend(draft.as_object().unwrap().clone());
    let id = t.post(&t.path("/posts"), new).await.data(201)["id"].clone();
    app.write(async |tx| media::delete(tx, t.brand, image).await).await;
    let path = t.path(&format!("/posts/{id}"));
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["overrides"]);
}
