//! `GET /brands/{brand}/recurring-posts/{recurring}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{RecurringPost, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<RecurringPost>> {
    Endpoint::get("/brands/{brand}/recurring-posts/{recurring}", "getRecurringPost", Scope::PostsRead)
        .tag(TAG)
        .summary("Get a recurring post")
        .extension()
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<RecurringPost>> {
    let rule = find(cx, conn).await?;
    Ok(Reply::from(RecurringPost::load_one(cx, conn, rule).await?))
}
