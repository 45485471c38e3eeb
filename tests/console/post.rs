//! The page of a post, and its actions.

use chrono::TimeDelta;
use crier_domain::access::Role;
use crier_domain::analytics::PostMetrics;
use crier_store::analytics::{self, CollectedMetrics};
use serde_json::{Value, json};

use crate::support::app::{BARE, Tenant, TestApp, on_one_app};
use crate::support::console::ConsoleUser;
use crate::support::images;

on_one_app!("unlimited" =>
    only_managers_approve,
    a_post_that_was_submitted_again_is_shown_before_it_is_approved,
    contributors_are_offered_drafts_only,
    contributors_cannot_retry,
);
on_one_app!(console "unlimited" =>
    a_post_shows_its_accounts,
    a_long_text_is_cut,
    the_texts_and_images_of_an_account_are_shown,
    a_post_is_rescheduled_and_unscheduled,
    a_post_is_published_once,
    a_draft_that_was_changed_meanwhile_is_not_published,
    a_post_is_deleted_once,
    a_post_is_duplicated_once,
    failed_accounts_are_retried_once,
    an_unknown_outcome_is_confirmed_first,
);
on_one_app!(
    a_failed_account_is_edited_and_retried_in_one_step,
    metrics_are_shown_for_each_account,
    a_plan_limits_the_metrics,
);

fn page_of(t: &Tenant<'_>, id: i64) -> String {
    format!("/brands/{}/posts/{id}", t.brand)
}

async fn create_post(t: &Tenant<'_>, body: Value) -> i64 {
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

async fn read_post(t: &Tenant<'_>, id: i64) -> Value {
    t.get(&t.path(&format!("/posts/{id}"))).await.data(200)
}

/// Creates a post that has failed on its account with an error of this category.
async fn create_failed_post(t: &Tenant<'_>, category: &str) -> i64 {
    let account = t.account("demo").await;
    let id = create_post(t, json!({ "content": "Bread", "schedule_type": "now", "accounts": [account] })).await;
    t.app.fail_post(id, category, "The oven is cold.").await;
    id
}

async fn a_post_shows_its_accounts(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_failed_post(&t, "auth_expired").await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "Bread").expect(200, "demo").expect(200, "The oven is cold.").expect(200, "Reconnect");
    page.expect(200, "2 attempts").expect(200, "Ann").expect(200, "Retry failed accounts");
    assert!(!page.has("Publish now") && !page.has("It was not published"), "{}", page.text);
    assert!(!page.has("Edit and retry"), "the account must be reconnected: {}", page.text);
    t.app.sql("UPDATE post_targets SET url = 'javascript:alert(1)'").await;
    assert!(!person.get(&page_of(&t, id)).await.has("javascript:"));
    t.app.sql("UPDATE post_targets SET options = '{\"link_url\":\"https://a.example\",\"sensitive\":true}'").await;
    person.get(&page_of(&t, id)).await.expect(200, "Link URL: ").expect(200, "Sensitive media: ");
    t.app.sql("DELETE FROM brand_accounts").await;
    person.get(&page_of(&t, id)).await.expect(200, "demo (disconnected)");
    t.app.sql("DELETE FROM social_accounts").await;
    person.get(&page_of(&t, id)).await.expect(200, "Disconnected account");
}

async fn a_long_text_is_cut(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_post(&t, json!({ "content": format!("{}THE END", "ü".repeat(60_000)) })).await;
    let page = person.get(&page_of(&t, id)).await;
    assert!(page.status == 200 && !page.has("THE END") && page.text.len() < 100_000, "{}", page.text.len());
    person.get(&format!("{}?full=1", page_of(&t, id))).await.expect(200, "THE END");
}

/// Who approves a post must see all that would be published.
async fn the_texts_and_images_of_an_account_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let upload =
        async |alt: &str| t.upload("a.png", &images::png(20, 20), &[("alt_text", alt)]).await.data(201)["id"].clone();
    let (first, second) = (upload("First loaf").await, upload("Second loaf").await);
    let own = json!({
        "account_id": account, "content": format!("{}THE END", "Rye ".repeat(200)), "media": [first],
        "thread": [{ "content": "Only on this account", "media": [second] }],
        "first_comment": { "content": "Everything is free" },
    });
    let id = create_post(&t, json!({ "content": "Bread", "accounts": [account], "overrides": [own] })).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "Only on this account").expect(200, "Everything is free").expect(200, "Show the full text");
    for loaf in ["First loaf", "Second loaf"] {
        page.expect(200, &format!("alt=\"{loaf}\"")).expect(200, &format!("Description: <bdi>{loaf}"));
    }
    assert!(!page.has("THE END"), "{}", page.text);
    let page = person.get(&format!("{}?full=1", page_of(&t, id))).await;
    page.expect(200, "THE END</p>");
}

