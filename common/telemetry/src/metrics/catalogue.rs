//! The names, kinds, buckets and help texts of all metrics.

pub(super) enum MetricKind {
    Counter,
    Gauge,
    Histogram(&'static [f64]),
}
pub(super) use MetricKind::{Counter, Gauge, Histogram};

// The buckets of histograms, in seconds.

/// From a local notification to a backlog of an hour.
const LATENESS: &[f64] =
    &[0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0];
const JOB_DURATION: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
const ATTEMPT: &[f64] =
    &[0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 30.0];
/// From an immediate delivery to one that was retried for two days.
const END_TO_END: &[f64] = &[
    0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 36_000.0,
    172_800.0,
];
const HTTP: &[f64] = &[0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0];

/// From a report with only a summary to one with 10,000 posts.
const REPORT: &[f64] = &[0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The provider's timeout is 20 s.
const AI: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0];

pub(super) const METRICS: &[(&str, MetricKind, &str)] = &[
    ("crier_build_info", Gauge, "Always 1, with the program's version as a label."),
    (
        "crier_clock_jumps_total",
        Counter,
        "Number of times that the system clock jumped by more than a minute, forward or back, or began to differ from the \
         database's by as much.",
    ),
    ("crier_dependency_up", Gauge, "Whether the process can use the database and, if it is configured, Redis: 0 or 1."),
    ("crier_jobs", Gauge, "Number of jobs in the database, by kind and state."),
    (
        "crier_jobs_oldest_ready_seconds",
        Gauge,
        "Time that the oldest ready job has been waiting, in seconds, by kind. 0 if there is none.",
    ),
    ("crier_jobs_paused", Gauge, "Whether an operator paused the kind: 0 or 1."),
    ("crier_jobs_enqueued_total", Counter, "Number of jobs written to the database."),
    ("crier_jobs_finished_total", Counter, "Number of finished job runs, by outcome."),
    ("crier_jobs_rescued_total", Counter, "Number of jobs recovered from runs that did not finish, by reason."),
    (
        "crier_jobs_redispatched_total",
        Counter,
        "Number of notifications repeated for ready jobs that no worker had claimed.",
    ),
    ("crier_job_lateness_seconds", Histogram(LATENESS), "Time from when a job was due until it started, in seconds."),
    ("crier_job_duration_seconds", Histogram(JOB_DURATION), "Duration of a job run, in seconds."),
    ("crier_worker_slots", Gauge, "Number of job slots in this worker."),
    ("crier_publish_total", Counter, "Number of attempts to publish a post on an account, by outcome."),
    ("crier_first_comments_total", Counter, "Number of attempts to publish a first comment, by outcome."),
    ("crier_replies_total", Counter, "Number of attempts to send an inbox reply, by outcome."),
    (
        "crier_inbox_sync_age_seconds",
        Gauge,
        "Longest time since the last complete inbox sync of an active account, in seconds, by platform. 0 if there is \
         none.",
    ),
    (
        "crier_analytics_age_seconds",
        Gauge,
        "Longest delay of metrics of an active account or its posts, in seconds, by platform. 0 if none are late.",
    ),
    ("crier_webhook_attempts_total", Counter, "Number of attempts to deliver a webhook, by outcome."),
    (
        "crier_webhook_attempt_duration_seconds",
        Histogram(ATTEMPT),
        "Duration of an attempt to deliver a webhook, in seconds.",
    ),
    (
        "crier_webhook_end_to_end_seconds",
        Histogram(END_TO_END),
        "Time from an event until its delivery was accepted, in seconds.",
    ),
    ("crier_mails_withheld_total", Counter, "Number of emails that a daily limit withheld, by limit."),
    ("crier_reports_written_total", Counter, "Number of report files written, by format and outcome."),
    ("crier_report_write_seconds", Histogram(REPORT), "Time to write a report file, in seconds, by format."),
    ("crier_feed_fetches_total", Counter, "Number of feed fetches, by outcome."),
    (
        "crier_platform_requests_total",
        Counter,
        "Number of requests to a platform's API, by class of the response status.",
    ),
    ("crier_platform_rate_limited_total", Counter, "Number of rate-limit responses from a platform."),
    ("crier_media_ingested_total", Counter, "Number of images and videos uploaded or imported, by type and outcome."),
    (
        "crier_media_received_bytes_total",
        Counter,
        "Number of bytes received for the media library, by source, including those of rejected files.",
    ),
    ("crier_media_covers_total", Counter, "Number of attempts to create the cover image of a video, by outcome."),
    (
        "crier_media_spool_bytes",
        Gauge,
        "Number of bytes reserved for temporary files of images or videos that are not stored yet.",
    ),
    ("crier_media_spool_max_bytes", Gauge, "Maximum number of bytes for temporary files of images or videos."),
    ("crier_storage_calls_total", Counter, "Number of calls to the file storage, by kind and outcome."),
    ("crier_ai_requests_total", Counter, "Number of requests to the AI provider, by operation and outcome."),
    (
        "crier_ai_request_duration_seconds",
        Histogram(AI),
        "Time that the AI provider took, in seconds, including retries.",
    ),
    (
        "crier_media_files",
        Gauge,
        "Number of files that are stored, being stored or being deleted, by state. Thumbnails are not counted.",
    ),
    ("crier_disk_free_bytes", Gauge, "Number of bytes that the process can still write to the disk of a directory."),
    ("crier_disk_size_bytes", Gauge, "Size of the disk of a directory, in bytes."),
    (
        "crier_disk_low",
        Gauge,
        "Whether less disk space is free than CRIER_DISK_RESERVE_MIB, so that uploads and new records are rejected: 0 or 1.",
    ),
    (
        "crier_media_bytes",
        Gauge,
        "Number of bytes of reserved and stored files, without thumbnails, as plans count them.",
    ),
    ("crier_media_uploads_open", Gauge, "Number of resumable uploads that are not finished."),
    (
        "crier_media_uploads_reserved_bytes",
        Gauge,
        "Number of bytes reserved for resumable uploads that are not finished, as plans count them.",
    ),
    ("crier_webhook_endpoints", Gauge, "Number of webhook endpoints, by state."),
    ("crier_accounts", Gauge, "Number of social accounts, by platform and status."),
    (
        "crier_account_token_expires_seconds",
        Gauge,
        "Shortest time until a token of an active account expires, in seconds, by platform. +Inf if none expires.",
    ),
    (
        "crier_scheduler_last_tick_timestamp_seconds",
        Gauge,
        "Time of the last run of a scheduler task, as a Unix timestamp in seconds.",
    ),
    ("crier_traces_sent_total", Counter, "Number of trace spans that the collector accepted."),
    ("crier_traces_dropped_total", Counter, "Number of trace spans that were not sent, by reason."),
    ("crier_bio_views_total", Counter, "Number of views of link-in-bio pages."),
    ("crier_bio_clicks_total", Counter, "Number of clicks on links of link-in-bio pages."),
    ("crier_http_connections", Gauge, "Number of client connections to the API."),
    (
        "crier_http_connections_evicted_total",
        Counter,
        "Number of idle connections that were closed for new ones at the connection limit.",
    ),
    ("crier_http_response_bytes", Gauge, "Number of bytes that large responses hold until they are sent."),
    ("crier_http_responses_cut_total", Counter, "Number of large responses that were rejected or cut, by reason."),
    (
        "crier_http_untrusted_proxy_requests_total",
        Counter,
        "Number of requests through a proxy that CRIER_TRUSTED_PROXIES does not include.",
    ),
    ("crier_mcp_calls_total", Counter, "Number of tool calls by agents."),
    ("crier_http_requests_total", Counter, "Number of requests that the API handled."),
    ("crier_http_request_duration_seconds", Histogram(HTTP), "Time that the API took to respond, in seconds."),
];
