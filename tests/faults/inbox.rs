//! A worker that is killed at each point of a reply or of an inbox sync. Invariants: a reply is on the platform once,
//! or is looked up before it is sent again, or the user learns that it may exist. A message is stored once, with one
//! event.

use std::sync::Arc;

use crier_domain::conversation::MessageStatus;
use crier_domain::failure::Category;
use crier_domain::job::{JobKind, JobState};
use crier_scheduler::tasks;
use crier_store::conversations;

use crate::jobs::inbox::{bodies, start, sync};
use crate::jobs::replies::{conversation, message};
use crate::support::fake_inbox::{COMMENTS, ReplyStep};
use crate::support::fake_platform::Gate;
use crate::support::inbox::{all, reply};
use crate::support::jobs::{LEASE_EXPIRY_SECONDS, TestWorker, worker_on_both};

worker_on_both!(
    a_crash_before_the_reply_arrives_sends_it_once,
    a_crash_after_acceptance_sends_it_once,
    a_crash_before_the_result_is_stored_sends_it_once,
    a_crash_in_the_call_ends_unknown_without_look_up,
    a_frozen_worker_does_not_send_after_its_lease,
    a_crash_between_two_pages_loses_and_doubles_nothing,
    a_frozen_sync_stores_nothing_after_its_lease,
);

async fn assert_sent_once(w: &TestWorker, conversation: i64, id: i64) {
    let sent = message(w, id).await;
    assert_eq!((sent.status, sent.error, sent.call_started_at), (MessageStatus::Sent, None, None));
    let on_platform = w.fake.inbox.sent();
    assert_eq!((on_platform.len(), Some(&on_platform[0].id)), (1, sent.external_id.as_ref()));
    assert_eq!(w.events().await, ["message.sent"]);
    sync(w).await;
    assert_eq!(bodies(w, conversation).await, ["When do you open?", "At seven."]);
}

/// Sends a reply with a worker that is killed at the gate; returns the conversation and the message.
async fn reply_with_killed_worker(w: &TestWorker, step: impl FnOnce(Arc<Gate>) -> ReplyStep) -> (i64, i64) {
    let conversation = conversation(w).await;
    let gate = Gate::new();
    w.fake.inbox.script_replies([step(gate.clone())]);
    w.s.notifier.take();
    let id = reply(w, conversation, "At seven.").await;
    w.kill_at(&gate, w.notified_job()).await;
    assert_eq!(w.state(w.newest_job_of(JobKind::SendReply, id).await).await, JobState::Running);
    (conversation, id)
}

async fn a_crash_before_the_reply_arrives_sends_it_once(w: TestWorker) {
    let (conversation, id) = reply_with_killed_worker(&w, ReplyStep::Hang).await;
    w.cancel_deliveries().await;
    for _ in 0..4 {
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
    }
    assert_eq!(w.fake.inbox.calls().0, 2);
    assert_sent_once(&w, conversation, id).await;
}

async fn a_crash_after_acceptance_sends_it_once(w: TestWorker) {
    let (conversation, id) = reply_with_killed_worker(&w, ReplyStep::AcceptAndHang).await;
    for _ in 0..2 {
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
    }
    assert_eq!(w.fake.inbox.calls(), (1, 1));
    assert_sent_once(&w, conversation, id).await;
}

/// The worker dies after the platform has responded and before the result is stored.
async fn a_crash_before_the_result_is_stored_sends_it_once(w: TestWorker) {
    let conversation = conversation(&w).await;
    let gate = Gate::new();
    w.fake.inbox.script_replies([ReplyStep::Wait(gate.clone())]);
    w.s.notifier.take();
    let id = reply(&w, conversation, "At seven.").await;
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    gate.wait_until_entered().await;
    // Blocks the write: on SQLite all writes, on Postgres those of this conversation.
    let mut tx = w.begin().await.unwrap();
    conversations::lock(&mut tx, w.world.brand, conversation).await.unwrap();
    gate.let_through();
    w.fake.inbox.wait_until_sent().await;
    doomed.kill().await;
    tx.rollback().await.unwrap();
    assert_eq!(message(&w, id).await.status, MessageStatus::Pending);
    for _ in 0..2 {
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
    }
    assert_sent_once(&w, conversation, id).await;
}

async fn a_crash_in_the_call_ends_unknown_without_look_up(w: TestWorker) {
    w.fake.inbox.disable_reconcile();
    let (_, id) = reply_with_killed_worker(&w, ReplyStep::AcceptAndHang).await;
    for _ in 0..3 {
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
    }
    let failed = message(&w, id).await;
    assert_eq!((failed.status, failed.error.unwrap().category), (MessageStatus::Failed, Category::OutcomeUnknown));
    assert_eq!((w.fake.inbox.calls().0, w.events().await), (1, vec!["message.failed".to_owned()]));
}

/// A worker is frozen in the call, and another one takes over the reply.
async fn a_frozen_worker_does_not_send_after_its_lease(w: TestWorker) {
    let conversation = conversation(&w).await;
    let gate = Gate::new();
    w.fake.inbox.script_replies([ReplyStep::AcceptAndHang(gate.clone())]);
    w.s.notifier.take();
    let id = reply(&w, conversation, "At seven.").await;
    let frozen = w.killable_worker().await;
    frozen.start(w.notified_job());
    gate.wait_until_entered().await;
    for _ in 0..2 {
        w.advance(LEASE_EXPIRY_SECONDS);
        w.run_jobs().await;
    }
    frozen.kill().await;
    assert_sent_once(&w, conversation, id).await;
}

async fn a_crash_between_two_pages_loses_and_doubles_nothing(w: TestWorker) {
    start(&w).await;
    for n in 0..8 {
        w.fake.inbox.write(COMMENTS, &format!("c{n}"), "t1", &format!("comment {n}"));
        w.advance(1);
    }
    // The worker is killed in the fetch of the second page, when the first page is stored.
    let first = Gate::new();
    w.fake.inbox.hold_fetch(first.clone());
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let doomed = w.killable_worker().await;
    doomed.start(w.notified_job());
    first.wait_until_entered().await;
    let second = Gate::new();
    w.fake.inbox.hold_fetch(second.clone());
    first.let_through();
    second.wait_until_entered().await;
    doomed.kill().await;
    assert_eq!(w.count_rows("messages").await, 3);
    w.advance(LEASE_EXPIRY_SECONDS);
    sync(&w).await;
    let found = all(&w, w.world.brand).await.remove(0);
    assert_eq!((bodies(&w, found.id).await.len(), found.unread_count), (8, 8));
    assert_eq!(w.events().await.len(), 8, "one event for each");
}

async fn a_frozen_sync_stores_nothing_after_its_lease(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "comment");
    let gate = Gate::new();
    w.fake.inbox.hold_fetch(gate.clone());
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let engine = w.engine.clone();
    let id = w.notified_job();
    let frozen = tokio::spawn(async move { engine.run(id).await });
    gate.wait_until_entered().await;
    w.advance(LEASE_EXPIRY_SECONDS);
    sync(&w).await;
    let before = all(&w, w.world.brand).await.remove(0);
    gate.let_through();
    frozen.await.unwrap();
    let after = all(&w, w.world.brand).await.remove(0);
    assert_eq!((after.unread_count, after.updated_at), (1, before.updated_at));
    assert_eq!((w.events().await.len(), w.state(id).await), (1, JobState::Done));
}