async fn a_post_is_rescheduled_and_unscheduled(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, json!({ "content": "x", "accounts": [account] })).await;
    let (path, reschedule) = (page_of(&t, id), format!("{}/reschedule", page_of(&t, id)));
    for typed in ["", "2020-01-01T09:30", "tomorrow"] {
        let page = person.submit(&path, &reschedule, &[("scheduled_at", typed)]).await;
        assert!(page.status == 422 && page.has("id=\"e-scheduled_at\""), "{typed}: {}", page.text);
    }
    assert_eq!(read_post(&t, id).await["status"], "draft");
    let page = person.submit(&path, &reschedule, &[("scheduled_at", "2026-07-01T09:30")]).await;
    page.expect(200, "Post scheduled.").expect(200, "1 Jul, 09:30");
    let unschedule = format!("{path}/unschedule");
    person.submit(&path, &unschedule, &[]).await.expect(200, "The post returned to draft.");
    assert_eq!(read_post(&t, id).await["status"], "draft");
}

async fn a_post_is_published_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, json!({ "content": "x", "accounts": [account] })).await;
    let (path, publish) = (page_of(&t, id), format!("{}/publish", page_of(&t, id)));
    let (page, another) = (person.get(&path).await, person.get(&path).await);
    for _ in 0..2 {
        person.submit_from(&page, &publish, &[]).await.expect(200, "data-moving");
    }
    person.submit_from(&another, &publish, &[]).await.expect(409, "cannot be scheduled, published");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'publish_target'").await, 1);
}

/// A contributor, or an agent with drafts only, could otherwise publish a text that nobody has seen.
async fn a_draft_that_was_changed_meanwhile_is_not_published(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let id = create_post(&t, json!({ "content": "Fresh bread", "accounts": [account] })).await;
    let path = page_of(&t, id);
    let page = person.get(&path).await;
    t.app.clock.advance(TimeDelta::seconds(1));
    contributor.put(&t.path(&format!("/posts/{id}")), json!({ "content": "Everything is free" })).await.expect(200);
    let time = [("scheduled_at", "2026-07-01T09:30")];
    for (action, fields) in [("publish", &time[..0]), ("reschedule", &time[..])] {
        let shown = person.submit_from(&page, &format!("{path}/{action}"), fields).await;
        shown.expect(409, "was changed in the meantime").expect(409, "Everything is free");
        assert_eq!(read_post(&t, id).await["status"], "draft", "{action}");
    }
    person.submit(&path, &format!("{path}/publish"), &[]).await.expect(200, "data-moving");
}

async fn a_post_is_deleted_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_post(&t, json!({ "content": "Old bread" })).await;
    let page = person.get(&page_of(&t, id)).await;
    for _ in 0..2 {
        let list = person.submit_from(&page, &format!("{}/delete", page_of(&t, id)), &[]).await;
        list.expect(200, "Post deleted.");
        assert!(!list.has("Old bread"), "{}", list.text);
    }
    person.get(&page_of(&t, id)).await.expect(404, "Page not found");
}

async fn a_post_is_duplicated_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, json!({ "content": "Rye bread", "accounts": [account], "labels": ["a & b"] })).await;
    t.app.end_post(id, "published", &["published"]).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, &format!("href=\"/brands/{}/posts?label=a+%26+b\"", t.brand));
    for _ in 0..2 {
        let composer = person.submit_from(&page, &format!("{}/duplicate", page_of(&t, id)), &[]).await;
        composer.expect(200, "Post duplicated.").expect(200, "Rye bread</textarea>");
        composer.expect(200, "name=\"labels\" value=\"a & b\"");
        composer.expect(200, &format!("name=\"accounts\" value=\"{account}\" data-thread checked"));
    }
    assert_eq!(t.app.count_rows("posts WHERE status = 'draft'").await, 1);
}

