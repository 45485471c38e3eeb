//! `GET /brands/{brand}/reports/{report}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{FEATURES, Report, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Report>> {
    Endpoint::get("/brands/{brand}/reports/{report}", "getReport", Scope::ReportsRead)
        .tag(TAG)
        .summary("Get a report")
        .features(FEATURES)
        .serves_leftovers()
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<Report>> {
    let found = find(cx, conn).await?;
    Ok(Reply::from(Report::load_one(cx, conn, found).await?))
}
