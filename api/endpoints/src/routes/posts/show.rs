//! `GET /brands/{brand}/posts/{post}`

use crier_domain::access::Scope;
use crier_domain::post;
use crier_store::{Conn, posts};

use super::{PostDetail, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostDetail>> {
    Endpoint::get("/brands/{brand}/posts/{post}", "getPost", Scope::PostsRead)
        .tag(TAG)
        .summary("Get a post")
        .reads(show)
}

/// Returns the post in the path; 404 if it does not exist.
pub async fn find(cx: &Context, conn: &mut Conn) -> Result<post::Post> {
    let found = posts::find(conn, cx.brand()?.id, cx.id("post")?).await?;
    found.ok_or_else(|| ApiError::not_found("post"))
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<PostDetail>> {
    let post = find(cx, conn).await?;
    Ok(Reply::from(PostDetail::load(conn, post).await?))
}
