//! Posts before publishing: creation, validation, changes, approval, deletion.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{Reply, Tenant, TestApp, on_both_apps};
use crate::support::images;
use crate::support::store::{TestStore, lock_table};

on_both_apps!(
    a_draft_is_stored_without_jobs,
    a_scheduled_post_has_one_job_per_account,
    publishing_now_notifies_workers,
    times_default_to_the_brand_time_zone,
    invalid_fields_are_reported,
    platform_rules_do_not_apply_to_drafts,
    overrides_apply_to_one_account,
    an_update_keeps_omitted_fields,
    rescheduling_replaces_the_job,
    a_draft_is_submitted_and_approved,
    contributors_cannot_publish,
    a_rejected_post_becomes_a_draft,
    a_post_counts_once_per_month,
    deleting_a_post_cancels_its_pending_jobs,
    validating_writes_nothing,
);

async fn create(t: &Tenant<'_>, body: Value) -> Reply {
    t.post(&t.path("/posts"), body).await
}

fn hours(app: &TestApp, n: i64) -> String {
    (app.now() + TimeDelta::hours(n)).to_rfc3339()
}

async fn a_draft_is_stored_without_jobs(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let reply = create(&t, json!({ "content": "hello", "accounts": [account] })).await;
    let created = reply.data(201);
    assert_eq!((&created["status"], &created["schedule_type"]), (&json!("draft"), &json!("draft")));
    assert_eq!((&created["accounts"], &created["media"]), (&json!([account]), &json!([])));
    assert_eq!(created["author"], json!({ "id": t.user, "name": "Ann" }));
    assert_eq!(created["targets"][0]["status"], "pending");
    let path = t.path(&format!("/posts/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    assert_eq!(t.get(&path).await.data(200), created);
    let listed = t.get(&t.path("/posts")).await.data(200)[0].take();
    assert!(listed.get("targets").is_none() && listed["accounts"] == json!([account]));
    let status = t.get(&format!("{path}/status")).await.data(200);
    assert!(status.get("content").is_none() && status["targets"][0].get("content").is_none());
    assert_eq!(t.get(&format!("{path}/attempts")).await.data(200), json!([]));
    assert_eq!(app.count_rows("jobs").await, 0);
}

async fn a_scheduled_post_has_one_job_per_account(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    let body =
        json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": hours(&app, 2), "accounts": [two, one] });
    let created = create(&t, body).await.data(201);
    assert_eq!((&created["status"], &created["accounts"]), (&json!("scheduled"), &json!([two, one])));
    assert_eq!(app.count_rows("jobs WHERE state = 'scheduled'").await, 2);
    assert_eq!(app.count_rows(format!("jobs WHERE lane = 'account:{one}'")).await, 1);
    assert!(app.notifier.take().is_empty());
}

async fn publishing_now_notifies_workers(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    app.notifier.take();
    let past =
        json!({ "content": "x", "schedule_type": "now", "scheduled_at": hours(&app, -2), "accounts": [account] });
    let created = create(&t, past).await.data(201);
    assert_eq!((&created["status"], &created["scheduled_at"]), (&json!("publishing"), &Value::Null));
    assert_eq!(app.notifier.take().len(), 1);
}

async fn times_default_to_the_brand_time_zone(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for (text, utc) in [
        ("2026-07-01T12:00:00", "2026-07-01T10:00:00Z"),
        ("2026-12-01T12:00:00", "2026-12-01T11:00:00Z"),
        ("2026-07-01T12:00:00+05:30", "2026-07-01T06:30:00Z"),
        ("2027-03-28T02:30:00", "2027-03-28T01:00:00Z"),
    ] {
        assert_eq!(
            create(&t, json!({ "content": "x", "scheduled_at": text })).await.data(201)["scheduled_at"],
            utc,
            "{text}"
        );
    }
}

async fn invalid_fields_are_reported(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    // The jobs that the connect enqueued.
    app.notifier.take();
    app.delete_jobs().await;
    let now = json!({ "content": "x", "schedule_type": "now", "accounts": [account] });
    let with = |field: &str, value: Value| {
        let mut body = now.clone();
        body[field] = value;
        body
    };
    for (body, wrong) in [
        (json!({}), vec!["content"]),
        (json!({ "content": null }), vec!["content"]),
        (
            json!({ "content": "", "schedule_type": "later", "media": ["x"] }),
            vec!["content", "media.0", "schedule_type"],
        ),
        (json!({ "content": "x".repeat(65_536) }), vec!["content"]),
        (json!({ "content": "x", "media": [1] }), vec!["media.0"]),
        (with("accounts", json!([])), vec!["accounts"]),
        (with("accounts", json!("x")), vec!["accounts"]),
        (with("accounts", json!([account, account])), vec!["accounts.1"]),
        (with("accounts", json!([account, 999, 1.5])), vec!["accounts.2"]),
        (with("accounts", json!([account, 999])), vec!["accounts.1"]),
        (with("accounts", json!([998, 999])), vec!["accounts.0", "accounts.1"]),
        (with("media", json!([1])), vec!["media.0"]),
        (with("schedule_type", json!("scheduled")), vec!["scheduled_at"]),
        (json!({ "content": "x", "scheduled_at": "2020-01-01T00:00:00Z" }), vec!["scheduled_at"]),
        (json!({ "content": "x", "scheduled_at": hours(&app, 24 * 366 * 6) }), vec!["scheduled_at"]),
        (json!({ "content": "x", "scheduled_at": "2026-02-30T00:00:00Z" }), vec!["scheduled_at"]),
        (
            with("overrides", json!([{ "account_id": 999 }, {}, 5])),
            vec!["overrides.0.account_id", "overrides.1.account_id", "overrides.2"],
        ),
        (
            with("overrides", json!([{ "account_id": account, "options": { "a": ["\0"] } }])),
            vec!["overrides.0.options"],
        ),
    ] {
        assert_eq!(create(&t, body.clone()).await.invalid_fields(), wrong, "{body}");
    }
    for table in ["posts", "post_targets", "jobs", "usage_slots"] {
        assert_eq!(app.count_rows(table).await, 0, "{table}");
    }
    assert!(app.notifier.take().is_empty());
}

/// The target is stored, and fails when it is due, as if the account were disconnected later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_can_be_disconnected_while_its_post_is_stored() {
    // On SQLite, the disconnect waits for the post.
    let app = TestApp::start(TestStore::postgres().await).await;
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let mut tx = app.begin().await.unwrap();
    lock_table(&mut tx, "posts").await;
    let disconnect = async {
        app.until_blocked(1).await;
        t.delete(&t.path(&format!("/social-accounts/{account}"))).await.expect(200);
        tx.rollback().await.unwrap();
    };
    let body = json!({ "content": "x", "schedule_type": "now", "accounts": [account] });
    let (reply, ()) = tokio::join!(create(&t, body), disconnect);
    assert_eq!(reply.data(201)["targets"][0]["status"], "pending");
    assert_eq!(app.count_rows("jobs WHERE kind = 'publish_target'").await, 1);
}

async fn platform_rules_do_not_apply_to_drafts(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let platforms = t.get(&t.path("/social-accounts/platforms")).await.data(200);
    let sandbox = platforms.as_array().unwrap().iter().find(|p| p["platform"] == "sandbox").unwrap();
    let max = usize::try_from(sandbox["capabilities"]["text"]["max"].as_u64().unwrap()).unwrap();
    let long = json!({ "content": "x".repeat(max + 1), "accounts": [account] });
    let draft = create(&t, long.clone()).await.data(201);
    let mut now = long;
    now["schedule_type"] = json!("now");
    let error = create(&t, now).await.expect_error(422, "validation_failed");
    let message = error["fields"]["content"][0].as_str().unwrap();
    assert!(message.contains(&max.to_string()) && message.contains(&account.to_string()), "{message}");
    let path = t.path(&format!("/posts/{}", draft["id"]));
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.invalid_fields(), ["content"]);
    assert_eq!(t.request("POST", &format!("{path}/submit")).send().await.invalid_fields(), ["content"]);
    let own = json!({ "schedule_type": "now", "overrides": [{ "account_id": account, "content": "short" }] });
    assert_eq!(t.put(&path, own).await.data(200)["targets"][0]["content"], "short");
}

