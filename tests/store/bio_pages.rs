//! Link-in-bio pages and their links.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crier_domain::bio_page::{BioPage, Theme};
use crier_store::Tx;
use crier_store::bio_pages::{self, LinkEntry, NewPage, Version};

use crate::support::store::{TestStore, World, on_both, run_concurrently};

on_both![
    a_page_round_trips,
    a_page_is_visible_only_to_its_brand,
    a_slug_is_unique,
    concurrent_creates_assign_a_slug_once,
    links_are_replaced_and_listed_ids_are_kept,
    every_update_increments_the_version,
    counts_are_added_without_other_changes,
    concurrent_counts_are_not_lost,
    counting_and_updating_do_not_deadlock,
    after_commit_hooks_run_only_after_commit,
];

async fn create_page(s: &TestStore, w: World, slug: &str) -> Option<BioPage> {
    let new = NewPage { title: "Grüße 🥐 '\"\\", bio: Some("a\nb"), theme: Theme::Ocean, avatar_id: None };
    s.write(async |tx| bio_pages::create(tx, w.brand, slug, &new).await).await
}

fn link(id: Option<i64>, title: &str) -> LinkEntry {
    let url = format!("https://example.com/?{title}");
    LinkEntry { id, title: title.to_owned(), url, icon: None, is_primary: false }
}

async fn replace_links(s: &TestStore, page: i64, entries: &[LinkEntry]) -> Vec<(i64, i32, String)> {
    s.write(async |tx| bio_pages::set_links(tx, page, entries).await).await;
    let links = bio_pages::links(&mut s.conn().await, page).await.unwrap();
    links.into_iter().map(|l| (l.id, l.position, l.title)).collect()
}

async fn a_page_round_trips(s: TestStore) {
    let w = s.create_world().await;
    let created = create_page(&s, w, "acme").await.unwrap();
    let found = bio_pages::find(&mut s.conn().await, w.brand, created.id).await.unwrap().unwrap();
    assert_eq!((found.slug.as_str(), found.title.as_str()), ("acme", "Grüße 🥐 '\"\\"));
    assert_eq!((found.bio.as_deref(), found.theme, found.views), (Some("a\nb"), Theme::Ocean, 0));
    assert_eq!((found.created_at, found.updated_at), (s.now(), s.now()));
    s.advance(9);
    let changed = BioPage { title: "T".into(), slug: "new".into(), bio: None, theme: Theme::Dark, ..found };
    assert!(s.write(async |tx| bio_pages::update(tx, &changed).await).await);
    assert!(bio_pages::by_slug(&mut s.conn().await, "acme").await.unwrap().is_none());
    let (found, links) = bio_pages::by_slug(&mut s.conn().await, "new").await.unwrap().unwrap();
    assert_eq!((found.title.as_str(), found.bio, found.theme, links.len()), ("T", None, Theme::Dark, 0));
    assert_eq!((found.created_at, found.updated_at), (s.later(-9), s.now()));
    let second = create_page(&s, w, "second").await.unwrap();
    let ids: Vec<i64> = bio_pages::list(&mut s.conn().await, w.brand).await.unwrap().iter().map(|p| p.id).collect();
    assert_eq!(ids, [second.id, created.id]);
}

async fn a_page_is_visible_only_to_its_brand(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let mine = create_page(&s, w, "mine").await.unwrap().id;
    replace_links(&s, mine, &[link(None, "a")]).await;
    let conn = &mut s.conn().await;
    assert!(bio_pages::find(conn, other.brand, mine).await.unwrap().is_none());
    assert!(bio_pages::list(conn, other.brand).await.unwrap().is_empty());
    assert!(bio_pages::links_of_brand(conn, other.brand).await.unwrap().is_empty());
    assert_eq!(bio_pages::links_of_brand(conn, w.brand).await.unwrap().len(), 1);
    assert!(s.write(async |tx| bio_pages::find_for_update(tx, other.brand, mine).await).await.is_none());
    assert!(s.write(async |tx| bio_pages::find_for_update(tx, w.brand, mine).await).await.is_some());
    assert_eq!(s.write(async |tx| bio_pages::delete(tx, other.brand, mine).await).await, None);
    assert_eq!(s.write(async |tx| bio_pages::delete(tx, w.brand, mine).await).await.as_deref(), Some("mine"));
    assert_eq!(s.number("SELECT count(*) FROM bio_links").await, 0);
}

