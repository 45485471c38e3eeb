//! The calendar, and moving posts in it.

use chrono::TimeDelta;
use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_one_app};
use crate::support::console::{ConsoleUser, Page};

on_one_app!(
    posts_without_a_time_are_on_the_day_of_their_creation,
    a_day_that_has_not_passed_starts_a_post,
    a_form_gets_the_calendar_with_the_reason,
    only_the_brands_posts_are_moved,
);
on_one_app!(console "unlimited" =>
    a_post_is_on_its_local_day,
    a_crowded_day_leads_to_the_list,
    moving_keeps_the_local_time_of_day,
    moving_to_the_past_changes_nothing,
    invalid_parameters_show_the_current_month,
);

/// Schedules a post at a local time; returns its id. The tests start on 9 June 2026; the brand's time zone is Berlin.
async fn schedule_post(t: &Tenant<'_>, account: i64, content: &str, at: &str) -> i64 {
    let body = json!({ "content": content, "schedule_type": "scheduled", "scheduled_at": at, "accounts": [account] });
    t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap()
}

async fn read_schedule(t: &Tenant<'_>, id: i64) -> Value {
    t.get(&t.path(&format!("/posts/{id}"))).await.data(200)["scheduled_at"].take()
}

/// Returns the cell of a day.
fn cell<'p>(page: &'p Page, date: &str) -> &'p str {
    let (_, rest) = page.text.split_once(&format!("data-date=\"{date}\"")).unwrap_or_else(|| panic!("{}", page.text));
    rest.split("</td>").next().unwrap_or_default()
}

/// Returns the token of the calendar's forms.
fn csrf(page: &Page) -> &str {
    page.text.split("data-csrf=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default()
}

/// Moves a post as the page's script does; returns the status and the body.
async fn move_to(app: &TestApp, person: &ConsoleUser<'_>, brand: i64, id: i64, date: &str) -> (u16, String) {
    let page = person.get(&format!("/brands/{brand}/calendar")).await;
    let csrf = csrf(&page);
    let url = format!("{}/brands/{brand}/posts/{id}/move", app.url);
    let request = app.visit("POST", &url).header("cookie", &person.cookie).header("x-requested-with", "fetch");
    let request = request.raw(format!("_csrf={csrf}&_key={}&date={date}", app.fresh_key()));
    let reply = request.header("content-type", "application/x-www-form-urlencoded").send().await;
    (reply.status, String::from_utf8_lossy(&reply.body).into_owned())
}

async fn a_post_is_on_its_local_day(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    schedule_post(&t, account, "Shortly after midnight", "2026-07-01T00:30").await;
    schedule_post(&t, account, "The last minute", "2026-06-30T23:59").await;
    let path = format!("/brands/{}/calendar", t.brand);
    let page = person.get(&format!("{path}?date=2026-07-15")).await;
    page.expect(200, "July 2026");
    assert!(cell(&page, "2026-07-01").contains("Shortly after midnight"), "{}", page.text);
    assert!(cell(&page, "2026-07-01").contains("00:30") && cell(&page, "2026-07-01").contains("draggable"));
    assert!(cell(&page, "2026-06-30").contains("The last minute"), "the week begins in June");
    let week = person.get(&format!("{path}?view=week&date=2026-07-01")).await;
    week.expect(200, "29 June – 5 July 2026").expect(200, "The last minute");
    let list = person.get(&format!("{path}?view=list&date=2026-07-01&account={account}&status=scheduled")).await;
    list.expect(200, "Shortly after midnight").expect(200, "Wednesday 1 July");
    assert!(!list.has("The last minute"), "{}", list.text);
    let other = person.get(&format!("{path}?date=2026-07-15&status=failed")).await;
    other.expect(200, "No posts in this period match");
}

async fn posts_without_a_time_are_on_the_day_of_their_creation(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    schedule_post(&t, account, "In the morning", "2026-06-10T09:30").await;
    app.clock.advance(TimeDelta::days(1));
    for (content, schedule_type) in [("Without a time", "now"), ("No date yet", "draft")] {
        let body = json!({ "content": content, "schedule_type": schedule_type, "accounts": [account] });
        t.post(&t.path("/posts"), body).await.expect(201);
    }
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}/calendar", t.brand)).await;
    let day = cell(&page, "2026-06-10");
    let (planned, created) = (day.find("In the morning"), day.find("Without a time"));
    assert!(planned.is_some() && planned < created, "{day}");
    assert!(!page.has("No date yet"), "{}", page.text);
}

async fn a_day_that_has_not_passed_starts_a_post(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let person = ConsoleUser::sign_in(&t).await;
    let path = format!("/brands/{}/calendar", t.brand);
    let page = person.get(&path).await;
    assert!(!cell(&page, "2026-06-08").contains("New post"), "{}", page.text);
    for (date, time) in [("2026-06-09", "13:00"), ("2026-06-10", "09:00")] {
        let link = format!("/brands/{}/posts/new?date={date}", t.brand);
        assert!(cell(&page, date).contains(&format!("href=\"{link}\"")), "{date}: {}", page.text);
        let composer = person.get(&link).await;
        composer.expect(200, &format!("name=\"scheduled_at\" value=\"{date}T{time}\""));
    }
    for date in ["2026-06-08", "x", ""] {
        let composer = person.get(&format!("/brands/{}/posts/new?date={date}", t.brand)).await;
        composer.expect(200, "name=\"scheduled_at\" value=\"\"");
    }
    schedule_post(&t, account, "Fresh bread", "2026-07-01T09:30").await;
    let list = person.get(&format!("{path}?view=list&date=2026-07-01")).await;
    list.expect(200, "posts/new?date=2026-07-01").expect(200, "New post on Wednesday 1 July");
}

