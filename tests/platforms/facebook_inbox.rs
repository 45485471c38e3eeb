//! The inbox of Facebook pages, against a Graph API that responds as Meta documents.

use chrono::{DateTime, TimeDelta, Utc};
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
    all_pages_are_read_and_each_message_once,
    comments_and_messages_are_replied_to,
    a_message_is_replied_to_within_a_day,
    a_reply_with_a_lost_response_is_searched_and_never_sent_twice,
    what_facebook_rejects_is_reported,
    a_missing_permission_is_reported_and_leaves_the_other_stream,
    a_failing_stream_leaves_the_other_one,
    a_dead_token_expires_the_account,
    a_rate_limit_is_obeyed,
);

#[derive(Default)]
struct Server {
    /// Posts and their comments, oldest first. Replies have a `parent`.
    posts: Vec<(Value, Vec<Value>)>,
    /// Users and their messages, oldest first.
    people: Vec<(String, Vec<Value>)>,
    /// The missing permissions of the token: `comments`, `messages`, `replies`.
    lacks: &'static [&'static str],
    now: String,
}

fn limit(request: &Request) -> usize {
    parameter(request, "limit").unwrap().parse().unwrap()
}

fn conversations(server: &Server, request: &Request) -> Value {
    let wanted = parameter(request, "user_id");
    let people = server.people.iter().filter(|(id, _)| wanted.as_ref().is_none_or(|wanted| wanted == id));
    let mut all: Vec<Value> = people
        .map(|(id, messages)| {
            let newest = newest_first(&messages[messages.len().saturating_sub(20)..]);
            json!({
                "id": format!("t_{id}"),
                "updated_time": newest[0]["created_time"],
                "participants": { "data": [{ "id": id, "name": "Vera" }, { "id": "42", "name": "Bakery" }] },
                "messages": { "data": newest },
            })
        })
        .collect();
    all.sort_by_key(|one| std::cmp::Reverse(one["updated_time"].to_string()));
    let size = parameter(request, "limit").map_or(25, |limit| limit.parse().unwrap());
    paged(&all, parameter(request, "after").as_deref(), size)
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if !["page-42", "renewed"].contains(&bearer(request).as_str()) {
        return error(400, 190, Some(460), "The session has been invalidated because the user changed the password.");
    }
    assert!(parameter(request, "appsecret_proof").is_some() && !request.url.as_str().contains("page-42"));
    let rejected = |code| error(400, code, None, "(#10) This endpoint requires a permission");
    let after = parameter(request, "after");
    let is_post = request.method.as_str() == "POST";
    let path = request.url.path().strip_prefix("/v25.0/").unwrap().to_owned();
    match (path.split_once('/').unwrap(), is_post) {
        (("42", "feed"), false) if server.lacks.contains(&"comments") => rejected(10),
        (("42", "feed"), false) => {
            let since: i64 = parameter(request, "since").unwrap().parse().unwrap();
            let fields = parameter(request, "fields").unwrap();
            assert!(fields.contains("comments.filter(stream).order(reverse_chronological).limit(50){"), "{fields}");
            let is_new = |post: &Value| graph_time(&post["created_time"]).timestamp() >= since;
            let posts = server.posts.iter().rev().filter(|(post, _)| is_new(post)).map(|(post, comments)| {
                let mut post = post.clone();
                post["comments"] = paged(&newest_first(comments), None, 50);
                post
            });
            json(200, paged(&posts.collect::<Vec<_>>(), after.as_deref(), limit(request)))
        }
        (("42", "conversations"), false) if server.lacks.contains(&"messages") => rejected(200),
        (("42", "conversations"), false) => json(200, conversations(server, request)),
        ((_, "comments" | "messages"), true) if server.lacks.contains(&"replies") => rejected(200),
        ((id, "comments"), false) => {
            let of_post = server.posts.iter().find(|(post, _)| post["id"] == id).map(|(_, comments)| comments.clone());
            let all = server.posts.iter().flat_map(|(_, comments)| comments.clone());
            let below = || all.filter(|comment| comment["parent"]["id"] == id).collect();
            let found = newest_first(&of_post.unwrap_or_else(below));
            json(200, paged(&found, after.as_deref(), limit(request)))
        }
        ((id, "comments"), true) => {
            assert!(parameter(request, "fields").is_none(), "Meta makes the comment, then rejects the fields");
            let body: Value = request.body_json().unwrap();
            let (_, comments) = server.posts.iter_mut().find(|(_, all)| all.iter().any(|one| one["id"] == id)).unwrap();
            let made = json!({ "id": format!("1_9{}", comments.len()), "message": body["message"],
                "parent": { "id": id }, "from": { "id": "42", "name": "Bakery" }, "created_time": server.now });
            comments.push(made.clone());
            json(200, json!({ "id": made["id"] }))
        }
        (("42", "messages"), true) => {
            let body: Value = request.body_json().unwrap();
            assert_eq!(body["messaging_type"], "RESPONSE");
            let (_, messages) =
                server.people.iter_mut().find(|(id, _)| body["recipient"]["id"] == id.as_str()).unwrap();
            let id = format!("m_own{}", messages.len());
            messages.push(json!({ "id": id, "message": body["message"]["text"], "from": { "id": "42" },
                "created_time": server.now }));
            let sent = json!({ "recipient_id": "7", "message_id": id });
            json(200, sent)
        }
        other => panic!("no such call: {other:?}"),
    }
}

