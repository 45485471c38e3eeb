//! `GET /brands/{brand}/snippets`

use crier_domain::access::Scope;
use crier_store::{Conn, snippets};

use super::{Snippet, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<Snippet>> {
    Endpoint::get("/brands/{brand}/snippets", "listSnippets", Scope::PostsRead)
        .tag(TAG)
        .summary("List a brand's snippets, newest first")
        .extension()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Snippet>>> {
    let all = snippets::list(conn, cx.brand()?.id).await?;
    Ok(Reply::from(all.into_iter().map(Snippet::from).collect::<Vec<_>>()))
}
