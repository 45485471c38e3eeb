//! `GET /brands/{brand}/reports/{report}/deliveries`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, report_deliveries};

use super::{FEATURES, ReportDelivery, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::{Pages, Parsed};
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<Pages, Paged<ReportDelivery>> {
    Endpoint::get("/brands/{brand}/reports/{report}/deliveries", "listReportDeliveries", Scope::ReportsRead)
        .tag(TAG)
        .summary("List the exports of a report, newest first")
        .extension()
        .features(FEATURES)
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<Pages>>) -> Result<Reply<Listed<ReportDelivery>>> {
    let report = find(cx, conn).await?;
    let page = parsed.valid()?.request();
    let found = report_deliveries::list(conn, report.brand_id, report.id, page).await?;
    let rows = ReportDelivery::load(conn, found.rows).await?;
    Ok(Listed { page, rows, total: found.total }.into())
}
