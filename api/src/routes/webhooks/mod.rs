//! Webhook endpoints and their deliveries. They belong to the key's user, not to a brand.

use std::ops::RangeInclusive;

use crier_domain::event::EventName;
use crier_domain::plan::Feature;
use crier_domain::webhook;
use crier_domain::webhook_signature::new_secret;
use crier_http::SchemePolicy;
use crier_store::{Tx, webhooks};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::PatchField;
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

mod attempts;
mod create;
mod delete;
mod deliveries;
mod delivery;
mod events;
mod list;
pub mod payloads;
mod recover;
mod retry;
mod rotate_secret;
mod show;
mod test;
mod update;

pub const TAG: &str = "Webhooks";
const FEATURES: &[Feature] = &[Feature::Webhooks];
/// The allowed length of a URL. An empty URL passes here, so that it is rejected as a non-public address.
const URL_LENGTH: RangeInclusive<usize> = 0..=2048;

pub fn endpoints() -> Vec<Endpoint> {
    vec![
        events::endpoint(),
        list::endpoint(),
        create::endpoint(),
        show::endpoint(),
        update::endpoint(),
        delete::endpoint(),
        rotate_secret::endpoint(),
        test::endpoint(),
        recover::endpoint(),
        deliveries::endpoint(),
        delivery::endpoint(),
        attempts::endpoint(),
        retry::endpoint(),
    ]
}

/// The fields of a webhook endpoint, with or without its secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WebhookFields {
    #[schemars(url)]
    pub url: String,
    #[schemars(with = "Vec<TextEnum<EventName>>")]
    pub events: Vec<EventName>,
    pub description: Option<String>,
    pub is_active: bool,
    /// The reason Crier disabled the endpoint. Null if Crier did not disable it.
    #[schemars(extend("x-extension" = true))]
    pub disabled_reason: Option<String>,
}

/// A webhook endpoint, without its signing secret.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Webhook {
    pub id: i64,
    #[serde(flatten)]
    pub fields: WebhookFields,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A webhook endpoint with its new signing secret, which is returned only once.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WebhookWithSecret {
    pub id: i64,
    #[serde(flatten)]
    pub fields: WebhookFields,
    /// The signing secret. The HMAC key is the whole string, including `whsec_`.
    #[schemars(regex(pattern = "^whsec_[A-Za-z0-9]{40}$"))]
    pub secret: String,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

impl From<webhook::Webhook> for Webhook {
    fn from(w: webhook::Webhook) -> Self {
        let fields = WebhookFields {
            url: w.url,
            events: w.events,
            description: w.description,
            is_active: w.is_active,
            disabled_reason: w.disabled_reason,
        };
        Self { id: w.id, fields, created_at: w.created_at.into(), updated_at: w.updated_at.into() }
    }
}

impl WebhookWithSecret {
    fn of(webhook: webhook::Webhook, secret: &SecretString) -> Self {
        let Webhook { id, fields, created_at, updated_at } = webhook.into();
        Self { id, fields, secret: secret.expose_secret().to_owned(), created_at, updated_at }
    }
}

/// Locks and returns the endpoint in the path; 404 if it does not exist.
async fn lock_webhook(cx: &Context, tx: &mut Tx) -> Result<webhook::Webhook> {
    let found = webhooks::find_for_update(tx, cx.caller.user_id, cx.id("webhook")?).await?;
    found.ok_or_else(|| ApiError::not_found("webhook endpoint"))
}

/// Fails if the endpoint is inactive, because it then receives no deliveries.
fn check_active(webhook: &webhook::Webhook) -> Result<()> {
    if webhook.is_active {
        return Ok(());
    }
    let message = "This webhook endpoint is inactive. Enable it, then retry.";
    Err(ApiError::new(ErrorCode::WebhookInactive, message))
}

/// Checks the URL in the body, if present, with the guard.
async fn check_url(cx: &Context, url: &PatchField<String>) -> Result<()> {
    let PatchField::Value(url) = url else { return Ok(()) };
    let checked = cx.app.guard.check_resolved(url, SchemePolicy::HttpsOnly).await;
    checked.map(drop).map_err(|reason| {
        ApiError::new(ErrorCode::InvalidWebhookUrl, format!("The URL {reason}. Use a public https:// URL."))
    })
}

fn generate_secret() -> Result<SecretString> {
    new_secret().map_err(|e| ApiError::bug(format!("failed to generate a secret: {e}")))
}
