//! Social accounts: one record per workspace, attached to several brands, with encrypted tokens.

use crier_domain::account::{AccountError, AccountStatus, DisconnectResult};
use crier_domain::limits::AccountLimits;
use crier_domain::platform::{AccountKind, Platform};
use crier_store::accounts::{self, NewAccount};
use crier_store::{PageRequest, StoreError};
use secrecy::SecretString;

use crate::support::store::{TestStore, World, cipher, expose, new_account, on_both};

on_both![
    a_connected_account_is_stored,
    reconnecting_reactivates_the_account,
    an_account_is_visible_only_to_its_workspace_and_brands,
    lists_are_paged_newest_first,
    secrets_are_encrypted_and_bound_to_their_row,
    an_expired_account_can_be_renewed,
    only_one_refresh_runs_at_a_time,
    the_last_brand_s_disconnect_revokes_the_account,
    concurrent_disconnects_revoke_once,
    the_limits_of_a_server_are_stored_with_the_account,
    the_granted_scopes_are_those_of_the_last_connect,
];

const ALL: PageRequest = PageRequest { page: 1, per_page: 50 };

async fn is_attached(s: &TestStore, brand: i64, account: i64) -> bool {
    !accounts::find_many(&mut s.conn().await, brand, &[account]).await.unwrap().is_empty()
}

async fn second_brand(s: &TestStore, w: World) -> World {
    World { brand: s.brand(w.workspace, w.user).await, ..w }
}

async fn a_connected_account_is_stored(s: TestStore) {
    let w = s.create_world().await;
    let new = NewAccount {
        platform: Platform::Bluesky,
        external_id: "did:plc:x".to_owned(),
        profile_url: Some("https://p.test".to_owned()),
        avatar_url: Some("https://a.test".to_owned()),
        kind: AccountKind::Channel,
        token_expires_at: Some(s.later(3600)),
        ..new_account("", "t")
    };
    let created = s.write(async |tx| accounts::save(tx, w.workspace, &new).await).await;
    assert_eq!(
        (created.workspace_id, created.platform, created.external_id.as_str()),
        (w.workspace, Platform::Bluesky, "did:plc:x")
    );
    assert_eq!(
        (created.name.as_str(), created.username.as_deref(), created.kind),
        ("Demo", Some("demo"), AccountKind::Channel)
    );
    assert_eq!(
        (created.profile_url.as_deref(), created.avatar_url.as_deref()),
        (Some("https://p.test"), Some("https://a.test"))
    );
    assert_eq!((created.status, created.last_error), (AccountStatus::Active, None));
    assert_eq!(
        (created.token_expires_at, created.connected_at, created.created_at),
        (Some(s.later(3600)), s.now(), s.now())
    );
    let mut conn = s.conn().await;
    assert!(accounts::find(&mut conn, w.brand, created.id).await.unwrap().is_none(), "not attached yet");
    drop(conn);
    let attach = async || s.write(async |tx| accounts::attach(tx, w.brand, created.id).await).await;
    assert!(attach().await);
    assert!(!attach().await);
    assert_eq!(accounts::find(&mut s.conn().await, w.brand, created.id).await.unwrap().unwrap().id, created.id);
}

async fn reconnecting_reactivates_the_account(s: TestStore) {
    let w = s.create_world().await;
    let first = s.account(w, "1", "old").await;
    let error = AccountError { code: "account_expired".to_owned(), message: "Connect it again.".to_owned() };
    s.write(async |tx| accounts::expire(tx, first.id, 1, &error).await).await;
    s.advance(60);
    let reconnected = NewAccount { name: "New name".to_owned(), username: None, ..new_account("1", "new") };
    let reconnected = s.write(async |tx| accounts::save(tx, w.workspace, &reconnected).await).await;
    assert_eq!((reconnected.id, reconnected.status, reconnected.last_error), (first.id, AccountStatus::Active, None));
    assert_eq!(
        (reconnected.name.as_str(), reconnected.username, reconnected.connected_at),
        ("New name", None, s.now())
    );
    assert_eq!((reconnected.created_at, reconnected.updated_at), (first.created_at, s.now()));
    let (_, secrets) = accounts::with_secrets(&mut s.conn().await, &cipher(), first.id).await.unwrap().unwrap();
    assert_eq!(expose(&secrets), "{\"token\":\"new\"}");
    assert_eq!(s.number("SELECT count(*) FROM social_accounts").await, 1);
}

