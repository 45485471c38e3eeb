//! Conversations: lists, searches and concurrency.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::access::Role;
use crier_domain::account::SocialAccount;
use crier_domain::conversation::{Conversation, ConversationStatus, FetchedMessage};
use crier_domain::platform::{ConversationType, Platform};
use crier_domain::words;
use crier_store::conversations::list::{ConversationFilter, list};
use crier_store::conversations::{self, receive, replies};
use crier_store::{PageRequest, brands, inbox_syncs};

use crate::support::fake_inbox::{COMMENTS, DMS, message};
use crate::support::size::sized;
use crate::support::store::{TestStore, World, on_both, run_concurrently};

on_both![
    lists_filter_and_paginate_newest_first,
    searches_find_words_of_people_and_messages,
    a_frequent_word_and_a_tag_are_found_in_order,
    large_sets_are_found_on_every_page,
    unread_counts_are_exact_under_concurrency,
    a_message_fetched_twice_concurrently_is_stored_once,
    the_messages_of_a_conversation_are_limited,
    members_who_leave_are_unassigned,
];

struct Inbox {
    s: TestStore,
    world: World,
    account: SocialAccount,
}

impl Inbox {
    async fn new(s: TestStore) -> Self {
        let world = s.create_world().await;
        let account = s.account(world, "demo", "t").await;
        s.write(async |tx| inbox_syncs::start(tx, account.id).await).await;
        Self { s, world, account }
    }

    async fn receive(&self, messages: &[FetchedMessage]) {
        self.s.write(async |tx| receive::receive(tx, &self.account, messages).await).await;
    }

    /// Stores a comment in a thread of its own.
    async fn comment(&self, n: usize, body: &str, at: DateTime<Utc>) {
        self.receive(&[message(COMMENTS, &format!("c{n}"), &format!("t{n:04}"), body, at)]).await;
    }

    async fn page(&self, filter: &ConversationFilter, page: i64, per_page: i64) -> (Vec<Conversation>, i64) {
        let page = PageRequest { page, per_page };
        let found = list(&mut self.s.conn().await, self.world.brand, filter, page).await.unwrap();
        (found.rows, found.total)
    }

    async fn threads(&self, filter: &ConversationFilter) -> Vec<String> {
        let (rows, total) = self.page(filter, 1, 100).await;
        assert_eq!(rows.len() as i64, total);
        rows.into_iter().map(|row| row.thread_id).collect()
    }

    async fn search(&self, text: &str) -> Vec<String> {
        self.threads(&ConversationFilter { words: words::search_terms(text), ..ConversationFilter::default() }).await
    }

    async fn id(&self, thread: &str) -> i64 {
        self.s.number(format!("SELECT id FROM conversations WHERE thread_id = '{thread}'")).await
    }
}

