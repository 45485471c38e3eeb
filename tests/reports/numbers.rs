//! The metrics that widgets show, by day of the brand's time zone.

use crier_domain::analytics::PostMetrics;
use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::reports::{
    Settings, TestInstallation, all_widgets, create, followers, post_metrics, publish, tenant_in, widgets,
};
use crate::support::store::{TestStore, on_both, on_one};

on_both!(
    widgets_show_metrics_by_day_of_the_brand_s_time_zone,
    a_post_on_two_days_counts_once,
    metrics_that_no_platform_reported_are_null,
    the_plan_limits_how_far_back_a_report_goes,
    the_previous_period_is_not_compared_if_the_plan_excludes_it,
    a_new_account_does_not_count_as_growth,
    top_posts_are_ordered_by_engagement,
);
on_one!(an_empty_period_has_remarks, hostile_texts_are_shown_as_text,);

fn rows(widget: &Value) -> Vec<Value> {
    widget["rows"].as_array().expect("rows").clone()
}

fn summary_row(summary: &Value, name: &str) -> Value {
    rows(summary).into_iter().find(|row| row["metric"] == name).expect("a metric")
}

/// Returns the value of a metric in the summary, and its value in the previous period.
fn metric(summary: &Value, name: &str) -> (Value, Value) {
    let found = summary_row(summary, name);
    (found["value"].clone(), found["previous"].clone())
}

async fn october(r: &TestInstallation) -> (Tenant<'_>, i64, String) {
    let t = tenant_in(&r.app, "Asia/Tokyo").await;
    let account = t.account("demo").await;
    let october = "2026-10-20T00:00:00Z".parse::<chrono::DateTime<chrono::Utc>>().unwrap();
    r.clock.advance(october - r.store.now());
    let report = create(&t, "R", all_widgets()).await;
    (t, account, report)
}

async fn widgets_show_metrics_by_day_of_the_brand_s_time_zone(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    // In Tokyo, the 10th begins at 15:00 UTC on the 9th.
    publish(&t, account, "before", "2026-10-09T14:59:59Z", post_metrics(1, 1)).await;
    publish(&t, account, "first", "2026-10-09T15:00:00Z", post_metrics(10, 2)).await;
    publish(&t, account, "second", "2026-10-11T14:59:59Z", PostMetrics { clicks: Some(4), ..post_metrics(20, 3) })
        .await;
    publish(&t, account, "after", "2026-10-11T15:00:00Z", post_metrics(100, 50)).await;
    followers(&t, account, "2026-10-08T16:00:00Z", 90).await;
    followers(&t, account, "2026-10-09T16:00:00Z", 100).await;
    followers(&t, account, "2026-10-10T16:00:00Z", 97).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-11" })).await;
    let summary = &shown["summary"];
    for (name, value, previous) in [
        ("Posts", json!(2), json!(1)),
        ("Impressions", json!(30), json!(1)),
        ("Reach", json!(null), json!(null)),
        ("Engagements", json!(9), json!(1)),
        ("Likes", json!(5), json!(1)),
        ("Clicks", json!(4), json!(null)),
        ("Followers", json!(97), json!(90)),
    ] {
        assert_eq!(metric(summary, name), (value, previous), "{name}");
    }
    for (name, change) in [
        ("Posts", json!(100.0)),
        ("Impressions", json!(2_900.0)),
        ("Engagements", json!(800.0)),
        ("Likes", json!(400.0)),
        ("Clicks", json!(null)),
        ("Followers", json!(7.8)),
    ] {
        assert_eq!(summary_row(summary, name)["change"], change, "{name}");
    }
    assert_eq!(
        shown["posts_over_time"]["rows"],
        json!([
            { "date": "2026-10-10", "posts": 1 },
            { "date": "2026-10-11", "posts": 1 },
        ])
    );
    assert_eq!(
        shown["engagement_over_time"]["rows"],
        json!([
            { "date": "2026-10-10", "likes": 2, "comments": null, "shares": null, "clicks": null },
            { "date": "2026-10-11", "likes": 3, "comments": null, "shares": null, "clicks": 4 },
        ])
    );
    let key = format!("account_{account}");
    assert_eq!(
        shown["followers_over_time"]["rows"],
        json!([
            { "date": "2026-10-10", key.clone(): 100 },
            { "date": "2026-10-11", key: 97 },
        ])
    );
    let posts = rows(&shown["posts_table"]);
    assert_eq!(posts.iter().map(|post| &post["text"]).collect::<Vec<_>>(), ["second", "first"]);
    assert_eq!(posts[0]["published_at"], "2026-10-11T23:59:59");
    assert_eq!((&posts[0]["url"], &posts[0]["engagements"]), (&json!("https://brot.example/1"), &json!(7)));
    let of_account = &rows(&shown["accounts_table"])[0];
    assert_eq!((&of_account["followers"], &of_account["new_followers"]), (&json!(97), &json!(7)));
    assert_eq!((&of_account["posts"], &of_account["engagements"]), (&json!(2), &json!(9)));
    assert_eq!(shown["note"]["rows"], json!([{ "text": "A good month." }]));
    assert!(shown.values().all(|widget| widget["remark"].is_null()), "{shown:?}");
}

