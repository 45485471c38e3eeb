//! `GET /webhooks`

use crier_domain::access::Scope;
use crier_store::{Conn, webhooks};

use super::{FEATURES, TAG, Webhook};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/webhooks", "listWebhooks", Scope::WebhooksRead)
        .tag(TAG)
        .summary("List the webhook endpoints of the key's user")
        .features(FEATURES)
        .serves_leftovers()
        .response::<Webhook>(200, ResponseShape::Many)
        .reads(list)
}

async fn list(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let all = webhooks::list(conn, cx.caller.user_id).await?;
    ApiResponse::ok(all.into_iter().map(Webhook::from).collect::<Vec<_>>())
}
