//! Drafts with content from another resource. A draft does not count against the monthly limit and has no targets.

use crier_domain::post::Post;
use crier_store::{Tx, posts};

use super::PostDetail;
use crate::context::Context;
use crate::error::Result;
use crate::response::Reply;

/// Creates a draft for the brand in the path, with the key's user as its author. Responds like `createPost`.
pub async fn create_draft(cx: &Context, tx: &mut Tx, content: String) -> Result<Reply<PostDetail>> {
    let mut post = Post { content, ..cx.post_context(tx.now)?.empty_draft() };
    post.id = posts::insert(tx, &post).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(Reply::at(&path, PostDetail::new(post, Vec::new())).with_records([id]))
}
