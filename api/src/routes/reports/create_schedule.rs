//! `POST /brands/{brand}/reports/{report}/schedules`

use std::sync::Arc;

use chrono::{DateTime, Utc};
use crier_base::cron::{CronError, CronSchedule};
use crier_domain::access::Scope;
use crier_domain::analytics::zone;
use crier_domain::report::{MAX_RECIPIENTS, MAX_SCHEDULES, ReportFormat};
use crier_domain::report_schedule::{Frequency, parse_time};
use crier_store::report_schedules::{self, NewSchedule};
use crier_store::{Tx, report_deliveries};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, ReportSchedule, TAG, check_available, lock};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody, PatchField};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

const DEFAULT_TIME: &str = "09:00";
const CRON_FIELDS: usize = 5;
/// The maximum length of a cron expression and of a time, in characters.
const MAX_LENGTH: usize = 120;

/// The report schedule to create.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[schemars(rename = "NewReportSchedule")]
pub struct CreateReportScheduleRequest {
    /// The days of the export: every day, every Monday, the 1st of each month, or as `cron` specifies.
    #[schemars(with = "TextEnum<Frequency>")]
    pub frequency: Frequency,
    /// A cron expression with five fields: minute, hour, day, month, weekday (0 and 7 are Sunday). Required if
    /// `frequency` is `cron`; otherwise, it must be omitted.
    #[schemars(length(max = MAX_LENGTH), extend("x-extension" = true))]
    pub cron: Option<String>,
    /// The local time, as `HH:MM`. It must be omitted if `frequency` is `cron`.
    #[schemars(extend("default" = "09:00", "x-extension" = true))]
    pub time: Option<String>,
    #[schemars(length(min = 1, max = MAX_RECIPIENTS))]
    pub recipients: Vec<String>,
    #[schemars(with = "Option<TextEnum<ReportFormat>>", extend("default" = "pdf"))]
    pub format: Option<ReportFormat>,
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

// EXAMPLE CreateReportScheduleRequest: json!({ "frequency": "monthly", "time": "08:30", "recipients": ["ann@example.com"], "format": "pdf" })
}

/// A parsed body.
struct ParsedSchedule {
    frequency: Frequency,
    cron: Option<String>,
    time: Option<String>,
    recipients: Vec<String>,
    format: ReportFormat,
    next_run_at: DateTime<Utc>,
}

fn read(cx: &Context) -> ParsedBody<Option<ParsedSchedule>> {
    cx.parse(|f| read_fields(f, cx.zone(), cx.now))
}

fn read_fields(f: &Fields<'_>, timezone: &str, now: DateTime<Utc>) -> Option<ParsedSchedule> {
    let frequency: Option<Frequency> = f.required("frequency", f.enum_value("frequency"));
    let cron = f.text("cron", 1..=MAX_LENGTH).value();
    let time = f.text("time", 1..=MAX_LENGTH).value();
    let recipients = read_recipients(f);
    let format = f.enum_value("format").value().unwrap_or(ReportFormat::Pdf);
    check_available(f, format);
    if let Some(text) = &time
        && parse_time(text).is_none()
    {
        f.problem("time", "Must be a time such as 09:30.");
    }
    let (frequency, recipients) = (frequency?, recipients?);
    let (cron, time) = match frequency {
        Frequency::Cron => {
            if time.is_some() && !f.problems.has("time") {
                f.problem("time", "Must be omitted if `frequency` is `cron`: the expression contains the time.");
            }
            (f.required("cron", cron.map_or(PatchField::Omitted, PatchField::Value)), None)
        }
        _ => {
            if cron.is_some() {
                f.problem("cron", "Must be omitted unless `frequency` is `cron`.");
            }
            (None, Some(time.unwrap_or_else(|| DEFAULT_TIME.to_owned())))
        }
    };
    let at = time.as_deref().and_then(parse_time).unwrap_or_default();
    let expression = frequency.expression(at, cron.as_deref().unwrap_or_default());
    let next_run_at = if f.problems.has("cron") { None } else { next_run(f, &expression, timezone, now) };
    Some(ParsedSchedule { frequency, cron, time, recipients, format, next_run_at: next_run_at? })
}

/// Returns the first time of an expression. Problems are reported at `cron`, because the expressions of other
/// frequencies have none.
fn next_run(f: &Fields<'_>, expression: &str, timezone: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if expression.split_whitespace().count() != CRON_FIELDS {
        f.problem("cron", "Must have five fields: minute, hour, day, month and weekday, such as 0 9 * * 1.");
        return None;
    }
    let schedule = match expression.parse::<CronSchedule>() {
        Ok(schedule) => schedule,
        Err(error) => {
            f.problem("cron", cron_problem(&error));
            return None;
        }
    };
    let next = schedule.next_after(&now.with_timezone(&zone(Some(timezone))));
    if next.is_none() {
        f.problem("cron", "Must match at least one date that exists.");
    }
    next.map(|at| at.to_utc())
}

/// Returns the message for an invalid expression.
fn cron_problem(error: &CronError) -> String {
    let text = match error {
        CronError::Invalid(error) => error.to_string(),
        CronError::TooLong => return format!("Must have at most {} bytes.", crier_base::cron::MAX_LENGTH),
    };
    // The parser names its own parts, and some of its messages end with a period.
    let text = text.trim_start_matches("Component error: ").trim_start_matches("Invalid pattern: ");
    format!("Invalid cron expression: {}.", text.trim_end_matches('.'))
}

fn read_recipients(f: &Fields<'_>) -> Option<Vec<String>> {
    let recipients = match f.email_addresses("recipients", MAX_RECIPIENTS) {
        PatchField::Value(list) if list.is_empty() && !f.problems.has("recipients") => {
            f.problem("recipients", "Add at least one recipient.");
            PatchField::Omitted
        }
        recipients => recipients,
    };
    f.required("recipients", recipients)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ParsedSchedule>>) -> Result<Reply<ReportSchedule>> {
    let report = lock(cx, tx).await?;
    let request = parsed.valid()?;
    let count = report_schedules::of_reports(tx, &[report.id]).await?.len();
    ApiError::check_cap("A report", MAX_SCHEDULES, "schedules", i64::try_from(count).unwrap_or(i64::MAX), 1)?;
    let new = NewSchedule {
        frequency: request.frequency,
        cron: request.cron.as_deref(),
        time: request.time.as_deref(),
        format: request.format,
        recipients: &request.recipients,
        next_run_at: request.next_run_at,
    };
    let created = report_schedules::create(tx, report.id, &new).await?;
    report_deliveries::resume_rejected(tx, cx.caller.workspace_id, &request.recipients).await?;
    let path = format!("/brands/{}/reports/{}", report.brand_id, report.id);
    Ok(Reply::at(&path, ReportSchedule::new(created, cx.zone())))
}
