//! Metrics of posts and accounts, by day in the brand's time zone.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_store::analytics;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};

on_both_apps!(
    days_are_those_of_the_brand_and_add_up,
    a_post_on_two_days_counts_once_in_the_totals,
    accounts_have_a_point_for_each_day,
    metrics_of_a_post_are_listed_by_time,
    best_times_need_three_posts,
    metrics_of_another_brand_are_not_found,
    an_account_filters_the_metrics,
    the_top_posts_are_listed_by_metric,
    a_window_is_clamped_to_the_plan,
);
on_one_app!(invalid_windows_are_rejected,);

/// Creates a published post with metrics, on an account of the brand.
async fn post(t: &Tenant<'_>, account: i64, at: DateTime<Utc>, metrics: &[PostMetrics]) -> i64 {
    post_on(t, &[account], at, metrics).await
}

/// Does the same on several accounts, with the same metrics on each.
async fn post_on(t: &Tenant<'_>, accounts: &[i64], at: DateTime<Utc>, metrics: &[PostMetrics]) -> i64 {
    let body = json!({ "content": "x", "accounts": accounts });
    let created = t.post(&t.path("/posts"), body).await.data(201);
    let post = created["id"].as_i64().unwrap();
    let time = at.to_rfc3339();
    let targets = "UPDATE post_targets SET status = 'published', published_at =";
    t.app.sql(format!("{targets} '{time}' WHERE post_id = {post}")).await;
    t.app.add_published().await;
    let targets = created["targets"].as_array().unwrap();
    for (n, metrics) in (1..).zip(metrics) {
        let collected = |target: &Value| analytics::CollectedMetrics {
            target_id: target["id"].as_i64().unwrap(),
            metrics: Some(*metrics),
            next_at: None,
        };
        let collected: Vec<_> = targets.iter().map(collected).collect();
        t.app
            .write(async |tx| {
                tx.now = at + TimeDelta::hours(n);
                analytics::record_posts(tx, &collected).await
            })
            .await;
    }
    post
}

fn post_metrics(impressions: i64, likes: i64) -> PostMetrics {
    PostMetrics { impressions: Some(impressions), likes: Some(likes), ..PostMetrics::default() }
}

async fn zoned<'a>(app: &'a TestApp, zone: &str) -> (Tenant<'a>, i64) {
    let t = app.tenant("unlimited").await;
    app.set_time_zone(t.brand, zone).await;
    let account = t.account("demo").await;
    (t, account)
}

async fn series(t: &Tenant<'_>, query: &str) -> Value {
    t.get(&t.path(&format!("/analytics/posts{query}"))).await.data(200)
}

async fn days_are_those_of_the_brand_and_add_up(app: TestApp) {
    let (t, account) = zoned(&app, "Asia/Tokyo").await;
    let midnight: DateTime<Utc> = "2026-07-10T15:00:00Z".parse().unwrap();
    app.clock.advance(midnight + TimeDelta::days(3) - app.store.now());
    post(&t, account, midnight - TimeDelta::seconds(1), &[post_metrics(10, 1), post_metrics(20, 2)]).await;
    post(&t, account, midnight, &[post_metrics(100, 3)]).await;
    post(&t, account, midnight + TimeDelta::hours(1), &[PostMetrics::default()]).await;
    let shown = series(&t, "?start=2026-07-10&end=2026-07-12").await;
    assert_eq!((&shown["granularity"], &shown["timezone"]), (&json!("day"), &json!("Asia/Tokyo")));
    let day = |date: &str, posts: i64, impressions: Value, likes: Value| {
        json!({
            "date": date, "posts": posts, "impressions": impressions, "reach": null, "likes": likes, "comments": null,
            "shares": null, "clicks": null, "engagements": likes,
        })
    };
    let expected = json!([
        day("2026-07-10", 1, json!(20), json!(2)),
        day("2026-07-11", 2, json!(100), json!(3)),
        day("2026-07-12", 0, json!(null), json!(null)),
    ]);
    assert_eq!(shown["series"], expected);
    let totals = &shown["totals"];
    assert_eq!((&totals["posts"], &totals["impressions"], &totals["engagements"]), (&json!(3), &json!(120), &json!(5)));
    assert_eq!(totals["reach"], Value::Null);
    let default = series(&t, "").await;
    assert_eq!(default["series"].as_array().unwrap().len(), 30);
    assert_eq!(default["end"], "2026-07-14");
}

