//! Webhook endpoints and deliveries.
//!
//! A delivery is `pending` until its first attempt, `retrying` while it waits for the next attempt, then `succeeded` or
//! `failed`. A manual retry makes a finished delivery `pending` again, with one more attempt allowed.

use chrono::{DateTime, Utc};

use super::event::EventName;

crier_base::text_enum! {
    pub enum DeliveryStatus { Pending = "pending", Retrying = "retrying", Succeeded = "succeeded", Failed = "failed" }
}

crier_base::text_enum! {
    /// The outcome of an attempt. The words are also label values of a metric.
    pub enum DeliveryOutcome {
        Success = "2xx",
        Redirect = "3xx",
        ClientError = "4xx",
        /// Includes invalid statuses.
        ServerError = "5xx",
        Timeout = "timeout",
        Dns = "dns",
        /// No connection, or a connection that broke before the response.
        Connect = "connect",
        Tls = "tls",
        Blocked = "blocked",
    }
}

impl DeliveryOutcome {
    /// Returns whether the endpoint accepted the delivery.
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Success)
    }
}

/// Maximum number of endpoints of a user: each event is delivered to all of them.
pub const MAX_WEBHOOKS: usize = 50;

/// Initial `max_attempts` of a delivery (contract, section 3).
pub const MAX_ATTEMPTS: i32 = 8;

/// An endpoint without its secret.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Webhook {
    pub id: i64,
    pub user_id: i64,
    pub url: String,
    #[cfg_attr(feature = "sqlx", sqlx(json))]
    pub events: Vec<EventName>,
    pub description: Option<String>,
    pub is_active: bool,
    pub disabled_reason: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

#[derive(Clone, Debug)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct Delivery {
    pub id: i64,
    pub webhook_id: i64,
    pub event_id: i64,
    pub event: EventName,
    pub status: DeliveryStatus,
    pub response_code: Option<i32>,
    pub attempts: i32,
    pub max_attempts: i32,
    pub duration_ms: Option<i64>,
    pub error: Option<String>,
    pub response_body: Option<String>,
    /// The envelope, byte for byte as it is signed and sent.
    pub payload: String,
    pub next_attempt_at: Option<DateTime<Utc>>,
    pub last_attempt_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// One stored attempt at a delivery.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "sqlx", derive(sqlx_macros::FromRow))]
pub struct WebhookAttempt {
    pub id: i64,
    pub number: i32,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub outcome: DeliveryOutcome,
    pub response_code: Option<i32>,
    pub error: Option<String>,
    pub response_body: Option<String>,
}
