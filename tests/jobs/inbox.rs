//! `sync_inbox`: pages, cursors, streams, failures, and the effects of a new message.

use chrono::TimeDelta;
use crier_config::PlatformConfig;
use crier_domain::account::AccountStatus;
use crier_domain::conversation::{Conversation, ConversationStatus, FetchedMessage, MessageDirection};
use crier_domain::event::EventName;
use crier_domain::job::{JobKind, JobState};
use crier_domain::platform::Platform;
use crier_domain::post::PostStatus;
use crier_scheduler::tasks;
use crier_store::conversations::{self, replies};
use crier_store::{accounts, inbox_syncs};

use crate::support::fake_inbox::{COMMENTS, DMS, message};
use crate::support::fake_platform::{Gate, permanent, rate_limited, reauth, transient};
use crate::support::inbox::all;
use crate::support::jobs::{TestWorker, worker_on_both};
use crate::support::store::{TestStore, new_account, on_both};

worker_on_both!(
    pages_are_stored_with_the_next_cursor,
    a_run_fetches_five_pages_and_the_next_run_continues,
    a_new_message_is_unread_and_emits_an_event,
    old_messages_are_stored_as_read_without_events,
    a_late_message_is_stored_and_an_overlap_is_not_duplicated,
    own_messages_are_outbound,
    an_edit_updates_the_message,
    an_edited_message_stays_in_its_conversation,
    each_brand_has_its_own_conversation,
    a_new_message_reopens_resolved_and_snoozed_conversations,
    a_failing_stream_does_not_block_the_other,
    a_finished_stream_is_not_fetched_again_with_the_other,
    a_rate_limit_pauses_the_account,
    a_daily_rate_limit_delays_posts_only_for_a_short_time,
    an_expired_token_is_refreshed_once,
    rejected_credentials_expire_the_account,
    a_sync_requested_during_a_run_causes_another_run,
    syncs_requested_in_a_loop_wait,
    a_waiting_sync_is_not_lost_during_a_run,
    a_sync_requested_again_during_a_run_is_not_lost,
    due_accounts_are_synced_every_minute,
    a_platform_without_inbox_is_not_synced,
    a_snooze_ends_automatically,
);

on_both!(a_disabled_inbox_is_not_synced);

/// Enables the account's inbox, and creates an endpoint for `message.received`.
pub async fn start(w: &TestWorker) {
    w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
    w.listen_for("http://127.0.0.1:1/", &[EventName::MessageReceived]).await;
}

/// Runs the scheduler's task for due accounts, and the jobs.
pub async fn sync(w: &TestWorker) {
    tasks::inbox::run(&w.scheduler).await.unwrap();
    // The deliveries are canceled, because nothing listens at their endpoint.
    w.cancel_deliveries().await;
    w.run_jobs().await;
    w.cancel_deliveries().await;
}

/// Syncs again, a little more than a minute later.
async fn sync_later(w: &TestWorker) {
    w.advance(70);
    sync(w).await;
}

/// Requests a sync of an account whose platform has an interval of a minute.
async fn request(w: &TestWorker) {
    let (account, workspace, interval) = (w.account.id, w.world.workspace, TimeDelta::minutes(1));
    w.write(async |tx| inbox_syncs::request(tx, account, workspace, interval, None).await).await;
}

/// Returns the bodies of a conversation's messages, oldest first.
pub async fn bodies(w: &TestWorker, conversation: i64) -> Vec<String> {
    let found = replies::messages(&mut w.conn().await, conversation, 100, 1 << 20).await.unwrap();
    found.into_iter().map(|message| message.body).collect()
}

