//! `send_reply`: a reply is sent at most once, and its result is stored in the conversation.

use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::conversation::{ConversationStatus, Message, MessageStatus};
use crier_domain::event::EventName;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_jobs as definitions;
use crier_store::conversations::{self, replies};
use crier_store::{accounts, inbox_syncs};

use super::inbox::{bodies, start, sync};
use crate::support::fake_inbox::{COMMENTS, ReplyStep};
use crate::support::fake_platform::{auth_expired, duplicate, permanent, rate_limited, reauth, transient, unknown};
use crate::support::inbox::{all, reply, run_reply};
use crate::support::jobs::{MAX_CALL_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    a_reply_is_sent_once_and_the_account_is_synced_immediately,
    a_sync_before_the_result_creates_no_duplicate,
    a_rejected_reply_fails,
    a_failed_reply_reopens_a_resolved_conversation,
    a_transient_failure_is_retried,
    a_reply_fails_after_eight_attempts,
    an_unknown_outcome_is_reconciled,
    a_duplicate_after_an_unknown_outcome_stays_unknown,
    without_reconcile_the_outcome_stays_unknown,
    an_expired_token_is_refreshed_once,
    rejected_credentials_fail_the_reply,
    a_rate_limit_pauses_the_account,
    a_disconnected_account_fails_the_reply,
    an_operator_can_cancel_and_retry,
    a_cancelled_reply_that_may_have_been_sent_has_an_unknown_outcome,
);

/// Creates a conversation with one comment, and an endpoint for the results of replies.
pub async fn conversation(w: &TestWorker) -> i64 {
    start(w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "When do you open?");
    sync(w).await;
    w.sql("DELETE FROM webhooks").await;
    w.sql("DELETE FROM events").await;
    w.listen_for("http://127.0.0.1:1/", &[EventName::MessageSent, EventName::MessageFailed]).await;
    all(w, w.world.brand).await[0].id
}

pub async fn message(w: &TestWorker, id: i64) -> Message {
    replies::find(&mut w.conn().await, id).await.unwrap().unwrap()
}

async fn reply_status(w: &TestWorker, id: i64) -> (MessageStatus, Option<Category>) {
    let found = message(w, id).await;
    (found.status, found.error.map(|error| error.category))
}

async fn a_reply_is_sent_once_and_the_account_is_synced_immediately(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Pending);
    let before = w.fake.inbox.fetches().len();
    run_reply(&w, id).await;
    let sent = message(&w, id).await;
    assert_eq!((sent.status, sent.external_id.as_deref(), sent.attempts), (MessageStatus::Sent, Some("reply-1"), 1));
    assert_eq!((sent.author_name.as_deref(), sent.author_user_id), (Some("Ann"), Some(w.world.user)));
    assert_eq!((sent.call_started_at, sent.error.is_none()), (None, true));
    assert_eq!(w.events().await, ["message.sent"]);
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), before + 2, "the account is synced immediately");
    assert_eq!(bodies(&w, conversation).await, ["When do you open?", "At seven."]);
    assert_eq!((w.fake.inbox.sent().len(), all(&w, w.world.brand).await[0].unread_count), (1, 1));
    assert_eq!(w.fake.inbox.sent()[0].thread, "t1");
}

/// A sync fetches the reply from the platform before the reply's own run stores that it was sent.
async fn a_sync_before_the_result_creates_no_duplicate(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::AcceptAnd(unknown())]);
    run_reply(&w, id).await;
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Pending, Some(Category::OutcomeUnknown)));
    w.write(async |tx| inbox_syncs::request(tx, w.account.id, w.world.workspace, TimeDelta::zero(), None).await).await;
    sync(&w).await;
    assert_eq!(bodies(&w, conversation).await.len(), 3, "it appears as a message of the account");
    w.advance(MAX_CALL_SECONDS);
    run_reply(&w, id).await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Sent);
    sync(&w).await;
    assert_eq!(bodies(&w, conversation).await, ["When do you open?", "At seven."]);
    assert_eq!(w.fake.inbox.sent().len(), 1);
}

