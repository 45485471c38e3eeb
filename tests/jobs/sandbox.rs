//! The built-in sandbox platform: the keywords that select a behavior, and the ownership of handles.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use crier_domain::account::AccountStatus;
use crier_domain::failure::Category;
use crier_domain::post::{PublishedPart, TargetStatus};
use crier_platforms::sandbox::Sandbox;
use crier_platforms::{
    CallError, ConnectError, Connected, Connector, ConnectorAccount, Marker, OutgoingPost, Published, ReconcileResult,
    ReplyKind, ReplyTo, Secrets, UnpublishPost,
};
use crier_store::accounts::NewAccount;
use crier_store::sandbox;
use futures::future::join;
use secrecy::SecretString;
use serde_json::json;

use crate::support::images;
use crate::support::jobs::TestWorker;
use crate::support::store::{TestStore, on_both};
use crate::support::videos::{VideoSpec, mp4};

on_both!(
    a_published_post_is_on_the_timeline,
    the_fail_keyword_is_final,
    the_flaky_keyword_fails_twice_a_second_apart,
    the_slow_keyword_delays_the_response,
    the_expire_keyword_expires_until_reconnect,
    the_limit_keyword_pauses_the_account_for_five_seconds,
    a_handle_belongs_to_its_first_workspace,
    invalid_handles_are_rejected,
);
on_both!(TestWorker::with_sandbox =>
    publishing_the_same_key_twice_creates_one_post,
    a_post_is_found_by_its_key,
    images_are_referenced_by_path,
    videos_and_images_are_on_the_timeline,
    the_slow_video_keyword_waits_a_second,
    a_video_is_published_only_after_it_was_received,
    parts_and_comments_are_under_their_post,
    keywords_apply_to_each_part,
    a_reply_to_a_missing_post_is_not_published,
    unpublishing_removes_a_post_from_the_page,
    only_posts_of_the_own_handle_are_unpublished,
);

const HANDLE: &str = "demo";

pub fn connector(s: &TestStore) -> Sandbox {
    crier_runtime::sandbox::connector(&s.store, "https://crier.example").with_slow(Duration::ZERO)
}

fn handle(handle: &str) -> Secrets {
    Secrets::from_json(json!({ "handle": handle }).to_string()).unwrap()
}

/// Claims the handle as the API does when it saves a connected account. Returns whether the claim succeeded.
async fn claim(s: &TestStore, workspace: i64, connected: &Connected) -> bool {
    s.write(async |tx| sandbox::claim_handle(tx, workspace, &connected.external_id).await).await
}

/// Connects the handle as the API does.
async fn connect(w: &TestWorker) -> i64 {
    let connected = connector(&w.s).connect(w.world.workspace, &handle(HANDLE)).await.unwrap();
    assert!(claim(&w.s, w.world.workspace, &connected).await);
    let new = NewAccount {
        platform: w.account.platform,
        external_id: connected.external_id,
        name: connected.name,
        username: connected.username,
        profile_url: connected.profile_url,
        avatar_url: connected.avatar_url,
        kind: connected.kind,
        token_expires_at: connected.token_expires_at,
        renewal: None,
        limits: None,
        granted_scopes: None,
        application: None,
        secrets: SecretString::from(connected.secrets.expose_json()),
    };
    let account = w.store_account(w.world, &new).await;
    assert_eq!(account.id, w.account.id, "the handle's account is the worker's own");
    account.id
}

/// Creates a worker with the connected handle, and a post with this text.
async fn with_post(s: TestStore, text: &str) -> (TestWorker, i64) {
    let w = TestWorker::with_sandbox(s).await;
    connect(&w).await;
    let target = post(&w, text).await;
    (w, target)
}

async fn post(w: &TestWorker, text: &str) -> i64 {
    let (post, target) = w.publish_one().await;
    w.change_post(post, |p| p.content = text.to_owned()).await;
    target
}

async fn timeline(w: &TestWorker) -> Vec<String> {
    let posts = sandbox::timeline(&mut w.conn().await, HANDLE, None, 10).await.unwrap().unwrap();
    posts.into_iter().map(|post| post.content).collect()
}

async fn a_published_post_is_on_the_timeline(s: TestStore) {
    let (w, target) = with_post(s, "hello").await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    let id = ended.external_id.unwrap();
    assert_eq!(ended.url, Some(format!("https://crier.example/sandbox/demo?from={id}#post-{id}")));
    assert_eq!(timeline(&w).await, ["hello"]);
}