async fn overrides_apply_to_one_account(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (one, two) = (t.account("one").await, t.account("two").await);
    let custom = json!({ "account_id": two, "content": "for two", "options": { "title": "T" } });
    let created =
        create(&t, json!({ "content": "for all", "accounts": [one, two], "overrides": [custom] })).await.data(201);
    assert_eq!(
        (&created["targets"][0]["content"], &created["targets"][1]["content"]),
        (&Value::Null, &json!("for two"))
    );
    let path = t.path(&format!("/posts/{}", created["id"]));
    let updated = t.put(&path, json!({ "accounts": [two] })).await.data(200);
    assert_eq!(updated["targets"][0]["options"], json!({ "title": "T" }));
    let cleared = t.put(&path, json!({ "overrides": null })).await.data(200);
    assert_eq!((&cleared["targets"][0]["content"], &cleared["targets"][0]["options"]), (&Value::Null, &json!({})));
}

async fn an_update_keeps_omitted_fields(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body = json!({ "content": "old", "accounts": [account], "scheduled_at": hours(&app, 5) });
    let created = create(&t, body).await.data(201);
    let path = t.path(&format!("/posts/{}", created["id"]));
    let changed = t.put(&path, json!({ "content": "new" })).await.data(200);
    assert_eq!((&changed["content"], &changed["accounts"]), (&json!("new"), &json!([account])));
    assert_eq!(changed["scheduled_at"], created["scheduled_at"]);
    let planned = t.put(&path, json!({ "schedule_type": "scheduled" })).await.data(200);
    assert_eq!((&planned["status"], &planned["scheduled_at"]), (&json!("scheduled"), &created["scheduled_at"]));
    assert_eq!(t.put(&path, json!({ "scheduled_at": null })).await.invalid_fields(), ["scheduled_at"]);
    assert_eq!(t.put(&path, json!({})).await.data(200)["status"], "scheduled");
}