async fn lists_filter_and_paginate_newest_first(s: TestStore) {
    let inbox = Inbox::new(s).await;
    let now = inbox.s.now();
    for n in 0..5 {
        inbox.comment(n, "hello", now + TimeDelta::seconds(n as i64)).await;
    }
    inbox.receive(&[message(DMS, "d1", "vera", "hello", now + TimeDelta::seconds(9))]).await;
    let (first, total) = inbox.page(&ConversationFilter::default(), 1, 4).await;
    assert_eq!((first.len(), total, first[0].thread_id.as_str(), first[1].thread_id.as_str()), (4, 6, "vera", "t0004"));
    let (second, total) = inbox.page(&ConversationFilter::default(), 2, 4).await;
    assert_eq!((second.len(), total, second[1].thread_id.as_str()), (2, 6, "t0000"));
    assert_eq!(inbox.page(&ConversationFilter::default(), 9, 4).await.1, 6);
    let (a, b) = (inbox.id("t0001").await, inbox.id("t0002").await);
    inbox
        .s
        .write(async |tx| {
            conversations::set_status(tx, a, ConversationStatus::Resolved, None).await?;
            conversations::mark_read(tx, b).await?;
            let found = conversations::lock(tx, inbox.world.brand, b).await?.expect("it is there");
            assert!(conversations::assign(tx, &found, Some(inbox.world.user)).await?);
            assert!(!conversations::assign(tx, &found, Some(999)).await?);
            conversations::set_tags(tx, &found, &["vip".to_owned(), "refund".to_owned()]).await?;
            conversations::set_tags(tx, &found, &["vip".to_owned(), "late".to_owned()]).await
        })
        .await;
    let all = ConversationFilter::default;
    for (filter, expected) in [
        (ConversationFilter { status: Some(ConversationStatus::Resolved), ..all() }, vec!["t0001"]),
        (ConversationFilter { kind: Some(ConversationType::Dm), ..all() }, vec!["vera"]),
        (ConversationFilter { platform: Some(Platform::Sandbox), unread: Some(false), ..all() }, vec!["t0002"]),
        (ConversationFilter { platform: Some(Platform::Bluesky), ..all() }, vec![]),
        (
            ConversationFilter { account_id: Some(inbox.account.id), assignee_id: Some(inbox.world.user), ..all() },
            vec!["t0002"],
        ),
        (ConversationFilter { account_id: Some(inbox.account.id + 1), ..all() }, vec![]),
        (ConversationFilter { unread: Some(true), kind: Some(ConversationType::Dm), ..all() }, vec!["vera"]),
        (ConversationFilter { tag: Some("vip".to_owned()), ..all() }, vec!["t0002"]),
        (ConversationFilter { tag: Some("refund".to_owned()), ..all() }, vec![]),
    ] {
        assert_eq!(inbox.threads(&filter).await, expected, "{filter:?}");
    }
    assert_eq!(conversations::tags(&mut inbox.s.conn().await, &[a, b]).await.unwrap().len(), 2);
    // Another brand sees none of the conversations.
    let other = inbox.s.brand(inbox.world.workspace, inbox.world.user).await;
    let page = PageRequest { page: 1, per_page: 10 };
    assert_eq!(list(&mut inbox.s.conn().await, other, &all(), page).await.unwrap().total, 0);
}

async fn searches_find_words_of_people_and_messages(s: TestStore) {
    let inbox = Inbox::new(s).await;
    let now = inbox.s.now();
    inbox.comment(0, "Where is my refund?", now).await;
    inbox.comment(1, "東京都の注文はいつ届きますか", now + TimeDelta::seconds(1)).await;
    inbox.comment(2, "Crème brûlée, bitte", now + TimeDelta::seconds(2)).await;
    assert_eq!(inbox.search("refund").await, ["t0000"]);
    assert_eq!(inbox.search("REF whe").await, ["t0000"]);
    assert_eq!(inbox.search("京都").await, ["t0001"]);
    assert_eq!(inbox.search("creme").await, ["t0002"]);
    assert_eq!(inbox.search("vogel").await.len(), 3, "the participant's name");
    assert_eq!(inbox.search("vog refund").await, ["t0000"]);
    assert_eq!(inbox.search("und").await, Vec::<String>::new());
    // A search covers all messages of a conversation, including replies.
    inbox.receive(&[message(COMMENTS, "c9", "t0000", "Order twelve", now + TimeDelta::seconds(5))]).await;
    let id = inbox.id("t0000").await;
    inbox
        .s
        .write(async |tx| {
            let found = conversations::lock(tx, inbox.world.brand, id).await?.expect("it is there");
            replies::insert(tx, &found, inbox.world.user, "Ann", "We apologise").await
        })
        .await;
    assert_eq!(inbox.search("refund twelve apolog").await, ["t0000"]);
    // The messages of another brand are not searched.
    let other = inbox.s.brand(inbox.world.workspace, inbox.world.user).await;
    let filter = ConversationFilter { words: words::search_terms("refund"), ..ConversationFilter::default() };
    let page = PageRequest { page: 1, per_page: 10 };
    assert_eq!(list(&mut inbox.s.conn().await, other, &filter, page).await.unwrap().total, 0);
}