async fn the_fail_keyword_is_final(s: TestStore) {
    let (w, target) = with_post(s, "this will [fail]").await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts), (TargetStatus::Failed, 1));
    assert_eq!(ended.error.unwrap().category, Category::PlatformRejected);
    assert_eq!(timeline(&w).await, Vec::<String>::new());
}

async fn the_flaky_keyword_fails_twice_a_second_apart(s: TestStore) {
    let (w, target) = with_post(s, "[flaky]").await;
    let started_at = w.clock.now();
    for failures in 1..=2 {
        w.run_jobs().await;
        let waiting = w.target(target).await;
        assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, failures));
        assert_eq!(waiting.next_attempt_at, Some(w.later(1)));
        w.advance(1);
    }
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts), (TargetStatus::Published, 3));
    assert_eq!(ended.published_at, Some(started_at + TimeDelta::seconds(2)));
    assert!(ended.error.is_none());
    assert_eq!(w.count_rows("paused_lanes").await, 0, "this is not a rate limit");
}

async fn the_slow_keyword_delays_the_response(s: TestStore) {
    let (w, target) = with_post(s, "[slow]").await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
    // The delay is short here, but never shorter than configured.
    let slow = Duration::from_millis(20);
    let sandbox = crier_runtime::sandbox::connector(&w.store, "https://crier.example").with_slow(slow);
    let started_at = Instant::now();
    sandbox.publish(&account(&w), &outgoing("[slow]", "slow")).await.unwrap();
    assert!(started_at.elapsed() >= slow);
    assert_eq!(timeline(&w).await.len(), 2);
}

async fn the_expire_keyword_expires_until_reconnect(s: TestStore) {
    let (w, target) = with_post(s, "[expire]").await;
    w.run_jobs().await;
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.error.unwrap().code.as_str()), (TargetStatus::Failed, "account_expired"));
    assert_eq!(w.account_status().await, AccountStatus::Expired);
    assert!(connector(&w.s).refresh(&account(&w)).await.is_err(), "a refresh does not fix it");
    connect(&w).await;
    assert_eq!(w.account_status().await, AccountStatus::Active);
    assert!(connector(&w.s).refresh(&account(&w)).await.is_ok());
    let target = post(&w, "here again").await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.status, TargetStatus::Published);
}

async fn the_limit_keyword_pauses_the_account_for_five_seconds(s: TestStore) {
    let (w, target) = with_post(s, "[limit]").await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.next_attempt_at), (TargetStatus::Publishing, Some(w.later(5))));
    assert_eq!(waiting.error.unwrap().category, Category::RateLimited);
    let other = post(&w, "after you").await;
    w.advance(4);
    w.run_jobs().await;
    assert_eq!(w.target(other).await.status, TargetStatus::Pending);
    w.advance(1);
    w.run_jobs().await;
    assert_eq!(w.target(other).await.status, TargetStatus::Published);
    let ended = w.target(target).await;
    assert_eq!((ended.status, ended.attempts), (TargetStatus::Published, 2));
}

async fn a_handle_belongs_to_its_first_workspace(s: TestStore) {
    let (first, second) = (s.workspace().await, s.workspace().await);
    let sandbox = connector(&s);
    let connected = sandbox.connect(first, &handle("bakery")).await.unwrap();
    assert_eq!(connected.external_id, "bakery");
    // Connecting claims no handle, because the connection may still be rejected.
    assert_eq!(s.count_rows("sandbox_handles").await, 0);
    let late = sandbox.connect(second, &handle("bakery")).await.unwrap();
    assert!(claim(&s, first, &connected).await);
    assert!(!claim(&s, second, &late).await, "the first workspace has claimed the handle");
    let rejected = sandbox.connect(second, &handle("bakery")).await.unwrap_err();
    assert!(matches!(rejected, ConnectError::Rejected(_)), "{rejected}");
    sandbox.connect(first, &handle("bakery")).await.unwrap();
    // An account of another workspace cannot post under the handle either.
    let intruder = ConnectorAccount {
        id: 1,
        workspace_id: second,
        external_id: "bakery".to_owned(),
        username: None,
        secrets: handle("bakery"),
    };
    let rejected = sandbox.publish(&intruder, &outgoing("mine now", "k")).await;
    assert!(matches!(rejected, Err(CallError::Reauth(_))), "{rejected:?}");
    assert!(crier_store::sandbox::timeline(&mut s.conn().await, "bakery", None, 1).await.unwrap().unwrap().is_empty());
}

