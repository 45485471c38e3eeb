//! `POST /webhooks/{webhook}/rotate-secret`

use crier_domain::access::Scope;
use crier_store::{Tx, webhooks};

use super::{FEATURES, TAG, WebhookWithSecret, generate_secret, lock_webhook};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<WebhookWithSecret>> {
    Endpoint::post("/webhooks/{webhook}/rotate-secret", "rotateWebhookSecret", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Rotate the signing secret")
        .description(
            "The old secret stops working immediately. Only this response contains the new secret, so store it.",
        )
        .features(FEATURES)
        .writes(rotate)
}

async fn rotate(cx: &Context, tx: &mut Tx) -> Result<Reply<WebhookWithSecret>> {
    let mut webhook = lock_webhook(cx, tx).await?;
    let secret = generate_secret()?;
    webhooks::set_secret(tx, webhook.id, &secret).await?;
    webhook.updated_at = tx.now;
    Ok(Reply::from(WebhookWithSecret::of(webhook, &secret)))
}
