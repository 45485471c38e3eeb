//! Workspaces, users, brands and their members, keys, and usage.

use chrono::TimeDelta;
use crier_domain::access::{KeyMode, MAX_KEYS, Role, Scope, Scopes};
use crier_domain::brand::Brand;
use crier_store::brands::{self, NewBrand};
use crier_store::keys::NewKey;
use crier_store::{keys, usage, users};
use secrecy::SecretString;

use crate::support::store::{TestStore, expose, on_both, run_concurrently};

on_both![
    a_workspace_has_a_plan,
    users_are_found_by_email,
    deleting_a_user_deletes_its_keys,
    a_brand_is_visible_only_to_its_members,
    members_are_added_and_removed,
    the_brand_limit_holds_under_concurrent_creates,
    a_key_authenticates_and_only_its_hash_is_stored,
    a_deleted_key_does_not_authenticate,
    the_key_limit_holds_under_concurrent_creates,
    last_used_is_updated_at_intervals,
    posts_are_counted_per_month,
    the_post_limit_holds_under_concurrent_creates,
];

async fn a_workspace_has_a_plan(s: TestStore) {
    let (one, two) = (s.workspace().await, s.workspace().await);
    assert_eq!(users::workspace_plan(&mut s.conn().await, one).await.unwrap().as_deref(), Some("pro"));
    assert_eq!(users::workspace_plan(&mut s.conn().await, 999).await.unwrap(), None);
    s.write(async |tx| users::set_plan(tx, two, "free").await).await;
    assert_eq!(users::workspace_plan(&mut s.conn().await, one).await.unwrap().as_deref(), Some("pro"));
    assert_eq!(users::workspace_plan(&mut s.conn().await, two).await.unwrap().as_deref(), Some("free"));
    assert_eq!(users::plans_in_use(&mut s.conn().await).await.unwrap(), ["free", "pro"]);
}

async fn users_are_found_by_email(s: TestStore) {
    let workspace = s.workspace().await;
    let id = s.user(workspace, "Ann@Example.COM").await;
    let found = users::find_by_email(&mut s.conn().await, "aNN@example.com").await.unwrap().unwrap();
    assert_eq!((found.id, found.workspace_id, found.email.as_str()), (id, workspace, "ann@example.com"));
    assert_eq!((found.name.as_str(), found.plan.as_str(), found.created_at), ("Ann", "pro", s.now()));
    assert!(users::find_by_email(&mut s.conn().await, "bob@example.com").await.unwrap().is_none());
    let duplicate = s.try_write(async |tx| users::create(tx, workspace, "ANN@example.com", "Other").await).await;
    assert!(duplicate.unwrap_err().is_unique_violation());
    let second = s.user(workspace, "bob@example.com").await;
    let all = users::list(&mut s.conn().await).await.unwrap();
    assert_eq!(all.iter().map(|u| u.id).collect::<Vec<_>>(), [id, second]);
}

async fn deleting_a_user_deletes_its_keys(s: TestStore) {
    let w = s.create_world().await;
    s.key(w.user).await;
    s.webhook(w.user, &[]).await;
    let (post, _) = s.post(w, &[]).await;
    let delete = async |email| s.write(async |tx| users::delete(tx, email).await).await;
    assert!(!delete("nobody@example.com").await);
    assert!(delete("ANN@example.com").await);
    assert!(!delete("ann@example.com").await);
    for table in ["users", "api_keys", "webhooks", "brand_members"] {
        assert_eq!(s.number(format!("SELECT count(*) FROM {table}")).await, 0, "{table}");
    }
    let kept = crier_store::posts::find(&mut s.conn().await, w.brand, post).await.unwrap().unwrap();
    assert_eq!((kept.author_id, kept.author_name), (None, None));
}

async fn a_brand_is_visible_only_to_its_members(s: TestStore) {
    let w = s.create_world().await;
    let other = s.world_of("bob@example.com").await;
    let new =
        NewBrand { name: "Shop", description: Some("Bread"), website: Some("https://x.test"), timezone: "Asia/Tokyo" };
    let created = s.write(async |tx| brands::create(tx, w.workspace, w.user, Some(5), new).await).await.unwrap();
    assert_eq!(
        (created.name.as_str(), created.timezone.as_str(), created.workspace_id),
        ("Shop", "Asia/Tokyo", w.workspace)
    );
    assert_eq!((created.description.as_deref(), created.website.as_deref()), (Some("Bread"), Some("https://x.test")));
    assert_eq!((created.created_at, created.updated_at), (s.now(), s.now()));
    let mut conn = s.conn().await;
    let (found, role) = membership(&s, w.user, created.id).await.unwrap();
    assert_eq!((found.id, found.name, role), (created.id, created.name, Role::Owner));
    assert!(membership(&s, other.user, created.id).await.is_none());
    assert!(membership(&s, w.user, other.brand).await.is_none());
    assert!(membership(&s, w.user, 999).await.is_none());
    let mine = brands::list(&mut conn, w.user).await.unwrap();
    assert_eq!(mine.iter().map(|one| one.brand.id).collect::<Vec<_>>(), [created.id, w.brand]);
    assert!(mine.iter().all(|one| one.role == Role::Owner), "{mine:?}");
    assert_eq!(brands::count(&mut conn, w.workspace).await.unwrap(), 2);
    assert_eq!(brands::workspace_of(&mut conn, created.id).await.unwrap(), Some(w.workspace));
    assert_eq!(brands::workspace_of(&mut conn, 999).await.unwrap(), None);
}

