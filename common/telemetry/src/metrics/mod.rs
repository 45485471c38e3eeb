//! All metrics: names, help texts, buckets, and a typed function for each that records it. Labels are enums or words of
//! this program, never ids or URLs, so that the number of series is limited.
//!
//! **To add a metric:** add a line with its help text to [`catalogue::METRICS`], a function here and, if its labels are
//! known in advance, a line to `zero.rs`.

#![expect(clippy::disallowed_macros, reason = "the only place that names metrics")]

use std::sync::OnceLock;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_config::ProcessRole;
use crier_domain::account::AccountStatus;
use crier_domain::ai::Operation;
use crier_domain::job::JobKind;
use crier_domain::media::FileState;
use crier_domain::post::AttemptOutcome;
use crier_domain::report::ReportFormat;
use crier_domain::webhook::DeliveryOutcome;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

mod catalogue;
mod labels;
mod zero;

use catalogue::{Counter, Gauge, Histogram, METRICS};

pub use labels::{
    AiOutcome, ByteSource, CountedState, CoverOutcome, Dependency, EndpointState, FetchOutcome, IngestOutcome,
    IngestedType, JobOutcome, ReplyResult, RescueReason, SpanDropReason, StatusClass, StorageCall,
};

/// The content type of `/metrics`.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();

