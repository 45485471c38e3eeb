//! Stored feeds and articles.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::feed::{FeedStatus, FeedType, FoundArticle};
use crier_domain::plan::Plans;
use crier_store::articles::{self, ArticleRow, Changes};
use crier_store::feeds::{self, FeedUpdate, FetchUpdate, NewFeed};

use crate::support::store::{TestStore, World, on_both};

on_both![
    a_feed_round_trips,
    a_feed_is_visible_only_to_its_brand,
    a_fetch_is_recorded,
    articles_round_trip,
    articles_are_deleted_with_their_feed,
    due_feeds_are_returned_once_longest_due_first,
];

async fn create_feed(s: &TestStore, w: World) -> i64 {
    let new = NewFeed { name: "News", named: false, url: "https://x.test/feed?a=1", kind: FeedType::Atom };
    s.write(async |tx| feeds::create(tx, w.brand, &new, None).await).await.id
}

fn row(guid: &str, published_at: DateTime<Utc>) -> ArticleRow {
    let found = FoundArticle {
        guid: guid.to_owned(),
        title: Some("\"Ünï\" \u{1f35e} 'x' \\ {}".to_owned()),
        url: Some("https://x.test/1".to_owned()),
        summary: Some("<p>a\nb</p>".to_owned()),
        author: None,
        image_url: None,
        published_at: None,
    };
    ArticleRow { found, published_at, digest: "d1".to_owned() }
}

async fn insert(s: &TestStore, feed: i64, rows: Vec<ArticleRow>) {
    let changes = Changes { insert: rows, ..Changes::default() };
    s.write(async |tx| articles::write(tx, feed, &changes).await).await;
}

async fn a_feed_round_trips(s: TestStore) {
    let w = s.create_world().await;
    let id = create_feed(&s, w).await;
    let feed = feeds::find(&mut s.conn().await, w.brand, id).await.unwrap().unwrap();
    assert_eq!((feed.brand_id, feed.name.as_str(), feed.named, feed.kind), (w.brand, "News", false, FeedType::Atom));
    assert_eq!(
        (feed.url.as_str(), feed.status, feed.version, feed.failures),
        ("https://x.test/feed?a=1", FeedStatus::Pending, 1, 0)
    );
    assert_eq!((feed.last_error, feed.last_fetched_at, feed.found_url, feed.articles_count), (None, None, None, 0));
    assert_eq!((feed.created_at, feed.updated_at), (s.now(), s.now()));
    let lane = "SELECT lane FROM jobs WHERE kind = 'fetch_feed' AND state = 'ready'";
    assert_eq!(s.value::<String>(lane).await, "host:x.test");
    s.advance(5);
    s.write(async |tx| feeds::rename(tx, id, "Mine").await).await;
    let feed = feeds::find(&mut s.conn().await, w.brand, id).await.unwrap().unwrap();
    assert_eq!((feed.name.as_str(), feed.named, feed.updated_at, feed.version), ("Mine", true, s.now(), 1));
}

async fn a_feed_is_visible_only_to_its_brand(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let (one, two) = (create_feed(&s, w).await, create_feed(&s, w).await);
    let listed = feeds::list(&mut s.conn().await, w.brand).await.unwrap();
    assert_eq!(listed.iter().map(|feed| feed.id).collect::<Vec<_>>(), [two, one]);
    assert!(feeds::list(&mut s.conn().await, other.brand).await.unwrap().is_empty());
    assert!(feeds::find(&mut s.conn().await, other.brand, one).await.unwrap().is_none());
    assert!(s.write(async |tx| feeds::find_for_update(tx, other.brand, one).await).await.is_none());
    assert!(s.write(async |tx| feeds::find_for_update(tx, w.brand, one).await).await.is_some());
    let delete = async |brand| s.write(async |tx| feeds::delete(tx, brand, one).await).await;
    assert_eq!((delete(other.brand).await, delete(w.brand).await, delete(w.brand).await), (false, true, false));
    s.sql(format!("DELETE FROM brands WHERE id = {}", w.brand)).await;
    assert_eq!(s.number("SELECT count(*) FROM feeds").await, 0, "feeds go with their brand");
}