/// Returns the user's membership in a brand, as a request with one of the user's keys finds it.
async fn membership(s: &TestStore, user: i64, brand: i64) -> Option<(Brand, Role)> {
    let key = s.write(async |tx| keys::create(tx, user, KeyMode::Live, &Scopes::all()).await).await;
    keys::authenticate(&mut s.conn().await, &key, Some(brand), None).await.unwrap().unwrap().0.membership
}

async fn members_are_added_and_removed(s: TestStore) {
    let w = s.create_world().await;
    let bob = s.user(w.workspace, "bob@example.com").await;
    s.member(w.brand, bob, Role::Editor).await;
    let members = users::members(&mut s.conn().await, w.brand).await.unwrap();
    let seen: Vec<_> = members.iter().map(|m| (m.id, m.email.as_str(), m.role)).collect();
    assert_eq!(seen, [(bob, "bob@example.com", Role::Editor), (w.user, "ann@example.com", Role::Owner)]);
    s.member(w.brand, bob, Role::Admin).await;
    assert_eq!(membership(&s, bob, w.brand).await.unwrap().1, Role::Admin);
    let remove = async |user| s.write(async |tx| brands::remove_member(tx, w.brand, user).await).await;
    assert!(remove(bob).await);
    assert!(!remove(bob).await);
    assert!(membership(&s, bob, w.brand).await.is_none());
    assert!(users::members(&mut s.conn().await, 999).await.unwrap().is_empty());
}

async fn the_brand_limit_holds_under_concurrent_creates(s: TestStore) {
    let workspace = s.workspace().await;
    let user = s.user(workspace, "ann@example.com").await;
    let created = run_concurrently(10, |_| {
        let store = s.store.clone();
        async move {
            let new = NewBrand { name: "B", description: None, website: None, timezone: "UTC" };
            let mut tx = store.begin().await.unwrap();
            let created = brands::create(&mut tx, workspace, user, Some(3), new).await.unwrap();
            tx.commit().await.unwrap();
            created.is_some()
        }
    })
    .await;
    assert_eq!(created.iter().filter(|created| **created).count(), 3);
    assert_eq!(brands::count(&mut s.conn().await, workspace).await.unwrap(), 3);
    assert_eq!(s.number("SELECT count(*) FROM brand_members").await, 3);
}

async fn a_key_authenticates_and_only_its_hash_is_stored(s: TestStore) {
    let w = s.create_world().await;
    let scopes: Scopes = "brands:read,posts:write".parse().unwrap();
    let key = s.write(async |tx| keys::create(tx, w.user, KeyMode::Test, &scopes).await).await;
    assert!(expose(&key).starts_with("svc_test_") && expose(&key).len() == 9 + keys::KEY_LENGTH);
    let caller = keys::authenticate(&mut s.conn().await, &key, None, None).await.unwrap().unwrap().0.caller;
    assert_eq!((caller.user_id, caller.workspace_id, caller.plan.as_str()), (w.user, w.workspace, "pro"));
    assert_eq!((caller.mode, caller.user_name.as_str(), caller.last_used_at), (KeyMode::Test, "Ann", None));
    assert_eq!(caller.scopes, scopes);
    assert!(caller.scopes.has(Scope::PostsWrite) && !caller.scopes.has(Scope::PostsRead));
    let rows = keys::list(&mut s.conn().await, None).await.unwrap();
    assert_eq!((rows.len(), rows[0].id, rows[0].user_id), (1, caller.key_id, w.user));
    assert_eq!((rows[0].prefix.as_str(), rows[0].email.as_str()), ("svc_test_", "ann@example.com"));
    assert_eq!((rows[0].mode, rows[0].scopes.as_str()), (KeyMode::Test, "brands:read,posts:write"));
    assert!(expose(&key).ends_with(&rows[0].last4));
    let random = &expose(&key)[9..expose(&key).len() - 4];
    for column in ["scopes", "prefix", "last4"] {
        let text: String = s.value(format!("SELECT {column} FROM api_keys")).await;
        assert!(!text.contains(random), "{column}");
    }
    let hash: Vec<u8> = s.value("SELECT hash FROM api_keys").await;
    assert_eq!(Some(hash), keys::hash(expose(&key)));
}

