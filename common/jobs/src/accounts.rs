//! Changes of an account outside of a request: its credentials are rejected, or its access ends soon. The transaction
//! that records the change emits an event to each brand with the account, and notifies the members who can reconnect
//! it.

use crier_domain::account::{AccountError, AccountStatus, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::notice::NoticeKind;
use crier_store::{Result, Tx, account_tokens, accounts, events, notices};
use serde_json::json;

/// Marks the credentials of this version as rejected by the platform. `reason` is shown to the account's owners.
/// Returns `false` if the account was deleted or has newer credentials. The first time, emits `account.expired` and
/// notifies the members.
pub async fn expire(tx: &mut Tx, account_id: i64, version: i64, reason: &str, trace: Option<&str>) -> Result<bool> {
    account_tokens::lock(tx, account_id).await?;
    let error = AccountError { code: "account_expired".to_owned(), message: reason.to_owned() };
    let before = accounts::status(tx, account_id).await?;
    if !accounts::expire(tx, account_id, version, &error).await? {
        return Ok(false);
    }
    let Some((AccountStatus::Active, platform)) = before else { return Ok(true) };
    for brand in account_tokens::brands(tx, account_id).await? {
        let data = json!({ "brand_id": brand, "social_account_id": account_id, "platform": platform, "error": error });
        events::emit(tx, brand, EventName::AccountExpired, &data, trace).await?;
    }
    notices::add_for_account(tx, NoticeKind::AccountExpired, account_id).await?;
    Ok(true)
}

/// Emits `account.expiring` for an account whose access ends at `end`, and notifies the members.
pub async fn warn(
    tx: &mut Tx,
    account: &SocialAccount,
    end: chrono::DateTime<chrono::Utc>,
    trace: Option<&str>,
) -> Result<()> {
    let expires_at = end.to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    for brand in account_tokens::brands(tx, account.id).await? {
        let data = json!({
            "brand_id": brand,
            "social_account_id": account.id,
            "platform": account.platform,
            "expires_at": expires_at,
        });
        events::emit(tx, brand, EventName::AccountExpiring, &data, trace).await?;
    }
    notices::add_for_account(tx, NoticeKind::AccountExpiring, account.id).await
}