async fn a_rejected_reply_fails(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::Reject(permanent())]);
    run_reply(&w, id).await;
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::PlatformRejected)));
    assert_eq!(
        (w.events().await, w.state(w.newest_job_of(JobKind::SendReply, id).await).await),
        (vec!["message.failed".to_owned()], JobState::Done)
    );
}

async fn a_failed_reply_reopens_a_resolved_conversation(w: TestWorker) {
    let conversation = conversation(&w).await;
    let status = async || all(&w, w.world.brand).await[0].status;
    let set_status = async |status| {
        w.write(async |tx| conversations::set_status(tx, conversation, status, None).await).await;
    };
    for (set, step, expected) in [
        (ConversationStatus::Resolved, ReplyStep::Reject(permanent()), ConversationStatus::Open),
        (ConversationStatus::Spam, ReplyStep::Reject(permanent()), ConversationStatus::Spam),
        (ConversationStatus::Resolved, ReplyStep::Reject(transient()), ConversationStatus::Resolved),
    ] {
        let id = reply(&w, conversation, "At seven.").await;
        set_status(set).await;
        w.fake.inbox.script_replies([step]);
        run_reply(&w, id).await;
        assert_eq!(status().await, expected);
    }
}

async fn a_transient_failure_is_retried(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::Reject(transient())]);
    run_reply(&w, id).await;
    let waiting = message(&w, id).await;
    let next = waiting.next_attempt_at.unwrap() - w.now();
    assert!(next >= TimeDelta::seconds(8) && next <= TimeDelta::seconds(12), "{next}");
    assert_eq!((waiting.status, waiting.call_started_at), (MessageStatus::Pending, None));
    w.advance(12);
    run_reply(&w, id).await;
    let sent = message(&w, id).await;
    assert_eq!((sent.status, sent.attempts, sent.error), (MessageStatus::Sent, 2, None));
    assert_eq!(w.fake.inbox.calls(), (2, 0), "a rejected call is not reconciled");
}

async fn a_reply_fails_after_eight_attempts(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies((0..8).map(|_| ReplyStep::Reject(transient())));
    for _ in 0..8 {
        run_reply(&w, id).await;
        w.advance(3 * 3_600);
    }
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::PlatformError)));
    assert_eq!((w.fake.inbox.calls(), w.events().await), ((8, 0), vec!["message.failed".to_owned()]));
}

async fn an_unknown_outcome_is_reconciled(w: TestWorker) {
    let conversation = conversation(&w).await;
    for (step, calls) in [(ReplyStep::AcceptAnd(unknown()), 1), (ReplyStep::Reject(unknown()), 3)] {
        let id = reply(&w, conversation, "At seven.").await;
        w.fake.inbox.script_replies([step]);
        run_reply(&w, id).await;
        assert_eq!(message(&w, id).await.status, MessageStatus::Pending);
        w.advance(MAX_CALL_SECONDS);
        run_reply(&w, id).await;
        assert_eq!(message(&w, id).await.status, MessageStatus::Sent);
        assert_eq!(w.fake.inbox.calls().0, calls);
    }
    assert_eq!(w.fake.inbox.sent().len(), 2, "each once");
}

async fn a_duplicate_after_an_unknown_outcome_stays_unknown(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    // The second call is rejected before the platform compares the text.
    let steps = [unknown(), transient(), duplicate()];
    w.fake.inbox.script_replies(steps.map(ReplyStep::Reject));
    for _ in 0..3 {
        run_reply(&w, id).await;
        w.advance(3 * 3_600);
    }
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::OutcomeUnknown)));
    assert_eq!(w.fake.inbox.calls(), (3, 1));
}

async fn without_reconcile_the_outcome_stays_unknown(w: TestWorker) {
    w.fake.inbox.disable_reconcile();
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::AcceptAnd(unknown())]);
    run_reply(&w, id).await;
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::OutcomeUnknown)));
    w.advance(100_000);
    w.scheduler.tick().await.unwrap();
    assert_eq!((w.fake.inbox.calls(), w.events().await), ((1, 0), vec!["message.failed".to_owned()]));
}