fn graph_time(time: &Value) -> DateTime<Utc> {
    DateTime::parse_from_str(time.as_str().unwrap(), "%Y-%m-%dT%H:%M:%S%z").unwrap().to_utc()
}

fn secrets(token: &str) -> Value {
    json!({ "access_token": token, "client_id": "app", "client_secret": "secret" })
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server::default(), respond).await;
    let t = InboxTest::new(s, Platform::Facebook, "42", secrets("page-42"), api).await;
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
    let now = set_time(t);
    let post = json!({ "id": id, "created_time": now, "permalink_url": format!("https://www.facebook.com/{id}") });
    t.api.with(|server| server.posts.push((post, Vec::new())));
}

fn comment(t: &Test, post: &str, id: &str, author: &str, parent: Option<&str>, text: &str) {
    let now = set_time(t);
    let mut comment = json!({ "id": id, "message": text, "created_time": now });
    if !author.is_empty() {
        comment["from"] = json!({ "id": author, "name": format!("Person {author}") });
    }
    if let Some(parent) = parent {
        comment["parent"] = json!({ "id": parent });
    }
    t.api.with(|server| server.posts.iter_mut().find(|(one, _)| one["id"] == post).unwrap().1.push(comment));
}

fn message(t: &Test, person: &str, id: &str, text: &str) {
    let message =
        json!({ "id": id, "message": text, "from": { "id": person, "name": "Vera" }, "created_time": set_time(t) });
    t.api.with(|server| match server.people.iter_mut().find(|(one, _)| one == person) {
        Some((_, messages)) => messages.push(message),
        None => server.people.push((person.to_owned(), vec![message])),
    });
}

/// Syncs when the account is due again.
async fn sync_inbox_later(t: &Test) {
    t.w.advance(331);
    set_time(t);
    t.look().await;
}

async fn comments_and_messages_arrive_in_their_threads(t: Test) {
    add_post(&t, "42_1");
    comment(&t, "42_1", "1_10", "7", None, "Open?");
    comment(&t, "42_1", "1_11", "42", Some("1_10"), "Yes.");
    comment(&t, "42_1", "1_12", "8", Some("1_10"), "Thanks");
    comment(&t, "42_1", "1_13", "", None, "From a private profile");
    message(&t, "7", "m_1", "Hello");
    t.api.with(|server| {
        let unreadable = json!({ "id": 5, "message": ["?"] });
        server.posts[0].1.push(unreadable);
        server.posts.push((json!({ "id": "../x", "created_time": server.now }), Vec::new()));
    });
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str())).collect();
    assert_eq!(threads, [("comment", "1_10"), ("comment", "1_13"), ("dm", "7")]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "outbound: Yes.", "inbound: Thanks"]);
    assert_eq!(found[0].subject_external_id.as_deref(), Some("42_1"));
    assert_eq!(found[0].subject_url.as_deref(), Some("https://www.facebook.com/42_1"));
    assert_eq!((found[1].participant_name.as_deref(), found[2].participant_name.as_deref()), (None, Some("Vera")));
    assert_eq!(t.texts(found[2].id).await, ["inbound: Hello"]);
    assert_eq!(t.error().await, "");
}

async fn all_pages_are_read_and_each_message_once(t: Test) {
    for n in 1..=30 {
        add_post(&t, &format!("42_{n}"));
    }
    for n in 0..120 {
        comment(&t, "42_1", &format!("1_{n}"), "7", None, "again");
    }
    for n in 0..30 {
        message(&t, &format!("9{n}"), &format!("m_{n}"), "Hello");
    }
    t.look().await;
    assert_eq!(
        (t.count().await, t.api.requests_to("/feed").len(), t.api.requests_to("/42_1/comments").len()),
        (150, 2, 2)
    );
    assert_eq!(t.api.requests_to("/conversations").len(), 2);
    // Only one page of posts is read now, and all once per hour. Known messages are not stored again.
    comment(&t, "42_30", "1_200", "7", None, "new");
    comment(&t, "42_1", "1_201", "7", None, "under an old post");
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/feed").len()), (151, 3));
    t.look_after(3_600).await;
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.error().await.as_str()), (152, ""));
}

async fn comments_and_messages_are_replied_to(t: Test) {
    add_post(&t, "42_1");
    comment(&t, "42_1", "1_10", "7", None, "Open?");
    comment(&t, "42_1", "1_11", "7", Some("1_10"), "And on Sunday?");
    message(&t, "7", "m_1", "Hello");
    t.look().await;
    for found in t.conversations().await {
        let id = t.reply(found.id, "At seven & <b>").await;
        assert_eq!(t.sent(id).await, "sent");
    }
    sync_inbox_later(&t).await;
    assert_eq!(t.count().await, 5, "a reply is the message that is read later");
    t.api.with(|server| {
        let made = &server.posts[0].1[2];
        assert_eq!((&made["parent"]["id"], &made["message"]), (&json!("1_10"), &json!("At seven & <b>")));
        assert_eq!((server.people[0].1.len(), &server.people[0].1[1]["message"]), (2, &json!("At seven & <b>")));
    });
}

