//! `DELETE /brands/{brand}/posts/{post}`

use crier_common::domain::access::Scope;
use crier_common::domain::job::Kind;
use crier_common::domain::post::TargetStatus;
use crier_common::store::{Tx, jobs, posts, targets};

use super::{TAG, apply};
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/brands/{brand}/posts/{post}", "deletePost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Delete a post, cancelling what has not started")
        .description(
            "What is being published is finished first, and its events still go out. Nothing is deleted from a platform.",
        )
        .answers_nothing()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Answer> {
    let post = apply::lock(cx, tx).await?;
    for standing in apply::standing(tx, post.id).await? {
        let target = standing.target;
        jobs::cancel_subject(tx, Kind::PublishTarget, target.id).await?;
        if target.status == TargetStatus::Pending && target.call_started_at.is_none() {
            // A worker that has its job in hands but has not begun finds no target, and lets go.
            targets::delete(tx, target.id).await?;
        }
    }
    posts::delete(tx, post.id).await?;
    Ok(Answer::nothing())
}
