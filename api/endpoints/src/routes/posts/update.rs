//! `PUT /brands/{brand}/posts/{post}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_posts::PostChange;
use crier_store::Tx;

use super::request::UpdatePostRequest;
use super::{PostDetail, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ErrorCode, Result};
use crate::request::Parsed;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<UpdatePostRequest, One<PostDetail>> {
    Endpoint::put("/brands/{brand}/posts/{post}", "updatePost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Update a post")
        .description(
            "Omitted fields keep their values. `schedule_type` reschedules the post, publishes it immediately, or returns \
             it to draft. It cannot do this for a post that is pending approval: approve or reject that post. A queued \
             post that gets a time of its own leaves the queue. `now` on a failed or partially published post retries \
             the failed targets. Content that is published or being published cannot be changed.",
        )
        .ignores(|cx, change| PostChange::from(change).ignored(cx.now))
        .error_codes(&[ErrorCode::PostNotEditable, ErrorCode::LimitReached])
        .checks_then_writes(update)
        .with_rerender("post", show::show)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<UpdatePostRequest>>) -> Result<Reply<PostDetail>> {
    let post = lock(cx, tx).await?;
    let change = PostChange::from(parsed.partial()?);
    let post = crier_posts::update(&cx.post_context(tx.now)?, tx, post, &change, parsed.problems()).await?;
    Ok(Reply::from(PostDetail::load(tx, post).await?))
}
