//! Social accounts: active ⇄ expired. An account expires when the platform rejects its token; a refresh or a new
//! connect reactivates it.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::platform::{AccountKind, Platform};

crate::text_enum! {
    pub enum AccountStatus { Active = "active", Expired = "expired" }
}

crate::text_enum! {
    /// What a disconnect did: the account lives on in other brands, or this was the last one.
    pub enum DisconnectResult { Detached = "detached", Revoked = "revoked" }
}

/// Why an account stopped working, in words for its owner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountError {
    pub code: String,
    pub message: String,
}

/// A social account without its secrets.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct SocialAccount {
    pub id: i64,
    pub workspace_id: i64,
    pub platform: Platform,
    pub name: String,
    pub username: Option<String>,
    pub external_id: String,
    pub profile_url: Option<String>,
    pub avatar_url: Option<String>,
    pub kind: AccountKind,
    pub status: AccountStatus,
    pub token_expires_at: Option<DateTime<Utc>>,
    #[sqlx(json(nullable))]
    pub last_error: Option<AccountError>,
    /// Version of the credentials; increases with each change.
    pub credentials_version: i64,
    pub connected_at: DateTime<Utc>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}
