//! `POST /brands/{brand}/social-accounts/{account}/refresh`

use std::time::Duration;

use chrono::TimeDelta;
use crier_common::domain::access::Scope;
use crier_common::domain::account::{self, AccountError};
use crier_common::domain::failure::Failure;
use crier_common::platforms::{Account, CallError, Refreshed};
use crier_common::store::{Tx, accounts};
use secrecy::SecretString;

use super::{SocialAccount, TAG, unavailable};
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::{Endpoint, Finish, Shape};
use crate::error::{ApiError, Code, Result};

/// How long a process that dies in the middle keeps others from refreshing; longer than a request waits.
const LEASE: TimeDelta = TimeDelta::seconds(30);
const TURN: Duration = Duration::from_millis(200);

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/social-accounts/{account}/refresh", "refreshSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .summary("Renew an account's access")
        .description("Gets new tokens, or checks credentials that do not expire. An expired account becomes active.")
        .answers::<SocialAccount>(200, Shape::One)
        .refuses(&[Code::ReconnectRequired, Code::PlatformUnavailable])
        .holds_then_writes(prepare)
}

fn reconnect() -> ApiError {
    let message = "The platform no longer accepts what this account was connected with. Connect the account again.";
    ApiError::new(Code::ReconnectRequired, message)
}

async fn prepare(cx: &Context) -> Result<Finish> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let mut conn = cx.app.store.read().await?;
    accounts::find(&mut conn, brand, id).await?.ok_or_else(|| ApiError::not_found("social account"))?;
    drop(conn);
    take_turn(cx, id).await?;
    let asked = ask(cx, id).await;
    if !matches!(asked, Ok((_, Ok(_)))) {
        end_turn(cx, id).await?;
    }
    let (account, refreshed) = asked?;
    match refreshed {
        Ok(refreshed) => Ok(Finish::with((account, refreshed), |cx, tx, found| {
            Box::pin(async move { save(cx, tx, &found.0, &found.1).await })
        })),
        Err(CallError::AuthExpired(failure) | CallError::Reauth(failure)) => {
            expire(cx, id, failure).await?;
            Err(reconnect())
        }
        // A passing failure never expires an account.
        Err(error) => Err(unavailable(error.failure().message.clone())),
    }
}

/// Waits for the account's refresh to be ours: a worker may be at it, and a token that rotates is good for one of us alone.
async fn take_turn(cx: &Context, account_id: i64) -> Result<()> {
    // The request's own patience ends the waiting.
    loop {
        let mut tx = cx.app.store.begin().await?;
        let ours = accounts::begin_refresh(&mut tx, account_id, LEASE).await?;
        tx.commit().await?;
        if ours {
            return Ok(());
        }
        tokio::time::sleep(TURN).await;
    }
}

async fn end_turn(cx: &Context, account_id: i64) -> Result<()> {
    let mut tx = cx.app.store.begin().await?;
    accounts::end_refresh(&mut tx, account_id).await?;
    Ok(tx.commit().await?)
}

/// Asks the platform, with the secrets as they are now that it is our turn.
async fn ask(cx: &Context, id: i64) -> Result<(account::SocialAccount, std::result::Result<Refreshed, CallError>)> {
    let mut conn = cx.app.store.read().await?;
    let found = accounts::with_secrets(&mut conn, cx.app.store.cipher(), id).await?;
    let (account, secrets) = found.ok_or_else(|| ApiError::not_found("social account"))?;
    drop(conn);
    let connector = cx.app.platforms.get(account.platform).ok_or_else(reconnect)?;
    let refreshed = connector.refresh(&Account::stored(&account, &secrets)?).await;
    Ok((account, refreshed))
}

/// The platform refuses the token: that is so whatever becomes of this request.
async fn expire(cx: &Context, account_id: i64, failure: Failure) -> Result<()> {
    let mut tx = cx.app.store.begin().await?;
    let error = AccountError { code: "account_expired".into(), message: failure.message };
    accounts::expire(&mut tx, account_id, &error).await?;
    Ok(tx.commit().await?)
}

async fn save(cx: &Context, tx: &mut Tx, account: &account::SocialAccount, new: &Refreshed) -> Result<Answer> {
    let secrets = new.secrets.as_ref().map(|s| SecretString::from(s.expose_json()));
    let renewed = accounts::renew(tx, account, secrets.as_ref(), new.token_expires_at).await?;
    // It may have been disconnected while the platform was asked.
    accounts::find(tx, cx.brand()?.id, account.id).await?.ok_or_else(|| ApiError::not_found("social account"))?;
    Answer::ok(SocialAccount::from(renewed.ok_or_else(|| ApiError::not_found("social account"))?))
}
