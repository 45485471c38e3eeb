//! `PUT /brands/{brand}/posts/{post}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::post::Post;
use crier_store::Tx;

use super::edit::{DesiredPost, PostChange};
use super::{PostDetail, TAG, apply, check, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::fields::Problems;
use crate::request::Parsed;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<PostChange, One<PostDetail>> {
    Endpoint::put("/brands/{brand}/posts/{post}", "updatePost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Update a post")
        .description(
            "Omitted fields keep their values. `schedule_type` reschedules the post, publishes it immediately, or returns \
             it to draft. `now` on a failed or partially published post retries the failed targets. Content that is \
             published or being published cannot be changed.",
        )
        .ignores(PostChange::ignored)
        .error_codes(&[ErrorCode::PostNotEditable, ErrorCode::LimitReached])
        .checks_then_writes(update)
        .with_rerender("post", show::show)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<PostChange>>) -> Result<Reply<PostDetail>> {
    let post = apply::lock(cx, tx).await?;
    let post = change_post(cx, tx, post, parsed.partial()?, parsed.problems()).await?;
    Ok(Reply::from(PostDetail::load(tx, post).await?))
}

/// Changes a post whose row is locked. `problems` has those that were already found. Returns the stored post.
pub async fn change_post(
    cx: &Context,
    tx: &mut Tx,
    post: Post,
    change: &PostChange,
    problems: Problems,
) -> Result<Post> {
    let current = apply::load_target_states(cx, tx, post.id).await?;
    let mut desired = DesiredPost::from_change(&post, &current, change);
    let accounts = check::validate(cx, tx, &post, &mut desired, change, problems).await?;
    apply::execute(cx, tx, post, &current, &desired, &accounts).await
}
