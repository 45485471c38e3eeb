//! The inbox of Reddit, against a server that responds as its documents and PRAW specify.

use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::oauth::form;
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    comments_mentions_and_messages_arrive,
    pages_are_read_back_to_what_is_known_and_each_message_once,
    a_reply_is_a_comment_below,
    a_reply_with_a_lost_response_is_searched,
    replies_with_one_text_are_told_apart,
    what_reddit_rejects_is_reported,
    a_missing_scope_is_reported,
    an_expired_token_is_renewed,
    a_rate_limit_is_obeyed_until_its_time,
    deleted_comments_are_followed,
    without_the_scope_nothing_is_taken_for_deleted,
);

#[derive(Default)]
struct Server {
    /// Newest last.
    inbox: Vec<Value>,
    comments: Vec<Value>,
    sent: Vec<Value>,
    token: String,
    now: i64,
    may_not_read: bool,
}

fn listed(all: &[Value], request: &Request) -> ResponseTemplate {
    let size: usize = parameter(request, "limit").unwrap().parse().unwrap();
    let newest: Vec<&Value> = all.iter().rev().collect();
    let from = parameter(request, "after")
        .map_or(0, |after| newest.iter().position(|m| m["name"] == after.as_str()).unwrap() + 1);
    let page: Vec<Value> = newest.iter().skip(from).take(size).map(|m| json!({ "kind": "t1", "data": m })).collect();
    let after = (from + size < all.len()).then(|| page.last().unwrap()["data"]["name"].clone());
    json(200, json!({ "kind": "Listing", "data": { "children": page, "after": after } }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if request.url.path() == "/api/v1/access_token" {
        server.token = "new".to_owned();
        return json(200, json!({ "access_token": "new", "expires_in": 86_400, "token_type": "bearer", "scope": "x" }));
    }
    if request.headers["authorization"] != format!("Bearer {}", server.token).as_str() {
        return json(401, json!({ "message": "Unauthorized", "error": 401 }));
    }
    assert!(request.headers["user-agent"].to_str().unwrap().contains("/u/ann"));
    match request.url.path() {
        "/message/inbox" => {
            assert_eq!(parameter(request, "mark").as_deref(), Some("false"));
            listed(&server.inbox, request)
        }
        "/api/info" if server.may_not_read => json(403, json!({ "message": "Forbidden", "error": 403 })),
        "/api/info" => {
            let ids = parameter(request, "id").unwrap();
            assert!(ids.split(',').all(|id| id.starts_with("t1_")), "{ids}");
            let found = server.inbox.iter().filter(|m| ids.split(',').any(|id| m["name"] == id));
            let found: Vec<Value> = found.map(|m| json!({ "kind": "t1", "data": m })).collect();
            json(200, json!({ "kind": "Listing", "data": { "children": found, "after": null } }))
        }
        "/message/sent" => listed(&server.sent, request),
        "/user/ann/comments" => listed(&server.comments, request),
        "/api/comment" => {
            let form = form(request);
            let is_message = form["thing_id"].starts_with("t4_");
            let name =
                format!("{}_new{}", if is_message { "t4" } else { "t1" }, server.sent.len() + server.comments.len());
            let made = json!({ "name": name, "author": "ann", "body": form["text"], "created_utc": server.now as f64,
                "parent": form["thing_id"], "parent_id": form["thing_id"] });
            if is_message {
                server.sent.push(made.clone())
            } else {
                server.comments.push(made.clone())
            }
            let things = json!({ "json": { "errors": [], "data": { "things": [{ "kind": "t1", "data": made }] } } });
            json(200, things)
        }
        other => panic!("no such call: {other}"),
    }
}

async fn start(s: TestStore) -> InboxTest<Server> {
    let api = FakeApi::start(Server { token: "old".to_owned(), ..Server::default() }, respond).await;
    let secrets = json!({
        "access_token": "old", "refresh_token": "r", "client_id": "id", "client_secret": "secret",
    });
    let t = InboxTest::new(s, Platform::Reddit, "u1", secrets, api).await;
    t.set_username("ann").await;
    t
}

fn add(t: &InboxTest<Server>, mut message: Value) {
    let now = t.w.now().timestamp();
    message["created_utc"] = json!(now as f64);
    t.api.with(|server| {
        server.now = now;
        server.inbox.push(message);
    });
}

fn comment(name: &str, author: &str, kind: &str, body: &str) -> Value {
    json!({
        "name": name, "author": author, "type": kind, "body": body, "was_comment": true,
        "context": "/r/bakery/comments/p1/fresh_bread/c1/?context=3",
    })
}

fn private(name: &str, body: &str) -> Value {
    json!({ "name": name, "author": "Vera", "body": body, "was_comment": false, "context": "", "subject": "Hi" })
}

/// The time after which the account is due again, in seconds.
const NEXT_SYNC: i64 = 133;

async fn comments_mentions_and_messages_arrive(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "Vera", "post_reply", "Open?"));
    add(&t, comment("t1_b", "vera", "comment_reply", "And then?"));
    add(&t, comment("t1_c", "bob", "username_mention", "Try u/ann"));
    add(&t, private("t4_d", "psst"));
    // A message of Reddit itself, one of the account, and an entry that is no message.
    add(&t, json!({ "name": "t4_e", "author": null, "body": "Welcome", "was_comment": false }));
    add(&t, comment("t1_f", "Ann", "post_reply", "own"));
    add(&t, json!({ "odd": true }));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(threads, [("mention", "p1:bob", 1), ("comment", "p1:vera", 2), ("dm", "vera", 1)]);
    assert_eq!(t.texts(found[1].id).await, ["inbound: Open?", "inbound: And then?"]);
    assert_eq!(found[1].subject_external_id.as_deref(), Some("t3_p1"));
    assert_eq!(found[1].subject_url.as_deref(), Some("https://www.reddit.com/r/bakery/comments/p1/"));
    assert_eq!(t.error().await, "");
}

