//! `POST /webhooks/{webhook}/test`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_store::{Tx, deliveries, events};
use schemars::JsonSchema;
use serde_json::json;

use super::deliveries::Delivery;
use super::{FEATURES, TAG, check_active, lock_webhook};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::openapi::schema::TextEnum;
use crate::response::ApiResponse;

/// The test event to send.
#[derive(Clone, Debug, JsonSchema)]
pub struct WebhookTest {
    /// Any event from `GET /webhook-events`, even if the endpoint does not subscribe to it.
    #[schemars(with = "TextEnum<EventName>")]
    pub event: EventName,
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/webhooks/{webhook}/test", "testWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Send a test event to a webhook endpoint")
        .description(
            "Crier sends the event's sample from `GET /webhook-events` to this endpoint only, even if the endpoint does \
             not subscribe to the event. The delivery is signed, listed and retried like any other.",
        )
        .extension()
        .features(FEATURES)
        .body::<WebhookTest>(json!({ "event": "post.published" }))
        .response::<Delivery>(202, ResponseShape::One)
        .error_codes(&[ErrorCode::WebhookInactive])
        .checks_then_writes(|cx| cx.parse(read), send)
}

fn read(f: &Fields<'_>) -> Option<WebhookTest> {
    Some(WebhookTest { event: f.required("event", f.enum_value("event"))? })
}

async fn send(cx: &Context, tx: &mut Tx, parsed: Arc<ParsedBody<Option<WebhookTest>>>) -> Result<ApiResponse> {
    let webhook = lock_webhook(cx, tx).await?;
    let request = parsed.valid()?;
    check_active(&webhook)?;
    let id = events::emit_sample(tx, webhook.id, request.event, cx.trace()).await?;
    let created = deliveries::find(tx, webhook.id, id).await?;
    let created = created.ok_or_else(|| ApiError::bug("a delivery was not found after it was created"))?;
    ApiResponse::accepted(&format!("/webhooks/{}/deliveries/{id}", webhook.id), Delivery::from(created))
}