/// Initializes the metrics of this process, with its job kinds and platforms. It may be called several times.
pub fn init(role: ProcessRole, kinds: &[&'static str], platforms: &[&'static str]) {
    HANDLE.get_or_init(install);
    gauge!("crier_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    zero::start_at_zero(role, kinds, platforms);
}

fn install() -> PrometheusHandle {
    let mut builder = PrometheusBuilder::new();
    for (name, kind, _) in METRICS {
        if let Histogram(buckets) = kind {
            builder = builder
                .set_buckets_for_metric(Matcher::Full((*name).to_owned()), buckets)
                .expect("no list of buckets is empty");
        }
    }
    let recorder = builder.build_recorder();
    let handle = recorder.handle();
    // Fails only if a library has installed another recorder; then our metrics are lost.
    if metrics::set_global_recorder(recorder).is_err() {
        tracing::error!("another metrics recorder is installed; /metrics will be empty");
    }
    for (name, kind, help) in METRICS {
        match kind {
            Counter => describe_counter!(*name, *help),
            Gauge => describe_gauge!(*name, *help),
            Histogram(_) => describe_histogram!(*name, *help),
        }
    }
    handle
}

/// Returns the content of `/metrics`; empty before [`init`].
pub fn render() -> String {
    HANDLE.get().map(PrometheusHandle::render).unwrap_or_default()
}

/// Moves histogram samples into their buckets, as a scrape also does: otherwise they accumulate. `ops` calls it.
pub fn upkeep() {
    if let Some(handle) = HANDLE.get() {
        handle.run_upkeep();
    }
}

pub fn jobs(kind: &'static str, state: CountedState, count: u64) {
    gauge!("crier_jobs", "kind" => kind, "state" => state.as_str()).set(count as f64);
}

pub fn jobs_oldest_ready(kind: &'static str, age: Duration) {
    gauge!("crier_jobs_oldest_ready_seconds", "kind" => kind).set(age.as_secs_f64());
}

pub fn jobs_paused(kind: &'static str, paused: bool) {
    gauge!("crier_jobs_paused", "kind" => kind).set(f64::from(u8::from(paused)));
}

pub fn jobs_enqueued(kind: &'static str, count: u64) {
    counter!("crier_jobs_enqueued_total", "kind" => kind).increment(count);
}

/// Records the start of a job that was due `lateness` ago.
pub fn job_started(kind: &'static str, lateness: Duration) {
    histogram!("crier_job_lateness_seconds", "kind" => kind).record(lateness.as_secs_f64());
}

/// Records the end of a run of a job.
pub fn job_finished(kind: &'static str, outcome: JobOutcome, took: Duration) {
    counter!("crier_jobs_finished_total", "kind" => kind, "outcome" => outcome.as_str()).increment(1);
    histogram!("crier_job_duration_seconds", "kind" => kind).record(took.as_secs_f64());
}

pub fn jobs_rescued(reason: RescueReason, count: u64) {
    counter!("crier_jobs_rescued_total", "reason" => reason.as_str()).increment(count);
}

pub fn jobs_redispatched(count: u64) {
    counter!("crier_jobs_redispatched_total").increment(count);
}

/// Sets the number of connected clients.
pub fn http_connections(open: usize) {
    gauge!("crier_http_connections").set(open as f64);
}

/// Counts idle connections that were closed for new ones.
pub fn http_connections_evicted(count: usize) {
    counter!("crier_http_connections_evicted_total").increment(count as u64);
}

/// Sets the number of bytes that large responses hold until they are sent.
pub fn http_response_bytes(bytes: usize) {
    gauge!("crier_http_response_bytes").set(bytes as f64);
}

/// Counts large responses that were not sent completely: `slow` (the client read too slowly) or `budget` (too many were
/// in flight).
pub fn http_responses_cut(reason: &'static str, count: usize) {
    counter!("crier_http_responses_cut_total", "reason" => reason).increment(count as u64);
}

/// Counts a request that came through a proxy that is not trusted.
pub fn http_untrusted_proxy_request() {
    counter!("crier_http_untrusted_proxy_requests_total").increment(1);
}

/// Counts a call of a tool by an agent: `done`, `failed`, or `asked` (the user must confirm it).
pub fn mcp_call(outcome: &'static str) {
    counter!("crier_mcp_calls_total", "outcome" => outcome).increment(1);
}

/// Sets the number of jumps of the system clock.
pub fn clock_jumps(jumps: u64) {
    counter!("crier_clock_jumps_total").absolute(jumps);
}

/// Records whether the process can use a server.
pub fn dependency_up(dependency: Dependency, is_up: bool) {
    gauge!("crier_dependency_up", "dependency" => dependency.as_str()).set(f64::from(u8::from(is_up)));
}

/// Sets the slots of a worker.
pub fn worker_slots(busy: usize, free: usize) {
    gauge!("crier_worker_slots", "state" => "busy").set(busy as f64);
    gauge!("crier_worker_slots", "state" => "free").set(free as f64);
}

/// Counts a free slot as busy. Slots are counted by differences: if two threads set totals, the older total could be
/// set last.
pub fn slot_taken() {
    gauge!("crier_worker_slots", "state" => "busy").increment(1.0);
    gauge!("crier_worker_slots", "state" => "free").decrement(1.0);
}

/// Counts a busy slot as free.
pub fn slot_released() {
    gauge!("crier_worker_slots", "state" => "busy").decrement(1.0);
    gauge!("crier_worker_slots", "state" => "free").increment(1.0);
}

pub fn published(platform: &'static str, outcome: AttemptOutcome) {
    counter!("crier_publish_total", "platform" => platform, "outcome" => outcome.as_str()).increment(1);
}

/// Records one attempt to publish a first comment.
pub fn first_comment(platform: &'static str, outcome: AttemptOutcome) {
    counter!("crier_first_comments_total", "platform" => platform, "outcome" => outcome.as_str()).increment(1);
}

/// Records one attempt to send a reply.
pub fn reply(platform: &'static str, result: ReplyResult) {
    counter!("crier_replies_total", "platform" => platform, "outcome" => result.as_str()).increment(1);
}

/// Sets the longest time since the inbox of an account was read.
pub fn inbox_sync_age(platform: &'static str, age: TimeDelta) {
    gauge!("crier_inbox_sync_age_seconds", "platform" => platform).set(age.num_milliseconds().max(0) as f64 / 1e3);
}

/// Sets the longest delay of metrics.
pub fn analytics_age(platform: &'static str, age: TimeDelta) {
    gauge!("crier_analytics_age_seconds", "platform" => platform).set(age.num_milliseconds().max(0) as f64 / 1e3);
}

/// Records one attempt to deliver a webhook.
pub fn webhook_attempt(outcome: DeliveryOutcome, took: Duration) {
    counter!("crier_webhook_attempts_total", "outcome" => outcome.as_str()).increment(1);
    histogram!("crier_webhook_attempt_duration_seconds").record(took.as_secs_f64());
}

/// Records that an endpoint accepted a webhook whose event was `since_event` ago.
pub fn webhook_delivered(since_event: Duration) {
    histogram!("crier_webhook_end_to_end_seconds").record(since_event.as_secs_f64());
}

/// Counts one fetch of a feed.
pub fn feed_fetched(outcome: FetchOutcome) {
    counter!("crier_feed_fetches_total", "outcome" => outcome.as_str()).increment(1);
}

/// Counts one request to a platform; `None` if there was no response.
pub fn platform_request(platform: &'static str, status: Option<http::StatusCode>) {
    let class = StatusClass::of(status).as_str();
    counter!("crier_platform_requests_total", "platform" => platform, "status_class" => class).increment(1);
}

pub fn platform_rate_limited(platform: &'static str) {
    counter!("crier_platform_rate_limited_total", "platform" => platform).increment(1);
}

pub fn webhook_endpoints(state: EndpointState, count: u64) {
    gauge!("crier_webhook_endpoints", "state" => state.as_str()).set(count as f64);
}

pub fn accounts(platform: &'static str, status: AccountStatus, count: u64) {
    gauge!("crier_accounts", "platform" => platform, "status" => status.as_str()).set(count as f64);
}

/// Sets the time until the first token expires; `None` if none expires.
pub fn account_token_expires(platform: &'static str, left: Option<TimeDelta>) {
    let seconds = left.map_or(f64::INFINITY, |left| left.num_seconds() as f64);
    gauge!("crier_account_token_expires_seconds", "platform" => platform).set(seconds);
}

pub fn media_files(state: FileState, count: u64) {
    gauge!("crier_media_files", "state" => state.as_str()).set(count as f64);
}

pub fn media_bytes(bytes: u64) {
    gauge!("crier_media_bytes").set(bytes as f64);
}

/// Records the space of the disk of a directory, in bytes.
pub fn disk(directory: &'static str, free: u64, size: u64) {
    gauge!("crier_disk_free_bytes", "directory" => directory).set(free as f64);
    gauge!("crier_disk_size_bytes", "directory" => directory).set(size as f64);
}

/// Records whether less disk space is free than the reserve.
pub fn disk_low(is_low: bool) {
    gauge!("crier_disk_low").set(if is_low { 1.0 } else { 0.0 });
}

/// Records one request to the AI provider.
pub fn ai_request(operation: Operation, outcome: AiOutcome, took: Duration) {
    let (operation, outcome) = (operation.as_str(), outcome.as_str());
    counter!("crier_ai_requests_total", "operation" => operation, "outcome" => outcome).increment(1);
    histogram!("crier_ai_request_duration_seconds", "operation" => operation).record(took.as_secs_f64());
}

/// Counts an image that was uploaded, imported or generated.
pub fn media_ingested(kind: IngestedType, outcome: IngestOutcome) {
    counter!("crier_media_ingested_total", "type" => kind.as_str(), "outcome" => outcome.as_str()).increment(1);
}

/// Counts bytes that a client or a server sent for the media library.
pub fn media_received(source: ByteSource, bytes: usize) {
    counter!("crier_media_received_bytes_total", "source" => source.as_str()).increment(bytes as u64);
}

/// Counts an attempt to create the cover image of a video.
pub fn media_cover(outcome: CoverOutcome) {
    counter!("crier_media_covers_total", "outcome" => outcome.as_str()).increment(1);
}

/// Records how much of the space for temporary files is reserved, in bytes.
pub fn media_spool(kind: IngestedType, reserved: u64, max: u64) {
    gauge!("crier_media_spool_bytes", "type" => kind.as_str()).set(reserved as f64);
    gauge!("crier_media_spool_max_bytes", "type" => kind.as_str()).set(max as f64);
}

/// Records the number of unfinished resumable uploads, and the bytes that are reserved for them.
pub fn media_uploads(open: u64, reserved: u64) {
    gauge!("crier_media_uploads_open").set(open as f64);
    gauge!("crier_media_uploads_reserved_bytes").set(reserved as f64);
}

/// Records the writing of a report's file, successful or not.
pub fn report_written(format: ReportFormat, done: bool, took: Duration) {
    let (format, outcome) = (format.as_str(), if done { "done" } else { "error" });
    counter!("crier_reports_written_total", "format" => format, "outcome" => outcome).increment(1);
    histogram!("crier_report_write_seconds", "format" => format).record(took.as_secs_f64());
}

crier_base::text_enum! {
    /// The limit that withheld an email.
    pub enum MailLimit {
        Plan = "plan",
        Address = "address",
    }
}

/// Counts an email that was not sent because a daily limit was reached.
pub fn mail_withheld(limit: MailLimit) {
    counter!("crier_mails_withheld_total", "limit" => limit.as_str()).increment(1);
}

/// Counts a call to the file storage.
pub fn storage_call(call: StorageCall, done: bool) {
    let outcome = if done { "done" } else { "error" };
    counter!("crier_storage_calls_total", "call" => call.as_str(), "outcome" => outcome).increment(1);
}

pub fn scheduler_tick(task: &'static str, at: DateTime<Utc>) {
    let seconds = at.timestamp_micros() as f64 / 1e6;
    gauge!("crier_scheduler_last_tick_timestamp_seconds", "task" => task).set(seconds);
}

/// Counts trace spans that the collector accepted.
pub fn spans_sent(count: u64) {
    counter!("crier_traces_sent_total").increment(count);
}

pub fn spans_dropped(reason: SpanDropReason, count: u64) {
    counter!("crier_traces_dropped_total", "reason" => reason.as_str()).increment(count);
}

/// Counts a view of a link-in-bio page.
pub fn bio_viewed() {
    counter!("crier_bio_views_total").increment(1);
}

/// Counts a click on a link of a link-in-bio page.
pub fn bio_clicked() {
    counter!("crier_bio_clicks_total").increment(1);
}

/// Records a request to the API. `route` is the matched pattern (`/brands/{brand}/posts`), or a placeholder if none
/// matched, but never the requested path.
pub fn http_request(method: &http::Method, route: String, status: http::StatusCode, took: Duration) {
    let method = crate::known_method(method).unwrap_or("other");
    let status = status.as_str().to_owned();
    counter!("crier_http_requests_total", "method" => method, "route" => route.clone(), "status" => status)
        .increment(1);
    histogram!("crier_http_request_duration_seconds", "method" => method, "route" => route).record(took.as_secs_f64());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recorder is global, so only one test uses it.
    #[test]
    fn metrics_are_described_bounded_and_start_at_zero() {
        init(ProcessRole::Crier, &["noop", "publish_target"], &["sandbox"]);
        init(ProcessRole::Worker, &["noop"], &["sandbox"]);
        http_request(&http::Method::GET, "/brands/{brand}".to_owned(), http::StatusCode::OK, Duration::from_millis(3));
        let odd = http::Method::from_bytes(b"ODD").unwrap();
        http_request(&odd, "(none)".to_owned(), http::StatusCode::NOT_FOUND, Duration::ZERO);
        job_started("noop", Duration::from_millis(4));
        job_finished("noop", JobOutcome::Done, Duration::from_secs(2));
        webhook_delivered(Duration::from_secs(1));
        webhook_attempt(DeliveryOutcome::Blocked, Duration::ZERO);
        platform_request("sandbox", Some(http::StatusCode::TOO_MANY_REQUESTS));
        platform_request("sandbox", None);
        feed_fetched(FetchOutcome::Unchanged);
        report_written(ReportFormat::Pdf, true, Duration::ZERO);
        mail_withheld(MailLimit::Plan);
        disk("data", 1, 2);
        disk_low(false);
        media_spool(IngestedType::Video, 1, 2);
        scheduler_tick("dispatch", DateTime::from_timestamp(1_000, 0).unwrap());
        upkeep();
        let text = render();
        for (name, kind, help) in METRICS {
            let kind = match kind {
                Counter => "counter",
                Gauge => "gauge",
                Histogram(_) => "histogram",
            };
            assert!(text.contains(&format!("# HELP {name} {help}\n")), "{name} has no help:\n{text}");
            assert!(text.contains(&format!("# TYPE {name} {kind}\n")), "{name} is no {kind}:\n{text}");
        }
        for line in [
            "crier_build_info{version=\"0.1.0\"} 1",
            "crier_jobs_finished_total{kind=\"noop\",outcome=\"done\"} 1",
            "crier_jobs_finished_total{kind=\"publish_target\",outcome=\"lost_lease\"} 0",
            "crier_jobs_rescued_total{reason=\"poison\"} 0",
            "crier_job_lateness_seconds_bucket{kind=\"noop\",le=\"0.002\"} 0",
            "crier_job_lateness_seconds_bucket{kind=\"noop\",le=\"0.005\"} 1",
            "crier_job_lateness_seconds_bucket{kind=\"noop\",le=\"3600\"} 1",
            "crier_job_duration_seconds_count{kind=\"publish_target\"} 0",
            "crier_webhook_attempts_total{outcome=\"blocked\"} 1",
            "crier_feed_fetches_total{outcome=\"new\"} 0",
            "crier_feed_fetches_total{outcome=\"unchanged\"} 1",
            "crier_platform_requests_total{platform=\"sandbox\",status_class=\"4xx\"} 1",
            "crier_platform_requests_total{platform=\"sandbox\",status_class=\"error\"} 1",
            "crier_scheduler_last_tick_timestamp_seconds{task=\"dispatch\"} 1000",
            "crier_http_requests_total{method=\"GET\",route=\"/brands/{brand}\",status=\"200\"} 1",
            "crier_http_requests_total{method=\"other\",route=\"(none)\",status=\"404\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "no `{line}` in:\n{text}");
        }
    }
}
