//! The inbox of Threads, against an API that responds as Meta documents.

use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::facebook::error;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::meta_inbox::{newest_first, paged};
use crate::support::oauth::{bearer, form};
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    replies_and_mentions_arrive_in_their_threads,
    all_pages_are_read_and_each_message_once,
    a_reply_is_a_container_that_is_published,
    a_reply_with_a_lost_response_is_searched_and_never_sent_twice,
    replies_with_one_text_are_told_apart,
    a_missing_permission_is_reported_and_leaves_the_other_stream,
    an_expired_token_expires_the_account,
    a_rate_limit_is_obeyed,
);

#[derive(Default)]
struct Server {
    /// Oldest first.
    posts: Vec<Value>,
    replies: Vec<Value>,
    mentions: Vec<Value>,
    /// The text and the parent of each container.
    containers: Vec<(String, String)>,
    /// The missing permissions of the token: `replies`, `mentions`, `publishing`.
    lacks: &'static [&'static str],
    now: String,
}

fn publish(server: &mut Server, container: &str) -> Value {
    let (text, parent) = server.containers[container.parse::<usize>().unwrap()].clone();
    let root = server.replies.iter().chain(&server.mentions).find(|one| one["id"] == parent.as_str()).unwrap();
    let made = json!({ "id": format!("99{}", server.replies.len()), "text": text, "username": "bakery",
        "timestamp": server.now, "is_reply_owned_by_me": true, "replied_to": { "id": parent },
        "root_post": root["root_post"] });
    server.replies.push(made.clone());
    json!({ "id": made["id"] })
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if bearer(request) != "t" {
        return error(400, 190, Some(463), "Session has expired");
    }
    let rejected = || error(500, 10, None, "Application does not have permission for this action");
    let after = parameter(request, "after");
    let limit = || parameter(request, "limit").unwrap().parse().unwrap();
    let page = |all: &[Value]| json(200, paged(&newest_first(all), after.as_deref(), limit()));
    let path = request.url.path().strip_prefix("/v1.0/").unwrap().to_owned();
    match (path.split_once('/').unwrap_or((&path, "")), request.method.as_str()) {
        (("5", "threads"), "GET") => page(&server.posts),
        (("5", "mentions"), "GET") if server.lacks.contains(&"mentions") => rejected(),
        (("5", "mentions"), "GET") => page(&server.mentions),
        (("5", "replies"), "GET") => {
            let own: Vec<Value> = server.replies.iter().filter(|one| one["username"] == "bakery").cloned().collect();
            page(&own)
        }
        ((_, "conversation"), "GET") if server.lacks.contains(&"replies") => rejected(),
        ((id, "conversation"), "GET") => {
            let below = server.replies.iter().filter(|one| one["root_post"]["id"] == id).cloned();
            page(&below.collect::<Vec<_>>())
        }
        (("5", "threads"), "POST") if server.lacks.contains(&"publishing") => rejected(),
        (("5", "threads"), "POST") => {
            let body: Value = request.body_json().unwrap();
            assert_eq!(body["media_type"], "TEXT");
            let text = |name: &str| body[name].as_str().unwrap().to_owned();
            server.containers.push((text("text"), text("reply_to_id")));
            json(200, json!({ "id": (server.containers.len() - 1).to_string() }))
        }
        (("5", "threads_publish"), "POST") => {
            let made = publish(server, &form(request)["creation_id"]);
            json(200, made)
        }
        ((id, ""), "GET") => match server.replies.iter().find(|one| one["id"] == id) {
            Some(one) => json(200, json!({ "id": id, "replied_to": one["replied_to"] })),
            None => error(400, 100, Some(33), "Object does not exist"),
        },
        other => panic!("no such call: {other:?}"),
    }
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server::default(), respond).await;
    let t = InboxTest::new(s, Platform::Threads, "5", json!({ "access_token": "t" }), api).await;
    t.set_username("bakery").await;
    set_time(&t);
    t
}

/// Sets the server's time to the test's.
fn set_time(t: &Test) -> String {
    let now = t.w.now().format("%Y-%m-%dT%H:%M:%S+0000").to_string();
    t.api.with(|server| server.now.clone_from(&now));
    now
}

fn add_post(t: &Test, id: &str, has_replies: bool) {
    let post = json!({ "id": id, "timestamp": set_time(t), "permalink": format!("https://www.threads.net/{id}"),
        "has_replies": has_replies });
    t.api.with(|server| server.posts.push(post));
}

fn reply(t: &Test, post: &str, id: &str, author: &str, above: &str, text: &str) {
    let reply = json!({ "id": id, "text": text, "username": author, "timestamp": set_time(t),
        "root_post": { "id": post }, "replied_to": { "id": above }, "is_reply_owned_by_me": author == "bakery" });
    t.api.with(|server| server.replies.push(reply));
}

fn mention(t: &Test, id: &str, text: &str) {
    let mention = json!({ "id": id, "text": text, "username": "Bob", "timestamp": set_time(t),
        "permalink": format!("https://www.threads.net/@bob/{id}") });
    t.api.with(|server| server.mentions.push(mention));
}

/// Syncs when the account is due again.
async fn sync_inbox_later(t: &Test) {
    t.w.advance(331);
    set_time(t);
    t.look().await;
}