async fn rescheduling_replaces_the_job(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body =
        json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": hours(&app, 5), "accounts": [account] });
    let path = t.path(&format!("/posts/{}", create(&t, body).await.data(201)["id"]));
    let open = "jobs WHERE state IN ('scheduled', 'ready')";
    t.put(&path, json!({ "scheduled_at": hours(&app, 6) })).await.expect(200);
    assert_eq!(app.count_rows(open).await, 1);
    let draft = t.put(&path, json!({ "schedule_type": "draft" })).await.data(200);
    assert_eq!((&draft["status"], app.count_rows(open).await), (&json!("draft"), 0));
    assert_eq!(t.put(&path, json!({ "schedule_type": "now" })).await.data(200)["status"], "publishing");
    assert_eq!(app.count_rows("jobs WHERE state = 'ready'").await, 1);
}

async fn a_draft_is_submitted_and_approved(app: TestApp) {
    let t = app.tenant("business").await;
    let (account, editor) = (t.account("demo").await, t.colleague(Role::Editor).await);
    let act =
        async |who: &Tenant<'_>, path: &str, verb: &str| who.request("POST", &format!("{path}/{verb}")).send().await;
    let bare = t.path(&format!("/posts/{}", create(&t, json!({ "content": "x" })).await.data(201)["id"]));
    assert_eq!(act(&t, &bare, "submit").await.invalid_fields(), ["accounts"]);
    for (hour, status) in [(Some(3), "scheduled"), (None, "publishing")] {
        let at = hour.map(|h| hours(&app, h));
        let body = json!({ "content": "x", "accounts": [account], "scheduled_at": at });
        let path = t.path(&format!("/posts/{}", create(&t, body).await.data(201)["id"]));
        act(&t, &path, "approve").await.expect_error(409, "post_not_pending");
        assert_eq!(act(&editor, &path, "submit").await.data(200)["status"], "pending_approval");
        act(&editor, &path, "submit").await.expect_error(409, "post_not_submittable");
        act(&editor, &path, "approve").await.expect_error(403, "insufficient_scope");
        t.put(&path, json!({ "schedule_type": "now" })).await.expect_error(409, "post_not_editable");
        assert_eq!(act(&t, &path, "approve").await.data(200)["status"], status);
    }
    let pro = app.tenant("pro").await;
    let path = pro.path(&format!("/posts/{}", create(&pro, json!({ "content": "x" })).await.data(201)["id"]));
    act(&pro, &path, "submit").await.expect_error(402, "feature_not_available");
}