/// More entries than a search reads completely.
async fn a_frequent_word_and_a_tag_are_found_in_order(s: TestStore) {
    let inbox = Inbox::new(s).await;
    let now = inbox.s.now();
    let batch: Vec<_> = (0..2_100_usize)
        .map(|n| {
            let body = if n % 700 == 0 { "common rare" } else { "common" };
            message(COMMENTS, &format!("c{n}"), &format!("t{n:04}"), body, now + TimeDelta::seconds(n as i64))
        })
        .collect();
    for part in batch.chunks(700) {
        inbox.receive(part).await;
    }
    let of = |text: &str| ConversationFilter { words: words::search_terms(text), ..ConversationFilter::default() };
    let (rows, total) = inbox.page(&of("common"), 1, 3).await;
    let threads: Vec<_> = rows.iter().map(|row| row.thread_id.as_str()).collect();
    assert_eq!((threads, total), (vec!["t2099", "t2098", "t2097"], 2_100));
    let (rows, total) = inbox.page(&of("common"), 700, 3).await;
    assert_eq!((rows[2].thread_id.as_str(), total), ("t0000", 2_100));
    assert_eq!(inbox.page(&of("common"), 701, 3).await.1, 2_100, "past the end");
    assert_eq!(inbox.threads(&of("common rare")).await, ["t1400", "t0700", "t0000"]);
    assert_eq!(inbox.threads(&of("rar common vera")).await, ["t1400", "t0700", "t0000"]);
    assert_eq!(inbox.page(&of("common rare"), 3, 2).await.1, 3, "past the end");
    let tagged = inbox.id("t0700").await;
    inbox
        .s
        .write(async |tx| {
            let found = conversations::lock(tx, inbox.world.brand, tagged).await?.expect("it is there");
            conversations::set_tags(tx, &found, &["vip".to_owned()]).await
        })
        .await;
    let filter = ConversationFilter { tag: Some("vip".to_owned()), ..of("common") };
    assert_eq!(inbox.threads(&filter).await, ["t0700"]);
    let resolved = ConversationFilter { status: Some(ConversationStatus::Resolved), ..of("common") };
    assert_eq!(inbox.page(&resolved, 1, 3).await.1, 0);
}

/// Creates 5,000 conversations named by their number, with words and a tag for parts of them.
async fn fill(inbox: &Inbox) {
    let numbers = "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 5000)";
    let columns = "brand_id, account_id, platform, type, status, unread_count, last_message_at, created_at, updated_at, \
                   last_message_preview, reply_context";
    inbox.comment(0, "first", inbox.s.now()).await;
    inbox
        .s
        .sql(format!(
            "{numbers} INSERT INTO conversations ({columns}, thread_id) \
         SELECT {columns}, CAST(n AS text) FROM conversations, c ORDER BY c.n"
        ))
        .await;
    inbox.s.sql("DELETE FROM conversations WHERE thread_id = 't0000'").await;
    for (word, condition) in [
        ("'common'", "true"),
        ("'old'", "CAST(thread_id AS integer) <= 2500"),
        ("'newer'", "CAST(thread_id AS integer) > 2400"),
        ("'wide' || (CAST(thread_id AS integer) % 20)", "true"),
    ] {
        inbox
            .s
            .sql(format!(
                "INSERT INTO conversation_words (brand_id, word, conversation_id) \
             SELECT brand_id, {word}, id FROM conversations WHERE {condition}"
            ))
            .await;
    }
    inbox
        .s
        .sql(
            "INSERT INTO conversation_tags (brand_id, tag, conversation_id) \
         SELECT brand_id, 'vip', id FROM conversations WHERE CAST(thread_id AS integer) % 2 = 0",
        )
        .await;
    // Autovacuum would do this soon after so many inserts.
    inbox.s.sql("ANALYZE").await;
}

/// Covers pages that a walk from the newer end fills, pages that a walk from the older end fills, and sets that are
/// read completely.
async fn large_sets_are_found_on_every_page(s: TestStore) {
    let inbox = Inbox::new(s).await;
    fill(&inbox).await;
    let is_old = |n: i64| n <= 2_500;
    let is_newer = |n: i64| n > 2_400;
    let is_vip = |n: i64| n % 2 == 0;
    // The words, whether the search also has the tag, and whether it finds a number.
    type Search<'a> = (&'a str, bool, &'a dyn Fn(i64) -> bool);
    let searches: [Search<'_>; 9] = [
        ("common", false, &|_| true),
        ("old", false, &is_old),
        ("wide", false, &|_| true),
        ("wide1", false, &|n| matches!(n % 20, 1 | 10..)),
        ("old wide", false, &is_old),
        ("newer old", false, &|n| is_newer(n) && is_old(n)),
        ("common", true, &is_vip),
        ("old wide", true, &|n| is_old(n) && is_vip(n)),
        ("common missing", false, &|_| false),
    ];
    for (text, tagged, is_wanted) in searches {
        let tag = tagged.then(|| "vip".to_owned());
        let filter = ConversationFilter { words: words::search_terms(text), tag, ..ConversationFilter::default() };
        let expected: Vec<String> = (1..=5_000).rev().filter(|n| is_wanted(*n)).map(|n| n.to_string()).collect();
        for page in sized(&[1, 2, 12, 13, 24, 25, 26, 49, 50, 51][..], &[1, 25, 50]) {
            let (rows, total) = inbox.page(&filter, *page, 100).await;
            let rows: Vec<String> = rows.into_iter().map(|row| row.thread_id).collect();
            let from = usize::try_from((page - 1) * 100).unwrap().min(expected.len());
            let expected_rows = &expected[from..expected.len().min(from + 100)];
            assert_eq!(
                (rows.as_slice(), total),
                (expected_rows, expected.len() as i64),
                "{text}, {tagged}, page {page}"
            );
        }
    }
}

