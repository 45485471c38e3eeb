//! `DELETE /brands/{brand}/snippets/{snippet}`

use crier_domain::access::Scope;
use crier_store::{Tx, snippets};

use super::{TAG, lock};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/brands/{brand}/snippets/{snippet}", "deleteSnippet", Scope::PostsWrite)
        .tag(TAG)
        .summary("Delete a snippet")
        .description(
            "If the snippet is the signature of an account, the account no longer has a signature. Posts that \
             contain the snippet do not change. Contributors cannot delete the signature of an account.",
        )
        .extension()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    let snippet = lock(cx, tx).await?;
    snippets::delete(tx, cx.brand()?.id, snippet.id).await?;
    Ok(Reply::from(()))
}
