//! `POST /brands/{brand}/posts/{post}/submit`

use crier_common::domain::access::Scope;
use crier_common::domain::plan::Feature;
use crier_common::domain::post::PostStatus;
use crier_common::store::Tx;

use super::edit::{PostChange, Wanted};
use super::{PostDetail, TAG, apply, show};
use crate::answer::Answer;
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

async fn submit(cx: &Context, tx: &mut Tx) -> Result<Answer> {
    let post = apply::lock(cx, tx).await?;
    if post.status != PostStatus::Draft {
        let message = format!("Only a draft can be submitted; this post is {}.", post.status);
        return Err(ApiError::new(Code::PostNotSubmittable, message));
    }
    let current = apply::standing(tx, post.id).await?;
    let change = PostChange::nothing();
    let wanted = Wanted { submits: true, ..Wanted::of(&post, &current, &change) };
    apply::validate(cx, tx, &post, &wanted, &change, Problems::default()).await?;
    let post = apply::carry_out(cx, tx, post, &current, &wanted).await?;
    Answer::ok(PostDetail::load(tx, post).await?)
}
