//! `PUT /brands/{brand}/conversations/{conversation}/status`

use std::sync::Arc;

use chrono::{DateTime, SubsecRound as _, Utc};
use crier_domain::access::Scope;
use crier_domain::conversation::{Conversation, ConversationStatus};
use crier_store::{Tx, conversations};

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::fields::{Fields, PatchField};
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The new status of a conversation.
#[derive(Clone, Debug, Request)]
#[request(check = check)]
pub struct ConversationStatusChange {
    #[field(enum_value(), example = "snoozed")]
    pub status: ConversationStatus,
    /// The end of the snooze, which must be in the future. Required if `status` is `snoozed`. A time without an offset
    /// is in the brand's time zone.
    #[field(time(), example = "{day+7}T07:00:00Z")]
    pub snoozed_until: Option<DateTime<Utc>>,
}

pub fn endpoint() -> Endpoint<ConversationStatusChange, One<ConversationDetail>> {
    Endpoint::put("/brands/{brand}/conversations/{conversation}/status", "setConversationStatus", Scope::InboxWrite)
        .tag(TAG)
        .summary("Set the status of a conversation")
        .description(
            "Crier reopens a snoozed conversation within a minute of `snoozed_until`. An inbound message reopens a snoozed \
             or resolved conversation, but not one marked as spam.",
        )
        .features(FEATURES)
        .error_codes(&[ErrorCode::ValidationFailed])
        .checks_then_writes(set)
        .with_rerender("conversation", show::show)
}

fn check(request: &ConversationStatusChange, fields: &Fields<'_>) {
    if request.status != ConversationStatus::Snoozed {
        return;
    }
    let until = request.snoozed_until.map_or(PatchField::Omitted, PatchField::Value);
    if fields.required("snoozed_until", until).is_some_and(|until| until <= fields.context().now) {
        fields.problem("snoozed_until", "Must be in the future.");
    }
}

async fn set(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<ConversationStatusChange>>,
) -> Result<Reply<ConversationDetail>> {
    let conversation = lock(cx, tx).await?;
    let &ConversationStatusChange { status, snoozed_until } = parsed.valid()?;
    let snoozed_until = snoozed_until.filter(|_| status == ConversationStatus::Snoozed).map(|at| at.trunc_subsecs(6));
    conversations::set_status(tx, conversation.id, status, snoozed_until).await?;
    let changed = Conversation { status, snoozed_until, updated_at: tx.now, ..conversation };
    Ok(Reply::from(ConversationDetail::load(cx, tx, changed).await?))
}