async fn only_managers_approve(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, json!({ "content": "x", "accounts": [account] })).await;
    let (path, editor) = (page_of(&t, id), t.colleague(Role::Editor).await);
    let (owner, editor) = (ConsoleUser::sign_in(&t).await, ConsoleUser::sign_in(&editor).await);
    let submit = format!("{path}/submit");
    editor.submit(&path, &submit, &[]).await.expect(200, "Post submitted for approval.");
    let page = editor.get(&path).await;
    assert!(!page.has("/approve\"") && !page.has("/reject\""), "{}", page.text);
    let hidden = page.hidden_fields("/sign-out");
    let fields: Vec<_> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    for action in ["approve", "reject"] {
        editor.post(&format!("{path}/{action}"), &fields).await.expect(403, "owners and admins");
    }
    let long = "x".repeat(2_001);
    let page = owner.submit(&path, &format!("{path}/reject"), &[("reason", &long)]).await;
    page.expect(422, "at most 2000 characters").expect(422, &long);
    let page = owner.submit(&path, &format!("{path}/reject"), &[("reason", "The <b>price</b> is old.")]).await;
    page.expect(200, "Post rejected").expect(200, "The <b>price</b> is old.");
    assert_eq!(read_post(&t, id).await["status"], "draft");
    editor.submit(&path, &submit, &[]).await.expect(200, "Post submitted for approval.");
    let page = owner.get(&path).await;
    for _ in 0..2 {
        owner.submit_from(&page, &format!("{path}/approve"), &[]).await.expect(200, "Post approved.");
    }
    assert_eq!(read_post(&t, id).await["status"], "publishing");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'publish_target'").await, 1);
}

/// Somebody else rejected the post, and its author changed it and submitted it again.
async fn a_post_that_was_submitted_again_is_shown_before_it_is_approved(t: Tenant<'_>) {
    let (account, author) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let id = create_post(&author, json!({ "content": "Fresh bread", "accounts": [account] })).await;
    let endpoint = |action: &str| t.path(&format!("/posts/{id}{action}"));
    author.request("POST", &endpoint("/submit")).send().await.expect(200);
    let (owner, path) = (ConsoleUser::sign_in(&t).await, page_of(&t, id));
    let (page, home) = (owner.get(&path).await, owner.get(&format!("/brands/{}", t.brand)).await);
    t.app.clock.advance(TimeDelta::seconds(1));
    t.post(&endpoint("/reject"), json!({})).await.expect(200);
    author.put(&endpoint(""), json!({ "content": "Everything is free" })).await.expect(200);
    author.request("POST", &endpoint("/submit")).send().await.expect(200);
    for (page, action) in [(&page, "approve"), (&home, "approve"), (&page, "reject")] {
        let shown = owner.submit_from(page, &format!("{path}/{action}"), &[]).await;
        shown.expect(409, "was changed in the meantime").expect(409, "Everything is free");
        assert_eq!(read_post(&t, id).await["status"], "pending_approval", "{action}");
    }
    owner.submit(&path, &format!("{path}/approve"), &[]).await.expect(200, "Post approved.");
}

async fn contributors_are_offered_drafts_only(t: Tenant<'_>) {
    let account = t.account("demo").await;
    let id = create_post(&t, json!({ "content": "x", "accounts": [account] })).await;
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let path = page_of(&t, id);
    for page in [path.clone(), format!("{path}/edit"), format!("/brands/{}/posts/new", t.brand)] {
        let page = contributor.get(&page).await;
        page.expect(200, "Submit for approval");
        assert!(!page.has("Publish now") && !page.has("Schedule<") && !page.has("/bio\""), "{}", page.text);
    }
    let pending = contributor.submit(&path, &format!("{path}/submit"), &[]).await;
    pending.expect(200, "Post submitted for approval.");
    assert!(!pending.has("/edit\"") && pending.has("Delete post"), "{}", pending.text);
    let page = contributor.get(&format!("/brands/{}/accounts", t.brand)).await;
    assert!(!page.has("Disconnect") && !page.has("Connect an account"), "{}", page.text);
    for closed in ["bio", "accounts/connect/sandbox"] {
        contributor.get(&format!("/brands/{}/{closed}", t.brand)).await.expect(403, "Contributors cannot publish.");
    }
}

async fn contributors_cannot_retry(t: Tenant<'_>) {
    let id = create_failed_post(&t, "platform_rejected").await;
    let contributor = ConsoleUser::sign_in(&t.colleague(Role::Contributor).await).await;
    let hidden = contributor.get(&page_of(&t, id)).await.hidden_fields("/sign-out");
    let fields: Vec<_> = hidden.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let page = contributor.post(&format!("{}/retry", page_of(&t, id)), &fields).await;
    page.expect(403, "Contributors cannot publish.");
    assert_eq!(read_post(&t, id).await["status"], "failed");
}

