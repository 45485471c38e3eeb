//! `PUT /brands/{brand}/social-accounts/{account}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::snippet::SnippetKind;
use crier_store::{Tx, accounts, snippets};

use super::{SocialAccount, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// Changes to an account. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct SocialAccountChange {
    /// The ID of a snippet of the kind `signature`. It is appended to the texts of the brand's posts on this account.
    /// Null removes the signature.
    #[field(id(), example = 4)]
    pub signature_id: PatchField<i64>,
}

pub fn endpoint() -> Endpoint<SocialAccountChange, One<SocialAccount>> {
    Endpoint::put("/brands/{brand}/social-accounts/{account}", "updateSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Update an account")
        .description(
            "The signature applies to posts that are created or updated from then on. Other brands that have the account \
             keep their own signatures.",
        )
        .extension()
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(update)
}

async fn update(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<SocialAccountChange>>) -> Result<Reply<SocialAccount>> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let missing = || ApiError::not_found("social account");
    let mut account = accounts::find(tx, brand, id).await?.ok_or_else(missing)?;
    let signature = parsed.valid()?.signature_id.clone();
    if let PatchField::Value(snippet) = signature {
        check_signature(tx, brand, snippet).await?;
    }
    let signature = signature.map(Some).apply_to(account.signature_id, None);
    if !snippets::set_signature(tx, brand, id, signature).await? {
        return Err(missing());
    }
    account.signature_id = signature;
    Ok(Reply::from(SocialAccount::from(account)))
}

/// Locks the snippet. Fails with 422 if it is not a signature of the brand.
async fn check_signature(tx: &mut Tx, brand: i64, snippet: i64) -> Result<()> {
    let message = match snippets::find_for_update(tx, brand, snippet).await? {
        Some(found) if found.kind == SnippetKind::Signature => return Ok(()),
        Some(_) => format!("Snippet {snippet} is not a signature. Choose a snippet of the kind `signature`."),
        None => format!("Snippet {snippet} does not exist in this brand."),
    };
    Err(ApiError::field("signature_id", message))
}
