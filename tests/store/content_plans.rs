//! Content plans and their items.

use chrono::NaiveDate;
use crier_domain::content_plan::{ContentPlan, ItemStatus, PlanItem, PlanSize};
use crier_store::content_plans::{self, NewItem, NewPlan};
use crier_store::posts;

use crate::support::store::{TestStore, World, on_both, run_concurrently};

on_both![
    a_plan_round_trips,
    a_plan_is_visible_only_to_its_brand,
    items_are_listed_by_time,
    many_items_keep_their_order_and_text,
    an_item_references_its_post_until_it_is_deleted,
    deleting_a_plan_keeps_its_posts,
    an_item_is_locked_by_one_transaction_at_a_time,
];

fn day(text: &str) -> Option<NaiveDate> {
    Some(text.parse().unwrap())
}

async fn create_plan(s: &TestStore, w: World, name: &str) -> ContentPlan {
    let new = NewPlan { name, description: Some("d"), starts_on: day("2030-01-01"), ends_on: day("2030-12-31") };
    s.write(async |tx| content_plans::create(tx, w.brand, &new).await).await
}

fn new_item(s: &TestStore, title: &str, seconds: Option<i64>) -> NewItem {
    NewItem { title: title.to_owned(), content: None, planned_at: seconds.map(|n| s.later(n)) }
}

async fn add_to_plan(s: &TestStore, plan: i64, items: &[NewItem]) -> Vec<i64> {
    s.write(async |tx| content_plans::add_items(tx, plan, items).await).await
}

async fn items(s: &TestStore, plan: i64) -> Vec<PlanItem> {
    content_plans::items(&mut s.conn().await, plan).await.unwrap()
}

async fn a_plan_round_trips(s: TestStore) {
    let w = s.create_world().await;
    let created = create_plan(&s, w, "Grüße 🥐 '\"\\").await;
    let found = content_plans::find(&mut s.conn().await, w.brand, created.id).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.description.as_deref()), ("Grüße 🥐 '\"\\", Some("d")));
    assert_eq!((found.starts_on, found.ends_on), (day("2030-01-01"), day("2030-12-31")));
    assert_eq!((found.created_at, found.updated_at), (s.now(), s.now()));
    s.advance(9);
    let changed = ContentPlan { name: "New".into(), description: None, starts_on: None, ends_on: None, ..found };
    s.write(async |tx| content_plans::update(tx, &changed).await).await;
    let found = content_plans::find(&mut s.conn().await, w.brand, created.id).await.unwrap().unwrap();
    assert_eq!((found.name.as_str(), found.description, found.starts_on, found.ends_on), ("New", None, None, None));
    assert_eq!((found.created_at, found.updated_at), (s.later(-9), s.now()));
    let second = create_plan(&s, w, "Second").await;
    let ids: Vec<i64> = content_plans::list(&mut s.conn().await, w.brand).await.unwrap().iter().map(|p| p.id).collect();
    assert_eq!(ids, [second.id, created.id]);
}

async fn a_plan_is_visible_only_to_its_brand(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let (mine, theirs) = (create_plan(&s, w, "Mine").await.id, create_plan(&s, other, "Theirs").await.id);
    let item = add_to_plan(&s, mine, &[new_item(&s, "a", None)]).await[0];
    let conn = &mut s.conn().await;
    assert!(content_plans::find(conn, other.brand, mine).await.unwrap().is_none());
    for (brand, plan) in [(other.brand, mine), (w.brand, theirs), (other.brand, theirs)] {
        assert!(content_plans::find_item(conn, brand, plan, item).await.unwrap().is_none());
        let held = s.write(async |tx| content_plans::find_item_for_update(tx, brand, plan, item).await).await;
        assert!(held.is_none());
        assert!(!s.write(async |tx| content_plans::delete_item(tx, brand, plan, item).await).await);
    }
    assert!(s.write(async |tx| content_plans::find_for_update(tx, other.brand, mine).await).await.is_none());
    assert!(!s.write(async |tx| content_plans::delete(tx, other.brand, mine).await).await);
    assert!(content_plans::items_of_brand(conn, other.brand).await.unwrap().is_empty());
    assert_eq!(content_plans::items_of_brand(conn, w.brand).await.unwrap().len(), 1);
    assert!(s.write(async |tx| content_plans::delete_item(tx, w.brand, mine, item).await).await);
}

