//! `DELETE /brands/{brand}/social-accounts/{account}`

use std::time::Duration;

use crier_common::domain::access::Scope;
use crier_common::domain::account::{DisconnectResult, SocialAccount};
use crier_common::domain::event::EventName;
use crier_common::platforms::Account;
use crier_common::store::{Tx, accounts, events};
use serde_json::json;

use super::TAG;
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::{Endpoint, Finish, Shape};
use crate::error::{ApiError, Result};
use crate::openapi::schema::record;

/// Taking the grant back is a courtesy to the platform: it never holds a disconnect up for long.
const REVOKE: Duration = Duration::from_secs(5);

record! {
    /// What a disconnect did.
    pub struct Disconnected {
        /// `detached`: other brands still have the account. `revoked`: this was the last one; its tokens are gone.
        pub result: DisconnectResult,
        pub account_id: i64,
    }
}

pub fn endpoint() -> Endpoint {
    Endpoint::delete("/brands/{brand}/social-accounts/{account}", "disconnectSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .summary("Disconnect an account from a brand")
        .description(
            "Posts scheduled to it fail at their time with `account_disconnected`. Emits `account.disconnected`.",
        )
        .answers::<Disconnected>(200, Shape::One)
        .holds_then_writes(prepare)
}

async fn prepare(cx: &Context) -> Result<Finish> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let mut conn = cx.app.store.read().await?;
    let found = accounts::find(&mut conn, brand, id).await?;
    let account = found.ok_or_else(|| ApiError::not_found("social account"))?;
    let last = accounts::attachments(&mut conn, id).await? == 1;
    drop(conn);
    if last {
        revoke(cx, &account).await;
    }
    Ok(Finish::with(account, |cx, tx, account| Box::pin(async move { disconnect(cx, tx, &account).await })))
}

/// Best effort: the tokens are deleted here in any case.
async fn revoke(cx: &Context, account: &SocialAccount) {
    let Some(connector) = cx.app.platforms.get(account.platform) else { return };
    let revoked = async {
        let mut conn = cx.app.store.read().await?;
        let found = accounts::with_secrets(&mut conn, cx.app.store.cipher(), account.id).await?;
        drop(conn);
        let Some((account, secrets)) = found else { return Ok(()) };
        let called = connector.revoke(&Account::stored(&account, &secrets)?).await;
        called.map_err(|error| ApiError::bug(error.to_string()))
    };
    match tokio::time::timeout(REVOKE, revoked).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::info!(account = account.id, cause = ?error.cause, "a platform's grant was not taken back")
        }
        Err(_) => tracing::info!(account = account.id, "a platform's grant was not taken back in time"),
    }
}

async fn disconnect(cx: &Context, tx: &mut Tx, account: &SocialAccount) -> Result<Answer> {
    let brand = cx.brand()?.id;
    let result = accounts::disconnect(tx, brand, account.id).await?;
    let result = result.ok_or_else(|| ApiError::not_found("social account"))?;
    let data = json!({
        "brand_id": brand, "social_account_id": account.id, "platform": account.platform, "result": result
    });
    events::emit(tx, brand, EventName::AccountDisconnected, &data, cx.trace()).await?;
    Answer::ok(Disconnected { result, account_id: account.id })
}
