//! `POST /webhooks/{webhook}/test`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_store::{Tx, deliveries, events};

use super::deliveries::Delivery;
use super::{FEATURES, TAG, check_active, lock_webhook};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The test event to send.
#[derive(Clone, Debug, Request)]
pub struct WebhookTest {
    /// Any event from `GET /webhook-events`, even if the endpoint does not subscribe to it.
    #[field(enum_value(), example = "post.published")]
    pub event: EventName,
}

pub fn endpoint() -> Endpoint<WebhookTest, One<Delivery>> {
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
        .status(202)
        .error_codes(&[ErrorCode::WebhookInactive])
        .checks_then_writes(send)
}

async fn send(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<WebhookTest>>) -> Result<Reply<Delivery>> {
    let webhook = lock_webhook(cx, tx).await?;
    let request = parsed.valid()?;
    check_active(&webhook)?;
    let id = events::emit_sample(tx, webhook.id, request.event, cx.trace()).await?;
    let created = deliveries::find(tx, webhook.id, id).await?;
    let created = created.ok_or_else(|| ApiError::bug("a delivery was not found after it was created"))?;
    Ok(Reply::at(&format!("/webhooks/{}/deliveries/{id}", webhook.id), Delivery::from(created)))
}
