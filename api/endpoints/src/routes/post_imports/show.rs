//! `GET /brands/{brand}/posts/imports/{import}`

use crier_domain::access::Scope;
use crier_store::{Conn, post_imports};

use super::{PostImportDetail, TAG, find};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<PostImportDetail>> {
    Endpoint::get("/brands/{brand}/posts/imports/{import}", "getPostImport", Scope::PostsRead)
        .tag(TAG)
        .summary("Get an import of posts")
        .extension()
        .reads(show)
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<PostImportDetail>> {
    let import = find(cx, conn).await?;
    let errors = post_imports::errors(conn, import.id).await?;
    Ok(PostImportDetail { import: import.into(), errors: errors.into_iter().map(Into::into).collect() }.into())
}
