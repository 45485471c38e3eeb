//! Texts count against the storage of the plan, and new records are rejected if the disk has too little free space.

use crier_store::files;
use futures::future::join_all;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::images::png;

on_both_apps!(drafts_stop_at_the_storage_of_the_plan, new_records_are_rejected_on_a_full_disk);
on_both_apps!("free" =>
    concurrent_drafts_do_not_exceed_the_storage,
    a_full_library_leaves_room_for_posts,
    usage_shows_texts,
    descriptions_of_images_count,
);

const MIB: i64 = 1 << 20;

/// Sets the storage that the workspace uses before the test writes, in bytes of files and texts.
async fn fill(t: &Tenant<'_>, files: i64, texts: i64) {
    t.app.set_storage_usage(t.workspace, files, texts).await;
}

async fn texts(t: &Tenant<'_>) -> i64 {
    files::usage(&mut t.app.conn().await, t.workspace).await.unwrap().texts
}

async fn drafts_stop_at_the_storage_of_the_plan(app: TestApp) {
    let (t, other) = (app.tenant("free").await, app.tenant("free").await);
    let account = t.account("demo").await;
    let posts = t.path("/posts");
    let draft = async |t: &Tenant<'_>, content: &str| t.post(&t.path("/posts"), json!({ "content": content })).await;
    let long = draft(&t, &"x".repeat(60_000)).await.data(201);
    let long = format!("{posts}/{}", long["id"]);
    // The plan has 500 MiB.
    fill(&t, 400 * MIB, 100 * MIB - 20_000).await;
    let count = app.count_rows("posts").await;
    for content in ["y".repeat(40_000), "y".repeat(20_500)] {
        let error = draft(&t, &content).await.expect_error(402, "storage_limit_exceeded");
        assert!(error["message"].as_str().unwrap().contains("500 MiB"), "{error}");
    }
    assert_eq!(app.count_rows("posts").await, count, "nothing was stored");
    draft(&other, &"y".repeat(40_000)).await.expect(201);
    draft(&t, "short").await.expect(201);
    fill(&t, 400 * MIB, 100 * MIB).await;
    draft(&t, "short").await.expect_error(402, "storage_limit_exceeded");
    // Existing posts can be changed without growing, published and deleted.
    t.put(&long, json!({ "content": "z".repeat(60_000) })).await.expect(200);
    t.put(&long, json!({ "content": "z".repeat(65_535) })).await.expect_error(402, "storage_limit_exceeded");
    let publish = json!({ "content": "Bread", "accounts": [account], "schedule_type": "now" });
    t.put(&long, publish).await.expect(200);
    assert!(texts(&t).await < 100 * MIB - 45_000, "the shorter text made room");
    draft(&t, "short").await.expect(201);
    fill(&t, 400 * MIB, 100 * MIB).await;
    let short = t.get(&format!("{posts}?status=draft")).await.data(200)[0]["id"].clone();
    t.delete(&format!("{posts}/{short}")).await.expect(204);
    // A successful request is replayed.
    fill(&t, 0, 0).await;
    let body = json!({ "content": "Once" });
    let again = async || t.request("POST", &posts).idempotency_key("once").json(&body).send().await;
    again().await.expect(201);
    fill(&t, 500 * MIB, 100 * MIB).await;
    assert!(again().await.replayed());
}

async fn concurrent_drafts_do_not_exceed_the_storage(t: Tenant<'_>) {
    // There is room for three drafts of 60,000 bytes.
    let before = 500 * MIB - 3 * 61_440 - 4_096;
    fill(&t, 0, before).await;
    let (path, body) = (t.path("/posts"), json!({ "content": "x".repeat(60_000) }));
    let replies = join_all((0..8).map(|_| t.post(&path, body.clone()))).await;
    let created = replies.iter().filter(|reply| reply.status == 201).count();
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        reply.expect_error(402, "storage_limit_exceeded");
    }
    assert_eq!(created, 3);
    assert!(texts(&t).await <= 500 * MIB);
}

async fn a_full_library_leaves_room_for_posts(t: Tenant<'_>) {
    let draft = async || t.post(&t.path("/posts"), json!({ "content": "x".repeat(30_000) })).await;
    fill(&t, 500 * MIB, 0).await;
    draft().await.expect(201);
    t.upload("a.png", &png(30, 30), &[]).await.expect_error(402, "storage_limit_exceeded");
    fill(&t, 500 * MIB, 16 * MIB).await;
    draft().await.expect_error(402, "storage_limit_exceeded");
    // Texts and files share the storage.
    fill(&t, 0, 500 * MIB).await;
    t.upload("a.png", &png(30, 30), &[]).await.expect_error(402, "storage_limit_exceeded");
    fill(&t, 0, 499 * MIB).await;
    t.upload("a.png", &png(30, 30), &[]).await.expect(201);
}

