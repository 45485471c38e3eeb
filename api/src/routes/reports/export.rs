//! `POST /brands/{brand}/reports/{report}/export`

use std::sync::Arc;

use chrono::NaiveDate;
use crier_domain::access::Scope;
use crier_domain::analytics::zone;
use crier_domain::report::{MAX_DAYS, ReportFormat};
use crier_domain::report_schedule::{last_days, local_day};
use crier_jobs::reports;
use crier_store::Tx;
use crier_store::report_deliveries::{self, NewDelivery};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, ReportDelivery, TAG, check_available, delivery_path, lock};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, Result};
use crate::fields::{Fields, ParsedBody};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The export to create.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
#[schemars(rename = "NewExport")]
pub struct ExportReportRequest {
    #[schemars(with = "TextEnum<ReportFormat>")]
    pub format: ReportFormat,
    /// The first day. Default: 29 days before `end`.
    pub start: Option<NaiveDate>,
    /// The last day, at most 365 days after `start`. Default: today in the brand's time zone.
    pub end: Option<NaiveDate>,
}

pub fn endpoint() -> Endpoint<ExportReportRequest, One<ReportDelivery>> {
    Endpoint::post("/brands/{brand}/reports/{report}/export", "exportReport", Scope::ReportsWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Export a report")
        .description(
            "Crier creates the file after the response. Poll `Location` for the status, or listen for `report.sent` and \
             `report.failed`. The file counts toward the workspace's storage. It is deleted when the plan no longer \
             shows the metrics of the day on which it was created.",
        )
        .features(FEATURES)
        .status(202)
        .checks_then_writes(export)

// EXAMPLE ExportReportRequest: json!({ "format": "pdf", "start": "{day-30}", "end": "{day-1}" })
}

/// A parsed body.
struct ParsedExport {
    format: ReportFormat,
    start: NaiveDate,
    end: NaiveDate,
}

fn read(cx: &Context) -> ParsedBody<Option<ParsedExport>> {
    let today = local_day(cx.now, zone(Some(cx.zone())));
    cx.parse(|f| read_fields(f, today))
}

fn read_fields(f: &Fields<'_>, today: NaiveDate) -> Option<ParsedExport> {
    let format = f.required("format", f.enum_value("format"));
    if let Some(format) = format {
        check_available(f, format);
    }
    let (start, end) = (f.date("start").value(), f.date("end").value());
    let end = end.unwrap_or(today);
    let start = start.unwrap_or_else(|| last_days(end).0);
    if end < start {
        f.problem("end", format!("Must be the start date, {start}, or later."));
    } else if (end - start).num_days() >= MAX_DAYS {
        let message = format!("A report can cover at most {MAX_DAYS} days. Use an earlier end or a later start date.");
        f.problem("end", message);
    }
    Some(ParsedExport { format: format?, start, end })
}

async fn export(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ParsedExport>>) -> Result<Reply<ReportDelivery>> {
    let report = lock(cx, tx).await?;
    let request = parsed.valid()?;
    let new = NewDelivery {
        report_id: report.id,
        brand_id: report.brand_id,
        schedule_id: None,
        format: request.format,
        starts_on: request.start,
        ends_on: request.end,
    };
    let id = reports::enqueue(tx, cx.caller.workspace_id, &new, &[], cx.trace()).await?;
    let created = report_deliveries::find(tx, report.brand_id, id).await?;
    let created = created.ok_or_else(|| ApiError::bug("a delivery was not found after it was created"))?;
    Ok(Reply::at(&delivery_path(report.brand_id, id), ReportDelivery::load_one(tx, created).await?))
}