async fn invalid_handles_are_rejected(s: TestStore) {
    let workspace = s.workspace().await;
    for bad in ["", "Demo", "a b", "ä", "a/b", &"a".repeat(33)] {
        let rejected = connector(&s).connect(workspace, &handle(bad)).await.unwrap_err();
        assert!(matches!(rejected, ConnectError::Field { field: "handle", .. }), "{bad}: {rejected}");
    }
    for good in ["a", "a-b_9", &"z".repeat(32)] {
        connector(&s).connect(workspace, &handle(good)).await.unwrap();
    }
}

pub fn account(w: &TestWorker) -> ConnectorAccount {
    ConnectorAccount {
        id: w.account.id,
        workspace_id: w.world.workspace,
        external_id: HANDLE.to_owned(),
        username: None,
        secrets: handle(HANDLE),
    }
}

fn outgoing(text: &str, key: &str) -> OutgoingPost {
    OutgoingPost {
        target_id: 1,
        reply_to: None,
        text: text.to_owned(),
        images: Vec::new(),
        videos: Vec::new(),
        card: None,
        options: serde_json::Map::new(),
        marker: Marker::from_iter([("key".to_owned(), json!(key))]),
        attempt: 1,
        has_earlier_attempt: false,
        called_at: None,
    }
}

async fn publishing_the_same_key_twice_creates_one_post(w: TestWorker) {
    connect(&w).await;
    let sandbox = connector(&w.s);
    let (account, hello) = (account(&w), outgoing("hello", "k"));
    let (first, concurrent) = join(sandbox.publish(&account, &hello), sandbox.publish(&account, &hello)).await;
    let first = first.unwrap();
    assert_eq!(first, concurrent.unwrap());
    assert_eq!(first, sandbox.publish(&account, &hello).await.unwrap());
    assert_ne!(first, sandbox.publish(&account, &outgoing("hello", "other")).await.unwrap());
    assert_eq!(timeline(&w).await.len(), 2);
}

async fn a_post_is_found_by_its_key(w: TestWorker) {
    connect(&w).await;
    let sandbox = connector(&w.s);
    assert_eq!(sandbox.reconcile(&account(&w), &outgoing("", "k")).await.unwrap(), ReconcileResult::Absent);
    let published = sandbox.publish(&account(&w), &outgoing("hello", "k")).await.unwrap();
    assert_eq!(sandbox.reconcile(&account(&w), &outgoing("", "k")).await.unwrap(), ReconcileResult::Found(published));
}

async fn images_are_referenced_by_path(w: TestWorker) {
    let account = connect(&w).await;
    let (one, two) = (
        w.image("one.png", images::png(20, 20), Some("A door")).await,
        w.image("two.gif", images::gif(20, 30), None).await,
    );
    w.publish_images(account, &[two, one]).await;
    w.run_jobs().await;
    let shown = sandbox::timeline(&mut w.conn().await, HANDLE, None, 10).await.unwrap().unwrap().remove(0).media;
    assert!(shown.iter().all(|image| image.url.starts_with("/media/")), "{shown:?}");
    assert_eq!((shown[0].alt.as_str(), shown[1].alt.as_str()), ("", "A door"));
    assert!(shown[0].url.ends_with(".gif") && shown[1].url.ends_with(".png"), "{shown:?}");
}

async fn videos_and_images_are_on_the_timeline(w: TestWorker) {
    let account = connect(&w).await;
    let video = w.video("loaf.mp4", mp4(VideoSpec::default()), Some("A loaf")).await;
    let image = w.image("one.png", images::png(20, 20), Some("A door")).await;
    let (_, target) = w.publish_images(account, &[image, video]).await;
    w.set_options(target, json!({ "cover_media_id": image })).await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.attempts, 1);
    let shown = sandbox::timeline(&mut w.conn().await, HANDLE, None, 10).await.unwrap().unwrap().remove(0).media;
    let types: Vec<_> = shown.iter().map(|medium| (medium.is_video(), medium.alt.as_str())).collect();
    assert_eq!(types, [(false, "A door"), (true, "A loaf")]);
    assert!(shown[1].url.starts_with("/media/") && shown[1].url.ends_with(".mp4"), "{shown:?}");
    assert_eq!(shown[1].poster.as_ref(), Some(&shown[0].url));
}

async fn the_slow_video_keyword_waits_a_second(w: TestWorker) {
    let account = connect(&w).await;
    let video = w.video("loaf.mp4", mp4(VideoSpec::default()), None).await;
    let (post, target) = w.publish_images(account, &[video]).await;
    w.change_post(post, |p| p.content = "[slow-video]".to_owned()).await;
    w.run_jobs().await;
    let waiting = w.target(target).await;
    assert_eq!((waiting.status, waiting.attempts), (TargetStatus::Publishing, 0));
    assert_eq!(waiting.next_attempt_at, Some(w.later(1)));
    w.advance(1);
    w.run_jobs().await;
    assert_eq!(timeline(&w).await, ["[slow-video]"]);
    assert_eq!(w.target(target).await.attempts, 1);
}

