//! `kill -9` of a worker that exports reports, a full disk, and an unavailable mail server. Invariant: every delivery
//! is sent once, with one file. The email to each recipient has one Message-ID, however often it is sent. The storage
//! contains no file without a row, and no partial file is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::TimeDelta;
use crier_base::clock::Clock;
use serde_json::{Value, json};

use super::import::assert_files_have_rows;
use crate::support::client::{id, until};
use crate::support::mail_server::{MailServer, SmtpReply, SmtpStep};
use crate::support::process::{Installation, on_both_forms};

on_both_forms!(split => every_delivery_is_sent_once);

const FORMATS: [&str; 5] = ["pdf", "csv", "json", "pptx", "xlsx"];
const REPORTS: usize = 3;
const RECIPIENTS: [&str; 3] = ["ann@example.com", "bob@example.com", "cem@example.com"];
/// The maximum size of a file while the disk is full, in bytes. A PDF is larger.
const MAX_FILE_SIZE: u32 = 2_000;

/// Creates a report with every widget; returns its path.
async fn create_report(crier: &Installation, brand: i64) -> String {
    let widgets =
        ["summary", "posts_over_time", "followers_over_time", "posts_table"].map(|name| json!({ "type": name }));
    let body = json!({ "name": "Monthly report", "widgets": widgets });
    let created = crier.write(&format!("/brands/{brand}/reports"), body).await;
    format!("/brands/{brand}/reports/{}", id(&created))
}

/// Creates a schedule of the report that is due immediately, and then half a day later: never during the test.
async fn create_due_schedule(crier: &Installation, report: &str, format: &str) {
    let time = (Clock::system().now() + TimeDelta::hours(12)).format("%H:%M").to_string();
    let body = json!({ "frequency": "daily", "time": time, "recipients": RECIPIENTS, "format": format });
    let created = crier.write(&format!("{report}/schedules"), body).await;
    let now = Clock::system().now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false);
    crier.execute(&format!("UPDATE report_schedules SET next_run_at = '{now}' WHERE id = {}", id(&created))).await;
}

/// Waits until a report has `count` deliveries and all of them have ended; returns them.
async fn wait_for_deliveries(crier: &Installation, report: &str, count: usize) -> Vec<Value> {
    until("the deliveries to end", || async {
        let listed = crier.read(&format!("{report}/deliveries?per_page=100")).await?["data"].clone();
        let listed = listed.as_array()?.clone();
        let has_ended = |delivery: &Value| {
            let mails = delivery["mail"].as_array().is_some_and(|mails| mails.iter().all(|m| m["status"] != "pending"));
            (delivery["status"] == "sent" || delivery["status"] == "failed") && mails
        };
        (listed.len() == count && listed.iter().all(has_ended)).then_some(listed)
    })
    .await
}

fn header<'a>(mail: &'a str, name: &str) -> &'a str {
    mail.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).expect("a header")
}

