//! Streams that the platform does not let an account read, because a permission is missing that only a user can grant.
//!
//! The stream is requested again after an hour, or immediately after the account was connected again, which changes its
//! token. Until then, the cursor records the denial and no call is made.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_base::hexadecimal;
use crier_domain::catalogue;
use crier_domain::failure::{Category, Failure};
use crier_domain::platform::{ConnectTarget, Platform};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::InboxPage;
use crate::ConnectorAccount;

const PAUSE: TimeDelta = TimeDelta::hours(1);

/// Returns an identifier of the account's token that does not reveal it.
fn token_name(account: &ConnectorAccount) -> String {
    let token = account.secrets.get("access_token").unwrap_or_default();
    let digest = Sha256::digest(token.expose_secret().as_bytes());
    hexadecimal::encode(&digest[..8])
}

/// Returns an empty page if the stream was denied to this token within the last hour.
pub fn recently_denied(
    account: &ConnectorAccount,
    cursor: Option<&Value>,
    now: DateTime<Utc>,
    failure: &Failure,
) -> Option<InboxPage> {
    let cursor = cursor?;
    let until: DateTime<Utc> = cursor["denied"]["until"].as_str()?.parse().ok()?;
    let is_recent = now < until && cursor["denied"]["token"] == token_name(account).as_str();
    is_recent.then(|| InboxPage { cursor: cursor.clone(), unavailable: Some(failure.clone()), ..InboxPage::default() })
}

/// Returns an empty page that records that the stream is denied. `restart` is the cursor to begin with when it is
/// allowed.
pub fn denied(account: &ConnectorAccount, mut restart: Value, now: DateTime<Utc>, failure: Failure) -> InboxPage {
    let until = (now + PAUSE).to_rfc3339_opts(SecondsFormat::Secs, true);
    restart["denied"] = json!({ "until": until, "token": token_name(account) });
    InboxPage { cursor: restart, unavailable: Some(failure), ..InboxPage::default() }
}

/// Returns the failure of a stream or a reply for which permissions are missing. `target` is how the account was
/// connected, which decides the variable to set. `what` completes "does not allow Crier to …".
pub fn missing_permission(platform: Platform, target: ConnectTarget, what: &str, permissions: &str) -> Failure {
    let name = catalogue::descriptor(platform).name;
    let variable = platform.as_str().to_uppercase();
    let page = match platform.application_target(target) {
        ConnectTarget::Default => "",
        ConnectTarget::Page => "PAGE_",
    };
    let instruction = match platform {
        // Crier requests all permissions that it uses, and people can deselect some.
        Platform::Youtube => "Connect the account again and allow it.".to_owned(),
        _ => format!("Set it in CRIER_{variable}_{page}SCOPES and connect the account again."),
    };
    let message = format!("{name} does not allow Crier to {what}. Missing: {permissions}. {instruction}");
    Failure::with_code(Category::Account, "missing_permission", message)
}