async fn a_video_is_published_only_after_it_was_received(w: TestWorker) {
    let account = connect(&w).await;
    let video = w.video("loaf.mp4", mp4(VideoSpec::default()), None).await;
    let asset = crier_store::media::find(&mut w.conn().await, w.world.brand, video).await.unwrap().unwrap();
    w.media().storage().delete(&asset.key).await.unwrap();
    let (_, target) = w.publish_images(account, &[video]).await;
    w.run_jobs().await;
    assert_eq!(w.target(target).await.error.unwrap().code, "media_deleted");
    assert_eq!(timeline(&w).await, Vec::<String>::new());
}

fn part(post: &Published) -> PublishedPart {
    PublishedPart {
        external_id: post.external_id.clone(),
        url: post.url.clone(),
        published_at: "2026-03-01T12:00:00Z".parse().unwrap(),
        other_ids: Vec::new(),
        is_unpublished: false,
    }
}

/// Returns a part of a thread after `parent`, or a comment on it. Its text is also its key.
pub fn reply_to(kind: ReplyKind, root: &Published, parent: &Published, text: &str) -> OutgoingPost {
    let reply_to = Some(ReplyTo { kind, root: part(root), parent: part(parent) });
    OutgoingPost { reply_to, ..outgoing(text, text) }
}

fn to_delete(post: &Published) -> UnpublishPost {
    UnpublishPost {
        external_id: post.external_id.clone(),
        url: post.url.clone(),
        is_comment: false,
        other_ids: Vec::new(),
        published_at: "2026-03-01T12:00:00Z".parse().unwrap(),
        marker: None,
        options: serde_json::Map::new(),
    }
}

/// Returns the parts of threads and the first comments under a post.
async fn under(w: &TestWorker, post: &Published) -> Vec<(String, bool)> {
    let ids: [i64; 1] = [post.external_id.parse().unwrap()];
    let found = sandbox::replies(&mut w.conn().await, &ids, 100).await.unwrap();
    found.into_iter().map(|reply| (reply.content, reply.is_comment)).collect()
}

async fn parts_and_comments_are_under_their_post(w: TestWorker) {
    connect(&w).await;
    let (sandbox, account) = (connector(&w.s), account(&w));
    let first = sandbox.publish(&account, &outgoing("one", "one")).await.unwrap();
    let other = sandbox.publish(&account, &outgoing("other", "other")).await.unwrap();
    let two = reply_to(ReplyKind::ThreadPart, &first, &first, "two");
    let second = sandbox.publish(&account, &two).await.unwrap();
    let third = sandbox.publish(&account, &reply_to(ReplyKind::ThreadPart, &first, &second, "three")).await.unwrap();
    let comment = sandbox.publish(&account, &reply_to(ReplyKind::Comment, &first, &first, "comment")).await.unwrap();
    for reply in [&second, &third, &comment] {
        let url = format!("https://crier.example/sandbox/demo?from={}#post-{}", first.external_id, reply.external_id);
        assert_eq!(reply.url, Some(url));
    }
    assert_eq!(timeline(&w).await, ["other", "one"]);
    let shown = [("two", false), ("three", false), ("comment", true)].map(|(text, own)| (text.to_owned(), own));
    assert_eq!(under(&w, &first).await, shown);
    assert!(under(&w, &other).await.is_empty());
    assert_eq!(sandbox::count(&mut w.conn().await, HANDLE).await.unwrap(), 2, "only the posts");
    // A repeated call returns the first post, and a lookup finds it.
    assert_eq!(sandbox.publish(&account, &two).await.unwrap(), second);
    assert_eq!(sandbox.reconcile(&account, &two).await.unwrap(), ReconcileResult::Found(second));
    // Without a marker, a part could be confused with the others of its target.
    let unmarked = OutgoingPost { marker: Marker::new(), ..two };
    assert!(matches!(sandbox.publish(&account, &unmarked).await, Err(CallError::Transient(_))));
    assert!(sandbox.reconcile(&account, &unmarked).await.is_err());
}