async fn a_post_on_two_days_counts_once_in_the_totals(app: TestApp) {
    let (t, account) = zoned(&app, "Asia/Tokyo").await;
    let other = t.account("other").await;
    let midnight: DateTime<Utc> = "2026-07-10T15:00:00Z".parse().unwrap();
    app.clock.advance(midnight + TimeDelta::days(1) - app.store.now());
    let post = post_on(&t, &[account, other], midnight - TimeDelta::seconds(1), &[post_metrics(10, 1)]).await;
    let later = midnight.to_rfc3339();
    let update = format!("UPDATE target_analytics SET published_at = '{later}'");
    app.sql(format!("{update} WHERE post_id = {post} AND account_id = {other}")).await;
    let shown = series(&t, "?start=2026-07-10&end=2026-07-11").await;
    for day in shown["series"].as_array().unwrap() {
        assert_eq!((&day["posts"], &day["impressions"]), (&json!(1), &json!(10)), "{day}");
    }
    assert_eq!((&shown["totals"]["posts"], &shown["totals"]["impressions"]), (&json!(1), &json!(20)));
    let shown = series(&t, &format!("?start=2026-07-10&end=2026-07-11&account_id={other}")).await;
    assert_eq!((&shown["series"][0]["posts"], &shown["series"][1]["posts"]), (&json!(0), &json!(1)));
    assert_eq!((&shown["totals"]["posts"], &shown["totals"]["impressions"]), (&json!(1), &json!(10)));
}

async fn a_window_is_clamped_to_the_plan(app: TestApp) {
    let t = app.tenant("free").await;
    let today = app.store.now().date_naive();
    let shown = series(&t, &format!("?start={}&end={today}", today - TimeDelta::days(300))).await;
    assert_eq!(shown["retention_days"], 30);
    assert_eq!((&shown["start"], &shown["end"]), (&json!(today - TimeDelta::days(29)), &json!(today)));
    let shown = series(&t, "?end=9999-12-31").await;
    assert_eq!((&shown["end"], shown["series"].as_array().unwrap().len()), (&json!(today), 30));
    let shown = series(&t, "?start=0001-01-01&end=0001-01-02").await;
    assert_eq!(shown["series"].as_array().unwrap().len(), 1, "a window older than the retention of the plan");
}

async fn invalid_windows_are_rejected(app: TestApp) {
    let t = app.tenant("unlimited").await;
    for (query, field) in [
        ("?start=2026-02-02&end=2026-02-01", "end"),
        ("?start=yesterday", "start"),
        ("?end=2026-2-1", "end"),
        ("?start=2026-02-30", "start"),
        ("?start=9999-12-31", "end"),
    ] {
        assert_eq!(t.get(&t.path(&format!("/analytics/posts{query}"))).await.invalid_fields(), [field], "{query}");
    }
}

