//! The names, kinds, buckets and help texts of all metrics.

pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}
pub(super) use MetricKind::{Counter, Gauge, Histogram};

/// From a local notification to a backlog of an hour.
const LATENESS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];
const JOB_DURATION: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const ATTEMPT: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 30.0];
/// From the event to the accepted delivery, including retries over days.
const END_TO_END: &[f64] = &[
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 36_000.0,
    172_800.0,
];
const HTTP: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

/// From a summary to 10,000 posts.
const REPORT: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The provider's timeout is 20 s.
const AI: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0];

pub(super) const METRICS: &[(&str, MetricKind, &str)] = &[
    ("crier_build_info", Gauge, "Always 1; the version of the program is a label."),
    (
        "crier_clock_jumps_total",
        Counter,
        "Number of times that the system clock jumped by more than a minute, ahead or back.",
    ),
    ("crier_jobs", Gauge, "Jobs in the record, by kind and state."),
    (
        "crier_jobs_oldest_ready_seconds",
        Gauge,
        "How long the oldest job that is ready has been waiting; 0 where none waits.",
    ),
    ("crier_jobs_paused", Gauge, "1 where an operator paused the kind."),
    ("crier_jobs_enqueued_total", Counter, "Jobs written to the record."),
    ("crier_jobs_finished_total", Counter, "Runs of jobs that ended, by how they ended."),
    ("crier_jobs_rescued_total", Counter, "Jobs taken back from a run that did not end, by reason."),
    (
        "crier_jobs_redispatched_total",
        Counter,
        "Ready jobs that no worker claimed: notified again, or set waiting for their lane.",
    ),
    ("crier_job_lateness_seconds", Histogram(LATENESS), "From the time a job was due to its start."),
    ("crier_job_duration_seconds", Histogram(JOB_DURATION), "How long a run of a job took."),
    ("crier_worker_slots", Gauge, "Places for running jobs in this worker."),
    ("crier_publish_total", Counter, "Attempts to publish a post on an account, by how they ended."),
    ("crier_replies_total", Counter, "Attempts to send a reply of the inbox, by how they ended."),
    (
        "crier_inbox_sync_age_seconds",
        Gauge,
        "How long ago the messages of an active account were last read completely, by platform: the longest; 0 if \
         there is none.",
    ),
    (
        "crier_analytics_age_seconds",
        Gauge,
        "By how much figures of an active account, or of its posts, are late, by platform: the longest; 0 if none are.",
    ),
    ("crier_webhook_attempts_total", Counter, "Attempts to deliver a webhook, by how they ended."),
    ("crier_webhook_attempt_duration_seconds", Histogram(ATTEMPT), "How long one attempt to deliver a webhook took."),
    ("crier_webhook_end_to_end_seconds", Histogram(END_TO_END), "From an event to its delivery being accepted."),
    ("crier_mails_withheld_total", Counter, "Number of emails that a daily limit withheld, by limit."),
    ("crier_reports_written_total", Counter, "Files of reports that were written, by format and outcome."),
    ("crier_report_write_seconds", Histogram(REPORT), "How long writing a report's file took, by format."),
    ("crier_feed_fetches_total", Counter, "Fetches of feeds, by what came of them."),
    ("crier_platform_requests_total", Counter, "Requests to a platform's API, by class of the answer's status."),
    ("crier_platform_rate_limited_total", Counter, "Answers by which a platform asked for a pause."),
    ("crier_media_taken_in_total", Counter, "Pictures that came by upload or import, by what became of them."),
    ("crier_storage_calls_total", Counter, "Calls to the storage of files, by kind and outcome."),
    ("crier_ai_requests_total", Counter, "Requests that asked the AI's provider, by operation and how they ended."),
    ("crier_ai_request_duration_seconds", Histogram(AI), "How long the AI's provider took, second tries included."),
    (
        "crier_media_files",
        Gauge,
        "Files in the storage or on their way to it, or from it, by state; thumbnails not counted.",
    ),
    ("crier_disk_free_bytes", Gauge, "Bytes that the process may still write to the disk of a directory."),
    ("crier_disk_size_bytes", Gauge, "The size of the disk of a directory, in bytes."),
    (
        "crier_disk_low",
        Gauge,
        "Whether less disk space is free than CRIER_DISK_RESERVE_MIB, so that uploads and new records are rejected: 0 or 1.",
    ),
    ("crier_media_bytes", Gauge, "Bytes of files as the plans count them: reserved and stored, without thumbnails."),
    ("crier_webhook_endpoints", Gauge, "Webhook endpoints, by state."),
    ("crier_accounts", Gauge, "Social accounts, by platform and status."),
    (
        "crier_account_token_expires_seconds",
        Gauge,
        "How long until the first token of an active account expires, by platform; +Inf if none does.",
    ),
    (
        "crier_scheduler_last_tick_timestamp_seconds",
        Gauge,
        "When a task of the scheduler last ran, as seconds since 1970.",
    ),
    ("crier_traces_sent_total", Counter, "Spans of traces that the collector took."),
    ("crier_traces_dropped_total", Counter, "Spans of traces that were not sent, by reason."),
    ("crier_bio_views_total", Counter, "Views of link-in-bio pages."),
    ("crier_bio_clicks_total", Counter, "Clicks on links of link-in-bio pages."),
    ("crier_http_connections", Gauge, "Connections of clients to the API."),
    (
        "crier_http_connections_evicted_total",
        Counter,
        "Idle connections that were closed for new ones, at the limit of connections.",
    ),
    ("crier_http_response_bytes", Gauge, "Number of bytes that large responses hold until they are sent."),
    ("crier_http_responses_cut_total", Counter, "Number of large responses that were rejected or cut, by reason."),
    (
        "crier_http_untrusted_proxy_requests_total",
        Counter,
        "Number of requests through a proxy that CRIER_TRUSTED_PROXIES does not include.",
    ),
    ("crier_http_requests_total", Counter, "Requests that the API answered."),
    ("crier_http_request_duration_seconds", Histogram(HTTP), "How long the API took to answer."),
];
