//! `DELETE /brands/{brand}/reports/{report}`

use crier_domain::access::Scope;
use crier_store::{Tx, files, reports};

use super::{FEATURES, TAG, lock};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/reports/{report}", "deleteReport", Scope::ReportsWrite)
        .tag(TAG)
        .summary("Delete a report and its schedules, exports and files")
        .description("A running export ends without a file or an event. Pending emails are not sent.")
        .features(FEATURES)
        .serves_leftovers()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let report = lock(cx, tx).await?;
    files::mark_of_report_for_deletion(tx, report.id).await?;
    reports::delete(tx, report.brand_id, report.id).await?;
    Ok(Reply::from(()))
}
