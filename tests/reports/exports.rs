//! Exports: the delivery, its file, its event, and failures.

use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState, Lane, Outcome};
use crier_scheduler::tasks;
use crier_store::jobs::operate;
use serde_json::{Value, json};

use crate::support::app::Tenant;
use crate::support::document::assert_conforms;
use crate::support::reports::{TestInstallation, all_widgets, create, delivery, download, export, newest_delivery};
use crate::support::request::assert_fields;
use crate::support::store::{on_both, on_one};

on_both!(TestInstallation::start =>
    a_finished_export_emits_an_event,
    a_file_counts_in_the_workspace_s_storage,
    a_full_storage_fails_the_export,
    a_run_that_died_is_repeated_with_one_file,
    deleting_a_report_deletes_its_files,
    a_report_deleted_during_its_export_leaves_nothing,
    files_are_deleted_after_the_plan_s_retention,
    an_operator_can_retry_a_failed_export,
    an_unavailable_storage_is_retried,
    an_export_does_not_wait_for_imports,
);
on_one!(TestInstallation::start =>
    every_format_is_downloaded_with_its_type_and_name,
    range_and_conditional_downloads_are_supported,
    a_csv_file_has_a_byte_order_mark_if_requested,
    a_json_file_matches_the_openapi_schema,
);

async fn create_report(r: &TestInstallation) -> (Tenant<'_>, String) {
    let t = r.app.tenant("unlimited").await;
    let report = create(&t, "Monatsbericht", all_widgets()).await;
    (t, report)
}

async fn every_format_is_downloaded_with_its_type_and_name(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    r.sql("UPDATE brands SET name = 'Brot & Söhne'").await;
    for (format, media_type, start) in [
        ("pdf", "application/pdf", &b"%PDF-"[..]),
        ("csv", "text/csv; charset=utf-8", b"widget,title,"),
        ("json", "application/json", b"{\"version\":1,"),
        ("pptx", "application/vnd.openxmlformats-officedocument.presentationml.presentation", b"PK\x03\x04"),
        ("xlsx", "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", b"PK\x03\x04"),
    ] {
        let days = json!({ "format": format, "start": "2026-06-01", "end": "2026-06-30" });
        let created = export(&r, &t, &report, days).await;
        assert_fields(&created, json!({ "status": "sent", "error": null, "mail": [] }));
        let reply = t.get(created["download_url"].as_str().unwrap().strip_prefix("/api/public/v1").unwrap()).await;
        reply.assert_status(200);
        assert_eq!(reply.header("content-type"), Some(media_type));
        let name = "Monatsbericht%20-%20Brot%20&%20S%C3%B6hne%20-%202026-06-01%20to%202026-06-30";
        let disposition = reply.header("content-disposition").unwrap();
        assert!(disposition.starts_with("attachment; filename=\"Monatsbericht - Brot & S_hne"), "{disposition}");
        assert!(disposition.ends_with(&format!("filename*=UTF-8''{name}.{format}")), "{disposition}");
        assert!(reply.body.starts_with(start), "{format}");
        assert_eq!(created["size_bytes"], reply.body.len());
    }
    let listed = t.get(&format!("{report}/deliveries?per_page=2")).await.expect(200);
    assert_eq!((&listed["data"][0]["format"], &listed["meta"]["total"]), (&json!("xlsx"), &json!(5)));
}

async fn range_and_conditional_downloads_are_supported(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    let whole = download(&t, &created).await;
    let tag = whole.header("etag").unwrap();
    let path = t.path(&format!("/reports/deliveries/{}/download", created["id"]));
    let part = t.request("GET", &path).header("range", "bytes=0-5").send().await;
    part.assert_status(206);
    assert_eq!((part.body.as_slice(), part.header("content-type")), (&b"widget"[..], Some("text/csv; charset=utf-8")));
    let size = whole.body.len();
    assert_eq!(part.header("content-range"), Some(format!("bytes 0-5/{size}").as_str()));
    let past = t.request("GET", &path).header("range", &format!("bytes={size}-")).send().await;
    past.assert_status(416);
    let known = t.request("GET", &path).header("if-none-match", tag).send().await;
    known.assert_status(304);
    assert!(known.body.is_empty());
    assert!(!tag.contains('/') && whole.header("cache-control") == Some("private, no-cache"));
}