async fn items_are_listed_by_time(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (create_plan(&s, w, "One").await.id, create_plan(&s, w, "Two").await.id);
    let ideas = [("never", None), ("late", Some(90)), ("soon", Some(5)), ("soon too", Some(5))];
    add_to_plan(&s, one, &ideas.map(|(title, at)| new_item(&s, title, at))).await;
    add_to_plan(&s, two, &[new_item(&s, "other", None)]).await;
    let titles = |list: &[PlanItem]| list.iter().map(|i| i.title.clone()).collect::<Vec<_>>();
    assert_eq!(titles(&items(&s, one).await), ["soon", "soon too", "late", "never"]);
    let all = content_plans::items_of_brand(&mut s.conn().await, w.brand).await.unwrap();
    assert_eq!(
        all.iter().map(|i| i.title.as_str()).collect::<Vec<_>>(),
        ["other", "soon", "soon too", "late", "never"]
    );
    let size = content_plans::size(&mut s.conn().await, one).await.unwrap();
    let text: usize =
        items(&s, one).await.iter().map(|i| i.title.len() + i.content.as_ref().map_or(0, String::len)).sum();
    assert_eq!(size, PlanSize { items: 4, text });
    let conn = &mut s.conn().await;
    assert_eq!(content_plans::count(conn, w.brand).await.unwrap(), 2);
    assert_eq!(content_plans::count_items_of_brand(conn, w.brand).await.unwrap(), 5);
}

async fn many_items_keep_their_order_and_text(s: TestStore) {
    let w = s.create_world().await;
    let plan = create_plan(&s, w, "Many").await.id;
    let text = "Grüße 🥐 'quoted' \"double\" \\ line\nnext";
    let new: Vec<NewItem> = (0..500)
        .map(|n| NewItem { title: format!("{n} {text}"), content: Some(text.repeat(3)), planned_at: Some(s.later(n)) })
        .collect();
    let ids = add_to_plan(&s, plan, &new).await;
    let stored = items(&s, plan).await;
    assert_eq!(stored.iter().map(|i| i.id).collect::<Vec<_>>(), ids);
    for (item, new) in stored.iter().zip(&new) {
        assert_eq!((&item.title, &item.content, item.planned_at), (&new.title, &new.content, new.planned_at));
        assert_eq!((item.created_at, item.updated_at), (s.now(), s.now()));
    }
    s.advance(9);
    let changed = PlanItem { title: "t".into(), content: None, planned_at: None, ..stored[0].clone() };
    s.write(async |tx| content_plans::update_item(tx, &changed).await).await;
    let found = content_plans::find_item(&mut s.conn().await, w.brand, plan, ids[0]).await.unwrap().unwrap();
    assert_eq!((found.title.as_str(), found.content, found.planned_at), ("t", None, None));
    assert_eq!((found.created_at, found.updated_at), (s.later(-9), s.now()));
}

async fn an_item_references_its_post_until_it_is_deleted(s: TestStore) {
    let w = s.create_world().await;
    let plan = create_plan(&s, w, "P").await.id;
    let item = add_to_plan(&s, plan, &[new_item(&s, "a", None)]).await[0];
    let state = async || {
        let found = items(&s, plan).await.remove(0);
        (found.status(), found.post_id)
    };
    assert_eq!(state().await, (ItemStatus::Planned, None));
    let (post, _) = s.post(w, &[]).await;
    s.write(async |tx| content_plans::set_post(tx, item, post).await).await;
    assert_eq!(state().await, (ItemStatus::Scheduled, Some(post)));
    s.write(async |tx| posts::delete(tx, post).await).await;
    assert_eq!(state().await, (ItemStatus::Planned, None));
    assert_eq!(s.write(async |tx| posts::purge(tx, 10).await).await, 1);
    assert_eq!(state().await, (ItemStatus::Planned, None));
}

async fn deleting_a_plan_keeps_its_posts(s: TestStore) {
    let w = s.create_world().await;
    let plan = create_plan(&s, w, "P").await.id;
    let item = add_to_plan(&s, plan, &[new_item(&s, "a", None)]).await[0];
    let (post, _) = s.post(w, &[]).await;
    s.write(async |tx| content_plans::set_post(tx, item, post).await).await;
    assert!(s.write(async |tx| content_plans::delete(tx, w.brand, plan).await).await);
    assert!(!s.write(async |tx| content_plans::delete(tx, w.brand, plan).await).await);
    assert_eq!(s.number("SELECT count(*) FROM content_plan_items").await, 0);
    assert!(posts::find(&mut s.conn().await, w.brand, post).await.unwrap().is_some());
}

async fn an_item_is_locked_by_one_transaction_at_a_time(s: TestStore) {
    let w = s.create_world().await;
    let plan = create_plan(&s, w, "P").await.id;
    let (post, _) = s.post(w, &[]).await;
    // The first round opens the connections, so that the later rounds run concurrently.
    for item in add_to_plan(&s, plan, &["a", "b", "c"].map(|title| new_item(&s, title, None))).await {
        let created = run_concurrently(8, |_| {
            let store = s.store.clone();
            async move {
                let mut tx = store.begin().await.unwrap();
                let found = content_plans::find_item_for_update(&mut tx, w.brand, plan, item).await.unwrap().unwrap();
                if found.post_id.is_some() {
                    return false;
                }
                content_plans::set_post(&mut tx, item, post).await.unwrap();
                tx.commit().await.unwrap();
                true
            }
        });
        assert_eq!(created.await.into_iter().filter(|created| *created).count(), 1);
    }
}
