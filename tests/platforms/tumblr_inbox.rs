//! The inbox of Tumblr, against a server that responds as its documents specify.

use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::oauth::bearer;
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    replies_reblogs_and_mentions_arrive,
    pages_are_read_and_each_entry_once,
    nothing_can_be_replied_to,
    an_expired_token_is_renewed,
    a_rate_limit_is_obeyed,
);

#[derive(Default)]
struct Server {
    /// Oldest first.
    entries: Vec<Value>,
    token: String,
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if request.url.path() == "/v2/oauth2/token" {
        server.token = "new".to_owned();
        let tokens =
            json!({ "access_token": "new", "refresh_token": "r2", "expires_in": 2_520, "token_type": "bearer" });
        return json(200, tokens);
    }
    if bearer(request) != server.token {
        return json(401, json!({ "meta": { "status": 401, "msg": "Unauthorized" }, "response": [] }));
    }
    assert_eq!(request.url.path(), "/v2/blog/t%3Ablog/notifications");
    assert_eq!(parameter(request, "rollups").as_deref(), Some("false"));
    let types: Vec<_> = request.url.query_pairs().filter(|(name, _)| name == "types[]").map(|(_, kind)| kind).collect();
    assert_eq!(types.len(), 4);
    let before: i64 = parameter(request, "before").map_or(i64::MAX, |before| before.parse().unwrap());
    let is_before = |entry: &&Value| entry["timestamp"].as_i64().unwrap() < before;
    let all: Vec<&Value> = server.entries.iter().rev().filter(is_before).collect();
    let mut found = json!({ "notifications": all[..all.len().min(30)] });
    if all.len() > 30 {
        let before = found["notifications"][29]["timestamp"].clone();
        let href = format!("/v2/blog/blog/notifications?before={before}");
        found["_links"] =
            json!({ "next": { "type": "navigation", "href": href, "query_params": { "before": before } } });
    }
    json(200, json!({ "meta": { "status": 200, "msg": "OK" }, "response": found }))
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server { token: "old".to_owned(), ..Server::default() }, respond).await;
    let secrets = json!({ "access_token": "old", "refresh_token": "r", "client_id": "id", "client_secret": "secret" });
    let t = InboxTest::new(s, Platform::Tumblr, "t:blog", secrets, api).await;
    t.set_username("bakery").await;
    t
}

fn add(t: &Test, id: &str, kind: &str, author: &str, more: Value) {
    let mut entry = json!({ "id": id, "type": kind, "timestamp": t.w.now().timestamp(), "unread": true,
        "from_tumblelog_name": author });
    entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    t.api.with(|server| server.entries.push(entry));
}

fn reply(t: &Test, id: &str, text: &str) {
    add(t, id, "reply", "Vera", json!({ "target_post_id": "100", "reply_text": text }));
}

/// The time after which the account is due again, in seconds.
const NEXT_SYNC: i64 = 1_981;

async fn replies_reblogs_and_mentions_arrive(t: Test) {
    reply(&t, "1", "Open?");
    add(
        &t,
        "2",
        "reblog_with_content",
        "vera",
        json!({ "target_post_id": 100, "post_id": 9, "added_text": "Good bread" }),
    );
    add(&t, "3", "mention_in_reply", "bob", json!({ "post_id": "55", "reply_text": "Try @bakery" }));
    add(&t, "4", "reply", "bakery", json!({ "target_post_id": "100", "reply_text": "own" }));
    add(&t, "5", "like", "vera", json!({ "target_post_id": "100" }));
    add(&t, "6", "reply", "eve", json!({ "target_post_id": "../x", "reply_text": "odd" }));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(threads, [("comment", "100:vera", 2), ("mention", "55:bob", 1)]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "inbound: Good bread"]);
    assert_eq!(found[0].subject_url.as_deref(), Some("https://www.tumblr.com/bakery/100"));
    assert_eq!(found[1].subject_url.as_deref(), Some("https://www.tumblr.com/bob/55"));
    assert_eq!(t.error().await, "");
}

async fn pages_are_read_and_each_entry_once(t: Test) {
    for n in 0..70 {
        reply(&t, &n.to_string(), "again");
        t.w.advance(if n % 2 == 0 { 0 } else { 1 });
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/notifications").len()), (70, 3));
    reply(&t, "new", "more");
    t.look_after(NEXT_SYNC).await;
    t.look_after(NEXT_SYNC).await;
    assert_eq!((t.count().await, t.only().await.unread_count), (71, 71));
}

async fn nothing_can_be_replied_to(t: Test) {
    reply(&t, "1", "Open?");
    t.look().await;
    let tumblr = connector(Platform::Tumblr, &t.api.base());
    let (inbox, found) = (tumblr.inbox().unwrap(), t.only().await);
    assert!(inbox.rejection(&ReplyThread::from(&found), t.w.now()).unwrap().contains("on Tumblr"));
    assert_eq!(tumblr.descriptor().capabilities.replies, []);
    assert_eq!(t.reply_result(found.id, "Yes.").await, "failed: platform_rejected");
}

async fn an_expired_token_is_renewed(t: Test) {
    reply(&t, "1", "Open?");
    t.api.with(|server| server.token = "other".to_owned());
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/token").len(), t.status().await), (1, 1, AccountStatus::Active));
}

async fn a_rate_limit_is_obeyed(t: Test) {
    reply(&t, "1", "Open?");
    let limited = json(429, json!({ "meta": { "status": 429, "msg": "Limit Exceeded" }, "response": [] }));
    t.api.respond_once("/notifications", limited.insert_header("retry-after", "4000"));
    t.sync_under_rate_limit("/notifications", NEXT_SYNC, 2_500).await;
    assert_eq!(t.count().await, 1);
}
