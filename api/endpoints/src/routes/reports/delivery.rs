//! `GET /brands/{brand}/reports/deliveries/{delivery}`

use crier_domain::access::Scope;
use crier_store::{Conn, report_deliveries};

use super::{FEATURES, ReportDelivery, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<ReportDelivery>> {
    Endpoint::get("/brands/{brand}/reports/deliveries/{delivery}", "getReportDelivery", Scope::ReportsRead)
        .tag(TAG)
        .summary("Get the status of an export")
        .features(FEATURES)
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<ReportDelivery>> {
    let found = report_deliveries::find(conn, cx.brand()?.id, cx.id("delivery")?).await?;
    let found = found.ok_or_else(|| ApiError::not_found("export"))?;
    Ok(Reply::from(ReportDelivery::load_one(conn, found).await?))
}
