//! The snippets of a brand. A snippet of the kind `signature` can be the signature of an account
//! (`routes/accounts/update.rs`), and is then part of posts (`crier_posts::DesiredPost::sign`).

use crier_domain::snippet::{self, MAX_SNIPPETS_TEXT, SnippetKind};
use crier_store::{Tx, brands, snippets};
use schemars::JsonSchema;
use serde::Serialize;

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

pub mod create;
pub mod delete;
pub mod list;
pub mod update;

pub const TAG: &str = "Snippets";

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![list::endpoint().erase(), create::endpoint().erase(), update::endpoint().erase(), delete::endpoint().erase()]
}

/// A text that members of a brand insert into posts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Snippet {
    pub id: i64,
    #[schemars(extend("examples" = ["Opening hours"]))]
    pub name: String,
    /// The kind of the snippet. Only a `signature` can be the signature of an account.
    #[schemars(with = "TextEnum<SnippetKind>")]
    pub kind: SnippetKind,
    #[schemars(extend("examples" = ["Open from 6 to 18, closed on Mondays."]))]
    pub content: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<snippet::Snippet> for Snippet {
    fn from(s: snippet::Snippet) -> Self {
        Self {
            id: s.id,
            name: s.name,
            kind: s.kind,
            content: s.content,
            created_at: s.created_at.into(),
            updated_at: s.updated_at.into(),
        }
    }
}

fn missing() -> ApiError {
    ApiError::not_found("snippet")
}

/// Locks and returns the snippet in the path; 404 if it does not exist. Fails for contributors if it is the signature of
/// an account: it becomes part of posts that others publish.
async fn lock(cx: &Context, tx: &mut Tx) -> Result<snippet::Snippet> {
    let found = snippets::find_for_update(tx, cx.brand()?.id, cx.id("snippet")?).await?.ok_or_else(missing)?;
    if !cx.role()?.can_publish() && snippets::is_used(tx, found.id).await? {
        return Err(ApiError::for_publishers());
    }
    Ok(found)
}

/// Locks the brand's row. Fails with 422 if the contents of the brand's snippets would exceed the limit with `added`
/// more bytes. Returns the number of its snippets.
async fn check_size(cx: &Context, tx: &mut Tx, added: usize) -> Result<i64> {
    let brand = cx.brand()?.id;
    brands::lock(tx, brand).await?;
    let (count, bytes) = snippets::size(tx, brand).await?;
    let total = usize::try_from(bytes).unwrap_or_default().saturating_add(added);
    if total > MAX_SNIPPETS_TEXT {
        let message = format!(
            "The contents of a brand's snippets can have at most {MAX_SNIPPETS_TEXT} bytes in total; these would have \
             {total}. Delete some first."
        );
        return Err(ApiError::field("content", message));
    }
    Ok(count)
}
