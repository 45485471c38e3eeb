//! Images of posts: which are accepted, which are in use, and the rules of the platforms.

use crier_domain::platform::Platform;
use crier_domain::sandbox::SandboxMedia;
use crier_store::{media, post_media, sandbox};
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps};
use crate::support::images;
use crate::support::store::{TestStore, on_both, publish_to_sandbox};

on_both_apps!(foreign_and_duplicate_images_are_rejected, images_of_unpublished_posts_are_in_use);
on_both_apps!("unlimited" =>
    images_keep_their_order,
    a_draft_with_a_deleted_image_cannot_be_published,
    retrying_a_post_with_a_deleted_image_is_rejected,
    published_targets_do_not_need_their_images,
    published_parts_do_not_need_their_images,
    a_concurrently_deleted_image_is_rejected,
    concurrent_scheduling_and_deletion_conflict,
    platform_image_limits_are_enforced,
    the_sandbox_shows_images_with_alt_texts,
);

on_both!(platforms_that_download_images_need_a_public_url, options_are_checked_with_the_post,);

async fn create(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/posts"), body).await
}

async fn upload(t: &Tenant<'_>, width: u32, height: u32) -> i64 {
    t.upload("a.png", &images::png(width, height), &[]).await.data(201)["id"].as_i64().unwrap()
}

async fn two(t: &Tenant<'_>) -> (i64, i64) {
    (upload(t, 20, 20).await, upload(t, 30, 20).await)
}

/// Returns whether each of the images is in use.
async fn used(app: &TestApp, ids: &[i64]) -> Vec<bool> {
    let mut used = Vec::new();
    for id in ids {
        used.push(post_media::in_use(&mut app.conn().await, *id).await.unwrap());
    }
    used
}

async fn delete_asset(app: &TestApp, brand: i64, id: i64) {
    app.write(async |tx| media::delete(tx, brand, id).await).await;
}

async fn images_keep_their_order(t: Tenant<'_>) {
    let (account, other) = (t.account("demo").await, t.account("other").await);
    let ((one, two), three) = (two(&t).await, upload(&t, 5, 5).await);
    let own = json!([{ "account_id": other, "media": [three, one] }]);
    let created =
        create(&t, json!({ "media": [two, one], "accounts": [account, other], "overrides": own })).await.data(201);
    assert_eq!((&created["media"], &created["content"]), (&json!([two, one]), &json!("")));
    assert_eq!(
        (&created["targets"][0]["media"], &created["targets"][1]["media"]),
        (&Value::Null, &json!([three, one]))
    );
    assert_eq!(t.app.count_rows("post_media").await, 3, "each once");
    let path = t.path(&format!("/posts/{}", created["id"]));
    let changed = t.put(&path, json!({ "media": [one, two] })).await.data(200);
    assert_eq!((&changed["media"], &changed["targets"][1]["media"]), (&json!([one, two]), &json!([three, one])));
    t.put(&path, json!({ "overrides": null })).await.expect(200);
    assert_eq!(t.app.count_rows(format!("post_media WHERE media_id = {three}")).await, 0);
    assert_eq!(t.put(&path, json!({ "media": null })).await.invalid_fields(), ["content"]);
    let bare = t.put(&path, json!({ "media": [], "content": "x" })).await.data(200);
    assert_eq!((&bare["media"], t.app.count_rows("post_media").await), (&json!([]), 0));
}

async fn foreign_and_duplicate_images_are_rejected(app: TestApp) {
    let (t, stranger) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let account = t.account("demo").await;
    let ((one, two), theirs) = (two(&t).await, upload(&stranger, 20, 20).await);
    let own = |media: Value| json!([{ "account_id": account, "media": media }]);
    for (body, wrong) in [
        (json!({ "media": [one, theirs] }), vec!["media.1"]),
        (json!({ "media": [one, 999, two, one] }), vec!["media.3"]),
        (json!({ "media": [999, one, 998] }), vec!["media.0", "media.2"]),
        (
            json!({ "content": "x", "accounts": [account], "overrides": own(json!([one, theirs])) }),
            vec!["overrides.0.media.1"],
        ),
        (
            json!({ "content": "x", "accounts": [account], "overrides": own(json!([one, one])) }),
            vec!["overrides.0.media.1"],
        ),
    ] {
        for path in ["/posts", "/posts/validate"] {
            assert_eq!(t.post(&t.path(path), body.clone()).await.invalid_fields(), wrong, "{body}");
        }
    }
    let error = create(&t, json!({ "media": [theirs] })).await.expect_error(422, "validation_failed");
    let message = format!("Media asset {theirs} does not exist in this brand.");
    assert_eq!(error["fields"]["media.0"], json!([message]));
    assert_eq!(app.count_rows("posts").await + app.count_rows("post_media").await, 0);
}

