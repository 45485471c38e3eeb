//! `POST /webhooks/{webhook}/deliveries/{delivery}/retry`

use crier_domain::access::Scope;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_store::{Tx, deliveries, jobs};

use super::deliveries::Delivery;
use super::{FEATURES, TAG, check_active, delivery, lock_webhook};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Delivery>> {
    Endpoint::post("/webhooks/{webhook}/deliveries/{delivery}/retry", "retryWebhookDelivery", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Retry a delivery")
        .description(
            "Crier attempts the delivery immediately, under the same delivery ID and with one more attempt allowed.",
        )
        .features(FEATURES)
        .error_codes(&[ErrorCode::WebhookInactive])
        .writes(retry)
}

async fn retry(cx: &Context, tx: &mut Tx) -> Result<Reply<Delivery>> {
    let webhook = lock_webhook(cx, tx).await?;
    let id = delivery::find(cx, tx).await?.id;
    check_active(&webhook)?;
    deliveries::replay(tx, id).await?;
    let job = NewJob::new(JobKind::DeliverWebhook, id, tx.now).lane(Lane::ManualDelivery(webhook.id));
    jobs::run_now(tx, &job.trace(cx.trace().map(str::to_owned))).await?;
    Ok(Reply::from(Delivery::from(delivery::find(cx, tx).await?)))
}
