//! The complete body of each resource's main record, as a snapshot, which is the same on both engines. The clock of a
//! test stands still, so times are compared as well. Ids and random values are not compared.
//! `CRIER_TEST_UPDATE=1` accepts a change.

use chrono::TimeDelta;
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_domain::auto_post::{ArticleKeys, FeedPostStatus};
use crier_runtime::sandbox;
use crier_store::analytics;
use crier_store::feed_posts::{self, NewFeedPost};
use insta::internals::{Content, ContentPath};
use serde_json::{Value, json};

use super::conversations::received;
use super::feeds::article;
use crate::support::app::Tenant;
use crate::support::command::crier;
use crate::support::images;
use crate::support::reports::{Settings, TestInstallation, create};
use crate::support::store::{TestStore, on_both};

on_both!(installation =>
    a_brand_with_its_members_and_usage,
    an_account,
    a_post_in_each_state,
    attempts_of_a_post,
    an_image_and_an_import,
    a_webhook_and_its_delivery,
    a_conversation_with_a_reply,
    a_report_with_a_schedule_and_a_delivery,
    metrics_of_a_brand,
    a_feed_and_an_article,
    a_content_plan,
    a_link_in_bio_page,
    a_snippet,
    a_queue,
    a_recurring_post,
    a_key,
    errors,
);

/// Starts an installation with every role and the real sandbox.
async fn installation(s: TestStore) -> TestInstallation {
    let url = "https://crier.test";
    let app = TestInstallation::start_with(s, Settings { public_url: Some(url), ..Settings::default() }).await;
    let sandbox = sandbox::connector(&app.store.store, url);
    assert!(app.connector.real.set(sandbox).is_ok());
    app
}

/// The paths of ids.
const IDS: [&str; 10] = [
    ".**.id",
    ".**.account_id",
    ".**.brand_id",
    ".**.job_id",
    ".**.post_id",
    ".**.report_id",
    ".**.user_id",
    ".**.webhook_id",
    ".accounts[]",
    ".posts[].accounts[]",
];

/// Random values and their placeholders.
const RANDOM: [(&str, &str); 3] = [(".key", "[key]"), (".**.request_id", "[request id]"), (".**.secret", "[secret]")];
/// The length of the random name of a file.
const FILE_NAME_LENGTH: usize = 40;

/// Compares a record with its snapshot.
fn assert_record(name: &str, record: &Value) {
    let mut settings = insta::Settings::clone_current();
    settings.set_prepend_module_to_snapshot(false);
    settings.set_snapshot_path("snapshots/records");
    for path in IDS {
        settings.add_dynamic_redaction(path, without_id);
    }
    for (path, placeholder) in RANDOM {
        settings.add_dynamic_redaction(path, move |value, _| if value.is_nil() { value } else { placeholder.into() });
    }
    for path in [".**.url", ".**.thumbnail_url"] {
        settings.add_dynamic_redaction(path, without_file_name);
    }
    settings.bind(|| insta::assert_json_snapshot!(name, record));
}

fn without_id(value: Content, _: ContentPath<'_>) -> Content {
    if value.is_nil() {
        return value;
    }
    assert!(value.as_i64().is_some_and(|id| id > 0), "{value:?} is no id");
    Content::from("[id]")
}

/// Replaces the random name in the URL of a file.
fn without_file_name(value: Content, _: ContentPath<'_>) -> Content {
    let Some((start, name)) = value.as_str().and_then(|url| url.split_once("/media/")) else { return value };
    Content::from(format!("{start}/media/[name]{}", name.get(FILE_NAME_LENGTH..).expect("a name")))
}

/// Creates a post, and returns its path.
async fn create_post(t: &Tenant<'_>, body: Value) -> String {
    let created = t.post(&t.path("/posts"), body).await.data(201);
    t.path(&format!("/posts/{}", created["id"]))
}

async fn a_brand_with_its_members_and_usage(app: TestInstallation) {
    let t = app.tenant("pro").await;
    t.post(&t.path("/posts"), json!({ "content": "Fresh bread" })).await.expect(201);
    assert_record("brand", &t.get(&t.path("")).await.data(200));
    assert_record("brands", &t.get("/brands").await.expect(200));
    assert_record("members", &t.get(&t.path("/members")).await.data(200));
    assert_record("usage", &t.get(&t.path("/usage")).await.data(200));
}

async fn an_account(app: TestInstallation) {
    let t = app.tenant("pro").await;
    t.account("demo").await;
    assert_record("account", &t.get(&t.path("/social-accounts")).await.data(200)[0]);
}

/// Creates and publishes a post on two accounts, and returns its path.
async fn publish(app: &TestInstallation, t: &Tenant<'_>, accounts: [i64; 2], texts: [&str; 2]) -> String {
    let own = json!([{ "account_id": accounts[1], "content": texts[1] }]);
    let body = json!({ "content": texts[0], "schedule_type": "now", "accounts": accounts, "overrides": own });
    let path = create_post(t, body).await;
    app.run_jobs().await;
    path
}