async fn a_post_on_two_days_counts_once(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    let other = t.account("other").await;
    publish(&t, account, "first", "2026-10-10T14:59:59Z", post_metrics(10, 2)).await;
    publish(&t, other, "second", "2026-10-10T15:00:00Z", post_metrics(20, 3)).await;
    // Both are one post on two accounts.
    t.app.sql("UPDATE target_analytics SET post_id = (SELECT min(post_id) FROM target_analytics)").await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-11" })).await;
    assert_eq!(metric(&shown["summary"], "Posts").0, json!(1));
    assert_eq!(metric(&shown["summary"], "Impressions").0, json!(30));
    let days = rows(&shown["posts_over_time"]);
    assert_eq!(days.iter().map(|day| &day["posts"]).collect::<Vec<_>>(), [1, 1]);
}

async fn an_empty_period_has_remarks(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let t = tenant_in(&r.app, "UTC").await;
    let report = create(&t, "R", all_widgets()).await;
    let shown = widgets(&r, &t, &report, json!({})).await;
    for (widget, remark) in [
        ("summary", "No posts were published in this period."),
        ("posts_over_time", "No posts were published in this period."),
        ("engagement_over_time", "No posts were published in this period."),
        ("followers_over_time", "No follower counts were recorded in this period."),
        ("top_posts", "No posts were published in this period."),
        ("posts_table", "No posts were published in this period."),
        ("accounts_table", "No accounts are connected, and nothing was published in this period."),
    ] {
        assert_eq!(shown[widget]["remark"], remark, "{widget}");
        assert_eq!(rows(&shown[widget]).is_empty(), widget != "summary", "{widget}");
    }
    assert_eq!(metric(&shown["summary"], "Posts"), (json!(0), json!(0)));
    assert_eq!(metric(&shown["summary"], "Likes"), (json!(null), json!(null)));
}

async fn metrics_that_no_platform_reported_are_null(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    publish(&t, account, "x", "2026-10-10T00:00:00Z", PostMetrics::default()).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-10" })).await;
    let post = &rows(&shown["posts_table"])[0];
    assert!(["impressions", "likes", "comments", "shares", "clicks", "engagements"].iter().all(|f| post[*f].is_null()));
    assert_eq!(shown["engagement_over_time"]["remark"], "No platform reported metrics for the posts of this period.");
    assert_eq!(shown["top_posts"]["remark"], "No platform reported metrics for the posts of this period.");
    // Future days are not shown.
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-12-31" })).await;
    assert_eq!(rows(&shown["posts_over_time"]).len(), 11);
}

async fn the_plan_limits_how_far_back_a_report_goes(s: TestStore) {
    let r = TestInstallation::start_with(s, Settings { retention_days: Some(30), ..Settings::default() }).await;
    let (t, account, report) = october(&r).await;
    publish(&t, account, "old", "2026-09-10T00:00:00Z", post_metrics(1, 1)).await;
    publish(&t, account, "new", "2026-10-10T00:00:00Z", post_metrics(1, 1)).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-09-01", "end": "2026-10-12" })).await;
    let cut = "The plan includes metrics for the last 30 days only.";
    assert_eq!((rows(&shown["posts_table"]).len(), &shown["posts_table"]["remark"]), (1, &json!(cut)));
    assert_eq!(
        metric(&shown["summary"], "Posts"),
        (json!(1), json!(null)),
        "there is no previous period to compare with"
    );
    let days = rows(&shown["posts_over_time"]);
    assert_eq!((&days[0]["date"], days.len()), (&json!("2026-09-21"), 22));
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-08-01", "end": "2026-08-12" })).await;
    let remark = format!("No posts were published in this period. {cut}");
    assert_eq!(shown["posts_table"]["remark"], remark.as_str());
}

