//! `GET /brands/{brand}/posts/imports`

use crier_domain::access::Scope;
use crier_store::{Conn, post_imports};

use super::{PostImport, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<PostImport>> {
    Endpoint::get("/brands/{brand}/posts/imports", "listPostImports", Scope::PostsRead)
        .tag(TAG)
        .summary("List a brand's imports of posts, newest first")
        .description("A brand keeps its 100 newest imports, for 30 days.")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<PostImport>>> {
    let all = post_imports::list(conn, cx.brand()?.id).await?;
    Ok(Reply::from(all.into_iter().map(PostImport::from).collect::<Vec<_>>()))
}
