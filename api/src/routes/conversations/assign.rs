//! `PUT /brands/{brand}/conversations/{conversation}/assign`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::conversation::Conversation;
use crier_store::{Tx, conversations};
use schemars::JsonSchema;
use serde_json::json;

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, ParsedBody, PatchField};
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The assignee of a conversation.
#[derive(Clone, Debug, JsonSchema)]
pub struct Assignment {
    /// The ID of a member of the brand. Null unassigns the conversation.
    pub user_id: PatchField<i64>,
}

pub fn endpoint() -> Endpoint<Assignment, One<ConversationDetail>> {
    Endpoint::put("/brands/{brand}/conversations/{conversation}/assign", "assignConversation", Scope::InboxWrite)
        .tag(TAG)
        .summary("Assign a conversation to a member of the brand")
        .description("The status of the conversation does not change.")
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(assign)
        .with_rerender("conversation", show::show)

// EXAMPLE Assignment: json!({ "user_id": 1 })
}

fn read(f: &Fields<'_>) -> Option<Assignment> {
    let user_id = f.id("user_id");
    if user_id == PatchField::Omitted && !f.problems.has(&f.path("user_id")) {
        f.problem("user_id", "This field is required. Set it to null to unassign.");
    }
    Some(Assignment { user_id })
}

async fn assign(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<Assignment>>) -> Result<Reply<ConversationDetail>> {
    let conversation = lock(cx, tx).await?;
    let user_id = parsed.valid()?.user_id.clone().value();
    if !conversations::assign(tx, &conversation, user_id).await? {
        return Err(ApiError::field("user_id", "Must be a member of the brand."));
    }
    let changed = Conversation { assignee_id: user_id, updated_at: tx.now, ..conversation };
    Ok(Reply::from(ConversationDetail::load(cx, tx, changed).await?))
}
