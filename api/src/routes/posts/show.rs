//! `GET /brands/{brand}/posts/{post}`

use crier_domain::access::Scope;
use crier_domain::post;
use crier_store::{Conn, posts};

use super::{PostDetail, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::{ApiError, Result};
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/posts/{post}", "getPost", Scope::PostsRead)
        .tag(TAG)
        .summary("Get a post")
        .response::<PostDetail>(200, ResponseShape::One)
        .reads(show)
}

/// Returns the post in the path; 404 if it does not exist.
pub async fn find(cx: &Context, conn: &mut Conn) -> Result<post::Post> {
    let found = posts::find(conn, cx.brand()?.id, cx.id("post")?).await?;
    found.ok_or_else(|| ApiError::not_found("post"))
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let post = find(cx, conn).await?;
    ApiResponse::ok(PostDetail::load(conn, post).await?)
}
