//! The warnings about a post: other posts on its accounts, and what platforms do with its text. They never prevent
//! publishing.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::platform::Platform;
use serde_json::{Value, json};

use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::images;

on_both_apps!(
    a_text_that_is_scheduled_on_the_account_within_seven_days,
    a_text_that_was_published_on_the_account_within_seven_days,
    only_posts_that_reach_the_account_are_compared,
    another_post_on_the_account_within_five_minutes,
    a_text_that_a_platform_may_reject_or_charges_more_for,
);

const TEXT: &str = "Fresh bread";

/// Returns the warnings about the first account of a post.
async fn warnings(t: &Tenant<'_>, body: Value) -> Vec<Value> {
    let checked = t.post(&t.path("/posts/validate"), body).await.data(200);
    assert_eq!(checked["valid"], true, "{checked}");
    checked["targets"][0]["warnings"].as_array().unwrap().clone()
}

async fn codes(t: &Tenant<'_>, body: Value) -> Vec<String> {
    let found = warnings(t, body).await;
    found.iter().map(|warning| warning["code"].as_str().unwrap().to_owned()).collect()
}

fn scheduled(account: i64, content: &str, at: DateTime<Utc>) -> Value {
    json!({ "content": content, "accounts": [account], "schedule_type": "scheduled", "scheduled_at": at })
}

async fn create(t: &Tenant<'_>, body: Value) -> i64 {
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

/// Creates a post that was published on its account just now.
async fn publish(t: &Tenant<'_>, account: i64, content: &str) -> i64 {
    let id = create(t, json!({ "content": content, "accounts": [account], "schedule_type": "now" })).await;
    t.app.end_post(id, "published", &["published"]).await;
    let now = t.app.now().to_rfc3339();
    t.app.sql(format!("UPDATE post_targets SET published_at = '{now}' WHERE post_id = {id}")).await;
    id
}

/// Formats a time in the brand's time zone.
fn local(at: DateTime<Utc>) -> String {
    at.with_timezone(&chrono_tz::Europe::Berlin).format("%Y-%m-%d at %H:%M").to_string()
}

async fn a_text_that_is_scheduled_on_the_account_within_seven_days(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, other) = (t.account("one").await, t.account("two").await);
    let planned = app.now() + TimeDelta::days(20);
    let id = create(&t, scheduled(account, TEXT, planned)).await;
    for (distance, expected) in [
        (TimeDelta::days(7), &["same_text"][..]),
        (TimeDelta::days(-7), &["same_text"]),
        (TimeDelta::days(7) + TimeDelta::seconds(1), &[]),
        (TimeDelta::days(-7) - TimeDelta::seconds(1), &[]),
    ] {
        assert_eq!(codes(&t, scheduled(account, TEXT, planned + distance)).await, expected, "{distance}");
    }
    let next_day = planned + TimeDelta::days(1);
    let message = format!("The same text is scheduled on this account for {}.", local(planned));
    let warning = json!({ "field": "content", "code": "same_text", "message": message });
    assert_eq!(warnings(&t, scheduled(account, TEXT, next_day)).await, [warning]);
    assert!(codes(&t, scheduled(other, TEXT, next_day)).await.is_empty());
    assert!(codes(&t, scheduled(account, "Fresh bread!", next_day)).await.is_empty());

    // The text on the account is compared, wherever it comes from.
    let mut own = scheduled(account, "Cake", next_day);
    own["overrides"] = json!([{ "account_id": account, "content": TEXT }]);
    assert_eq!(warnings(&t, own.clone()).await[0]["field"], "overrides.0.content");
    own["scheduled_at"] = json!(planned + TimeDelta::days(60));
    create(&t, own).await;
    let beside = planned + TimeDelta::days(61);
    assert_eq!(codes(&t, scheduled(account, TEXT, beside)).await, ["same_text"]);
    assert!(codes(&t, scheduled(account, "Cake", beside)).await.is_empty());

    // A post that is changed is not compared with itself.
    let mut changed = scheduled(account, TEXT, planned);
    assert_eq!(codes(&t, changed.clone()).await, ["same_text", "other_post"]);
    changed["post_id"] = json!(id);
    assert!(codes(&t, changed.clone()).await.is_empty());
    changed["post_id"] = json!("x");
    assert_eq!(t.post(&t.path("/posts/validate"), changed).await.invalid_fields(), ["post_id"]);

    // A warning prevents nothing.
    create(&t, scheduled(account, TEXT, planned)).await;
}

async fn a_text_that_was_published_on_the_account_within_seven_days(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("one").await;
    publish(&t, account, TEXT).await;
    let published = app.now();
    app.clock.advance(TimeDelta::minutes(6));
    // Without a time, the post is compared as if it were published now.
    let draft = json!({ "content": TEXT, "accounts": [account] });
    let message = format!("The same text was published on this account on {}.", local(published));
    let warning = json!({ "field": "content", "code": "same_text", "message": message });
    assert_eq!(warnings(&t, draft.clone()).await, [warning]);
    let mut now = draft.clone();
    now["schedule_type"] = json!("now");
    assert_eq!(codes(&t, now).await, ["same_text"]);
    app.clock.advance(TimeDelta::days(7));
    assert!(codes(&t, draft).await.is_empty());
}

