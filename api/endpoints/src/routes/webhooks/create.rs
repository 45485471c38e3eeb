//! `POST /webhooks`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::event::EventName;
use crier_domain::webhook::MAX_WEBHOOKS;
use crier_store::{Tx, users, webhooks};

use super::{FEATURES, TAG, WebhookWithSecret, check_url, generate_secret};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth, WriteStep};
use crate::error::{ApiError, ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The webhook endpoint to create.
#[derive(Clone, Debug, Request)]
#[request(name = "NewWebhook")]
pub struct CreateWebhookRequest {
    /// A public https:// URL.
    #[field(unchecked_url(), example = "https://example.com/hooks/crier")]
    pub url: String,
    #[field(enum_values(), example = ["post.published", "post.failed"])]
    pub events: Vec<EventName>,
    #[field(text(0..=255), example = "Production")]
    pub description: Option<String>,
    #[field(flag(), default = true, example = true)]
    pub is_active: bool,
}

pub fn endpoint() -> Endpoint<CreateWebhookRequest, One<WebhookWithSecret>> {
    Endpoint::post("/webhooks", "createWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .adds(Growth::Records)
        .summary("Create a webhook endpoint")
        .description(
            "Only this response contains the signing secret, so store it. A user can have at most 50 endpoints.",
        )
        .features(FEATURES)
        .status(201)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::InvalidWebhookUrl, ErrorCode::LimitReached])
        .queries_then_writes(prepare)
}

async fn prepare(cx: &Context, parsed: Arc<Parsed<CreateWebhookRequest>>) -> Result<WriteStep<WebhookWithSecret>> {
    let new = parsed.valid()?.clone();
    check_url(cx, &new.url).await?;
    Ok(WriteStep::new(new, |cx, tx, new| Box::pin(async move { create(cx, tx, &new).await })))
}

async fn create(cx: &Context, tx: &mut Tx, new: &CreateWebhookRequest) -> Result<Reply<WebhookWithSecret>> {
    let user = cx.caller.user_id;
    users::lock(tx, user).await?;
    ApiError::check_cap("A user", MAX_WEBHOOKS, "webhook endpoints", webhooks::count(tx, user).await?, 1)?;
    let secret = generate_secret()?;
    let row = webhooks::NewWebhook {
        url: &new.url,
        events: &new.events,
        description: new.description.as_deref(),
        is_active: new.is_active,
        secret: &secret,
    };
    let created = webhooks::create(tx, user, &row).await?;
    let path = format!("/webhooks/{}", created.id);
    Ok(Reply::at(&path, WebhookWithSecret::of(created, &secret)))
}
