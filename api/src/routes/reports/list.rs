//! `GET /brands/{brand}/reports`

use crier_domain::access::Scope;
use crier_store::{Conn, Page, reports};

use super::{FEATURES, Report, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::pagination;
use crate::response::{Listed, Paged, Reply};

pub fn endpoint() -> Endpoint<QUERY, Paged<Report>> {
    Endpoint::get("/brands/{brand}/reports", "listReports", Scope::ReportsRead)
        .tag(TAG)
        .summary("List a brand's reports, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .pages()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Listed<Report>>> {
    let mut problems = cx.name_problems();
    let page = pagination::requested_page(&cx.query, &mut problems);
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    let found = reports::list(conn, cx.brand()?.id, page).await?;
    let rows = Report::load(cx, conn, found.rows).await?;
    pagination::respond(cx, page, Page { rows, total: found.total })
}
