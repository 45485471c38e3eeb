//! Saves a connected account: the last step of connecting one, with credentials or in a browser.

use crier_domain::account::SocialAccount;
use crier_domain::event::EventName;
use crier_domain::platform::Platform;
use crier_platforms::grant::are_same_credentials;
use crier_platforms::sandbox::handle_taken;
use crier_platforms::{ConnectError, Connected, ConnectorAccount, Secrets};
use crier_store::account_holders::{self, ExistingAccount};
use crier_store::accounts::{self, NewAccount};
use crier_store::{Conn, StoreError, Tx, brands, events, inbox_syncs, sandbox};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

use super::revoke::revoke_later;
use crate::app::App;

/// The brand that an account is connected to, and the limits that apply.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub workspace_id: i64,
    pub brand_id: i64,
    /// The user who connects the account. `None` for the operator.
    pub user_id: Option<i64>,
    /// The API key with which the user connects the account, if its limits apply.
    pub key_id: Option<i64>,
    /// The plan's maximum number of accounts per brand.
    pub cap: Option<u64>,
    pub trace: Option<&'a str>,
}

/// The reason why an account was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The brand has the maximum number of accounts of its plan.
    #[error("the plan allows {0} accounts")]
    Full(u64),
    /// Brands whose accounts the user or the key cannot connect have the account, with different credentials.
    #[error("{OWNED_BY_OTHERS}")]
    OwnedByOthers,
    #[error(transparent)]
    Rejected(ConnectError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The reason why an account of other brands was not connected.
pub const OWNED_BY_OTHERS: &str =
    "This account is connected, with different credentials, to a brand whose accounts you cannot connect.";

fn is_full(count: i64, cap: u64) -> bool {
    count >= i64::try_from(cap).unwrap_or(i64::MAX)
}

/// Returns the cap if the brand has reached it, before the platform is called. A brand that already has accounts of the
/// platform passes, because only the platform's response shows whether this is one of them.
pub async fn cap_reached(
    conn: &mut Conn,
    brand_id: i64,
    cap: Option<u64>,
    platform: Platform,
) -> Result<Option<u64>, StoreError> {
    let Some(cap) = cap else { return Ok(None) };
    let has_room = !is_full(accounts::count(conn, brand_id).await?, cap);
    Ok((!has_room && !accounts::has_platform(conn, brand_id, platform).await?).then_some(cap))
}

/// Saves the account, attaches it to the brand and emits `account.connected`. Replaced credentials are revoked.
/// `granted_scopes` are those of the user's consent, if the account was connected in a browser.
pub async fn save_account(
    tx: &mut Tx,
    app: &App,
    place: Place<'_>,
    platform: Platform,
    connected: &Connected,
    granted_scopes: Option<&[String]>,
) -> Result<SocialAccount, SaveError> {
    let (workspace, brand) = (place.workspace_id, place.brand_id);
    let platforms = &app.platforms;
    // A concurrent connection of the same account waits, so that each sees which brands have it.
    brands::lock_workspace(tx, workspace).await?;
    if let Some(cap) = place.cap {
        let is_reconnect = accounts::has_external(tx, brand, platform, &connected.external_id).await?;
        if !is_reconnect && is_full(accounts::count(tx, brand).await?, cap) {
            return Err(SaveError::Full(cap));
        }
    }
    // Another workspace may have claimed the handle since the platform checked it.
    if platforms.get(platform).is_some_and(|connector| connector.claims_handle())
        && !sandbox::claim_handle(tx, workspace, &connected.external_id).await?
    {
        return Err(SaveError::Rejected(handle_taken(&connected.external_id)));
    }
    let cipher = tx.cipher.clone();
    let former = account_holders::find_external(tx, &cipher, workspace, platform, &connected.external_id).await?;
    let replaced = former.as_ref().and_then(replaced_credentials);
    if let Some(former) = &former {
        check_not_owned_by_others(tx, app, place, former, replaced.as_ref(), connected).await?;
    }
    let secrets = with_former_refresh_token(replaced.as_ref(), connected);
    let new = NewAccount {
        platform,
        external_id: connected.external_id.clone(),
        name: connected.name.clone(),
        username: connected.username.clone(),
        profile_url: connected.profile_url.clone(),
        avatar_url: connected.avatar_url.clone(),
        kind: connected.kind,
        token_expires_at: connected.token_expires_at,
        renewal: connected.renewal,
        limits: connected.limits.clone(),
        granted_scopes: granted_scopes.map(<[String]>::to_vec),
        application: connected.application.clone(),
        secrets: SecretString::from(secrets.expose_json()),
    };
    let account = accounts::save(tx, workspace, &new).await?;
    accounts::attach(tx, brand, account.id).await?;
    if let Some(replaced) = replaced {
        revoke_later(app, tx, platform, replaced);
    }
    if !platforms.descriptor(platform).capabilities.inbox.is_empty() {
        inbox_syncs::start(tx, account.id).await?;
    }
    let data = json!({ "brand_id": brand, "social_account_id": account.id, "platform": platform });
    events::emit(tx, brand, EventName::AccountConnected, &data, place.trace).await?;
    Ok(account)
}

fn replaced_credentials(former: &ExistingAccount) -> Option<ConnectorAccount> {
    former.secrets.as_ref().map(|secrets| ConnectorAccount::stored(&former.account, secrets))
}

/// Fails if the account belongs to brands whose accounts the user or the key cannot connect, and the credentials
/// differ: they would replace the credentials with which these brands publish.
async fn check_not_owned_by_others(
    tx: &mut Tx,
    app: &App,
    place: Place<'_>,
    former: &ExistingAccount,
    replaced: Option<&ConnectorAccount>,
    connected: &Connected,
) -> Result<(), SaveError> {
    let Some(user) = place.user_id else { return Ok(()) };
    let descriptor = app.platforms.descriptor(former.account.platform);
    let is_same = |replaced: &ConnectorAccount| are_same_credentials(descriptor, &replaced.secrets, &connected.secrets);
    if replaced.is_some_and(is_same) {
        return Ok(());
    }
    match account_holders::belongs_to_others(tx, former.account.id, place.brand_id, user, place.key_id).await? {
        true => Err(SaveError::OwnedByOthers),
        false => Ok(()),
    }
}

/// Returns the new secrets, with the former refresh token if they have none and the application is the same. Some
/// platforms issue a refresh token only with the first consent.
fn with_former_refresh_token(former: Option<&ConnectorAccount>, connected: &Connected) -> Secrets {
    let new = &connected.secrets;
    if connected.application.is_none() || new.get("refresh_token").is_some() {
        return new.clone();
    }
    let id = |secrets: &Secrets| secrets.get("client_id").map(|id| id.expose_secret().to_owned());
    let former = former.map(|former| &former.secrets).filter(|former| id(former) == id(new));
    match former.and_then(|former| former.get("refresh_token")) {
        Some(token) => new.with(&[("refresh_token", token.expose_secret())]),
        None => new.clone(),
    }
}
