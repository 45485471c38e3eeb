//! The single-use URL at which a person connects an account.
//!
//! ```text
//!           person continues         platform sends the person back         account stored
//!  issued ─────────────────> at_platform ─────────────────> exchanging ──────────────────> used
//!    ▲                            │ ▲                           │  ▲
//!    └── denied, expired state ───┘ └── starts again ───────────┤  │ page chosen
//!                                                               ▼  │
//!                                                             choosing
//! ```
//! Until it is `used` or has expired, the URL can be opened again and starts from the beginning: a denial at the
//! platform does not consume it. Only the process that moves it out of `at_platform` exchanges the code, and only the
//! process that moves it to `used` stores an account.

use chrono::{DateTime, TimeDelta, Utc};

use super::platform::{ConnectTarget, Platform};

/// How long the URL works.
pub const LIFETIME: TimeDelta = TimeDelta::minutes(30);

crier_base::text_enum! {
    pub enum Stage {
        Issued = "issued",
        AtPlatform = "at_platform",
        Exchanging = "exchanging",
        Choosing = "choosing",
        Used = "used",
    }
}

/// An authorization without its secrets.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Authorization {
    pub id: i64,
    pub brand_id: i64,
    pub brand_name: String,
    pub workspace_id: i64,
    pub platform: Platform,
    pub target: ConnectTarget,
    /// The URL of the server, if the platform has several (Mastodon, Shopify); otherwise empty.
    pub instance: String,
    pub stage: Stage,
    pub browser_hash: Option<Vec<u8>>,
    pub account_id: Option<i64>,
    pub expires_at: DateTime<Utc>,
    /// The user who requested it; `None`: the operator.
    pub user_id: Option<i64>,
    /// The API key with which the user requested it, or that of the session. It may no longer exist.
    pub key_id: Option<i64>,
}

/// Why an authorization cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    Used,
    Expired,
}

impl Authorization {
    /// Returns why the authorization cannot be continued; `None` if it can.
    pub fn closed(&self, now: DateTime<Utc>) -> Option<Closed> {
        match self.stage {
            Stage::Used => Some(Closed::Used),
            _ if self.expires_at <= now => Some(Closed::Expired),
            _ => None,
        }
    }
}
