//! `POST /brands/{brand}/reports/{report}/export`

use std::sync::Arc;

use chrono::{DateTime, NaiveDate, Utc};
use crier_domain::access::Scope;
use crier_domain::analytics::zone;
use crier_domain::report::{MAX_DAYS, ReportFormat};
use crier_domain::report_schedule::{last_days, local_day};
use crier_jobs::reports;
use crier_store::Tx;
use crier_store::report_deliveries::{self, NewDelivery};

use super::{FEATURES, ReportDelivery, TAG, check_available, delivery_path, lock};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The export to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewExport", check = check)]
pub struct ExportReportRequest {
    #[field(enum_value(), example = "pdf")]
    pub format: ReportFormat,
    /// Whether a CSV file begins with a byte order mark, by which Excel detects its encoding.
    #[field(flag(), default = false, extension)]
    pub bom: Option<bool>,
    /// The first day. Default: 29 days before `end`.
    #[field(date(), example = "{day-30}")]
    pub start: Option<NaiveDate>,
    /// The last day, at most 365 days after `start`. Default: today in the brand's time zone.
    #[field(date(), example = "{day-1}")]
    pub end: Option<NaiveDate>,
}

pub fn endpoint() -> Endpoint<ExportReportRequest, One<ReportDelivery>> {
    Endpoint::post("/brands/{brand}/reports/{report}/export", "exportReport", Scope::ReportsWrite)
        .tag(TAG)
        .adds(Growth::Files)
        .summary("Export a report")
        .description(
            "Crier creates the file after the response. Poll `Location` for the status, or subscribe to `report.sent` \
             and `report.failed`. The file counts against the workspace's storage. It is deleted when the plan no longer \
             shows the metrics of the day on which it was created.",
        )
        .features(FEATURES)
        .status(202)
        .checks_then_writes(export)
}

impl ExportReportRequest {
    /// Returns the first and the last day.
    fn days(&self, timezone: &str, now: DateTime<Utc>) -> (NaiveDate, NaiveDate) {
        let end = self.end.unwrap_or_else(|| local_day(now, zone(Some(timezone))));
        (self.start.unwrap_or_else(|| last_days(end).0), end)
    }
}

fn check(request: &ExportReportRequest, fields: &Fields<'_>) {
    check_available(fields, request.format);
    let (start, end) = request.days(fields.context().zone, fields.context().now);
    if end < start {
        fields.problem("end", format!("Must be the start date, {start}, or later."));
    } else if (end - start).num_days() >= MAX_DAYS {
        let message = format!("A report can cover at most {MAX_DAYS} days. Use an earlier end or a later start date.");
        fields.problem("end", message);
    }
}

async fn export(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ExportReportRequest>>) -> Result<Reply<ReportDelivery>> {
    let report = lock(cx, tx).await?;
    let request = parsed.valid()?;
    let (starts_on, ends_on) = request.days(cx.zone(), cx.now);
    let new = NewDelivery {
        report_id: report.id,
        brand_id: report.brand_id,
        schedule_id: None,
        format: request.format,
        has_bom: request.bom.unwrap_or(false),
        starts_on,
        ends_on,
    };
    let id = reports::enqueue(tx, cx.caller.workspace_id, &new, &[], cx.trace()).await?;
    let created = report_deliveries::find(tx, report.brand_id, id).await?;
    let created = created.ok_or_else(|| ApiError::bug("a delivery was not found after it was created"))?;
    Ok(Reply::at(&delivery_path(report.brand_id, id), ReportDelivery::load_one(tx, created).await?))
}
