//! Rules for recurring posts: their fields, their problems and their limits. `tests/jobs/recurring.rs` tests their posts.

use chrono::TimeDelta;
use crier_domain::access::Role;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(
    a_rule_is_created_listed_updated_and_deleted,
    the_texts_of_a_brand_s_rules_are_limited,
    an_account_with_a_problem_is_a_problem_of_the_rule,
);
on_one_app!(
    each_frequency_has_its_fields,
    the_next_times_are_shown,
    each_variation_is_checked_like_a_post,
    a_rule_must_not_be_too_frequent,
    contributors_cannot_schedule,
    approval_needs_its_feature,
);

/// Returns the body of a weekly rule for an account.
pub fn body(account: i64) -> Value {
    json!({
        "name": "Menu", "variations": [{ "content": "Bread" }, { "content": "Rolls" }], "accounts": [account],
        "frequency": "weekly", "weekdays": [5, 1], "time": "08:30", "destination": "calendar",
    })
}

/// Creates a weekly rule and returns its id.
pub async fn rule(t: &Tenant<'_>, account: i64) -> i64 {
    t.post(&t.path("/recurring-posts"), body(account)).await.data(201)["id"].as_i64().unwrap()
}

async fn with(t: &Tenant<'_>, account: i64, changes: Value) -> Value {
    let mut body = body(account);
    for (name, value) in changes.as_object().unwrap() {
        body[name] = value.clone();
    }
    t.post(&t.path("/recurring-posts"), body).await.data(201)
}

async fn a_rule_is_created_listed_updated_and_deleted(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let reply = t.post(&t.path("/recurring-posts"), body(account)).await;
    let created = reply.data(201);
    let path = t.path(&format!("/recurring-posts/{}", created["id"]));
    assert_eq!(reply.header("location"), Some(format!("/api/public/v1{path}").as_str()));
    assert_eq!(
        (&created["weekdays"], &created["time"], &created["is_active"], &created["starts_on"]),
        (&json!([1, 5]), &json!("08:30"), &json!(true), &json!("2026-06-09"))
    );
    // 08:30 in Berlin, on Friday and Monday.
    let times = json!([
        "2026-06-12T06:30:00Z",
        "2026-06-15T06:30:00Z",
        "2026-06-19T06:30:00Z",
        "2026-06-22T06:30:00Z",
        "2026-06-26T06:30:00Z",
    ]);
    assert_eq!((&created["next_occurrences"], &created["problem"]), (&times, &Value::Null));
    assert_eq!(app.count_rows("jobs WHERE kind = 'make_occurrences' AND state = 'ready'").await, 1);
    assert_eq!(t.get(&path).await.data(200), created);
    assert_eq!(t.get(&t.path("/recurring-posts")).await.data(200), json!([created]));
    app.clock.advance(TimeDelta::seconds(5));
    let changed = t.put(&path, json!({ "name": "New", "frequency": "daily", "is_active": false })).await.data(200);
    assert_eq!(
        (&changed["name"], &changed["weekdays"], &changed["variations"], &changed["next_occurrences"]),
        (&json!("New"), &json!([]), &created["variations"], &json!([]))
    );
    assert_eq!(t.get(&path).await.data(200), changed);
    assert_eq!(t.delete(&path).await.expect(204), Value::Null);
    for reply in [t.get(&path).await, t.delete(&path).await, t.put(&path, json!({ "name": "" })).await] {
        reply.expect_error(404, "not_found");
    }
    let missing = t.path(&format!("/recurring-posts/{MISSING_ID}"));
    t.get(&missing).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/recurring-posts")).await.data(200), json!([]));
}

async fn each_frequency_has_its_fields(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let fields = |rule: &Value| json!([rule["weekdays"], rule["day"], rule["cron"], rule["time"]]);
    let weekly = with(&t, account, json!({ "weekdays": null, "time": null })).await;
    assert_eq!(fields(&weekly), json!([[2], null, null, "09:00"]), "2026-06-09 is a Tuesday");
    let monthly = with(&t, account, json!({ "frequency": "monthly", "weekdays": null })).await;
    assert_eq!(fields(&monthly), json!([[], 9, null, "08:30"]));
    let cron = json!({ "frequency": "cron", "cron": "0 9 * * 1", "weekdays": null });
    let mut sent = body(account);
    sent.as_object_mut().unwrap().extend(cron.as_object().unwrap().clone());
    let reply = t.post(&t.path("/recurring-posts"), sent).await;
    assert_eq!(fields(&reply.data(201)), json!([[], null, "0 9 * * 1", null]));
    assert_eq!(reply.header("crier-ignored-fields"), Some("time"));
    for (changes, expected) in [
        (json!({ "frequency": "daily" }), &["weekdays"][..]),
        (json!({ "day": 3 }), &["day"]),
        (json!({ "cron": "0 9 * * 1" }), &["cron"]),
        (json!({ "frequency": "cron", "weekdays": null }), &["cron"]),
        (json!({ "frequency": "cron", "weekdays": null, "cron": "61 * * * *" }), &["cron"]),
        (json!({ "frequency": "cron", "weekdays": null, "cron": "0 9 30 2 *" }), &["cron"]),
        // The dates of an expression are searched before the transaction, in which the texts are checked.
        (json!({ "frequency": "cron", "weekdays": null, "cron": "0 9 30 2 *", "variations": [] }), &["cron"]),
        (json!({ "frequency": "monthly", "weekdays": null, "day": 32 }), &["day"]),
        (json!({ "weekdays": [0, 8] }), &["weekdays.0", "weekdays.1"]),
        (json!({ "time": "24:00" }), &["time"]),
        (json!({ "starts_on": "2026-07-02", "ends_on": "2026-07-01" }), &["ends_on"]),
        (json!({ "count": 0 }), &["count"]),
        (json!({ "variations": [] }), &["variations"]),
        (json!({ "variations": [{}] }), &["variations.0.content"]),
        (json!({ "accounts": [] }), &["accounts"]),
        (json!({ "accounts": [MISSING_ID] }), &["accounts.0"]),
        (json!({ "overrides": [{ "account_id": MISSING_ID }] }), &["overrides.0.account_id"]),
    ] {
        let mut sent = body(account);
        sent.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        assert_eq!(t.post(&t.path("/recurring-posts"), sent).await.invalid_fields(), expected, "{changes}");
    }
}

