//! Creates all series whose labels are known in advance, with the value zero. A counter that only appears with its
//! first event has no rate for that event.

use std::time::Duration;

use chrono::TimeDelta;
use metrics::{counter, histogram};

use super::*;

/// Creates the series of a process.
pub(super) fn start_at_zero(role: ProcessRole, kinds: &[&'static str], platforms: &[&'static str]) {
    for kind in kinds {
        jobs_enqueued(kind, 0);
    }
    for kind in IngestedType::ALL {
        for outcome in IngestOutcome::ALL {
            counter!("crier_media_ingested_total", "type" => kind.as_str(), "outcome" => outcome.as_str()).increment(0);
        }
    }
    for source in ByteSource::ALL {
        media_received(*source, 0);
    }
    for outcome in CoverOutcome::ALL {
        counter!("crier_media_covers_total", "outcome" => outcome.as_str()).increment(0);
    }
    for call in StorageCall::ALL {
        for outcome in ["done", "error"] {
            counter!("crier_storage_calls_total", "call" => call.as_str(), "outcome" => outcome).increment(0);
        }
    }
    // A process that waits at its start for the database has not used it yet.
    dependency_up(Dependency::Database, false);
    clock_jumps(0);
    spans_sent(0);
    for reason in SpanDropReason::ALL {
        spans_dropped(*reason, 0);
    }
    if matches!(role, ProcessRole::Crier | ProcessRole::Api) {
        start_api();
    }
    if matches!(role, ProcessRole::Crier | ProcessRole::Worker) {
        start_worker(kinds, platforms);
    }
    if matches!(role, ProcessRole::Crier | ProcessRole::Scheduler) {
        start_scheduler(kinds, platforms);
    }
}

fn start_api() {
    counter!("crier_bio_views_total").increment(0);
    counter!("crier_bio_clicks_total").increment(0);
    http_connections(0);
    http_connections_evicted(0);
    http_response_bytes(0);
    for reason in ["slow", "budget"] {
        http_responses_cut(reason, 0);
    }
    counter!("crier_http_untrusted_proxy_requests_total").increment(0);
    for outcome in ["done", "failed", "asked"] {
        counter!("crier_mcp_calls_total", "outcome" => outcome).increment(0);
    }
    for operation in Operation::ALL {
        for outcome in AiOutcome::ALL {
            let (operation, outcome) = (operation.as_str(), outcome.as_str());
            counter!("crier_ai_requests_total", "operation" => operation, "outcome" => outcome).increment(0);
        }
        let _ = histogram!("crier_ai_request_duration_seconds", "operation" => operation.as_str());
    }
}

fn start_worker(kinds: &[&'static str], platforms: &[&'static str]) {
    for &kind in kinds {
        for outcome in JobOutcome::ALL {
            counter!("crier_jobs_finished_total", "kind" => kind, "outcome" => outcome.as_str()).increment(0);
        }
        let _ = histogram!("crier_job_lateness_seconds", "kind" => kind);
        let _ = histogram!("crier_job_duration_seconds", "kind" => kind);
    }
    if kinds.contains(&JobKind::ExportReport.as_str()) {
        for format in ReportFormat::ALL {
            for outcome in ["done", "error"] {
                let labels = [("format", format.as_str()), ("outcome", outcome)];
                counter!("crier_reports_written_total", &labels).increment(0);
            }
            let _ = histogram!("crier_report_write_seconds", "format" => format.as_str());
        }
    }
    for limit in MailLimit::ALL {
        counter!("crier_mails_withheld_total", "limit" => limit.as_str()).increment(0);
    }
    for reason in RescueReason::ALL {
        jobs_rescued(*reason, 0);
    }
    jobs_redispatched(0);
    for outcome in DeliveryOutcome::ALL {
        counter!("crier_webhook_attempts_total", "outcome" => outcome.as_str()).increment(0);
    }
    for outcome in FetchOutcome::ALL {
        counter!("crier_feed_fetches_total", "outcome" => outcome.as_str()).increment(0);
    }
    let _ = histogram!("crier_webhook_attempt_duration_seconds");
    let _ = histogram!("crier_webhook_end_to_end_seconds");
    for &platform in platforms {
        for outcome in AttemptOutcome::ALL {
            counter!("crier_publish_total", "platform" => platform, "outcome" => outcome.as_str()).increment(0);
            counter!("crier_first_comments_total", "platform" => platform, "outcome" => outcome.as_str()).increment(0);
        }
        for result in ReplyResult::ALL {
            counter!("crier_replies_total", "platform" => platform, "outcome" => result.as_str()).increment(0);
        }
        for class in StatusClass::ALL {
            counter!("crier_platform_requests_total", "platform" => platform, "status_class" => class.as_str())
                .increment(0);
        }
        counter!("crier_platform_rate_limited_total", "platform" => platform).increment(0);
    }
    worker_slots(0, 0);
}

fn start_scheduler(kinds: &[&'static str], platforms: &[&'static str]) {
    for &kind in kinds {
        for state in CountedState::ALL {
            jobs(kind, *state, 0);
        }
        jobs_oldest_ready(kind, Duration::ZERO);
        jobs_paused(kind, false);
    }
    for state in EndpointState::ALL {
        webhook_endpoints(*state, 0);
    }
    for &platform in platforms {
        for status in AccountStatus::ALL {
            accounts(platform, *status, 0);
        }
        account_token_expires(platform, None);
        inbox_sync_age(platform, TimeDelta::zero());
        analytics_age(platform, TimeDelta::zero());
    }
    for state in FileState::ALL {
        media_files(*state, 0);
    }
    media_bytes(0);
    media_uploads(0, 0);
    for reason in RescueReason::ALL {
        jobs_rescued(*reason, 0);
    }
    jobs_redispatched(0);
}