async fn images_of_unpublished_posts_are_in_use(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let (one, two) = two(&t).await;
    let own = json!([{ "account_id": account, "media": [two] }]);
    let created = create(&t, json!({ "media": [one], "accounts": [account], "overrides": own })).await.data(201);
    let path = t.path(&format!("/posts/{}", created["id"]));
    assert_eq!(used(&app, &[one, two]).await, [false, false], "of a draft");
    let submitted = t.request("POST", &format!("{path}/submit")).send().await.data(200);
    assert_eq!((&submitted["status"], used(&app, &[one, two]).await), (&json!("pending_approval"), vec![true, true]));
    t.request("POST", &format!("{path}/approve")).send().await.expect(200);
    assert_eq!(used(&app, &[one, two]).await, [true, true], "while it is published");
    for (status, is_used) in
        [("scheduled", true), ("published", false), ("partially_published", false), ("failed", false)]
    {
        app.sql(format!("UPDATE posts SET status = '{status}'")).await;
        assert_eq!(used(&app, &[one, two, 999]).await, [is_used, is_used, false], "{status}");
    }
    app.sql("UPDATE posts SET status = 'publishing', deleted_at = updated_at").await;
    for (target, is_used) in [("publishing", true), ("published", false), ("pending", true)] {
        app.sql(format!("UPDATE post_targets SET status = '{target}'")).await;
        assert_eq!(used(&app, &[one, two]).await, [is_used, is_used], "of a deleted post, {target}");
    }
    app.sql("UPDATE posts SET status = 'scheduled', deleted_at = NULL").await;
    t.delete(&path).await.expect(204);
    assert_eq!(used(&app, &[one, two]).await, [false, false], "of a deleted post");
}

async fn a_draft_with_a_deleted_image_cannot_be_published(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (one, two) = two(&t).await;
    let body = json!({ "content": "x", "media": [one, two], "accounts": [account] });
    let path = t.path(&format!("/posts/{}", create(&t, body).await.data(201)["id"]));
    delete_asset(t.app, t.brand, one).await;
    assert_eq!(t.put(&path, json!({ "content": "y" })).await.data(200)["media"], json!([one, two]));
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["media.0"]);
    assert_eq!(t.request("POST", &format!("{path}/submit")).send().await.invalid_fields(), ["media.0"]);
    assert_eq!(t.put(&path, json!({ "media": [two, one] })).await.invalid_fields(), ["media.1"]);
    let other = json!([{ "account_id": account, "media": [two] }]);
    assert_eq!(t.put(&path, json!({ "overrides": other })).await.data(200)["media"], json!([one, two]));
    assert_eq!(t.app.count_rows("post_media").await, 1);
    let now = t.put(&path, json!({ "schedule_type": "now" })).await.data(200);
    assert_eq!(now["status"], "publishing", "a deleted image is not published");
}

/// Creates a post that failed on one account and, if `half`, was published on the other. Returns its path.
async fn failed(app: &TestApp, t: &Tenant<'_>, half: bool, body: Value) -> String {
    let created = create(t, body).await.data(201);
    let id = created["id"].as_i64().unwrap();
    if half {
        app.end_post(id, "partially_published", &["published", "failed"]).await;
    } else {
        app.end_post(id, "failed", &["failed"]).await;
    }
    t.path(&format!("/posts/{}", created["id"]))
}

async fn retrying_a_post_with_a_deleted_image_is_rejected(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let (one, two) = two(&t).await;
    let body = json!({ "schedule_type": "now", "media": [two, one], "accounts": [account] });
    let path = failed(t.app, &t, false, body).await;
    delete_asset(t.app, t.brand, one).await;
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["media.1"]);
    let again = t.put(&path, json!({ "schedule_type": "now", "media": [two] })).await.data(200);
    assert_eq!((&again["status"], &again["media"]), (&json!("publishing"), &json!([two])));
    assert_eq!(used(t.app, &[one, two]).await, [false, true]);
}

async fn published_targets_do_not_need_their_images(t: Tenant<'_>) {
    let (account, other) = (t.account("demo").await, t.account("other").await);
    let (one, two) = two(&t).await;
    let own = json!([{ "account_id": other, "media": [two] }]);
    let body = json!({ "schedule_type": "now", "media": [one], "accounts": [account, other], "overrides": own });
    let path = failed(t.app, &t, true, body).await;
    delete_asset(t.app, t.brand, one).await;
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.data(200)["status"], "publishing");
    let post = t.app.newest_id("posts").await;
    t.app.end_post(post, "partially_published", &["published", "failed"]).await;
    delete_asset(t.app, t.brand, two).await;
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["overrides.media.0"]);
    t.app.end_post(post, "published", &["published", "published"]).await;
    assert_eq!(t.put(&path, json!({})).await.data(200)["status"], "published");
}

