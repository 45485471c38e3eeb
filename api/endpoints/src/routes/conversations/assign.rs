//! `PUT /brands/{brand}/conversations/{conversation}/assign`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::conversation::Conversation;
use crier_store::{Tx, conversations};

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The assignee of a conversation.
#[derive(Clone, Debug, Default, Request)]
#[request(check = check)]
pub struct Assignment {
    /// The ID of a member of the brand. Null unassigns the conversation.
    #[field(id(), example = 1)]
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
}

fn check(request: &Assignment, fields: &Fields<'_>) {
    if request.user_id == PatchField::Omitted && !fields.problems.has(&fields.path("user_id")) {
        fields.problem("user_id", "This field is required. Set it to null to unassign.");
    }
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