async fn only(w: &TestWorker) -> Conversation {
    let mut found = all(w, w.world.brand).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn messages(w: &TestWorker) -> i64 {
    w.count_rows("messages").await
}

async fn sync_row(w: &TestWorker) -> inbox_syncs::InboxSync {
    inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap()
}

async fn pages_are_stored_with_the_next_cursor(w: TestWorker) {
    start(&w).await;
    for n in 0..7 {
        w.fake.inbox.write(COMMENTS, &format!("c{n}"), "t1", &format!("comment {n}"));
        w.advance(1);
    }
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (7, "comment 6"));
    assert_eq!(bodies(&w, found.id).await.len(), 7);
    assert_eq!(found.reply_context["to"], "c6");
    assert_eq!(w.fake.inbox.fetches(), [COMMENTS, COMMENTS, COMMENTS, DMS]);
    let row = sync_row(&w).await;
    assert_eq!((row.cursors[COMMENTS]["id"].as_str(), row.synced_at), (Some(""), Some(w.now())));
    sync_later(&w).await;
    assert_eq!(messages(&w).await, 7);
    assert_eq!(only(&w).await.updated_at, found.updated_at, "an overlap writes nothing");
}

async fn a_run_fetches_five_pages_and_the_next_run_continues(w: TestWorker) {
    start(&w).await;
    for n in 0..40 {
        w.fake.inbox.write(COMMENTS, &format!("c{n:02}"), "t1", "again");
        w.advance(1);
    }
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let id = w.newest_id("jobs WHERE kind = 'sync_inbox'").await;
    w.s.notifier.take();
    w.engine.run(id).await;
    assert_eq!(messages(&w).await, 15);
    let job = w.show(id).await;
    assert_eq!((job.state, job.attempt), (JobState::Scheduled, 0), "it continues without using an attempt");
    assert_eq!(sync_row(&w).await.synced_at, None);
    sync(&w).await;
    assert_eq!(messages(&w).await, 40);
    assert!(sync_row(&w).await.synced_at.is_some());
}

async fn a_new_message_is_unread_and_emits_an_event(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(DMS, "d1", "vera", "When do you open?");
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.kind.as_str(), found.status.as_str()), (1, "dm", "open"));
    assert_eq!((found.participant_name.as_deref(), found.last_inbound_at), (Some("Vera Vogel"), Some(w.now())));
    assert_eq!(w.events().await, ["message.received"]);
    let data = serde_json::json!({
        "message_id": w.newest_id("messages").await, "conversation_id": found.id,
        "brand_id": w.world.brand, "platform": "sandbox", "type": "dm",
    });
    assert_eq!(w.event_payloads().await[0]["data"], data);
}

async fn old_messages_are_stored_as_read_without_events(w: TestWorker) {
    start(&w).await;
    let before = w.now() - TimeDelta::days(30);
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c1", "t1", "Long ago", before), before);
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_at), (0, before));
    assert_eq!(w.events().await, Vec::<String>::new());
}

async fn a_late_message_is_stored_and_an_overlap_is_not_duplicated(w: TestWorker) {
    start(&w).await;
    let written = w.now();
    w.advance(30);
    w.fake.inbox.write(COMMENTS, "c2", "t1", "second");
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c1", "t1", "first, approved later", written), w.later(20));
    sync(&w).await;
    assert_eq!(messages(&w).await, 1);
    sync_later(&w).await;
    sync_later(&w).await;
    let found = only(&w).await;
    assert_eq!(bodies(&w, found.id).await, ["first, approved later", "second"]);
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (2, "second"));
    assert_eq!(w.events().await, ["message.received"; 2]);
}

async fn own_messages_are_outbound(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Open?");
    let now = w.now();
    let own = FetchedMessage {
        direction: MessageDirection::Outbound,
        participant: None,
        ..message(COMMENTS, "c2", "t1", "Yes, says the app", now)
    };
    w.fake.inbox.add(COMMENTS, own, now);
    sync(&w).await;
    let found = only(&w).await;
    let directions = "SELECT string_agg(direction, ' ') FROM (SELECT direction FROM messages ORDER BY external_id) m";
    assert_eq!(w.value::<String>(directions).await, "inbound outbound");
    assert_eq!((found.unread_count, found.participant_name.as_deref()), (1, Some("Vera Vogel")));
    assert_eq!(w.events().await, ["message.received"]);
}

async fn an_edit_updates_the_message(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Opne?");
    let at = w.now();
    sync(&w).await;
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c1", "t1", "Open?", at), at);
    sync_later(&w).await;
    let found = only(&w).await;
    assert_eq!((bodies(&w, found.id).await, found.unread_count), (vec!["Open?".to_owned()], 1));
    assert_eq!((found.last_message_preview.as_str(), w.events().await.len()), ("Open?", 1));
}

