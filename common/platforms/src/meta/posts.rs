//! Deletes posts and comments of an account.
//!
//! Meta returns "does not exist" (100/33, or 24 on Threads) for what was deleted, and for what the token may not
//! delete. So the object is read afterward: it is gone if it cannot be read either, by a token that can still read the
//! account.

use crier_domain::failure::{Category, Failure};
use http::Method;
use serde::Deserialize;
use serde_json::Value;

use super::containers::NOT_FOUND;
use super::graph::{Access, GraphFailure};
use super::inbox::is_permission;
use super::insights::is_gone;
use crate::call::Effect;
use crate::{CallError, ConnectorAccount};

#[derive(Deserialize)]
struct Deleted {
    #[serde(default)]
    success: bool,
}

/// Deletes a post or a comment. Succeeds if it no longer exists. `missing` is the failure if the permission is missing.
pub(crate) async fn delete(
    access: &Access<'_>,
    account: &ConnectorAccount,
    id: &str,
    missing: Failure,
) -> Result<(), CallError> {
    let request = access.request(Method::DELETE, id);
    match access.call_with_codes::<Deleted>(Effect::Repeatable, request).await {
        Ok(Deleted { success: true }) => Ok(()),
        Ok(Deleted { success: false }) => {
            let message = format!("{} did not delete this post.", access.client.name());
            Err(CallError::Transient(Failure::of(Category::PlatformError, message)))
        }
        Err(failure) if is_not_found(&failure) => check_gone(access, account, id, missing).await,
        Err(failure) if is_permission(&failure) => Err(denied(&failure, missing)),
        Err(failure) => Err(failure.error),
    }
}

async fn check_gone(
    access: &Access<'_>,
    account: &ConnectorAccount,
    id: &str,
    missing: Failure,
) -> Result<(), CallError> {
    match check_readable(access, id).await {
        Ok(()) => Err(CallError::Permanent(missing)),
        Err(failure) if is_not_found(&failure) => {
            check_readable(access, &account.external_id).await.map_err(|failure| failure.error)
        }
        Err(failure) => Err(failure.error),
    }
}

async fn check_readable(access: &Access<'_>, id: &str) -> Result<(), GraphFailure> {
    let request = access.request(Method::GET, id).query(&[("fields", "id")]);
    access.call_with_codes::<Value>(Effect::Repeatable, request).await.map(drop)
}

fn is_not_found(failure: &GraphFailure) -> bool {
    failure.code == NOT_FOUND || is_gone(failure)
}

fn denied(failure: &GraphFailure, missing: Failure) -> CallError {
    CallError::Permanent(missing.from_platform(failure.platform_code()))
}
