//! The inbox of Instagram, against an API that responds as Meta documents.

use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::facebook::error;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::meta_inbox::{newest_first, paged};
use crate::support::oauth::bearer;
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    comments_and_messages_arrive_in_their_threads,
    all_pages_and_replies_are_read_and_each_once,
    busy_posts_are_read_completely,
    a_comment_is_replied_to_and_a_message_is_not,
    a_reply_with_a_lost_response_is_searched_and_never_sent_twice,
    a_missing_permission_is_reported_by_its_name_for_the_login,
    an_expired_token_expires_the_account,
    a_rate_limit_is_obeyed,
);

/// A comment with its replies.
type RepliedComment = (Value, Vec<Value>);

#[derive(Default)]
struct Server {
    /// Posts and their comments, oldest first.
    posts: Vec<(Value, Vec<RepliedComment>)>,
    conversations: Vec<Value>,
    /// The missing permissions of the token: `comments`, `messages`.
    lacks: &'static [&'static str],
    now: String,
}

fn comment_json(comment: &RepliedComment) -> Value {
    let (mut comment, replies) = comment.clone();
    if !replies.is_empty() {
        comment["replies"] = paged(&replies, None, 10);
    }
    comment
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if bearer(request) != "t" {
        return error(400, 190, Some(463), "Session has expired");
    }
    let after = parameter(request, "after");
    let limit = || parameter(request, "limit").unwrap().parse().unwrap();
    let path = request.url.path().strip_prefix("/v25.0/").unwrap().to_owned();
    match (path.split_once('/').unwrap(), request.method.as_str()) {
        (("1784" | "me", "media"), _) if server.lacks.contains(&"comments") => error(400, 10, None, "(#10) no"),
        (("me", "conversations"), _) if server.lacks.contains(&"messages") => error(400, 3, None, "(#3) no"),
        (("1784", "media"), "GET") => {
            let posts = server.posts.iter().rev().map(|(post, comments)| {
                let all: Vec<Value> = comments.iter().rev().map(comment_json).collect();
                let mut post = post.clone();
                post["comments"] = paged(&all, None, 25);
                post
            });
            json(200, paged(&posts.collect::<Vec<_>>(), after.as_deref(), limit()))
        }
        ((id, "comments"), "GET") => {
            let (_, comments) = server.posts.iter().find(|(post, _)| post["id"] == id).unwrap();
            let all: Vec<Value> = comments.iter().rev().map(comment_json).collect();
            json(200, paged(&all, after.as_deref(), limit()))
        }
        ((id, "replies"), method) => {
            let mut comments = server.posts.iter_mut().flat_map(|(_, comments)| comments);
            let (_, replies) = comments.find(|(comment, _)| comment["id"] == id).unwrap();
            if method == "GET" {
                return json(200, paged(replies, after.as_deref(), limit()));
            }
            let body: Value = request.body_json().unwrap();
            let made = json!({ "id": format!("99{}", replies.len()), "text": body["message"], "username": "bakery",
                "timestamp": server.now });
            replies.push(made.clone());
            json(200, json!({ "id": made["id"] }))
        }
        (("me", "conversations"), "GET") => {
            assert_eq!(parameter(request, "platform").as_deref(), Some("instagram"));
            json(200, paged(&newest_first(&server.conversations), after.as_deref(), limit()))
        }
        other => panic!("no such call: {other:?}"),
    }
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server::default(), respond).await;
    let secrets = json!({ "access_token": "t", "client_id": "app", "client_secret": "secret" });
    let t = InboxTest::new(s, Platform::Instagram, "1784", secrets, api).await;
    t.set_username("Bakery").await;
    set_time(&t);
    t
}

/// Sets the server's time to the test's.
fn set_time(t: &Test) -> String {
    let now = t.w.now().format("%Y-%m-%dT%H:%M:%S+0000").to_string();
    t.api.with(|server| server.now.clone_from(&now));
    now
}

fn add_post(t: &Test, id: &str) {
    let post = json!({ "id": id, "timestamp": set_time(t), "permalink": format!("https://www.instagram.com/p/{id}/") });
    t.api.with(|server| server.posts.push((post, Vec::new())));
}

