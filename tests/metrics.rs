//! The metrics that each process exposes at `/metrics`: every documented metric with its labels, whose values are from
//! bounded sets.

use std::collections::{BTreeMap, BTreeSet};

use crier_domain::account::AccountStatus;
use crier_domain::job::JobKind;
use crier_domain::platform::Platform;
use crier_domain::report::ReportFormat;
use serde_json::json;

use crate::support::client::until;
use crate::support::images;
use crate::support::process::Installation;

/// The name and the labels of each metric, and the processes that expose it.
const DOCUMENTED_METRICS: &[(&str, &[&str], &[&str])] = &[
    ("crier_build_info", &["version"], &[API, WORKER, SCHEDULER]),
    ("crier_clock_jumps_total", &[], &[API, WORKER, SCHEDULER]),
    ("crier_dependency_up", &["dependency"], &[API, WORKER, SCHEDULER]),
    ("crier_jobs", &["kind", "state"], &[SCHEDULER]),
    ("crier_jobs_oldest_ready_seconds", &["kind"], &[SCHEDULER]),
    ("crier_jobs_paused", &["kind"], &[SCHEDULER]),
    ("crier_jobs_enqueued_total", &["kind"], &[API, WORKER, SCHEDULER]),
    ("crier_jobs_finished_total", &["kind", "outcome"], &[WORKER]),
    ("crier_jobs_rescued_total", &["reason"], &[WORKER, SCHEDULER]),
    ("crier_jobs_redispatched_total", &[], &[WORKER, SCHEDULER]),
    ("crier_job_lateness_seconds", &["kind"], &[WORKER]),
    ("crier_job_duration_seconds", &["kind"], &[WORKER]),
    ("crier_worker_slots", &["state"], &[WORKER]),
    ("crier_publish_total", &["outcome", "platform"], &[WORKER]),
    ("crier_first_comments_total", &["outcome", "platform"], &[WORKER]),
    ("crier_replies_total", &["outcome", "platform"], &[WORKER]),
    ("crier_analytics_age_seconds", &["platform"], &[SCHEDULER]),
    ("crier_inbox_sync_age_seconds", &["platform"], &[SCHEDULER]),
    ("crier_webhook_attempts_total", &["outcome"], &[WORKER]),
    ("crier_webhook_attempt_duration_seconds", &[], &[WORKER]),
    ("crier_webhook_end_to_end_seconds", &[], &[WORKER]),
    ("crier_mails_withheld_total", &["limit"], &[WORKER]),
    ("crier_reports_written_total", &["format", "outcome"], &[WORKER]),
    ("crier_report_write_seconds", &["format"], &[WORKER]),
    ("crier_feed_fetches_total", &["outcome"], &[WORKER]),
    ("crier_platform_requests_total", &["platform", "status_class"], &[WORKER]),
    ("crier_platform_rate_limited_total", &["platform"], &[WORKER]),
    ("crier_media_ingested_total", &["outcome", "type"], &[API, WORKER, SCHEDULER]),
    ("crier_media_received_bytes_total", &["source"], &[API, WORKER, SCHEDULER]),
    ("crier_media_covers_total", &["outcome"], &[API, WORKER, SCHEDULER]),
    ("crier_media_spool_bytes", &["type"], &[API, WORKER, SCHEDULER]),
    ("crier_media_spool_max_bytes", &["type"], &[API, WORKER, SCHEDULER]),
    ("crier_media_uploads_open", &[], &[SCHEDULER]),
    ("crier_media_uploads_reserved_bytes", &[], &[SCHEDULER]),
    ("crier_storage_calls_total", &["call", "outcome"], &[API, WORKER, SCHEDULER]),
    ("crier_media_files", &["state"], &[SCHEDULER]),
    ("crier_disk_free_bytes", &["directory"], &[API, WORKER, SCHEDULER]),
    ("crier_disk_size_bytes", &["directory"], &[API, WORKER, SCHEDULER]),
    ("crier_disk_low", &[], &[API, WORKER, SCHEDULER]),
    ("crier_media_bytes", &[], &[SCHEDULER]),
    ("crier_mcp_calls_total", &["outcome"], &[API]),
    ("crier_ai_requests_total", &["operation", "outcome"], &[API]),
    ("crier_ai_request_duration_seconds", &["operation"], &[API]),
    ("crier_webhook_endpoints", &["state"], &[SCHEDULER]),
    ("crier_accounts", &["platform", "status"], &[SCHEDULER]),
    ("crier_account_token_expires_seconds", &["platform"], &[SCHEDULER]),
    ("crier_scheduler_last_tick_timestamp_seconds", &["task"], &[SCHEDULER]),
    ("crier_traces_sent_total", &[], &[API, WORKER, SCHEDULER]),
    ("crier_traces_dropped_total", &["reason"], &[API, WORKER, SCHEDULER]),
    ("crier_bio_clicks_total", &[], &[API]),
    ("crier_bio_views_total", &[], &[API]),
    ("crier_http_connections", &[], &[API]),
    ("crier_http_connections_evicted_total", &[], &[API]),
    ("crier_http_response_bytes", &[], &[API]),
    ("crier_http_responses_cut_total", &["reason"], &[API]),
    ("crier_http_untrusted_proxy_requests_total", &[], &[API]),
    ("crier_http_requests_total", &["method", "route", "status"], &[API]),
    ("crier_http_request_duration_seconds", &["method", "route"], &[API]),
];
const API: &str = "crier-api";
const WORKER: &str = "crier-worker";
const SCHEDULER: &str = "crier-scheduler";

/// The series of each metric, by name. A series is a set of labels.
type Series = BTreeMap<String, BTreeSet<BTreeMap<String, String>>>;