async fn a_message_is_replied_to_within_a_day(t: Test) {
    message(&t, "7", "m_1", "Hello");
    t.look().await;
    let facebook = connector(Platform::Facebook, &t.api.base());
    let inbox = facebook.inbox().unwrap();
    let thread = ReplyThread::from(&t.only().await);
    let at = |hours| thread.last_inbound_at.unwrap() + TimeDelta::hours(hours);
    assert_eq!(inbox.rejection(&thread, at(23)), None);
    assert!(inbox.rejection(&thread, at(24)).unwrap().contains("24 hours"));
    assert!(inbox.check_text(&thread, &"x".repeat(2_001)).unwrap_err().contains("2000"));
    assert!(inbox.check_text(&thread, &"x".repeat(2_000)).is_ok());
    // Facebook may decide otherwise.
    t.api.respond_once("/messages", error(400, 10, Some(2_018_278), "outside of allowed window"));
    assert_eq!(t.reply_result(t.only().await.id, "Hi").await, "failed: platform_rejected");
}

async fn a_reply_with_a_lost_response_is_searched_and_never_sent_twice(t: Test) {
    add_post(&t, "42_1");
    comment(&t, "42_1", "1_10", "7", None, "Open?");
    message(&t, "7", "m_1", "Hello");
    t.look().await;
    for found in t.conversations().await {
        let had = t.api.with(|server| server.posts[0].1.len() + server.people[0].1.len());
        let path = if found.kind.as_str() == "dm" { "/messages" } else { "/comments" };
        assert_eq!(t.reply_result(found.id, "Yes.").await, "sent");
        t.reply_with_lost_response(found.id, "Yes.", path, 500).await;
        // It never arrived, and the same text of others is not mistaken for it.
        set_time(&t);
        t.reply_with_lost_call(found.id, "Yes.", path, 503).await;
        assert_eq!(t.api.with(|server| server.posts[0].1.len() + server.people[0].1.len()), had + 3);
    }
}

async fn what_facebook_rejects_is_reported(t: Test) {
    add_post(&t, "42_1");
    comment(&t, "42_1", "1_10", "7", None, "Open?");
    t.look().await;
    let found = t.only().await.id;
    t.api.respond_once("/comments", error(400, 100, Some(33), "Object with ID '1_10' does not exist"));
    assert_eq!(t.reply_result(found, "Yes.").await, "failed: platform_rejected");
    t.api.with(|server| server.lacks = &["replies"]);
    assert_eq!(t.reply_result(found, "Yes.").await, "failed: account");
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_missing_permission_is_reported_and_leaves_the_other_stream(t: Test) {
    add_post(&t, "42_1");
    comment(&t, "42_1", "1_10", "7", None, "Open?");
    message(&t, "7", "m_1", "Hello");
    t.api.with(|server| server.lacks = &["comments"]);
    t.look().await;
    assert_eq!(t.only().await.kind.as_str(), "dm");
    let reported = t.error().await;
    assert!(reported.contains("pages_read_user_content") && reported.contains("CRIER_FACEBOOK_SCOPES"), "{reported}");
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    sync_inbox_later(&t).await;
    assert_eq!((t.api.requests_to("/feed").len(), t.error().await), (1, reported), "no request that must fail");
    // The user grants the permission and connects again.
    t.api.with(|server| server.lacks = &["messages"]);
    t.reconnect(secrets("renewed")).await;
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/feed").len()), (2, 2));
    assert!(t.error().await.contains("pages_messaging"));
    t.api.with(|server| server.lacks = &[]);
    t.look_after(3_600).await;
    assert_eq!(t.error().await, "", "requested again after an hour");
}

async fn a_failing_stream_leaves_the_other_one(t: Test) {
    message(&t, "7", "m_1", "Hello");
    t.api.respond_once("/feed", error(500, 2, None, "Service temporarily unavailable"));
    t.look().await;
    assert_eq!((t.count().await, t.sync().await.failures), (1, 1));
    t.look_after(700).await;
    assert_eq!((t.sync().await.failures, t.error().await.as_str()), (0, ""));
}

async fn a_dead_token_expires_the_account(t: Test) {
    t.reconnect(secrets("dead")).await;
    t.look().await;
    assert_eq!((t.status().await, t.api.requests_to("/conversations").len()), (AccountStatus::Expired, 0));
}

async fn a_rate_limit_is_obeyed(t: Test) {
    message(&t, "7", "m_1", "Hello");
    t.api.respond_once("/feed", error(400, 80_001, None, "Too many calls").insert_header("retry-after", "1800"));
    t.sync_under_rate_limit("/42/", 331, 1_800).await;
    assert_eq!(t.count().await, 1);
}
