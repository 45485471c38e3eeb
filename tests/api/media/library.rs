//! The list of images, and changes to their fields.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, on_both_apps, on_one_app};
use crate::support::images;
use crate::support::request::assert_fields;

on_both_apps!("unlimited" =>
    images_are_listed_newest_first_and_searchable,
    image_metadata_can_be_updated,
    a_deleted_image_releases_its_storage,
    an_image_in_use_cannot_be_deleted,
    contributors_cannot_change_a_public_alt_text,
);
on_one_app!("unlimited" => invalid_filters_are_rejected, invalid_updates_are_rejected);

async fn upload_png(t: &Tenant<'_>, name: &str, texts: &[(&str, &str)]) -> i64 {
    let width = 1 + name.len() as u32;
    t.upload(name, &images::png(width, 3), texts).await.data(201)["id"].as_i64().unwrap()
}

fn ids(list: &Value) -> Vec<i64> {
    list["data"].as_array().unwrap().iter().map(|asset| asset["id"].as_i64().unwrap()).collect()
}

async fn images_are_listed_newest_first_and_searchable(t: Tenant<'_>) {
    let dog = upload_png(&t, "IMG_1.png", &[("alt_text", "A Dog, ÄHREN and 100% bread")]).await;
    let logo = upload_png(&t, "Brot.png", &[("asset_type", "logo")]).await;
    let icon = upload_png(&t, "a\\_b.png", &[("asset_type", "icon")]).await;
    for (query, found) in [
        ("", vec![icon, logo, dog]),
        ("asset_type=logo", vec![logo]),
        ("asset_type=image", vec![dog]),
        ("search=dog", vec![dog]),
        ("search=DOG", vec![dog]),
        ("search=%C3%A4hren", vec![dog]),
        ("search=brot", vec![logo]),
        ("search=100%25", vec![dog]),
        ("search=%25", vec![dog]),
        ("search=_", vec![icon, dog]),
        ("search=%5C", vec![]),
        ("search=.png&asset_type=icon", vec![icon]),
        ("search=", vec![icon, logo, dog]),
        ("search=nothing", vec![]),
    ] {
        let list = t.get(&t.path(&format!("/media?{query}"))).await.expect(200);
        assert_eq!(ids(&list), found, "{query}");
        assert_eq!(list["meta"]["total"], found.len(), "{query}");
    }
    let page = t.get(&t.path("/media?search=.png&per_page=1&asset_type=image")).await.expect(200);
    let next = t.get(&t.path("/media?search=.png&per_page=2")).await.expect(200)["links"]["next"].clone();
    assert_eq!(next, format!("{}/api/public/v1{}?search=.png&per_page=2&page=2", t.app.url, t.path("/media")));
    assert_eq!((ids(&page), &page["links"]["next"]), (vec![dog], &Value::Null));
}

async fn invalid_filters_are_rejected(t: Tenant<'_>) {
    let long = "x".repeat(201);
    for (query, field) in [
        ("asset_type=film", "asset_type"),
        ("asset_type=", "asset_type"),
        ("search=%00", "search"),
        (&format!("search={long}"), "search"),
        ("per_page=0", "per_page"),
    ] {
        assert_eq!(t.get(&t.path(&format!("/media?{query}"))).await.invalid_fields(), [field], "{query}");
    }
}

async fn image_metadata_can_be_updated(t: Tenant<'_>) {
    let id = upload_png(&t, "a.png", &[("alt_text", "Old words")]).await;
    let path = t.path(&format!("/media/{id}"));
    let before = t.get(&path).await.data(200);
    t.app.advance(5);
    let change = json!({ "alt_text": "Fresh e\u{301}clairs", "filename": "../eclairs.png", "asset_type": "icon" });
    let after = t.put(&path, change).await.data(200);
    assert_fields(&after, json!({ "alt_text": "Fresh éclairs", "filename": "eclairs.png", "asset_type": "icon" }));
    assert_fields(&after, json!({ "url": before["url"], "id": before["id"] }));
    assert!(after["updated_at"].as_str() > before["updated_at"].as_str());
    assert_eq!(t.get(&path).await.data(200), after);
    for (search, total) in [("old", 0), ("%C3%89clairs", 1)] {
        let list = t.get(&t.path(&format!("/media?search={search}"))).await.expect(200);
        assert_eq!(list["meta"]["total"], total, "{search}");
    }
    let updated = t.put(&path, json!({})).await.data(200);
    assert_eq!(updated["alt_text"], "Fresh éclairs");
    assert_eq!(t.put(&path, json!({ "alt_text": null })).await.data(200)["alt_text"], Value::Null);
    assert_eq!(t.put(&path, json!({ "alt_text": "", "filename": null })).await.data(200)["alt_text"], Value::Null);
    assert_eq!(t.get(&path).await.data(200)["filename"], "eclairs.png");
}