/// A contributor can write and submit drafts, but cannot publish in any other way.
async fn contributors_cannot_publish(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, contributor) = (t.account("demo").await, t.colleague(Role::Contributor).await);
    let posts = t.path("/posts");
    let body = |more: Value| {
        let mut body = json!({ "content": "x", "accounts": [account] });
        body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
        body
    };
    for more in
        [json!({ "schedule_type": "now" }), json!({ "schedule_type": "scheduled", "scheduled_at": hours(&app, 3) })]
    {
        contributor.post(&posts, body(more.clone())).await.expect_error(403, "insufficient_scope");
        let draft = contributor.post(&posts, body(json!({}))).await.data(201);
        let path = format!("{posts}/{}", draft["id"]);
        contributor.put(&path, more).await.expect_error(403, "insufficient_scope");
        assert_eq!(t.get(&path).await.data(200)["status"], "draft");
    }
    let draft = contributor.post(&posts, body(json!({ "scheduled_at": hours(&app, 3) }))).await.data(201);
    let path = format!("{posts}/{}", draft["id"]);
    contributor.put(&path, json!({ "content": "better" })).await.expect(200);
    contributor.request("POST", &format!("{path}/submit")).send().await.expect(200);
    // A submitted post cannot be changed, so the approver approves the text that they read.
    contributor.put(&path, json!({ "content": "worse" })).await.expect_error(403, "insufficient_scope");
    contributor.request("POST", &format!("{path}/approve")).send().await.expect_error(403, "insufficient_scope");
    t.request("POST", &format!("{path}/approve")).send().await.expect(200);
    contributor.put(&path, json!({ "content": "worse" })).await.expect_error(403, "insufficient_scope");
    contributor.delete(&path).await.expect_error(403, "insufficient_scope");
    assert_eq!(t.get(&path).await.data(200)["content"], "better");
    // The description of an image is published with its post.
    let image = t.upload("a.png", &images::png(5, 2), &[]).await.data(201)["id"].clone();
    let describe = async || contributor.put(&t.path(&format!("/media/{image}")), json!({ "alt_text": "a" })).await;
    describe().await.expect(200);
    let more = json!({ "media": [image], "schedule_type": "scheduled", "scheduled_at": hours(&app, 3) });
    t.post(&posts, body(more)).await.expect(201);
    describe().await.expect_error(403, "insufficient_scope");
    let plan = json!({ "name": "p", "items": [{ "title": "a", "content": "x", "planned_at": hours(&app, 3) }] });
    let plan = contributor.post(&t.path("/content-plans"), plan).await.data(201);
    let schedule = t.path(&format!("/content-plans/{}/items/{}/schedule", plan["id"], plan["items"][0]["id"]));
    contributor.post(&schedule, json!({ "account_ids": [account] })).await.expect_error(403, "insufficient_scope");
    let submitted = json!({ "account_ids": [account], "destination": "approval" });
    assert_eq!(contributor.post(&schedule, submitted).await.data(201)["status"], "pending_approval");
    for (method, path) in [
        ("POST", "/posts/1/unpublish"),
        ("PUT", "/queue"),
        ("POST", "/queue/move"),
        ("POST", "/conversations/1/reply"),
        ("POST", "/link-in-bio"),
        ("PUT", "/link-in-bio/1"),
        ("DELETE", "/link-in-bio/1"),
        ("POST", "/social-accounts"),
        ("POST", "/social-accounts/authorize"),
        ("POST", "/social-accounts/1/refresh"),
        ("PUT", "/social-accounts/1"),
        ("DELETE", "/social-accounts/1"),
    ] {
        contributor.request(method, &t.path(path)).send().await.expect_error(403, "insufficient_scope");
    }
    let draft = contributor.post(&posts, body(json!({}))).await.data(201);
    contributor.delete(&format!("{posts}/{}", draft["id"])).await.expect(204);
}

