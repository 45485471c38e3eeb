//! `PUT /brands/{brand}/conversations/{conversation}/status`

use std::sync::Arc;

use chrono::{DateTime, SubsecRound as _, Utc};
use crier_domain::access::Scope;
use crier_domain::conversation::{Conversation, ConversationStatus};
use crier_store::{Tx, conversations};
use schemars::JsonSchema;
use serde_json::json;

use super::{ConversationDetail, FEATURES, TAG, lock, show};
use crate::context::Context;
use crate::endpoint::Endpoint;
use crate::error::{ErrorCode, Result};
use crate::fields::{Fields, ParsedBody};
use crate::openapi::schema::TextEnum;
use crate::request::Parsed;
use crate::response::{One, Reply};

/// The new status of a conversation.
#[derive(Clone, Debug, JsonSchema)]
pub struct ConversationStatusChange {
    #[schemars(with = "TextEnum<ConversationStatus>")]
    pub status: ConversationStatus,
    /// The end of the snooze, which must be in the future. Required if `status` is `snoozed`. A time without an offset
    /// is in the brand's time zone.
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

// EXAMPLE ConversationStatusChange: json!({ "status": "snoozed", "snoozed_until": "{day+7}T07:00:00Z" })
}

fn read(f: &Fields<'_>, zone: &str, now: DateTime<Utc>) -> Option<ConversationStatusChange> {
    let status = f.required("status", f.enum_value("status"));
    let until = f.time("snoozed_until", zone);
    let snoozed_until = match status {
        Some(ConversationStatus::Snoozed) => f.required("snoozed_until", until),
        _ => None,
    };
    if snoozed_until.is_some_and(|until| until <= now) {
        f.problem("snoozed_until", "Must be in the future.");
    }
    Some(ConversationStatusChange { status: status?, snoozed_until: snoozed_until.map(|at| at.trunc_subsecs(6)) })
}

async fn set(
    cx: &Context,
    tx: &mut Tx,
    parsed: Arc<Parsed<ConversationStatusChange>>,
) -> Result<Reply<ConversationDetail>> {
    let conversation = lock(cx, tx).await?;
    let ConversationStatusChange { status, snoozed_until } = *parsed.valid()?;
    conversations::set_status(tx, conversation.id, status, snoozed_until).await?;
    let changed = Conversation { status, snoozed_until, updated_at: tx.now, ..conversation };
    Ok(Reply::from(ConversationDetail::load(cx, tx, changed).await?))
}
