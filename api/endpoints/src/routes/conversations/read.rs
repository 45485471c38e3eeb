//! `POST /brands/{brand}/conversations/{conversation}/read`

use crier_domain::access::Scope;
use crier_domain::conversation::Conversation;
use crier_store::{Tx, conversations};

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::Result;
use crate::response::{One, Reply};

pub fn endpoint() -> Endpoint<(), One<ConversationDetail>> {
    Endpoint::post("/brands/{brand}/conversations/{conversation}/read", "readConversation", Scope::InboxWrite)
        .tag(TAG)
        .summary("Mark a conversation as read")
        .extension()
        .features(FEATURES)
        .writes(read)
        .with_rerender("conversation", show::show)
}

async fn read(cx: &Context, tx: &mut Tx) -> Result<Reply<ConversationDetail>> {
    let conversation = lock(cx, tx).await?;
    conversations::mark_read(tx, conversation.id).await?;
    let updated_at = if conversation.unread_count > 0 { tx.now } else { conversation.updated_at };
    let changed = Conversation { unread_count: 0, updated_at, ..conversation };
    Ok(Reply::from(ConversationDetail::load(cx, tx, changed).await?))
}
