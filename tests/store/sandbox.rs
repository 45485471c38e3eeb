//! The data of the built-in sandbox platform.

use crier_store::sandbox::{self, CommentOutcome, MAX_COMMENTS};

use crate::support::store::{TestStore, on_both, publish_to_sandbox, run_concurrently};

on_both![
    a_handle_belongs_to_its_first_workspace,
    reconnecting_reactivates_an_expired_handle,
    a_repeated_publish_returns_the_first_post,
    only_a_valid_token_of_the_workspace_publishes,
    the_timeline_is_ordered_newest_first,
    comments_belong_to_posts_of_their_handle,
    the_timeline_is_paged_from_a_post,
    the_newest_comments_are_returned_and_all_are_counted,
    comments_per_post_are_limited,
];

async fn a_handle_belongs_to_its_first_workspace(s: TestStore) {
    let workspaces = [s.workspace().await, s.workspace().await];
    let results = run_concurrently(6, |n| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let is_claimed = sandbox::claim_handle(&mut tx, workspaces[n % 2], "demo").await.unwrap();
            tx.commit().await.unwrap();
            is_claimed
        }
    })
    .await;
    assert_ne!(results[0], results[1], "one of the two has it");
    assert!(
        results[0] == results[2] && results[2] == results[4] && results[1] == results[3] && results[3] == results[5]
    );
    let (owner, other) = if results[0] { (workspaces[0], workspaces[1]) } else { (workspaces[1], workspaces[0]) };
    let mut conn = s.conn().await;
    assert_eq!(sandbox::is_expired(&mut conn, owner, "demo").await.unwrap(), Some(false));
    assert_eq!(sandbox::is_expired(&mut conn, other, "demo").await.unwrap(), None);
    assert_eq!(sandbox::is_expired(&mut conn, owner, "nobody").await.unwrap(), None);
}

async fn reconnecting_reactivates_an_expired_handle(s: TestStore) {
    let (one, two) = (s.workspace().await, s.workspace().await);
    let claim = async |workspace| s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    assert!(claim(one).await);
    s.write(async |tx| sandbox::expire(tx, "demo").await).await;
    assert_eq!(sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(), Some(true));
    assert!(!claim(two).await);
    assert_eq!(
        sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(),
        Some(true),
        "another workspace cannot renew it"
    );
    assert!(claim(one).await);
    assert_eq!(sandbox::is_expired(&mut s.conn().await, one, "demo").await.unwrap(), Some(false));
}

async fn a_repeated_publish_returns_the_first_post(s: TestStore) {
    let workspace = s.workspace().await;
    s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    let publish = async |key: &str, content: &str| {
        let published = s.write(async |tx| publish_to_sandbox(tx, workspace, "demo", key, content, &[]).await).await;
        published.expect("the workspace has the handle")
    };
    let first = publish("k1", "one").await;
    assert_eq!(publish("k1", "other words").await, first);
    assert_ne!(publish("k2", "two").await, first);
    let found = sandbox::find_by_key(&mut s.conn().await, "k1").await.unwrap().unwrap();
    assert_eq!((found.id, found.handle.as_str(), found.content.as_str()), (first, "demo", "one"));
    assert_eq!(found.created_at, s.now());
    assert!(sandbox::find_by_key(&mut s.conn().await, "k3").await.unwrap().is_none());
}

async fn only_a_valid_token_of_the_workspace_publishes(s: TestStore) {
    let (one, two) = (s.workspace().await, s.workspace().await);
    s.write(async |tx| sandbox::claim_handle(tx, one, "demo").await).await;
    let publish =
        async |workspace| s.write(async |tx| publish_to_sandbox(tx, workspace, "demo", "k", "", &[]).await).await;
    assert_eq!(publish(two).await, None);
    assert!(publish(one).await.is_some());
    s.write(async |tx| sandbox::expire(tx, "demo").await).await;
    assert_eq!(publish(one).await, None);
    assert_eq!(s.number("SELECT count(*) FROM sandbox_posts").await, 1);
}

async fn the_timeline_is_ordered_newest_first(s: TestStore) {
    let workspace = s.workspace().await;
    for handle in ["demo", "empty"] {
        s.write(async |tx| sandbox::claim_handle(tx, workspace, handle).await).await;
    }
    for n in 0..3 {
        let (key, text) = (format!("k{n}"), format!("post {n}"));
        s.write(async |tx| publish_to_sandbox(tx, workspace, "demo", &key, &text, &[]).await).await;
    }
    let timeline = async |handle| {
        let found = sandbox::timeline(&mut s.conn().await, handle, None, 2).await.unwrap();
        found.map(|posts| posts.into_iter().map(|p| p.content).collect::<Vec<_>>())
    };
    assert_eq!(timeline("demo").await.unwrap(), ["post 2", "post 1"]);
    assert_eq!(timeline("empty").await.unwrap(), Vec::<String>::new());
    assert_eq!(timeline("nobody").await, None);
}

