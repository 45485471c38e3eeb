//! Messages deleted at the platform: checked once per hour, and deleted in every brand.

use chrono::TimeDelta;
use crier_domain::conversation::{Conversation, Message};
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::conversations::{self, replies};
use crier_store::{PageRequest, accounts, inbox_syncs};

use super::inbox::{start, sync};
use crate::support::fake_inbox::{COMMENTS, DMS, REMOVED, message};
use crate::support::fake_platform::{rate_limited, transient};
use crate::support::inbox::all;
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    a_deleted_message_loses_its_text_and_is_not_counted_as_unread,
    the_words_of_a_deleted_message_are_not_found,
    a_read_message_is_not_counted_again,
    a_restored_message_is_shown_again,
    an_edit_of_the_newest_remaining_message_is_shown,
    a_deletion_applies_to_every_brand,
    all_messages_are_checked_in_turn,
    a_platform_that_cannot_report_deletions_is_not_queried,
    a_failed_check_is_repeated_an_hour_later,
    a_rate_limit_of_a_check_pauses_the_account,
);

/// Syncs after a little more than an hour.
async fn sync_an_hour_later(w: &TestWorker) {
    w.advance(3_700);
    sync(w).await;
}

async fn only(w: &TestWorker) -> Conversation {
    let mut found = all(w, w.world.brand).await;
    assert_eq!(found.len(), 1);
    found.remove(0)
}

async fn messages(w: &TestWorker, conversation: i64) -> Vec<Message> {
    replies::messages(&mut w.conn().await, conversation, 100, 1 << 20).await.unwrap()
}

/// Creates two unread messages of one thread, and deletes the newer one at the platform.
async fn start_with_two_messages(w: &TestWorker) {
    start(w).await;
    w.fake.inbox.enable_deletion_check(10);
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Is the rye bread fresh?");
    w.advance(1);
    w.fake.inbox.write(COMMENTS, "c2", "t1", "Awful bread");
    sync(w).await;
    assert_eq!(only(w).await.unread_count, 2);
    assert!(w.fake.inbox.checks().is_empty(), "messages that were just fetched are not checked");
    w.fake.inbox.remove("c2");
}

async fn a_deleted_message_loses_its_text_and_is_not_counted_as_unread(w: TestWorker) {
    start_with_two_messages(&w).await;
    let before = only(&w).await;
    sync_an_hour_later(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (1, "Is the rye bread fresh?"));
    assert_eq!(found.last_message_at, before.last_message_at, "it keeps its position in the list");
    let replies_to = |one: &Conversation| one.reply_context["to"].as_str().map(str::to_owned);
    assert_eq!((replies_to(&before).as_deref(), replies_to(&found).as_deref()), (Some("c2"), Some("c1")));
    let stored = messages(&w, found.id).await;
    assert_eq!((stored[0].deleted_at, stored[0].body.as_str()), (None, "Is the rye bread fresh?"));
    assert_eq!((stored[1].deleted_at, stored[1].body.as_str()), (Some(w.now()), ""));
    assert_eq!(stored[1].author_name.as_deref(), Some("Vera Vogel"));
    w.fake.inbox.remove("c1");
    sync_an_hour_later(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (0, "–"));
    assert_eq!(w.fake.inbox.checks(), [vec!["c2", "c1"], vec!["c1"]], "each until its deletion is known");
    assert_eq!(w.events().await.len(), 2, "no further event");
}

async fn the_words_of_a_deleted_message_are_not_found(w: TestWorker) {
    start_with_two_messages(&w).await;
    sync_an_hour_later(&w).await;
    for (word, count) in [("awful", 0), ("bread", 1), ("rye", 1), ("vera", 1)] {
        let filter =
            ConversationFilter { words: crier_domain::words::search_terms(word), ..ConversationFilter::default() };
        let page = PageRequest { page: 1, per_page: 10 };
        let found = list(&mut w.conn().await, w.world.brand, &filter, page).await.unwrap();
        assert_eq!(found.rows.len(), count, "{word}");
    }
}

async fn a_read_message_is_not_counted_again(w: TestWorker) {
    start_with_two_messages(&w).await;
    let conversation = only(&w).await.id;
    w.write(async |tx| conversations::mark_read(tx, conversation).await).await;
    w.fake.inbox.write(COMMENTS, "c3", "t1", "And now?");
    sync_an_hour_later(&w).await;
    assert_eq!(only(&w).await.unread_count, 1, "the deleted message was read");
    // The message is restored as read.
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c2", "t1", "Awful bread", w.now()), w.now());
    w.advance(70);
    sync(&w).await;
    assert_eq!(only(&w).await.unread_count, 1);
}