async fn a_fetch_is_recorded(s: TestStore) {
    let w = s.create_world().await;
    let id = create_feed(&s, w).await;
    let reload = async || feeds::find_any(&mut s.conn().await, id).await.unwrap().unwrap();
    let next = s.later(1_000);
    s.write(async |tx| feeds::record_failure(tx, id, "Why not.", false, next).await).await;
    s.write(async |tx| feeds::record_failure(tx, id, "Why not.", false, next).await).await;
    let feed = reload().await;
    assert_eq!((feed.status, feed.failures, feed.last_error.as_deref()), (FeedStatus::Failing, 2, Some("Why not.")));
    assert_eq!((feed.last_fetched_at, feed.next_fetch_at), (Some(s.now()), next));
    s.advance(10);
    let changed = FeedUpdate {
        title: Some("Its title".to_owned()),
        kind: FeedType::Rss,
        found_url: Some("https://x.test/found".to_owned()),
        validator_url: Some("https://x.test/v".to_owned()),
        etag: Some("\"e\"".to_owned()),
        last_modified: Some("m".to_owned()),
        articles_count: 7,
    };
    let success = FetchUpdate { changed: Some(changed.clone()), next_fetch_at: next };
    s.write(async |tx| feeds::record_success(tx, id, &success).await).await;
    let feed = reload().await;
    assert_eq!(
        (feed.status, feed.failures, feed.last_error.as_deref(), feed.kind),
        (FeedStatus::Active, 0, None, FeedType::Rss)
    );
    assert_eq!((feed.name.as_str(), feed.articles_count, feed.last_fetched_at), ("Its title", 7, Some(s.now())));
    assert_eq!((feed.address(), feed.etag.as_deref()), ("https://x.test/found", Some("\"e\"")));
    // If nothing has changed, all values are kept.
    let unchanged = FetchUpdate { changed: None, next_fetch_at: s.later(2_000) };
    s.write(async |tx| feeds::record_success(tx, id, &unchanged).await).await;
    let feed = reload().await;
    assert_eq!((feed.articles_count, feed.etag.as_deref(), feed.next_fetch_at), (7, Some("\"e\""), s.later(2_000)));
    // A feed without a title keeps its name, and a name that the user has set is kept.
    let untitled = FetchUpdate { changed: Some(FeedUpdate { title: None, ..changed.clone() }), next_fetch_at: next };
    s.write(async |tx| feeds::record_success(tx, id, &untitled).await).await;
    assert_eq!(reload().await.name, "Its title");
    s.write(async |tx| feeds::rename(tx, id, "Mine").await).await;
    s.write(async |tx| feeds::record_success(tx, id, &success).await).await;
    assert_eq!(reload().await.name, "Mine");
    s.write(async |tx| feeds::record_failure(tx, id, "It is lost.", true, next).await).await;
    assert_eq!(
        (reload().await.found_url, reload().await.validator_url),
        (None, None),
        "its validators are cleared too"
    );
    s.write(async |tx| feeds::move_to(tx, id, "https://y.test/", "y.test", None).await).await;
    let feed = reload().await;
    assert_eq!(
        (feed.version, feed.status, feed.failures, feed.last_error.as_deref()),
        (2, FeedStatus::Pending, 0, None)
    );
    assert_eq!((feed.etag, feed.last_modified, feed.validator_url, feed.name.as_str()), (None, None, None, "Mine"));
    let lane = "SELECT lane FROM jobs WHERE kind = 'fetch_feed' AND state = 'ready'";
    assert_eq!(s.value::<String>(lane).await, "host:y.test", "the waiting job moves to the new host");
}

