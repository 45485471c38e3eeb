//! `PUT /webhooks/{webhook}`

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_store::{Tx, webhooks};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, TAG, URL_LENGTH, Webhook, check_url, lock_webhook, show};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape, WriteStep};
use crate::error::{ErrorCode, Result};
use crate::fields::PatchField;
use crate::openapi::schema::TextEnum;
use crate::response::ApiResponse;

/// Changes to a webhook endpoint. Omitted fields keep their values.
#[derive(Clone, Debug, JsonSchema)]
pub struct WebhookChange {
    /// A public https:// URL.
    #[schemars(length(max = 2048), url)]
    pub url: PatchField<String>,
    #[schemars(with = "PatchField<Vec<TextEnum<EventName>>>", length(min = 1))]
    pub events: PatchField<Vec<EventName>>,
    pub is_active: PatchField<bool>,
    #[schemars(length(max = 255), extend("x-extension" = true))]
    pub description: PatchField<String>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::put("/webhooks/{webhook}", "updateWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Update a webhook endpoint")
        .description("A new URL applies to all later attempts. Setting `is_active` to true clears `disabled_reason`.")
        .features(FEATURES)
        .body::<WebhookChange>(json!({ "events": ["post.failed"], "is_active": true }))
        .response::<Webhook>(200, ResponseShape::One)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidWebhookUrl])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context) -> Result<WriteStep> {
    // 404 takes precedence over validation errors. The transaction reads the resource again.
    let mut conn = cx.app.store.read().await?;
    show::find(cx, &mut conn).await?;
    drop(conn);
    let change = cx.read(|f| {
        Some(WebhookChange {
            url: f.text("url", URL_LENGTH),
            events: f.enum_values("events"),
            is_active: f.flag("is_active"),
            description: f.text("description", 0..=255),
        })
    })?;
    check_url(cx, &change.url).await?;
    Ok(WriteStep::new(change, |cx, tx, change| Box::pin(async move { update(cx, tx, &change).await })))
}

async fn update(cx: &Context, tx: &mut Tx, change: &WebhookChange) -> Result<ApiResponse> {
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
    ApiResponse::ok(Webhook::from(webhook))
}
