//! `PUT /webhooks/{webhook}`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_store::{Tx, webhooks};

use super::{FEATURES, TAG, Webhook, check_url, lock_webhook, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, WriteStep};
use crate::error::{ErrorCode, Result};
use crate::fields::PatchField;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// Changes to a webhook endpoint. Omitted fields keep their values.
#[derive(Clone, Debug, Default, Request)]
pub struct WebhookChange {
    /// A public https:// URL.
    #[field(unchecked_url())]
    pub url: PatchField<String>,
    #[field(enum_values(), example = ["post.failed"])]
    pub events: PatchField<Vec<EventName>>,
    #[field(flag(), example = true)]
    pub is_active: PatchField<bool>,
    #[field(text(0..=255), extension)]
    pub description: PatchField<String>,
}

pub fn endpoint() -> Endpoint<WebhookChange, One<Webhook>> {
    Endpoint::put("/webhooks/{webhook}", "updateWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Update a webhook endpoint")
        .description("A new URL applies to all later attempts. Setting `is_active` to true clears `disabled_reason`.")
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidWebhookUrl])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<WebhookChange>>) -> Result<WriteStep<Webhook>> {
    // 404 takes precedence over validation errors. The transaction reads the resource again.
    let mut conn = cx.app.store.read().await?;
    show::find(cx, &mut conn).await?;
    drop(conn);
    let change = parsed.valid()?.clone();
    if let PatchField::Value(url) = &change.url {
        check_url(cx, url).await?;
    }
    Ok(WriteStep::new(change, |cx, tx, change| Box::pin(async move { update(cx, tx, &change).await })))
}

async fn update(cx: &Context, tx: &mut Tx, change: &WebhookChange) -> Result<Reply<Webhook>> {
    let mut webhook = lock_webhook(cx, tx).await?;
    let change = change.clone();
    webhook.url = change.url.value().unwrap_or(webhook.url);
    webhook.events = change.events.value().unwrap_or(webhook.events);
    webhook.description = change.description.map(Some).apply_to(webhook.description, None);
    if let PatchField::Value(active) = change.is_active {
        webhook.is_active = active;
        // If the owner disables an endpoint that Crier has already disabled, Crier's reason stays.
        webhook.disabled_reason = webhook.disabled_reason.filter(|_| !active);
    }
    webhook.updated_at = tx.now;
    webhooks::update(tx, &webhook).await?;
    Ok(Reply::from(Webhook::from(webhook)))
}
