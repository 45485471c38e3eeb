//! `POST /brands/{brand}/posts/split`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::catalogue::descriptor;
use crier_domain::post::MAX_THREAD;
use crier_platforms::text::split::{self, SplitAccount};
use crier_store::{Conn, accounts};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::TAG;
use super::request::{MAX_ACCOUNTS, MAX_CONTENT_CHARS};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Problems;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};
use crier_posts::check::{Accounts, missing_account};

/// The maximum number of parts: the post and its thread.
const MAX_PARTS: usize = MAX_THREAD + 1;

/// The text to split.
#[derive(Clone, Debug, Request)]
#[request(name = "TextToSplit")]
pub struct SplitPostRequest {
    #[field(text(1..=MAX_CONTENT_CHARS), example = "Fresh bread from 7 o'clock.")]
    pub content: String,
    /// The IDs of accounts of the brand. Each part fits on all of them.
    #[field(ids(MAX_ACCOUNTS), example = [1])]
    pub accounts: Vec<i64>,
}

/// The parts of a text.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SplitText {
    /// The texts of the parts, at most 25. The first one is the text of the post.
    #[schemars(extend("examples" = [["Fresh bread from 7 o'clock."]]))]
    pub parts: Vec<String>,
}

pub fn endpoint() -> Endpoint<SplitPostRequest, One<SplitText>> {
    Endpoint::post("/brands/{brand}/posts/split", "splitPost", Scope::PostsRead)
        .tag(TAG)
        .summary("Split a text into the parts of a thread")
        .description(
            "Proposes parts that fit on all accounts, as their platforms count. A part ends at a paragraph, or else at a \
             sentence or a word, and never within a link, a mention or a tag. The first part leaves space for the \
             signatures of the accounts. Writes nothing, so a test key works too, and no `Idempotency-Key` is needed.",
        )
        .extension()
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_reads(split)
}

async fn split(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<SplitPostRequest>>) -> Result<Reply<SplitText>> {
    let request = parsed.valid()?;
    let found = accounts::summaries(conn, cx.brand()?.id, &request.accounts).await?;
    let found: Accounts = found.into_iter().map(|account| (account.id, account)).collect();
    check(request, &found)?;
    let rules: Vec<_> = found.values().map(|a| descriptor(a.platform).with_limits(a.limits.as_ref())).collect();
    let accounts = found.values().zip(&rules);
    let accounts: Vec<_> = accounts
        .map(|(account, rules)| SplitAccount { descriptor: rules, signature: account.signature.as_deref() })
        .collect();
    let parts = split::split(&request.content, &accounts, MAX_PARTS);
    let parts = parts.map_err(|error| ApiError::field("content", error.to_string()))?;
    Ok(Reply::from(SplitText { parts: parts.into_iter().map(str::to_owned).collect() }))
}

fn check(request: &SplitPostRequest, found: &Accounts) -> Result<()> {
    let problems = Problems::default();
    if request.content.trim().is_empty() {
        problems.add("content", "Enter a text.");
    }
    if request.accounts.is_empty() {
        problems.add("accounts", "Choose at least one account.");
    }
    for (i, id) in request.accounts.iter().enumerate() {
        if !found.contains_key(id) {
            problems.add(format!("accounts.{i}"), missing_account(*id));
        }
    }
    problems.into_result()?;
    Ok(())
}
