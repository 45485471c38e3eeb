//! `POST /brands/{brand}/posts/{post}/submit`

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_domain::post::{Post, PostStatus};
use crier_store::Tx;

use super::{PostDetail, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts/{post}/submit", "submitPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Submit a draft for approval")
        .features(&[Feature::Approvals])
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::PostNotSubmittable, ErrorCode::LimitReached])
        .writes(submit)
        .with_rerender("post", show::show)
}

async fn submit(cx: &Context, tx: &mut Tx) -> Result<Reply<PostDetail>> {
    let post = lock(cx, tx).await?;
    let post = submit_post(cx, tx, post).await?;
    Ok(Reply::from(PostDetail::load(tx, post).await?))
}

/// Submits a post whose row is locked. Returns the stored post.
pub async fn submit_post(cx: &Context, tx: &mut Tx, post: Post) -> Result<Post> {
    if post.status != PostStatus::Draft {
        let message = format!("Only a draft can be submitted. The status of this post is {}.", post.status);
        return Err(ApiError::new(ErrorCode::PostNotSubmittable, message));
    }
    Ok(crier_posts::submit(&cx.post_context(tx.now)?, tx, post).await?)
}
