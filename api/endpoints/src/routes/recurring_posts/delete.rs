//! `DELETE /brands/{brand}/recurring-posts/{recurring}`

use crier_domain::access::Scope;
use crier_store::{Tx, recurring_posts};

use super::{TAG, lock};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/recurring-posts/{recurring}", "deleteRecurringPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Delete a recurring post")
        .description(
            "Shortly after the response, Crier deletes its future posts that nobody has changed. Posts that somebody has \
             changed, and posts whose publishing has begun, remain. Nothing is deleted from a platform.",
        )
        .extension()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let rule = lock(cx, tx).await?;
    recurring_posts::hide(tx, &rule, cx.trace()).await?;
    Ok(Reply::from(()))
}