async fn failed_accounts_are_retried_once(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_failed_post(&t, "platform_rejected").await;
    let page = person.get(&page_of(&t, id)).await;
    for _ in 0..2 {
        let page = person.submit_from(&page, &format!("{}/retry", page_of(&t, id)), &[]).await;
        page.expect(200, "Retrying the failed accounts.");
    }
    assert_eq!(read_post(&t, id).await["status"], "publishing");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'publish_target' AND state = 'ready'").await, 1);
    t.app.end_post(id, "published", &["published"]).await;
    let page = person.submit_from(&page, &format!("{}/retry", page_of(&t, id)), &[]).await;
    page.expect(409, "has not failed on any account");
}

async fn a_failed_account_is_edited_and_retried_in_one_step(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (published, failed) = (t.account("demo").await, t.account("second").await);
    let planned = json!(app.now() + TimeDelta::hours(2));
    let body = json!({
        "content": "Bread", "schedule_type": "scheduled", "scheduled_at": planned, "accounts": [published, failed],
    });
    let id = create_post(&t, body).await;
    app.end_post(id, "partially_published", &["published", "failed"]).await;
    app.clock.advance(TimeDelta::hours(3));
    let planned = read_post(&t, id).await["scheduled_at"].clone();
    let person = ConsoleUser::sign_in(&t).await;
    let (path, edit) = (page_of(&t, id), format!("{}/edit", page_of(&t, id)));
    let link = format!("{edit}?account={failed}");
    let page = person.get(&path).await;
    page.expect(200, &format!("href=\"{link}\"")).expect(200, "Edit and retry");
    assert_eq!(page.text.matches("Edit and retry").count(), 1, "only the failed account: {}", page.text);

    let composer = person.get(&link).await;
    let index = composer.text.split_once(&format!(".account_id\" value=\"{failed}\"")).expect("its part").0;
    let index = index.rsplit_once("overrides.").expect("its index").1;
    let field = format!("overrides.{index}.content");
    composer.expect(200, &format!("name=\"{field}\" rows=\"3\" dir=\"auto\" autofocus")).expect(200, "Save and retry");
    assert_eq!(composer.text.matches(">\nBread</textarea>").count(), 2, "the text starts with that of the post");
    composer.expect(200, "name=\"content\" rows=\"9\" dir=\"auto\" readonly");
    let fields = [("content", "Bread"), (field.as_str(), "Short bread"), ("schedule_type", "now")];
    for _ in 0..2 {
        person.submit_from(&composer, &edit, &fields).await.expect(200, "Retrying the failed accounts.");
    }
    let post = read_post(&t, id).await;
    let targets = ["content", "status"].map(|name| [&post["targets"][0][name], &post["targets"][1][name]]);
    assert_eq!((&post["status"], &post["scheduled_at"]), (&json!("publishing"), &planned));
    assert_eq!(targets, [[&Value::Null, &json!("Short bread")], [&json!("published"), &json!("pending")]]);
    assert_eq!(app.count_rows("jobs WHERE kind = 'publish_target' AND state = 'ready'").await, 1);
}

async fn an_unknown_outcome_is_confirmed_first(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let id = create_failed_post(&t, "outcome_unknown").await;
    let (home, retry) = (format!("/brands/{}", t.brand), format!("{}/retry", page_of(&t, id)));
    // The home page has the button without a confirmation.
    let page = person.submit(&home, &retry, &[]).await;
    page.expect(409, "may already be published on some").expect(409, "Check there first").expect(409, "demo (Sandbox)");
    assert_eq!(read_post(&t, id).await["status"], "failed");
    // Nor is it published again with changes.
    assert!(!person.get(&page_of(&t, id)).await.has("Edit and retry"));
    let edit = format!("{}/edit", page_of(&t, id));
    let composer = person.get(&edit).await;
    assert!(composer.status == 200 && !composer.has("Save and retry"), "{}", composer.text);
    let page = person.submit_from(&composer, &edit, &[("content", "Rolls"), ("schedule_type", "now")]).await;
    page.expect(422, "may already be published on some");
    let post = read_post(&t, id).await;
    assert_eq!((&post["status"], &post["content"]), (&json!("failed"), &json!("Bread")));
    let page = person.get(&page_of(&t, id)).await;
    t.app.clock.advance(TimeDelta::seconds(1));
    person.submit_from(&page, &retry, &[]).await.expect(200, "Retrying the failed accounts.");
    assert_eq!(t.app.count_rows("jobs WHERE kind = 'publish_target' AND state = 'ready'").await, 1);
    // A form that is sent again does not confirm the outcome of the second attempt.
    t.app.fail_post(id, "outcome_unknown", "The oven is cold.").await;
    person.submit_from(&page, &retry, &[]).await.expect(409, "may already be published on some");
    assert_eq!(read_post(&t, id).await["status"], "failed");
}

