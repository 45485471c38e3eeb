//! `GET /brands/{brand}/conversations/{conversation}`

use crier_domain::access::Scope;
use crier_store::{Conn, conversations};

use super::{ConversationDetail, FEATURES, TAG, missing};
use crate::context::Context;
use crate::endpoint::{Endpoint, ResponseShape};
use crate::error::Result;
use crate::response::ApiResponse;

pub fn endpoint() -> Endpoint {
    Endpoint::get("/brands/{brand}/conversations/{conversation}", "showConversation", Scope::InboxRead)
        .tag(TAG)
        .summary("Get a conversation with its messages")
        .features(FEATURES)
        .response::<ConversationDetail>(200, ResponseShape::One)
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<ApiResponse> {
    let found = conversations::find(conn, cx.brand()?.id, cx.id("conversation")?).await?;
    ApiResponse::ok(ConversationDetail::load(cx, conn, found.ok_or_else(missing)?).await?)
}
