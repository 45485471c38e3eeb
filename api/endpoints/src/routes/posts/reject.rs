//! `POST /brands/{brand}/posts/{post}/reject`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_domain::post::{Post, PostStatus, StoredScheduleType};
use crier_store::{Tx, posts};

use super::approve::{check_pending, check_role};
use super::{PostDetail, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The reason for rejecting a post.
#[derive(Clone, Debug, Default, Request)]
pub struct Rejection {
    #[field(text(0..=2000), example = "The offer has changed.")]
    pub reason: Option<String>,
}

pub fn endpoint() -> Endpoint<Rejection, One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts/{post}/reject", "rejectPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Reject a post")
        .description(
            "The post returns to draft and has the reason in `reject_reason` until its status changes again. Only \
             owners and admins of the brand can reject posts.",
        )
        .extension()
        .features(&[Feature::Approvals])
        .body_is_optional()
        .error_codes(&[ErrorCode::PostNotPending])
        .checks_then_writes(reject)
        .with_rerender("post", show::show)
}

async fn reject(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<Rejection>>) -> Result<Reply<PostDetail>> {
    check_role(cx)?;
    let post = lock(cx, tx).await?;
    let post = reject_post(tx, post, parsed.valid()?.reason.as_deref()).await?;
    Ok(Reply::from(PostDetail::load(tx, post).await?))
}

/// Rejects a post whose row is locked. Returns the stored post. The caller checks the role ([`check_role`]).
pub async fn reject_post(tx: &mut Tx, mut post: Post, reason: Option<&str>) -> Result<Post> {
    check_pending(&post)?;
    post.move_to(PostStatus::Draft)?;
    let reject_reason = reason.filter(|reason| !reason.is_empty()).map(str::to_owned);
    let post = Post { schedule_type: StoredScheduleType::Draft, reject_reason, updated_at: tx.now, ..post };
    posts::update(tx, &post).await?;
    Ok(post)
}
