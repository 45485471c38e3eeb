//! The transitions of messages in the inbox: the end of a reply, and the arrival of a message, with their events in the
//! same transaction.

use crier_domain::conversation::{Conversation, Message, MessageStatus};
use crier_domain::event::EventName;
use crier_domain::failure::Failure;
use crier_domain::platform::{ConversationType, Platform};
use crier_store::conversations::receive::Received;
use crier_store::conversations::replies::{self, ReplyOutcome};
use crier_store::{Result, Tx, conversations, events};
use serde_json::json;

use crate::unknown_outcome;

/// The identifying data of a message, for its event.
struct EventSubject {
    message_id: i64,
    conversation_id: i64,
    brand_id: i64,
    platform: Platform,
    kind: ConversationType,
}

async fn emit(tx: &mut Tx, name: EventName, subject: &EventSubject, trace: Option<&str>) -> Result<()> {
    let data = json!({
        "message_id": subject.message_id,
        "conversation_id": subject.conversation_id,
        "brand_id": subject.brand_id,
        "platform": subject.platform,
        "type": subject.kind,
    });
    events::emit(tx, subject.brand_id, name, &data, trace).await?;
    Ok(())
}

/// Emits the event of a message that arrived.
pub async fn received(tx: &mut Tx, platform: Platform, message: &Received, trace: Option<&str>) -> Result<()> {
    let Received { brand_id, conversation_id, message_id, kind } = *message;
    emit(tx, EventName::MessageReceived, &EventSubject { message_id, conversation_id, brand_id, platform, kind }, trace)
        .await
}

/// Ends a reply and emits the event, or records that it waits for its next attempt. The caller has locked the
/// conversation.
pub async fn end(
    tx: &mut Tx,
    conversation: &Conversation,
    message_id: i64,
    end: &ReplyOutcome,
    trace: Option<&str>,
) -> Result<()> {
    replies::end(tx, conversation, message_id, end).await?;
    let name = match end.status {
        MessageStatus::Sent => EventName::MessageSent,
        MessageStatus::Failed => EventName::MessageFailed,
        MessageStatus::Pending | MessageStatus::Received => return Ok(()),
    };
    let subject = EventSubject {
        message_id,
        conversation_id: conversation.id,
        brand_id: conversation.brand_id,
        platform: conversation.platform,
        kind: conversation.kind,
    };
    emit(tx, name, &subject, trace).await
}

/// Returns the end of a failed reply.
pub fn failed(message: &Message, failure: Failure) -> ReplyOutcome {
    ReplyOutcome {
        status: MessageStatus::Failed,
        external_id: None,
        error: Some(failure),
        next_attempt_at: None,
        call_open: message.call_started_at.is_some(),
    }
}

/// Fails a reply whose run did not end it, because its job is dead or the operator cancelled the job.
pub async fn fail(tx: &mut Tx, message_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some(conversation) = conversations::lock_of_message(tx, message_id).await? else { return Ok(()) };
    // Checked under the lock: its run may have ended during the wait.
    let found = replies::find_without_json(tx, message_id).await?;
    let Some(message) = found.filter(|m| m.status == MessageStatus::Pending) else { return Ok(()) };
    let is_unknown = message.call_started_at.is_some();
    let failure = if is_unknown { unknown_outcome("sent", "reply again") } else { failure };
    end(tx, &conversation, message_id, &failed(&message, failure), trace).await
}

/// Makes a reply pending again, for a retry by the operator: a failed reply, or one that could not be failed when its
/// job became dead.
pub async fn retry_failed(tx: &mut Tx, message_id: i64) -> Result<bool> {
    conversations::lock_of_message(tx, message_id).await?;
    let found = replies::find(tx, message_id).await?;
    let may_retry = found.is_some_and(|m| matches!(m.status, MessageStatus::Failed | MessageStatus::Pending));
    if may_retry {
        replies::reset(tx, message_id).await?;
    }
    Ok(may_retry)
}
