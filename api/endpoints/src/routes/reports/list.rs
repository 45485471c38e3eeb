//! `GET /brands/{brand}/reports`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::{Conn, reports};

use super::{FEATURES, Report, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::request::{Pages, Parsed};
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<Pages, Paged<Report>> {
    Endpoint::get("/brands/{brand}/reports", "listReports", Scope::ReportsRead)
        .tag(TAG)
        .summary("List a brand's reports, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<Pages>>) -> Result<Reply<Listed<Report>>> {
    let page = parsed.valid()?.request();
    let found = reports::list(conn, cx.brand()?.id, page).await?;
    let rows = Report::load(cx, conn, found.rows).await?;
    Ok(Listed { page, rows, total: found.total }.into())
}