fn read(text: &str) -> Series {
    let histograms: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" histogram")).collect();
    let mut series = Series::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let (series_of, _) = line.rsplit_once(' ').expect("a value");
        let (name, labels) = series_of.split_once('{').unwrap_or((series_of, "}"));
        let part_of = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let name = part_of.filter(|name| histograms.contains(name)).unwrap_or(name);
        let labels = labels.trim_end_matches('}').split_terminator("\",").map(|label| {
            let (label, value) = label.split_once("=\"").expect("a label");
            (label.to_owned(), value.trim_end_matches('"').to_owned())
        });
        series.entry(name.to_owned()).or_default().insert(labels.filter(|(label, _)| label != "le").collect());
    }
    series
}

/// Returns whether the value of a label is one of a bounded set.
fn is_bounded(label: &str, value: &str) -> bool {
    match label {
        "kind" => value.parse::<JobKind>().is_ok(),
        "format" => value.parse::<ReportFormat>().is_ok(),
        "platform" => value.parse::<Platform>().is_ok(),
        "status" => value.parse::<AccountStatus>().is_ok() || (value.len() == 3 && value.parse::<u16>().is_ok()),
        "dependency" => ["database", "redis"].contains(&value),
        "directory" => ["data", "temporary", "database", "files"].contains(&value),
        "version" => value == env!("CARGO_PKG_VERSION"),
        // The pattern of the route, not the requested path.
        "route" => {
            value == "(none)" || value.starts_with('/') && !value.contains(|c: char| c.is_ascii_digit() && c != '1')
        }
        "status_class" => ["2xx", "3xx", "4xx", "5xx", "error"].contains(&value),
        "outcome" | "limit" | "state" | "reason" | "task" | "method" | "operation" | "call" | "type" | "source" => {
            value.len() < 20 && value.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        }
        _ => false,
    }
}

async fn assert_documented_metrics(crier: Installation) {
    let (brand, account) = crier.sandbox("metrics").await;
    let path = format!("/brands/{brand}/posts");
    let image = images::png(9, 9);
    crier.upload(brand, &image).await.expect("an image");
    let post = json!({ "content": "Hello", "schedule_type": "now", "accounts": [account] });
    let post = crier.write(&path, post).await["id"].as_i64().expect("an id");
    until("an end", || async {
        let response = crier.read(&format!("{path}/{post}/status")).await?;
        (response["data"]["status"] == "published").then_some(())
    })
    .await;
    // Views are written every few seconds.
    let pages = format!("/brands/{brand}/link-in-bio");
    let url = crier.write(&pages, json!({ "title": "Metrics" })).await["url"].as_str().expect("a URL").to_owned();
    let visit = crier.http.request(reqwest::Method::GET, &url);
    assert_eq!(crier.http.send(visit).await.expect("a response").status, 200);
    until("the view is written", || async {
        let response = crier.read(&pages).await?;
        (response["data"][0]["views"] == 1).then_some(())
    })
    .await;
    crier.call("GET", "/no/such/41975/page", None, "-").await;
    for process in crier.names() {
        let one_process = process == "crier";
        let documented: BTreeMap<&str, &[&str]> = DOCUMENTED_METRICS
            .iter()
            .filter(|(_, _, by)| one_process || by.contains(&process))
            .map(|(name, labels, _)| (*name, *labels))
            .collect();
        let all_free = format!("crier_worker_slots{{state=\"free\"}} {}\n", 64 * JobKind::ALL.len());
        let text = until("the first tick of every task, and the end of the last job", || async {
            let text = crier.metrics(process).await?;
            let ticks = text.matches("crier_scheduler_last_tick_timestamp_seconds{").count();
            let ticked = !documented.contains_key("crier_scheduler_last_tick_timestamp_seconds")
                || ticks == crier_scheduler::TASKS.len();
            let idle = !documented.contains_key("crier_worker_slots") || text.contains(&all_free);
            (ticked && idle).then_some(text)
        })
        .await;
        let series = read(&text);
        let names: Vec<&str> = series.keys().map(String::as_str).collect();
        assert_eq!(names, documented.keys().copied().collect::<Vec<_>>(), "{process}");
        for (name, all) in &series {
            assert!(text.contains(&format!("# HELP {name} ")), "{process}: {name} has a help text");
            for labels in all {
                let keys: Vec<&str> = labels.keys().map(String::as_str).collect();
                assert_eq!(keys, documented[name.as_str()], "{process}: {name}");
                for (label, value) in labels {
                    assert!(is_bounded(label, value), "{process}: {name}: {label}=\"{value}\"");
                }
            }
        }
        if documented.contains_key("crier_media_files") {
            until("the image is counted", || async {
                let stored = crier.metric(process, "crier_media_files{state=\"stored\"}").await?;
                let bytes = crier.metric(process, "crier_media_bytes").await?;
                (stored == 1.0 && bytes > 0.0).then_some(())
            })
            .await;
        }
        if documented.contains_key("crier_bio_views_total") {
            let received = format!("\ncrier_media_received_bytes_total{{source=\"form\"}} {}\n", image.len());
            assert!(text.contains(&received), "{received}{text}");
            assert!(text.contains("\ncrier_bio_views_total 1\n"), "{text}");
        }
        if documented.contains_key("crier_worker_slots") {
            assert!(text.contains("crier_publish_total{platform=\"sandbox\",outcome=\"published\"} 1"), "{text}");
        }
    }
}

#[tokio::test]
async fn embedded() {
    assert_documented_metrics(Installation::embedded().await).await;
}

#[tokio::test]
async fn split() {
    assert_documented_metrics(Installation::split().await).await;
}
