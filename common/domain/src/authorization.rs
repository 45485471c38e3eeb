//! The one-time URL at which a person connects an account.
//!
//! ```text
//!            person goes on          platform sends the person back         account stored
//!  issued ─────────────────> at_platform ─────────────────> exchanging ──────────────────> used
//!    ▲                            │ ▲                           │  ▲
//!    └── refused, expired state ──┘ └── starts again ───────────┤  │ page chosen
//!                                                               ▼  │
//!                                                             choosing
//! ```
//! Until it is `used` or its time is over, opening the URL again starts again from the beginning: a "no" at the
//! platform does not consume it. Only the process that moves it out of `at_platform` exchanges the code, and only the
//! one that moves it to `used` stores an account.

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
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Authorization {
    pub id: i64,
    pub brand_id: i64,
    pub brand_name: String,
    pub workspace_id: i64,
    pub platform: Platform,
    pub target: ConnectTarget,
    /// The server that a person named; empty where the platform is one.
    pub instance: String,
    pub stage: Stage,
    pub browser_hash: Option<Vec<u8>>,
    pub account_id: Option<i64>,
    pub expires_at: DateTime<Utc>,
    /// The user who asked for it; `None`: the operator.
    pub user_id: Option<i64>,
}

/// Why an authorization cannot be continued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closed {
    Used,
    Expired,
}

impl Authorization {
    /// Returns why it cannot be continued; `None` if it can.
    pub fn closed(&self, now: DateTime<Utc>) -> Option<Closed> {
        match self.stage {
            Stage::Used => Some(Closed::Used),
            _ if self.expires_at <= now => Some(Closed::Expired),
            _ => None,
        }
    }
}
