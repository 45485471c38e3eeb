//! `GET /brands/{brand}/conversations/{conversation}`

use crier_domain::access::Scope;
use crier_store::{Conn, conversations};

use super::{ConversationDetail, FEATURES, TAG, missing};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<ConversationDetail>> {
    Endpoint::get("/brands/{brand}/conversations/{conversation}", "getConversation", Scope::InboxRead)
        .tag(TAG)
        .summary("Get a conversation with its messages")
        .features(FEATURES)
        .reads(show)
}

pub async fn show(cx: &Context, conn: &mut Conn) -> Result<Reply<ConversationDetail>> {
    let found = conversations::find(conn, cx.brand()?.id, cx.id("conversation")?).await?;
    Ok(Reply::from(ConversationDetail::load(cx, conn, found.ok_or_else(missing)?).await?))
}