async fn comments_belong_to_posts_of_their_handle(s: TestStore) {
    let workspace = s.workspace().await;
    let mut posts = Vec::new();
    for handle in ["demo", "other"] {
        s.write(async |tx| sandbox::claim_handle(tx, workspace, handle).await).await;
        posts.extend(s.write(async |tx| publish_to_sandbox(tx, workspace, handle, handle, "hello", &[]).await).await);
    }
    let first = added_id(comment(&s, "demo", posts[0], "one").await);
    let second = added_id(comment(&s, "demo", posts[0], "two").await);
    added_id(comment(&s, "other", posts[1], "elsewhere").await);
    assert_eq!(comment(&s, "demo", posts[1], "not its post").await, CommentOutcome::NoSuchPost);
    assert_eq!(comment(&s, "demo", 999, "no post").await, CommentOutcome::NoSuchPost);
    let found = sandbox::comments(&mut s.conn().await, &posts[..1], 10).await.unwrap();
    assert_eq!(found.iter().map(|c| c.comment.id).collect::<Vec<_>>(), [first, second]);
    let one = &found[0].comment;
    assert_eq!((one.post_id, one.name.as_str(), one.body.as_str()), (posts[0], "Vera", "one"));
    assert_eq!(one.created_at, s.now());
}

async fn comment(s: &TestStore, handle: &str, post: i64, body: &str) -> CommentOutcome {
    s.write(async |tx| sandbox::comment(tx, handle, post, "Vera", body).await).await
}

#[track_caller]
fn added_id(commented: CommentOutcome) -> i64 {
    let CommentOutcome::Added(id) = commented else { panic!("{commented:?}") };
    id
}

async fn create_post(s: &TestStore, key: &str) -> i64 {
    let workspace = s.number("SELECT workspace_id FROM sandbox_handles WHERE handle = 'demo'").await;
    let published = s.write(async |tx| publish_to_sandbox(tx, workspace, "demo", key, key, &[]).await).await;
    published.expect("the workspace has the handle")
}

async fn the_timeline_is_paged_from_a_post(s: TestStore) {
    let workspace = s.workspace().await;
    s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    let mut posts = Vec::new();
    for n in 0..5 {
        posts.push(create_post(&s, &format!("k{n}")).await);
    }
    posts.reverse();
    let page = async |from| {
        let found = sandbox::timeline(&mut s.conn().await, "demo", from, 3).await.unwrap().unwrap();
        found.into_iter().map(|post| post.id).collect::<Vec<_>>()
    };
    assert_eq!(page(None).await, posts[..3]);
    assert_eq!(page(Some(posts[2])).await, posts[2..]);
    assert_eq!(page(Some(i64::MAX)).await, posts[..3]);
    assert_eq!(page(Some(posts[4] - 1)).await, Vec::<i64>::new());
}

async fn the_newest_comments_are_returned_and_all_are_counted(s: TestStore) {
    let workspace = s.workspace().await;
    s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    let posts = [create_post(&s, "k1").await, create_post(&s, "k2").await, create_post(&s, "k3").await];
    for n in 0..5 {
        added_id(comment(&s, "demo", posts[n % 2], &n.to_string()).await);
    }
    let found = sandbox::comments(&mut s.conn().await, &posts, 2).await.unwrap();
    let shown: Vec<_> = found.iter().map(|c| (c.comment.post_id, c.comment.body.as_str(), c.total)).collect();
    assert_eq!(shown, [(posts[1], "1", 2), (posts[0], "2", 3), (posts[1], "3", 2), (posts[0], "4", 3)]);
    assert!(sandbox::comments(&mut s.conn().await, &[], 2).await.unwrap().is_empty());
}

async fn comments_per_post_are_limited(s: TestStore) {
    let workspace = s.workspace().await;
    s.write(async |tx| sandbox::claim_handle(tx, workspace, "demo").await).await;
    let (full, other) = (create_post(&s, "k1").await, create_post(&s, "k2").await);
    for n in 2..MAX_COMMENTS {
        added_id(comment(&s, "demo", full, &n.to_string()).await);
    }
    let results = run_concurrently(6, |_| {
        let store = s.store.clone();
        async move {
            let mut tx = store.begin().await.unwrap();
            let result = sandbox::comment(&mut tx, "demo", full, "Vera", "at once").await.unwrap();
            tx.commit().await.unwrap();
            result
        }
    })
    .await;
    assert_eq!(results.iter().filter(|result| matches!(result, CommentOutcome::Added(_))).count(), 2, "{results:?}");
    assert!(results.iter().all(|result| *result != CommentOutcome::NoSuchPost));
    assert_eq!(comment(&s, "demo", full, "late").await, CommentOutcome::Full);
    added_id(comment(&s, "demo", other, "elsewhere").await);
}
