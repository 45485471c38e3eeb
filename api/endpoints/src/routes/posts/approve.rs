//! `POST /brands/{brand}/posts/{post}/approve`

use crier_domain::access::Scope;
use crier_domain::plan::Feature;
use crier_domain::post::{Post, PostStatus, StoredScheduleType};
use crier_posts::apply;
use crier_store::{Tx, posts};

use super::{PostDetail, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts/{post}/approve", "approvePost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Approve a post")
        .description(
            "If `scheduled_at` is in the future, the post is scheduled. Otherwise, it is published immediately. Only owners \
             and admins of the brand can approve posts.",
        )
        .extension()
        .features(&[Feature::Approvals])
        .error_codes(&[ErrorCode::PostNotPending])
        .writes(approve)
        .with_rerender("post", show::show)
}

/// Fails unless the key's user is an owner or an admin of the brand.
pub fn check_role(cx: &Context) -> Result<()> {
    if cx.role()?.can_manage() {
        return Ok(());
    }
    let message = "Only owners and admins of the brand can approve or reject posts. The key's user is neither.";
    Err(ApiError::new(ErrorCode::InsufficientScope, message))
}

/// Fails unless the post is pending approval.
pub fn check_pending(post: &Post) -> Result<()> {
    if post.status == PostStatus::PendingApproval {
        return Ok(());
    }
    let message = format!("The post is not pending approval. Its status is {}.", post.status);
    Err(ApiError::new(ErrorCode::PostNotPending, message))
}

async fn approve(cx: &Context, tx: &mut Tx) -> Result<Reply<PostDetail>> {
    check_role(cx)?;
    let post = lock(cx, tx).await?;
    let post = approve_post(cx, tx, post).await?;
    Ok(Reply::from(PostDetail::load(tx, post).await?))
}

/// Approves a post whose row is locked. Returns the stored post. The caller checks the role ([`check_role`]).
pub async fn approve_post(cx: &Context, tx: &mut Tx, mut post: Post) -> Result<Post> {
    check_pending(&post)?;
    let future_time = post.scheduled_at.filter(|at| *at > tx.now);
    let (status, schedule_type) = match future_time {
        Some(_) => (PostStatus::Scheduled, StoredScheduleType::Scheduled),
        None => (PostStatus::Publishing, StoredScheduleType::Now),
    };
    post.move_to(status)?;
    let post = Post { schedule_type, scheduled_at: future_time, updated_at: tx.now, ..post };
    posts::update(tx, &post).await?;
    apply::publish(&cx.post_context(tx.now)?, tx, post.id, future_time.unwrap_or(tx.now)).await?;
    Ok(post)
}