/// Creates a post that was published on these accounts some days ago. Returns its ID and those of its targets.
async fn create_published_post(t: &Tenant<'_>, accounts: &[i64], days: i64) -> (i64, Vec<i64>) {
    let created = t.post(&t.path("/posts"), json!({ "content": "Bread", "accounts": accounts })).await.data(201);
    let id = created["id"].as_i64().unwrap();
    t.app.end_post(id, "published", &vec!["published"; accounts.len()]).await;
    let at = (t.app.now() - TimeDelta::days(days)).to_rfc3339();
    t.app.sql(format!("UPDATE post_targets SET published_at = '{at}' WHERE post_id = {id}")).await;
    t.app.add_published().await;
    let targets = created["targets"].as_array().unwrap().iter().map(|target| target["id"].as_i64().unwrap());
    (id, targets.collect())
}

/// Records a reading of a target's metrics, an hour after the previous one.
async fn record_metrics(app: &TestApp, target_id: i64, metrics: PostMetrics) {
    app.clock.advance(TimeDelta::hours(1));
    let collected = [CollectedMetrics { target_id, metrics: Some(metrics), next_at: None }];
    app.write(async |tx| analytics::record_posts(tx, &collected).await).await;
}

async fn metrics_are_shown_for_each_account(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let accounts = [t.account("demo").await, t.account("second").await];
    let draft = create_post(&t, json!({ "content": "Later", "accounts": accounts })).await;
    let (id, targets) = create_published_post(&t, &accounts, 2).await;
    let person = ConsoleUser::sign_in(&t).await;
    assert!(!person.get(&page_of(&t, draft)).await.has("id=\"metrics\""), "no account has published the draft");
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "id=\"metrics\"");
    assert_eq!(page.text.matches("No metrics yet.").count(), 2, "{}", page.text);

    // Of each metric, the newest known value is shown.
    let first = PostMetrics { impressions: Some(12_000), likes: Some(3), ..PostMetrics::default() };
    record_metrics(&app, targets[0], first).await;
    record_metrics(&app, targets[0], PostMetrics { likes: Some(4), ..PostMetrics::default() }).await;
    let page = person.get(&page_of(&t, id)).await;
    page.expect(200, "Impressions: <strong>12,000</strong> · Likes: <strong>4</strong> · Engagements");
    page.expect(200, "<span class=\"muted\">Updated <time");
    page.expect(200, "No metrics yet.");
    assert!(!page.has("All accounts") && !page.has("Reach"), "{}", page.text);

    record_metrics(&app, targets[1], PostMetrics::default()).await;
    person.get(&page_of(&t, id)).await.expect(200, "Sandbox reports no metrics of this post.");
    record_metrics(&app, targets[1], PostMetrics { likes: Some(30), ..PostMetrics::default() }).await;
    person.get(&page_of(&t, id)).await.expect(200, "All accounts").expect(200, "Likes: <strong>34</strong>");

    app.sql("DELETE FROM target_metrics").await;
    for (platform, note) in [
        ("wordpress", "WordPress reports no metrics of posts."),
        ("telegram", "Telegram reports no metrics of posts."),
        ("twitter", "This installation does not collect metrics from X."),
    ] {
        app.sql(format!("UPDATE post_targets SET platform = '{platform}' WHERE id = {}", targets[0])).await;
        person.get(&page_of(&t, id)).await.expect(200, note).expect(200, "No metrics yet.");
    }
}

async fn a_plan_limits_the_metrics(app: TestApp) {
    for (plan, note) in [("free", Some("This post is older than the metrics that your plan shows.")), (BARE, None)] {
        let t = app.tenant(plan).await;
        let account = t.account("demo").await;
        let (id, _) = create_published_post(&t, &[account], 40).await;
        let page = ConsoleUser::sign_in(&t).await.get(&page_of(&t, id)).await;
        page.expect(200, note.unwrap_or("Bread"));
        assert_eq!(page.has("id=\"metrics\""), note.is_some(), "{}", page.text);
    }
}