async fn the_previous_period_is_not_compared_if_the_plan_excludes_it(s: TestStore) {
    let r = TestInstallation::start_with(s, Settings { retention_days: Some(30), ..Settings::default() }).await;
    let (t, account, report) = october(&r).await;
    // The plan includes metrics from 21 September on.
    publish(&t, account, "before", "2026-09-22T00:00:00Z", post_metrics(1, 1)).await;
    publish(&t, account, "now", "2026-10-10T00:00:00Z", post_metrics(2, 2)).await;
    followers(&t, account, "2026-09-22T00:00:00Z", 50).await;
    followers(&t, account, "2026-10-10T00:00:00Z", 60).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-06", "end": "2026-10-20" })).await;
    assert_eq!(metric(&shown["summary"], "Posts"), (json!(1), json!(1)), "the plan includes the whole previous period");
    assert_eq!(metric(&shown["summary"], "Followers"), (json!(60), json!(50)));
    assert_eq!(shown["summary"]["remark"], json!(null));
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-05", "end": "2026-10-20" })).await;
    assert_eq!(metric(&shown["summary"], "Posts"), (json!(1), json!(null)), "the plan excludes one day of it");
    assert_eq!(metric(&shown["summary"], "Followers"), (json!(60), json!(null)));
    let remark = "The plan does not include the previous period, so there are no changes.";
    assert_eq!((&shown["summary"]["remark"], &shown["top_posts"]["remark"]), (&json!(remark), &json!(null)));
}

async fn a_new_account_does_not_count_as_growth(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    let new = t.account("new").await;
    publish(&t, account, "x", "2026-10-10T00:00:00Z", post_metrics(1, 1)).await;
    followers(&t, account, "2026-10-08T16:00:00Z", 100).await;
    followers(&t, account, "2026-10-10T16:00:00Z", 110).await;
    followers(&t, new, "2026-10-10T16:00:00Z", 5_000).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-11" })).await;
    assert_eq!(metric(&shown["summary"], "Followers"), (json!(5_110), json!(100)));
    assert_eq!(summary_row(&shown["summary"], "Followers")["change"], json!(10.0));
    let remark = "The change in followers covers only accounts that were connected before this period.";
    assert_eq!(shown["summary"]["remark"], remark);
}

async fn top_posts_are_ordered_by_engagement(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    for n in 0..12 {
        publish(&t, account, &format!("post {n}"), "2026-10-10T00:00:00Z", post_metrics(0, (n * 7) % 12)).await;
    }
    publish(&t, account, "without metrics", "2026-10-10T00:00:00Z", PostMetrics::default()).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-10" })).await;
    let likes: Vec<i64> = rows(&shown["top_posts"]).iter().map(|post| post["likes"].as_i64().unwrap()).collect();
    assert_eq!(likes, [11, 10, 9, 8, 7, 6, 5, 4, 3, 2]);
    assert_eq!(rows(&shown["posts_table"]).len(), 13);
}

async fn hostile_texts_are_shown_as_text(s: TestStore) {
    let r = TestInstallation::start(s).await;
    let (t, account, report) = october(&r).await;
    let text = "=1+1 #panic(\"x\") <b>&amp;</b> \u{202e}gnp.exe \u{1f600}";
    publish(&t, account, text, "2026-10-10T00:00:00Z", post_metrics(1, 1)).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-10" })).await;
    assert_eq!(rows(&shown["posts_table"])[0]["text"], text);
    publish(&t, account, &"long ".repeat(300), "2026-10-10T00:00:01Z", post_metrics(1, 1)).await;
    let shown = widgets(&r, &t, &report, json!({ "start": "2026-10-10", "end": "2026-10-10" })).await;
    let cut = rows(&shown["posts_table"])[0]["text"].as_str().unwrap().to_owned();
    assert!(cut.ends_with("long…") && cut.chars().count() <= 500, "{cut}");
}
