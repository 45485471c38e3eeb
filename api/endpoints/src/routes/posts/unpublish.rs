//! `POST /brands/{brand}/posts/{post}/unpublish`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::account::AccountSummary;
use crier_domain::failure::Failure;
use crier_domain::post::{PostStatus, Target, TargetStatus};
use crier_jobs::unpublishing;
use crier_platforms::permissions::{self, Action};
use crier_store::{Tx, accounts, targets};

use super::request::MAX_ACCOUNTS;
use super::{PostDetail, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, FieldProblems, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The maximum number of accounts that an error names.
const MAX_NAMED: usize = 10;

/// The accounts from which a post is deleted.
#[derive(Clone, Debug, Default, Request)]
#[request(name = "Unpublish", check = check)]
pub struct UnpublishPostRequest {
    /// The IDs of accounts of the post. Default: all accounts on which it is published.
    #[field(ids(MAX_ACCOUNTS), example = [1])]
    pub accounts: Option<Vec<i64>>,
}

fn check(request: &UnpublishPostRequest, fields: &Fields<'_>) {
    if request.accounts.as_ref().is_some_and(Vec::is_empty) && !fields.problems.has("accounts") {
        fields.problem("accounts", "Choose at least one account.");
    }
}

pub fn endpoint() -> Endpoint<UnpublishPostRequest, One<PostDetail>> {
    Endpoint::post("/brands/{brand}/posts/{post}/unpublish", "unpublishPost", Scope::PostsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Delete a post from its platforms")
        .description(
            "After the response, Crier deletes the post from each account on which it is published, with retries as for \
             publishing. Each target is `unpublishing`, and then `unpublished`. If the post cannot be deleted, the target \
             is `published` again and has an `error`. To find out the result, get the post or subscribe to \
             `post.unpublished`. The post itself and its status do not change. If Crier cannot delete the post from any of \
             the accounts, the response is 422 `platform_capability_unavailable` with the reasons.",
        )
        .extension()
        .body_is_optional()
        .status(202)
        .error_codes(&[
            ErrorCode::ValidationFailed,
            ErrorCode::PlatformCapabilityUnavailable,
            ErrorCode::PostNotEditable,
        ])
        .checks_then_writes(unpublish)
        .with_rerender("post", show::show)
}

async fn unpublish(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<UnpublishPostRequest>>) -> Result<Reply<PostDetail>> {
    let post = lock(cx, tx).await?;
    let request = parsed.valid()?;
    let chosen = choose(targets::list(tx, post.id).await?, request.accounts.as_deref())?;
    if post.status == PostStatus::Publishing {
        return Err(not_editable("The post is being published. Unpublish it when publishing has finished."));
    }
    let is_published = |target: &&Target| target.status == TargetStatus::Published;
    let published: Vec<&Target> = chosen.iter().filter(is_published).collect();
    let is_begun = |target: &Target| matches!(target.status, TargetStatus::Unpublishing | TargetStatus::Unpublished);
    let is_repeated = chosen.iter().any(is_begun);
    if published.is_empty() && !is_repeated {
        return Err(not_editable("The post is not published on these accounts, so it cannot be unpublished."));
    }
    let account_ids: Vec<i64> = published.iter().map(|target| target.account_id).collect();
    let accounts = accounts::summaries(tx, post.brand_id, &account_ids).await?;
    let (mut rejected, mut deletable) = (Vec::new(), Vec::new());
    for target in published {
        match rejection(target, &accounts) {
            Some(failure) => rejected.push((target, failure)),
            None => deletable.push(target),
        }
    }
    // A repeated request succeeds like the first one, which deletes the post from some of the accounts only.
    if deletable.is_empty() && !rejected.is_empty() && !is_repeated {
        return Err(unavailable(&rejected));
    }
    for (target, failure) in &rejected {
        targets::unpublishing::reject(tx, target.id, failure).await?;
    }
    if !unpublishing::begin(tx, &deletable, cx.caller.workspace_id, cx.trace()).await? {
        return Err(not_editable("The post is being processed. Retry when processing has finished."));
    }
    let path = format!("/brands/{}/posts/{}", post.brand_id, post.id);
    Ok(Reply::at(&path, PostDetail::load(tx, post).await?))
}

/// Returns the targets of these accounts, or all targets. Fails if an account is not one of the post's accounts.
fn choose(mut all: Vec<Target>, accounts: Option<&[i64]>) -> Result<Vec<Target>> {
    let Some(accounts) = accounts else { return Ok(all) };
    let unknown = accounts.iter().enumerate().filter(|(_, id)| all.iter().all(|target| target.account_id != **id));
    let problem = |(index, id): (usize, &i64)| {
        (format!("accounts.{index}"), vec![format!("Account {id} is not one of the post's accounts.")])
    };
    let problems: FieldProblems = unknown.map(problem).collect();
    if !problems.is_empty() {
        return Err(ApiError::validation(problems));
    }
    all.retain(|target| accounts.contains(&target.account_id));
    Ok(all)
}

/// Returns why Crier cannot delete the post of a target. Returns `None` if it can, as far as is known.
fn rejection(target: &Target, accounts: &[AccountSummary]) -> Option<Failure> {
    unpublishing::rejection(target).or_else(|| {
        let account = accounts.iter().find(|account| account.id == target.account_id)?;
        permissions::rejection(target.platform, account.granted_scopes.as_deref(), Action::Unpublish)
    })
}

fn not_editable(message: &'static str) -> ApiError {
    ApiError::new(ErrorCode::PostNotEditable, message)
}

/// Returns the error for a post that cannot be deleted from any of the accounts.
fn unavailable(rejected: &[(&Target, Failure)]) -> ApiError {
    let reasons =
        rejected.iter().map(|(target, failure)| format!("Account {}: {}", target.account_id, failure.message));
    let reasons: Vec<String> = reasons.take(MAX_NAMED).collect();
    ApiError::new(ErrorCode::PlatformCapabilityUnavailable, reasons.join(" "))
}