fn comment(t: &Test, post: &str, id: &str, text: &str) {
    let comment = json!({ "id": id, "text": text, "timestamp": set_time(t), "username": "vera",
        "from": { "id": "7", "username": "vera" } });
    t.api.with(|server| {
        server.posts.iter_mut().find(|(one, _)| one["id"] == post).unwrap().1.push((comment, Vec::new()));
    });
}

fn add_reply(t: &Test, comment: &str, id: &str, author: &str, text: &str) {
    let reply = json!({ "id": id, "text": text, "timestamp": set_time(t), "username": author });
    t.api.with(|server| {
        let mut all = server.posts.iter_mut().flat_map(|(_, comments)| comments);
        all.find(|(one, _)| one["id"] == comment).unwrap().1.push(reply);
    });
}

fn message(t: &Test, id: &str, text: &str) {
    let (now, own) = (set_time(t), json!({ "id": "55", "username": "bakery" }));
    let conversation = json!({
        "id": "c", "updated_time": now,
        "participants": { "data": [own, { "id": "7", "username": "vera" }] },
        "messages": { "data": [
            { "id": format!("{id}-own"), "message": "Hi", "created_time": now, "from": own },
            { "id": id, "message": text, "created_time": now, "from": { "id": "7", "username": "vera" } },
        ] },
    });
    t.api.with(|server| server.conversations.push(conversation));
}

/// Syncs when the account is due again.
async fn sync_inbox_later(t: &Test) {
    t.w.advance(331);
    set_time(t);
    t.look().await;
}

async fn comments_and_messages_arrive_in_their_threads(t: Test) {
    add_post(&t, "17900");
    comment(&t, "17900", "10", "Open?");
    add_reply(&t, "10", "11", "bakery", "Yes.");
    add_reply(&t, "10", "12", "bob", "Thanks");
    message(&t, "m1", "Hello");
    t.api.with(|server| server.posts.push((json!({ "id": "../x", "comments": 3 }), Vec::new())));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str())).collect();
    assert_eq!(threads, [("comment", "10"), ("dm", "7")]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "outbound: Yes.", "inbound: Thanks"]);
    assert_eq!(found[0].subject_url.as_deref(), Some("https://www.instagram.com/p/17900/"));
    let mut texts = t.texts(found[1].id).await;
    texts.sort();
    assert_eq!(texts, ["inbound: Hello", "outbound: Hi"]);
    assert_eq!((found[1].participant_username.as_deref(), t.error().await.as_str()), (Some("vera"), ""));
}

async fn all_pages_and_replies_are_read_and_each_once(t: Test) {
    for n in 1..=30 {
        add_post(&t, &format!("179{n}"));
    }
    for n in 0..60 {
        comment(&t, "1791", &format!("10{n}"), "again");
    }
    for n in 0..40 {
        add_reply(&t, "1059", &format!("20{n}"), "bob", "below");
    }
    t.look().await;
    assert_eq!(
        (t.count().await, t.api.requests_to("/media").len(), t.api.requests_to("/1791/comments").len()),
        (100, 2, 2)
    );
    assert_eq!(t.api.requests_to("/1059/replies").len(), 2);
    comment(&t, "17930", "300", "new");
    sync_inbox_later(&t).await;
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/media").len(), t.error().await.as_str()), (101, 4, ""));
}

/// One response contains all of them.
async fn busy_posts_are_read_completely(t: Test) {
    let now = set_time(&t);
    let comment = |id: String| json!({ "id": id, "text": "Yum", "timestamp": now, "username": "vera" });
    for post in 10..35 {
        let replies = |n: i32| (10..20).map(|reply| comment(format!("2{post}{n}{reply}"))).collect::<Vec<Value>>();
        let comments: Vec<RepliedComment> = (10..15).map(|n| (comment(format!("1{post}{n}")), replies(n))).collect();
        t.api.with(|server| server.posts.push((json!({ "id": format!("179{post}"), "timestamp": now }), comments)));
    }
    t.look().await;
    assert_eq!((t.count().await, t.error().await.as_str(), t.api.requests_to("/media").len()), (25 * 5 * 11, "", 1));
}