async fn an_account_is_visible_only_to_its_workspace_and_brands(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let mine = s.account(w, "1", "t").await;
    let other_account = s.account(other, "1", "t").await;
    assert_ne!(mine.id, other_account.id, "the same account in two workspaces is two records");
    let second = second_brand(&s, w).await;
    let mut conn = s.conn().await;
    for brand in [other.brand, second.brand, 999] {
        assert!(accounts::find(&mut conn, brand, mine.id).await.unwrap().is_none());
        assert!(!is_attached(&s, brand, mine.id).await);
    }
    assert!(accounts::find(&mut conn, w.brand, other_account.id).await.unwrap().is_none());
    assert!(is_attached(&s, w.brand, mine.id).await);
    assert!(accounts::has_external(&mut conn, w.brand, Platform::Sandbox, "1").await.unwrap());
    assert!(!accounts::has_external(&mut conn, w.brand, Platform::Bluesky, "1").await.unwrap());
    assert!(!accounts::has_external(&mut conn, second.brand, Platform::Sandbox, "1").await.unwrap());
    assert!(accounts::with_secrets(&mut conn, &cipher(), 999).await.unwrap().is_none());
    drop(conn);
    let disconnected = s.write(async |tx| accounts::disconnect(tx, other.brand, mine.id).await).await;
    assert_eq!(disconnected, None, "another workspace's account cannot be disconnected");
    assert!(is_attached(&s, w.brand, mine.id).await);
}

async fn lists_are_paged_newest_first(s: TestStore) {
    let (w, other) = (s.create_world().await, s.world_of("bob@example.com").await);
    let mut ids = Vec::new();
    for n in 0..5 {
        ids.push(s.account(w, &n.to_string(), "t").await.id);
    }
    s.account(other, "9", "t").await;
    ids.reverse();
    let list = async |page, per_page| {
        accounts::list(&mut s.conn().await, w.brand, PageRequest { page, per_page }).await.unwrap()
    };
    let (first, last, past_end) = (list(1, 2).await, list(3, 2).await, list(4, 2).await);
    assert_eq!(first.rows.iter().map(|a| a.id).collect::<Vec<_>>(), ids[..2]);
    assert_eq!(last.rows.iter().map(|a| a.id).collect::<Vec<_>>(), ids[4..]);
    assert!(past_end.rows.is_empty());
    assert!([first.total, last.total, past_end.total] == [5, 5, 5]);
    assert_eq!(accounts::count(&mut s.conn().await, w.brand).await.unwrap(), 5);
    // A page number that overflows returns an empty page, not an error.
    assert!(list(i64::MAX, 100).await.rows.is_empty());
}

async fn secrets_are_encrypted_and_bound_to_their_row(s: TestStore) {
    let w = s.create_world().await;
    let (one, two) = (s.account(w, "1", "token-of-one").await, s.account(w, "2", "token-of-two").await);
    let sealed: Vec<u8> = s.value(format!("SELECT secrets FROM social_accounts WHERE id = {}", one.id)).await;
    assert!(!sealed.windows(5).any(|bytes| bytes == b"token"));
    let open = async |id| accounts::with_secrets(&mut s.conn().await, &cipher(), id).await;
    let (account, secrets) = open(one.id).await.unwrap().unwrap();
    assert_eq!((account.external_id.as_str(), expose(&secrets)), ("1", "{\"token\":\"token-of-one\"}"));
    s.sql(format!(
        "UPDATE social_accounts SET secrets = (SELECT secrets FROM social_accounts WHERE id = {}) WHERE id = {}",
        one.id, two.id
    ))
    .await;
    assert!(matches!(open(two.id).await, Err(StoreError::Secret(_))));
}

