//! Threads with a first comment, with the real connectors of a platform that publishes them in one call per part
//! (Mastodon) and of one that publishes them in one call (Bluesky). At each call, the worker is killed or the connection
//! breaks, before the call takes effect or after it. Invariant: each part and the comment exist exactly once, and reply
//! to the right posts.

use std::sync::Arc;

use chrono::SecondsFormat;
use crier_domain::platform::Platform;
use crier_domain::post::{FirstComment, FirstCommentStatus, PostStatus, ThreadPart};
use crier_store::accounts::NewAccount;
use crier_store::post_media;
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use wiremock::{MockServer, Request, Respond as _};

use crate::support::bluesky::{ACCESS, BlueskyRepo, DID, post_uri};
use crate::support::call_faults::{CallFault, CallFaults};
use crate::support::images;
use crate::support::jobs::TestWorker;
use crate::support::mastodon::{Mastodon, Switches};
use crate::support::store::{TestStore, new_account, on_both};

on_both!(mastodon =>
    a_thread_on_mastodon_is_published_by_these_calls,
    a_kill_at_any_call_to_mastodon_publishes_each_part_once,
    a_broken_connection_at_any_call_to_mastodon_publishes_each_part_once,
);
on_both!(mastodon_without_keys =>
    a_kill_at_any_call_to_a_server_that_ignores_keys_publishes_each_part_once,
    a_broken_connection_at_any_call_to_a_server_that_ignores_keys_publishes_each_part_once,
);
on_both!(bluesky =>
    a_thread_on_bluesky_is_published_by_these_calls,
    a_kill_at_any_call_to_bluesky_publishes_each_part_once,
    a_broken_connection_at_any_call_to_bluesky_publishes_each_part_once,
);

const TOKEN: &str = "access-of-ann";

/// The calls for a thread of three parts, of which the second has an image, and its first comment. A reply is as visible
/// as its parent, which is read first.
const MASTODON_CALLS: [&str; 8] = [
    "POST statuses",
    "POST media",
    "GET 1000",
    "POST statuses",
    "GET 1001",
    "POST statuses",
    "GET 1000",
    "POST statuses",
];
const BLUESKY_CALLS: [&str; 4] = [
    "POST com.atproto.repo.uploadBlob",
    "POST com.atproto.repo.applyWrites",
    "GET com.atproto.repo.getRecord",
    "POST com.atproto.repo.putRecord",
];

/// A post on the platform.
struct Posted {
    id: String,
    text: String,
    /// The id of the post that it replies to.
    parent: Option<String>,
}

struct Started {
    w: TestWorker,
    faults: Arc<CallFaults>,
    account: i64,
    image: i64,
    posts: Box<dyn Fn() -> Vec<Posted>>,
    _server: MockServer,
}

/// A thread that was created: its ids, and the texts of its three parts and of the comment.
struct Thread {
    post: i64,
    target: i64,
    texts: [String; 4],
}

async fn start_mastodon(s: TestStore, switches: Switches) -> Started {
    let (fake, clock) = (Mastodon::start("2026-01-01T00:00:00Z").await.fake, s.clock.clone());
    fake.oauth.add_token(TOKEN);
    fake.set(switches);
    let server = fake.clone();
    let respond = move |request: &Request| {
        server.set_now(&clock.now().to_rfc3339_opts(SecondsFormat::Millis, true));
        server.respond(request)
    };
    let posts = move || -> Vec<Posted> {
        let posted = fake.toots().into_iter().map(|toot| Posted {
            parent: toot.body["in_reply_to_id"].as_str().map(str::to_owned),
            id: toot.id,
            text: toot.text,
        });
        posted.collect()
    };
    let running = CallFaults::start(respond).await;
    let secrets = json!({
        "instance": running.1.uri(), "access_token": TOKEN, "account_id": "23634", "client_id": "app-1",
        "client_secret": "shh-1",
    });
    start(s, running, (Platform::Mastodon, "ann@example.social", secrets), Box::new(posts)).await
}

async fn mastodon(s: TestStore) -> Started {
    start_mastodon(s, Switches::default()).await
}

/// Starts a compatible server, on which a repeated call publishes again: only a search finds an earlier post.
async fn mastodon_without_keys(s: TestStore) -> Started {
    start_mastodon(s, Switches { forgets_keys: true, ..Switches::default() }).await
}

async fn bluesky(s: TestStore) -> Started {
    let repo = BlueskyRepo::default();
    let running = CallFaults::start(repo.clone()).await;
    let posts = move || -> Vec<Posted> {
        let posted = repo.records().into_iter().map(|(key, record)| Posted {
            id: post_uri(&key),
            text: record["text"].as_str().unwrap().to_owned(),
            parent: record["reply"]["parent"]["uri"].as_str().map(str::to_owned),
        });
        posted.collect()
    };
    let secrets = json!({
        "identifier": "alice.example", "app_password": "abcd-efgh", "service": "", "access_jwt": ACCESS,
        "refresh_jwt": "refresh",
    });
    start(s, running, (Platform::Bluesky, DID, secrets), Box::new(posts)).await
}

async fn start(
    s: TestStore,
    (faults, server): (Arc<CallFaults>, MockServer),
    (platform, external_id, secrets): (Platform, &str, Value),
    posts: Box<dyn Fn() -> Vec<Posted>>,
) -> Started {
    let w = TestWorker::with_base_url(s, platform, &server.uri()).await;
    let secrets = SecretString::from(secrets.to_string());
    let new = NewAccount { platform, secrets, ..new_account(external_id, "") };
    let account = w.store_account(w.world, &new).await.id;
    let image = w.image("one.png", images::png(40, 40), Some("A loaf")).await;
    Started { w, faults, account, image, posts, _server: server }
}

