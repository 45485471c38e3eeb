//! Reports: the list, new reports and copies, exports, schedules.

use serde_json::json;

use crate::support::app::{Tenant, on_one_app, on_sqlite_app};
use crate::support::console::ConsoleUser;
use crate::support::reports::{TestInstallation, all_widgets, create};
use crate::support::store::{TestStore, on_one};

on_one_app!(console "unlimited" =>
    the_widgets_of_a_report_are_in_the_order_of_their_numbers,
    a_report_is_renamed_and_deleted,
    a_schedule_is_added_and_deleted,
);
on_sqlite_app!(console "unlimited" =>
    errors_in_a_report_are_shown_at_their_rows,
    a_report_is_copied,
    errors_in_an_export_and_a_schedule_are_shown,
);
on_one!(an_export_is_downloaded_with_the_session);

async fn the_widgets_of_a_report_are_in_the_order_of_their_numbers(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let (list, new) = (t.path("/reports"), t.path("/reports/new"));
    person.get(&list).await.expect(200, "No reports yet");
    let page = person.get(&new).await;
    page.expect(200, "Engagement over time").expect(200, "name=\"widgets.9.options.text\"");
    let form = [
        ("name", "Monthly"),
        ("widgets.0.use", "true"),
        ("widgets.0.position", "2"),
        ("widgets.7.use", "true"),
        ("widgets.7.position", "1"),
        ("widgets.7.title", "In short"),
        ("widgets.7.options.text", "A good month."),
        ("widgets.8.position", "3"),
    ];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &new, &form).await;
        shown.expect(200, "Report created.").expect(200, "A good month.").expect(200, "No files yet");
    }
    let reports = t.get(&t.path("/reports")).await.expect(200);
    assert_eq!(reports["meta"]["total"], 1);
    let widgets = &reports["data"][0]["widgets"];
    assert_eq!(
        (&widgets[0]["type"], &widgets[1]["type"], &widgets[2]),
        (&json!("note"), &json!("summary"), &json!(null))
    );
    person.get(&list).await.expect(200, "Note and At a glance").expect(200, "Monthly");
    for page in ["0", "x", "9223372036854775807"] {
        assert_eq!(person.get(&format!("{list}?page={page}")).await.status, 200);
    }
}

async fn errors_in_a_report_are_shown_at_their_rows(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let new = t.path("/reports/new");
    let page = person.submit(&new, &new, &[("name", "")]).await;
    page.expect(422, "e-name").expect(422, "e-widgets");
    let form =
        [("name", "Typed"), ("widgets.2.use", "true"), ("widgets.8.use", "true"), ("widgets.8.options.text", " ")];
    let page = person.submit(&new, &new, &form).await;
    page.expect(422, "id=\"e-widgets.8.options.text\"").expect(422, "value=\"Typed\"");
    let form = [("name", "x"), ("widgets.1.type", "flight"), ("widgets.1.use", "true"), ("widgets.x.use", "true")];
    assert_eq!(person.submit(&new, &new, &form).await.status, 422);
    assert_eq!(t.app.count_rows("reports").await, 0);
}

async fn a_report_is_copied(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = create(&t, "Monthly", all_widgets()).await;
    let (_, id) = path.rsplit_once('/').expect("an id");
    let page = person.get(&t.path(&format!("/reports/new?from={id}"))).await;
    page.expect(200, "value=\"Monthly\"").expect(200, "A good month.");
    assert_eq!(page.text.matches(" checked").count(), 8);
    let other = t.app.tenant("unlimited").await;
    let theirs = create(&other, "Theirs", all_widgets()).await;
    let (_, id) = theirs.rsplit_once('/').expect("an id");
    person.get(&t.path(&format!("/reports/new?from={id}"))).await.expect(404, "Page not found");
    person.get(&t.path("/reports/new?from=x")).await.expect(200, "New report");
}

async fn a_report_is_renamed_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = create(&t, "Monthly", all_widgets()).await;
    person.submit(&path, &path, &[("name", " ")]).await.expect(422, "e-name").expect(422, "Monthly");
    person.submit(&path, &path, &[("name", "Quarterly")]).await.expect(200, "Report renamed.");
    person.get(&path).await.expect(200, "Quarterly");
    person.submit(&path, &format!("{path}/delete"), &[]).await.expect(200, "No reports yet");
    person.get(&path).await.expect(404, "Page not found");
}

