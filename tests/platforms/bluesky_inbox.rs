//! The inbox of Bluesky, against a server that responds as the lexicons specify.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Map, Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    replies_to_a_post_are_threads_and_mentions_are_others,
    a_nested_reply_belongs_to_the_thread_of_its_first_comment,
    pages_are_read_back_to_what_is_known_and_each_message_once,
    a_reply_sent_in_the_app_appears_in_its_thread,
    direct_messages_arrive_and_are_replied_to,
    a_password_without_direct_messages_hides_nothing_else,
    a_reply_is_a_record_with_its_own_key,
    a_reply_with_a_lost_response_is_looked_up,
    a_direct_message_with_a_lost_response_is_searched,
    an_expired_session_is_renewed,
    a_rate_limit_is_obeyed_until_its_time,
    a_failing_stream_leaves_the_others,
    a_page_that_is_gone_begins_the_pass_again,
    deleted_posts_are_followed,
);

const OWN: &str = "did:plc:own";
const VERA: &str = "did:plc:vera";
const POST: &str = "at://did:plc:own/app.bsky.feed.post/post1";

#[derive(Default)]
struct Server {
    /// Newest last.
    notifications: Vec<Value>,
    feed: Vec<Value>,
    posts: Vec<Value>,
    chat: Vec<Value>,
    records: Vec<Value>,
    rejects_chat: bool,
    forgets_pages: bool,
    /// Posts of an account that blocks this one.
    blocked: Vec<String>,
    token: String,
    page: usize,
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn uri(did: &str, key: &str) -> String {
    format!("at://{did}/app.bsky.feed.post/{key}")
}

fn person(did: &str) -> Value {
    let name = if did == VERA { "Vera Vogel" } else { "" };
    json!({ "did": did, "handle": format!("{}.example", &did[8..]), "displayName": name })
}

/// A post. `replied_to` contains its root and its parent.
fn post(did: &str, key: &str, body: &str, replied_to: Option<(&str, &str)>, at: DateTime<Utc>) -> Value {
    let mut record = json!({ "$type": "app.bsky.feed.post", "text": body, "createdAt": "1999-01-01T00:00:00Z" });
    if let Some((root, parent)) = replied_to {
        record["reply"] = json!({
            "root": { "uri": root, "cid": format!("cid of {root}") },
            "parent": { "uri": parent, "cid": format!("cid of {parent}") },
        });
    }
    json!({
        "uri": uri(did, key), "cid": format!("cid of {key}"), "author": person(did), "record": record,
        "indexedAt": text(at),
    })
}

fn notified(mut post: Value, reason: &str) -> Value {
    post["reason"] = json!(reason);
    post
}

fn rejected(status: u16, name: &str, message: &str) -> ResponseTemplate {
    json(status, json!({ "error": name, "message": message }))
}

/// Responds with a page of a list, newest first.
fn listed(name: &str, all: &[Value], request: &Request, size: usize) -> ResponseTemplate {
    let from: usize = parameter(request, "cursor").map_or(0, |cursor| cursor.parse().unwrap());
    let limit = parameter(request, "limit").unwrap().parse::<usize>().unwrap().min(size);
    let page: Vec<&Value> = all.iter().rev().skip(from).take(limit).collect();
    let mut body = Map::from_iter([(name.to_owned(), json!(page))]);
    if from + page.len() < all.len() {
        body.insert("cursor".to_owned(), json!((from + page.len()).to_string()));
    }
    json(200, body)
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    let call = request.url.path().trim_start_matches("/xrpc/").to_owned();
    if call == "com.atproto.server.refreshSession" {
        server.token = "new".to_owned();
        return json(200, json!({ "did": OWN, "handle": "own.example", "accessJwt": "new", "refreshJwt": "r2" }));
    }
    if request.headers["authorization"] != format!("Bearer {}", server.token).as_str() {
        return rejected(400, "ExpiredToken", "Token has expired");
    }
    if call.starts_with("chat.bsky.") {
        assert_eq!(request.headers["atproto-proxy"], "did:web:api.bsky.chat#bsky_chat");
        if server.rejects_chat {
            return rejected(400, "InvalidToken", "Bad token method");
        }
    }
    if server.forgets_pages && parameter(request, "cursor").is_some() {
        return rejected(400, "InvalidRequest", "Bad cursor");
    }
    match call.as_str() {
        "app.bsky.notification.listNotifications" => {
            listed("notifications", &server.notifications, request, server.page)
        }
        "app.bsky.feed.getAuthorFeed" => {
            assert_eq!(parameter(request, "actor").as_deref(), Some(OWN));
            listed("feed", &server.feed, request, server.page)
        }
        "app.bsky.feed.getPosts" => {
            let wanted: Vec<String> = request.url.query_pairs().map(|(_, uri)| uri.into_owned()).collect();
            let found = server.posts.iter().filter(|post| wanted.iter().any(|uri| post["uri"] == uri.as_str()));
            json(200, json!({ "posts": found.collect::<Vec<_>>() }))
        }
        "app.bsky.feed.getPostThread" => {
            let uri = parameter(request, "uri").unwrap();
            match uri.rsplit('/').next().unwrap() {
                _ if server.blocked.contains(&uri) => json(
                    200,
                    json!({ "thread": { "$type": "app.bsky.feed.defs#blockedPost", "uri": uri, "blocked": true } }),
                ),
                "c1" => rejected(400, "NotFound", "Post not found"),
                _ => json(
                    200,
                    json!({ "thread": { "$type": "app.bsky.feed.defs#notFoundPost", "uri": uri, "notFound": true } }),
                ),
            }
        }
        "chat.bsky.convo.listConvos" => {
            let last = server.chat.last().cloned();
            let convo =
                json!({ "id": "convo1", "rev": "r", "members": [person(OWN), person(VERA)], "lastMessage": last });
            json(200, json!({ "convos": if server.chat.is_empty() { vec![] } else { vec![convo] } }))
        }
        "chat.bsky.convo.getMessages" => {
            assert_eq!(parameter(request, "convoId").as_deref(), Some("convo1"));
            listed("messages", &server.chat, request, 100)
        }
        "chat.bsky.convo.sendMessage" => {
            let body: Value = request.body_json().unwrap();
            let at = server.chat.last().unwrap()["sentAt"].clone();
            let id = format!("m{}", server.chat.len());
            let sent = json!({ "id": id, "text": body["message"]["text"], "sender": { "did": OWN }, "sentAt": at });
            server.chat.push(sent.clone());
            json(200, sent)
        }
        "com.atproto.repo.putRecord" => {
            let put: Value = request.body_json().unwrap();
            let at = format!("at://{OWN}/app.bsky.feed.post/{}", put["rkey"].as_str().unwrap());
            match server.records.iter().find(|old| old["rkey"] == put["rkey"]) {
                Some(old) if old["record"] != put["record"] => return rejected(400, "InvalidSwap", "Record was at x"),
                Some(_) => {}
                None => server.records.push(put),
            }
            let written = json!({ "uri": at, "cid": "bafy" });
            json(200, written)
        }
        "com.atproto.repo.getRecord" => {
            let rkey = parameter(request, "rkey").unwrap();
            match server.records.iter().find(|put| put["rkey"] == rkey.as_str()) {
                Some(put) => json(200, json!({ "uri": uri(OWN, &rkey), "cid": "bafy", "value": put["record"] })),
                None => rejected(400, "RecordNotFound", "Could not locate record"),
            }
        }
        other => panic!("no such call: {other}"),
    }
}

async fn start(s: TestStore) -> InboxTest<Server> {
    let api = FakeApi::start(Server { token: "old".to_owned(), page: 50, ..Server::default() }, respond).await;
    let secrets = json!({ "identifier": "a", "app_password": "p", "access_jwt": "old", "refresh_jwt": "refresh" });
    InboxTest::new(s, Platform::Bluesky, OWN, secrets, api).await
}

fn comment(t: &InboxTest<Server>, key: &str, body: &str) {
    let made = notified(post(VERA, key, body, Some((POST, POST)), t.w.now()), "reply");
    t.api.with(|server| server.notifications.push(made));
}

fn direct(t: &InboxTest<Server>, did: &str, id: &str, body: &str) {
    let made = json!({ "id": id, "text": body, "sender": { "did": did }, "sentAt": text(t.w.now()) });
    t.api.with(|server| server.chat.push(made));
}

async fn replies_to_a_post_are_threads_and_mentions_are_others(t: InboxTest<Server>) {
    comment(&t, "c1", "When do you open?");
    let now = t.w.now();
    t.api.with(|server| {
        let mention = post("did:plc:bob", "m1", "Try @own.example", None, now);
        server.notifications.push(notified(mention, "mention"));
        let mut quote = notified(post(VERA, "q1", "Look at this", None, now), "quote");
        quote["reasonSubject"] = json!(POST);
        server.notifications.push(quote);
        server.notifications.push(notified(post(VERA, "l1", "", None, now), "like"));
        server.notifications.push(json!({ "odd": true }));
    });
    t.look().await;
    let found = t.conversations_by_thread().await;
    let shown: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    let (mention, comment, quote) = (uri("did:plc:bob", "m1"), uri(VERA, "c1"), uri(VERA, "q1"));
    assert_eq!(shown, [("mention", &*mention, 1), ("comment", &*comment, 1), ("mention", &*quote, 1)]);
    let found = &found[1];
    assert_eq!(
        (found.participant_name.as_deref(), found.participant_external_id.as_deref()),
        (Some("Vera Vogel"), Some(VERA))
    );
    assert_eq!(found.subject_external_id.as_deref(), Some(POST));
    assert_eq!(found.subject_url.as_deref(), Some("https://bsky.app/profile/did:plc:own/post/post1"));
    assert_eq!(found.last_message_at, now, "when the server saw it, not what its author says");
    assert_eq!(t.error().await, "");
}

async fn a_nested_reply_belongs_to_the_thread_of_its_first_comment(t: InboxTest<Server>) {
    let (now, first, own) = (t.w.now(), uri(VERA, "c1"), uri(OWN, "a1"));
    t.api.with(|server| {
        server.posts.push(post(VERA, "c1", "first", Some((POST, POST)), now));
        server.posts.push(post(OWN, "a1", "ours", Some((POST, &first)), now));
        let nested = post("did:plc:bob", "c2", "me too", Some((POST, &own)), now);
        server.notifications.push(notified(nested, "reply"));
        // The parent was deleted.
        let orphan = post("did:plc:bob", "c3", "alone", Some((POST, &uri(VERA, "gone"))), now);
        server.notifications.push(notified(orphan, "reply"));
    });
    t.look().await;
    let mut threads: Vec<String> = t.conversations().await.into_iter().map(|found| found.thread_id).collect();
    threads.sort();
    assert_eq!(threads, [first, uri(VERA, "gone")]);
    assert_eq!(t.api.requests_to("getPosts").len(), 2, "a level at a time");
}

async fn pages_are_read_back_to_what_is_known_and_each_message_once(t: InboxTest<Server>) {
    t.api.with(|server| server.page = 3);
    for n in 0..20 {
        comment(&t, &format!("c{n}"), "again");
        t.w.advance(1);
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("listNotifications").len()), (20, 7));
    t.look_after(1_200).await;
    for n in 20..24 {
        comment(&t, &format!("c{n}"), "more");
    }
    let before = t.api.requests_to("listNotifications").len();
    t.sync_inbox_later().await;
    let overlap = t.api.requests_to("listNotifications").len();
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, overlap - before), (24, 8), "ten minutes before the newest that was known");
    assert_eq!(t.api.requests_to("listNotifications").len() - overlap, 2);
    assert_eq!(t.conversations().await.iter().map(|found| found.unread_count).sum::<i32>(), 24);
}

