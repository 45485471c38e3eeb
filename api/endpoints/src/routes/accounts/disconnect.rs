//! `DELETE /brands/{brand}/social-accounts/{account}`

use crier_domain::access::Scope;
use crier_domain::account::DisconnectResult;
use crier_domain::event::EventName;
use crier_platforms::ConnectorAccount;
use crier_store::{Tx, accounts, events};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::TAG;
use super::revoke::revoke_later;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::openapi::schema::TextEnum;
use crate::response::{One, Reply};

/// The result of disconnecting an account.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Disconnected {
    /// `detached`: other brands still have the account. `revoked`: no other brand has the account, and its tokens are
    /// deleted.
    #[schemars(with = "TextEnum<DisconnectResult>")]
    pub result: DisconnectResult,
    pub account_id: i64,
}

pub fn endpoint() -> Endpoint<(), One<Disconnected>> {
    Endpoint::delete("/brands/{brand}/social-accounts/{account}", "disconnectSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Disconnect an account from a brand")
        .description(
            "Posts that are scheduled for the account fail at their scheduled time with `account_disconnected`. Emits \
             `account.disconnected`.",
        )
        .writes(disconnect)
}

async fn disconnect(cx: &Context, tx: &mut Tx) -> Result<Reply<Disconnected>> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let missing = || ApiError::not_found("social account");
    let account = accounts::find(tx, brand, id).await?.ok_or_else(missing)?;
    let stored = load_stored(cx, tx, id).await;
    let result = accounts::disconnect(tx, brand, id).await?.ok_or_else(missing)?;
    let data = json!({ "brand_id": brand, "social_account_id": id, "platform": account.platform, "result": result });
    events::emit(tx, brand, EventName::AccountDisconnected, &data, cx.trace()).await?;
    if let (DisconnectResult::Revoked, Some(stored)) = (result, stored) {
        revoke_later(&cx.app, tx, account.platform, stored);
    }
    Ok(Reply::from(Disconnected { result, account_id: id }))
}

/// Loads the account with its secrets before they are deleted. `None` if they cannot be read, which does not prevent
/// the disconnect.
async fn load_stored(cx: &Context, tx: &mut Tx, id: i64) -> Option<ConnectorAccount> {
    let found = accounts::with_secrets(tx, cx.app.store.cipher(), id).await.unwrap_or_else(|error| {
        tracing::warn!(account = id, %error, "failed to read the secrets of an account");
        None
    });
    found.map(|(account, secrets)| ConnectorAccount::stored(&account, &secrets))
}
