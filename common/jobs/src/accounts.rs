//! Changes of an account outside of a request: its credentials are rejected, or its access ends soon. Each brand with
//! the account gets an event in the transaction that records the change, and the owners get an email.

use crier_domain::account::{AccountError, AccountStatus, SocialAccount};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_store::{Result, Tx, account_tokens, accounts, events, jobs};
use serde_json::json;

/// Marks the credentials of this version as rejected by the platform. `reason` is shown to the account's owners.
/// Returns `false` if the account was deleted or has newer credentials. The first time, emits `account.expired` and
/// enqueues the job that sends the owners an email.
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
    let job = NewJob::new(JobKind::RefreshToken, account_id, tx.now).lane(Lane::Refresh(account_id));
    jobs::enqueue(tx, &job.trace(trace.map(str::to_owned))).await?;
    Ok(true)
}

/// Emits `account.expiring` for an account whose access ends at `end`.
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
    Ok(())
}