async fn a_reply_sent_in_the_app_appears_in_its_thread(t: InboxTest<Server>) {
    comment(&t, "c1", "When do you open?");
    t.w.advance(5);
    let (now, first) = (t.w.now(), uri(VERA, "c1"));
    let parent = post(VERA, "c1", "When do you open?", Some((POST, POST)), now);
    let feed = [
        json!({ "post": post(OWN, "a1", "At seven.", Some((POST, &first)), now), "reply": { "parent": parent } }),
        // A continuation of its own thread, a post, a reply to another account's post, and a repost.
        json!({ "post": post(OWN, "p2", "2/2", Some((POST, POST)), now) }),
        json!({ "post": post(OWN, "p3", "News", None, now) }),
        json!({ "post": post(OWN, "p4", "Nice", Some((&uri(VERA, "x"), &uri(VERA, "x"))), now) }),
        json!({ "post": post(OWN, "a1", "At seven.", Some((POST, &first)), now),
            "reason": { "$type": "app.bsky.feed.defs#reasonRepost", "indexedAt": text(now) } }),
    ];
    t.api.with(|server| server.feed.extend(feed));
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.texts(found.id).await, ["inbound: When do you open?", "outbound: At seven."]);
    assert_eq!((found.unread_count, found.participant_name.as_deref()), (1, Some("Vera Vogel")));
    assert_eq!(found.reply_context["parent"]["uri"], uri(OWN, "a1"));
}

