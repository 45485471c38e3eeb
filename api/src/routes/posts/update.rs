//! `PUT /brands/{brand}/posts/{post}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_store::Tx;
use serde_json::json;

use super::edit::{DesiredPost, PostChange};
use super::{PostDetail, TAG, apply, check, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape};
use crate::error::{ErrorCode, Result};
use crate::fields::ParsedBody;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::put("/brands/{brand}/posts/{post}", "updatePost", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Update a post")
        .description(
            "Omitted fields keep their values. `schedule_type` reschedules the post, publishes it immediately, or returns \
             it to draft. `now` on a failed or partially published post retries the failed targets. Content that is \
             published or being published cannot be changed.",
        )
        .body::<PostChange>(json!({ "content": "Fresh bread from 6 o'clock.", "schedule_type": "now" }))
        .ignores(PostChange::ignored)
        .response::<PostDetail>(200, ResponseShape::One)
        .error_codes(&[ErrorCode::PostNotEditable, ErrorCode::LimitReached])
        .checks_then_writes(PostChange::parse, update)
        .with_rerender("post", show::show)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<ParsedBody<PostChange>>) -> Result<ApiResponse> {
    let post = apply::lock(cx, tx).await?;
    let current = apply::load_target_states(tx, post.id).await?;
    let change = &parsed.value;
    let desired = DesiredPost::from_change(&post, &current, change);
    let accounts = check::validate(cx, tx, &post, &desired, change, parsed.problems()).await?;
    let post = apply::execute(cx, tx, post, &current, &desired, &accounts).await?;
    ApiResponse::ok(PostDetail::load(tx, post).await?)
}
