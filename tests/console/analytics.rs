//! The analytics page.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::analytics::{AccountMetrics, PostMetrics};
use crier_store::analytics;

use crate::support::app::{Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;
use crate::support::reports::{post_metrics, publish};

on_one_app!("unlimited" => metrics_of_posts_and_accounts_are_shown, the_best_times_are_named);
on_one_app!(an_account_filters_the_page, the_top_posts_link_to_their_pages);
on_sqlite_app!(a_new_brand_has_no_metrics, invalid_days_are_rejected, a_small_plan_shows_fewer_days);

/// Creates a published post with metrics.
async fn create_post(t: &Tenant<'_>, account: i64, at: DateTime<Utc>, impressions: i64, likes: i64) {
    publish(t, account, "x", &at.to_rfc3339(), post_metrics(impressions, likes)).await;
}

async fn a_new_brand_has_no_metrics(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&t.path("/analytics")).await;
    page.expect(200, "No accounts yet")
        .expect(200, "Not enough posts yet")
        .expect(200, "No metrics for this period yet.")
        .expect(200, "No posts with this metric in this period.")
        .expect(200, "No comparison: no posts were published in the previous period (");
    page.expect(200, "30 days");
}

async fn metrics_of_posts_and_accounts_are_shown(t: Tenant<'_>) {
    let account = t.account("demo").await;
    create_post(&t, account, t.app.now() - TimeDelta::days(2), 12_000, 340).await;
    create_post(&t, account, t.app.now() - TimeDelta::days(40), 5_000, 60).await;
    t.app
        .write(async |tx| {
            let metrics = AccountMetrics { followers: Some(8_765), ..AccountMetrics::default() };
            analytics::record_account(tx, account, &metrics).await
        })
        .await;
    t.app.write(async |tx| analytics::record_unavailable_metrics(tx, account, &["views".to_owned()]).await).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/analytics");
    let page = person.get(&path).await;
    page.expect(200, "<dd>12,000</dd>").expect(200, "<dd>340</dd>").expect(200, "<rect class=\"bar\"");
    page.expect(200, "8,765").expect(200, "<polyline").expect(200, "does not report: views.");
    // In the 30 days before, there is the older post.
    page.expect(200, "Changes are relative to the previous period (").expect(200, ">no change<");
    page.expect(200, ">+7,000 (+140%)<").expect(200, ">+280 (+467%)<");
    let today = t.app.now().with_timezone(&chrono_tz::Europe::Berlin).date_naive();
    let start = today - TimeDelta::days(89);
    let page = person.get(&format!("{path}?start={start}&end={today}")).await;
    page.expect(200, "<dd>17,000</dd>").expect(200, "Week from").expect(200, "No comparison: no posts were published");
    // The shares of the older post are not known.
    let shares = PostMetrics { shares: Some(5), ..PostMetrics::default() };
    publish(&t, account, "x", &(t.app.now() - TimeDelta::days(1)).to_rfc3339(), shares).await;
    person.get(&path).await.expect(200, ">no comparison<");
    let other = t.app.tenant("unlimited").await;
    let theirs = ConsoleUser::sign_in(&other).await.get(&other.path("/analytics")).await;
    assert!(!theirs.has("12,000") && !theirs.has("8,765"), "{}", theirs.text);
}

async fn the_best_times_are_named(t: Tenant<'_>) {
    let account = t.account("demo").await;
    // Mondays at 9:00 in Berlin, in winter.
    let monday: DateTime<Utc> = "2027-01-04T08:20:00Z".parse().unwrap();
    t.app.clock.advance(monday + TimeDelta::days(30) - t.app.store.now());
    for (week, likes) in [(0, 2), (1, 4), (2, 9)] {
        create_post(&t, account, monday + TimeDelta::days(7 * week), 1, likes).await;
    }
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&t.path("/analytics")).await;
    page.expect(200, "Not enough posts to determine the best times").expect(200, ">5.0<");
    let tuesday = monday + TimeDelta::hours(25);
    for minutes in 0..7 {
        create_post(&t, account, tuesday + TimeDelta::minutes(minutes), 1, 1).await;
    }
    let page = person.get(&t.path("/analytics")).await;
    page.expect(200, "<strong>Monday 09:00</strong>")
        .expect(200, "<strong>Tuesday 10:00</strong>")
        .expect(200, "class=\"l5\"")
        .expect(200, ">5.0<");
}

