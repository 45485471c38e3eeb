//! `POST /brands/{brand}/social-accounts/authorize`
//!
//! The browser flow is not implemented yet: no platform that needs it is configured, so each returns an error.

use std::sync::Arc;

use crier_common::domain::access::Scope;
use crier_common::domain::platform::{Mode, Platform};
use crier_common::store::Tx;
use serde_json::json;

use super::{TAG, interactive, not_configured};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::openapi::schema::{record, request};
use crate::response::ApiResponse;

crier_common::text_enum! {
    /// What is connected: the person's default, or a page that the person chooses.
    pub enum Target { Default = "default", Page = "page" }
}

request! {
    /// Which platform a person is to be sent to.
    pub struct NewAuthorization {
        pub platform: Platform,
        pub target: Option<Target> { "default": "default" },
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

async fn authorize(cx: &Context, _: &mut Tx, parsed: Arc<ParsedBody<Option<NewAuthorization>>>) -> Result<ApiResponse> {
    let &NewAuthorization { platform, target } = parsed.valid()?;
    tracing::debug!(%platform, target = target.unwrap_or(Target::Default).as_str(), "authorization requested");
    match cx.app.platforms.descriptor(platform).mode {
        Mode::SelfConnect => {
            let message = format!("{platform} is connected by credentials: use POST social-accounts.");
            Err(ApiError::field("platform", message))
        }
        Mode::SelfConnectOauth => Err(interactive(platform)),
        Mode::Oauth => Err(not_configured(platform)),
    }
}