/// The comment above it was deleted at the platform, so that the edited message begins a thread.
async fn an_edited_message_stays_in_its_conversation(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Opne?");
    let at = w.now();
    sync(&w).await;
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c1", "c1", "Open?", at), at);
    w.advance(1);
    w.fake.inbox.write(COMMENTS, "c2", "t1", "Hello?");
    sync_later(&w).await;
    let found = only(&w).await;
    assert_eq!((found.thread_id.as_str(), bodies(&w, found.id).await.join(" ")), ("t1", "Open? Hello?".to_owned()));
    assert_eq!((found.last_message_preview.as_str(), found.unread_count, w.events().await.len()), ("Hello?", 2, 2));
}

async fn each_brand_has_its_own_conversation(w: TestWorker) {
    start(&w).await;
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Open?");
    sync(&w).await;
    let (first, second) = (only(&w).await, all(&w, other).await.remove(0));
    assert_ne!(first.id, second.id);
    w.write(async |tx| conversations::set_status(tx, first.id, ConversationStatus::Resolved, None).await).await;
    w.write(async |tx| conversations::mark_read(tx, first.id).await).await;
    let second = conversations::find(&mut w.conn().await, other, second.id).await.unwrap().unwrap();
    assert_eq!((second.status, second.unread_count), (ConversationStatus::Open, 1));
    assert!(conversations::find(&mut w.conn().await, other, first.id).await.unwrap().is_none());
    assert_eq!(w.events().await.len(), 2, "one for each brand");
}

async fn a_new_message_reopens_resolved_and_snoozed_conversations(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c0", "t1", "first");
    sync(&w).await;
    let id = only(&w).await.id;
    let until = w.now() + TimeDelta::days(1);
    for (n, (status, until, after)) in [
        (ConversationStatus::Resolved, None, ConversationStatus::Open),
        (ConversationStatus::Snoozed, Some(until), ConversationStatus::Open),
        (ConversationStatus::Spam, None, ConversationStatus::Spam),
        (ConversationStatus::Assigned, None, ConversationStatus::Assigned),
    ]
    .into_iter()
    .enumerate()
    {
        w.write(async |tx| conversations::set_status(tx, id, status, until).await).await;
        w.advance(70);
        w.fake.inbox.write(COMMENTS, &format!("c{}", n + 1), "t1", "another");
        sync(&w).await;
        let found = only(&w).await;
        assert_eq!((found.status, found.snoozed_until), (after, None), "{status}");
    }
    assert_eq!(only(&w).await.unread_count, 5);
}

async fn a_failing_stream_does_not_block_the_other(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.fail_fetch(COMMENTS, permanent());
    w.fake.inbox.write(COMMENTS, "c1", "t1", "comment");
    w.fake.inbox.write(DMS, "d1", "vera", "message");
    sync(&w).await;
    assert_eq!(only(&w).await.kind.as_str(), "dm");
    let row = sync_row(&w).await;
    assert_eq!(
        (row.failures, row.synced_at, row.last_error.unwrap().message.as_str()),
        (1, None, "The fake rejects this.")
    );
    sync_later(&w).await;
    w.fake.inbox.fail_fetch(DMS, transient());
    sync_later(&w).await;
    assert_eq!(all(&w, w.world.brand).await.len(), 2);
    assert_eq!(sync_row(&w).await.failures, 1);
}

async fn a_finished_stream_is_not_fetched_again_with_the_other(w: TestWorker) {
    start(&w).await;
    // More messages of each stream than one run fetches, all within the overlap of the next sync.
    for number in 0..17 {
        w.fake.inbox.write(COMMENTS, &format!("c{number:02}"), "t", "A comment");
        w.fake.inbox.write(DMS, &format!("d{number:02}"), "u", "A message");
        w.clock.advance(TimeDelta::milliseconds(100));
    }
    w.fake.inbox.fail_fetch(COMMENTS, transient());
    sync(&w).await;
    assert_eq!(w.count_rows("messages").await, 34);
    let fetches = w.fake.inbox.fetches();
    let of = |stream: &str| fetches.iter().filter(|fetched| *fetched == stream).count();
    assert_eq!((of(COMMENTS), of(DMS)), (1 + 6, 6), "each page once, after the failure");
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.unfinished.len(), row.failures, row.last_error), (0, 0, None));
}

