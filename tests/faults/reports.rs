//! `kill -9` of a worker that exports reports, a full disk, and a mail server that is away. Invariant: every delivery is
//! sent once, with one file; each recipient's mail has one Message-ID, however often it is sent; the storage contains
//! nothing without a row, and nothing partial is counted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crier_base::clock::Clock;
use serde_json::{Value, json};

use super::import::every_file_has_its_row;
use crate::support::client::{id, until};
use crate::support::mail_server::{MailServer, SmtpReply, SmtpStep};
use crate::support::process::Installation;

const FORMATS: [&str; 5] = ["pdf", "csv", "json", "pptx", "xlsx"];
const REPORTS: usize = 3;
const RECIPIENTS: [&str; 3] = ["ann@example.com", "bob@example.com", "cem@example.com"];
/// The maximum file size while the disk is full, in bytes; a PDF is larger.
const SPACE: u32 = 2_000;

/// A report with every widget; returns its path.
async fn report(crier: &Installation, brand: i64) -> String {
    let widgets =
        ["summary", "posts_over_time", "followers_over_time", "posts_table"].map(|name| json!({ "type": name }));
    let body = json!({ "name": "Monthly report", "widgets": widgets });
    let made = crier.write(&format!("/brands/{brand}/reports"), body).await;
    format!("/brands/{brand}/reports/{}", id(&made))
}

/// A schedule of the report that is due at once.
async fn due(crier: &Installation, report: &str, format: &str) {
    let body = json!({ "frequency": "daily", "recipients": RECIPIENTS, "format": format });
    let made = crier.write(&format!("{report}/schedules"), body).await;
    let now = Clock::system().now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false);
    crier.execute(&format!("UPDATE report_schedules SET next_run_at = '{now}' WHERE id = {}", id(&made))).await;
}

/// Waits until a report has so many deliveries and all of them have ended; returns them.
async fn ended(crier: &Installation, report: &str, count: usize) -> Vec<Value> {
    until("the deliveries to end", || async {
        let listed = crier.read(&format!("{report}/deliveries?per_page=100")).await?["data"].clone();
        let listed = listed.as_array()?.clone();
        let is_over = |delivery: &Value| {
            let mails = delivery["mail"].as_array().is_some_and(|mails| mails.iter().all(|m| m["status"] != "pending"));
            (delivery["status"] == "sent" || delivery["status"] == "failed") && mails
        };
        (listed.len() == count && listed.iter().all(is_over)).then_some(listed)
    })
    .await
}

fn header<'a>(mail: &'a str, name: &str) -> &'a str {
    mail.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).expect("a header")
}