async fn usage_shows_texts(t: Tenant<'_>) {
    let used = async || t.get(&t.path("/usage")).await.data(200)["storage_mib"].clone();
    t.post(&t.path("/posts"), json!({ "content": "x".repeat(60_000) })).await.expect(201);
    assert_eq!(used().await, json!({ "used": 0, "limit": 500 }), "a few posts are less than a MiB");
    fill(&t, MIB + 1, 3 * MIB).await;
    assert_eq!(used().await["used"], 5);
}

/// Images with the same bytes share a file, but each has its own description.
async fn descriptions_of_images_count(t: Tenant<'_>) {
    let long = "ä".repeat(2_000);
    let mut assets = Vec::new();
    for n in 0..4 {
        let asset = t.upload(&format!("{n}.png"), &png(30, 30), &[("alt_text", &long)]).await.data(201);
        assets.push(t.path(&format!("/media/{}", asset["id"])));
    }
    let counted = texts(&t).await;
    assert!((28_000..40_000).contains(&counted), "{counted}: each has its 4,000 bytes, and again for the search");
    fill(&t, 400 * MIB, 100 * MIB).await;
    t.put(&assets[0], json!({ "alt_text": "short" })).await.expect(200);
    assert!(texts(&t).await < 100 * MIB);
    fill(&t, 400 * MIB, 100 * MIB).await;
    t.put(&assets[0], json!({ "alt_text": long })).await.expect_error(402, "storage_limit_exceeded");
    let import = json!({ "url": "https://8.8.8.8/a.png", "alt_text": long });
    t.post(&t.path("/media/from-url"), import).await.expect_error(402, "storage_limit_exceeded");
    for asset in &assets {
        t.delete(asset).await.expect(204);
    }
    assert!(texts(&t).await < 100 * MIB - 20_000);
}

async fn new_records_are_rejected_on_a_full_disk(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let posts = t.path("/posts");
    let draft = t.post(&posts, json!({ "content": "Bread", "accounts": [account] })).await.data(201);
    let draft = format!("{posts}/{}", draft["id"]);
    let asset = t.upload("a.png", &png(30, 30), &[]).await.data(201);
    let once = json!({ "content": "Once" });
    let again = async || t.request("POST", &posts).idempotency_key("once").json(&once).send().await;
    again().await.expect(201);
    let disk = app.api.library.disk();
    disk.set_low(true);
    let rows = async || {
        let mut rows = Vec::new();
        for table in [
            "posts",
            "media",
            "files",
            "media_jobs",
            "media_uploads",
            "feeds",
            "content_plans",
            "bio_pages",
            "reports",
            "brands",
            "snippets",
            "recurring_posts",
            "post_imports",
        ] {
            rows.push(app.count_rows(table).await);
        }
        rows
    };
    let before = rows().await;
    let new: Vec<(String, Value)> = vec![
        (posts.clone(), json!({ "content": "New" })),
        (t.path("/media/from-url"), json!({ "url": "https://8.8.8.8/a.png" })),
        (t.path("/feeds"), json!({ "url": "https://8.8.8.8/feed.xml" })),
        (t.path("/content-plans"), json!({ "name": "June" })),
        (t.path("/link-in-bio"), json!({ "title": "Bakery" })),
        (t.path("/snippets"), json!({ "name": "Hours", "kind": "text", "content": "x" })),
        (
            t.path("/recurring-posts"),
            json!({ "name": "Menu", "variations": [{ "content": "x" }], "frequency": "daily" }),
        ),
        (t.path("/reports"), json!({ "name": "Monthly", "widgets": [{ "type": "summary" }] })),
        ("/webhooks".to_owned(), json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"] })),
        ("/brands".to_owned(), json!({ "name": "Second" })),
    ];
    for (path, body) in &new {
        let reply = t.post(path, body.clone()).await;
        let error = reply.expect_error(503, "service_unavailable");
        assert!(error["message"].as_str().unwrap().contains("too little free disk space"), "{path}: {error}");
        assert_eq!(reply.header("retry-after"), Some("60"), "{path}");
    }
    t.upload("b.png", &png(31, 31), &[]).await.expect_error(503, "service_unavailable");
    let import = t.request("POST", &t.path("/posts/import")).form(Some(("a.csv", b"content\nx\n")), &[]);
    import.send().await.expect_error(503, "service_unavailable");
    let resumable = t.request("POST", &t.path("/media/uploads")).header("tus-resumable", "1.0.0");
    resumable.header("upload-length", "5").send().await.expect_error(503, "service_unavailable");
    t.put(&draft, json!({ "content": "x".repeat(20_000) })).await.expect_error(503, "service_unavailable");
    assert_eq!(rows().await, before, "nothing was stored");
    // These requests must still succeed.
    assert!(again().await.replayed());
    t.get(&posts).await.expect(200);
    t.put(&draft, json!({ "content": "Fresh bread" })).await.expect(200);
    t.put(&draft, json!({ "schedule_type": "now" })).await.expect(200);
    t.delete(&t.path(&format!("/media/{}", asset["id"]))).await.expect(204);
    disk.set_low(false);
    t.post(&posts, json!({ "content": "New" })).await.expect(201);
    t.upload("b.png", &png(31, 31), &[]).await.expect(201);
}