async fn a_crowded_day_leads_to_the_list(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    for n in 0..5 {
        schedule_post(&t, account, &format!("Post number {n}."), &format!("2026-07-01T1{n}:00")).await;
    }
    let page = person.get(&format!("/brands/{}/calendar?date=2026-07-01", t.brand)).await;
    page.expect(200, "Post number 2.").expect(200, "+2 more").expect(200, "view=list&date=2026-07-01");
    assert!(!page.has("Post number 3."), "{}", page.text);
    let list = person.get(&format!("/brands/{}/calendar?view=list&date=2026-07-01", t.brand)).await;
    list.expect(200, "Post number 4.");
}

async fn invalid_parameters_show_the_current_month(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let long = format!("date={}", "9".repeat(4_000));
    for query in [
        "",
        "view=year",
        "date=2026-02-30",
        "date=x",
        "date=0000-00-00",
        "view=list&page=0",
        "view=list&page=77",
        &long,
    ] {
        person.get(&format!("/brands/{}/calendar?{query}", t.brand)).await.expect(200, "June");
    }
    person.get(&format!("/brands/{}/calendar?date=2999-12-31", t.brand)).await.expect(200, "December 2999");
    t.app.set_time_zone(t.brand, "Pacific/Apia").await;
    person.get(&format!("/brands/{}/calendar", t.brand)).await.expect(200, "Pacific/Apia");
}

async fn moving_keeps_the_local_time_of_day(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = schedule_post(&t, account, "x", "2026-10-20T09:30:15").await;
    assert_eq!(read_schedule(&t, id).await, "2026-10-20T07:30:15Z");
    let (status, text) = move_to(t.app, &person, t.brand, id, "2026-11-02").await;
    assert_eq!((status, text.as_str()), (200, "Post moved to Monday 2 November, 09:30."));
    assert_eq!(read_schedule(&t, id).await, "2026-11-02T08:30:15Z", "winter time");
    assert_eq!(t.app.count_rows("jobs WHERE state = 'scheduled'").await, 1);
    let body = json!({ "content": "d", "scheduled_at": "2026-07-01T09:30", "accounts": [account] });
    let draft = t.post(&t.path("/posts"), body).await.data(201)["id"].as_i64().unwrap();
    assert_eq!(move_to(t.app, &person, t.brand, draft, "2026-07-05").await.0, 200);
    let moved = t.get(&t.path(&format!("/posts/{draft}"))).await.data(200);
    assert_eq!((&moved["status"], &moved["scheduled_at"]), (&json!("draft"), &json!("2026-07-05T07:30:00Z")));
}

async fn moving_to_the_past_changes_nothing(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let account = t.account("demo").await;
    let id = schedule_post(&t, account, "x", "2026-07-01T09:30").await;
    for (date, words) in [
        ("2026-06-08", "Monday 8 June is in the past. Choose today or a later day."),
        ("2026-06-09", "It is planned for 09:30, which has passed today."),
        ("x", "Choose a date"),
        ("", "Choose a date"),
    ] {
        let (status, text) = move_to(t.app, &person, t.brand, id, date).await;
        assert!(status == 422 && text.contains(words) && !text.contains('<'), "{date}: {status} {text}");
    }
    assert_eq!(read_schedule(&t, id).await, "2026-07-01T07:30:00Z");
    t.app.end_post(id, "published", &["published"]).await;
    assert_eq!(move_to(t.app, &person, t.brand, id, "2026-07-02").await.0, 409);
    let untimed = t.post(&t.path("/posts"), json!({ "content": "d" })).await.data(201)["id"].as_i64().unwrap();
    let (status, text) = move_to(t.app, &person, t.brand, untimed, "2026-07-02").await;
    assert!(status == 422 && text.contains("has no time yet"), "{text}");
}

async fn a_form_gets_the_calendar_with_the_reason(app: TestApp) {
    let t = app.tenant("unlimited").await;
    let account = t.account("demo").await;
    let id = schedule_post(&t, account, "Fresh bread", "2026-06-20T09:30").await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&format!("/brands/{}/calendar", t.brand)).await;
    let (path, key) = (format!("/brands/{}/posts/{id}/move", t.brand), app.fresh_key());
    let fields = [("_csrf", csrf(&page)), ("_key", key.as_str()), ("date", "2026-06-08")];
    let rejected = person.post(&path, &fields).await;
    rejected.expect(422, "role=\"status\" class=\"notice notice-bad\">The post was not moved. Monday 8 June");
    assert!(cell(&rejected, "2026-06-20").contains("Fresh bread"), "{}", rejected.text);
    let fields = [("_csrf", csrf(&rejected)), ("_key", key.as_str()), ("date", "2026-06-21")];
    assert_eq!(person.post(&path, &fields).await.status, 303);
    assert_eq!(read_schedule(&t, id).await, "2026-06-21T07:30:00Z");
}

async fn only_the_brands_posts_are_moved(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let other_account = other.account("theirs").await;
    let id = schedule_post(&other, other_account, "A secret plan", "2026-07-01T09:30").await;
    let person = ConsoleUser::sign_in(&t).await;
    for id in [id, MISSING_ID] {
        assert_eq!(move_to(&app, &person, t.brand, id, "2026-07-02").await.0, 404);
    }
    assert_eq!(read_schedule(&other, id).await, "2026-07-01T07:30:00Z");
    let page = person.get(&format!("/brands/{}/calendar?date=2026-07-01", t.brand)).await;
    assert!(!page.has("A secret plan"), "{}", page.text);
}
