//! Who calls: the caller of a token, and the membership in a brand, which each call looks up anew.

use std::sync::Arc;

use crier_endpoints::admission::Credential;
use crier_endpoints::app::App;
use crier_endpoints::error::{ApiError, Result};
use crier_store::keys::{Authenticated, Caller};
use secrecy::SecretString;

/// An authenticated HTTP request.
#[derive(Clone)]
pub struct Session {
    caller: Caller,
    credential: Credential,
    token: SecretString,
}

impl Session {
    pub fn new(caller: Caller, credential: Credential, token: SecretString) -> Self {
        Self { caller, credential, token }
    }

    pub fn caller(&self) -> &Caller {
        &self.caller
    }

    /// Returns the caller with the membership in a brand. Fails if the token was revoked meanwhile.
    pub async fn authenticate(&self, app: &Arc<App>, brand_id: Option<i64>) -> Result<Authenticated> {
        let found = self.credential.authenticate(app, &self.token, brand_id, None).await?;
        found.map(|(authenticated, _)| authenticated).ok_or_else(|| ApiError::unauthorized(true))
    }
}