async fn a_csv_file_has_a_byte_order_mark_if_requested(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    for (body, start) in [
        (json!({ "format": "csv", "bom": true }), &b"\xef\xbb\xbfwidget,title,"[..]),
        (json!({ "format": "csv", "bom": false }), b"widget,title,"),
        (json!({ "format": "csv" }), b"widget,title,"),
        (json!({ "format": "json", "bom": true }), b"{\"version\":1,"),
    ] {
        let created = export(&r, &t, &report, body.clone()).await;
        assert!(download(&t, &created).await.body.starts_with(start), "{body}");
    }
    let invalid = t.post(&format!("{report}/export"), json!({ "format": "csv", "bom": "maybe" })).await;
    assert_eq!(invalid.invalid_fields(), ["bom"]);
    let schedule = json!({ "frequency": "daily", "recipients": ["ann@acme.example"], "format": "csv", "bom": true });
    let schedule = t.post(&format!("{report}/schedules"), schedule).await.data(201);
    assert_eq!(schedule["bom"], true);
    r.advance(25 * 3_600);
    r.fire().await;
    let delivered = newest_delivery(&t, &report).await;
    assert_eq!(delivered["schedule_id"], schedule["id"]);
    assert!(download(&t, &delivered).await.body.starts_with("\u{feff}widget".as_bytes()));
}

async fn a_finished_export_emits_an_event(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    r.store.webhook(t.user, &[EventName::ReportSent, EventName::ReportFailed]).await;
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    let data = json!({
        "delivery_id": created["id"], "report_id": created["report_id"], "brand_id": t.brand, "format": "csv",
        "error": null,
    });
    assert_eq!(r.event_data("report.sent").await, [data]);
    assert_eq!(r.event_data("report.failed").await, Vec::<Value>::new());
}

async fn a_file_counts_in_the_workspace_s_storage(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    assert_eq!(created["size_bytes"], r.counted_bytes().await);
    // Equal bytes are stored as two files, so deleting one keeps the other.
    export(&r, &t, &report, json!({ "format": "csv" })).await;
    assert_eq!(r.stored_files().len(), 2);
}

async fn a_full_storage_fails_the_export(r: TestInstallation) {
    let t = r.app.tenant("business").await;
    let report = create(&t, "R", all_widgets()).await;
    r.set_storage_usage(t.workspace, 9_000_000_000_000, 0).await;
    r.store.webhook(t.user, &[EventName::ReportFailed]).await;
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    assert_eq!((&created["status"], &created["error"]["code"]), (&json!("failed"), &json!("storage_limit_exceeded")));
    assert!(created["completed_at"].is_string() && created["download_url"].is_null());
    assert_eq!(r.event_data("report.failed").await[0]["error"]["code"], "storage_limit_exceeded");
    download(&t, &created).await.expect_error(409, "report_not_ready");
    assert!(r.stored_files().is_empty());
}

async fn an_unavailable_storage_is_retried(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    export(&r, &t, &report, json!({ "format": "csv" })).await;
    r.store.set_storage_unavailable(true);
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    assert_eq!((&created["status"], &created["error"]["code"]), (&json!("pending"), &json!("internal_error")));
    r.store.set_storage_unavailable(false);
    r.advance(10);
    r.run_jobs().await;
    let created = delivery(&t, created["id"].as_i64().unwrap()).await;
    assert_eq!((&created["status"], &created["error"]), (&json!("sent"), &json!(null)));
    assert_eq!(r.stored_files().len(), 2);
}

async fn a_run_that_died_is_repeated_with_one_file(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let created = t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.data(202);
    // The worker dies after it has claimed the job.
    let job = r.newest_id("jobs WHERE kind = 'export_report'").await;
    let claimed = r.store.claim(&[job], "dead").await;
    assert_eq!(claimed.len(), 1);
    r.advance(crate::support::jobs::LEASE_EXPIRY_SECONDS);
    r.run_jobs().await;
    assert_eq!(delivery(&t, created["id"].as_i64().unwrap()).await["status"], "sent");
    assert_eq!(r.stored_files().len(), 1);
}

