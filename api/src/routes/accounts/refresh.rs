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
    let turn = take_turn(cx, id).await?;
    let asked = ask(cx, id).await;
    if !matches!(asked, Ok((_, Ok(_)))) {
        end_turn(cx, id, turn).await?;
    }
    let (account, refreshed) = asked?;
    let refreshed = match refreshed {
        Ok(refreshed) => Some(refreshed),
        Err(CallError::AuthExpired(failure) | CallError::Reauth(failure)) => {
            if !outdated(cx, &account, failure).await? {
                return Err(reconnect());
            }
            None
        }
        // A passing failure never expires an account.
        Err(error) => return Err(unavailable(error.failure().message.clone())),
    };
    Ok(Finish::with((account, refreshed), |cx, tx, found| {
        Box::pin(async move { save(cx, tx, &found.0, found.1.as_ref()).await })
    }))
}

/// Waits for the account's refresh to be ours: a worker may be at it, and a token that rotates is good for one of us alone.
/// Gives the version of the credentials that the turn is for.
async fn take_turn(cx: &Context, account_id: i64) -> Result<i64> {
    // The request's own patience ends the waiting.
    loop {
        let mut tx = cx.app.store.begin().await?;
        let ours = accounts::begin_refresh(&mut tx, account_id, LEASE).await?;
        tx.commit().await?;
        if let Some(version) = ours {
            return Ok(version);
        }
        tokio::time::sleep(TURN).await;
    }
}

async fn end_turn(cx: &Context, account_id: i64, version: i64) -> Result<()> {
    let mut tx = cx.app.store.begin().await?;
    accounts::end_refresh(&mut tx, account_id, version).await?;
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

/// The platform refuses the token: that is so whatever becomes of this request. Gives whether the account was connected
/// again meanwhile: what was refused is then no business of its any more.
async fn outdated(cx: &Context, account: &account::SocialAccount, failure: Failure) -> Result<bool> {
    let (id, version) = (account.id, account.credentials_version);
    let mut tx = cx.app.store.begin().await?;
    let error = AccountError { code: "account_expired".into(), message: failure.message };
    let outdated =
        !accounts::expire(&mut tx, id, version, &error).await? && accounts::has_newer(&mut tx, id, version).await?;
    tx.commit().await?;
    Ok(outdated)
}

/// Stores what is new, unless the account was connected again while the platform was asked: what was stored then stays.
async fn save(cx: &Context, tx: &mut Tx, account: &account::SocialAccount, new: Option<&Refreshed>) -> Result<Answer> {
    if let Some(new) = new {
        let secrets = new.secrets.as_ref().map(|s| SecretString::from(s.expose_json()));
        accounts::renew(tx, account, secrets.as_ref(), new.token_expires_at).await?;
    }
    // It may have been disconnected, too.
    let found = accounts::find(tx, cx.brand()?.id, account.id).await?;
    Answer::ok(SocialAccount::from(found.ok_or_else(|| ApiError::not_found("social account"))?))
}
