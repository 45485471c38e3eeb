//! `GET /webhooks/{webhook}/deliveries/{delivery}`

use crier_domain::access::Scope;
use crier_domain::webhook;
use crier_store::{Conn, deliveries};

use super::deliveries::Delivery;
use super::{FEATURES, TAG, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Delivery>> {
    Endpoint::get("/webhooks/{webhook}/deliveries/{delivery}", "getWebhookDelivery", Scope::WebhooksRead)
        .tag(TAG)
        .summary("Get a delivery")
        .extension()
        .features(FEATURES)
        .reads(read)
}

/// Returns the delivery in the path, of the endpoint in the path. 404 if either does not exist.
pub async fn find(cx: &Context, conn: &mut Conn) -> Result<webhook::Delivery> {
    let webhook = show::find(cx, conn).await?;
    let found = deliveries::find(conn, webhook.id, cx.id("delivery")?).await?;
    found.ok_or_else(|| ApiError::not_found("delivery"))
}

async fn read(cx: &Context, conn: &mut Conn) -> Result<Reply<Delivery>> {
    Ok(Reply::from(Delivery::from(find(cx, conn).await?)))
}
