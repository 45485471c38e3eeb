//! `GET /brands/{brand}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{Brand, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}", "getBrand", Scope::BrandsRead)
        .tag(TAG)
        .summary("Get a brand")
        .response::<Brand>(200, ResponseShape::One)
        .reads(show)
}

async fn show(cx: &Context, _: &mut Conn) -> Result<ApiResponse> {
    ApiResponse::ok(Brand::from(cx.brand()?.clone()))
}