async fn published_parts_do_not_need_their_images(t: Tenant<'_>) {
    let accounts = [t.account("demo").await, t.account("other").await];
    let (one, two) = two(&t).await;
    let change = |second: &str, third: &str| {
        let thread = json!([{ "content": second, "media": [one] }, { "content": third, "media": [two] }]);
        let own = json!([{ "account_id": accounts[1], "media": [one], "thread": thread }]);
        json!({ "media": [one], "thread": thread, "overrides": own })
    };
    let mut body = change("two", "three");
    body["accounts"] = json!(accounts);
    body["schedule_type"] = json!("now");
    let path = failed(t.app, &t, false, body).await;
    let part = |id: &str| json!({ "external_id": id, "url": null, "published_at": "2026-03-01T12:00:00Z" });
    let parts = json!([part("1"), part("2")]);
    t.app.sql(format!("UPDATE post_targets SET status = 'failed', published_parts = '{parts}'")).await;

    delete_asset(t.app, t.brand, one).await;
    let changed = t.put(&path, change("two", "3")).await.data(200);
    assert_eq!(
        (&changed["thread"][1]["content"], &changed["targets"][1]["thread"][1]["content"]),
        (&json!("3"), &json!("3"))
    );
    t.put(&path, change("2", "3")).await.expect_error(409, "post_not_editable");
    delete_asset(t.app, t.brand, two).await;
    let missing = ["overrides.0.thread.1.media.0", "thread.1.media.0"];
    assert_eq!(t.put(&path, change("two", "3")).await.invalid_fields(), missing);
    // An image must exist if its part is published on some of the accounts only.
    t.app.sql(format!("UPDATE post_targets SET published_parts = '[]' WHERE account_id = {}", accounts[0])).await;
    let missing = ["media.0", missing[0], "thread.0.media.0", missing[1]];
    assert_eq!(t.put(&path, change("two", "3")).await.invalid_fields(), missing);
}

async fn a_concurrently_deleted_image_is_rejected(t: Tenant<'_>) {
    let (account, (one, _)) = (t.account("demo").await, two(&t).await);
    let mut deleting = t.app.begin().await.unwrap();
    media::lock(&mut deleting, t.brand, one).await.unwrap();
    let posting = create(&t, json!({ "schedule_type": "now", "media": [one], "accounts": [account] }));
    let delete = async {
        // On SQLite, a writer waits in any case.
        if t.app.is_postgres() {
            t.app.until_blocked(1).await;
        }
        assert!(!post_media::in_use(&mut deleting, one).await.unwrap());
        media::delete(&mut deleting, t.brand, one).await.unwrap();
        deleting.commit().await.unwrap();
    };
    let (reply, ()) = tokio::join!(posting, delete);
    assert_eq!(reply.invalid_fields(), ["media.0"]);
    assert_eq!(t.app.count_rows("posts").await, 0);
}

async fn platform_image_limits_are_enforced(t: Tenant<'_>) {
    let (telegram, instagram) = (t.account_on(Platform::Telegram).await, t.account_on(Platform::Instagram).await);
    let (long, square) = (upload(&t, 210, 10).await, upload(&t, 20, 20).await);
    let mut many = Vec::new();
    for n in 0..11 {
        many.push(upload(&t, 20 + n, 20).await);
    }
    let validate = async |body: Value| t.post(&t.path("/posts/validate"), body).await.data(200);
    let codes = |response: &Value, i: usize| -> Vec<(String, String)> {
        let problems = response["targets"][i]["problems"].as_array().unwrap();
        let word = |p: &Value, name: &str| p[name].as_str().unwrap().to_owned();
        problems.iter().map(|p| (word(p, "field"), word(p, "code"))).collect()
    };
    let only = |field: &str, code: &str| vec![(field.to_owned(), code.to_owned())];
    let response =
        validate(json!({ "content": "x", "media": [square, long], "accounts": [telegram, instagram] })).await;
    // Instagram cannot download them from this app either, because its address is private.
    let both = vec![only("media", "image_ratio").remove(0), only("media", "pictures_unreachable").remove(0)];
    assert_eq!((codes(&response, 0), codes(&response, 1)), (only("media", "image_ratio"), both));
    let response = validate(json!({ "content": "x", "media": many, "accounts": [telegram] })).await;
    assert_eq!(codes(&response, 0), only("media", "too_many_images"));
    let own = json!([{ "account_id": telegram, "media": [long] }]);
    let response = validate(json!({ "content": "x", "accounts": [telegram, instagram], "overrides": own })).await;
    assert_eq!(
        (codes(&response, 0), codes(&response, 1)),
        (only("overrides.0.media", "image_ratio"), only("media", "image_required"))
    );
    assert_eq!(validate(json!({ "media": [square], "accounts": [telegram] })).await["valid"], true);

    let now = json!({ "schedule_type": "now", "media": [square, long], "accounts": [telegram] });
    let error = create(&t, now).await.expect_error(422, "validation_failed");
    let sentence = format!(
        "Account {telegram} (Demo): Telegram accepts images from 1:20 to 20:1 (width to height); image 2 has 210 × 10."
    );
    assert_eq!(error["fields"]["media"], json!([sentence]));
    create(&t, json!({ "media": [square, long], "accounts": [telegram] })).await.expect(201);
}

