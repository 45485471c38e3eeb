//! `GET /webhooks/{webhook}/deliveries/{delivery}/attempts`

use crier_domain::access::Scope;
use crier_domain::webhook::DeliveryOutcome;
use crier_store::{Conn, deliveries};
use schemars::JsonSchema;
use serde::Serialize;

use super::{FEATURES, TAG, delivery};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::openapi::schema::TextEnum;
use crate::response::{Many, Reply, Timestamp};

/// The maximum number of attempts in a response. A client can retry a delivery any number of times.
const MAX_ATTEMPTS: i64 = 1_000;

/// One attempt at a delivery.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct DeliveryAttempt {
    pub id: i64,
    /// The number of the attempt, starting at 1.
    pub number: i32,
    pub started_at: Timestamp,
    pub duration_ms: i64,
    /// The class of the response status, or the reason there was no response.
    #[schemars(with = "TextEnum<DeliveryOutcome>")]
    pub outcome: DeliveryOutcome,
    pub response_code: Option<i32>,
    pub error: Option<String>,
    /// The first 1 KiB of the response body.
    pub response_body: Option<String>,
}

pub fn endpoint() -> Endpoint<(), Many<DeliveryAttempt>> {
    let path = "/webhooks/{webhook}/deliveries/{delivery}/attempts";
    Endpoint::get(path, "listWebhookDeliveryAttempts", Scope::WebhooksRead)
        .tag(TAG)
        .summary("List the attempts of a delivery, oldest first")
        .description("The response contains at most the latest 1,000 attempts.")
        .extension()
        .features(FEATURES)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<DeliveryAttempt>>> {
    let delivery = delivery::find(cx, conn).await?;
    let records = deliveries::attempts(conn, delivery.id, MAX_ATTEMPTS).await?.into_iter().map(|a| DeliveryAttempt {
        id: a.id,
        number: a.number,
        started_at: a.started_at.into(),
        duration_ms: a.duration_ms,
        outcome: a.outcome,
        response_code: a.response_code,
        error: a.error,
        response_body: a.response_body,
    });
    Ok(Reply::from(records.collect::<Vec<_>>()))
}
