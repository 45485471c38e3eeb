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
use crate::openapi::schema::Word;
use crate::response::ApiResponse;

/// What an endpoint is to be sent as a test.
#[derive(Clone, Debug, JsonSchema)]
pub struct WebhookTest {
    /// Any event of the list, whatever the endpoint asked for.
    #[schemars(with = "Word<EventName>")]
    pub event: EventName,
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/webhooks/{webhook}/test", "testWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Send a sample of an event to a webhook endpoint")
        .description(
            "The sample that the list of events shows, to this endpoint alone, whatever it asked for. It is a \
             delivery like any other: signed, listed and tried again.",
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
    let made = deliveries::find(tx, webhook.id, id).await?;
    let made = made.ok_or_else(|| ApiError::bug("a delivery just made is gone"))?;
    ApiResponse::accepted(&format!("/webhooks/{}/deliveries/{id}", webhook.id), Delivery::from(made))
}