async fn the_next_times_are_shown(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let short = with(&t, account, json!({ "count": 2 })).await;
    assert_eq!(short["next_occurrences"], json!(["2026-06-12T06:30:00Z", "2026-06-15T06:30:00Z"]));
    let last = json!({ "frequency": "monthly", "weekdays": null, "day": 31, "ends_on": "2026-08-30" });
    let last = with(&t, account, last).await;
    assert_eq!(last["next_occurrences"], json!(["2026-06-30T06:30:00Z", "2026-07-31T06:30:00Z"]));
    let ended = with(&t, account, json!({ "starts_on": "2026-01-01", "ends_on": "2026-02-01" })).await;
    assert_eq!(ended["next_occurrences"], json!([]));
}

async fn each_variation_is_checked_like_a_post(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let long = json!([{ "content": "fits" }, { "content": "x".repeat(60_000) }, { "content": "y".repeat(60_000) }]);
    let mut sent = body(account);
    sent["variations"] = long.clone();
    let reply = t.post(&t.path("/recurring-posts"), sent.clone()).await;
    assert_eq!(reply.invalid_fields(), ["variations.1.content", "variations.2.content"]);
    // Platforms check drafts when these are scheduled.
    sent["destination"] = json!("draft");
    t.post(&t.path("/recurring-posts"), sent).await.expect(201);
    let missing = json!([{ "content": "a", "media": [MISSING_ID] }]);
    let path = t.path(&format!("/recurring-posts/{}", rule(&t, account).await));
    assert_eq!(t.put(&path, json!({ "variations": missing })).await.invalid_fields(), ["variations.0.media.0"]);
    // An override of an account that is removed goes with it.
    let own = json!({ "overrides": [{ "account_id": account, "content": "Here only" }] });
    assert_eq!(t.put(&path, own).await.data(200)["overrides"][0]["content"], "Here only");
    let other = t.account("other").await;
    let changed = t.put(&path, json!({ "accounts": [other] })).await.data(200);
    assert_eq!((&changed["accounts"], &changed["overrides"]), (&json!([other]), &json!([])));
}

async fn a_rule_must_not_be_too_frequent(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let mut sent = body(account);
    sent["frequency"] = json!("cron");
    sent["weekdays"] = Value::Null;
    for (cron, status) in [("* * * * *", 422), ("0 * * * *", 422), ("0 6,9,12,15,18,21 * * *", 201)] {
        sent["cron"] = json!(cron);
        let reply = t.post(&t.path("/recurring-posts"), sent.clone()).await;
        assert_eq!(reply.status, status, "{cron}");
    }
}

async fn the_texts_of_a_brand_s_rules_are_limited(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let variations = vec![json!({ "content": "ä".repeat(30_000) }); 10];
    let long = json!({ "name": "Long", "variations": variations, "frequency": "daily" });
    t.post(&t.path("/recurring-posts"), long.clone()).await.expect(201);
    assert_eq!(t.post(&t.path("/recurring-posts"), long.clone()).await.invalid_fields(), ["variations"]);
    other.post(&other.path("/recurring-posts"), long).await.expect(201);
}

async fn an_account_with_a_problem_is_a_problem_of_the_rule(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let path = t.path(&format!("/recurring-posts/{}", rule(&t, account).await));
    assert_eq!(t.get(&path).await.data(200)["problem"], Value::Null);
    app.expire_account(account).await;
    let problem = t.get(&path).await.data(200)["problem"].as_str().unwrap().to_owned();
    assert!(problem.contains("has expired"), "{problem}");
    t.put(&path, json!({ "is_active": false })).await.expect(200);
    assert_eq!(t.get(&path).await.data(200)["problem"], Value::Null);
}

async fn contributors_cannot_schedule(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let scheduled = t.path(&format!("/recurring-posts/{}", rule(&t, account).await));
    app.member(t.brand, t.user, Role::Contributor).await;
    t.post(&t.path("/recurring-posts"), body(account)).await.expect_error(403, "insufficient_scope");
    let draft = with(&t, account, json!({ "destination": "draft" })).await;
    let path = t.path(&format!("/recurring-posts/{}", draft["id"]));
    t.put(&path, json!({ "destination": "calendar" })).await.expect_error(403, "insufficient_scope");
    t.put(&path, json!({ "name": "Mine" })).await.expect(200);
    t.put(&scheduled, json!({ "name": "Mine" })).await.expect_error(403, "insufficient_scope");
    t.delete(&scheduled).await.expect_error(403, "insufficient_scope");
    t.delete(&path).await.expect(204);
}

async fn approval_needs_its_feature(app: TestApp) {
    let t = app.tenant("pro").await;
    let account = t.account("demo").await;
    let mut sent = body(account);
    sent["destination"] = json!("approval");
    t.post(&t.path("/recurring-posts"), sent).await.expect_error(402, "feature_not_available");
    let path = t.path(&format!("/recurring-posts/{}", rule(&t, account).await));
    t.put(&path, json!({ "destination": "approval" })).await.expect_error(402, "feature_not_available");
}
