//! Schedules: when they fire, which period they cover, and that each due time fires once.

use chrono::{DateTime, Utc};
use crier_scheduler::tasks;
use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::console::ConsoleUser;
use crate::support::reports::{TestInstallation, create, newest_delivery, tenant_in};
use crate::support::store::{on_both, run_concurrently};

on_both!(TestInstallation::start =>
    each_frequency_fires_at_its_local_time_and_covers_its_period,
    daylight_saving_neither_skips_nor_repeats_a_report,
    schedules_follow_the_time_zone_of_the_brand,
    missed_times_fire_once,
    two_schedulers_fire_once,
    an_unfinished_export_prevents_another,
    a_plan_without_reports_fires_none,
    an_unreadable_schedule_does_not_block_others,
);

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("a time")
}

/// Creates a report with a schedule at `now`.
async fn create_schedule<'a>(
    r: &'a TestInstallation,
    zone: &str,
    now: &str,
    mut schedule: Value,
) -> (Tenant<'a>, String) {
    r.clock.advance(at(now) - r.store.now());
    let t = tenant_in(&r.app, zone).await;
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    schedule["recipients"] = json!(["ann@example.com"]);
    schedule["format"] = json!("csv");
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    (t, report)
}

/// Advances the clock to `now`, and runs the due schedules.
async fn fire_at(r: &TestInstallation, now: &str) {
    r.clock.advance(at(now) - r.store.now());
    r.fire().await;
}

/// Returns the days that the newest delivery covers.
async fn covered(t: &Tenant<'_>, report: &str) -> (String, String) {
    let newest = newest_delivery(t, report).await;
    let day = |name: &str| newest[name].as_str().expect("a day").to_owned();
    (day("start"), day("end"))
}

async fn each_frequency_fires_at_its_local_time_and_covers_its_period(r: TestInstallation) {
    // Auckland is 12 hours ahead of UTC in June, so its Monday begins on Sunday.
    let mut all = Vec::new();
    for (schedule, before, due, start, end) in [
        (json!({ "frequency": "daily", "time": "00:00" }), "06-12T11:59:59", "06-12T12:00:00", "06-12", "06-12"),
        (json!({ "frequency": "weekly" }), "06-14T20:59:59", "06-14T21:00:00", "06-08", "06-14"),
        (json!({ "frequency": "cron", "cron": "0 9 16 6 *" }), "06-15T20:59:59", "06-15T21:00:00", "05-18", "06-16"),
        (json!({ "frequency": "monthly" }), "06-30T20:59:59", "06-30T21:00:00", "06-01", "06-30"),
    ] {
        all.push((
            schedule,
            format!("2026-{before}Z"),
            format!("2026-{due}Z"),
            format!("2026-{start}"),
            format!("2026-{end}"),
        ));
    }
    for (schedule, before, due, start, end) in all {
        r.sql("DELETE FROM reports").await;
        let now = r.store.now().max(at("2026-06-12T00:00:00Z")).to_rfc3339();
        let (t, report) = create_schedule(&r, "Pacific/Auckland", &now, schedule.clone()).await;
        fire_at(&r, &before).await;
        assert_eq!(r.count_rows("report_deliveries").await, 0, "{schedule} before its time");
        fire_at(&r, &due).await;
        assert_eq!(r.count_rows("report_deliveries").await, 1, "{schedule}");
        assert_eq!(covered(&t, &report).await, (start, end), "{schedule}");
        let shown = t.get(&report).await.data(200)["schedules"][0].clone();
        assert_eq!(shown["last_run_at"].as_str().map(at), Some(at(&due)), "{schedule}");
        assert!(at(shown["next_run_at"].as_str().unwrap()) > at(&due), "{schedule}");
        r.fire().await;
        assert_eq!(r.count_rows("report_deliveries").await, 1, "{schedule} fires once");
    }
}

async fn daylight_saving_neither_skips_nor_repeats_a_report(r: TestInstallation) {
    // In Berlin, the hour from 02:00 occurs twice on 2026-10-25, and not at all on 2027-03-28.
    let (t, report) =
        create_schedule(&r, "Europe/Berlin", "2026-10-24T10:00:00Z", json!({ "frequency": "daily", "time": "02:30" }))
            .await;
    for (n, due, covers) in [
        (1, "2026-10-25T00:30:00Z", "2026-10-24"),
        (1, "2026-10-25T01:30:00Z", "2026-10-24"),
        (2, "2026-10-26T01:30:00Z", "2026-10-25"),
    ] {
        fire_at(&r, due).await;
        assert_eq!(
            (r.count_rows("report_deliveries").await, covered(&t, &report).await.1),
            (n, covers.to_owned()),
            "{due}"
        );
    }
    // After a winter without a scheduler, one report covers the last missed time.
    fire_at(&r, "2027-03-27T12:00:00Z").await;
    assert_eq!((r.count_rows("report_deliveries").await, covered(&t, &report).await.1), (3, "2027-03-26".to_owned()));
    for (n, due, covers) in [
        (3, "2027-03-28T00:59:59Z", "2027-03-26"),
        (4, "2027-03-28T01:00:00Z", "2027-03-27"),
        (5, "2027-03-29T00:30:00Z", "2027-03-28"),
    ] {
        fire_at(&r, due).await;
        assert_eq!(
            (r.count_rows("report_deliveries").await, covered(&t, &report).await.1),
            (n, covers.to_owned()),
            "{due}"
        );
    }
}

/// Changes the time zone of the tenant's brand in the console.
async fn change_zone(t: &Tenant<'_>, zone: &str) {
    let path = t.path("/settings");
    let form = [("name", "Bakery"), ("description", ""), ("website", ""), ("timezone", zone)];
    ConsoleUser::sign_in(t).await.submit(&path, &path, &form).await.expect(200, "Brand saved.");
}

