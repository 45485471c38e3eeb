//! What was deleted at the platform: asked for once an hour, and followed in each brand.

use chrono::TimeDelta;
use crier_domain::conversation::{Conversation, Message};
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::conversations::{self, replies};
use crier_store::{PageRequest, accounts, inbox_syncs};

use super::inbox::{all, start, sync};
use crate::support::fake_inbox::{COMMENTS, DMS, REMOVED, message};
use crate::support::fake_platform::transient;
use crate::support::jobs::{TestWorker, worker_on_both};

worker_on_both!(
    a_deleted_message_loses_its_text_and_is_not_unread,
    the_words_of_a_deleted_message_are_not_found,
    what_was_read_does_not_count_again,
    a_message_that_comes_back_is_shown_again,
    every_brand_follows,
    all_messages_are_asked_for_in_turn,
    a_platform_that_does_not_say_is_not_asked,
    a_question_that_fails_is_asked_again,
);

/// Looks after more than an hour.
async fn sync_inbox_later(w: &TestWorker) {
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

/// Two unread messages of one thread, of which the newer one is removed at the platform.
async fn two(w: &TestWorker) {
    start(w).await;
    w.fake.inbox.enable_deletion_check(10);
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Is the rye bread fresh?");
    w.advance(1);
    w.fake.inbox.write(COMMENTS, "c2", "t1", "Awful bread");
    sync(w).await;
    assert_eq!(only(w).await.unread_count, 2);
    assert!(w.fake.inbox.checks().is_empty(), "what has just been read is there");
    w.fake.inbox.remove("c2");
}

async fn a_deleted_message_loses_its_text_and_is_not_unread(w: TestWorker) {
    two(&w).await;
    let before = only(&w).await;
    sync_inbox_later(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (1, "Is the rye bread fresh?"));
    assert_eq!(found.last_message_at, before.last_message_at, "it keeps its place in the list");
    let stored = messages(&w, found.id).await;
    assert_eq!((stored[0].deleted_at, stored[0].body.as_str()), (None, "Is the rye bread fresh?"));
    assert_eq!((stored[1].deleted_at, stored[1].body.as_str()), (Some(w.now()), ""));
    assert_eq!(stored[1].author_name.as_deref(), Some("Vera Vogel"));
    w.fake.inbox.remove("c1");
    sync_inbox_later(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (0, "–"));
    assert_eq!(w.fake.inbox.checks(), [vec!["c2", "c1"], vec!["c1"]], "each until it is known");
    assert_eq!(w.events().await.len(), 2, "no further event");
}

async fn the_words_of_a_deleted_message_are_not_found(w: TestWorker) {
    two(&w).await;
    sync_inbox_later(&w).await;
    for (word, count) in [("awful", 0), ("bread", 1), ("rye", 1), ("vera", 1)] {
        let filter =
            ConversationFilter { words: crier_domain::words::search_terms(word), ..ConversationFilter::default() };
        let page = PageRequest { page: 1, per_page: 10 };
        let found = list(&mut w.conn().await, w.world.brand, &filter, page).await.unwrap();
        assert_eq!(found.rows.len(), count, "{word}");
    }
}

async fn what_was_read_does_not_count_again(w: TestWorker) {
    two(&w).await;
    let conversation = only(&w).await.id;
    w.write(async |tx| conversations::mark_read(tx, conversation).await).await;
    w.fake.inbox.write(COMMENTS, "c3", "t1", "And now?");
    sync_inbox_later(&w).await;
    assert_eq!(only(&w).await.unread_count, 1, "the one that was deleted had been read");
    // It comes back: read it was.
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c2", "t1", "Awful bread", w.now()), w.now());
    w.advance(70);
    sync(&w).await;
    assert_eq!(only(&w).await.unread_count, 1);
}

async fn a_message_that_comes_back_is_shown_again(w: TestWorker) {
    two(&w).await;
    sync_inbox_later(&w).await;
    w.fake.inbox.add(COMMENTS, message(COMMENTS, "c2", "t1", "Awful bread", w.now()), w.now());
    w.advance(70);
    sync(&w).await;
    let found = only(&w).await;
    assert_eq!((found.unread_count, found.last_message_preview.as_str()), (2, "Awful bread"));
    let stored = messages(&w, found.id).await;
    assert_eq!((stored.len(), stored[1].deleted_at, stored[1].body.as_str()), (2, None, "Awful bread"));
    assert_eq!(w.events().await.len(), 2);
}

async fn every_brand_follows(w: TestWorker) {
    let other = w.brand(w.world.workspace, w.world.user).await;
    w.write(async |tx| accounts::attach(tx, other, w.account.id).await).await;
    two(&w).await;
    sync_inbox_later(&w).await;
    for brand in [w.world.brand, other] {
        let found = all(&w, brand).await.remove(0);
        assert_eq!((found.unread_count, messages(&w, found.id).await[1].body.as_str()), (1, ""));
    }
    assert_eq!(w.fake.inbox.checks(), [["c2", "c1"]], "each message once");
}

async fn all_messages_are_asked_for_in_turn(w: TestWorker) {
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
        sync_inbox_later(&w).await;
    }
    // One of the page before comes again: another one may have its time.
    let asked: Vec<String> = w.fake.inbox.checks().iter().map(|ids| ids.join(" ")).collect();
    assert_eq!(asked, ["m5 m4", "m4 m3", "m3 m2", "m2 m1", "m1", "m5 m4"], "none older than 30 days");
}

async fn a_platform_that_does_not_say_is_not_asked(w: TestWorker) {
    start(&w).await;
    w.fake.inbox.write(COMMENTS, "c1", "t1", "Fresh?");
    sync(&w).await;
    w.fake.inbox.remove("c1");
    sync_inbox_later(&w).await;
    assert!(w.fake.inbox.checks().is_empty());
    assert_eq!(messages(&w, only(&w).await.id).await[0].body, "Fresh?", "absence says nothing");
}

async fn a_question_that_fails_is_asked_again(w: TestWorker) {
    two(&w).await;
    w.fake.inbox.fail_fetch(REMOVED, transient());
    sync_inbox_later(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.failures, only(&w).await.unread_count), (1, 2));
    sync_inbox_later(&w).await;
    let row = inbox_syncs::find(&mut w.conn().await, w.account.id).await.unwrap().unwrap();
    assert_eq!((row.failures, only(&w).await.unread_count), (0, 1));
}