async fn replies_and_mentions_arrive_in_their_threads(t: Test) {
    add_post(&t, "100", true);
    add_post(&t, "101", false);
    reply(&t, "100", "10", "vera", "100", "Open?");
    t.look().await;
    t.w.advance(7_200);
    reply(&t, "100", "11", "bakery", "10", "Yes.");
    reply(&t, "100", "12", "Vera", "11", "Thanks");
    reply(&t, "100", "13", "bob", "100", "Me too");
    mention(&t, "20", "@bakery hello");
    t.api.with(|server| server.replies.push(json!({ "id": 5, "root_post": { "id": "100" } })));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str())).collect();
    assert_eq!(threads, [("comment", "10"), ("comment", "13"), ("mention", "20")]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "outbound: Yes.", "inbound: Thanks"]);
    assert_eq!(found[0].subject_external_id.as_deref(), Some("100"));
    assert_eq!(found[0].participant_external_id.as_deref(), Some("vera"));
    assert_eq!(found[2].subject_url.as_deref(), Some("https://www.threads.net/@bob/20"));
    assert_eq!((t.api.requests_to("/101/").len(), t.error().await.as_str()), (0, ""));
}

async fn all_pages_are_read_and_each_message_once(t: Test) {
    for n in 1..=30 {
        add_post(&t, &format!("10{n}"), n == 1);
    }
    for n in 0..120 {
        reply(&t, "101", &format!("2{n:03}"), "vera", "101", "again");
    }
    for n in 0..60 {
        mention(&t, &format!("3{n:03}"), "@bakery");
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/101/conversation").len()), (180, 3));
    mention(&t, "4000", "@bakery again");
    sync_inbox_later(&t).await;
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/5/threads").len(), t.error().await.as_str()), (181, 4, ""));
}

async fn a_reply_is_a_container_that_is_published(t: Test) {
    add_post(&t, "100", true);
    reply(&t, "100", "10", "vera", "100", "Open?");
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.reply_result(found.id, "At seven & <b>").await, "sent");
    t.api.with(|server| assert_eq!(server.containers, [("At seven & <b>".to_owned(), "10".to_owned())]));
    sync_inbox_later(&t).await;
    assert_eq!(t.count().await, 2, "a reply is the message that is read later");
    // Not ready yet: nothing is published, and the reply is retried.
    t.api.respond_once("/threads_publish", error(400, 24, Some(4_279_009), "Media not found"));
    let id = t.reply(found.id, "Again").await;
    assert!(t.sent(id).await.starts_with("pending"));
    t.w.advance(60);
    t.run_reply(id).await;
    assert_eq!((t.sent(id).await.as_str(), t.api.with(|server| server.replies.len())), ("sent", 3));
    let threads = connector(Platform::Threads, &t.api.base());
    let thread = ReplyThread::from(&found);
    assert!(threads.inbox().unwrap().check_text(&thread, &"x".repeat(501)).unwrap_err().contains("500"));
    t.api.with(|server| server.lacks = &["publishing"]);
    assert_eq!(t.reply_result(found.id, "No").await, "failed: account");
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_reply_with_a_lost_response_is_searched_and_never_sent_twice(t: Test) {
    add_post(&t, "100", true);
    reply(&t, "100", "10", "vera", "100", "Open?");
    mention(&t, "20", "@bakery hello");
    t.look().await;
    let found = t.conversations().await;
    let of = |kind: &str| found.iter().find(|one| one.kind.as_str() == kind).unwrap().id;
    assert_eq!(t.reply_result(of("comment"), "Yes.").await, "sent");
    t.reply_with_lost_response(of("comment"), "Yes.", "/threads_publish", 503).await;
    assert_eq!(t.api.with(|server| server.replies.len()), 3);
    // It never arrived, and the same text in another thread is not mistaken for it.
    set_time(&t);
    t.reply_with_lost_call(of("mention"), "Yes.", "/threads_publish", 503).await;
    assert_eq!(t.api.with(|server| server.replies.len()), 4);
}

async fn replies_with_one_text_are_told_apart(t: Test) {
    add_post(&t, "100", true);
    reply(&t, "100", "10", "vera", "100", "Open?");
    reply(&t, "100", "11", "ben", "100", "Closed?");
    t.look().await;
    t.send_one_text_to_two(t.two_conversations().await, "/threads_publish").await;
    let own = |one: &&Value| one["username"] == "bakery";
    let parent = |one: &Value| one["replied_to"]["id"].clone();
    let parents: Vec<Value> = t.api.with(|server| server.replies.iter().filter(own).map(parent).collect());
    assert_eq!(parents, ["11", "10"]);
}

async fn a_missing_permission_is_reported_and_leaves_the_other_stream(t: Test) {
    add_post(&t, "100", true);
    reply(&t, "100", "10", "vera", "100", "Open?");
    mention(&t, "20", "@bakery hello");
    t.api.with(|server| server.lacks = &["replies"]);
    t.look().await;
    assert_eq!((t.only().await.kind.as_str(), t.sync().await.failures), ("mention", 0));
    let reported = t.error().await;
    assert!(reported.contains("threads_read_replies") && reported.contains("CRIER_THREADS_SCOPES"), "{reported}");
    sync_inbox_later(&t).await;
    assert_eq!((t.api.requests_to("/conversation").len(), t.error().await), (1, reported), "no request that must fail");
    t.api.with(|server| server.lacks = &["mentions"]);
    t.look_after(3_600).await;
    assert!(t.error().await.contains("threads_manage_mentions"));
    assert_eq!((t.count().await, t.status().await), (2, AccountStatus::Active));
}

async fn an_expired_token_expires_the_account(t: Test) {
    t.reconnect(json!({ "access_token": "old" })).await;
    t.look().await;
    assert_eq!((t.status().await, t.api.requests_to("/mentions").len()), (AccountStatus::Expired, 0));
}

async fn a_rate_limit_is_obeyed(t: Test) {
    mention(&t, "20", "@bakery hello");
    let limited = error(400, 4, None, "Application request limit reached").insert_header("retry-after", "1800");
    t.api.respond_once("/threads", limited);
    t.sync_under_rate_limit("/v1.0/", 331, 1_800).await;
    assert_eq!(t.count().await, 1);
}