async fn a_slug_is_unique(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let mine = create_page(&s, w, "acme").await.unwrap();
    assert!(create_page(&s, other, "acme").await.is_none());
    let theirs = create_page(&s, other, "other").await.unwrap();
    let conn = &mut s.conn().await;
    assert!(bio_pages::is_taken(conn, "acme", None).await.unwrap());
    assert!(!bio_pages::is_taken(conn, "acme", Some(mine.id)).await.unwrap());
    assert!(!bio_pages::is_taken(conn, "free", None).await.unwrap());
    let changed = BioPage { slug: "acme".into(), ..theirs };
    let mut tx = s.begin().await.unwrap();
    assert!(!bio_pages::update(&mut tx, &changed).await.unwrap());
    tx.rollback().await.unwrap();
    s.write(async |tx| bio_pages::delete(tx, w.brand, mine.id).await).await;
    assert!(s.write(async |tx| bio_pages::update(tx, &changed).await).await);
}

async fn concurrent_creates_assign_a_slug_once(s: TestStore) {
    let w = s.create_world().await;
    // The first round opens the connections, so that the later rounds run concurrently.
    for slug in ["one", "two", "three"] {
        let created = run_concurrently(8, |_| {
            let store = s.store.clone();
            async move {
                let mut tx = store.begin().await.unwrap();
                let new = NewPage { title: "T", bio: None, theme: Theme::Light, avatar_id: None };
                let created = bio_pages::create(&mut tx, w.brand, slug, &new).await.unwrap();
                tx.commit().await.unwrap();
                created.is_some()
            }
        });
        assert_eq!(created.await.into_iter().filter(|created| *created).count(), 1);
    }
}

