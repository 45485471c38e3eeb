//! `GET /brands/{brand}/reports/{report}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{FEATURES, Report, TAG, find};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/reports/{report}", "getReport", Scope::ReportsRead)
        .tag(TAG)
        .summary("Get a report")
        .features(FEATURES)
        .serves_leftovers()
        .response::<Report>(200, ResponseShape::One)
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let found = find(cx, conn).await?;
    ApiResponse::ok(Report::load_one(cx, conn, found).await?)
}
