//! `GET /brands/{brand}/feeds/{feed}`

use crier_domain::access::Scope;
use crier_store::Conn;

use super::{FEATURES, Feed, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Feed>> {
    Endpoint::get("/brands/{brand}/feeds/{feed}", "getFeed", Scope::FeedsRead)
        .tag(TAG)
        .summary("Get a feed")
        .extension()
        .features(FEATURES)
        .serves_leftovers()
        .reads(read)
}

async fn read(cx: &Context, conn: &mut Conn) -> Result<Reply<Feed>> {
    Ok(Reply::from(Feed::from(find(cx, conn).await?)))
}
