//! `GET /brands`

use crier_domain::access::Scope;
use crier_store::{Conn, brands};

use super::{Brand, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands", "listBrands", Scope::BrandsRead)
        .tag(TAG)
        .summary("List the brands of the key's user")
        .response::<Brand>(200, ResponseShape::Many)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let memberships = brands::list(conn, cx.caller.user_id).await?;
    ApiResponse::ok(memberships.into_iter().map(|one| Brand::from(one.brand)).collect::<Vec<_>>())
}
