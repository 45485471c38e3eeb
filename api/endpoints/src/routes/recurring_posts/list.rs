//! `GET /brands/{brand}/recurring-posts`

use crier_domain::access::Scope;
use crier_store::{Conn, recurring_posts};

use super::{RecurringPost, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<RecurringPost>> {
    Endpoint::get("/brands/{brand}/recurring-posts", "listRecurringPosts", Scope::PostsRead)
        .tag(TAG)
        .summary("List a brand's recurring posts, newest first")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<RecurringPost>>> {
    let all = recurring_posts::list(conn, cx.brand()?.id).await?;
    Ok(Reply::from(RecurringPost::load(cx, conn, all).await?))
}
