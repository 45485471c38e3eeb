//! `DELETE /webhooks/{webhook}`

use crier_domain::access::Scope;
use crier_store::{Tx, webhooks};

use super::{FEATURES, TAG};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, Result};
use crate::response::{Nothing, Reply};

pub fn endpoint() -> Endpoint<(), Nothing> {
    Endpoint::delete("/webhooks/{webhook}", "deleteWebhook", Scope::WebhooksWrite)
        .tag(TAG)
        .summary("Delete a webhook endpoint and its deliveries")
        .features(FEATURES)
        .serves_leftovers()
        .writes(delete)
}

async fn delete(cx: &Context, tx: &mut Tx) -> Result<Reply<()>> {
    if !webhooks::delete(tx, cx.caller.user_id, cx.id("webhook")?).await? {
        return Err(ApiError::not_found("webhook endpoint"));
    }
    Ok(Reply::from(()))
}
