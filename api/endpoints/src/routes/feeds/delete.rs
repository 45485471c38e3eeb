//! `DELETE /brands/{brand}/feeds/{feed}`

use crier_domain::access::Scope;
use crier_store::{Tx, feeds};

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/feeds/{feed}", "deleteFeed", Scope::FeedsWrite)
        .tag(TAG)
        .summary("Delete a feed and its articles")
        .features(FEATURES)
        .serves_leftovers()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    if !feeds::delete(tx, cx.brand()?.id, cx.id("feed")?).await? {
        return Err(ApiError::not_found("feed"));
    }
    Ok(Reply::from(()))
}
