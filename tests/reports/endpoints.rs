//! The report endpoints: what they accept, reject and return.

use serde_json::{Value, json};

use crate::support::app::{MISSING_ID, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::reports::{all_widgets, create, tenant_in};

on_both_apps!(a_schedule_has_its_next_run_time);
on_both_apps!("unlimited" =>
    a_report_is_created_updated_and_deleted,
    exports_are_listed_in_pages,
    a_schedule_of_another_report_is_not_found,
    a_report_has_at_most_twenty_schedules,
);
on_one_app!("unlimited" =>
    invalid_reports_are_rejected,
    invalid_exports_are_rejected,
    invalid_schedules_are_rejected,
);

async fn a_report_is_created_updated_and_deleted(t: Tenant<'_>) {
    let report = create(&t, "Weekly", all_widgets()).await;
    let shown = t.get(&report).await.data(200);
    assert_eq!((&shown["name"], &shown["schedules"]), (&json!("Weekly"), &json!([])));
    let widget = |index: usize| &shown["widgets"][index];
    assert_eq!(widget(0), &json!({ "type": "summary", "title": null, "options": null }));
    assert_eq!(widget(1), &json!({ "type": "note", "title": "In short", "options": { "text": "A good month." } }));
    let listed = t.get(&t.path("/reports")).await.expect(200);
    assert_eq!((&listed["data"][0], &listed["meta"]["total"]), (&shown, &json!(1)));
    t.app.advance(5);
    let renamed = t.put(&report, json!({ "name": "Monthly", "widgets": [] })).await.data(200);
    assert_eq!((&renamed["name"], &renamed["widgets"]), (&json!("Monthly"), &shown["widgets"]));
    assert_ne!(renamed["updated_at"], shown["updated_at"]);
    assert_eq!(t.put(&report, json!({})).await.data(200), renamed, "nothing to change");
    t.delete(&report).await.expect(204);
    t.get(&report).await.expect_error(404, "not_found");
    assert_eq!(t.get(&t.path("/reports")).await.expect(200)["data"], json!([]));
}

async fn exports_are_listed_in_pages(t: Tenant<'_>) {
    let (report, other) = (create(&t, "Weekly", all_widgets()).await, create(&t, "Other", all_widgets()).await);
    let export = async |report: &str| t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.data(202);
    let (first, second) = (export(&report).await, export(&report).await);
    export(&other).await;
    let path = format!("{report}/deliveries");
    let all = t.get(&path).await.expect(200);
    assert_eq!((&all["data"], &all["meta"]["total"]), (&json!([second, first]), &json!(2)));
    let last = t.get(&format!("{path}?per_page=1&page=2")).await.expect(200);
    assert_eq!((&last["data"], &last["meta"]["last_page"]), (&json!([first]), &json!(2)));
    assert!(last["links"]["next"].is_null() && last["links"]["prev"].is_string(), "{last}");
    assert_eq!(t.get(&format!("{path}?page=0")).await.invalid_fields(), ["page"]);
    t.get(&t.path(&format!("/reports/{MISSING_ID}/deliveries"))).await.expect_error(404, "not_found");
}

async fn invalid_reports_are_rejected(t: Tenant<'_>) {
    let note = |text: Value| json!([{ "type": "note", "options": { "text": text } }]);
    let summary = json!({ "type": "summary" });
    for (name, widgets, fields) in [
        (Value::Null, json!([summary]), vec!["name"]),
        (json!(""), json!([summary]), vec!["name"]),
        (json!("x".repeat(121)), json!([summary]), vec!["name"]),
        (json!("R"), Value::Null, vec!["widgets"]),
        (json!("R"), json!([]), vec!["widgets"]),
        (json!("R"), json!({}), vec!["widgets"]),
        (json!("R"), Value::from(vec![summary.clone(); 31]), vec!["widgets"]),
        (json!("R"), json!([summary, 5]), vec!["widgets.1"]),
        (json!("R"), json!([summary, { "type": "magic" }, {}]), vec!["widgets.1.type", "widgets.2.type"]),
        (json!("R"), json!([{ "type": "note" }]), vec!["widgets.0.options.text"]),
        (json!("R"), note(json!("")), vec!["widgets.0.options.text"]),
        (json!("R"), note(json!("x".repeat(20_001))), vec!["widgets.0.options.text"]),
        (json!("R"), json!([{ "type": "summary", "title": "x".repeat(121) }]), vec!["widgets.0.title"]),
        (json!("R"), json!([{ "type": "summary", "options": 5 }]), vec!["widgets.0.options"]),
        (json!("R"), Value::from(vec![note(json!("x".repeat(20_000)))[0].clone(); 4]), vec!["widgets"]),
    ] {
        let reply = t.post(&t.path("/reports"), json!({ "name": name, "widgets": widgets })).await;
        assert_eq!(reply.invalid_fields(), fields);
    }
    let report = create(&t, "R", json!([summary])).await;
    assert_eq!(t.put(&report, json!({ "name": null })).await.invalid_fields(), ["name"]);
    assert_eq!(t.app.count_rows("reports").await, 1);
}

async fn invalid_exports_are_rejected(t: Tenant<'_>) {
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    for (body, fields) in [
        (json!({}), vec!["format"]),
        (json!({ "format": "docx" }), vec!["format"]),
        (json!({ "format": "pdf", "start": "2026-01-02", "end": "2026-01-01" }), vec!["end"]),
        (json!({ "format": "pdf", "start": "2026-02-30" }), vec!["start"]),
        (json!({ "format": "pdf", "end": 5 }), vec!["end"]),
        (json!({ "format": "pdf", "start": "2025-01-01", "end": "2026-01-02" }), vec!["end"]),
    ] {
        assert_eq!(t.post(&format!("{report}/export"), body).await.invalid_fields(), fields);
    }
    t.post(&t.path(&format!("/reports/{MISSING_ID}/export")), json!({ "format": "pdf" }))
        .await
        .expect_error(404, "not_found");
    assert_eq!(t.app.count_rows("report_deliveries").await, 0);
    // The default period is the last 30 days in the brand's time zone, where it is already tomorrow.
    t.app.set_time_zone(t.brand, "Pacific/Kiritimati").await;
    let created = t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.data(202);
    let today = (t.app.store.now() + chrono::TimeDelta::hours(14)).date_naive();
    assert_eq!((&created["end"], &created["start"]), (&json!(today), &json!(today - chrono::Days::new(29))));
    assert_eq!((&created["status"], &created["download_url"]), (&json!("pending"), &json!(null)));
    let path = t.path(&format!("/reports/deliveries/{}", created["id"]));
    assert_eq!(t.get(&path).await.data(200), created);
    t.get(&format!("{path}/download")).await.expect_error(409, "report_not_ready");
}

async fn invalid_schedules_are_rejected(t: Tenant<'_>) {
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    let cases = [
        (json!({ "frequency": "hourly" }), vec!["frequency"]),
        (json!({ "frequency": null }), vec!["frequency"]),
        (json!({ "recipients": null }), vec!["recipients"]),
        (json!({ "recipients": [] }), vec!["recipients"]),
        (
            json!({ "recipients": ["ann@example.com", "nope", "a@", "@b", "a b@c", 5] }),
            vec!["recipients.1", "recipients.2", "recipients.3", "recipients.4", "recipients.5"],
        ),
        (json!({ "recipients": (0..21).map(|n| format!("a{n}@example.com")).collect::<Vec<_>>() }), vec!["recipients"]),
        (json!({ "format": "docx" }), vec!["format"]),
        (json!({ "time": "25:00" }), vec!["time"]),
        (json!({ "time": "9am" }), vec!["time"]),
        (json!({ "cron": "0 9 * * *" }), vec!["cron"]),
        (json!({ "frequency": "cron" }), vec!["cron"]),
        (json!({ "frequency": "cron", "cron": "61 * * * *" }), vec!["cron"]),
        (json!({ "frequency": "cron", "cron": "0 0 9 * * *" }), vec!["cron"]),
        (json!({ "frequency": "cron", "cron": "@daily" }), vec!["cron"]),
        (json!({ "frequency": "cron", "cron": "0 0 30 2 *" }), vec!["cron"]),
        (json!({ "frequency": "cron", "cron": "0 9 * * *", "time": "09:00" }), vec!["time"]),
        (json!({ "frequency": "cron", "cron": 5 }), vec!["cron"]),
    ];
    for (change, fields) in cases {
        let mut body = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
        body.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let reply = t.post(&format!("{report}/schedules"), body).await;
        assert_eq!(reply.invalid_fields(), fields, "{change}");
    }
    assert_eq!(t.app.count_rows("report_schedules").await, 0);
}

async fn a_schedule_has_its_next_run_time(app: TestApp) {
    // The clock starts at 10:13 UTC on Tuesday, 2026-06-09. In New York it is 06:13.
    let t = tenant_in(&app, "America/New_York").await;
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    for (body, time, cron, next) in [
        (json!({ "frequency": "daily" }), json!("09:00"), json!(null), "2026-06-09T13:00:00Z"),
        (json!({ "frequency": "daily", "time": "07:30" }), json!("07:30"), json!(null), "2026-06-09T11:30:00Z"),
        (json!({ "frequency": "weekly" }), json!("09:00"), json!(null), "2026-06-15T13:00:00Z"),
        (json!({ "frequency": "monthly", "time": "23:45" }), json!("23:45"), json!(null), "2026-07-02T03:45:00Z"),
        (
            json!({ "frequency": "cron", "cron": "15 6 * * 7" }),
            json!(null),
            json!("15 6 * * 7"),
            "2026-06-14T10:15:00Z",
        ),
        (
            json!({ "frequency": "cron", "cron": "0 6 29 2 *" }),
            json!(null),
            json!("0 6 29 2 *"),
            "2028-02-29T11:00:00Z",
        ),
        (
            json!({ "frequency": "cron", "cron": "30 2 14 3 *" }),
            json!(null),
            json!("30 2 14 3 *"),
            "2027-03-14T07:00:00Z",
        ),
    ] {
        let mut body = body;
        body["recipients"] = json!(["Ann@Example.com", "ann@example.com ", "bob@bücher.example"]);
        let created = t.post(&format!("{report}/schedules"), body.clone()).await.data(201);
        assert_eq!(
            (&created["time"], &created["cron"], &created["next_run_at"]),
            (&time, &cron, &json!(next)),
            "{body}"
        );
        assert_eq!((&created["format"], &created["timezone"]), (&json!("pdf"), &json!("America/New_York")));
        assert_eq!((&created["last_run_at"], &created["frequency"]), (&json!(null), &body["frequency"]));
        assert_eq!(created["recipients"], json!(["Ann@Example.com", "bob@bücher.example"]), "each once");
        let shown = t.get(&report).await.data(200);
        assert_eq!(shown["schedules"], json!([created]));
        t.delete(&format!("{report}/schedules/{}", created["id"])).await.expect(204);
        t.delete(&format!("{report}/schedules/{}", created["id"])).await.expect_error(404, "not_found");
    }
}

async fn a_report_has_at_most_twenty_schedules(t: Tenant<'_>) {
    let report = create(&t, "R", json!([{ "type": "summary" }])).await;
    let body = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
    for _ in 0..20 {
        t.post(&format!("{report}/schedules"), body.clone()).await.expect(201);
    }
    t.post(&format!("{report}/schedules"), body).await.expect_error(402, "limit_reached");
}

async fn a_schedule_of_another_report_is_not_found(t: Tenant<'_>) {
    let (first, second) = (create(&t, "R", all_widgets()).await, create(&t, "S", all_widgets()).await);
    let schedule = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
    let schedule = t.post(&format!("{first}/schedules"), schedule).await.data(201);
    t.delete(&format!("{second}/schedules/{}", schedule["id"])).await.expect_error(404, "not_found");
}
