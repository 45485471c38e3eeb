//! Who calls: the caller of a token, and the membership in a brand, which each call looks up anew.

use std::sync::Arc;

use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, Result};
use crier_store::keys::{self, Authenticated, Caller};
use secrecy::SecretString;

/// An authenticated HTTP request.
#[derive(Clone)]
pub struct Session {
    caller: Caller,
    token: SecretString,
}

impl Session {
    pub fn new(caller: Caller, token: SecretString) -> Self {
        Self { caller, token }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the caller with the membership in a brand. Fails if the token was revoked meanwhile.
    pub async fn authenticate(&self, app: &Arc<App>, brand_id: Option<i64>) -> Result<Authenticated> {
        let mut conn = app.store.read().await?;
        let found = keys::authenticate(&mut conn, &self.token, brand_id, None).await?;
        found.map(|(authenticated, _)| authenticated).ok_or_else(|| ApiError::unauthorized(true))
    }
}