async fn invalid_updates_are_rejected(t: Tenant<'_>) {
    let id = upload_png(&t, "a.png", &[]).await;
    let path = t.path(&format!("/media/{id}"));
    let bad = json!({ "alt_text": "x".repeat(2_001), "filename": "", "asset_type": "film" });
    assert_eq!(t.put(&path, bad).await.invalid_fields(), ["alt_text", "asset_type", "filename"]);
    assert_eq!(t.put(&path, json!({ "alt_text": "a\0b" })).await.invalid_fields(), ["alt_text"]);
    assert_eq!(t.put(&path, json!({ "alt_text": 5 })).await.invalid_fields(), ["alt_text"]);
    let nowhere = t.path(&format!("/media/{MISSING_ID}"));
    t.get(&nowhere).await.expect_error(404, "not_found");
    t.put(&nowhere, json!({ "alt_text": 5 })).await.expect_error(404, "not_found");
    t.delete(&nowhere).await.expect_error(404, "not_found");
}

async fn a_deleted_image_releases_its_storage(t: Tenant<'_>) {
    let (one, twin) = (upload_png(&t, "a.png", &[]).await, upload_png(&t, "b.png", &[]).await);
    let path = t.path(&format!("/media/{one}"));
    let used = t.app.counted_bytes().await;
    assert!(used > 0);
    t.delete(&path).await.expect(204);
    assert_eq!(t.app.counted_bytes().await, used, "its twin has the same bytes");
    t.get(&path).await.expect_error(404, "not_found");
    t.delete(&path).await.expect_error(404, "not_found");
    t.delete(&t.path(&format!("/media/{twin}"))).await.expect(204);
    assert_eq!(t.app.counted_bytes().await, 0);
    assert_eq!(t.get(&t.path("/media")).await.expect(200)["meta"]["total"], 0);
    upload_png(&t, "a.png", &[]).await;
    assert_eq!(t.app.counted_bytes().await, used);
}

async fn an_image_in_use_cannot_be_deleted(t: Tenant<'_>) {
    let id = upload_png(&t, "a.png", &[]).await;
    let path = t.path(&format!("/media/{id}"));
    let create = async |image: i64| {
        t.post(&t.path("/posts"), json!({ "media": [image] })).await.data(201)["id"].as_i64().unwrap()
    };
    let post = create(id).await;
    for status in ["pending_approval", "scheduled", "publishing"] {
        t.app.end_post(post, status, &[]).await;
        t.delete(&path).await.expect_error(409, "media_in_use");
        t.get(&path).await.expect(200);
    }
    t.delete(&t.path(&format!("/posts/{post}"))).await.expect(204);
    t.delete(&path).await.expect(204);
    for status in ["draft", "published", "partially_published", "failed"] {
        let id = upload_png(&t, "a.png", &[]).await;
        t.app.end_post(create(id).await, status, &[]).await;
        t.delete(&t.path(&format!("/media/{id}"))).await.expect(204);
    }
}

/// The alt text of a link-in-bio page's image is public immediately. That of a recurring post is published later, and
/// nobody approves these posts.
async fn contributors_cannot_change_a_public_alt_text(t: Tenant<'_>) {
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let avatar = upload_png(&t, "a.png", &[]).await;
    let scheduled = upload_png(&t, "bb.png", &[]).await;
    let drafted = upload_png(&t, "ccc.png", &[]).await;
    let describe = async |tenant: &Tenant<'_>, id: i64| {
        tenant.put(&t.path(&format!("/media/{id}")), json!({ "alt_text": "Everything is free" })).await
    };
    for id in [avatar, scheduled, drafted] {
        describe(&contributor, id).await.expect(200);
    }
    t.post(&t.path("/link-in-bio"), json!({ "title": "Acme", "avatar": avatar })).await.expect(201);
    // Its posts do not exist yet.
    let starts_on = (t.app.now() + TimeDelta::days(60)).date_naive().to_string();
    for (destination, media) in [("calendar", scheduled), ("draft", drafted)] {
        let rule = json!({
            "name": "Menu", "variations": [{ "content": "Bread", "media": [media] }], "accounts": [account],
            "frequency": "daily", "time": "09:00", "starts_on": starts_on, "destination": destination,
        });
        t.post(&t.path("/recurring-posts"), rule).await.expect(201);
    }
    for id in [avatar, scheduled] {
        describe(&contributor, id).await.expect_error(403, "insufficient_scope");
        describe(&t, id).await.expect(200);
    }
    describe(&contributor, drafted).await.expect(200);
    // A retry publishes the alt text of a failed post.
    let post = t.post(&t.path("/posts"), json!({ "media": [drafted] })).await.data(201)["id"].as_i64().unwrap();
    for (status, expected) in [("failed", 403), ("partially_published", 403), ("published", 200), ("draft", 200)] {
        t.app.end_post(post, status, &[]).await;
        describe(&contributor, drafted).await.assert_status(expected);
    }
}
