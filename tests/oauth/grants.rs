//! The list of connected applications, and what ends their access.

use crier_domain::access::Role;
use crier_store::oauth::grants::{self, MAX_GRANTS};
use crier_store::oauth::{self, clients, codes, tokens};
use crier_store::{keys, sessions, users};

use super::{
    Allowed, REDIRECT, SCOPES, TOKEN, Tokens, allow, assert_error, caller, connect, count_grants, exchange_of,
    grants_of, refresh, register, scopes, send,
};
use crate::support::app::{TestApp, on_both_apps};
use crate::support::store::TestStore;

on_both_apps!(
    grants_are_listed_and_revoked,
    grants_are_not_listed_as_keys,
    deleting_the_user_ends_grants,
    signing_out_everywhere_ends_grants,
    a_code_that_is_deleted_during_its_exchange_gets_no_tokens,
    a_removed_member_loses_the_brand,
    the_least_recently_used_grant_makes_room,
    expired_rows_are_deleted,
    unused_codes_are_deleted_when_they_expire,
    old_tokens_of_a_grant_are_deleted,
);

async fn grants_are_listed_and_revoked(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, first) = connect(&t, Allowed::default()).await;
    let brands = [t.brand];
    let allowed = Allowed { brands: Some(&brands), role_limit: Some(Role::Contributor) };
    let (_, second) = connect(&t, allowed).await;
    let other = app.tenant("pro").await;
    connect(&other, Allowed::default()).await;
    let listed = grants_of(&t).await;
    let [newest, oldest] = &listed[..] else { panic!("{listed:?}") };
    assert_eq!((oldest.client_id.as_str(), oldest.client_name.as_str()), (client.as_str(), "Agent"));
    assert_eq!((oldest.redirect_host.as_str(), &oldest.scopes), ("agent.example", &scopes(SCOPES)));
    assert_eq!((&oldest.brands, oldest.role_limit), (&None, None));
    assert_eq!(newest.brands, Some(vec![(t.brand, "Bakery".to_owned())]));
    assert_eq!((newest.role_limit, newest.created_at, newest.last_used_at), (Some(Role::Contributor), app.now(), None));

    let key = caller(&app, &second.access, None).await.unwrap().caller.key_id;
    app.write(async |tx| keys::touch(tx, key).await).await;
    assert_eq!(grants_of(&t).await[0].last_used_at, Some(app.now()));

    let revoke = async |user: i64, id: i64| app.write(async |tx| grants::revoke(tx, user, id).await).await;
    assert!(!revoke(other.user, oldest.id).await, "it is the grant of another user");
    assert!(revoke(t.user, oldest.id).await && !revoke(t.user, oldest.id).await);
    assert!(caller(&app, &first.access, None).await.is_none());
    assert_error(&refresh(&app, &client, &first.refresh).await, "invalid_grant");
    assert_eq!(grants_of(&t).await.len(), 1);
    assert!(caller(&app, &second.access, None).await.is_some());
}

async fn grants_are_not_listed_as_keys(app: TestApp) {
    let t = app.tenant("pro").await;
    connect(&t, Allowed::default()).await;
    let id = grants_of(&t).await[0].id;
    let listed = keys::list(&mut app.conn().await, Some(t.user)).await.unwrap();
    assert_eq!(listed.len(), 1, "the tenant's own key");
    assert!(!app.write(async |tx| keys::delete_of(tx, t.user, id).await).await);
    assert!(!app.write(async |tx| sessions::revoke(tx, t.user, id).await).await);
    let key = listed[0].id;
    assert!(!app.write(async |tx| grants::revoke(tx, t.user, key).await).await, "a key is no grant");
    assert_eq!(count_grants(&app).await, 1);
}

async fn deleting_the_user_ends_grants(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let email = app.email(t.user).await;
    assert!(app.write(async |tx| users::delete(tx, &email).await).await);
    assert!(caller(&app, &tokens.access, None).await.is_none());
    assert_error(&send(&app, TOKEN, &exchange_of(&app, &client, &code)).await, "invalid_grant");
    for table in ["oauth_grants", "oauth_tokens", "oauth_codes"] {
        assert_eq!(app.count_rows(table).await, 0, "{table}");
    }
}

