//! `POST /brands/{brand}/social-accounts`

use crier_common::domain::access::Scope;
use crier_common::domain::event::EventName;
use crier_common::domain::platform::{Descriptor, Mode, Platform};
use crier_common::platforms::{ConnectError, Connected, Secrets};
use crier_common::store::accounts::NewAccount;
use crier_common::store::{Tx, accounts, brands, events};
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use super::{SocialAccount, TAG, interactive, not_configured, unavailable};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, Problems};
use crate::openapi::schema::request;
use crate::response::ApiResponse;

/// The maximum length of a credential; no platform's key or address is longer.
const MAX_CREDENTIAL_CHARS: usize = 2048;

request! {
    /// Credentials for one platform, by the fields that its descriptor lists.
    pub struct NewAccountCredentials {
        pub platform: Platform,
        pub credentials: Map<String, Value>,
    }
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/social-accounts", "connectSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .summary("Connect an account by credentials")
        .description(
            "The credentials are checked with the platform before they are saved. Connecting an account again renews its \
             credentials and makes it active. Emits `account.connected`.",
        )
        .body::<NewAccountCredentials>(json!({ "platform": "sandbox", "credentials": { "handle": "demo" } }))
        .response::<SocialAccount>(201, ResponseShape::Many)
        .error_codes(&[
            ErrorCode::ValidationFailed,
            ErrorCode::InvalidCredentials,
            ErrorCode::InteractiveSetupRequired,
            ErrorCode::PlatformNotConfigured,
            ErrorCode::LimitReached,
            ErrorCode::PlatformUnavailable,
        ])
        .leases_then_writes(prepare)
}

/// Checks the form, then the credentials with the platform.
async fn prepare(cx: &Context) -> Result<WriteStep> {
    let NewAccountCredentials { platform, credentials } = cx.read(|f| {
        let platform = f.required("platform", f.enum_value("platform"));
        let credentials = f.required("credentials", f.object("credentials").map(Clone::clone));
        Some(NewAccountCredentials { platform: platform?, credentials: credentials? })
    })?;
    let descriptor = cx.app.platforms.descriptor(platform);
    match descriptor.mode {
        Mode::SelfConnect => {}
        Mode::SelfConnectOauth => return Err(interactive(platform)),
        Mode::Oauth => {
            let message = format!("{platform} is connected in a browser: use social-accounts/authorize.");
            return Err(ApiError::field("platform", message));
        }
    }
    let secrets = parse_credentials(&credentials, descriptor)?;
    let connector = cx.app.platforms.get(platform).ok_or_else(|| not_configured(platform))?;
    check_room(cx, platform).await?;
    let connected = connector.connect(cx.caller.workspace_id, &secrets).await.map_err(refused)?;
    Ok(WriteStep::new((platform, connected), |cx, tx, found| {
        Box::pin(async move { save(cx, tx, found.0, &found.1).await })
    }))
}

/// Validates the form against the descriptor's credential fields and returns its values.
fn parse_credentials(form: &Map<String, Value>, descriptor: &Descriptor) -> Result<Secrets> {
    let problems = Problems::default();
    let within = Fields::new(form, &problems).within("credentials", form);
    let mut found = Map::new();
    for field in descriptor.credential_fields {
        let given = within.text(field.name, usize::from(field.required)..=MAX_CREDENTIAL_CHARS);
        let value = if field.required { within.required(field.name, given) } else { given.value() };
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            found.insert(field.name.to_owned(), Value::from(value));
        }
    }
    problems.into_result()?;
    Ok(Secrets::new(&found))
}

fn refused(error: ConnectError) -> ApiError {
    match error {
        ConnectError::Field { field, message } => ApiError::field(&format!("credentials.{field}"), message),
        ConnectError::Refused(message) => ApiError::new(ErrorCode::InvalidCredentials, message),
        ConnectError::Unavailable(message) => unavailable(message),
    }
}

fn full(cap: u64) -> ApiError {
    ApiError::limit_reached("social accounts for each brand", cap)
}

fn is_full(count: i64, cap: u64) -> bool {
    count >= i64::try_from(cap).unwrap_or(i64::MAX)
}

/// Fails before the platform is called if the account limit is reached. Passes if the brand has accounts of the
/// platform: only the platform's response shows whether this is one of them.
async fn check_room(cx: &Context, platform: Platform) -> Result<()> {
    let Some(cap) = cx.plan.social_accounts else { return Ok(()) };
    let (mut conn, brand) = (cx.app.store.read().await?, cx.brand()?.id);
    let has_room = !is_full(accounts::count(&mut conn, brand).await?, cap);
    if has_room || accounts::has_platform(&mut conn, brand, platform).await? { Ok(()) } else { Err(full(cap)) }
}

async fn save(cx: &Context, tx: &mut Tx, platform: Platform, connected: &Connected) -> Result<ApiResponse> {
    let brand = cx.brand()?.id;
    if let Some(cap) = cx.plan.social_accounts {
        brands::lock_workspace(tx, cx.caller.workspace_id).await?;
        let is_reconnect = accounts::has_external(tx, brand, platform, &connected.external_id).await?;
        if !is_reconnect && is_full(accounts::count(tx, brand).await?, cap) {
            return Err(full(cap));
        }
    }
    let connector = cx.app.platforms.get(platform).ok_or_else(|| not_configured(platform))?;
    connector.reserve(tx, cx.caller.workspace_id, connected).await?.map_err(refused)?;
    let new = NewAccount {
        platform,
        external_id: connected.external_id.clone(),
        name: connected.name.clone(),
        username: connected.username.clone(),
        profile_url: connected.profile_url.clone(),
        avatar_url: connected.avatar_url.clone(),
        kind: connected.kind,
        token_expires_at: connected.token_expires_at,
        secrets: SecretString::from(connected.secrets.expose_json()),
    };
    let account = accounts::save(tx, cx.caller.workspace_id, &new).await?;
    accounts::attach(tx, brand, account.id).await?;
    let data = json!({ "brand_id": brand, "social_account_id": account.id, "platform": platform });
    events::emit(tx, brand, EventName::AccountConnected, &data, cx.trace()).await?;
    ApiResponse::created(&format!("/brands/{brand}/social-accounts"), [SocialAccount::from(account)])
}
