//! `POST /brands/{brand}/social-accounts/{account}/refresh`

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use crier_domain::access::Scope;
use crier_domain::account;
use crier_domain::failure::Failure;
use crier_platforms::{CallError, ConnectorAccount, RefreshedTokens};
use crier_store::{Tx, account_tokens, accounts};
use secrecy::SecretString;

use super::{SocialAccount, TAG, unavailable};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The duration of the lease of a refresh. A process that dies blocks other refreshes for this long. Longer than the
/// request timeout.
const LEASE_DURATION: TimeDelta = TimeDelta::seconds(30);
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(200);

pub fn endpoint() -> Endpoint<(), One<SocialAccount>> {
    Endpoint::post("/brands/{brand}/social-accounts/{account}/refresh", "refreshSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Renew an account's access")
        .description("Gets new tokens, or checks credentials that do not expire. An expired account becomes active.")
        .error_codes(&[ErrorCode::ReconnectRequired, ErrorCode::PlatformUnavailable])
        .leases_then_writes(prepare)
}

fn reconnect_required() -> ApiError {
    let message = "The platform no longer accepts this account's credentials. Connect the account again.";
    ApiError::new(ErrorCode::ReconnectRequired, message)
}

async fn prepare(cx: &Context, _: Arc<Parsed<()>>) -> Result<WriteStep<SocialAccount>> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let mut conn = cx.app.store.read().await?;
    accounts::find(&mut conn, brand, id).await?.ok_or_else(|| ApiError::not_found("social account"))?;
    drop(conn);
    if !can_refresh(cx, id).await? {
        return Err(reconnect_required());
    }
    let version = acquire_refresh_lease(cx, id).await?;
    let result = refresh_at_platform(cx, id).await;
    if !matches!(result, Ok((_, Ok(_)))) {
        release_refresh_lease(cx, id, version).await?;
    }
    let (account, refreshed) = result?;
    let refreshed = match refreshed {
        Ok(refreshed) => Some(refreshed),
        Err(CallError::AuthExpired(failure) | CallError::Reauth(failure)) => {
            if !expire_unless_reconnected(cx, &account, failure).await? {
                return Err(reconnect_required());
            }
            None
        }
        // A transient failure never expires an account.
        Err(error) => return Err(unavailable(error.failure().message.clone())),
    };
    Ok(WriteStep::new((account, refreshed), |cx, tx, found| {
        Box::pin(async move { save(cx, tx, &found.0, found.1.as_ref()).await })
    }))
}

/// Returns whether the account has a token to refresh, or credentials to check.
async fn can_refresh(cx: &Context, account_id: i64) -> Result<bool> {
    let tokens = account_tokens::find(&mut cx.app.store.read().await?, account_id).await?;
    Ok(tokens.is_none_or(|tokens| tokens.renewal.can_refresh(tokens.token_expires_at)))
}

/// Waits for the lease on the account's refresh: a worker may be refreshing, and a rotating refresh token works only
/// once. Returns the version of the credentials that the lease covers.
async fn acquire_refresh_lease(cx: &Context, account_id: i64) -> Result<i64> {
    // The request timeout ends the loop.
    loop {
        let mut tx = cx.app.store.begin().await?;
        let acquired = accounts::begin_refresh(&mut tx, account_id, LEASE_DURATION).await?;
        tx.commit().await?;
        if let Some(version) = acquired {
            return Ok(version);
        }
        tokio::time::sleep(LEASE_POLL_INTERVAL).await;
    }
}

async fn release_refresh_lease(cx: &Context, account_id: i64, version: i64) -> Result<()> {
    let mut tx = cx.app.store.begin().await?;
    accounts::end_refresh(&mut tx, account_id, version).await?;
    Ok(tx.commit().await?)
}

/// Refreshes at the platform, with the secrets read under the lease.
async fn refresh_at_platform(
    cx: &Context,
    id: i64,
) -> Result<(account::SocialAccount, std::result::Result<RefreshedTokens, CallError>)> {
    let mut conn = cx.app.store.read().await?;
    let found = accounts::with_secrets(&mut conn, cx.app.store.cipher(), id).await?;
    let (account, secrets) = found.ok_or_else(|| ApiError::not_found("social account"))?;
    drop(conn);
    let connector = cx.app.platforms.get(account.platform).ok_or_else(reconnect_required)?;
    let refreshed = connector.refresh(&ConnectorAccount::stored(&account, &secrets)).await;
    Ok((account, refreshed))
}

/// Records that the platform rejected the token, in a transaction of its own, so that it persists if the request fails.
/// Returns whether the account was reconnected in the meantime, which makes the rejection obsolete.
async fn expire_unless_reconnected(cx: &Context, account: &account::SocialAccount, failure: Failure) -> Result<bool> {
    let (id, version) = (account.id, account.credentials_version);
    let mut tx = cx.app.store.begin().await?;
    let outdated = !crier_jobs::accounts::expire(&mut tx, id, version, &failure.message, cx.trace()).await?
        && accounts::has_newer(&mut tx, id, version).await?;
    tx.commit().await?;
    Ok(outdated)
}

/// Stores the new tokens, unless the account was reconnected during the platform call and has newer ones.
async fn save(
    cx: &Context,
    tx: &mut Tx,
    account: &account::SocialAccount,
    new: Option<&RefreshedTokens>,
) -> Result<Reply<SocialAccount>> {
    if let Some(new) = new {
        let secrets = new.secrets.as_ref().map(|s| SecretString::from(s.expose_json()));
        accounts::renew(tx, account, secrets.as_ref(), new.times()).await?;
    }
    // The account may also have been disconnected.
    let found = accounts::find(tx, cx.brand()?.id, account.id).await?;
    Ok(Reply::from(SocialAccount::from(found.ok_or_else(|| ApiError::not_found("social account"))?)))
}
