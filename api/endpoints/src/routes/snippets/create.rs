//! `POST /brands/{brand}/snippets`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::snippet::{MAX_SNIPPET_CONTENT, MAX_SNIPPET_NAME, MAX_SNIPPETS, SnippetKind};
use crier_store::Tx;
use crier_store::snippets::{self, NewSnippet};

use super::{Snippet, TAG, check_size};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The snippet to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewSnippet")]
pub struct CreateSnippetRequest {
    #[field(text(1..=MAX_SNIPPET_NAME), example = "Opening hours")]
    pub name: String,
    #[field(enum_value(), example = "text")]
    pub kind: SnippetKind,
    #[field(text(1..=MAX_SNIPPET_CONTENT), example = "Open from 6 to 18, closed on Mondays.")]
    pub content: String,
}

pub fn endpoint() -> Endpoint<CreateSnippetRequest, One<Snippet>> {
    Endpoint::post("/brands/{brand}/snippets", "createSnippet", Scope::PostsWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a snippet")
        .description("A brand can have at most 500 snippets. Their contents can have at most 1 MiB in total.")
        .extension()
        .status(201)
        .error_codes(&[ErrorCode::LimitReached])
        .checks_then_writes(create)
}

async fn create(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<CreateSnippetRequest>>) -> Result<Reply<Snippet>> {
    let brand = cx.brand()?.id;
    let new = parsed.valid()?;
    let count = check_size(cx, tx, new.content.len()).await?;
    ApiError::check_cap("A brand", MAX_SNIPPETS, "snippets", count, 1)?;
    let row = NewSnippet { name: &new.name, kind: new.kind, content: &new.content };
    let created = snippets::create(tx, brand, &row).await?;
    Ok(Reply::at(&format!("/brands/{brand}/snippets/{}", created.id), Snippet::from(created)))
}