async fn a_post_in_each_state(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("demo").await, t.account("other").await];
    let draft = create_post(&t, json!({ "content": "Fresh bread", "accounts": accounts })).await;
    let pending = create_post(&t, json!({ "content": "Fresh rolls", "accounts": accounts })).await;
    t.request("POST", &format!("{pending}/submit")).send().await.expect(200);
    let at = (app.now() + TimeDelta::hours(2)).to_rfc3339();
    let scheduled =
        json!({ "content": "Fresh cake", "schedule_type": "scheduled", "scheduled_at": at, "accounts": accounts });
    let scheduled = create_post(&t, scheduled).await;
    let published = publish(&app, &t, accounts, ["Rye", "Rye, too"]).await;
    let partially = publish(&app, &t, accounts, ["Wheat", "[fail] Wheat"]).await;
    let failed = publish(&app, &t, accounts, ["[fail] Spelt", "[fail] Spelt, too"]).await;
    let publishing = create_post(&t, json!({ "content": "Oats", "schedule_type": "now", "accounts": accounts })).await;
    for (state, path) in [
        ("draft", draft),
        ("pending_approval", pending),
        ("scheduled", scheduled),
        ("publishing", publishing),
        ("published", published.clone()),
        ("partially_published", partially.clone()),
        ("failed", failed),
    ] {
        let shown = t.get(&path).await.data(200);
        assert_eq!(shown["status"], state);
        assert_record(&format!("post_{state}"), &shown);
    }
    assert_record("posts", &t.get(&t.path("/posts?per_page=2&page=2")).await.expect(200));
    assert_record("post_status", &t.get(&format!("{partially}/status")).await.data(200));
}

async fn attempts_of_a_post(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("demo").await, t.account("other").await];
    let path = publish(&app, &t, accounts, ["Rye", "[fail] Rye"]).await;
    assert_record("attempts", &t.get(&format!("{path}/attempts")).await.data(200));
}

async fn an_image_and_an_import(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let texts = [("asset_type", "logo"), ("alt_text", "A sign")];
    let created = t.upload("sign.png", &images::png(30, 20), &texts).await.data(201);
    assert_record("media", &created);
    let import = t.post(&t.path("/media/from-url"), json!({ "url": "https://8.8.8.8/a.png" })).await.data(202);
    assert_record("import", &import);
}

async fn a_webhook_and_its_delivery(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "url": "https://8.8.8.8/hook", "events": ["brand.created"], "description": "The till" });
    let created = t.post("/webhooks", body).await.data(201);
    assert_record("webhook_created", &created);
    let path = format!("/webhooks/{}", created["id"]);
    assert_record("webhook", &t.get(&path).await.data(200));
    t.post("/brands", json!({ "name": "Second" })).await.expect(201);
    assert_record("delivery", &t.get(&format!("{path}/deliveries")).await.data(200)[0]);
}

async fn a_conversation_with_a_reply(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let id = received(&t, account).await;
    let path = t.path(&format!("/conversations/{id}"));
    assert_record("message", &t.post(&format!("{path}/reply"), json!({ "body": "Thank you!" })).await.data(202));
    assert_record("conversation", &t.get(&path).await.data(200));
    assert_record("conversations", &t.get(&t.path("/conversations")).await.expect(200));
}

async fn a_report_with_a_schedule_and_a_delivery(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let widgets =
        json!([{ "type": "summary" }, { "type": "note", "title": "In short", "options": { "text": "Good." } }]);
    let path = create(&t, "Weekly", widgets).await;
    let schedule =
        json!({ "frequency": "weekly", "time": "07:30", "recipients": ["ann@example.com"], "format": "csv" });
    assert_record("schedule", &t.post(&format!("{path}/schedules"), schedule).await.data(201));
    assert_record("report", &t.get(&path).await.data(200));
    let created = t.post(&format!("{path}/export"), json!({ "format": "csv" })).await.data(202);
    app.run_jobs().await;
    let path = t.path(&format!("/reports/deliveries/{}", created["id"]));
    assert_record("report_delivery", &t.get(&path).await.data(200));
}

async fn metrics_of_a_brand(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("demo").await, t.account("other").await];
    let path = publish(&app, &t, accounts, ["Rye", "Rye, too"]).await;
    let limit = 10;
    app.write(async |tx| analytics::add_published(tx, None, limit).await).await;
    let targets = t.get(&path).await.data(200)["targets"].take();
    app.advance(3_600);
    for (target, likes) in targets.as_array().unwrap().iter().zip([3, 4]) {
        let metrics = Some(PostMetrics { impressions: Some(50), likes: Some(likes), ..PostMetrics::default() });
        let target_id = target["id"].as_i64().unwrap();
        let collected = [analytics::CollectedMetrics { target_id, metrics, next_at: None }];
        app.write(async |tx| analytics::record_posts(tx, &collected).await).await;
    }
    let followers = AccountMetrics { followers: Some(12), ..AccountMetrics::default() };
    app.write(async |tx| analytics::record_account(tx, accounts[0], &followers).await).await;
    // The current day of the test's clock, and the day before.
    let days = "?start=2026-06-08&end=2026-06-09";
    assert_record("analytics_posts", &t.get(&t.path(&format!("/analytics/posts{days}"))).await.data(200));
    assert_record("analytics_accounts", &t.get(&t.path(&format!("/analytics/accounts{days}"))).await.data(200));
    assert_record("analytics_post", &t.get(&format!("{path}/analytics")).await.data(200));
    assert_record("best_times", &t.get(&t.path("/analytics/best-times")).await.data(200));
    assert_record("top_posts", &t.get(&t.path(&format!("/analytics/top-posts{days}"))).await.data(200));
}