async fn keywords_apply_to_each_part(w: TestWorker) {
    connect(&w).await;
    let (sandbox, account) = (connector(&w.s), account(&w));
    let first = sandbox.publish(&account, &outgoing("one", "one")).await.unwrap();
    for kind in [ReplyKind::ThreadPart, ReplyKind::Comment] {
        let publish = async |text: &str, attempt: u32| {
            let reply = reply_to(kind, &first, &first, &format!("{kind:?} {text}"));
            sandbox.publish(&account, &OutgoingPost { attempt, ..reply }).await
        };
        assert!(matches!(publish("[fail]", 1).await, Err(CallError::Permanent(_))));
        assert!(matches!(publish("[limit]", 1).await, Err(CallError::RateLimited { .. })));
        assert!(matches!(publish("[flaky]", 2).await, Err(CallError::RateLimited { .. })));
        publish("[limit]", 2).await.unwrap();
        publish("[flaky]", 3).await.unwrap();
    }
    assert_eq!(under(&w, &first).await.len(), 4);
    let expire = reply_to(ReplyKind::Comment, &first, &first, "[expire]");
    assert!(matches!(sandbox.publish(&account, &expire).await, Err(CallError::Reauth(_))));
    let next = reply_to(ReplyKind::ThreadPart, &first, &first, "next");
    assert!(matches!(sandbox.publish(&account, &next).await, Err(CallError::Reauth(_))));
}

async fn a_reply_to_a_missing_post_is_not_published(w: TestWorker) {
    connect(&w).await;
    let (sandbox, account) = (connector(&w.s), account(&w));
    let first = sandbox.publish(&account, &outgoing("one", "one")).await.unwrap();
    let unknown = Published::new("999", None);
    let elsewhere = ConnectorAccount { external_id: "other".to_owned(), ..account.clone() };
    w.write(async |tx| sandbox::claim_handle(tx, w.world.workspace, "other").await).await;
    let foreign = sandbox.publish(&elsewhere, &outgoing("foreign", "foreign")).await.unwrap();
    sandbox.unpublish(&account, &to_delete(&first)).await.unwrap();
    for parent in [first, unknown, foreign, Published::new("no id", None)] {
        for kind in [ReplyKind::ThreadPart, ReplyKind::Comment] {
            let result = sandbox.publish(&account, &reply_to(kind, &parent, &parent, "reply")).await;
            assert!(matches!(result, Err(CallError::ParentMissing(_))), "{result:?}");
        }
    }
    assert_eq!(w.count_rows("sandbox_posts").await, 1);
}

async fn unpublishing_removes_a_post_from_the_page(w: TestWorker) {
    connect(&w).await;
    let (sandbox, account) = (connector(&w.s), account(&w));
    let first = sandbox.publish(&account, &outgoing("one", "one")).await.unwrap();
    let second = sandbox.publish(&account, &reply_to(ReplyKind::ThreadPart, &first, &first, "two")).await.unwrap();
    let comment = sandbox.publish(&account, &reply_to(ReplyKind::Comment, &first, &first, "comment")).await.unwrap();
    let id: i64 = first.external_id.parse().unwrap();
    w.write(async |tx| sandbox::comment(tx, HANDLE, id, "Vera", "Tasty").await).await;
    sandbox.unpublish(&account, &UnpublishPost { is_comment: true, ..to_delete(&comment) }).await.unwrap();
    assert_eq!(under(&w, &first).await, [("two".to_owned(), false)]);
    for post in [&second, &first] {
        sandbox.unpublish(&account, &to_delete(post)).await.unwrap();
        sandbox.unpublish(&account, &to_delete(post)).await.unwrap();
    }
    assert_eq!(timeline(&w).await, Vec::<String>::new());
    assert_eq!((w.count_rows("sandbox_posts").await, w.count_rows("sandbox_comments").await), (0, 0));
    sandbox.unpublish(&account, &to_delete(&Published::new("no id", None))).await.unwrap();
}

async fn only_posts_of_the_own_handle_are_unpublished(w: TestWorker) {
    connect(&w).await;
    let (sandbox, own) = (connector(&w.s), account(&w));
    let post = sandbox.publish(&own, &outgoing("one", "one")).await.unwrap();
    let intruder = ConnectorAccount { workspace_id: w.s.workspace().await, ..own.clone() };
    let rejected = sandbox.unpublish(&intruder, &to_delete(&post)).await;
    assert!(matches!(rejected, Err(CallError::Reauth(_))), "{rejected:?}");
    w.write(async |tx| sandbox::claim_handle(tx, w.world.workspace, "other").await).await;
    let elsewhere = ConnectorAccount { external_id: "other".to_owned(), ..own.clone() };
    sandbox.unpublish(&elsewhere, &to_delete(&post)).await.unwrap();
    w.write(async |tx| sandbox::expire(tx, HANDLE).await).await;
    assert!(matches!(sandbox.unpublish(&own, &to_delete(&post)).await, Err(CallError::Reauth(_))));
    assert_eq!(timeline(&w).await, ["one"]);
}