/// Whoever used another session may have connected an application with it.
async fn signing_out_everywhere_ends_grants(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let other = app.tenant("pro").await;
    let (_, kept) = connect(&other, Allowed::default()).await;
    app.write(async |tx| sessions::revoke_others(tx, t.user, 0).await).await;
    assert!(caller(&app, &tokens.access, None).await.is_none());
    assert_error(&send(&app, TOKEN, &exchange_of(&app, &client, &code)).await, "invalid_grant");
    assert!(caller(&app, &kept.access, None).await.is_some());
    t.get("/brands").await.expect(200);
}

async fn a_code_that_is_deleted_during_its_exchange_gets_no_tokens(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let mut tx = app.begin().await.unwrap();
    let found = codes::find_and_lock(&mut tx, &code).await.unwrap().unwrap();
    grants::revoke_all(&mut tx, t.user).await.unwrap();
    assert!(codes::redeem(&mut tx, &found).await.unwrap().is_none());
    tx.rollback().await.unwrap();
}

/// The sign-out sees the grant of a code that was being exchanged when it began.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signing_out_everywhere_waits_for_an_exchange() {
    // On SQLite, every transaction that writes waits for the previous one.
    let app = TestApp::start(TestStore::postgres().await).await;
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let code = allow(&t, &client, Allowed::default()).await;
    let mut tx = app.begin().await.unwrap();
    let found = codes::find_and_lock(&mut tx, &code).await.unwrap().unwrap();
    let exchange = async {
        app.until_blocked(1).await;
        assert!(codes::redeem(&mut tx, &found).await.unwrap().is_some());
        tx.commit().await.unwrap();
    };
    let user = t.user;
    let sign_out = app.write(async |tx| sessions::revoke_others(tx, user, 0).await);
    tokio::join!(exchange, sign_out);
    assert_eq!((count_grants(&app).await, app.count_rows("oauth_codes").await), (0, 0));
}

/// An application that refreshes all the time cannot make the disconnection fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn disconnecting_waits_for_a_refresh() {
    let app = TestApp::start(TestStore::postgres().await).await;
    let t = app.tenant("pro").await;
    let (_, issued) = connect(&t, Allowed::default()).await;
    let grant = grants_of(&t).await[0].id;
    let mut tx = app.begin().await.unwrap();
    let found = tokens::find_and_lock(&mut tx, &issued.refresh).await.unwrap().unwrap();
    let refreshed = async {
        app.until_blocked(1).await;
        tokens::refresh(&mut tx, &found, None).await.unwrap();
        tx.commit().await.unwrap();
    };
    let user = t.user;
    let disconnect = app.write(async |tx| grants::revoke(tx, user, grant).await);
    let ((), was_revoked) = tokio::join!(refreshed, disconnect);
    assert!(was_revoked);
    assert_eq!((count_grants(&app).await, app.count_rows("oauth_tokens").await), (0, 0));
}

/// An application that revokes its access while another of its processes refreshes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn revoking_waits_for_a_refresh() {
    let app = TestApp::start(TestStore::postgres().await).await;
    let t = app.tenant("pro").await;
    let (client, issued) = connect(&t, Allowed::default()).await;
    let mut tx = app.begin().await.unwrap();
    let found = tokens::find_and_lock(&mut tx, &issued.refresh).await.unwrap().unwrap();
    let refreshed = async {
        app.until_blocked(1).await;
        tokens::refresh(&mut tx, &found, None).await.unwrap();
        tx.commit().await.unwrap();
    };
    let revoked = app.write(async |tx| tokens::revoke(tx, &issued.refresh, &client).await);
    let ((), is_revoked) = tokio::join!(refreshed, revoked);
    assert!(is_revoked);
    assert_eq!((count_grants(&app).await, app.count_rows("oauth_tokens").await), (0, 0));
}

