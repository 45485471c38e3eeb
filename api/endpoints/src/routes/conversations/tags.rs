//! `PUT /brands/{brand}/conversations/{conversation}/tags`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::conversation::{Conversation, MAX_TAG, MAX_TAGS};
use crier_store::{Tx, conversations};

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// All tags of a conversation.
#[derive(Clone, Debug, Request)]
pub struct ConversationTags {
    /// At most 20 tags of at most 40 characters each. An empty list removes all tags.
    #[field(texts(MAX_TAGS, 1..=MAX_TAG), example = ["refund", "vip"])]
    pub tags: Vec<String>,
}

pub fn endpoint() -> Endpoint<ConversationTags, One<ConversationDetail>> {
    Endpoint::put("/brands/{brand}/conversations/{conversation}/tags", "tagConversation", Scope::InboxWrite)
        .tag(TAG)
        .summary("Set the tags of a conversation")
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(set)
        .with_rerender("conversation", show::show)
}

async fn set(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ConversationTags>>) -> Result<Reply<ConversationDetail>> {
    let conversation = lock(cx, tx).await?;
    conversations::set_tags(tx, &conversation, &parsed.valid()?.tags).await?;
    let changed = Conversation { updated_at: tx.now, ..conversation };
    Ok(Reply::from(ConversationDetail::load(cx, tx, changed).await?))
}