async fn an_expired_token_is_refreshed_once(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.accept_only_token("fresh");
    run_reply(&w, id).await;
    assert_eq!((message(&w, id).await.status, w.fake.count("refresh")), (MessageStatus::Sent, 1));
    assert_eq!(w.fake.inbox.sent().len(), 1);
}

async fn rejected_credentials_fail_the_reply(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::Reject(reauth())]);
    run_reply(&w, id).await;
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::AuthExpired)));
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    // The next reply fails without a call.
    let id = reply(&w, conversation, "At eight.").await;
    run_reply(&w, id).await;
    assert_eq!(message(&w, id).await.error.unwrap().code, "account_expired");
    assert_eq!(w.fake.inbox.calls(), (1, 0));
    assert!(auth_expired().failure().category == Category::AuthExpired);
}

async fn a_rate_limit_pauses_the_account(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::Reject(rate_limited(w.later(90)))]);
    run_reply(&w, id).await;
    assert_eq!(message(&w, id).await.next_attempt_at, Some(w.later(90)));
    let second = reply(&w, conversation, "At eight.").await;
    run_reply(&w, second).await;
    assert_eq!((w.fake.inbox.calls().0, message(&w, second).await.attempts), (1, 0), "it waits for the lane");
    w.advance(90);
    w.run_jobs().await;
    assert_eq!(w.fake.inbox.sent().len(), 2);
}

async fn a_disconnected_account_fails_the_reply(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.write(async |tx| accounts::disconnect(tx, w.world.brand, w.account.id).await).await;
    run_reply(&w, id).await;
    assert_eq!(message(&w, id).await.error.unwrap().code, "account_disconnected");
    assert_eq!((w.fake.inbox.calls(), w.events().await), ((0, 0), vec!["message.failed".to_owned()]));
    assert_eq!(w.count_rows("inbox_syncs").await, 0);
    assert_eq!(bodies(&w, conversation).await.len(), 2, "the conversation is kept");
}

async fn a_cancelled_reply_that_may_have_been_sent_has_an_unknown_outcome(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.fake.inbox.script_replies([ReplyStep::AcceptAnd(unknown())]);
    run_reply(&w, id).await;
    w.write(async |tx| definitions::on_cancelled(tx, JobKind::SendReply, id).await).await;
    assert_eq!(reply_status(&w, id).await, (MessageStatus::Failed, Some(Category::OutcomeUnknown)));
    // A retry looks it up.
    assert!(w.write(async |tx| definitions::on_retry(tx, JobKind::SendReply, id).await).await);
    w.advance(MAX_CALL_SECONDS);
    run_reply(&w, id).await;
    assert_eq!((message(&w, id).await.status, w.fake.inbox.calls()), (MessageStatus::Sent, (1, 1)));
}

async fn an_operator_can_cancel_and_retry(w: TestWorker) {
    let conversation = conversation(&w).await;
    let id = reply(&w, conversation, "At seven.").await;
    w.write(async |tx| definitions::on_cancelled(tx, JobKind::SendReply, id).await).await;
    assert_eq!(message(&w, id).await.error.unwrap().code, "cancelled");
    assert_eq!(w.events().await, ["message.failed"]);
    assert!(w.write(async |tx| definitions::on_retry(tx, JobKind::SendReply, id).await).await);
    run_reply(&w, id).await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Sent);
    assert!(!w.write(async |tx| definitions::on_retry(tx, JobKind::SendReply, id).await).await);
    let words = definitions::describe(&mut w.conn().await, JobKind::SendReply, id).await.unwrap().unwrap().words;
    assert!(words.contains("sent") && !words.contains("seven"), "{words}");
    let words = definitions::describe(&mut w.conn().await, JobKind::SyncInbox, w.account.id).await.unwrap().unwrap();
    assert!(words.words.contains("sandbox account"), "{}", words.words);
    w.write(async |tx| definitions::on_dead(tx, JobKind::SendReply, id, None).await).await;
    assert_eq!(message(&w, id).await.status, MessageStatus::Sent, "a sent reply stays sent");
}