async fn a_feed_and_an_article(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let created =
        t.post(&t.path("/feeds"), json!({ "name": "News", "url": "https://8.8.8.8/feed.xml" })).await.data(201);
    assert_record("feed", &created);
    article(&t, created["id"].as_i64().unwrap(), "first").await;
    let path = t.path(&format!("/feeds/{}/articles", created["id"]));
    assert_record("article", &t.get(&path).await.data(200)[0]);
    let settings = json!({ "template": "{title}\n\n{url}", "accounts": [], "destination": "draft", "max_per_day": 3 });
    let preview = t.post(&t.path(&format!("/feeds/{}/preview", created["id"])), settings.clone()).await;
    assert_record("article_preview", &preview.data(200)[0]);
    let path = t.path(&format!("/feeds/{}", created["id"]));
    let publishes = t.put(&path, json!({ "auto_post": settings })).await.data(200);
    assert_record("feed_auto_post", &publishes["auto_post"]);
    let waiting = NewFeedPost {
        status: Some(FeedPostStatus::Waiting),
        guid: "second",
        keys: ArticleKeys::default(),
        title: Some("Second"),
        url: Some("https://8.8.8.8/second"),
        reason: None,
    };
    let feed = created["id"].as_i64().unwrap();
    t.app.write(async |tx| feed_posts::remember(tx, feed, &[waiting]).await).await;
    assert_record("feed_post", &t.get(&format!("{path}/posts")).await.data(200)[0]);
}

async fn a_content_plan(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let items =
        json!([{ "title": "Later" }, { "title": "Noon", "content": "Lunch", "planned_at": "2030-07-01T12:00" }]);
    let body = json!({ "name": "Spring", "starts_on": "2030-01-01", "ends_on": "2030-01-31", "items": items });
    assert_record("content_plan", &t.post(&t.path("/content-plans"), body).await.data(201));
}

async fn a_link_in_bio_page(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let links = json!([{ "title": "Menu", "url": "https://example.com/menu?x=1&y=2" }, { "title": "Call", "url": "tel:+4930123" }]);
    let body = json!({ "title": "Café Löwe", "slug": "loewe", "theme": "ocean", "bio": "Best & only", "links": links });
    assert_record("link_in_bio", &t.post(&t.path("/link-in-bio"), body).await.data(201));
}

async fn a_snippet(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let body = json!({ "name": "Closing", "kind": "signature", "content": "— Café Löwe" });
    assert_record("snippet", &t.post(&t.path("/snippets"), body).await.data(201));
}

async fn a_recurring_post(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body = json!({
        "name": "Menu", "variations": [{ "content": "Bread" }, { "content": "Rolls" }], "accounts": [account],
        "overrides": [{ "account_id": account, "content": "Here only" }], "labels": ["menu"], "frequency": "weekly",
        "weekdays": [1, 5], "time": "08:30", "count": 10, "destination": "calendar",
    });
    assert_record("recurring_post", &t.post(&t.path("/recurring-posts"), body).await.data(201));
}

/// Keys have no endpoint. The operator lists them.
async fn a_queue(app: TestInstallation) {
    let t = app.tenant("pro").await;
    let account = t.account("demo").await;
    let slots = json!({ "slots": [{ "weekday": 1, "time": "09:00" }, { "weekday": 4, "time": "17:30" }] });
    t.put(&t.path("/queue"), slots).await.expect(200);
    create_post(&t, json!({ "content": "Fresh bread", "schedule_type": "queue", "accounts": [account] })).await;
    assert_record("queue", &t.get(&t.path("/queue")).await.data(200));
}

async fn a_key(app: TestInstallation) {
    app.tenant("unlimited").await;
    assert_record("key", &crier(&app, &["key", "list", "--json"]).json()[0]);
}

async fn errors(app: TestInstallation) {
    let t = app.tenant("unlimited").await;
    // `acounts` is a typo on purpose.
    let body = json!({ "content": "", "schedule_type": "later", "media": ["x"], "acounts": [1] });
    let problems = t.post(&t.path("/posts"), body).await;
    problems.expect_error(422, "validation_failed");
    assert_record("error_with_problems", &problems.json());
    let missing = t.get(&t.path("/posts/999999")).await;
    missing.expect_error(404, "not_found");
    assert_record("error", &missing.json());
}
