//! `POST /brands/{brand}/social-accounts/{account}/sync`

use crier_domain::access::Scope;
use crier_domain::account::AccountStatus;
use crier_domain::catalogue::descriptor;
use crier_store::{Tx, accounts, inbox_syncs};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::response::{One, Reply, Timestamp};
use crate::routes::posts::TargetError;

/// The sync state of an account's inbox.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct InboxSync {
    pub account_id: i64,
    /// The time at which all messages were last read.
    pub synced_at: Option<Timestamp>,
    /// The reason the last sync failed, at least in part, or what the platform does not allow the account to read.
    pub last_error: Option<TargetError>,
}

pub fn endpoint() -> Endpoint<(), One<InboxSync>> {
    Endpoint::post("/brands/{brand}/social-accounts/{account}/sync", "syncSocialAccount", Scope::InboxWrite)
        .tag(TAG)
        .adds(Growth::Texts)
        .summary("Sync an account's inbox")
        .description(
            "Crier also checks accounts regularly, most of them every minute. If a sync was requested shortly before, the \
             next one begins when a fifth of the platform's interval has passed. The response describes earlier syncs.",
        )
        .extension()
        .features(FEATURES)
        .status(202)
        .error_codes(&[ErrorCode::ReconnectRequired, ErrorCode::PlatformCapabilityUnavailable])
        .writes(sync)
}

async fn sync(cx: &Context, tx: &mut Tx) -> Result<Reply<InboxSync>> {
    let (brand, id) = (cx.brand()?.id, cx.id("account")?);
    let account = accounts::find(tx, brand, id).await?.ok_or_else(|| ApiError::not_found("social account"))?;
    let connector = cx.app.platforms.get(account.platform);
    let name = descriptor(account.platform).name;
    let unavailable = |message| Err(ApiError::new(ErrorCode::PlatformCapabilityUnavailable, message));
    let interval = match connector.as_ref().and_then(|connector| connector.inbox()) {
        None => return unavailable(format!("Crier cannot read messages on {name}.")),
        Some(inbox) if !inbox.reads(&account.external_id) => {
            return unavailable(format!("{name} does not let applications read messages to this type of account."));
        }
        Some(inbox) => inbox.interval(),
    };
    if account.status == AccountStatus::Expired {
        let message = "The account's access has expired. Refresh or reconnect it first.";
        return Err(ApiError::new(ErrorCode::ReconnectRequired, message));
    }
    inbox_syncs::request(tx, id, account.workspace_id, interval, cx.trace()).await?;
    let sync = inbox_syncs::find(tx, id).await?;
    let found = InboxSync {
        account_id: id,
        synced_at: sync.as_ref().and_then(|sync| sync.synced_at).map(Timestamp),
        last_error: sync.and_then(|sync| sync.last_error).map(Into::into),
    };
    Ok(Reply::at(&format!("/brands/{brand}/conversations?account_id={id}"), found))
}