async fn the_sandbox_shows_images_with_alt_texts(t: Tenant<'_>) {
    let image = |n: i32, alt: &str| SandboxMedia::image(format!("/media/{n}.png"), alt);
    let images = [image(1, "A \"red\" <door>"), image(2, "")];
    t.app
        .write(async |tx| {
            sandbox::claim_handle(tx, t.workspace, "shows").await?;
            publish_to_sandbox(tx, t.workspace, "shows", "k", "", &images).await
        })
        .await;
    let page = t.app.page("/sandbox/shows").await;
    assert_eq!(page.status, 200);
    let html = String::from_utf8(page.body.clone()).unwrap();
    assert!(html.contains("class=\"images of-2\""), "{html}");
    assert!(html.contains("<img src=\"/media/1.png\" alt=\"A &#34;red&#34; &#60;door&#62;\""), "{html}");
    assert!(
        html.contains("<a href=\"/media/2.png\" aria-label=\"Image 2\"><img src=\"/media/2.png\" alt=\"\"")
            && !html.contains("<p class=\"text\">"),
        "{html}"
    );
}

async fn concurrent_scheduling_and_deletion_conflict(t: Tenant<'_>) {
    let account = t.account("demo").await;
    for round in 0..20 {
        let image = upload(&t, 20 + round, 10).await;
        let at = t.app.later(3_600).to_rfc3339();
        let post = json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account], "media": [image] });
        let path = t.path(&format!("/media/{image}"));
        let (deleted, scheduled) = tokio::join!(t.delete(&path), create(&t, post));
        match scheduled.status {
            201 => drop(deleted.expect_error(409, "media_in_use")),
            _ => {
                assert_eq!(scheduled.invalid_fields(), ["media.0"]);
                deleted.expect(204);
            }
        }
        assert_eq!(used(t.app, &[image]).await, [scheduled.status == 201]);
    }
}

async fn platforms_that_download_images_need_a_public_url(s: TestStore) {
    let s = TestApp::start_at(s, "https://crier.example").await;
    let t = s.tenant("unlimited").await;
    let (instagram, square) = (t.account_on(Platform::Instagram).await, upload(&t, 20, 20).await);
    let body = json!({ "media": [square], "accounts": [instagram], "schedule_type": "now" });
    assert_eq!(t.post(&t.path("/posts/validate"), body.clone()).await.data(200)["valid"], true);
    create(&t, body).await.expect(201);
    s.stop().await;

    for private in ["http://crier.example", "https://10.0.0.7", "https://localhost:8443"] {
        let s = TestApp::start_at(TestStore::sqlite().await, private).await;
        let t = s.tenant("unlimited").await;
        let (instagram, square) = (t.account_on(Platform::Instagram).await, upload(&t, 20, 20).await);
        let body = json!({ "media": [square], "accounts": [instagram], "schedule_type": "now" });
        let response = create(&t, body).await.expect_error(422, "validation_failed");
        let message = response["fields"]["media"][0].as_str().unwrap();
        assert!(message.contains("Instagram downloads images"), "{message}");
        assert!(message.contains("CRIER_PUBLIC_URL") && message.contains(private), "{message}");
    }
}

async fn options_are_checked_with_the_post(s: TestStore) {
    let s = TestApp::start_at(s, "https://crier.example").await;
    let t = s.tenant("unlimited").await;
    let (tiktok, square) = (t.account_on(Platform::Tiktok).await, upload(&t, 20, 20).await);
    let rejected = async |options: Value| {
        let own = json!([{ "account_id": tiktok, "options": options }]);
        let body = json!({ "schedule_type": "now", "media": [square], "accounts": [tiktok], "overrides": own });
        create(&t, body).await.invalid_fields()
    };
    assert_eq!(rejected(json!({})).await, ["overrides.0.options.visibility"]);
    let wrong = json!({ "visibility": "everyone", "title": "x".repeat(91), "auto_add_music": "yes" });
    let fields = ["auto_add_music", "title", "visibility"].map(|name| format!("overrides.0.options.{name}"));
    assert_eq!(rejected(wrong).await, fields);
    let own = json!([{ "account_id": tiktok, "options": { "visibility": "private", "unknown": 1 } }]);
    let body = json!({ "schedule_type": "now", "media": [square], "accounts": [tiktok], "overrides": own });
    create(&t, body).await.expect(201);
}