async fn pages_are_read_back_to_what_is_known_and_each_message_once(t: InboxTest<Server>) {
    for n in 0..230 {
        add(&t, comment(&format!("t1_{n}"), "vera", "post_reply", "again"));
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/message/inbox").len()), (230, 3));
    t.look_after(900).await;
    add(&t, comment("t1_new", "vera", "post_reply", "more"));
    t.look_after(NEXT_SYNC).await;
    t.look_after(NEXT_SYNC).await;
    assert_eq!((t.count().await, t.only().await.unread_count), (231, 231));
}

async fn a_reply_is_a_comment_below(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "vera", "post_reply", "Open?"));
    add(&t, private("t4_b", "psst"));
    t.look().await;
    for found in t.conversations().await {
        assert_eq!(t.reply_result(found.id, "At seven & <b>").await, "sent");
    }
    let (comments, sent) = t.api.with(|server| (server.comments.clone(), server.sent.clone()));
    assert_eq!(
        (comments.len(), &comments[0]["parent"], &comments[0]["body"]),
        (1, &json!("t1_a"), &json!("At seven & <b>"))
    );
    assert_eq!((sent.len(), &sent[0]["parent"]), (1, &json!("t4_b")));
}

async fn a_reply_with_a_lost_response_is_searched(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "vera", "post_reply", "Open?"));
    t.look().await;
    let found = t.only().await.id;
    assert_eq!(t.reply_result(found, "Yes.").await, "sent");
    t.reply_with_lost_response(found, "Yes.", "/api/comment", 503).await;
    assert_eq!(t.api.with(|server| server.comments.len()), 2);
    // It never arrived, and the same text of others is not mistaken for it.
    t.reply_with_lost_call(found, "Yes.", "/api/comment", 503).await;
    assert_eq!(t.api.with(|server| server.comments.len()), 3);
}

