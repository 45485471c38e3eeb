//! `POST /webhooks`

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_domain::webhook::MAX_WEBHOOKS;
use crier_store::{Tx, users, webhooks};
use schemars::JsonSchema;
use serde_json::json;

use super::{FEATURES, TAG, URL_LENGTH, WebhookWithSecret, check_url, generate_secret};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, ResponseShape, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::openapi::schema::TextEnum;
use crate::response::ApiResponse;

/// The webhook endpoint to create.
#[derive(Clone, Debug, JsonSchema)]
#[schemars(rename = "NewWebhook")]
pub struct CreateWebhookRequest {
    /// A public https:// URL.
    #[schemars(length(max = 2048), url)]
    pub url: String,
    #[schemars(with = "Vec<TextEnum<EventName>>", length(min = 1))]
    pub events: Vec<EventName>,
    #[schemars(length(max = 255))]
    pub description: Option<String>,
    #[schemars(extend("default" = true))]
    pub is_active: Option<bool>,
}

pub fn endpoint() -> Endpoint {
    Endpoint::post("/webhooks", "createWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a webhook endpoint")
        .description(
            "Only this response contains the signing secret, so store it. A user can have at most 50 endpoints.",
        )
        .features(FEATURES)
        .body::<CreateWebhookRequest>(json!({
            "url": "https://example.com/hooks/crier", "events": ["post.published", "post.failed"],
            "description": "Production", "is_active": true
        }))
        .response::<WebhookWithSecret>(201, ResponseShape::One)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidWebhookUrl, ErrorCode::LimitReached])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context) -> Result<WriteStep> {
    let new = cx.read(|f| {
        let url = f.required("url", f.text("url", URL_LENGTH));
        let events = f.required("events", f.enum_values("events"));
        let description = f.text("description", 0..=255).value();
        let is_active = f.flag("is_active").value();
        Some(CreateWebhookRequest { url: url?, events: events?, description, is_active })
    })?;
    check_url(cx, &PatchField::Value(new.url.clone())).await?;
    Ok(WriteStep::new(new, |cx, tx, new| Box::pin(async move { create(cx, tx, &new).await })))
}

async fn create(cx: &Context, tx: &mut Tx, new: &CreateWebhookRequest) -> Result<ApiResponse> {
    let user = cx.caller.user_id;
    users::lock(tx, user).await?;
    ApiError::check_cap("A user", MAX_WEBHOOKS, "webhook endpoints", webhooks::count(tx, user).await?, 1)?;
    let secret = generate_secret()?;
    let row = webhooks::NewWebhook {
        url: &new.url,
        events: &new.events,
        description: new.description.as_deref(),
        is_active: new.is_active.unwrap_or(true),
        secret: &secret,
    };
    let created = webhooks::create(tx, user, &row).await?;
    let path = format!("/webhooks/{}", created.id);
    ApiResponse::created(&path, WebhookWithSecret::of(created, &secret))
}
