//! A draft that another resource gives the content for. It counts for nothing yet, and goes nowhere.

use crier_common::domain::post::Post;
use crier_common::store::{Tx, posts};

use super::{PostDetail, create};
use crate::answer::Answer;
use crate::context::Context;
use crate::error::Result;

/// Makes it for the brand in the path, by the key's user; answers as the making of a post does.
pub async fn create_draft(cx: &Context, tx: &mut Tx, content: String) -> Result<Answer> {
    let mut post = Post { content, created_at: tx.now, updated_at: tx.now, ..create::empty(cx)? };
    post.id = posts::insert(tx, &post).await?;
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    let id = post.id;
    Ok(Answer::created(&path, PostDetail::load(tx, post).await?)?.showing([id]))
}
