//! The comments of YouTube, against a server that responds as its documentation specifies.

use std::collections::BTreeMap;

use chrono::{DateTime, SecondsFormat, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};
use crate::support::youtube::error;

on_one!(start =>
    comments_and_their_replies_arrive,
    replies_that_do_not_come_with_their_comment_are_read,
    all_pages_are_read_and_each_message_is_stored_once,
    a_reply_goes_to_the_comment_that_begins_the_thread,
    a_reply_with_a_lost_response_is_searched,
    what_youtube_rejects_is_reported,
    a_missing_permission_is_reported,
    an_expired_token_is_renewed,
    a_used_up_quota_is_obeyed,
);

const CHANNEL: &str = "UC-own";
/// The number of replies that come with their comment.
const WITH_COMMENT: usize = 5;
/// The time after which the account is due again, in seconds.
const NEXT_SYNC: i64 = 991;

#[derive(Default)]
struct Server {
    /// The comments that begin a thread. The newest is at the end.
    threads: Vec<Value>,
    /// The replies to each, the oldest first.
    replies: BTreeMap<String, Vec<Value>>,
    token: String,
    /// The time of a reply that is sent.
    now: String,
    sent: usize,
    lacks_permission: bool,
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

fn comment(id: &str, channel: &str, body: &str, at: &str) -> Value {
    json!({ "id": id, "snippet": {
        "videoId": "dQw4w9WgXcQ",
        "textDisplay": body,
        "authorDisplayName": format!("@{channel}"),
        "authorProfileImageUrl": "https://yt3.example/x.jpg",
        "authorChannelId": { "value": channel },
        "publishedAt": at,
    } })
}

/// Returns a page of a list.
fn page(all: &[Value], request: &Request) -> ResponseTemplate {
    assert_eq!(parameter(request, "textFormat").as_deref(), Some("plainText"));
    let size: usize = parameter(request, "maxResults").unwrap().parse().unwrap();
    let from: usize = parameter(request, "pageToken").map_or(0, |token| token.parse().unwrap());
    let items: Vec<&Value> = all.iter().skip(from).take(size).collect();
    let next = (from + size < all.len()).then(|| (from + size).to_string());
    json(200, json!({ "items": items, "nextPageToken": next }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    let path = request.url.path();
    if path == "/token" {
        server.token = "new".to_owned();
        return json(200, json!({ "access_token": "new", "expires_in": 3599, "token_type": "Bearer" }));
    }
    if request.headers["authorization"] != format!("Bearer {}", server.token).as_str() {
        return error(401, "authError");
    }
    match (request.method.as_str(), path) {
        ("GET", "/youtube/v3/commentThreads") if server.lacks_permission => error(403, "insufficientPermissions"),
        ("GET", "/youtube/v3/commentThreads") => {
            assert_eq!(parameter(request, "allThreadsRelatedToChannelId").as_deref(), Some(CHANNEL));
            assert_eq!(parameter(request, "order").as_deref(), Some("time"));
            let thread = |first: &Value| {
                let id = first["id"].as_str().unwrap_or_default();
                let replies = server.replies.get(id).cloned().unwrap_or_default();
                let included: Vec<&Value> = replies.iter().take(WITH_COMMENT).collect();
                json!({
                    "id": id,
                    "snippet": {
                        "videoId": first["snippet"]["videoId"],
                        "topLevelComment": first,
                        "totalReplyCount": replies.len(),
                    },
                    "replies": { "comments": included },
                })
            };
            let threads: Vec<Value> = server.threads.iter().rev().map(thread).collect();
            page(&threads, request)
        }
        ("GET", "/youtube/v3/comments") => match server.replies.get(&parameter(request, "parentId").unwrap()) {
            Some(replies) => page(replies, request),
            None => page(&[], request),
        },
        ("POST", "/youtube/v3/comments") => {
            let snippet = request.body_json::<Value>().unwrap()["snippet"].clone();
            let parent = snippet["parentId"].as_str().unwrap().to_owned();
            server.sent += 1;
            let id = format!("{parent}.sent{}", server.sent);
            let sent = comment(&id, CHANNEL, snippet["textOriginal"].as_str().unwrap(), &server.now);
            server.replies.entry(parent).or_default().push(sent.clone());
            json(200, sent)
        }
        other => panic!("no such call: {other:?}"),
    }
}

async fn start(s: TestStore) -> InboxTest<Server> {
    let api = FakeApi::start(Server { token: "old".to_owned(), ..Server::default() }, respond).await;
    let secrets = json!({ "access_token": "old", "refresh_token": "r", "client_id": "id", "client_secret": "secret" });
    InboxTest::new(s, Platform::Youtube, CHANNEL, secrets, api).await
}

fn add_comment(t: &InboxTest<Server>, id: &str, body: &str) {
    let now = text(t.w.now());
    t.api.with(|server| server.threads.push(comment(id, "vera", body, &now)));
}

fn add_reply(t: &InboxTest<Server>, thread: &str, id: &str, channel: &str, body: &str) {
    let now = text(t.w.now());
    let reply = comment(id, channel, body, &now);
    t.api.with(|server| server.replies.entry(thread.to_owned()).or_default().push(reply));
}

async fn comments_and_their_replies_arrive(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.w.advance(5);
    add_reply(&t, "Ugx1", "Ugx1.1", CHANNEL, "Rye.");
    t.api.with(|server| server.threads.push(json!({ "odd": true })));
    t.look().await;
    let found = t.only().await;
    assert_eq!((found.kind.as_str(), found.thread_id.as_str(), found.unread_count), ("comment", "Ugx1", 1));
    assert_eq!(t.texts(found.id).await, ["inbound: Which flour?", "outbound: Rye."]);
    assert_eq!(found.participant_username.as_deref(), Some("vera"));
    assert_eq!(found.subject_url.as_deref(), Some("https://www.youtube.com/watch?v=dQw4w9WgXcQ"));
    assert_eq!(t.error().await, "");
}

async fn replies_that_do_not_come_with_their_comment_are_read(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    for n in 1..=WITH_COMMENT + 3 {
        add_reply(&t, "Ugx1", &format!("Ugx1.{n}"), "ann", &format!("Reply {n}"));
    }
    t.look().await;
    assert_eq!(t.count().await, 9);
    assert_eq!(t.api.requests_to("/comments").len(), 1);
    // They are read again, and each is stored once.
    t.look_after(7_200).await;
    assert_eq!(t.count().await, 9);
}

async fn all_pages_are_read_and_each_message_is_stored_once(t: InboxTest<Server>) {
    for n in 0..250 {
        add_comment(&t, &format!("Ugx{n}"), "again");
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/commentThreads").len()), (250, 3));
    t.w.advance(900);
    add_comment(&t, "Ugx250", "more");
    t.look_after(NEXT_SYNC).await;
    t.look_after(NEXT_SYNC).await;
    assert_eq!(t.count().await, 251);
}

async fn a_reply_goes_to_the_comment_that_begins_the_thread(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.reply_result(found.id, "Rye.").await, "sent");
    let calls = t.api.requests_to("/comments");
    let sent: Value = calls.iter().find(|call| call.method == "POST").unwrap().body_json().unwrap();
    assert_eq!(sent, json!({ "snippet": { "parentId": "Ugx1", "textOriginal": "Rye." } }));
    let youtube = connector(Platform::Youtube, "");
    let (inbox, thread) = (youtube.inbox().unwrap(), ReplyThread::from(&found));
    assert!(inbox.check_text(&thread, &"x".repeat(10_000)).is_ok());
    assert!(inbox.check_text(&thread, &"x".repeat(10_001)).unwrap_err().contains("10000"));
}

async fn a_reply_with_a_lost_response_is_searched(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.look().await;
    let found = t.only().await.id;
    let now = text(t.w.now());
    t.api.with(|server| server.now = now);
    t.reply_with_lost_response(found, "Rye.", "/comments", 503).await;
    assert_eq!(t.api.with(|server| server.sent), 1);
    // A reply that never arrived is sent again.
    let now = text(t.w.now());
    t.api.with(|server| server.now = now);
    t.reply_with_lost_call(found, "And water.", "/comments", 503).await;
    assert_eq!(t.api.with(|server| server.sent), 2);
}

async fn what_youtube_rejects_is_reported(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.look().await;
    let found = t.only().await.id;
    for (response, category) in [
        (error(404, "parentCommentNotFound"), "platform_rejected"),
        (error(403, "insufficientPermissions"), "account"),
        (error(400, "commentTextTooLong"), "invalid_content"),
    ] {
        t.api.respond_once("/comments", response);
        assert_eq!(t.reply_result(found, "Rye.").await, format!("failed: {category}"));
    }
    assert_eq!(t.api.with(|server| server.sent), 0);
}

async fn a_missing_permission_is_reported(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.api.with(|server| server.lacks_permission = true);
    t.look().await;
    let reported = t.error().await;
    assert!(reported.contains("youtube.force-ssl") && reported.contains("Connect the account again"), "{reported}");
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    t.look_after(NEXT_SYNC).await;
    assert_eq!(t.api.requests_to("/commentThreads").len(), 1, "no request that must fail");
    t.api.with(|server| server.lacks_permission = false);
    t.look_after(3_600).await;
    assert_eq!((t.count().await, t.error().await.as_str()), (1, ""));
}

async fn an_expired_token_is_renewed(t: InboxTest<Server>) {
    t.api.with(|server| server.token = "other".to_owned());
    add_comment(&t, "Ugx1", "Which flour?");
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/token").len()), (1, 1));
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_used_up_quota_is_obeyed(t: InboxTest<Server>) {
    add_comment(&t, "Ugx1", "Which flour?");
    t.api.respond_once("/commentThreads", error(403, "quotaExceeded"));
    t.sync_under_rate_limit("/commentThreads", NEXT_SYNC, 90_000).await;
    assert_eq!(t.count().await, 1);
}