async fn an_expired_account_can_be_renewed(s: TestStore) {
    let w = s.create_world().await;
    let account = s.account(w, "1", "old").await;
    let error = AccountError { code: "account_expired".to_owned(), message: "Connect it again.".to_owned() };
    let find = async || accounts::find(&mut s.conn().await, w.brand, account.id).await.unwrap().unwrap();
    let token = async || {
        let (_, secrets) = accounts::with_secrets(&mut s.conn().await, &cipher(), account.id).await.unwrap().unwrap();
        expose(&secrets).to_owned()
    };
    s.write(async |tx| accounts::expire(tx, account.id, 1, &error).await).await;
    let expired = find().await;
    assert_eq!((expired.status, expired.last_error), (AccountStatus::Expired, Some(error.clone())));
    s.advance(5);
    // The credentials do not change: only the status is reset.
    let renewed = s.write(async |tx| accounts::renew(tx, &account, None, None).await).await.unwrap();
    assert_eq!((renewed.status, renewed.last_error, renewed.updated_at), (AccountStatus::Active, None, s.now()));
    assert_eq!(token().await, "{\"token\":\"old\"}");
    s.write(async |tx| accounts::expire(tx, account.id, 1, &error).await).await;
    let fresh = SecretString::from("{\"token\":\"new\"}");
    let until = s.later(900);
    s.write(async |tx| accounts::renew(tx, &account, Some(&fresh), Some(until)).await).await.unwrap();
    let renewed = find().await;
    assert_eq!((renewed.status, renewed.token_expires_at), (AccountStatus::Active, Some(until)));
    assert_eq!(token().await, "{\"token\":\"new\"}");
    s.write(async |tx| accounts::disconnect(tx, w.brand, account.id).await).await;
    assert!(s.write(async |tx| accounts::renew(tx, &account, Some(&fresh), None).await).await.is_none());
}

async fn only_one_refresh_runs_at_a_time(s: TestStore) {
    let w = s.create_world().await;
    let account = s.account(w, "1", "old").await;
    let at_most = chrono::TimeDelta::seconds(20);
    let begin = async || s.write(async |tx| accounts::begin_refresh(tx, account.id, at_most).await).await.is_some();
    let started = crate::support::store::run_concurrently(6, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let started = accounts::begin_refresh(&mut tx, account.id, at_most).await.unwrap();
            tx.commit().await.unwrap();
            started.is_some()
        }
    })
    .await;
    assert_eq!(started.iter().filter(|started| **started).count(), 1);
    assert!(!begin().await);
    s.write(async |tx| accounts::end_refresh(tx, account.id, 1).await).await;
    assert!(begin().await);
    s.write(async |tx| accounts::renew(tx, &account, None, None).await).await.unwrap();
    assert!(begin().await, "a renewal ends it");
    s.clock.advance(at_most);
    assert!(begin().await, "so does its expiry");
}

async fn the_last_brand_s_disconnect_revokes_the_account(s: TestStore) {
    let w = s.create_world().await;
    let second = second_brand(&s, w).await;
    let account = s.account(w, "1", "t").await;
    assert_eq!(s.account(second, "1", "t").await.id, account.id);
    let disconnect = async |brand| s.write(async |tx| accounts::disconnect(tx, brand, account.id).await).await;
    assert_eq!(disconnect(w.brand).await, Some(DisconnectResult::Detached));
    assert_eq!(disconnect(w.brand).await, None);
    assert_eq!(accounts::list(&mut s.conn().await, w.brand, ALL).await.unwrap().total, 0);
    assert!(is_attached(&s, second.brand, account.id).await);
    assert_eq!(disconnect(second.brand).await, Some(DisconnectResult::Revoked));
    assert_eq!(disconnect(second.brand).await, None);
    assert_eq!(s.number("SELECT count(*) FROM social_accounts").await, 0);
}

async fn concurrent_disconnects_revoke_once(s: TestStore) {
    let w = s.create_world().await;
    for round in 0..5 {
        let (second, external) = (second_brand(&s, w).await, round.to_string());
        let id = s.account(w, &external, "t").await.id;
        s.account(second, &external, "t").await;
        let brands = [w.brand, second.brand];
        let mut results = crate::support::store::run_concurrently(2, |n| {
            let (store, brand) = (s.store.clone(), brands[n]);
            async move {
                let mut tx = store.begin().await.unwrap();
                let result = accounts::disconnect(&mut tx, brand, id).await.unwrap();
                tokio::task::yield_now().await;
                tx.commit().await.unwrap();
                result
            }
        })
        .await;
        results.sort();
        assert_eq!(results, [Some(DisconnectResult::Detached), Some(DisconnectResult::Revoked)]);
    }
    assert_eq!(s.number("SELECT count(*) FROM social_accounts").await, 0);
}