async fn a_restored_message_is_shown_again(w: TestWorker) {
    start_with_two_messages(&w).await;
    sync_an_hour_later(&w).await;
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c2", "t1", "Awful bread", w.now()), w.now());
    w.advance(70);
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (2, "Awful bread"));
    assert_eq!(found.reply_context["to"], "c2");
    let stored = messages(&w, found.id).await;
    assert_eq!((stored.len(), stored[1].deleted_at, stored[1].body.as_str()), (2, None, "Awful bread"));
    assert_eq!(w.events().await.len(), 2);
}

async fn an_edit_of_the_newest_remaining_message_is_shown(w: TestWorker) {
    start_with_two_messages(&w).await;
    sync_an_hour_later(&w).await;
    let before = only(&w).await;
    let sent_at = messages(&w, before.id).await[0].sent_at;
    let mut edited = message(COMMENTS, "c1", "t1", "Is the bread fresh?", sent_at);
    edited.reply_context.insert("to".to_owned(), "c1, edited".into());
    w.fake.inbox.add(COMMENTS, edited, w.now());
    w.advance(70);
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.last_message_preview.as_str(), found.unread_count), ("Is the bread fresh?", 1));
    assert_eq!(found.reply_context["to"], "c1, edited");
    assert_eq!(found.last_message_at, before.last_message_at);
}

async fn a_deletion_applies_to_every_brand(w: TestWorker) {
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    start_with_two_messages(&w).await;
    sync_an_hour_later(&w).await;
    for brand in [w.world.brand, other] {
        let found = all(&w, brand).await.remove(0);
        assert_eq!((found.unread_count, messages(&w, found.id).await[1].body.as_str()), (1, ""));
    }
    assert_eq!(w.fake.inbox.checks(), [["c2", "c1"]], "each message once");
}

async fn all_messages_are_checked_in_turn(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.enable_deletion_check(2);
    let old = w.now() - TimeDelta::days(31);
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "old", "t0", "Old", old), old);
    for n in 1..=5 {
        w.fake.inbox.write(if n % 2 == 0 { DMS } else { COMMENTS }, &format!("m{n}"), "t1", "again");
        w.advance(1);
    }
    sync(&w).await;
    for _ in 0..6 {
        sync_an_hour_later(&w).await;
    }
    // The last message of each check is checked again, because others may have the same time.
    let checks: Vec<String> = w.fake.inbox.checks().iter().map(|ids| ids.join(" ")).collect();
    assert_eq!(checks, ["m5 m4", "m4 m3", "m3 m2", "m2 m1", "m1", "m5 m4"], "none older than 30 days");
}

async fn a_platform_that_cannot_report_deletions_is_not_queried(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Fresh?");
    sync(&w).await;
    w.fake.inbox.remove("c1");
    sync_an_hour_later(&w).await;
    assert!(w.fake.inbox.checks().is_empty());
    assert_eq!(messages(&w, only(&w).await.id).await[0].body, "Fresh?", "an absent message does not count as deleted");
}

/// All messages were read, so the next sync is not delayed.
async fn a_failed_check_is_repeated_an_hour_later(w: TestWorker) {
    start_with_two_messages(&w).await;
    w.fake.inbox.fail_fetch(REMOVED, transient());
    sync_an_hour_later(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.failures, row.last_error.is_none(), row.synced_at), (0, true, Some(w.now())));
    assert_eq!(only(&w).await.unread_count, 2);
    w.advance(70);
    sync(&w).await;
    assert_eq!(w.fake.inbox.checks().len(), 1, "the next sync does not repeat the check");
    sync_an_hour_later(&w).await;
    assert_eq!(w.fake.inbox.checks(), [["c2", "c1"], ["c2", "c1"]]);
    assert_eq!(only(&w).await.unread_count, 1);
}

async fn a_rate_limit_of_a_check_pauses_the_account(w: TestWorker) {
    start_with_two_messages(&w).await;
    w.advance(3_700);
    w.fake.inbox.fail_fetch(REMOVED, rate_limited(w.later(600)));
    sync(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.failures, row.next_sync_at), (1, Some(w.later(600))));
    w.advance(600);
    sync(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.failures, w.fake.inbox.checks().len()), (0, 1));
}
