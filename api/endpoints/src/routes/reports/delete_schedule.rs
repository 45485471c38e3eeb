//! `DELETE /brands/{brand}/reports/{report}/schedules/{schedule}`

use crier_domain::access::Scope;
use crier_store::{Tx, report_schedules};

use super::{FEATURES, TAG, lock};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete(
        "/brands/{brand}/reports/{report}/schedules/{schedule}",
        "deleteReportSchedule",
        Scope::ReportsWrite,
    )
    .tag(TAG)
    .summary("Delete a report schedule")
    .description("Its exports are kept.")
    .features(FEATURES)
    .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let report = lock(cx, tx).await?;
    if !report_schedules::delete(tx, report.id, cx.id("schedule")?).await? {
        return Err(ApiError::not_found("report schedule"));
    }
    Ok(Reply::from(()))
}