/// A brand connects the account while the last other brand disconnects it: the second transaction sees the changes of
/// the first one.
#[tokio::test]
async fn a_concurrent_connect_keeps_the_account() {
    let s = TestStore::postgres().await;
    let w = s.create_world().await;
    let second = second_brand(&s, w).await;
    let account = s.account(w, "1", "t").await;
    let mut connecting = s.begin().await.unwrap();
    let new = new_account("1", "t2");
    accounts::save(&mut connecting, w.workspace, &new).await.unwrap();
    accounts::attach(&mut connecting, second.brand, account.id).await.unwrap();
    let (result, ()) = tokio::join!(s.write(async |tx| accounts::disconnect(tx, w.brand, account.id).await), async {
        s.until_blocked(1).await;
        connecting.commit().await.unwrap();
    });
    assert_eq!(result, Some(DisconnectResult::Detached));
    // In the other order, the record is deleted, and the connect creates a new one.
    let mut disconnecting = s.begin().await.unwrap();
    let disconnected = accounts::disconnect(&mut disconnecting, second.brand, account.id).await.unwrap();
    assert_eq!(disconnected, Some(DisconnectResult::Revoked));
    let (created, ()) = tokio::join!(s.account(w, "1", "t3"), async {
        s.until_blocked(1).await;
        disconnecting.commit().await.unwrap();
    });
    assert_ne!(created.id, account.id);
    assert!(is_attached(&s, w.brand, created.id).await);
}

async fn the_limits_of_a_server_are_stored_with_the_account(s: TestStore) {
    let w = s.create_world().await;
    let limits = AccountLimits {
        read_at: s.now(),
        software: Some("mastodon".to_owned()),
        max_characters: Some(u32::MAX),
        max_image_bytes: Some(u64::MAX),
        mime_types: vec!["image/png".to_owned()],
        ..AccountLimits::default()
    };
    let new = NewAccount { limits: Some(limits.clone()), ..new_account("1", "t") };
    let created = s.write(async |tx| accounts::save(tx, w.workspace, &new).await).await;
    s.write(async |tx| accounts::attach(tx, w.brand, created.id).await).await;
    let summary = async || accounts::summaries(&mut s.conn().await, w.brand, &[created.id]).await.unwrap().remove(0);
    assert_eq!((created.limits, summary().await.limits), (Some(limits.clone()), Some(limits.clone())));

    // A connect that could not read the limits keeps the stored ones.
    let reconnected = s.write(async |tx| accounts::save(tx, w.workspace, &new_account("1", "u")).await).await;
    assert_eq!(reconnected.limits, Some(limits));
    let newer = AccountLimits { max_images: Some(6), ..AccountLimits::default() };
    s.write(async |tx| accounts::set_limits(tx, &reconnected, &newer).await).await;
    assert_eq!(summary().await.limits, Some(newer));
}

async fn the_granted_scopes_are_those_of_the_last_connect(s: TestStore) {
    let w = s.create_world().await;
    let connect = async |granted_scopes: Option<Vec<String>>| {
        let new = NewAccount { granted_scopes, ..new_account("1", "t") };
        let account = s.write(async |tx| accounts::save(tx, w.workspace, &new).await).await;
        s.write(async |tx| accounts::attach(tx, w.brand, account.id).await).await;
        account
    };
    let stored = async |id: i64| {
        let mut conn = s.conn().await;
        let summary = accounts::summaries(&mut conn, w.brand, &[id]).await.unwrap().remove(0);
        let account = accounts::find(&mut conn, w.brand, id).await.unwrap().unwrap();
        assert_eq!(account.granted_scopes, summary.granted_scopes);
        account.granted_scopes
    };
    for granted in [Some(vec!["read".to_owned(), "write".to_owned()]), Some(Vec::new()), None] {
        let account = connect(granted.clone()).await;
        assert_eq!((&account.granted_scopes, stored(account.id).await), (&granted, granted.clone()));
    }
    // A renewal of the tokens keeps them.
    let account = connect(Some(vec!["read".to_owned()])).await;
    let renewed = s.write(async |tx| accounts::renew(tx, &account, None, None).await).await.unwrap();
    assert_eq!(renewed.granted_scopes, account.granted_scopes);
}