async fn direct_messages_arrive_and_are_replied_to(t: InboxTest<Server>) {
    direct(&t, VERA, "m0", "Hello");
    direct(&t, OWN, "m1", "Hi");
    t.api.with(|server| {
        server.chat.push(json!({ "id": "m2", "sender": { "did": VERA }, "sentAt": "2026-06-09T00:00:00Z" }))
    });
    direct(&t, VERA, "m3", "Open?");
    t.look().await;
    let found = t.only().await;
    assert_eq!((found.kind.as_str(), found.thread_id.as_str(), found.unread_count), ("dm", "convo1", 2));
    assert_eq!(t.messages(found.id).await.len(), 3, "not the deleted one");
    assert_eq!(t.reply_result(found.id, "At seven.").await, "sent");
    t.sync_inbox_later().await;
    assert_eq!(t.messages(found.id).await.len(), 4, "it is not there twice");
    assert_eq!(t.api.with(|server| server.chat.len()), 5);
}

async fn a_password_without_direct_messages_hides_nothing_else(t: InboxTest<Server>) {
    t.api.with(|server| server.rejects_chat = true);
    comment(&t, "c1", "When do you open?");
    t.look().await;
    assert_eq!(t.only().await.kind.as_str(), "comment");
    let sync = t.sync().await;
    assert_eq!((sync.failures, sync.synced_at, t.status().await), (0, Some(t.w.now()), AccountStatus::Active));
    let error = sync.last_error.unwrap();
    assert_eq!(error.code, "missing_permission");
    assert!(error.message.contains("app password"), "{error:?}");
    t.sync_inbox_later().await;
    assert_eq!(t.api.requests_to("listConvos").len(), 1, "the server gets no second request immediately");
    assert!(t.error().await.contains("app password"));
    assert_eq!(t.api.requests_to("refreshSession").len(), 0);
    // The account now has another password.
    t.api.with(|server| server.rejects_chat = false);
    direct(&t, VERA, "m0", "Hello");
    t.look_after(600).await;
    assert_eq!((t.conversations().await.len(), t.error().await.as_str()), (2, ""));
}