async fn schedules_follow_the_time_zone_of_the_brand(r: TestInstallation) {
    let monthly = json!({ "frequency": "monthly" });
    let (t, report) = create_schedule(&r, "Asia/Tokyo", "2026-06-12T00:00:00Z", monthly).await;
    change_zone(&t, "America/Los_Angeles").await;
    let next = async || t.get(&report).await.data(200)["schedules"][0]["next_run_at"].clone();
    assert_eq!(next().await, "2026-07-01T16:00:00Z");
    // 09:00 in Tokyo, which is still June in Los Angeles.
    fire_at(&r, "2026-07-01T00:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 0);
    fire_at(&r, "2026-07-01T16:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 1);
    assert_eq!(covered(&t, &report).await, ("2026-06-01".to_owned(), "2026-06-30".to_owned()));

    // A schedule that is due, and has not run yet, is not skipped.
    r.clock.advance(at("2026-08-01T16:00:00Z") - r.store.now());
    change_zone(&t, "Asia/Tokyo").await;
    r.fire().await;
    assert_eq!(r.count_rows("report_deliveries").await, 2);
    assert_eq!(covered(&t, &report).await, ("2026-07-01".to_owned(), "2026-07-31".to_owned()));
    assert_eq!(next().await, "2026-09-01T00:00:00Z");

    // A time that has passed only in the new time zone is not skipped either.
    change_zone(&t, "America/Los_Angeles").await;
    assert_eq!(next().await, "2026-09-01T16:00:00Z");
    r.clock.advance(at("2026-09-01T01:00:00Z") - r.store.now());
    change_zone(&t, "Asia/Tokyo").await;
    r.fire().await;
    assert_eq!(r.count_rows("report_deliveries").await, 3);
    assert_eq!(covered(&t, &report).await, ("2026-08-01".to_owned(), "2026-08-31".to_owned()));
    assert_eq!(next().await, "2026-10-01T00:00:00Z");
}

async fn missed_times_fire_once(r: TestInstallation) {
    let every_minute = json!({ "frequency": "cron", "cron": "* * * * *" });
    let (t, report) = create_schedule(&r, "UTC", "2026-06-12T00:00:00Z", every_minute).await;
    fire_at(&r, "2026-09-12T12:34:30Z").await;
    assert_eq!((r.count_rows("report_deliveries").await, covered(&t, &report).await.1), (1, "2026-09-12".to_owned()));
    let next = t.get(&report).await.data(200)["schedules"][0]["next_run_at"].clone();
    assert_eq!(next, "2026-09-12T12:35:00Z");
}

async fn two_schedulers_fire_once(r: TestInstallation) {
    create_schedule(&r, "UTC", "2026-06-12T00:00:00Z", json!({ "frequency": "daily" })).await;
    r.clock.advance(at("2026-06-12T09:00:00Z") - r.store.now());
    let second = r.store.open_second_store().await;
    let other = crier_scheduler::Scheduler { store: second, ..r.scheduler.clone() };
    run_concurrently(8, |n| {
        let one = if n % 2 == 0 { r.scheduler.clone() } else { other.clone() };
        async move { tasks::reports::run(&one).await.unwrap() }
    })
    .await;
    assert_eq!(r.count_rows("report_deliveries").await, 1);
}

async fn an_unfinished_export_prevents_another(r: TestInstallation) {
    let (t, report) = create_schedule(&r, "UTC", "2026-06-12T00:00:00Z", json!({ "frequency": "daily" })).await;
    for due in ["2026-06-12T09:00:00Z", "2026-06-13T09:00:00Z"] {
        r.clock.advance(at(due) - r.store.now());
        tasks::reports::run(&r.scheduler).await.unwrap();
    }
    assert_eq!(r.count_rows("report_deliveries").await, 1, "no worker ran");
    let shown = t.get(&report).await.data(200)["schedules"][0].clone();
    assert_eq!(shown["next_run_at"], "2026-06-14T09:00:00Z");
    assert_eq!(shown["last_run_at"], "2026-06-12T09:00:00.000000Z");
    fire_at(&r, "2026-06-13T10:00:00Z").await;
    fire_at(&r, "2026-06-14T09:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 2);
}

async fn a_plan_without_reports_fires_none(r: TestInstallation) {
    let (t, _) = create_schedule(&r, "UTC", "2026-06-12T00:00:00Z", json!({ "frequency": "daily" })).await;
    r.set_plan(t.workspace, "free").await;
    fire_at(&r, "2026-06-12T09:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 0);
    r.set_plan(t.workspace, "unlimited").await;
    fire_at(&r, "2026-06-13T09:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 1);
}

async fn an_unreadable_schedule_does_not_block_others(r: TestInstallation) {
    let (t, report) = create_schedule(&r, "UTC", "2026-06-12T00:00:00Z", json!({ "frequency": "daily" })).await;
    let readable = json!({ "frequency": "daily", "format": "csv", "recipients": ["ann@example.com"] });
    t.post(&format!("{report}/schedules"), readable).await.expect(201);
    r.sql("UPDATE report_schedules SET recipients = '{}' WHERE id = (SELECT min(id) FROM report_schedules)").await;
    fire_at(&r, "2026-06-12T09:00:00Z").await;
    assert_eq!(r.count_rows("report_deliveries").await, 1);
    let waits = "report_schedules WHERE last_run_at IS NULL AND next_run_at > '2026-06-13 08:59'";
    assert_eq!(r.count_rows(waits).await, 1, "the readable schedule waits for a day");
}
