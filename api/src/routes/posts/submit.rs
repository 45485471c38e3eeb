//! `POST /brands/{brand}/posts/{post}/submit`

use crier_common::domain::access::Scope;
use crier_common::domain::plan::Feature;
use crier_common::domain::post::PostStatus;
use crier_common::store::Tx;

use super::edit::{DesiredPost, PostChange};
use super::{PostDetail, TAG, apply, show};
use crate::answer::ApiResponse;
use crate::context::Context;
use crate::endpoint::{Endpoint, Shape};
use crate::error::{ApiError, Code, Result};
use crate::fields::Problems;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/posts/{post}/submit", "submitPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Submit a draft for approval")
        .features(&[Feature::Approvals])
        .answers::<PostDetail>(200, Shape::One)
        .refuses(&[Code::ValidationFailed, Code::PostNotSubmittable, Code::LimitReached])
        .writes(submit)
        .renders_again("post", show::show)
}

async fn submit(cx: &Context, tx: &mut Tx) -> Result<ApiResponse> {
    let post = apply::lock(cx, tx).await?;
    if post.status != PostStatus::Draft {
        let message = format!("Only a draft can be submitted; this post is {}.", post.status);
        return Err(ApiError::new(Code::PostNotSubmittable, message));
    }
    let current = apply::load_target_states(tx, post.id).await?;
    let change = PostChange::empty();
    let wanted = DesiredPost { submits: true, ..DesiredPost::from_change(&post, &current, &change) };
    apply::validate(cx, tx, &post, &wanted, &change, Problems::default()).await?;
    let post = apply::execute(cx, tx, post, &current, &wanted).await?;
    ApiResponse::ok(PostDetail::load(tx, post).await?)
}
