//! Webhook endpoints and their deliveries. They belong to the key's user, not to a brand.

use crier_domain::event::EventName;
use crier_domain::plan::Feature;
use crier_domain::webhook;
use crier_domain::webhook_signature::new_secret;
use crier_http::SchemePolicy;
use crier_store::{Tx, webhooks};
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::endpoint::AnyEndpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::openapi::schema::TextEnum;
use crate::response::Timestamp;

pub mod attempts;
pub mod create;
pub mod delete;
pub mod deliveries;
pub mod delivery;
pub mod events;
pub mod list;
pub mod payloads;
pub mod recover;
pub mod retry;
pub mod rotate_secret;
pub mod show;
pub mod test;
pub mod update;

pub const TAG: &str = "Webhooks";
const FEATURES: &[Feature] = &[Feature::Webhooks];

pub fn endpoints() -> Vec<AnyEndpoint> {
    vec![
        events::endpoint().erase(),
        list::endpoint().erase(),
        create::endpoint().erase(),
        show::endpoint().erase(),
        update::endpoint().erase(),
        delete::endpoint().erase(),
        rotate_secret::endpoint().erase(),
        test::endpoint().erase(),
        recover::endpoint().erase(),
        deliveries::endpoint().erase(),
        delivery::endpoint().erase(),
        attempts::endpoint().erase(),
        retry::endpoint().erase(),
    ]
}

/// The fields of a webhook endpoint, with or without its secret.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Webhook {
    pub id: i64,
    #[serde(flatten)]
    pub fields: WebhookFields,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// A webhook endpoint with its new signing secret, which is returned only once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WebhookWithSecret {
    pub id: i64,
    #[serde(flatten)]
    pub fields: WebhookFields,
    /// The signing secret. The HMAC key is the whole string, including `whsec_`.
    #[schemars(
        regex(pattern = "^whsec_[A-Za-z0-9]{40}$"),
        extend("examples" = ["whsec_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN"])
    )]
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

/// Checks a URL with the guard.
async fn check_url(cx: &Context, url: &str) -> Result<()> {
    let checked = cx.app.guard.check_resolved(url, SchemePolicy::HttpsOnly).await;
    checked.map(drop).map_err(|reason| {
        ApiError::new(ErrorCode::InvalidWebhookUrl, format!("The URL {reason}. Use a public https:// URL."))
    })
}

fn generate_secret() -> Result<SecretString> {
    new_secret().map_err(|e| ApiError::bug(format!("failed to generate a secret: {e}")))
}
