//! `GET /brands/{brand}/feeds`

use crier_domain::access::Scope;
use crier_store::{Conn, feeds};

use super::{FEATURES, Feed, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/feeds", "listFeeds", Scope::FeedsRead)
        .tag(TAG)
        .summary("List a brand's feeds, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .response::<Feed>(200, ResponseShape::Many)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let all = feeds::list(conn, cx.brand()?.id).await?;
    ApiResponse::ok(all.into_iter().map(Feed::from).collect::<Vec<_>>())
}
