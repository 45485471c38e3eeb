//! `POST /brands/{brand}/social-accounts/authorize`
//!
//! Returns the URL of a page (`pages/connect`) on which a person connects an account. Anyone who has the URL can do so
//! without signing in, so it is a secret that works only once, within 30 minutes.

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::authorization::LIFETIME;
use crier_domain::platform::{ConnectTarget, Mode, Platform};
use crier_platforms::oauth::ConnectRequest;
use crier_store::{Tx, applications, authorizations};
use schemars::JsonSchema;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::save::{Place, cap_reached};
use super::{TAG, full, interactive_setup_required, not_configured};
use crate::app::App;
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The platform to authorize.
#[derive(Clone, Debug, Request)]
#[request(name = "NewAuthorization")]
pub struct AuthorizeAccountRequest {
    #[field(enum_value(), example = "facebook")]
    pub platform: Platform,
    #[field(enum_value(), default = ConnectTarget::Default, example = "page")]
    pub target: ConnectTarget,
}

/// A page on which a person connects an account. Its URL is a secret and works once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Authorization {
    #[schemars(with = "TextEnum<Platform>")]
    pub platform: Platform,
    #[schemars(url)]
    pub authorization_url: String,
    /// The time until the URL expires, in seconds.
    pub expires_in: i64,
}

pub fn endpoint() -> Endpoint<AuthorizeAccountRequest, One<Authorization>> {
    Endpoint::post("/brands/{brand}/social-accounts/authorize", "authorizeSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .for_publishers()
        .summary("Create an authorization URL")
        .description(
            "A person opens the URL to connect an account. The URL is a secret: anyone who opens it can connect an account, \
             without signing in. It works once, within 30 minutes. Emits `account.connected` when the person has finished.",
        )
        .error_codes(&[
            ErrorCode::ValidationFailed,
            ErrorCode::InteractiveSetupRequired,
            ErrorCode::PlatformNotConfigured,
            ErrorCode::LimitReached,
        ])
        .checks_then_writes(authorize)
}

async fn authorize(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<AuthorizeAccountRequest>>,
) -> Result<Reply<Authorization>> {
    let &AuthorizeAccountRequest { platform, target } = parsed.valid()?;
    let descriptor = cx.app.platforms.descriptor(platform);
    match descriptor.mode {
        Mode::SelfConnect => {
            let name = descriptor.name;
            let message = format!("{name} is connected with credentials. Use `POST …/social-accounts`.");
            return Err(ApiError::field("platform", message));
        }
        Mode::SelfConnectOauth => return Err(interactive_setup_required(platform)),
        Mode::Oauth => {}
    }
    let (workspace_id, brand_id) = (cx.caller.workspace_id, cx.brand()?.id);
    let (user_id, key_id) = (Some(cx.caller.user_id), Some(cx.caller.key_id));
    let place = Place { workspace_id, brand_id, user_id, key_id, cap: cx.plan.social_accounts, trace: cx.trace() };
    let authorization_url = issue(&cx.app, tx, place, ConnectRequest { target, instance: "" }, platform).await?;
    Ok(Reply::from(Authorization { platform, authorization_url, expires_in: LIFETIME.num_seconds() }))
}

/// Stores an authorization and returns the URL of its page. Fails if the platform cannot be connected in a browser.
pub async fn issue(
    app: &App,
    tx: &mut Tx,
    place: Place<'_>,
    request: ConnectRequest<'_>,
    platform: Platform,
) -> Result<String> {
    let ConnectRequest { target, instance } = request;
    let Place { workspace_id, brand_id, user_id, key_id, cap, .. } = place;
    let connector = app.platforms.get(platform).ok_or_else(|| not_configured(platform, target))?;
    let oauth = connector.oauth().ok_or_else(|| not_configured(platform, target))?;
    if !oauth.targets().contains(&target) {
        let message = format!("{platform} does not support this target. Omit `target`, or send `default`.");
        return Err(ApiError::field("target", message));
    }
    let has_variables = app.platforms.application(platform, target).is_some();
    if app.platforms.descriptor(platform).needs_application() && !has_variables {
        let cipher = app.store.cipher();
        let set = applications::of_brand(tx, cipher, platform, target, workspace_id, brand_id).await?;
        set.ok_or_else(|| not_configured(platform, target))?;
    }
    if let Some(cap) = cap_reached(tx, brand_id, cap, platform).await? {
        return Err(full(cap));
    }
    let new = authorizations::NewAuthorization { brand_id, user_id, key_id, platform, target, instance };
    let token = authorizations::create(tx, new).await?;
    Ok(format!("{}/connect/{}", app.public_url, token.expose_secret()))
}
