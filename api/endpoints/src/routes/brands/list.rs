//! `GET /brands`

use crier_domain::access::Scope;
use crier_store::{Conn, brands};

use super::{Brand, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<Brand>> {
    Endpoint::get("/brands", "listBrands", Scope::BrandsRead)
        .tag(TAG)
        .summary("List the brands of the key's user")
        .description("A key that is limited to some brands gets only these brands.")
        .for_limited_keys()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Brand>>> {
    let memberships = if cx.caller.all_brands {
        brands::list(conn, cx.caller.user_id).await?
    } else {
        brands::list_of_key(conn, cx.caller.user_id, cx.caller.key_id).await?
    };
    Ok(Reply::from(memberships.into_iter().map(|one| Brand::from(one.brand)).collect::<Vec<_>>()))
}