async fn every_delivery_is_sent_once(split: bool) {
    let server = MailServer::start().await;
    let mut crier = Installation::start_as(split, &[("CRIER_SMTP_URL", &server.url("smtp://{}"))]).await;
    crier.listen_for("http://127.0.0.1:1/", &["report.sent", "report.failed"]).await;
    let brand = crier.brand().await;
    let mut reports = Vec::new();
    for _ in 0..REPORTS {
        reports.push(create_report(&crier, brand).await);
    }
    // This waits in real time: the kills hit whatever step each export has reached.
    let worker = crier.of("worker");
    for (round, milliseconds) in [(0, 5), (1, 60), (2, 400)] {
        for report in &reports {
            for format in FORMATS {
                crier.write(&format!("{report}/export"), json!({ "format": format })).await;
            }
        }
        create_due_schedule(&crier, &reports[round], FORMATS[round]).await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        crier.kill(&worker);
        crier.start_all().await;
    }
    let mut files = BTreeSet::new();
    for report in &reports {
        for delivery in wait_for_deliveries(&crier, report, 3 * FORMATS.len() + 1).await {
            assert_eq!((&delivery["status"], &delivery["error"]), (&json!("sent"), &Value::Null), "{delivery}");
            assert!(delivery["mail"].as_array().unwrap().iter().all(|mail| mail["status"] == "sent"), "{delivery}");
            files.insert(id(&delivery));
        }
    }
    let all = i64::try_from(files.len()).unwrap();
    assert_eq!(crier.number("SELECT count(DISTINCT file_id) FROM report_deliveries").await, all);
    let reported = "SELECT count(DISTINCT CAST(payload AS text)) FROM events WHERE name = 'report.sent'";
    assert_eq!((crier.number(reported).await, crier.count_rows("events").await), (all, all));
    let stored = crier.sum("size_bytes", "files WHERE state <> 'doomed'").await;
    assert_eq!(crier.sum("bytes", "storage_usage").await, stored);
    assert_files_have_rows(&crier).await;
    // An email may arrive twice, but then it is the same one.
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for mail in server.mails() {
        let of_recipient = ids.entry(header(&mail, "To").to_owned()).or_default();
        of_recipient.insert(header(&mail, "Message-ID").to_owned());
    }
    assert_eq!(ids.keys().map(String::as_str).collect::<Vec<_>>(), RECIPIENTS);
    assert!(ids.values().all(|of_recipient| of_recipient.len() == REPORTS), "{ids:?}");
    crier.assert_all_run();
}

#[tokio::test]
async fn a_full_disk_delays_an_export() {
    let crier = Installation::split().await;
    let brand = crier.brand().await;
    let report = create_report(&crier, brand).await;
    crier.limit_files("crier-worker", Some(MAX_FILE_SIZE));
    let created = crier.write(&format!("{report}/export"), json!({ "format": "pdf" })).await;
    let path = format!("/brands/{brand}/reports/deliveries/{}", id(&created));
    let retried = until("a try", || async {
        let delivery = crier.read(&path).await?["data"].clone();
        (delivery["status"] == "pending" && !delivery["error"].is_null()).then_some(delivery)
    })
    .await;
    assert_eq!(retried["error"]["code"], "internal_error", "{retried}");
    assert_eq!(crier.sum("bytes", "storage_usage").await, 0);
    crier.limit_files("crier-worker", None);
    assert_eq!(wait_for_deliveries(&crier, &report, 1).await[0]["status"], "sent");
    assert_files_have_rows(&crier).await;
}

#[tokio::test]
async fn an_unavailable_mail_server_delays_only_the_emails() {
    let server = MailServer::start().await;
    for _ in 0..2 * RECIPIENTS.len() {
        server.then(SmtpStep::Greeting, SmtpReply::HangUp);
    }
    let crier = Installation::embedded_with(&[("CRIER_SMTP_URL", &server.url("smtp://{}"))]).await;
    let brand = crier.brand().await;
    let report = create_report(&crier, brand).await;
    create_due_schedule(&crier, &report, "csv").await;
    let shown = until("the file", || async {
        let listed = crier.read(&format!("{report}/deliveries")).await?["data"].clone();
        (listed[0]["status"] == "sent").then(|| listed[0].clone())
    })
    .await;
    assert!(shown["download_url"].is_string(), "{shown}");
    // As if an hour had passed, postponed emails become due.
    for attempt in [1, 2] {
        let retried = format!("jobs WHERE kind = 'send_mail' AND state = 'scheduled' AND attempt = {attempt}");
        until("the mails to be put off", || async { (crier.count_rows(&retried).await == 3).then_some(()) }).await;
        let now = Clock::system().now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false);
        crier.execute(&format!("UPDATE jobs SET run_at = '{now}' WHERE kind = 'send_mail'")).await;
    }
    let delivery = wait_for_deliveries(&crier, &report, 1).await[0].clone();
    assert!(delivery["mail"].as_array().unwrap().iter().all(|mail| mail["status"] == "sent"), "{delivery}");
    assert_eq!(server.mails().len(), RECIPIENTS.len());
}