async fn accounts_have_a_point_for_each_day(app: TestApp) {
    let (t, account) = zoned(&app, "America/New_York").await;
    let now = app.store.now();
    for (days, followers) in [(2, 5), (0, 8)] {
        app.write(async |tx| {
            tx.now = now - TimeDelta::days(days);
            let metrics = AccountMetrics { followers: Some(followers), ..AccountMetrics::default() };
            analytics::record_account(tx, account, &metrics).await
        })
        .await;
    }
    let show = async || t.get(&t.path("/analytics/accounts")).await.data(200);
    let shown = show().await;
    let one = &shown["series"][0];
    assert_eq!((&one["account_id"], &one["platform"]), (&json!(account), &json!("sandbox")));
    let points = one["points"].as_array().unwrap();
    assert_eq!(points.len(), 30);
    let followers: Vec<&Value> = points[27..].iter().map(|point| &point["followers"]).collect();
    assert_eq!(followers, [&json!(5), &json!(null), &json!(8)]);
    assert_eq!(points[29]["date"], shown["end"]);
    // Metrics that the platform rejects are listed for a day.
    assert_eq!(one["unavailable"], json!([]));
    let names = ["views".to_owned(), "/clicks/total".to_owned()];
    app.write(async |tx| analytics::record_unavailable_metrics(tx, account, &names).await).await;
    assert_eq!(show().await["series"][0]["unavailable"], json!(["clicks.total", "views"]));
    app.clock.advance(TimeDelta::hours(24));
    assert_eq!(show().await["series"][0]["unavailable"], json!([]));
}

async fn metrics_of_a_post_are_listed_by_time(app: TestApp) {
    let (t, account) = zoned(&app, "UTC").await;
    let at = app.store.now() - TimeDelta::days(2);
    let id = post(&t, account, at, &[post_metrics(1, 0), post_metrics(5, 2)]).await;
    let shown = t.get(&t.path(&format!("/posts/{id}/analytics"))).await.data(200);
    assert_eq!((&shown["post_id"], shown["targets"].as_array().unwrap().len()), (&json!(id), 1));
    let points = shown["targets"][0]["points"].as_array().unwrap();
    let seen: Vec<_> = points.iter().map(|point| (&point["impressions"], &point["likes"], &point["reach"])).collect();
    assert_eq!(seen, [(&json!(1), &json!(0), &json!(null)), (&json!(5), &json!(2), &json!(null))]);
}

async fn best_times_need_three_posts(app: TestApp) {
    let (t, account) = zoned(&app, "Europe/Berlin").await;
    // A Monday at nine in Berlin, in winter.
    let monday: DateTime<Utc> = "2027-01-04T08:20:00Z".parse().unwrap();
    app.clock.advance(monday + TimeDelta::days(30) - app.store.now());
    for (week, n) in [(0, 2), (1, 4), (2, 9)] {
        post(&t, account, monday + TimeDelta::days(7 * week), &[post_metrics(1, n)]).await;
    }
    post(&t, account, monday + TimeDelta::days(1), &[post_metrics(1, 50)]).await;
    let shown = t.get(&t.path("/analytics/best-times")).await.data(200);
    let expected = json!([
        { "weekday": 1, "hour": 9, "posts": 3, "engagements_per_post": 5.0 },
        { "weekday": 2, "hour": 9, "posts": 1, "engagements_per_post": null },
    ]);
    assert_eq!((&shown["timezone"], &shown["slots"]), (&json!("Europe/Berlin"), &expected));
}

async fn metrics_of_another_brand_are_not_found(app: TestApp) {
    let (t, account) = zoned(&app, "UTC").await;
    let id = post(&t, account, app.store.now() - TimeDelta::hours(1), &[post_metrics(1, 1)]).await;
    let other = app.tenant("unlimited").await;
    other.get(&other.path(&format!("/posts/{id}/analytics"))).await.expect_error(404, "not_found");
    assert_eq!(series(&other, "").await["totals"]["posts"], 0);
    let accounts = other.get(&other.path("/analytics/accounts")).await.data(200);
    assert_eq!(accounts["series"], json!([]));
}

