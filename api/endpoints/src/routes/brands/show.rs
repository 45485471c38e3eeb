//! `GET /brands/{brand}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{Brand, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Brand>> {
    Endpoint::get("/brands/{brand}", "getBrand", Scope::BrandsRead).tag(TAG).summary("Get a brand").reads(show)
}

async fn show(cx: &Context, _: &mut Conn) -> Result<Reply<Brand>> {
    Ok(Reply::from(Brand::from(cx.brand()?.clone())))
}
