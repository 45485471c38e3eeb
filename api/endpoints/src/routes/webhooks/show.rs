//! `GET /webhooks/{webhook}`

use crier_domain::access::Scope;
use crier_domain::webhook;
use crier_store::{Conn, webhooks};

use super::{FEATURES, TAG, Webhook};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<Webhook>> {
    Endpoint::get("/webhooks/{webhook}", "getWebhook", Scope::WebhooksRead)
        .tag(TAG)
        .summary("Get a webhook endpoint")
        .features(FEATURES)
        .serves_leftovers()
        .reads(show)
}

/// Returns the endpoint in the path; 404 if the key's user does not have it.
pub async fn find(cx: &Context, conn: &mut Conn) -> Result<webhook::Webhook> {
    let found = webhooks::find(conn, cx.caller.user_id, cx.id("webhook")?).await?;
    found.ok_or_else(|| ApiError::not_found("webhook endpoint"))
}

async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<Webhook>> {
    Ok(Reply::from(Webhook::from(find(cx, conn).await?)))
}