async fn an_export_is_downloaded_with_the_session(store: TestStore) {
    let r = TestInstallation::start(store).await;
    let t = r.app.tenant("unlimited").await;
    let path = create(&t, "Monthly", all_widgets()).await;
    let person = ConsoleUser::sign_in(&t).await;
    let page = person.get(&path).await;
    let form = [("format", "csv"), ("bom", "true"), ("start", "2026-06-01"), ("end", "2026-06-30")];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &format!("{path}/export"), &form).await;
        shown.expect(200, "Export started.").expect(200, "Waiting").expect(200, "1 Jun to 30 Jun 2026");
    }
    let delivery = r.newest_id("report_deliveries").await;
    let download = format!("{path}/exports/{delivery}/download");
    person.get(&download).await.expect(409, "The file is not available");
    r.run_jobs().await;
    person.get(&path).await.expect(200, "Ready").expect(200, &download).expect(200, " KiB");
    let file = person.get(&download).await;
    assert_eq!(file.status, 200);
    assert_eq!(file.reply.header("content-type"), Some("text/csv; charset=utf-8"));
    assert!(file.reply.header("content-disposition").is_some_and(|value| value.starts_with("attachment;")));
    assert!(file.reply.body.starts_with(b"\xef\xbb\xbfwidget,title,"));
    let second = create(&t, "Second", all_widgets()).await;
    person.get(&format!("{second}/exports/{delivery}/download")).await.expect(404, "not found");
    let other = r.app.tenant("unlimited").await;
    let other_user = ConsoleUser::sign_in(&other).await;
    other_user.get(&download).await.expect(404, "not found");
    assert_eq!(r.count_rows("report_deliveries").await, 1);
}

async fn a_schedule_is_added_and_deleted(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = create(&t, "Monthly", all_widgets()).await;
    let schedules = format!("{path}/schedules");
    let page = person.get(&path).await;
    page.expect(200, "Email is not configured").expect(200, "value=\"weekly\" selected");
    let form = [
        ("frequency", "weekly"),
        ("time", "08:30"),
        ("cron", "0 9 * * 1"),
        ("recipients", "ann@acme.example\nben@acme.example\n"),
        ("format", "xlsx"),
    ];
    for _ in 0..2 {
        let shown = person.submit_from(&page, &schedules, &form).await;
        shown.expect(200, "Every Monday at 08:30").expect(200, "Excel").expect(200, "ben@acme.example");
    }
    person.get(&t.path("/reports")).await.expect(200, "Weekly, to 2 people");
    let form = [("frequency", "cron"), ("time", "09:00"), ("cron", "0 9 * * 1-5"), ("recipients", "ann@acme.example")];
    person.submit(&path, &schedules, &form).await.expect(200, "Custom schedule (0 9 * * 1-5)");
    person.get(&t.path("/reports")).await.expect(200, "2 schedules");
    let id = t.app.newest_id("report_schedules").await;
    person.submit(&path, &format!("{schedules}/{id}/delete"), &[]).await.expect(200, "Schedule deleted.");
    assert_eq!(t.app.count_rows("report_schedules").await, 1);
}

async fn errors_in_an_export_and_a_schedule_are_shown(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let path = create(&t, "Monthly", all_widgets()).await;
    let export = format!("{path}/export");
    let form = [("format", "csv"), ("start", "2026-06-02"), ("end", "2026-06-01")];
    let page = person.submit(&path, &export, &form).await;
    page.expect(422, "Must be the start date, 2026-06-02, or later.")
        .expect(422, "e-end")
        .expect(422, "value=\"2026-06-02\"")
        .expect(422, "value=\"csv\" selected");
    person.submit(&path, &export, &[("format", "odt"), ("start", "x")]).await.expect(422, "e-format");
    let schedules = format!("{path}/schedules");
    let form = [("frequency", "cron"), ("cron", "0 9 * * 1"), ("recipients", "ann")];
    person.submit(&path, &schedules, &form).await.expect(422, "e-recipients").expect(422, "value=\"0 9 * * 1\"");
    let form = [("frequency", "cron"), ("time", "09:00"), ("cron", "x"), ("recipients", "ann@acme.example")];
    let page = person.submit(&path, &schedules, &form).await;
    page.expect(422, "e-cron")
        .expect(422, "Must have five fields")
        .expect(422, "value=\"cron\" selected")
        .expect(422, "ann@acme.example");
    let form = [("frequency", "cron"), ("cron", "61 9 * * 1"), ("recipients", "ann@acme.example")];
    person.submit(&path, &schedules, &form).await.expect(422, "Invalid cron expression: ");
    person.submit(&path, &schedules, &[]).await.expect(422, "e-frequency").expect(422, "e-recipients");
    assert_eq!(t.app.count_rows("report_deliveries").await, 0);
    assert_eq!(t.app.count_rows("report_schedules").await, 0);
}
