//! Saves a connected account: the last step of both ways to connect one.

use crier_domain::account::SocialAccount;
use crier_domain::event::EventName;
use crier_domain::platform::Platform;
use crier_platforms::{ConnectError, Connected, ConnectorRegistry, Secrets};
use crier_store::accounts::{self, NewAccount};
use crier_store::{Conn, StoreError, Tx, brands, events, inbox_syncs};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;

/// Where an account is connected.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    pub workspace_id: i64,
    pub brand_id: i64,
    /// How many accounts the plan allows for each brand.
    pub cap: Option<u64>,
    pub trace: Option<&'a str>,
}

/// Why an account was not saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The brand has as many accounts as its plan allows.
    #[error("the plan allows {0} accounts")]
    Full(u64),
    #[error(transparent)]
    Refused(ConnectError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn is_full(count: i64, cap: u64) -> bool {
    count >= i64::try_from(cap).unwrap_or(i64::MAX)
}

/// Returns the cap if the brand has reached it, before anything is asked of the platform. A brand that has accounts of
/// the platform has room: only the platform's answer shows whether this is one of them.
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

/// Saves the account, attaches it to the brand and emits `account.connected`.
pub async fn save_account(
    tx: &mut Tx,
    platforms: &ConnectorRegistry,
    place: Place<'_>,
    platform: Platform,
    connected: &Connected,
) -> Result<SocialAccount, SaveError> {
    let (workspace, brand) = (place.workspace_id, place.brand_id);
    if let Some(cap) = place.cap {
        brands::lock_workspace(tx, workspace).await?;
        let is_reconnect = accounts::has_external(tx, brand, platform, &connected.external_id).await?;
        if !is_reconnect && is_full(accounts::count(tx, brand).await?, cap) {
            return Err(SaveError::Full(cap));
        }
    }
    if let Some(connector) = platforms.get(platform) {
        connector.reserve(tx, workspace, connected).await?.map_err(SaveError::Refused)?;
    }
    let secrets = with_former_refresh_token(tx, workspace, platform, connected).await?;
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
        application: connected.application.clone(),
        secrets: SecretString::from(secrets.expose_json()),
    };
    let account = accounts::save(tx, workspace, &new).await?;
    accounts::attach(tx, brand, account.id).await?;
    if !platforms.descriptor(platform).capabilities.inbox.is_empty() {
        inbox_syncs::start(tx, account.id).await?;
    }
    let data = json!({ "brand_id": brand, "social_account_id": account.id, "platform": platform });
    events::emit(tx, brand, EventName::AccountConnected, &data, place.trace).await?;
    Ok(account)
}

/// Some platforms give a refresh token with the first consent only: the one that is there is kept, if it belongs to the
/// same application.
async fn with_former_refresh_token(
    tx: &mut Tx,
    workspace_id: i64,
    platform: Platform,
    connected: &Connected,
) -> Result<Secrets, StoreError> {
    let new = &connected.secrets;
    if connected.application.is_none() || new.get("refresh_token").is_some() {
        return Ok(new.clone());
    }
    let cipher = tx.cipher.clone();
    let found = accounts::find_external(tx, &cipher, workspace_id, platform, &connected.external_id).await?;
    let Some((_, former)) = found else { return Ok(new.clone()) };
    let former = Secrets::from_stored(&former)?;
    let id = |secrets: &Secrets| secrets.get("client_id").map(|id| id.expose_secret().to_owned());
    Ok(match former.get("refresh_token").filter(|_| id(&former) == id(new)) {
        Some(token) => new.with(&[("refresh_token", token.expose_secret())]),
        None => new.clone(),
    })
}
