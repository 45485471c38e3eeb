//! `DELETE /brands/{brand}/posts/{post}`

use crier_domain::access::Scope;
use crier_domain::post::{Post, PostStatus};
use crier_jobs::publishing;
use crier_store::Tx;

use super::{TAG, lock};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/posts/{post}", "deletePost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Delete a post")
        .description(
            "Publishing that has not started is canceled. Publishing that is in progress finishes first, and its events are \
             still sent. If it is unknown whether a platform accepted the post, Crier finds out and does not send the post \
             again. Nothing is deleted from a platform.",
        )
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let post = lock(cx, tx).await?;
    delete_post(cx, tx, &post).await?;
    Ok(Reply::from(()))
}

/// Deletes a post whose row is locked.
pub async fn delete_post(cx: &Context, tx: &mut Tx, post: &Post) -> Result<()> {
    let is_unapproved = matches!(post.status, PostStatus::Draft | PostStatus::PendingApproval);
    if !is_unapproved && !cx.role()?.can_publish() {
        return Err(ApiError::for_publishers());
    }
    Ok(publishing::delete(tx, post.id).await?)
}
