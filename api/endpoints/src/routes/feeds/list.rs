//! `GET /brands/{brand}/feeds`

use crier_domain::access::Scope;
use crier_store::{Conn, feeds};

use super::{FEATURES, Feed, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<Feed>> {
    Endpoint::get("/brands/{brand}/feeds", "listFeeds", Scope::FeedsRead)
        .tag(TAG)
        .summary("List a brand's feeds, newest first")
        .features(FEATURES)
        .serves_leftovers()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Feed>>> {
    let all = feeds::list(conn, cx.brand()?.id).await?;
    Ok(Reply::from(all.into_iter().map(Feed::from).collect::<Vec<_>>()))
}