async fn a_removed_member_loses_the_brand(app: TestApp) {
    let owner = app.tenant("pro").await;
    let colleague = owner.colleague(Role::Editor).await;
    let brands = [owner.brand];
    let (_, tokens) = connect(&colleague, Allowed { brands: Some(&brands), role_limit: None }).await;
    let role = async || caller(&app, &tokens.access, Some(owner.brand)).await.unwrap().membership.map(|(_, role)| role);
    assert_eq!(role().await, Some(Role::Editor));
    let user = colleague.user;
    assert!(app.write(async |tx| crier_store::brands::remove_member(tx, owner.brand, user).await).await);
    assert_eq!(role().await, None);
    // Nor does the list show the name that the brand gets later.
    assert_eq!(grants_of(&colleague).await[0].brands, Some(Vec::new()));
    app.write(async |tx| crier_store::brands::set_member(tx, owner.brand, user, Role::Editor).await).await;
    assert_eq!(role().await, None, "the user allows it again or not");
}

async fn the_least_recently_used_grant_makes_room(app: TestApp) {
    let t = app.tenant("pro").await;
    let client = register(&app, REDIRECT).await;
    let connect_again = async || {
        let code = allow(&t, &client, Allowed::default()).await;
        Tokens::of(&send(&app, TOKEN, &exchange_of(&app, &client, &code)).await)
    };
    let (first, second) = (connect_again().await, connect_again().await);
    for _ in 2..MAX_GRANTS {
        connect_again().await;
    }
    assert_eq!(grants_of(&t).await.len(), MAX_GRANTS);
    app.advance(1);
    let key = caller(&app, &first.access, None).await.unwrap().caller.key_id;
    app.write(async |tx| keys::touch(tx, key).await).await;
    let newest = connect_again().await;
    assert_eq!(grants_of(&t).await.len(), MAX_GRANTS);
    assert!(caller(&app, &first.access, None).await.is_some() && caller(&app, &newest.access, None).await.is_some());
    assert!(caller(&app, &second.access, None).await.is_none());
}

async fn expired_rows_are_deleted(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, tokens) = connect(&t, Allowed::default()).await;
    register(&app, REDIRECT).await;
    let purge = async || app.write(async |tx| oauth::purge(tx, 100).await).await;
    let counts = async || {
        let mut all = Vec::new();
        for table in ["oauth_clients", "oauth_codes", "oauth_grants", "oauth_tokens"] {
            all.push(app.count_rows(table).await);
        }
        all
    };
    assert_eq!((purge().await, counts().await), (0, vec![2, 1, 1, 2]));
    app.advance(3_600);
    assert_eq!((purge().await, counts().await), (1, vec![2, 1, 1, 1]));
    // The unused registration, and the code a day after it expired.
    app.advance(86_400);
    assert_eq!((purge().await, counts().await), (2, vec![1, 0, 1, 1]));
    Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    app.advance(grants::LIFETIME.num_seconds());
    purge().await;
    assert_eq!(counts().await, vec![1, 0, 0, 0]);
    assert_eq!(app.count_rows("api_keys").await, 1, "the tenant's own key");
    app.advance((clients::LIFETIME - grants::LIFETIME).num_seconds());
    assert_eq!((purge().await, counts().await), (1, vec![0, 0, 0, 0]));
}

/// A user who allows applications all the time does not fill the database. A used code stays, to detect a second use.
async fn unused_codes_are_deleted_when_they_expire(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, _) = connect(&t, Allowed::default()).await;
    for _ in 0..3 {
        allow(&t, &client, Allowed::default()).await;
    }
    let purge = async || app.write(async |tx| codes::purge(tx, 100).await).await;
    assert_eq!(purge().await, 0);
    app.advance(codes::LIFETIME.num_seconds());
    assert_eq!((purge().await, app.count_rows("oauth_codes WHERE grant_id IS NOT NULL").await), (3, 1));
    app.advance(86_400);
    assert_eq!((purge().await, app.count_rows("oauth_codes").await), (1, 0));
}

/// A client that refreshes all the time does not fill the database.
async fn old_tokens_of_a_grant_are_deleted(app: TestApp) {
    let t = app.tenant("pro").await;
    let (client, mut tokens) = connect(&t, Allowed::default()).await;
    for _ in 0..60 {
        app.advance(6);
        tokens = Tokens::of(&refresh(&app, &client, &tokens.refresh).await);
    }
    assert_eq!(app.count_rows("oauth_tokens WHERE kind = 'access'").await, 50);
    assert_eq!(app.count_rows("oauth_tokens WHERE kind = 'refresh'").await, 1);
    assert!(caller(&app, &tokens.access, None).await.is_some());
}
