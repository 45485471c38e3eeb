//! `GET /brands/{brand}/queue`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{Queue, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Queue>> {
    Endpoint::get("/brands/{brand}/queue", "getQueue", Scope::PostsRead)
        .tag(TAG)
        .summary("Get a brand's queue")
        .extension()
        .reads(show)
}

pub(super) async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<Queue>> {
    Ok(Reply::from(Queue::load(cx, conn).await?))
}