async fn a_rate_limit_pauses_the_account(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.fail_fetch(COMMENTS, rate_limited(w.later(300)));
    w.fake.inbox.write(DMS, "d1", "vera", "message");
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches(), [COMMENTS], "the other stream is not fetched");
    let lane = format!("account:{}", w.account.id);
    assert_eq!(w.count_rows(format!("paused_lanes WHERE lane = '{lane}'")).await, 1);
    assert!(sync_row(&w).await.next_sync_at.unwrap() >= w.later(300));
    sync_later(&w).await;
    assert_eq!(messages(&w).await, 0);
    w.advance(300);
    sync(&w).await;
    assert_eq!(messages(&w).await, 1);
}

/// Platforms may limit reading separately.
async fn a_daily_rate_limit_delays_posts_only_for_a_short_time(w: TestWorker) {
    start(&w).await;
    let until = w.later(86_400);
    w.fake.inbox.fail_fetch(COMMENTS, rate_limited(until));
    sync(&w).await;
    assert!(sync_row(&w).await.next_sync_at.unwrap() >= until);
    let (post, _) = w.publish_one().await;
    w.run_jobs().await;
    assert_ne!(w.post_status(post).await, PostStatus::Published);
    w.advance(15 * 60);
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
}

async fn an_expired_token_is_refreshed_once(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.accept_only_token("fresh");
    w.fake.inbox.write(COMMENTS, "c1", "t1", "comment");
    sync(&w).await;
    assert_eq!((w.fake.count("refresh"), messages(&w).await), (1, 1));
    // The platform rejects the refreshed token as well. A run refreshes the token at most once.
    w.fake.inbox.accept_only_token("another");
    sync_later(&w).await;
    assert_eq!((w.fake.count("refresh"), w.account_status().await), (2, AccountStatus::Expired));
}

async fn rejected_credentials_expire_the_account(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.fail_fetch(COMMENTS, reauth());
    sync(&w).await;
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    let before = w.fake.inbox.fetches().len();
    sync_later(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), before, "an expired account is not synced");
    // A reconnected account is synced again.
    w.s.account(w.world, "demo", "token-1").await;
    w.write(async |tx| inbox_syncs::start(tx, w.account.id).await).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "comment");
    sync(&w).await;
    assert_eq!(messages(&w).await, 1);
}

async fn a_sync_requested_during_a_run_causes_another_run(w: TestWorker) {
    start(&w).await;
    let gate = Gate::new();
    w.fake.inbox.hold_fetch(gate.clone());
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let id = w.notified_job();
    let engine = w.engine.clone();
    let running = tokio::spawn(async move { engine.run(id).await });
    gate.wait_until_entered().await;
    request(&w).await;
    gate.let_through();
    running.await.unwrap();
    let job = w.show(id).await;
    assert_eq!((job.state, job.last_error.as_deref()), (JobState::Scheduled, Some("another sync was requested")));
    w.run_jobs().await;
    assert_eq!(w.show(id).await.state, JobState::Done);
    assert_eq!(w.fake.inbox.fetches(), [COMMENTS, DMS, COMMENTS, DMS]);
}

async fn syncs_requested_in_a_loop_wait(w: TestWorker) {
    start(&w).await;
    sync(&w).await;
    request(&w).await;
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), 4, "the first one begins immediately");
    for _ in 0..11 {
        request(&w).await;
        sync(&w).await;
        w.advance(1);
    }
    assert_eq!(w.fake.inbox.fetches().len(), 4);
    w.advance(1);
    for _ in 0..11 {
        request(&w).await;
        sync(&w).await;
        w.advance(1);
    }
    assert_eq!(w.fake.inbox.fetches().len(), 6, "one sync for all requests of a fifth of the interval");
}