async fn replies_with_one_text_are_told_apart(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "ben", "post_reply", "Open?"));
    add(&t, comment("t1_b", "vera", "post_reply", "Closed?"));
    t.look().await;
    t.send_one_text_to_two(t.two_conversations().await, "/api/comment").await;
    let parents: Vec<Value> = t.api.with(|server| server.comments.iter().map(|one| one["parent"].clone()).collect());
    assert_eq!(parents, ["t1_b", "t1_a"]);
}

async fn what_reddit_rejects_is_reported(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "vera", "post_reply", "Open?"));
    t.look().await;
    let found = t.only().await.id;
    let rejected = |code: &str| json(200, json!({ "json": { "errors": [[code, "no", "text"]] } }));
    t.api.respond_once("/api/comment", rejected("THREAD_LOCKED"));
    assert_eq!(t.reply_result(found, "Yes.").await, "failed: platform_rejected");
    let limited = json!({ "json": { "ratelimit": 90.5, "errors": [["RATELIMIT", "wait", "ratelimit"]] } });
    t.api.respond_once("/api/comment", json(200, limited));
    let id = t.reply(found, "Yes.").await;
    assert_eq!(t.sent(id).await, "pending: rate_limited");
    t.w.advance(91);
    t.run_reply(id).await;
    assert_eq!(t.sent(id).await, "sent");
}

async fn a_missing_scope_is_reported(t: InboxTest<Server>) {
    t.api.respond_once("/message/inbox", json(403, json!({ "message": "Forbidden", "error": 403 })));
    t.look().await;
    assert!(t.error().await.contains("privatemessages"), "{}", t.error().await);
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    t.look_after(NEXT_SYNC).await;
    assert_eq!(t.error().await, "");
}

async fn an_expired_token_is_renewed(t: InboxTest<Server>) {
    t.api.with(|server| server.token = "other".to_owned());
    add(&t, comment("t1_a", "vera", "post_reply", "Open?"));
    t.look().await;
    assert_eq!(
        (t.count().await, t.api.requests_to("access_token").len(), t.status().await),
        (1, 1, AccountStatus::Active)
    );
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Server>) {
    add(&t, comment("t1_a", "vera", "post_reply", "Open?"));
    let limited = json(429, json!({ "message": "Too Many Requests", "error": 429 }));
    t.api.respond_once("/message/inbox", limited.insert_header("x-ratelimit-reset", "400"));
    t.sync_under_rate_limit("/message", NEXT_SYNC, 400).await;
    assert_eq!(t.count().await, 1);
}

/// Adds four comments and a message. Two comments are deleted, and the account of a third.
async fn lose_some(t: &InboxTest<Server>) {
    for n in 1..=4 {
        add(t, comment(&format!("t1_{n}"), &format!("Vera{n}"), "comment_reply", "Fresh?"));
    }
    add(t, private("t4_1", "Hello"));
    t.look().await;
    t.api.with(|server| {
        for (at, body) in [(0, "[deleted]"), (1, "[removed]"), (2, "Fresh?")] {
            (server.inbox[at]["author"], server.inbox[at]["body"]) = (json!("[deleted]"), json!(body));
        }
        // A user may write this text.
        server.inbox[3]["body"] = json!("[deleted]");
    });
    t.look_after(3_700).await;
    assert_eq!((t.count().await, t.error().await.as_str()), (5, ""));
}

async fn deleted_comments_are_followed(t: InboxTest<Server>) {
    lose_some(&t).await;
    assert_eq!(t.deleted().await, "t1_1 t1_2");
}

async fn without_the_scope_nothing_is_taken_for_deleted(t: InboxTest<Server>) {
    t.api.with(|server| server.may_not_read = true);
    lose_some(&t).await;
    assert_eq!(t.w.count_rows("messages WHERE deleted_at IS NOT NULL").await, 0);
}
