//! What follows when a reply of the inbox has ended, and when a message has arrived: the state and the event, in one
//! transaction.

use crier_domain::conversation::{Conversation, Message, MessageStatus};
use crier_domain::event::EventName;
use crier_domain::failure::Failure;
use crier_domain::platform::{ConversationType, Platform};
use crier_store::conversations::receive::Received;
use crier_store::conversations::replies::{self, ReplyEnd};
use crier_store::{Result, Tx, conversations, events};
use serde_json::json;

/// A message's place, for its event.
struct Place {
    message_id: i64,
    conversation_id: i64,
    brand_id: i64,
    platform: Platform,
    kind: ConversationType,
}

async fn emit(tx: &mut Tx, name: EventName, place: &Place, trace: Option<&str>) -> Result<()> {
    let data = json!({
        "message_id": place.message_id,
        "conversation_id": place.conversation_id,
        "brand_id": place.brand_id,
        "platform": place.platform,
        "type": place.kind,
    });
    events::emit(tx, place.brand_id, name, &data, trace).await?;
    Ok(())
}

/// Sends the event of a message that arrived.
pub async fn received(tx: &mut Tx, platform: Platform, message: &Received, trace: Option<&str>) -> Result<()> {
    let Received { brand_id, conversation_id, message_id, kind } = *message;
    emit(tx, EventName::MessageReceived, &Place { message_id, conversation_id, brand_id, platform, kind }, trace).await
}

/// Ends a reply, or leaves it waiting for its next attempt, and sends the event. The conversation is locked.
pub async fn end(
    tx: &mut Tx,
    conversation: &Conversation,
    message_id: i64,
    ended: &ReplyEnd,
    trace: Option<&str>,
) -> Result<()> {
    replies::end(tx, conversation, message_id, ended).await?;
    let name = match ended.status {
        MessageStatus::Sent => EventName::MessageSent,
        MessageStatus::Failed => EventName::MessageFailed,
        MessageStatus::Pending | MessageStatus::Received => return Ok(()),
    };
    let place = Place {
        message_id,
        conversation_id: conversation.id,
        brand_id: conversation.brand_id,
        platform: conversation.platform,
        kind: conversation.kind,
    };
    emit(tx, name, &place, trace).await
}

/// Returns the end of a failed reply.
pub fn failed(message: &Message, failure: Failure) -> ReplyEnd {
    ReplyEnd {
        status: MessageStatus::Failed,
        external_id: None,
        error: Some(failure),
        next_attempt_at: None,
        call_open: message.call_started_at.is_some(),
    }
}

/// Fails a reply that its run did not end: its job died, or the operator cancelled it.
pub async fn fail(tx: &mut Tx, message_id: i64, failure: Failure, trace: Option<&str>) -> Result<()> {
    let Some(conversation) = conversations::lock_of_message(tx, message_id).await? else { return Ok(()) };
    // Checked under the lock: its run may have ended during the wait.
    let found = replies::find_without_json(tx, message_id).await?;
    let Some(message) = found.filter(|m| m.status == MessageStatus::Pending) else { return Ok(()) };
    end(tx, &conversation, message_id, &failed(&message, failure), trace).await
}

/// Makes a reply pending again for the operator: a failed one, or one that could not be failed when its job died.
pub async fn retry_failed(tx: &mut Tx, message_id: i64) -> Result<bool> {
    conversations::lock_of_message(tx, message_id).await?;
    let found = replies::find(tx, message_id).await?;
    let may_retry = found.is_some_and(|m| matches!(m.status, MessageStatus::Failed | MessageStatus::Pending));
    if may_retry {
        replies::reset(tx, message_id).await?;
    }
    Ok(may_retry)
}