/// Deletes the files that are marked for deletion.
async fn sweep(r: &TestInstallation) {
    r.advance(3_700);
    tasks::sweep::run(&r.scheduler).await.unwrap();
}

async fn deleting_a_report_deletes_its_files(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let schedule = json!({ "frequency": "daily", "recipients": ["ann@example.com"] });
    t.post(&format!("{report}/schedules"), schedule).await.expect(201);
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    t.delete(&report).await.expect(204);
    download(&t, &created).await.expect_error(404, "not_found");
    assert_eq!(r.count_rows("report_schedules").await, 0);
    assert_eq!(r.counted_bytes().await, 0);
    sweep(&r).await;
    assert!(r.stored_files().is_empty());
    assert_eq!(r.count_rows("files").await, 0);
}

async fn a_report_deleted_during_its_export_leaves_nothing(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.expect(202);
    t.delete(&report).await.expect(204);
    r.run_jobs().await;
    sweep(&r).await;
    assert!(r.stored_files().is_empty());
    let job = r.newest_id("jobs WHERE kind = 'export_report'").await;
    assert_eq!(r.store.show(job).await.state, JobState::Cancelled);
}

async fn files_are_deleted_after_the_plan_s_retention(r: TestInstallation) {
    let t = r.app.tenant("pro").await;
    let report = create(&t, "R", all_widgets()).await;
    let created = export(&r, &t, &report, json!({ "format": "csv" })).await;
    let days = r.api.plans.get("pro").unwrap().analytics_days.unwrap();
    r.advance(i64::try_from(days).unwrap() * 86_400 - 1);
    tasks::reports::run(&r.scheduler).await.unwrap();
    download(&t, &created).await.assert_status(200);
    r.advance(1);
    tasks::reports::run(&r.scheduler).await.unwrap();
    download(&t, &created).await.expect_error(404, "not_found");
    let shown = delivery(&t, created["id"].as_i64().unwrap()).await;
    assert_eq!((&shown["status"], &shown["download_url"]), (&json!("sent"), &json!(null)));
    sweep(&r).await;
    assert!(r.stored_files().is_empty());
}

async fn an_operator_can_retry_a_failed_export(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    export(&r, &t, &report, json!({ "format": "csv" })).await;
    r.store.set_storage_unavailable(true);
    let created = t.post(&format!("{report}/export"), json!({ "format": "csv" })).await.data(202);
    for _ in 0..6 {
        r.run_jobs().await;
        r.advance(1_000);
    }
    let id = created["id"].as_i64().unwrap();
    assert_eq!(delivery(&t, id).await["status"], "failed");
    let job = r.newest_id("jobs WHERE kind = 'export_report'").await;
    assert_eq!(r.store.show(job).await.state, JobState::Dead);
    r.store.set_storage_unavailable(false);
    r.write(async |tx| {
        assert!(crier_jobs::on_retry(tx, JobKind::ExportReport, id).await?);
        operate::retry(tx, job).await
    })
    .await;
    r.run_jobs().await;
    assert_eq!(delivery(&t, id).await["status"], "sent");
}

async fn a_json_file_matches_the_openapi_schema(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let created = export(&r, &t, &report, json!({ "format": "json" })).await;
    let file = download(&t, &created).await.expect(200);
    let document = t.get("/openapi.json").await.expect(200);
    assert_conforms(&document, &document["components"]["schemas"]["ReportDocument"], &file, "report");
    assert_eq!((&file["version"], file["widgets"].as_array().unwrap().len()), (&json!(1), 8));
}

/// Invariant: the images that a brand imports, of which there may be thousands, do not delay its reports.
async fn an_export_does_not_wait_for_imports(r: TestInstallation) {
    let (t, report) = create_report(&r).await;
    let lane = Lane::Brand(t.brand).to_string();
    let mut imports = Vec::new();
    for subject in 1..=4 {
        imports.push(r.enqueue_job(JobKind::ImportMedia, subject, Some(&lane)).await);
    }
    let running = r.claim(&imports, "busy").await;
    assert_eq!(running.len(), 4, "the lane is full");
    r.app.store.notifier.take();
    assert_fields(&export(&r, &t, &report, json!({ "format": "csv" })).await, json!({ "status": "sent" }));
    for job in &running {
        assert!(r.settle(job, Outcome::Done).await);
    }
}
