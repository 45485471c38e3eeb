//! `POST /brands/{brand}/posts`

use std::sync::Arc;

use crier_common::domain::access::Scope;
use crier_common::domain::post::Post;
use crier_common::store::{Tx, posts};
use serde_json::json;

use super::edit::{DesiredPost, PostChange};
use super::{NewPost, PostDetail, TAG, apply, show};
use crate::answer::ApiResponse;
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::{ErrorCode, Result};
use crate::fields::ParsedBody;

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/posts", "createPost", Scope::PostsWrite)
        .tag(TAG)
        .summary("Create a post: a draft, a scheduled one, or one that is published now")
        .description(
            "Publishing is asynchronous: poll the post's status, or listen for `post.published` and `post.failed`.",
        )
        .body::<NewPost>(json!({
            "content": "Fresh bread from 7 o'clock.", "schedule_type": "scheduled",
            "scheduled_at": "2026-05-01T07:00:00", "accounts": [88]
        }))
        .response::<PostDetail>(201, ResponseShape::One)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(read, create)
        .with_rerender("post", show::show)
}

/// Returns the empty draft that a create edits.
pub fn empty(cx: &Context) -> Result<Post> {
    let (author_id, author_name) = (Some(cx.caller.user_id), Some(cx.caller.user_name.clone()));
    Ok(Post { author_id, author_name, ..Post::draft(cx.brand()?.id, cx.now) })
}

/// Stores a validated new post; its `id` is ignored. Fails with 402 if the monthly limit is reached.
pub async fn store(cx: &Context, tx: &mut Tx, post: Post, wanted: &DesiredPost) -> Result<Post> {
    let id = posts::insert(tx, &post).await?;
    apply::execute(cx, tx, Post { id, ..post }, &[], wanted).await
}

/// Parses the request body.
pub fn read(cx: &Context) -> ParsedBody<PostChange> {
    cx.parse(|f| PostChange::read(f, cx.zone()))
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<ParsedBody<PostChange>>) -> Result<ApiResponse> {
    let post = Post { created_at: tx.now, updated_at: tx.now, ..empty(cx)? };
    let change = &parsed.value;
    let wanted = DesiredPost::from_change(&post, &[], change);
    apply::validate(cx, tx, &post, &wanted, change, parsed.problems()).await?;
    let post = store(cx, tx, post, &wanted).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(ApiResponse::created(&path, PostDetail::load(tx, post).await?)?.with_records([id]))
}