async fn a_waiting_sync_is_not_lost_during_a_run(w: TestWorker) {
    start(&w).await;
    request(&w).await;
    let gate = Gate::new();
    w.fake.inbox.hold_fetch(gate.clone());
    let id = w.notified_job();
    let engine = w.engine.clone();
    let running = tokio::spawn(async move { engine.run(id).await });
    gate.wait_until_entered().await;
    request(&w).await;
    gate.let_through();
    running.await.unwrap();
    assert_eq!((w.fake.inbox.fetches().len(), sync_row(&w).await.synced_at), (2, Some(w.now())));
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), 2);
    w.advance(12);
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), 4);
}

/// The requested sync already waited when the run began, so its time does not change.
async fn a_sync_requested_again_during_a_run_is_not_lost(w: TestWorker) {
    start(&w).await;
    request(&w).await;
    sync(&w).await;
    request(&w).await;
    w.advance(12);
    request(&w).await;
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let gate = Gate::new();
    w.fake.inbox.hold_fetch(gate.clone());
    let running = w.start_until(&gate, w.notified_job()).await;
    request(&w).await;
    gate.let_through();
    running.await.unwrap();
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), 4);
    w.advance(12);
    sync(&w).await;
    assert_eq!(w.fake.inbox.fetches().len(), 6);
}

async fn due_accounts_are_synced_every_minute(w: TestWorker) {
    start(&w).await;
    let second = w.another_account("second").await.id;
    w.write(async |tx| inbox_syncs::start(tx, second).await).await;
    for minute in 1..=5 {
        sync(&w).await;
        assert_eq!(w.fake.inbox.fetches().len(), 4 * minute);
        // The interval varies by up to 10% in either direction.
        w.advance(50);
        sync(&w).await;
        assert_eq!(w.fake.inbox.fetches().len(), 4 * minute, "not before its time");
        w.advance(17);
    }
    assert_eq!(w.count_rows("jobs WHERE kind = 'sync_inbox'").await, 10, "one job for each account and sync");
}

async fn a_platform_without_inbox_is_not_synced(w: TestWorker) {
    let new = crier_store::accounts::NewAccount { platform: Platform::Pinterest, ..new_account("p", "t") };
    let account = w.write(async |tx| accounts::save(tx, w.world.workspace, &new).await).await;
    w.write(async |tx| inbox_syncs::start(tx, account.id).await).await;
    sync(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, account.id).await.unwrap().unwrap();
    assert_eq!((row.next_sync_at, row.last_error.is_none()), (None, true));
    w.advance(10_000);
    sync(&w).await;
    assert_eq!(w.count_rows("jobs WHERE kind = 'sync_inbox'").await, 1);
    assert_eq!(w.handler(JobKind::SyncInbox).settles_together(), 8);
}

async fn a_disabled_inbox_is_not_synced(s: TestStore) {
    let settings = PlatformConfig { no_inbox: true, ..PlatformConfig::default() };
    let w = TestWorker::with_settings(s, Platform::Twitter, settings).await;
    let new = crier_store::accounts::NewAccount { platform: Platform::Twitter, ..new_account("x", "t") };
    let account = w.write(async |tx| accounts::save(tx, w.world.workspace, &new).await).await;
    w.write(async |tx| inbox_syncs::start(tx, account.id).await).await;
    sync(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, account.id).await.unwrap().unwrap();
    assert!(row.last_error.is_none());
    // The account is checked again later, because the inbox may be enabled again.
    let next = row.next_sync_at.unwrap() - w.s.now();
    assert!(next > TimeDelta::minutes(30) && next < TimeDelta::hours(3), "{next}");
}

async fn a_snooze_ends_automatically(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "comment");
    sync(&w).await;
    let id = only(&w).await.id;
    let until = Some(w.later(3_600));
    w.write(async |tx| conversations::set_status(tx, id, ConversationStatus::Snoozed, until).await).await;
    w.advance(3_599);
    tasks::inbox::run(&w.scheduler).await.unwrap();
    assert_eq!(only(&w).await.status, ConversationStatus::Snoozed);
    w.advance(1);
    tasks::inbox::run(&w.scheduler).await.unwrap();
    let found = only(&w).await;
    assert_eq!((found.status, found.snoozed_until, found.unread_count), (ConversationStatus::Open, None, 1));
}