async fn a_deleted_key_does_not_authenticate(s: TestStore) {
    let w = s.create_world().await;
    let key = s.write(async |tx| keys::create(tx, w.user, KeyMode::Live, &Scopes::all()).await).await;
    let text = expose(&key);
    let (truncated, long) = (&text[..text.len() - 1], format!("{text}a"));
    let (other, wrong_mode) = (format!("svc_live_{}", "a".repeat(40)), text.replace("live", "test"));
    let upper_case = text.replace("svc_", "SVC_");
    for wrong in ["", "svc_live_", truncated, &long, &other, &wrong_mode, &upper_case, "svc_live_ä"] {
        let wrong = SecretString::from(wrong.to_owned());
        assert!(keys::authenticate(&mut s.conn().await, &wrong, None, None).await.unwrap().is_none());
    }
    let id = keys::authenticate(&mut s.conn().await, &key, None, None).await.unwrap().unwrap().0.caller.key_id;
    let delete = async |id| s.write(async |tx| keys::delete(tx, id).await).await;
    assert!(delete(id).await);
    assert!(!delete(id).await);
    assert!(keys::authenticate(&mut s.conn().await, &key, None, None).await.unwrap().is_none());
}

async fn the_key_limit_holds_under_concurrent_creates(s: TestStore) {
    let w = s.create_world().await;
    for _ in 0..MAX_KEYS - 3 {
        s.key(w.user).await;
    }
    let created = run_concurrently(8, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let scopes = Scopes::all();
            let key = keys::create_within_cap(&mut tx, w.user, &NewKey::new(KeyMode::Live, &scopes)).await.unwrap();
            tx.commit().await.unwrap();
            key.is_some()
        }
    })
    .await;
    assert_eq!(created.iter().filter(|created| **created).count(), 3);
    let create = async |user| {
        let scopes = Scopes::all();
        let new = NewKey::new(KeyMode::Test, &scopes);
        s.write(async |tx| keys::create_within_cap(tx, user, &new).await).await.is_some()
    };
    assert!(!create(w.user).await);
    let other = s.user(w.workspace, "bob@example.com").await;
    assert!(create(other).await, "each user has an own limit");
    let deleted = s.number(format!("SELECT min(id) FROM api_keys WHERE user_id = {}", w.user)).await;
    assert!(s.write(async |tx| keys::delete(tx, deleted).await).await);
    assert!(create(w.user).await && !create(w.user).await);
}

async fn last_used_is_updated_at_intervals(s: TestStore) {
    let w = s.create_world().await;
    let key = s.write(async |tx| keys::create(tx, w.user, KeyMode::Live, &Scopes::all()).await).await;
    let caller = keys::authenticate(&mut s.conn().await, &key, None, None).await.unwrap().unwrap().0.caller;
    assert!(keys::should_touch(caller.last_used_at, s.now()));
    s.write(async |tx| keys::touch(tx, caller.key_id).await).await;
    let caller = keys::authenticate(&mut s.conn().await, &key, None, None).await.unwrap().unwrap().0.caller;
    assert_eq!(caller.last_used_at, Some(s.now()));
    assert!(!keys::should_touch(caller.last_used_at, s.now() + TimeDelta::seconds(59)));
    assert!(keys::should_touch(caller.last_used_at, s.now() + TimeDelta::seconds(60)));
}

async fn posts_are_counted_per_month(s: TestStore) {
    let (one, two) = (s.workspace().await, s.workspace().await);
    let take = async |workspace, cap| s.write(async |tx| usage::take_post(tx, workspace, cap).await).await;
    assert_eq!(usage::posts(&mut s.conn().await, one, s.now()).await.unwrap(), 0);
    assert!(!take(one, Some(0)).await);
    assert!(take(one, Some(2)).await && take(one, Some(2)).await);
    assert!(!take(one, Some(2)).await);
    assert!(take(one, None).await && take(two, Some(2)).await);
    assert_eq!(usage::posts(&mut s.conn().await, one, s.now()).await.unwrap(), 3);
    assert!(!s.discard(async |tx| usage::take_post(tx, one, Some(3)).await).await);
    assert!(s.discard(async |tx| usage::take_post(tx, one, Some(4)).await).await);
    assert_eq!(usage::posts(&mut s.conn().await, one, s.now()).await.unwrap(), 3, "rolled back");
    s.clock.advance(TimeDelta::days(31));
    assert_eq!(usage::posts(&mut s.conn().await, one, s.now()).await.unwrap(), 0);
    assert!(take(one, Some(1)).await && !take(one, Some(1)).await);
}

async fn the_post_limit_holds_under_concurrent_creates(s: TestStore) {
    let workspace = s.workspace().await;
    let taken = run_concurrently(12, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let taken = usage::take_post(&mut tx, workspace, Some(5)).await.unwrap();
            tx.commit().await.unwrap();
            taken
        }
    })
    .await;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 5);
    assert_eq!(usage::posts(&mut s.conn().await, workspace, s.now()).await.unwrap(), 5);
}
