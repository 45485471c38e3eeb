//! `POST /brands/{brand}/social-accounts`

use std::borrow::Cow;
use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::catalogue;
use crier_domain::platform::{ConnectTarget, Descriptor, Mode, Platform};
use crier_platforms::{ConnectError, Connected, Secrets};
use crier_store::{Tx, accounts};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::save::{OWNED_BY_OTHERS, Place, SaveError, cap_reached, save_account};
use super::{SocialAccount, TAG, full, interactive_setup_required, not_configured, unavailable};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, Problems, ReadContext};
use crate::openapi::schema::by_platform;
use crate::request::formats::text;
use crate::request::{Format, Parsed, Request};
use crate::response::{Many, Reply};

/// The maximum length of a credential. No platform's keys or URLs are longer.
const MAX_CREDENTIAL_CHARS: usize = 2048;

/// The account to connect. The platform's descriptor lists the fields of `credentials`.
#[derive(Clone, Debug, Request)]
#[request(name = "NewAccountCredentials")]
pub struct ConnectAccountRequest {
    #[field(enum_value(), example = "sandbox")]
    pub platform: Platform,
    #[field(map(), example = json!({ "handle": "demo" }))]
    pub credentials: Credentials,
}

/// The credentials of an account, by the names of its platform's fields.
#[derive(Clone, Debug)]
pub struct Credentials(Map<String, Value>);

impl From<Map<String, Value>> for Credentials {
    fn from(fields: Map<String, Value>) -> Self {
        Self(fields)
    }
}

impl JsonSchema for Credentials {
    fn schema_name() -> Cow<'static, str> {
        "Credentials".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let fields = catalogue::all().iter().flat_map(|platform| {
            platform.credential_fields.iter().map(|field| (field.name, platform.name, json!({ "type": "string" })))
        });
        by_platform("The fields that the platform's descriptor lists.", fields)
    }
}

pub fn endpoint() -> Endpoint<ConnectAccountRequest, Many<SocialAccount>> {
    Endpoint::post("/brands/{brand}/social-accounts", "connectSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Connect an account with credentials")
        .description(
            "Crier checks the credentials with the platform before it saves them. Connecting an account again renews its \
             credentials and makes it active. Emits `account.connected`.",
        )
        .status(201)
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

/// Validates the fields, then checks the credentials with the platform.
async fn prepare(cx: &Context, parsed: Arc<Parsed<ConnectAccountRequest>>) -> Result<WriteStep<Vec<SocialAccount>>> {
    let &ConnectAccountRequest { platform, ref credentials } = parsed.valid()?;
    let descriptor = cx.app.platforms.descriptor(platform);
    match descriptor.mode {
        Mode::SelfConnect => {}
        Mode::SelfConnectOauth => return Err(interactive_setup_required(platform)),
        Mode::Oauth => {
            let name = descriptor.name;
            let message = format!("{name} is connected in a browser. Use `POST …/social-accounts/authorize`.");
            return Err(ApiError::field("platform", message));
        }
    }
    let secrets = parse_credentials(cx, &credentials.0, descriptor)?;
    let connector = cx.app.platforms.get(platform).ok_or_else(|| not_configured(platform, ConnectTarget::Default))?;
    check_account_limit(cx, platform).await?;
    let connected = connector.connect(cx.caller.workspace_id, &secrets).await.map_err(connect_error)?;
    Ok(WriteStep::new((platform, connected), |cx, tx, found| {
        Box::pin(async move { save(cx, tx, found.0, &found.1).await })
    }))
}

/// Validates the credentials against the descriptor's fields and returns their values.
fn parse_credentials(cx: &Context, form: &Map<String, Value>, descriptor: &Descriptor) -> Result<Secrets> {
    let problems = Problems::default();
    let context = ReadContext::new(cx.zone(), cx.now);
    let within = Fields::new(form, &problems, context).within("credentials", form);
    let mut found = Map::new();
    for field in descriptor.credential_fields {
        let field_value = text(usize::from(field.required)..=MAX_CREDENTIAL_CHARS).read(&within, field.name);
        let value = if field.required { within.required(field.name, field_value) } else { field_value.value() };
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            found.insert(field.name.to_owned(), Value::from(value));
        }
    }
    problems.into_result()?;
    Ok(Secrets::new(&found))
}

fn connect_error(error: ConnectError) -> ApiError {
    match error {
        ConnectError::Field { field, message } => ApiError::field(&format!("credentials.{field}"), message),
        ConnectError::Rejected(message) => ApiError::new(ErrorCode::InvalidCredentials, message),
        ConnectError::Unavailable(message) => unavailable(message),
    }
}

/// Fails if the account limit is reached, before the platform is called.
async fn check_account_limit(cx: &Context, platform: Platform) -> Result<()> {
    let mut conn = cx.app.store.read().await?;
    match cap_reached(&mut conn, cx.brand()?.id, cx.plan.social_accounts, platform).await? {
        Some(cap) => Err(full(cap)),
        None => Ok(()),
    }
}

async fn save(
    cx: &Context,
    tx: &mut Tx,
    platform: Platform,
    connected: &Connected,
) -> Result<Reply<Vec<SocialAccount>>> {
    let brand = cx.brand()?.id;
    let place = Place {
        workspace_id: cx.caller.workspace_id,
        brand_id: brand,
        user_id: Some(cx.caller.user_id),
        key_id: Some(cx.caller.key_id),
        cap: cx.plan.social_accounts,
        trace: cx.trace(),
    };
    let account = save_account(tx, &cx.app, place, platform, connected, None).await.map_err(|error| match error {
        SaveError::Full(cap) => full(cap),
        SaveError::OwnedByOthers => {
            let message = format!("{OWNED_BY_OTHERS} Ask a member of that brand to connect the account to this brand.");
            connect_error(ConnectError::Rejected(message))
        }
        SaveError::Rejected(error) => connect_error(error),
        SaveError::Store(error) => error.into(),
    })?;
    // An account that the brand already had may have a signature there.
    let account = accounts::find(tx, brand, account.id).await?.unwrap_or(account);
    Ok(Reply::at(&format!("/brands/{brand}/social-accounts"), vec![SocialAccount::from(account)]))
}