async fn a_reply_is_a_record_with_its_own_key(t: InboxTest<Server>) {
    comment(&t, "c1", "When do you open?");
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.reply_result(found.id, "At seven: https://example.com").await, "sent");
    let put = t.api.with(|server| server.records[0].clone());
    let reference = |uri: &str, key: &str| json!({ "uri": uri, "cid": format!("cid of {key}") });
    let replied_to = json!({ "root": reference(POST, POST), "parent": reference(&uri(VERA, "c1"), "c1") });
    assert_eq!(put["record"]["reply"], replied_to);
    assert_eq!(put["record"]["facets"].as_array().unwrap().len(), 1);
    let stored = t.messages(found.id).await.pop().unwrap();
    assert_eq!(stored.external_id, Some(uri(OWN, put["rkey"].as_str().unwrap())));

    let bluesky = connector(Platform::Bluesky, "http://127.0.0.1:1");
    let inbox = bluesky.inbox().unwrap();
    let mut thread = ReplyThread::from(&found);
    assert!(inbox.check_text(&thread, &"x".repeat(300)).is_ok());
    assert!(inbox.check_text(&thread, &"x".repeat(301)).unwrap_err().contains("300"));
    thread.kind = crier_domain::platform::ConversationType::Dm;
    assert!(inbox.check_text(&thread, &"é".repeat(1_000)).is_ok());
    assert!(inbox.check_text(&thread, &"é".repeat(1_001)).unwrap_err().contains("1000"));
}