async fn invalid_days_are_rejected(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/analytics");
    for (query, field) in [
        ("start=yesterday", "e-start"),
        ("start=2026-02-30", "e-start"),
        ("end=2026-2-1", "e-end"),
        ("start=2026-02-02&end=2026-02-01", "e-end"),
        ("start=9999-12-31", "e-end"),
    ] {
        person.get(&format!("{path}?{query}")).await.expect(422, field);
    }
    person.get(&format!("{path}?start=&end=")).await.expect(200, "30 days");
    person.get(&format!("{path}?start=0001-01-01&end=9999-12-31")).await.expect(200, "Quarter");
}

async fn a_small_plan_shows_fewer_days(app: TestApp) {
    let t = app.tenant("free").await;
    let account = t.account("demo").await;
    create_post(&t, account, app.now() - TimeDelta::days(2), 10, 1).await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&t.path("/analytics?start=2000-01-01")).await;
    page.expect(200, ">Day</th>").expect(200, "7 days");
    page.expect(200, "No comparison: your plan does not cover all of the previous period (");
    assert!(!page.has("1 year"), "the plan shows 30 days alone");
}

async fn an_account_filters_the_page(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let (first, second) = (t.account("demo").await, t.account("second").await);
    let at = app.now() - TimeDelta::days(2);
    create_post(&t, first, at, 12_000, 340).await;
    create_post(&t, second, at, 700, 21).await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/analytics");
    let page = person.get(&format!("{path}?account={second}")).await;
    page.expect(200, "<dd>700</dd>").expect(200, &format!("<option value=\"{second}\" selected>second (Sandbox)"));
    page.expect(200, &format!("&account={second}\">7 days</a>"));
    assert!(!page.has("12,000") && !page.has("12,700"), "{}", page.text);
    // With the period and the metric.
    let today = app.now().with_timezone(&chrono_tz::Europe::Berlin).date_naive();
    let days = format!("start={}&end={today}", today - TimeDelta::days(6));
    let page = person.get(&format!("{path}?{days}&account={first}&metric=likes")).await;
    page.expect(200, "<dd>12,000</dd>").expect(200, "class=\"num\">340</td>");
    let tab = format!("{path}?{days}&account={first}&metric=likes#top-posts\" aria-current=\"page\"");
    page.expect(200, &tab).expect(200, &format!("{path}?{days}&account={first}&metric=likes\" aria-current"));
    // An invalid range keeps the filter.
    person.get(&format!("{path}?start=x&account={second}")).await.expect(422, "<dd>700</dd>");
    // An account of another brand has no effect.
    let other = app.tenant("unlimited").await;
    let theirs = other.account("theirs").await;
    for account in [theirs.to_string(), "x".to_owned(), String::new()] {
        person.get(&format!("{path}?account={account}")).await.expect(200, "<dd>12,700</dd>");
    }
}

async fn the_top_posts_link_to_their_pages(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let at = (app.now() - TimeDelta::days(2)).to_rfc3339();
    publish(&t, account, "Rye <b>bread</b>", &at, post_metrics(10, 9)).await;
    let rye = app.newest_id("posts").await;
    publish(&t, account, "Wheat", &at, post_metrics(99, 1)).await;
    let wheat = app.newest_id("posts").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = t.path("/analytics");
    let links = [(rye, "Rye <b>bread</b>"), (wheat, "Wheat")]
        .map(|(id, text)| format!("<a href=\"{}\" dir=\"auto\">{text}</a>", t.path(&format!("/posts/{id}"))));
    for (query, order) in [("", [0, 1]), ("?metric=impressions", [1, 0]), ("?metric=followers", [0, 1])] {
        let page = person.get(&format!("{path}{query}")).await;
        let [first, second] = order.map(|index: usize| page.text.find(&links[index]).expect("the post"));
        assert!(first < second, "{query}: {}", page.text);
    }
    person.get(&format!("{path}?metric=reach")).await.expect(200, "No posts with this metric in this period.");
    person.get(&t.path(&format!("/posts/{rye}"))).await.expect(200, "Likes: <strong>9</strong>");
}