async fn unread_counts_are_exact_under_concurrency(s: TestStore) {
    let inbox = Inbox::new(s).await;
    inbox.comment(0, "first", inbox.s.now()).await;
    let id = inbox.id("t0000").await;
    inbox.s.write(async |tx| conversations::mark_read(tx, id).await).await;
    let at = inbox.s.now() + TimeDelta::seconds(1);
    // Syncs of different accounts never share a conversation, so this writes to the same account without its lock.
    run_concurrently(20, |n| {
        let (store, account) = (inbox.s.store.clone(), inbox.account.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            let new = message(COMMENTS, &format!("x{n}"), "t0000", "more", at);
            receive::receive(&mut tx, &account, &[new]).await.unwrap();
            tx.commit().await.unwrap();
        }
    })
    .await;
    let found = conversations::find(&mut inbox.s.conn().await, inbox.world.brand, id).await.unwrap().unwrap();
    assert_eq!(found.unread_count, 20);
    assert_eq!(inbox.s.number("SELECT count(*) FROM messages").await, 21);
}

async fn a_message_fetched_twice_concurrently_is_stored_once(s: TestStore) {
    let inbox = Inbox::new(s).await;
    let at = inbox.s.now();
    let received = run_concurrently(8, |_| {
        let (store, account) = (inbox.s.store.clone(), inbox.account.clone());
        async move {
            let mut tx = store.begin().await.unwrap();
            let new = message(COMMENTS, "c1", "t1", "once", at);
            let received = receive::receive(&mut tx, &account, &[new]).await.unwrap();
            tx.commit().await.unwrap();
            received.len()
        }
    })
    .await;
    assert_eq!(received.iter().sum::<usize>(), 1);
    assert_eq!(inbox.s.number("SELECT sum(unread_count) FROM conversations").await, 1);
}

async fn the_messages_of_a_conversation_are_limited(s: TestStore) {
    let inbox = Inbox::new(s).await;
    let now = inbox.s.now();
    let long = "ü".repeat(500);
    let batch: Vec<_> =
        (0..30_i64).map(|n| message(COMMENTS, &format!("c{n}"), "t1", &long, now + TimeDelta::seconds(n))).collect();
    inbox.receive(&batch).await;
    let id = inbox.id("t1").await;
    let found = async |limit, size| replies::messages(&mut inbox.s.conn().await, id, limit, size).await.unwrap();
    assert_eq!((found(10, 1 << 20).await.len(), found(100, 10_000).await.len()), (10, 10));
    let shown = found(100, 10_000).await;
    assert_eq!((shown[0].external_id.as_deref(), shown[9].external_id.as_deref()), (Some("c20"), Some("c29")));
}

async fn members_who_leave_are_unassigned(s: TestStore) {
    let inbox = Inbox::new(s).await;
    inbox.comment(0, "hello", inbox.s.now()).await;
    let id = inbox.id("t0000").await;
    let bob = inbox.s.user(inbox.world.workspace, "bob@example.com").await;
    inbox.s.member(inbox.world.brand, bob, Role::Editor).await;
    inbox
        .s
        .write(async |tx| {
            let found = conversations::lock(tx, inbox.world.brand, id).await?.expect("it is there");
            assert!(conversations::assign(tx, &found, Some(bob)).await?);
            brands::remove_member(tx, inbox.world.brand, bob).await
        })
        .await;
    let found = conversations::find(&mut inbox.s.conn().await, inbox.world.brand, id).await.unwrap().unwrap();
    assert_eq!(found.assignee_id, None);
}