async fn a_comment_is_replied_to_and_a_message_is_not(t: Test) {
    add_post(&t, "17900");
    comment(&t, "17900", "10", "Open?");
    message(&t, "m1", "Hello");
    t.look().await;
    let instagram = connector(Platform::Instagram, &t.api.base());
    for found in t.conversations().await {
        let thread = ReplyThread::from(&found);
        let rejection = instagram.inbox().unwrap().rejection(&thread, t.w.now());
        assert_eq!(rejection.is_some(), found.kind.as_str() == "dm");
        let result = t.reply_result(found.id, "At seven & <b>").await;
        assert!(result.starts_with(if rejection.is_some() { "failed" } else { "sent" }), "{result}");
    }
    sync_inbox_later(&t).await;
    assert_eq!(
        (t.count().await, t.api.requests_to("/messages").len()),
        (5, 0),
        "a reply is the message that is read later"
    );
    t.api.with(|server| assert_eq!(server.posts[0].1[0].1[0]["text"], "At seven & <b>"));
    t.api.respond_once("/replies", error(400, 100, Some(33), "Object does not exist"));
    let found = t.conversations().await.into_iter().find(|one| one.kind.as_str() == "comment").unwrap();
    assert_eq!(t.reply_result(found.id, "Yes.").await, "failed: platform_rejected");
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_reply_with_a_lost_response_is_searched_and_never_sent_twice(t: Test) {
    add_post(&t, "17900");
    comment(&t, "17900", "10", "Open?");
    for n in 0..60 {
        add_reply(&t, "10", &format!("20{n}"), "vera", "Yes.");
    }
    t.look().await;
    let found = t.only().await.id;
    assert_eq!(t.reply_result(found, "Yes.").await, "sent");
    t.reply_with_lost_response(found, "Yes.", "/replies", 500).await;
    set_time(&t);
    t.reply_with_lost_call(found, "Yes.", "/replies", 503).await;
    assert_eq!(t.api.with(|server| server.posts[0].1[0].1.len()), 63);
    // With more replies than are searched, the result is unknown and a user decides.
    for n in 0..200 {
        add_reply(&t, "10", &format!("30{n}"), "vera", "More");
    }
    t.api.respond_once("/replies", ResponseTemplate::new(503));
    let fourth = t.reply(found, "No.").await;
    t.run_reply_after_timeout(fourth).await;
    assert_eq!(t.sent(fourth).await, "failed: outcome_unknown");
}

async fn a_missing_permission_is_reported_by_its_name_for_the_login(t: Test) {
    message(&t, "m1", "Hello");
    t.api.with(|server| server.lacks = &["comments"]);
    t.look().await;
    assert_eq!((t.only().await.kind.as_str(), t.sync().await.failures), ("dm", 0));
    let reported = t.error().await;
    assert!(
        reported.contains("instagram_business_manage_comments") && reported.contains("CRIER_INSTAGRAM_SCOPES"),
        "{reported}"
    );
    sync_inbox_later(&t).await;
    assert_eq!((t.api.requests_to("/media").len(), t.error().await), (1, reported), "no request that must fail");
    t.api.with(|server| server.lacks = &["messages"]);
    t.look_after(3_600).await;
    assert!(t.error().await.contains("instagram_business_manage_messages"));
    assert_eq!((t.api.requests_to("/media").len(), t.status().await), (2, AccountStatus::Active));
}

async fn an_expired_token_expires_the_account(t: Test) {
    t.reconnect(json!({ "access_token": "old", "client_id": "app", "client_secret": "secret" })).await;
    t.look().await;
    assert_eq!((t.status().await, t.api.requests_to("/conversations").len()), (AccountStatus::Expired, 0));
}

async fn a_rate_limit_is_obeyed(t: Test) {
    message(&t, "m1", "Hello");
    t.api.respond_once(
        "/media",
        error(400, 4, None, "Application request limit reached").insert_header("retry-after", "1800"),
    );
    t.sync_under_rate_limit("/v25.0/", 331, 1_800).await;
    assert_eq!(t.count().await, 2);
}
