//! `GET /webhooks`

use crier_domain::access::Scope;
use crier_store::{Conn, webhooks};

use super::{FEATURES, TAG, Webhook};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{Many, Reply};

pub fn endpoint() -> Endpoint<(), Many<Webhook>> {
    Endpoint::get("/webhooks", "listWebhooks", Scope::WebhooksRead)
        .tag(TAG)
        .summary("List the webhook endpoints of the key's user")
        .features(FEATURES)
        .serves_leftovers()
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<Reply<Vec<Webhook>>> {
    let all = webhooks::list(conn, cx.caller.user_id).await?;
    Ok(Reply::from(all.into_iter().map(Webhook::from).collect::<Vec<_>>()))
}
