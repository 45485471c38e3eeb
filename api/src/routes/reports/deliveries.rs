//! `GET /brands/{brand}/reports/{report}/deliveries`

use crier_domain::access::Scope;
use crier_store::{Conn, Page, report_deliveries};

use super::{FEATURES, ReportDelivery, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::pagination;
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<QUERY, Paged<ReportDelivery>> {
    Endpoint::get("/brands/{brand}/reports/{report}/deliveries", "listReportDeliveries", Scope::ReportsRead)
        .tag(TAG)
        .summary("List the exports of a report, newest first")
        .extension()
        .features(FEATURES)
        .pages()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Listed<ReportDelivery>>> {
    let report = find(cx, conn).await?;
    let mut problems = cx.name_problems();
    let page = pagination::requested_page(&cx.query, &mut problems);
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    let found = report_deliveries::list(conn, report.brand_id, report.id, page).await?;
    let rows = ReportDelivery::load(conn, found.rows).await?;
    pagination::respond(cx, page, Page { rows, total: found.total })
}