async fn a_reply_with_a_lost_response_is_looked_up(t: InboxTest<Server>) {
    comment(&t, "c1", "When do you open?");
    t.look().await;
    let found = t.only().await.id;
    t.reply_with_lost_response(found, "At seven.", "putRecord", 502).await;
    assert_eq!((t.api.requests_to("putRecord").len(), t.api.requests_to("getRecord").len()), (1, 1));
    // A reply that never arrived is sent again.
    t.reply_with_lost_call(found, "At eight.", "putRecord", 502).await;
    assert_eq!(t.api.with(|server| server.records.len()), 2);
}

async fn a_direct_message_with_a_lost_response_is_searched(t: InboxTest<Server>) {
    direct(&t, VERA, "m0", "Open?");
    t.look().await;
    let found = t.only().await.id;
    // The same text was sent a moment before.
    assert_eq!(t.reply_result(found, "Yes.").await, "sent");
    t.reply_with_lost_response(found, "Yes.", "sendMessage", 502).await;
    let ids: Vec<_> = t.messages(found).await.into_iter().filter_map(|message| message.external_id).collect();
    assert_eq!(ids, ["convo1/m0", "convo1/m1", "convo1/m2"]);
    // Nothing arrived, and the same text of others is not mistaken for the reply.
    t.reply_with_lost_call(found, "Yes.", "sendMessage", 502).await;
    assert_eq!(t.api.with(|server| server.chat.len()), 4);
}

async fn an_expired_session_is_renewed(t: InboxTest<Server>) {
    t.api.with(|server| server.token = "other".to_owned());
    comment(&t, "c1", "Open?");
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("refreshSession").len()), (1, 1));
    assert_eq!((t.error().await.as_str(), t.status().await), ("", AccountStatus::Active));
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Server>) {
    comment(&t, "c1", "Open?");
    let until = t.w.now() + TimeDelta::seconds(300);
    let limited = rejected(429, "RateLimitExceeded", "Rate Limit Exceeded");
    t.api.respond_once("listNotifications", limited.insert_header("ratelimit-reset", until.timestamp().to_string()));
    t.sync_under_rate_limit("xrpc", 70, 300).await;
    assert_eq!(t.count().await, 1);
}

async fn a_failing_stream_leaves_the_others(t: InboxTest<Server>) {
    direct(&t, VERA, "m0", "Hello");
    t.api.respond_once("listNotifications", rejected(501, "MethodNotImplemented", "no"));
    t.look().await;
    assert_eq!((t.only().await.kind.as_str(), t.sync().await.failures), ("dm", 1));
}

async fn a_page_that_is_gone_begins_the_pass_again(t: InboxTest<Server>) {
    t.api.with(|server| server.page = 3);
    for n in 0..9 {
        comment(&t, &format!("c{n}"), "again");
    }
    t.api.with(|server| server.forgets_pages = true);
    t.look().await;
    assert_eq!((t.count().await, t.error().await.as_str()), (3, ""));
    t.api.with(|server| server.forgets_pages = false);
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, t.error().await.as_str()), (9, ""));
}

async fn deleted_posts_are_followed(t: InboxTest<Server>) {
    for key in ["c1", "c2", "c3", "c4"] {
        comment(&t, key, "Fresh?");
    }
    let at = text(t.w.now());
    t.api.with(|server| {
        server.chat.push(json!({ "id": "m1", "text": "Hello", "sender": { "did": VERA }, "sentAt": at }));
    });
    t.look().await;
    assert_eq!(t.count().await, 5);
    t.api.with(|server| {
        server.notifications.clear();
        server.posts = vec![post(VERA, "c4", "Fresh?", None, DateTime::UNIX_EPOCH)];
        server.blocked = vec![uri(VERA, "c3")];
    });
    t.look_after(3_700).await;
    assert_eq!(t.error().await, "");
    assert_eq!(t.deleted().await, format!("{} {}", uri(VERA, "c1"), uri(VERA, "c2")));
}