async fn an_account_filters_the_metrics(app: TestApp) {
    let (t, account) = zoned(&app, "UTC").await;
    let other = t.account("other").await;
    let at = app.store.now() - TimeDelta::days(1);
    post(&t, account, at, &[post_metrics(10, 1)]).await;
    post_on(&t, &[account, other], at, &[post_metrics(100, 5)]).await;
    for (id, posts, likes) in [(account, 2, json!(6)), (other, 1, json!(5)), (MISSING_ID, 0, json!(null))] {
        let totals = series(&t, &format!("?account_id={id}")).await["totals"].clone();
        assert_eq!((&totals["posts"], &totals["likes"]), (&json!(posts), &likes), "{id}");
        let times = t.get(&t.path(&format!("/analytics/best-times?account_id={id}"))).await.data(200);
        let slots = times["slots"].as_array().unwrap();
        let published: i64 = slots.iter().map(|slot| slot["posts"].as_i64().unwrap()).sum();
        assert_eq!(published, posts, "{id}");
    }
    assert_eq!(series(&t, "").await["totals"]["posts"], 2);
    // The account of another brand is an account without posts.
    let stranger = app.tenant("unlimited").await;
    for path in ["posts", "best-times", "top-posts"] {
        let path = |query: &str| stranger.path(&format!("/analytics/{path}?{query}"));
        let shown = stranger.get(&path(&format!("account_id={account}"))).await.data(200).to_string();
        assert!(!shown.contains("\"likes\":5") && !shown.contains("\"posts\":1"), "{shown}");
        assert_eq!(stranger.get(&path("account_id=x")).await.invalid_fields(), ["account_id"]);
    }
}

async fn the_top_posts_are_listed_by_metric(app: TestApp) {
    let (t, account) = zoned(&app, "UTC").await;
    let other = t.account("other").await;
    let now = app.store.now();
    let at = |days| now - TimeDelta::days(days);
    let both = post_on(&t, &[account, other], at(3), &[post_metrics(30, 4)]).await;
    let shown_often = post(&t, account, at(2), &[post_metrics(50, 0)]).await;
    let shared = PostMetrics { shares: Some(7), ..PostMetrics::default() };
    let shared = post(&t, other, at(1), &[shared]).await;
    post(&t, account, at(1), &[PostMetrics::default()]).await;
    let old = post(&t, account, at(40), &[post_metrics(900, 900)]).await;
    let top = async |query: &str| t.get(&t.path(&format!("/analytics/top-posts{query}"))).await.data(200);
    let ids = async |query: &str| -> Vec<i64> {
        top(query).await["posts"].as_array().unwrap().iter().map(|post| post["post_id"].as_i64().unwrap()).collect()
    };
    let first = top("").await;
    assert_eq!((&first["metric"], &first["end"]), (&json!("engagements"), &json!(now.date_naive())));
    let expected = json!({
        "post_id": both, "text": "x", "published_at": first["posts"][0]["published_at"], "impressions": 60,
        "reach": null, "likes": 8, "comments": null, "shares": null, "clicks": null, "engagements": 8,
    });
    assert_eq!(first["posts"][0], expected);
    assert_eq!(ids("").await, [both, shared, shown_often]);
    assert_eq!(ids("?metric=impressions").await, [both, shown_often]);
    assert_eq!(ids(&format!("?metric=impressions&account_id={account}")).await, [shown_often, both]);
    assert_eq!(ids("?metric=shares").await, [shared]);
    assert!(ids("?metric=reach").await.is_empty());
    assert_eq!(ids(&format!("?start={}", at(50).date_naive())).await, [old, both, shared, shown_often]);
    for (query, field) in [("metric=followers", "metric"), ("start=x", "start")] {
        let path = t.path(&format!("/analytics/top-posts?{query}"));
        assert_eq!(t.get(&path).await.invalid_fields(), [field]);
    }
    t.delete(&t.path(&format!("/posts/{both}"))).await.expect(204);
    assert_eq!(ids("").await, [shared, shown_often]);
    for _ in 0..12 {
        post(&t, account, at(1), &[post_metrics(1, 1)]).await;
    }
    assert_eq!(ids("").await.len(), 10);
}