async fn articles_round_trip(s: TestStore) {
    let w = s.create_world().await;
    let id = create_feed(&s, w).await;
    let (older, newer) = (s.now() - TimeDelta::days(2), s.now() - TimeDelta::microseconds(123_456));
    insert(&s, id, vec![row("a", older), row("b", newer), row("c", newer)]).await;
    let list = async || articles::list(&mut s.conn().await, id).await.unwrap();
    let all = list().await;
    assert_eq!(all.iter().map(|a| a.guid.as_str()).collect::<Vec<_>>(), ["c", "b", "a"]);
    let (a, expected) = (&all[2], row("a", older).found);
    assert_eq!((&a.title, &a.url, &a.summary, &a.author), (&expected.title, &expected.url, &expected.summary, &None));
    assert_eq!((a.published_at, all[0].published_at, a.created_at), (older, newer, s.now()));
    let known = articles::known(&mut s.conn().await, id).await.unwrap();
    assert!(known.iter().any(|k| k.guid == "b" && k.published_at == newer && k.digest == "d1"));
    s.advance(5);
    let mut changed = row("a", newer);
    (changed.found.title, changed.found.author, changed.digest) = (None, Some("Ann".to_owned()), "d2".to_owned());
    let changes = Changes { update: vec![(a.id, changed)], delete: vec![all[1].id, 999], ..Changes::default() };
    s.write(async |tx| articles::write(tx, id, &changes).await).await;
    let after = list().await;
    assert_eq!(after.iter().map(|a| a.guid.as_str()).collect::<Vec<_>>(), ["c", "a"]);
    assert_eq!((&after[1].title, after[1].author.as_deref(), after[1].published_at), (&None, Some("Ann"), newer));
    assert_eq!((after[1].created_at, after[1].updated_at), (a.created_at, s.now()));
    s.write(async |tx| articles::write(tx, id, &Changes::default()).await).await;
}

async fn articles_are_deleted_with_their_feed(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (create_feed(&s, w).await, create_feed(&s, w).await);
    insert(&s, one, vec![row("same", s.now())]).await;
    insert(&s, two, vec![row("same", s.now())]).await;
    let of_one = articles::list(&mut s.conn().await, one).await.unwrap()[0].id;
    assert!(articles::find(&mut s.conn().await, one, of_one).await.unwrap().is_some());
    assert!(articles::find(&mut s.conn().await, two, of_one).await.unwrap().is_none());
    // An article is not changed through another feed.
    let mut other = row("x", s.now());
    other.found.title = None;
    let changes = Changes { update: vec![(of_one, other)], delete: vec![of_one], ..Changes::default() };
    s.write(async |tx| articles::write(tx, two, &changes).await).await;
    assert!(articles::list(&mut s.conn().await, one).await.unwrap()[0].title.is_some());
    let duplicate = Changes { insert: vec![row("same", s.now())], ..Changes::default() };
    assert!(s.try_write(async |tx| articles::write(tx, one, &duplicate).await).await.is_err(), "each guid once");
    s.write(async |tx| feeds::delete(tx, w.brand, one).await).await;
    assert_eq!(s.number("SELECT count(*) FROM articles").await, 1);
}

async fn due_feeds_are_returned_once_longest_due_first(s: TestStore) {
    let w = s.create_world().await;
    let mut ids = Vec::new();
    for n in 0..5 {
        let id = create_feed(&s, w).await;
        s.write(async |tx| feeds::record_failure(tx, id, "x", false, s.later(100 - n)).await).await;
        ids.push(id);
    }
    s.sql("UPDATE jobs SET state = 'done'").await;
    s.advance(98);
    let due = async |limit| s.write(async |tx| feeds::enqueue_due(tx, limit, &Plans::default()).await).await;
    assert_eq!(due(1).await, 1);
    let enqueued = "SELECT subject_id FROM jobs WHERE state = 'ready' ORDER BY id DESC LIMIT 1";
    assert_eq!(s.number(enqueued).await, ids[4]);
    assert_eq!((due(10).await, due(10).await), (2, 0));
    s.advance(2);
    assert_eq!(due(10).await, 2);
    s.advance(15 * 60);
    assert_eq!(due(10).await, 5, "due again, although their jobs have not ended");
    assert_eq!(s.number("SELECT count(*) FROM jobs WHERE state = 'ready'").await, 5);
}
