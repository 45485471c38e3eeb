//! `DELETE /brands/{brand}/link-in-bio/{linkInBio}`

use crier_domain::access::Scope;
use crier_store::{Tx, bio_pages};

use super::{FEATURES, TAG, evict_after_commit, no_such_page};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/link-in-bio/{linkInBio}", "deleteLinkInBioPage", Scope::LinkinbioWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Delete a link-in-bio page")
        .description("Its slug becomes available again.")
        .features(FEATURES)
        .serves_leftovers()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let slug = bio_pages::delete(tx, cx.brand()?.id, cx.id("linkInBio")?).await?.ok_or_else(no_such_page)?;
    evict_after_commit(cx, tx, &slug);
    Ok(Reply::from(()))
}
