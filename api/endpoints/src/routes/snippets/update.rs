//! `PUT /brands/{brand}/snippets/{snippet}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::snippet::{MAX_SNIPPET_CONTENT, MAX_SNIPPET_NAME, SnippetKind};
use crier_store::{Tx, snippets};

use super::{Snippet, TAG, check_size, lock};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, Result};
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// Changes to a snippet. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct SnippetChange {
    #[field(text(1..=MAX_SNIPPET_NAME), example = "Opening hours in summer")]
    pub name: PatchField<String>,
    /// The kind of the snippet. The signature of an account must keep its kind.
    #[field(enum_value())]
    pub kind: PatchField<SnippetKind>,
    #[field(text(1..=MAX_SNIPPET_CONTENT), example = "Open from 6 to 20, closed on Mondays.")]
    pub content: PatchField<String>,
}

pub fn endpoint() -> Endpoint<SnippetChange, One<Snippet>> {
    Endpoint::put("/brands/{brand}/snippets/{snippet}", "updateSnippet", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Update a snippet")
        .description(
            "Posts that contain the snippet do not change. A post that has the signature of an account gets the new \
             signature with its next update. Contributors cannot update the signature of an account.",
        )
        .extension()
        .checks_then_writes(update)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<SnippetChange>>) -> Result<Reply<Snippet>> {
    let mut snippet = lock(cx, tx).await?;
    let change = parsed.valid()?.clone();
    let before = (snippet.kind, snippet.content.len());
    snippet.name = change.name.value().unwrap_or(snippet.name);
    snippet.kind = change.kind.value().unwrap_or(snippet.kind);
    snippet.content = change.content.value().unwrap_or(snippet.content);
    if before.0 != snippet.kind && snippets::is_used(tx, snippet.id).await? {
        let message = "The snippet is the signature of an account. Choose another signature for the account first.";
        return Err(ApiError::field("kind", message));
    }
    if snippet.content.len() > before.1 {
        check_size(cx, tx, snippet.content.len() - before.1).await?;
    }
    snippet.updated_at = tx.now;
    snippets::update(tx, &snippet).await?;
    Ok(Reply::from(Snippet::from(snippet)))
}