async fn only_posts_that_reach_the_account_are_compared(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("one").await;
    let draft = json!({ "content": TEXT, "accounts": [account] });
    let failed = create(&t, json!({ "content": TEXT, "accounts": [account], "schedule_type": "now" })).await;
    app.end_post(failed, "failed", &["failed"]).await;
    create(&t, draft.clone()).await;
    let deleted = create(&t, scheduled(account, TEXT, app.now() + TimeDelta::minutes(2))).await;
    t.delete(&t.path(&format!("/posts/{deleted}"))).await.expect(204);
    assert!(codes(&t, draft.clone()).await.is_empty());

    // A target that failed, of a post that was published on another account.
    let other = t.account("two").await;
    let both = create(&t, json!({ "content": TEXT, "accounts": [account, other], "schedule_type": "now" })).await;
    assert_eq!(codes(&t, draft.clone()).await, ["same_text", "other_post"], "it is being published");
    app.end_post(both, "partially_published", &["failed", "published"]).await;
    assert!(codes(&t, draft.clone()).await.is_empty());
    let of_other = json!({ "content": TEXT, "accounts": [other] });
    assert_eq!(codes(&t, of_other).await, ["same_text", "other_post"]);

    // A target that was deleted from its platform.
    let unpublished = publish(&t, account, TEXT).await;
    assert_eq!(codes(&t, draft.clone()).await, ["same_text", "other_post"]);
    app.end_post(unpublished, "published", &["unpublished"]).await;
    assert!(codes(&t, draft).await.is_empty());

    // Posts without a text have nothing to compare.
    let image = t.upload("a.png", &images::png(20, 20), &[]).await.data(201)["id"].clone();
    let later = app.now() + TimeDelta::days(1);
    let of_image = |at: DateTime<Utc>| {
        json!({
            "media": [image], "accounts": [account], "schedule_type": "scheduled", "scheduled_at": at,
        })
    };
    create(&t, of_image(later)).await;
    assert!(codes(&t, of_image(later + TimeDelta::hours(1))).await.is_empty());
}

async fn another_post_on_the_account_within_five_minutes(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (account, other) = (t.account("one").await, t.account("two").await);
    let planned = app.now() + TimeDelta::days(20);
    create(&t, scheduled(account, TEXT, planned)).await;
    for (seconds, expected) in
        [(300, &["other_post"][..]), (-300, &["other_post"]), (0, &["other_post"]), (301, &[]), (-301, &[])]
    {
        let at = planned + TimeDelta::seconds(seconds);
        assert_eq!(codes(&t, scheduled(account, "Cake", at)).await, expected, "{seconds}");
    }
    // The nearest one is named.
    create(&t, scheduled(account, "Rolls", planned + TimeDelta::minutes(3))).await;
    let found = warnings(&t, scheduled(account, "Cake", planned + TimeDelta::minutes(2))).await;
    let message =
        format!("This account has another post within 5 minutes, on {}.", local(planned + TimeDelta::minutes(3)));
    assert_eq!(found, [json!({ "field": "scheduled_at", "code": "other_post", "message": message })]);
    assert!(codes(&t, scheduled(other, "Cake", planned)).await.is_empty());

    publish(&t, account, TEXT).await;
    app.clock.advance(TimeDelta::minutes(5));
    let draft = json!({ "content": "Cake", "accounts": [account] });
    assert_eq!(codes(&t, draft.clone()).await, ["other_post"]);
    app.clock.advance(TimeDelta::seconds(1));
    assert!(codes(&t, draft).await.is_empty());
}

async fn a_text_that_a_platform_may_reject_or_charges_more_for(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let text = format!("{} https://a.example", "é".repeat(251));
    for (platform, expected) in [
        (Platform::Threads, &["text_may_be_too_long"][..]),
        (Platform::Twitter, &["link_costs_more"]),
        (Platform::Bluesky, &[]),
    ] {
        let account = t.account_on(platform).await;
        let body = json!({ "content": text, "accounts": [account] });
        let found = warnings(&t, body.clone()).await;
        let found: Vec<_> = found.iter().map(|w| (w["field"].as_str(), w["code"].as_str())).collect();
        let expected: Vec<_> = expected.iter().map(|code| (Some("content"), Some(*code))).collect();
        assert_eq!(found, expected, "{platform}");
        let own = json!([{ "account_id": account, "content": text }]);
        let own = json!({ "content": "x", "accounts": [account], "overrides": own });
        assert_eq!(warnings(&t, own).await.len(), expected.len());
        let short = json!({ "content": "Fresh bread", "accounts": [account] });
        assert!(codes(&t, short).await.is_empty(), "{platform}");
        create(&t, body).await;
    }
}
