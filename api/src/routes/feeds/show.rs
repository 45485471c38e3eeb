//! `GET /brands/{brand}/feeds/{feed}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{FEATURES, Feed, TAG, find};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/feeds/{feed}", "getFeed", Scope::FeedsRead)
        .tag(TAG)
        .summary("Get a feed")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .response::<Feed>(200, ResponseShape::One)
        .reads(read)
}

async fn read(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    ApiResponse::ok(Feed::from(find(cx, conn).await?))
}
