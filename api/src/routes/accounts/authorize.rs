//! `POST /brands/{brand}/social-accounts/authorize`
//!
//! Returns the URL of a page (`pages/connect`) at which a person connects an account. Anyone who has the URL can do so
//! without a login, so it is a secret that works once, for half an hour.

use std::sync::Arc;

use crier_common::domain::access::Scope;
use crier_common::domain::authorization::LIFETIME;
use crier_common::domain::platform::{ConnectTarget, Mode, Platform};
use crier_common::store::{Tx, applications, authorizations};
use secrecy::ExposeSecret;
use serde_json::json;

use super::save::cap_reached;
use super::{TAG, full, interactive, not_configured};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::openapi::schema::{record, request};
use crate::response::ApiResponse;

request! {
    /// Which platform a person is to be sent to.
    pub struct NewAuthorization {
        pub platform: Platform,
        pub target: Option<ConnectTarget> { "default": "default" },
    }
}

record! {
    /// A page for a person to open; the URL is a secret and works once.
    pub struct Authorization {
        pub platform: Platform,
        pub authorization_url: String { "format": "uri" },
        /// Seconds.
        pub expires_in: i64,
    }
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/brands/{brand}/social-accounts/authorize", "authorizeSocialAccount", Scope::AccountsWrite)
        .tag(TAG)
        .summary("Get a URL at which a person connects an account")
        .description(
            "The URL is a secret: anyone who opens it may connect an account, without a login. It works once, within 30 \
             minutes. Emits `account.connected` when the person has finished.",
        )
        .body::<NewAuthorization>(json!({ "platform": "facebook", "target": "page" }))
        .response::<Authorization>(200, ResponseShape::One)
        .error_codes(&[
            ErrorCode::ValidationFailed,
            ErrorCode::InteractiveSetupRequired,
            ErrorCode::PlatformNotConfigured,
            ErrorCode::LimitReached,
        ])
        .checks_then_writes(|cx| cx.parse(read), authorize)
}

fn read(f: &Fields<'_>) -> Option<NewAuthorization> {
    let platform = f.required("platform", f.enum_value("platform"));
    let target = f.enum_value("target").value();
    Some(NewAuthorization { platform: platform?, target })
}

async fn authorize(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<ParsedBody<Option<NewAuthorization>>>,
) -> Result<ApiResponse> {
    let &NewAuthorization { platform, target } = parsed.valid()?;
    let target = target.unwrap_or(ConnectTarget::Default);
    match cx.app.platforms.descriptor(platform).mode {
        Mode::SelfConnect => {
            let message = format!("{platform} is connected by credentials: use POST social-accounts.");
            return Err(ApiError::field("platform", message));
        }
        Mode::SelfConnectOauth => return Err(interactive(platform)),
        Mode::Oauth => {}
    }
    let connector = cx.app.platforms.get(platform).ok_or_else(|| not_configured(platform))?;
    let oauth = connector.oauth().ok_or_else(|| not_configured(platform))?;
    if !oauth.targets().contains(&target) {
        let message = format!("{platform} has nothing to choose: leave target out, or send default.");
        return Err(ApiError::field("target", message));
    }
    let (workspace, brand) = (cx.caller.workspace_id, cx.brand()?.id);
    let set = applications::of_brand(tx, cx.app.store.cipher(), platform, target, workspace, brand).await?;
    if set.is_none() && cx.app.platforms.application(platform, target).is_none() {
        return Err(not_configured(platform));
    }
    if let Some(cap) = cap_reached(tx, brand, cx.plan.social_accounts, platform).await? {
        return Err(full(cap));
    }
    let new = authorizations::NewAuthorization { brand_id: brand, platform, target, instance: "" };
    let token = authorizations::create(tx, new).await?;
    ApiResponse::ok(Authorization {
        platform,
        authorization_url: format!("{}/connect/{}", cx.app.public_url, token.expose_secret()),
        expires_in: LIFETIME.num_seconds(),
    })
}
