//! `GET /webhooks/{webhook}/deliveries`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_domain::webhook::{self, DeliveryStatus};
use crier_store::Conn;
use crier_store::deliveries::{self, DeliveryFilter};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::{FEATURES, TAG, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::request::{Pages, Parsed, Request};
use crate::response::{Listed, Paged, Reply, ScheduledTimestamp, Timestamp};

/// A delivery of an event to an endpoint.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Delivery {
    pub id: i64,
    pub webhook_id: i64,
    #[schemars(with = "TextEnum<EventName>")]
    pub event: EventName,
    #[schemars(with = "TextEnum<DeliveryStatus>")]
    pub status: DeliveryStatus,
    pub response_code: Option<i32>,
    pub attempts: i32,
    pub max_attempts: i32,
    pub duration_ms: Option<i64>,
    pub error: Option<String>,
    /// The first 1 KiB of the response body.
    pub response_body: Option<String>,
    /// The envelope that Crier sends to the endpoint.
    #[schemars(extend("type" = "object"))]
    pub payload: Value,
    pub next_attempt_at: Option<ScheduledTimestamp>,
    pub last_attempt_at: Option<Timestamp>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<webhook::Delivery> for Delivery {
    fn from(d: webhook::Delivery) -> Self {
        Self {
            id: d.id,
            webhook_id: d.webhook_id,
            event: d.event,
            status: d.status,
            response_code: d.response_code,
            attempts: d.attempts,
            max_attempts: d.max_attempts,
            duration_ms: d.duration_ms,
            error: d.error,
            response_body: d.response_body,
            payload: serde_json::from_str(&d.payload).unwrap_or_default(),
            next_attempt_at: d.next_attempt_at.map(ScheduledTimestamp),
            last_attempt_at: d.last_attempt_at.map(Timestamp),
            created_at: d.created_at.into(),
            updated_at: d.updated_at.into(),
        }
    }
}

/// The deliveries to list.
#[derive(Clone, Debug, Default, Request)]
pub struct ListDeliveries {
    #[field(flatten)]
    pub pages: Pages,
    /// Only deliveries with this status.
    #[field(enum_value(), extension)]
    pub status: Option<DeliveryStatus>,
    /// Only deliveries of this event.
    #[field(enum_value(), extension)]
    pub event: Option<EventName>,
}

pub fn endpoint() -> Endpoint<ListDeliveries, Paged<Delivery>> {
    Endpoint::get("/webhooks/{webhook}/deliveries", "listWebhookDeliveries", Scope::WebhooksRead)
        .tag(TAG)
        .summary("List the deliveries to a webhook endpoint, newest first")
        .description("Crier deletes a finished delivery 90 days after its last change.")
        .features(FEATURES)
        .checks_then_reads(list)
}

async fn list(cx: &Context, conn: &mut Conn, parsed: Arc<Parsed<ListDeliveries>>) -> Result<Reply<Listed<Delivery>>> {
    let webhook = show::find(cx, conn).await?;
    let &ListDeliveries { pages, status, event } = parsed.valid()?;
    let page = pages.request();
    let found = deliveries::list(conn, webhook.id, DeliveryFilter { status, event }, page).await?;
    Ok(Listed::from_rows(page, found, Delivery::from).into())
}
