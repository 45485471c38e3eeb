//! `POST /webhooks/{webhook}/deliveries/{delivery}/retry`

use crier_common::domain::access::Scope;
use crier_common::domain::job::{Kind, Lane, NewJob};
use crier_common::store::{Tx, deliveries, jobs, webhooks};

use super::deliveries::Delivery;
use super::{FEATURES, TAG};
use crate::answer::Answer;
use crate::context::Context;
use crate::endpoint::{Endpoint, Shape};
use crate::error::{ApiError, Code, Result};

pub fn endpoint() -> Endpoint {
    Endpoint::post("/webhooks/{webhook}/deliveries/{delivery}/retry", "retryWebhookDelivery", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Attempt a delivery now")
        .description("Under the same delivery id, with one more attempt allowed.")
        .features(FEATURES)
        .answers::<Delivery>(200, Shape::One)
        .refuses(&[Code::WebhookInactive])
        .writes(retry)
}

async fn retry(cx: &Context, tx: &mut Tx) -> Result<Answer> {
    let found = webhooks::find_for_update(tx, cx.caller.user_id, cx.id("webhook")?).await?;
    let webhook = found.ok_or_else(|| ApiError::not_found("webhook endpoint"))?;
    let delivery = cx.id("delivery")?;
    let missing = || ApiError::not_found("delivery");
    deliveries::find(tx, webhook.id, delivery).await?.ok_or_else(missing)?;
    if !webhook.is_active {
        let message = "This webhook endpoint is inactive. Switch it on (PUT is_active: true), then retry.";
        return Err(ApiError::new(Code::WebhookInactive, message));
    }
    deliveries::replay(tx, delivery).await?;
    let job = NewJob::new(Kind::DeliverWebhook, delivery, tx.now).lane(Lane::AskedOf(webhook.id));
    jobs::hasten(tx, &job.trace(cx.trace().map(str::to_owned))).await?;
    let replayed = deliveries::find(tx, webhook.id, delivery).await?.ok_or_else(missing)?;
    Answer::ok(Delivery::from(replayed))
}
