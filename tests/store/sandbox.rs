//! What the platform inside Crier keeps.

use crier_common::store::sandbox;

use crate::support::store::{TestStore, at_once, on_both};

on_both![
    a_handle_is_of_the_workspace_that_came_first,
    an_expired_handle_is_mended_by_connecting_again,
    a_repeated_publish_finds_the_first_ones_post,
    a_timeline_is_newest_first,
    comments_stand_under_posts_of_their_handle,
];

async fn a_handle_is_of_the_workspace_that_came_first(s: TestStore) {
    let workspaces = [s.workspace().await, s.workspace().await];
    let got = at_once(6, |n| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let got = sandbox::claim_handle(&mut tx, workspaces[n % 2], "demo").await.unwrap();
            tx.commit().await.unwrap();
            got
        }
    })
    .await;
    assert_ne!(got[0], got[1], "one of the two has it");
    assert!(got[0] == got[2] && got[2] == got[4] && got[1] == got[3] && got[3] == got[5]);
    let (owner, other) = if got[0] { (workspaces[0], workspaces[1]) } else { (workspaces[1], workspaces[0]) };
    let mut conn = s.conn().await;
    assert_eq!(sandbox::is_expired(&mut conn, owner, "demo").await.unwrap(), Some(false));
    assert_eq!(sandbox::is_expired(&mut conn, other, "demo").await.unwrap(), None);
    assert_eq!(sandbox::is_expired(&mut conn, owner, "nobody").await.unwrap(), None);
}

async fn an_expired_handle_is_mended_by_connecting_again(s: TestStore) {
    let (one, two) = (s.workspace().await, s.workspace().await);
    let claim = async |workspace| s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    assert!(claim(one).await);
    s.write(async |tx| sandbox::expire(tx, "demo").await).await;
    assert_eq!(sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(), Some(true));
    assert!(!claim(two).await);
    assert_eq!(sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(), Some(true), "others mend nothing");
    assert!(claim(one).await);
    assert_eq!(sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(), Some(false));
}

async fn a_repeated_publish_finds_the_first_ones_post(s: TestStore) {
    let workspace = s.workspace().await;
    s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    let publish = async |key: &str, content: &str| {
        s.write(async |tx| sandbox::publish(tx, "demo", key, content, &[]).await).await
    };
    let first = publish("k1", "one").await;
    assert_eq!(publish("k1", "other words").await, first);
    assert_ne!(publish("k2", "two").await, first);
    let found = sandbox::find_by_key(&mut s.conn().await, "k1").await.unwrap().unwrap();
    assert_eq!((found.id, found.handle.as_str(), found.content.as_str()), (first, "demo", "one"));
    assert_eq!(found.created_at, s.now());
    assert!(sandbox::find_by_key(&mut s.conn().await, "k3").await.unwrap().is_none());
}

async fn a_timeline_is_newest_first(s: TestStore) {
    let workspace = s.workspace().await;
    for handle in ["demo", "empty"] {
        s.write(async |tx| sandbox::claim_handle(tx, workspace, handle).await).await;
    }
    for n in 0..3 {
        s.write(async |tx| sandbox::publish(tx, "demo", &format!("k{n}"), &format!("post {n}"), &[]).await).await;
    }
    let timeline = async |handle| {
        let found = sandbox::timeline(&mut s.conn().await, handle, 2).await.unwrap();
        found.map(|posts| posts.into_iter().map(|p| p.content).collect::<Vec<_>>())
    };
    assert_eq!(timeline("demo").await.unwrap(), ["post 2", "post 1"]);
    assert_eq!(timeline("empty").await.unwrap(), Vec::<String>::new());
    assert_eq!(timeline("nobody").await, None);
}

async fn comments_stand_under_posts_of_their_handle(s: TestStore) {
    let workspace = s.workspace().await;
    let mut posts = Vec::new();
    for handle in ["demo", "other"] {
        s.write(async |tx| sandbox::claim_handle(tx, workspace, handle).await).await;
        posts.push(s.write(async |tx| sandbox::publish(tx, handle, handle, "hello", &[]).await).await);
    }
    let comment =
        async |handle, post, body| s.write(async |tx| sandbox::comment(tx, handle, post, "Vera", body).await).await;
    let first = comment("demo", posts[0], "one").await.unwrap();
    let second = comment("demo", posts[0], "two").await.unwrap();
    assert!(comment("other", posts[1], "elsewhere").await.is_some());
    assert_eq!(comment("demo", posts[1], "not its post").await, None);
    assert_eq!(comment("demo", 999, "no post").await, None);
    let found = sandbox::comments(&mut s.conn().await, "demo", 10).await.unwrap();
    assert_eq!(found.iter().map(|c| c.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!((found[0].post_id, found[0].name.as_str(), found[0].body.as_str()), (posts[0], "Vera", "one"));
    assert_eq!(found[0].created_at, s.now());
}
