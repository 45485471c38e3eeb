//! `POST /brands/{brand}/conversations/{conversation}/reply`

use std::sync::Arc;

use crier_domain::access::Scope;
use crier_domain::conversation::ConversationStatus;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_platforms::inbox::ReplyThread;
use crier_store::conversations::{self, replies};
use crier_store::{Tx, accounts, jobs};

use super::{FEATURES, Message, TAG, lock, reply_refusal};
use crate::context::Context;
use crate::endpoint::{Endpoint, Growth};
use crate::error::{ApiError, ErrorCode, Result};
use crate::fields::Fields;
use crate::request::{Parsed, Request};
use crate::response::{One, Reply};

/// The maximum length of a reply, in characters. Most platforms allow less. A response that contains such a reply is
/// small enough to be stored.
const MAX_REPLY_CHARS: usize = 10_000;

/// The reply to send.
#[derive(Clone, Debug, Request)]
#[request(name = "NewReply", check = check)]
pub struct ReplyRequest {
    #[field(text(1..=MAX_REPLY_CHARS), example = "Thank you! We open at seven.")]
    pub body: String,
    /// Whether the conversation becomes `resolved`. Default: false, which keeps the current status.
    #[field(flag(), extension)]
    pub resolve: Option<bool>,
}

pub fn endpoint() -> Endpoint<ReplyRequest, One<Message>> {
    Endpoint::post("/brands/{brand}/conversations/{conversation}/reply", "replyToConversation", Scope::InboxWrite)
        .tag(TAG)
        .for_publishers()
        .adds(Growth::Texts)
        .summary("Reply to a conversation")
        .description(
            "Crier sends the reply after the response, at most once, and retries it like a post. To find out the result, \
             get the conversation or subscribe to `message.sent` and `message.failed`. If the platform does not accept \
             the reply (because of its type, time window or length), the response is 422 \
             `platform_capability_unavailable` with the reason. A failed reply reopens a `resolved` conversation.",
        )
        .features(FEATURES)
        .status(202)
        .error_codes(&[ErrorCode::ValidationFailed, ErrorCode::PlatformCapabilityUnavailable])
        .checks_then_writes(reply)
}

fn check(request: &ReplyRequest, fields: &Fields<'_>) {
    if request.body.trim().is_empty() {
        fields.problem("body", "Must not be empty.");
    }
}

fn unavailable(reason: String) -> ApiError {
    ApiError::new(ErrorCode::PlatformCapabilityUnavailable, reason)
}

async fn reply(cx: &Context, tx: &mut Tx, parsed: Arc<Parsed<ReplyRequest>>) -> Result<Reply<Message>> {
    let conversation = lock(cx, tx).await?;
    if cx.version.is_some_and(|version| version != conversation.updated_at) {
        let message = "The conversation was changed after the user agreed. Repeat the call without this argument, so that \
                       the user can check it again.";
        return Err(ApiError::field("confirm", message));
    }
    let ReplyRequest { body, resolve } = parsed.valid()?;
    let account = accounts::summaries(tx, conversation.brand_id, &[conversation.account_id]).await?.pop();
    if let Some(reason) = reply_refusal(cx, &conversation, account.as_ref().map(|account| account.status)) {
        return Err(unavailable(reason));
    }
    if let Some(connector) = cx.app.platforms.get(conversation.platform)
        && let Some(inbox) = connector.inbox()
    {
        let limits = account.and_then(|account| account.limits);
        let thread = ReplyThread { limits, ..ReplyThread::from(&conversation) };
        inbox.check_text(&thread, body).map_err(unavailable)?;
    }
    let id = replies::insert(tx, &conversation, cx.caller.user_id, &cx.caller.user_name, body).await?;
    if *resolve == Some(true) {
        conversations::set_status(tx, conversation.id, ConversationStatus::Resolved, None).await?;
    }
    let send = NewJob::new(JobKind::SendReply, id, tx.now)
        .lane(Lane::Account(conversation.account_id))
        .workspace(cx.caller.workspace_id);
    jobs::enqueue(tx, &send.trace(cx.trace().map(str::to_owned))).await?;
    let message = replies::find(tx, id).await?;
    let message = message.ok_or_else(|| ApiError::bug("a reply was not found after it was created"))?;
    let path = format!("/brands/{}/conversations/{}", conversation.brand_id, conversation.id);
    Ok(Reply::at(&path, Message::from(message)))
}