async fn a_rejected_post_becomes_a_draft(app: TestApp) {
    let t = app.tenant("business").await;
    let account = t.account("demo").await;
    let created = create(&t, json!({ "content": "x", "accounts": [account] })).await.data(201);
    let path = t.path(&format!("/posts/{}", created["id"]));
    t.request("POST", &format!("{path}/submit")).send().await.expect(200);
    assert_eq!(t.post(&format!("{path}/reject"), json!({ "reason": 5 })).await.invalid_fields(), ["reason"]);
    let draft = t.request("POST", &format!("{path}/reject")).send().await.data(200);
    assert_eq!((&draft["status"], &draft["schedule_type"]), (&json!("draft"), &json!("draft")));
    assert_eq!(draft["reject_reason"], Value::Null);
    t.post(&format!("{path}/reject"), json!({ "reason": "no" })).await.expect_error(409, "post_not_pending");
    // The reason is shown until the status changes again.
    t.request("POST", &format!("{path}/submit")).send().await.expect(200);
    let draft = t.post(&format!("{path}/reject"), json!({ "reason": "Too long" })).await.data(200);
    assert_eq!(draft["reject_reason"], "Too long");
    t.put(&path, json!({ "content": "y" })).await.expect(200);
    assert_eq!(t.get(&path).await.data(200)["reject_reason"], "Too long");
    let submitted = t.request("POST", &format!("{path}/submit")).send().await.data(200);
    assert_eq!(submitted["reject_reason"], Value::Null);
    assert_eq!(t.get(&path).await.data(200)["reject_reason"], Value::Null);
}

async fn a_post_counts_once_per_month(app: TestApp) {
    let t = app.tenant("free").await;
    let account = t.account("demo").await;
    app.set_used_posts(t.workspace, 29).await;
    let draft = json!({ "content": "x", "accounts": [account] });
    let (one, two) = (create(&t, draft.clone()).await.data(201), create(&t, draft.clone()).await.data(201));
    let path = |post: &Value| t.path(&format!("/posts/{}", post["id"]));
    let planned = json!({ "schedule_type": "scheduled", "scheduled_at": hours(&app, 5) });
    t.put(&path(&one), planned.clone()).await.expect(200);
    t.put(&path(&two), planned.clone()).await.expect_error(402, "limit_reached");
    assert_eq!(t.get(&path(&two)).await.data(200)["status"], "draft");
    t.put(&path(&one), json!({ "schedule_type": "draft" })).await.expect(200);
    t.put(&path(&one), planned.clone()).await.expect(200);
    t.delete(&path(&one)).await.expect(204);
    let mut now = draft;
    now["schedule_type"] = json!("now");
    create(&t, now.clone()).await.expect_error(402, "limit_reached");
    app.clock.advance(TimeDelta::days(31));
    create(&t, now).await.expect(201);
}

async fn deleting_a_post_cancels_its_pending_jobs(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let body =
        json!({ "content": "x", "schedule_type": "scheduled", "scheduled_at": hours(&app, 5), "accounts": [account] });
    let path = t.path(&format!("/posts/{}", create(&t, body).await.data(201)["id"]));
    t.delete(&path).await.expect(204);
    t.get(&path).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/posts")).await.expect(200)["meta"]["total"], 0);
    assert_eq!(app.count_rows("jobs WHERE state <> 'cancelled'").await, 0);
}

async fn validating_writes_nothing(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let test = app.key_of(t.user, crier_domain::access::KeyMode::Test, "posts:read").await;
    let validate = async |content: String| {
        let body = json!({ "content": content, "schedule_type": "now", "accounts": [account] });
        app.request("POST", &t.path("/posts/validate")).key(&test).json(&body).send().await.data(200)
    };
    let good = validate("hello".into()).await;
    assert_eq!((&good["valid"], &good["targets"][0]["length"]), (&json!(true), &json!(5)));
    let bad = validate("x".repeat(60_000)).await;
    assert_eq!((&bad["valid"], &bad["targets"][0]["problems"][0]["code"]), (&json!(false), &json!("text_too_long")));
    assert_eq!(app.count_rows("posts").await, 0);
}
