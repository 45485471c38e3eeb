//! `crier doctor`: checks everything that an installation depends on by using it, and says how to fix each problem. It
//! changes nothing, except for a small file that it writes to the storage and deletes.
//!
//! **To add a check:** a function that returns [`Finding`]s, and its line in [`check_all`].

use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

use crier_config::{Config, ConfigSource};
use crier_telemetry::logs;
use serde::Serialize;

use crate::cli::Format;
use crate::output::{print_line, print_rows};

mod applications;
mod form;
mod installation;
mod machine;
mod platforms;
mod reports;
mod services;

/// The remedy for errors of the database, which contain their own.
const SEE_ERRORS: &str = "see docs/operations.md, \"Errors at the start\"";
/// Time limit of each check.
const CHECK_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Ok,
    Warning,
    Failure,
}

/// The result of a check.
#[derive(Debug, Serialize)]
struct Finding {
    /// The checked part.
    id: String,
    status: Status,
    /// The result in words, without secrets.
    detail: String,
    /// How to fix the problem; `None` if there is none.
    remedy: Option<String>,
}

impl Finding {
    fn ok(id: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { id: id.into(), status: Status::Ok, detail: detail.into(), remedy: None }
    }

    fn warning(id: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id: id.into(), status: Status::Warning, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn failure(id: impl Into<String>, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { id: id.into(), status: Status::Failure, detail: detail.into(), remedy: Some(remedy.into()) }
    }
}

/// Runs all checks. The exit status is 1 if one fails.
pub fn run(source: &ConfigSource, config: Config, format: Format) -> ExitCode {
    let (config, form) = form::of(source, config);
    logs::init(&config.log);
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return super::StartError::Io { what: "the runtime".into(), error }.exit(),
    };
    let findings = runtime.block_on(check_all(&config, form, format));
    runtime.shutdown_timeout(Duration::from_secs(1));
    if format.json {
        print_rows(&findings, true);
    }
    let count = |status| findings.iter().filter(|finding| finding.status == status).count();
    let (failures, warnings) = (count(Status::Failure), count(Status::Warning));
    if !format.json {
        print_line(format_args!("\n{} checks: {failures} failed, {warnings} with a warning", findings.len()));
    }
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn check_all(config: &Config, form: Finding, format: Format) -> Vec<Finding> {
    let mut report = Report { findings: Vec::new(), is_json: format.json };
    let is_configured = form.status == Status::Ok;
    report.push(form);
    let opened = report.add_with("database", installation::database(config)).await;
    let store = match &opened {
        Some(store) => report.add_with("schema", installation::schema(config, store)).await,
        None => None,
    };
    if let Some(store) = store {
        report.add("secret_key", installation::secret_key(config, store)).await;
        report.add("plans", installation::plans(config, store)).await;
    }
    if let Some(store) = &opened {
        report.add("clock", services::clock(config, store)).await;
    }
    // If the queue is missing, the finding of the form says so.
    if is_configured || config.redis_url.is_some() {
        report.add("queue", services::queue(config)).await;
    }
    report.add("storage", services::storage(config, store)).await;
    report.add("mail", services::mail(config)).await;
    report.add("traces", services::traces(config)).await;
    report.add("public_url", services::public_url(config)).await;
    report.add("proxy", services::proxy(config)).await;
    report.add("descriptors", async { machine::descriptors(config) }).await;
    report.add("disk", async { machine::disk(config) }).await;
    report.add("ffmpeg", machine::ffmpeg(config)).await;
    report.add("ai", async { applications::ai(config) }).await;
    if let Some(store) = store {
        report.add("fonts", reports::fonts(config, store)).await;
    }
    for finding in applications::incomplete(config) {
        report.push(finding);
    }
    for finding in platforms::all(config, store).await {
        report.push(finding);
    }
    if let Some(store) = opened {
        store.db().close().await;
    }
    report.findings
}

/// Collects the findings. Prints each immediately unless the output is JSON.
struct Report {
    findings: Vec<Finding>,
    is_json: bool,
}

impl Report {
    async fn add(&mut self, id: &str, check: impl Future<Output = Finding>) {
        self.add_with(id, async { (check.await, Some(())) }).await;
    }

    /// Adds the finding of a check that also returns a value for other checks.
    async fn add_with<T>(&mut self, id: &str, check: impl Future<Output = (Finding, Option<T>)>) -> Option<T> {
        let (finding, found) = tokio::time::timeout(CHECK_TIMEOUT, check).await.unwrap_or_else(|_| {
            let detail = format!("no response within {} s", CHECK_TIMEOUT.as_secs());
            (Finding::failure(id, detail, "check that the service is running and that no firewall blocks it"), None)
        });
        self.push(finding);
        found
    }

    fn push(&mut self, finding: Finding) {
        if !self.is_json {
            let status = match finding.status {
                Status::Ok => "ok",
                Status::Warning => "warning",
                Status::Failure => "FAILURE",
            };
            print_line(format_args!("{status:<8} {:<14} {}", finding.id, finding.detail));
            if let Some(remedy) = &finding.remedy {
                print_line(format_args!("{:23} → {remedy}", ""));
            }
        }
        self.findings.push(finding);
    }
}