async fn links_are_replaced_and_listed_ids_are_kept(s: TestStore) {
    let w = s.create_world().await;
    let (page, other) = (create_page(&s, w, "one").await.unwrap().id, create_page(&s, w, "two").await.unwrap().id);
    let theirs = replace_links(&s, other, &[link(None, "theirs")]).await;
    let created = replace_links(&s, page, &[link(None, "a 'b' \"c\" \\"), link(None, "b"), link(None, "c")]).await;
    assert_eq!(created.iter().map(|l| l.1).collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(created[0].2, "a 'b' \"c\" \\");
    s.write(async |tx| bio_pages::add_counts(tx, &[], &[(created[2].0, 5)]).await).await;
    let entries = [link(Some(created[2].0), "c again"), link(None, "new"), link(Some(created[0].0), "a")];
    let after = replace_links(&s, page, &entries).await;
    assert_eq!((after[0].0, after[0].2.as_str(), after[2].0), (created[2].0, "c again", created[0].0));
    assert_eq!((after[1].2.as_str(), after.iter().map(|l| l.1).collect::<Vec<_>>()), ("new", vec![1, 2, 3]));
    assert!(created.iter().all(|l| l.0 != after[1].0), "an id is not used again");
    let links = bio_pages::links(&mut s.conn().await, page).await.unwrap();
    assert_eq!(links.iter().map(|l| l.clicks).collect::<Vec<_>>(), [5, 0, 0]);
    // A link of another page cannot be referenced, and does not change.
    replace_links(&s, page, &[link(Some(theirs[0].0), "stolen")]).await;
    assert_eq!(bio_pages::links(&mut s.conn().await, other).await.unwrap()[0].title, "theirs");
    assert!(replace_links(&s, page, &[]).await.is_empty());
}

async fn every_update_increments_the_version(s: TestStore) {
    let w = s.create_world().await;
    let page = create_page(&s, w, "acme").await.unwrap();
    let version = async || bio_pages::version(&mut s.conn().await, "acme").await.unwrap();
    let expected = |version| Some(Version { page_id: page.id, version, alt_text: None });
    assert_eq!(version().await, expected(1));
    s.write(async |tx| bio_pages::update(tx, &page).await).await;
    s.write(async |tx| bio_pages::update(tx, &page).await).await;
    assert_eq!(version().await, expected(3));
    assert_eq!(bio_pages::version(&mut s.conn().await, "nobody").await.unwrap(), None);
}

async fn counts_are_added_without_other_changes(s: TestStore) {
    let w = s.create_world().await;
    let page = create_page(&s, w, "acme").await.unwrap();
    let links = replace_links(&s, page.id, &[link(None, "a"), link(None, "b")]).await;
    s.advance(60);
    for _ in 0..2 {
        let (views, clicks) = ([(page.id, 3), (999_999, 1)], [(links[1].0, 2), (999_999, 1)]);
        s.write(async |tx| bio_pages::add_counts(tx, &views, &clicks).await).await;
    }
    s.write(async |tx| bio_pages::add_counts(tx, &[], &[]).await).await;
    let (found, links) = bio_pages::by_slug(&mut s.conn().await, "acme").await.unwrap().unwrap();
    assert_eq!((found.views, found.version, found.updated_at), (6, page.version, page.updated_at));
    assert_eq!(links.iter().map(|l| l.clicks).collect::<Vec<_>>(), [0, 4]);
}

async fn after_commit_hooks_run_only_after_commit(s: TestStore) {
    let done = Arc::<AtomicBool>::default();
    let later = |tx: &mut Tx| {
        let done = done.clone();
        tx.after_commit(move || done.store(true, Ordering::SeqCst));
    };
    let mut tx = s.begin().await.unwrap();
    later(&mut tx);
    tx.rollback().await.unwrap();
    let mut tx = s.begin().await.unwrap();
    later(&mut tx);
    drop(tx);
    let mut tx = s.begin().await.unwrap();
    later(&mut tx);
    assert!(!done.load(Ordering::SeqCst));
    tx.commit().await.unwrap();
    assert!(done.load(Ordering::SeqCst));
}

async fn concurrent_counts_are_not_lost(s: TestStore) {
    let w = s.create_world().await;
    let mut pages = Vec::new();
    for n in 0..20 {
        pages.push(create_page(&s, w, &format!("p{n}")).await.unwrap().id);
    }
    for round in 0..3 {
        run_concurrently(8, |n| {
            let (store, mut counts) = (s.store.clone(), pages.iter().map(|id| (*id, 1)).collect::<Vec<_>>());
            counts.rotate_left((n * 7 + round) % 20);
            async move {
                let mut tx = store.begin().await.unwrap();
                bio_pages::add_counts(&mut tx, &counts, &[]).await.unwrap();
                tx.commit().await.unwrap();
            }
        })
        .await;
    }
    assert_eq!(s.number("SELECT count(*) FROM bio_pages WHERE views = 24").await, 20);
}

/// Counts clicks in the order of the links, while other transactions reverse the links.
async fn counting_and_updating_do_not_deadlock(s: TestStore) {
    let w = s.create_world().await;
    let page = create_page(&s, w, "acme").await.unwrap().id;
    let new: Vec<LinkEntry> = (0..100).map(|n| link(None, &n.to_string())).collect();
    let created = replace_links(&s, page, &new).await;
    let clicks: Vec<(i64, u64)> = created.iter().map(|(id, ..)| (*id, 1)).collect();
    let reversed: Vec<LinkEntry> = created.iter().rev().map(|(id, _, title)| link(Some(*id), title)).collect();
    for _ in 0..10 {
        run_concurrently(8, |n| {
            let (store, clicks, reversed) = (s.store.clone(), clicks.clone(), reversed.clone());
            async move {
                let mut tx = store.begin().await.unwrap();
                if n % 2 == 0 {
                    bio_pages::add_counts(&mut tx, &[], &clicks).await.unwrap();
                } else {
                    bio_pages::find_for_update(&mut tx, w.brand, page).await.unwrap().unwrap();
                    bio_pages::set_links(&mut tx, page, &reversed).await.unwrap();
                }
                tx.commit().await.unwrap();
            }
        })
        .await;
    }
    assert_eq!(s.number("SELECT count(*) FROM bio_links WHERE clicks = 40").await, 100);
}
