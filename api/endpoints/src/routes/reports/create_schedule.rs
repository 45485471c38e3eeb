//! `POST /brands/{brand}/reports/{report}/schedules`

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_domain::access::Scope;
use crier_domain::analytics::zone;
use crier_domain::recurrence::{Frequency, parse_cron, parse_time};
use crier_domain::report::{MAX_RECIPIENTS, MAX_SCHEDULES, ReportFormat};
use crier_store::report_schedules::{self, NewSchedule};
use crier_store::{Tx, report_deliveries};

use super::{FEATURES, ReportSchedule, TAG, check_available, lock, not_empty};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

const DEFAULT_TIME: &str = "09:00";
/// The maximum length of a cron expression, in characters.
const MAX_CRON: usize = 120;

/// The report schedule to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewReportSchedule", check = check)]
pub struct CreateReportScheduleRequest {
    /// The days of the export: every day, every Monday, the 1st of each month, or as `cron` specifies.
    #[field(enum_value(), example = "monthly")]
    pub frequency: Frequency,
    /// A cron expression with five fields: minute, hour, day, month, weekday (0 and 7 are Sunday). Required if
    /// `frequency` is `cron`; otherwise, it must be omitted.
    #[field(text(0..=MAX_CRON), extension)]
    pub cron: Option<String>,
    /// The local time, as `HH:MM`. It must be omitted if `frequency` is `cron`.
    #[field(local_time(), default = DEFAULT_TIME, example = "08:30", extension)]
    pub time: Option<String>,
    #[field(
        not_empty(email_addresses(MAX_RECIPIENTS), "Add at least one recipient."),
        example = ["ann@example.com"]
    )]
    pub recipients: Vec<String>,
    #[field(enum_value(), default = ReportFormat::Pdf, example = "pdf")]
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark, by which Excel detects its encoding.
    #[field(flag(), default = false, extension)]
    pub bom: Option<bool>,
}

pub fn endpoint() -> Endpoint<CreateReportScheduleRequest, One<ReportSchedule>> {
    Endpoint::post("/brands/{brand}/reports/{report}/schedules", "createReportSchedule", Scope::ReportsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a report schedule")
        .description(
            "Crier exports the report and emails it to the recipients at regular times, in the brand's time zone. A time \
             skipped by daylight saving time moves to the next existing time. A repeated time is used once. A daily report \
             covers the previous day, a weekly report the last Monday to Sunday, a monthly report the last calendar month, \
             and other reports the last 30 days. After an outage, Crier creates a single export for all missed times. A \
             report can have at most 20 schedules. A recipient whose mail server rejected earlier emails receives emails \
             again. A recipient who unsubscribed does not.",
        )
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
}

impl CreateReportScheduleRequest {
    /// Returns the local time. `None` if the cron expression contains it.
    fn time(&self) -> Option<&str> {
        (self.frequency != Frequency::Cron).then(|| self.time.as_deref().unwrap_or(DEFAULT_TIME))
    }

    /// Returns the first time of the schedule. Fails with a problem of `cron`, because the expressions of other
    /// frequencies have none.
    fn next_run(&self, timezone: &str, now: DateTime<Utc>) -> std::result::Result<DateTime<Utc>, String> {
        let at = self.time().and_then(parse_time).unwrap_or_default();
        let expression = self.frequency.expression(at, self.cron.as_deref().unwrap_or_default());
        let next = parse_cron(&expression)?.next_after(&now.with_timezone(&zone(Some(timezone))));
        next.map(|at| at.to_utc()).ok_or_else(|| "Must match at least one date that exists.".to_owned())
    }
}

fn check(request: &CreateReportScheduleRequest, fields: &Fields<'_>) {
    check_available(fields, request.format);
    if request.frequency == Frequency::Cron {
        fields.required("cron", request.cron.as_ref().map_or(PatchField::Omitted, PatchField::Value));
        if request.time.is_some() {
            fields.problem("time", "Must be omitted if `frequency` is `cron`: the expression contains the time.");
        }
    } else if request.cron.is_some() {
        fields.problem("cron", "Must be omitted unless `frequency` is `cron`.");
    }
    if !fields.problems.has("cron")
        && let Err(message) = request.next_run(fields.context().zone, fields.context().now)
    {
        fields.problem("cron", message);
    }
}

async fn create(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<CreateReportScheduleRequest>>,
) -> Result<Reply<ReportSchedule>> {
    let report = lock(cx, tx).await?;
    let request = parsed.valid()?;
    let next_run_at = request.next_run(cx.zone(), cx.now).map_err(|message| ApiError::field("cron", message))?;
    let count = report_schedules::of_reports(tx, &[report.id]).await?.len();
    ApiError::check_cap("A report", MAX_SCHEDULES, "schedules", i64::try_from(count).unwrap_or(i64::MAX), 1)?;
    let new = NewSchedule {
        frequency: request.frequency,
        cron: request.cron.as_deref(),
        time: request.time(),
        format: request.format,
        has_bom: request.bom.unwrap_or(false),
        recipients: &request.recipients,
        next_run_at,
    };
    let created = report_schedules::create(tx, report.id, &new).await?;
    report_deliveries::resume_rejected(tx, cx.caller.workspace_id, &request.recipients).await?;
    let path = format!("/brands/{}/reports/{}", report.brand_id, report.id);
    Ok(Reply::at(&path, ReportSchedule::new(created, cx.zone())))
}