async fn assert_every_delivery_is_sent_once(start: impl AsyncFnOnce(&str) -> Installation) {
    let server = MailServer::start().await;
    let mut crier = start(&server.url("smtp://{}")).await;
    crier.listen_for("http://127.0.0.1:1/", &["report.sent", "report.failed"]).await;
    let brand = crier.brand().await;
    let mut reports = Vec::new();
    for _ in 0..REPORTS {
        reports.push(report(&crier, brand).await);
    }
    // The moments of the kills are the fault itself: they hit whatever step each of these has reached.
    let worker = crier.of("worker");
    for (round, milliseconds) in [(0, 5), (1, 60), (2, 400)] {
        for report in &reports {
            for format in FORMATS {
                crier.write(&format!("{report}/export"), json!({ "format": format })).await;
            }
        }
        due(&crier, &reports[round], FORMATS[round]).await;
        tokio::time::sleep(Duration::from_millis(milliseconds)).await;
        crier.kill(&worker);
        crier.start_all().await;
    }
    let mut files = BTreeSet::new();
    for report in &reports {
        for delivery in ended(&crier, report, 3 * FORMATS.len() + 1).await {
            assert_eq!((&delivery["status"], &delivery["error"]), (&json!("sent"), &Value::Null), "{delivery}");
            assert!(delivery["mail"].as_array().unwrap().iter().all(|mail| mail["status"] == "sent"), "{delivery}");
            files.insert(id(&delivery));
        }
    }
    let all = i64::try_from(files.len()).unwrap();
    assert_eq!(crier.number("SELECT count(DISTINCT file_id) FROM report_deliveries").await, all);
    let reported = "SELECT count(DISTINCT CAST(payload AS text)) FROM events WHERE name = 'report.sent'";
    assert_eq!((crier.number(reported).await, crier.number("SELECT count(*) FROM events").await), (all, all));
    let counted = "SELECT CAST(sum(bytes) AS bigint) FROM storage_usage";
    let reserved = "SELECT CAST(sum(size_bytes) AS bigint) FROM files WHERE state <> 'doomed'";
    assert_eq!(crier.number(counted).await, crier.number(reserved).await);
    every_file_has_its_row(&crier).await;
    // A mail may arrive twice, but is then the same one.
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
async fn every_delivery_is_sent_once_embedded() {
    assert_every_delivery_is_sent_once(async |smtp| Installation::embedded_with(&[("CRIER_SMTP_URL", smtp)]).await)
        .await;
}

#[tokio::test]
async fn split() {
    assert_every_delivery_is_sent_once(async |smtp| Installation::split_with(&[("CRIER_SMTP_URL", smtp)]).await).await;
}

#[tokio::test]
async fn a_full_disk_delays_an_export() {
    let crier = Installation::split().await;
    let brand = crier.brand().await;
    let report = report(&crier, brand).await;
    crier.limit_files("crier-worker", Some(SPACE));
    let made = crier.write(&format!("{report}/export"), json!({ "format": "pdf" })).await;
    let path = format!("/brands/{brand}/reports/deliveries/{}", id(&made));
    let put_off = until("a try", || async {
        let delivery = crier.read(&path).await?["data"].clone();
        (delivery["status"] == "pending" && !delivery["error"].is_null()).then_some(delivery)
    })
    .await;
    assert_eq!(put_off["error"]["code"], "internal_error", "{put_off}");
    assert_eq!(crier.number("SELECT CAST(sum(bytes) AS bigint) FROM storage_usage").await, 0);
    crier.limit_files("crier-worker", None);
    assert_eq!(ended(&crier, &report, 1).await[0]["status"], "sent");
    every_file_has_its_row(&crier).await;
}

#[tokio::test]
async fn a_mail_server_that_is_away_delays_the_mails_alone() {
    let server = MailServer::start().await;
    for _ in 0..2 * RECIPIENTS.len() {
        server.then(SmtpStep::Greeting, SmtpReply::HangUp);
    }
    let crier = Installation::embedded_with(&[("CRIER_SMTP_URL", &server.url("smtp://{}"))]).await;
    let brand = crier.brand().await;
    let report = report(&crier, brand).await;
    due(&crier, &report, "csv").await;
    let shown = until("the file", || async {
        let listed = crier.read(&format!("{report}/deliveries")).await?["data"].clone();
        (listed[0]["status"] == "sent").then(|| listed[0].clone())
    })
    .await;
    assert!(shown["download_url"].is_string(), "{shown}");
    // An hour passes: what was put off is due.
    for put_off in [
        "SELECT count(*) FROM jobs WHERE kind = 'send_mail' AND state = 'scheduled' AND attempt = 1",
        "SELECT count(*) FROM jobs WHERE kind = 'send_mail' AND state = 'scheduled' AND attempt = 2",
    ] {
        until("the mails to be put off", || async { (crier.number(put_off).await == 3).then_some(()) }).await;
        let now = Clock::system().now().to_rfc3339_opts(chrono::SecondsFormat::Micros, false);
        crier.execute(&format!("UPDATE jobs SET run_at = '{now}' WHERE kind = 'send_mail'")).await;
    }
    let delivery = ended(&crier, &report, 1).await[0].clone();
    assert!(delivery["mail"].as_array().unwrap().iter().all(|mail| mail["status"] == "sent"), "{delivery}");
    assert_eq!(server.mails().len(), RECIPIENTS.len());
}