impl Started {
    /// Creates a post to publish, with two more parts and a first comment.
    async fn create(&self) -> Thread {
        let (post, created) = self.w.publish(&[self.account]).await;
        let texts = ["one", "two", "three", "comment"].map(|part| format!("Post {post}, {part}"));
        let part = |text: &String, media: &[i64]| ThreadPart { content: text.clone(), media: media.to_vec() };
        let images = [self.image];
        self.w
            .change_post(post, |p| {
                p.content = texts[0].clone();
                p.thread = vec![part(&texts[1], &images), part(&texts[2], &[])];
                p.first_comment = Some(FirstComment { content: texts[3].clone(), delay_seconds: 0 });
            })
            .await;
        self.w.write(async |tx| post_media::set(tx, self.w.world.brand, post, &images).await).await;
        Thread { post, target: created[0], texts }
    }

    /// Runs jobs on a worker that is killed when a call hangs.
    async fn kill_when_a_call_hangs(&self) {
        let doomed = self.w.killable_worker().await;
        let jobs = async {
            for _ in 0..1_000 {
                self.w.scheduler.tick().await.unwrap();
                // The notifications of the other worker do not reach this one.
                let next = "SELECT coalesce(min(id), 0) FROM jobs WHERE state = 'ready' AND NOT waiting";
                let (job, engine) = (self.w.number(next).await, doomed.engine.clone());
                let (sender, ended) = oneshot::channel();
                doomed.spawn(async move { sender.send(engine.run(job).await) });
                ended.await.unwrap();
                self.w.wait_for_successors(&doomed.engine, &[]).await;
            }
        };
        tokio::select! {
            () = self.faults.hangs.wait_for(1) => {}
            () = jobs => panic!("no call hangs"),
        }
        doomed.kill().await;
        self.w.s.notifier.take();
    }

    /// Asserts that each part and the comment of the thread exist once, and are stored with their ids.
    async fn assert_published(&self, thread: &Thread, when: &str) {
        assert_eq!(self.w.post_status(thread.post).await, PostStatus::Published, "{when}");
        let posts = (self.posts)();
        let mut found = Vec::new();
        for text in &thread.texts {
            let with_text: Vec<&Posted> = posts.iter().filter(|posted| posted.text == *text).collect();
            assert_eq!(with_text.len(), 1, "{text}, {when}");
            found.push(with_text[0]);
        }
        let ids: Vec<&str> = found.iter().map(|posted| posted.id.as_str()).collect();
        let parents: Vec<Option<&str>> = found.iter().map(|posted| posted.parent.as_deref()).collect();
        assert_eq!(parents, [None, Some(ids[0]), Some(ids[1]), Some(ids[0])], "{when}");

        let target = self.w.target(thread.target).await;
        let parts: Vec<&str> = target.published_parts.iter().map(|part| part.external_id.as_str()).collect();
        assert_eq!(parts, ids[..3], "{when}");
        let comment = self.w.comment(thread.target).await;
        let stored = (comment.status, comment.external_id.as_deref());
        assert_eq!(stored, (FirstCommentStatus::Published, Some(ids[3])), "{when}");
    }
}

async fn publish_without_faults(t: &Started, calls: &[&str]) {
    let thread = t.create().await;
    t.w.run_jobs().await;
    t.assert_published(&thread, "without a fault").await;
    assert_eq!(t.faults.calls(), calls);
}

/// Publishes two threads for each of the calls: the call fails after it takes effect, or before that.
async fn publish_despite(t: &Started, fault: CallFault, calls: &[&str]) {
    for (call, name) in calls.iter().enumerate() {
        for takes_effect in [true, false] {
            let when = format!("{fault:?} at call {call} ({name}), which takes effect: {takes_effect}");
            let thread = t.create().await;
            t.faults.fail_call(call, fault, takes_effect);
            if fault == CallFault::Hang {
                t.kill_when_a_call_hangs().await;
            }
            t.w.run_until_idle().await;
            assert!(t.faults.has_failed(), "{when}");
            t.assert_published(&thread, &when).await;
        }
    }
    assert_eq!((t.posts)().len(), 4 * 2 * calls.len(), "no other posts");
}

async fn a_thread_on_mastodon_is_published_by_these_calls(t: Started) {
    publish_without_faults(&t, &MASTODON_CALLS).await;
}

async fn a_kill_at_any_call_to_mastodon_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Hang, &MASTODON_CALLS).await;
}

async fn a_broken_connection_at_any_call_to_mastodon_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Break, &MASTODON_CALLS).await;
}

async fn a_kill_at_any_call_to_a_server_that_ignores_keys_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Hang, &MASTODON_CALLS).await;
}

async fn a_broken_connection_at_any_call_to_a_server_that_ignores_keys_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Break, &MASTODON_CALLS).await;
}

async fn a_thread_on_bluesky_is_published_by_these_calls(t: Started) {
    publish_without_faults(&t, &BLUESKY_CALLS).await;
}

async fn a_kill_at_any_call_to_bluesky_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Hang, &BLUESKY_CALLS).await;
}

async fn a_broken_connection_at_any_call_to_bluesky_publishes_each_part_once(t: Started) {
    publish_despite(&t, CallFault::Break, &BLUESKY_CALLS).await;
}
