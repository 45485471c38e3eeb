//! The inbox of X, against a server that responds as its documents specify.

use chrono::{DateTime, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::{OutgoingReply, ReplyThread};
use crier_platforms::{Marker, ReconcileResult};
use serde_json::{Map, Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{account, connector};
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::oauth::bearer;
use crate::support::store::{TestStore, on_one};

on_one!(
    a_mention_is_replied_to_in_its_conversation,
    a_reply_with_a_lost_response_is_searched_and_never_sent_twice,
    a_reply_to_another_post_is_not_mistaken_for_it,
    what_x_does_not_allow_is_reported,
    used_up_credits_make_the_account_wait,
);
on_one!(start =>
    mentions_since_the_connect_arrive,
    pages_are_read_and_each_mention_once,
    an_expired_token_is_renewed,
    a_rate_limit_is_obeyed_until_its_time,
);

#[derive(Default)]
struct Server {
    /// Oldest first.
    mentions: Vec<Value>,
    own: Vec<Value>,
    token: String,
    now: String,
}

fn time(text: &Value) -> DateTime<Utc> {
    text.as_str().unwrap().parse().unwrap()
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if request.url.path() == "/2/oauth2/token" {
        server.token = "new".to_owned();
        let tokens =
            json!({ "access_token": "new", "refresh_token": "r2", "expires_in": 7_200, "token_type": "bearer" });
        return json(200, tokens);
    }
    if bearer(request) != server.token {
        return json(
            401,
            json!({ "title": "Unauthorized", "type": "about:blank", "status": 401, "detail": "Unauthorized" }),
        );
    }
    let since = || -> DateTime<Utc> { parameter(request, "start_time").unwrap().parse().unwrap() };
    match (request.url.path(), request.method.as_str()) {
        ("/2/users/42/mentions", "GET") => {
            assert_eq!(parameter(request, "expansions").as_deref(), Some("author_id"));
            let all: Vec<_> = server.mentions.iter().rev().filter(|one| time(&one["created_at"]) >= since()).collect();
            let from: usize = parameter(request, "pagination_token").map_or(0, |token| token.parse().unwrap());
            let end = (from + 100).min(all.len());
            let mut response = json!({ "meta": { "result_count": end - from } });
            if end > from {
                response["data"] = json!(all[from..end]);
                response["includes"] = json!({ "users": [{ "id": "7", "name": "Vera", "username": "vera_1" }] });
            }
            if end < all.len() {
                response["meta"]["next_token"] = json!(end.to_string());
            }
            json(200, response)
        }
        ("/2/users/42/tweets", "GET") => {
            let newest: Vec<_> = server.own.iter().rev().collect();
            json(200, if newest.is_empty() { json!({ "meta": {} }) } else { json!({ "data": newest, "meta": {} }) })
        }
        ("/2/tweets", "POST") => {
            let body: Value = request.body_json().unwrap();
            let replied_to =
                server.mentions.iter().find(|one| one["id"] == body["reply"]["in_reply_to_tweet_id"]).unwrap();
            let text = format!("@vera_1 {}", body["text"].as_str().unwrap().replace('&', "&amp;"));
            let id = format!("90{}", server.own.len());
            let above = json!([{ "type": "replied_to", "id": replied_to["id"] }]);
            let made = json!({ "id": id, "text": text, "created_at": server.now, "replied_to": replied_to["id"],
                "referenced_tweets": above });
            server.own.push(made);
            let created = json!({ "data": { "id": id, "text": text } });
            json(201, created)
        }
        other => panic!("no such call: {other:?}"),
    }
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server { token: "old".to_owned(), ..Server::default() }, respond).await;
    let secrets = json!({ "access_token": "old", "refresh_token": "r", "client_id": "id", "client_secret": "secret" });
    let t = InboxTest::new(s, Platform::Twitter, "42", secrets, api).await;
    set_time(&t);
    t
}

/// Sets the server's time to the test's.
fn set_time(t: &Test) -> String {
    let now = t.w.now().format("%Y-%m-%dT%H:%M:%S.000Z").to_string();
    t.api.with(|server| server.now.clone_from(&now));
    now
}

fn mention(t: &Test, id: &str, author: &str, conversation: &str, text: &str) {
    let mention = json!({ "id": id, "text": text, "author_id": author, "conversation_id": conversation,
        "created_at": set_time(t), "edit_history_tweet_ids": [id] });
    t.api.with(|server| server.mentions.push(mention));
}

/// Syncs when the account is due again.
async fn sync_inbox_later(t: &Test) {
    t.w.advance(1_981);
    set_time(t);
    t.look().await;
}

async fn mentions_since_the_connect_arrive(t: Test) {
    mention(&t, "1", "7", "1", "old");
    t.look_after(1_000).await;
    assert_eq!((t.count().await, t.api.requests_to("/2/").len()), (0, 0), "history costs money");
    t.w.advance(10);
    mention(&t, "2", "7", "2", "@bakery open &amp; warm?");
    mention(&t, "3", "8", "2", "@bakery and now?");
    mention(&t, "4", "42", "2", "@bakery is us");
    t.api.with(|server| server.mentions.push(json!({ "odd": true, "created_at": server.now })));
    sync_inbox_later(&t).await;
    let found = t.only().await;
    assert_eq!((found.kind.as_str(), found.thread_id.as_str(), found.unread_count), ("mention", "2", 2));
    assert_eq!(t.texts(found.id).await, ["inbound: @bakery open & warm?", "inbound: @bakery and now?"]);
    assert_eq!(found.subject_url.as_deref(), Some("https://x.com/i/status/2"));
    assert_eq!(t.messages(found.id).await[0].author_name.as_deref(), Some("Vera"));
    assert_eq!(t.error().await, "");
}

async fn pages_are_read_and_each_mention_once(t: Test) {
    t.look().await;
    for n in 0..230 {
        mention(&t, &format!("1{n:03}"), "7", "5", "again");
    }
    t.look_after(60).await;
    assert_eq!(t.api.requests_to("/mentions").len(), 0, "half an hour");
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/mentions").len()), (230, 3));
    mention(&t, "2000", "7", "5", "more");
    sync_inbox_later(&t).await;
    let requested = t.api.requests_to("/mentions");
    assert_eq!((t.count().await, requested.len()), (231, 4), "what is known is not paid again");
    sync_inbox_later(&t).await;
    assert_eq!(t.only().await.unread_count, 231);
}

/// Connects an account that has one mention.
async fn with_mention(s: TestStore) -> (Test, i64) {
    let t = start(s).await;
    t.look().await;
    mention(&t, "2", "7", "2", "@bakery open?");
    sync_inbox_later(&t).await;
    let found = t.only().await.id;
    (t, found)
}

async fn a_mention_is_replied_to_in_its_conversation(s: TestStore) {
    let (t, found) = with_mention(s).await;
    assert_eq!(t.reply_result(found, "At seven & https://example.com").await, "sent");
    t.api.with(|server| assert_eq!((server.own.len(), &server.own[0]["replied_to"]), (1, &json!("2"))));
    let x = connector(Platform::Twitter, &t.api.base());
    let (inbox, thread) = (x.inbox().unwrap(), ReplyThread::from(&t.only().await));
    assert!(inbox.check_text(&thread, &"x".repeat(281)).unwrap_err().contains("280"));
    assert!(inbox.rejection(&thread, t.w.now()).is_none() && inbox.check_text(&thread, "Yes.").is_ok());
}

async fn a_reply_with_a_lost_response_is_searched_and_never_sent_twice(s: TestStore) {
    let (t, found) = with_mention(s).await;
    mention(&t, "3", "8", "3", "@bakery hello");
    sync_inbox_later(&t).await;
    let other = t.conversations().await.into_iter().find(|one| one.id != found).unwrap().id;
    assert_eq!(t.reply_result(found, "Yes & no").await, "sent");
    t.reply_with_lost_response(found, "Yes & no", "/2/tweets", 503).await;
    assert_eq!(t.api.with(|server| server.own.len()), 2);
    // It never arrived, and the same text in another conversation is not mistaken for it.
    set_time(&t);
    t.reply_with_lost_call(other, "Yes & no", "/2/tweets", 503).await;
    assert_eq!(t.api.with(|server| server.own.len()), 3);
}

async fn a_reply_to_another_post_is_not_mistaken_for_it(s: TestStore) {
    let (t, found) = with_mention(s).await;
    let called_at = Some(t.w.now());
    assert_eq!(t.reply_result(found, "Thanks!").await, "sent");
    let (x, conversation) = (connector(Platform::Twitter, &t.api.base()), t.only().await);
    let own = account("42", json!({ "access_token": "old", "client_id": "id", "client_secret": "secret" }));
    // Both posts are in the same conversation.
    for (post, is_found) in [("2", true), ("3", false)] {
        let context = Map::from_iter([("post".to_owned(), json!(post))]);
        let thread = ReplyThread { context, ..ReplyThread::from(&conversation) };
        let (text, marker) = ("Thanks!".to_owned(), Marker::new());
        let reply = OutgoingReply { message_id: 1, text, thread, marker, attempt: 2, called_at };
        let result = x.inbox().unwrap().reconcile(&own, &reply).await.unwrap();
        assert_eq!(matches!(result, ReconcileResult::Matches(_)), is_found, "{post}: {result:?}");
    }
}

fn forbidden() -> ResponseTemplate {
    let detail = "You are not permitted to perform this action.";
    json(403, json!({ "title": "Forbidden", "type": "about:blank", "status": 403, "detail": detail }))
}

async fn what_x_does_not_allow_is_reported(s: TestStore) {
    let (t, found) = with_mention(s).await;
    t.api.respond_once("/2/tweets", forbidden());
    assert_eq!(t.reply_result(found, "Yes.").await, "failed: platform_rejected");
    let requested = t.api.requests_to("/mentions").len();
    t.api.respond_once("/mentions", forbidden());
    sync_inbox_later(&t).await;
    assert!(t.error().await.contains("tweet.read"), "{}", t.error().await);
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    mention(&t, "9", "7", "2", "@bakery still there?");
    sync_inbox_later(&t).await;
    assert_eq!(t.api.requests_to("/mentions").len(), requested + 1, "no request that must fail");
    sync_inbox_later(&t).await;
    assert_eq!((t.error().await.as_str(), t.only().await.unread_count), ("", 2));
}

async fn used_up_credits_make_the_account_wait(s: TestStore) {
    let (t, _) = with_mention(s).await;
    let requested = t.api.requests_to("/mentions").len();
    let capped =
        json!({ "title": "CreditsDepleted", "type": "https://api.x.com/2/problems/usage-capped", "detail": "No" });
    t.api.respond_once("/mentions", json(402, capped));
    sync_inbox_later(&t).await;
    assert!(t.error().await.contains("credits"), "{}", t.error().await);
    sync_inbox_later(&t).await;
    assert_eq!((t.api.requests_to("/mentions").len(), t.status().await), (requested + 1, AccountStatus::Active));
}

async fn an_expired_token_is_renewed(t: Test) {
    t.look().await;
    mention(&t, "2", "7", "2", "@bakery open?");
    t.api.with(|server| server.token = "other".to_owned());
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/token").len(), t.status().await), (1, 1, AccountStatus::Active));
}

async fn a_rate_limit_is_obeyed_until_its_time(t: Test) {
    t.look().await;
    mention(&t, "2", "7", "2", "@bakery open?");
    let limited = json(429, json!({ "title": "Too Many Requests", "type": "about:blank", "status": 429 }));
    let reset = (t.w.now().timestamp() + 1_981 + 4_000).to_string();
    t.api.respond_once("/mentions", limited.insert_header("x-rate-limit-reset", reset.as_str()));
    t.w.advance(1_981);
    t.sync_under_rate_limit("/mentions", 1_981, 2_500).await;
    assert_eq!(t.count().await, 1);
}
