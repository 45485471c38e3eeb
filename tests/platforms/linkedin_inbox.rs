//! The inbox of LinkedIn pages, against an API that responds as LinkedIn documents: comments in no order, and authors
//! without names.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};

on_one!(of_a_person_nothing_is_read);
on_one!(start =>
    comments_and_their_replies_become_threads,
    all_pages_are_read_and_each_comment_once,
    an_edit_is_followed,
    an_older_post_is_read_within_the_hour,
    a_comment_is_replied_to_below_the_one_that_begins_the_thread,
    a_reply_with_a_lost_response_is_searched_and_never_sent_twice,
    what_linkedin_rejects_is_reported,
    a_missing_permission_is_reported_and_requested_again,
    a_post_that_is_gone_or_hidden_leaves_the_others,
    an_ended_version_pauses_the_account,
    a_limit_of_the_day_is_obeyed,
    a_dead_token_expires_the_account,
);

const PAGE: &str = "urn:li:organization:7";
const VERA: &str = "urn:li:person:vera";

#[derive(Default)]
struct Server {
    /// Their numbers and times, oldest first.
    posts: Vec<(u32, DateTime<Utc>)>,
    /// In any order.
    comments: Vec<Value>,
    /// The missing permissions of the token: `read`, `reply`.
    lacks: &'static [&'static str],
    /// Posts that are hidden, and posts that were deleted.
    hidden: Vec<u32>,
    gone: Vec<u32>,
    /// Whether the server omits the total of comments and the number of replies to each.
    is_terse: bool,
    now: DateTime<Utc>,
}

fn share(number: u32) -> String {
    format!("urn:li:share:{number}")
}

fn activity(number: u32) -> String {
    format!("urn:li:activity:10{number}")
}

fn urn(post: u32, comment: u32) -> String {
    format!("urn:li:comment:({},{comment})", activity(post))
}

fn rejected(status: u16, code: Option<i64>, message: &str) -> ResponseTemplate {
    json(status, json!({ "status": status, "serviceErrorCode": code, "message": message }))
}

fn not_permitted() -> ResponseTemplate {
    rejected(403, Some(100), "Not enough permissions to access: socialActions.GET_ALL")
}

/// Responds with a page of a list and its position.
fn paged(all: &[Value], request: &Request, max: usize, has_total: bool) -> ResponseTemplate {
    let number = |name: &str| parameter(request, name).unwrap().parse::<usize>().unwrap();
    let (start, count) = (number("start"), number("count").min(max));
    let end = (start + count).min(all.len());
    let mut paging = json!({ "start": start, "count": count, "links": [] });
    if has_total {
        paging["total"] = json!(all.len());
    } else if end < all.len() {
        paging["links"] = json!([{ "rel": "next", "type": "application/json", "href": "/rest/x?start=1" }]);
    }
    json(200, json!({ "elements": all.get(start..end).unwrap_or_default(), "paging": paging }))
}

fn comments(server: &Server, request: &Request, target: &str) -> ResponseTemplate {
    let is_of = |number: &&u32| target == share(**number);
    if server.gone.iter().any(|number| is_of(&number)) {
        return rejected(404, Some(0), "Could not find entity");
    }
    if server.hidden.iter().any(|number| is_of(&number)) {
        return rejected(403, None, "member is unauthorized on urn:li:activity:1");
    }
    let post = server.posts.iter().find(|(number, _)| is_of(&number)).map(|(number, _)| activity(*number));
    let below = |parent: &str| server.comments.iter().filter(|one| one["parentComment"] == parent).count();
    let is_wanted = |one: &&Value| match &post {
        Some(activity) => one["object"] == activity.as_str() && one["parentComment"].is_null(),
        None => one["parentComment"] == target,
    };
    let wanted = server.comments.iter().filter(is_wanted).cloned().map(|mut one| {
        if !server.is_terse {
            let count = below(one["commentUrn"].as_str().unwrap_or_default());
            one["commentsSummary"] = json!({ "aggregatedTotalComments": count });
        }
        one
    });
    paged(&wanted.collect::<Vec<_>>(), request, if server.is_terse { 10 } else { 100 }, !server.is_terse)
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    let token = request.headers["authorization"].to_str().unwrap();
    if !["Bearer access-0", "Bearer access-1"].contains(&token) {
        return rejected(401, Some(65_602), "The token has expired");
    }
    assert_eq!(request.headers["linkedin-version"], "202607");
    let signs = [("%3A", ":"), ("%28", "("), ("%29", ")"), ("%2C", ",")];
    let path = signs.iter().fold(request.url.path().to_owned(), |path, (code, sign)| path.replace(code, sign));
    if path == "/rest/posts" {
        assert_eq!(request.headers["x-restli-method"], "FINDER");
        let wanted = [("q", "author"), ("author", PAGE), ("sortBy", "CREATED")];
        assert!(wanted.iter().all(|(name, value)| parameter(request, name).as_deref() == Some(*value)));
        let post = |(number, at): &(u32, DateTime<Utc>)| {
            json!({ "id": share(*number), "author": PAGE, "createdAt": at.timestamp_millis(),
                "publishedAt": at.timestamp_millis(), "lifecycleState": "PUBLISHED", "commentary": "x" })
        };
        let newest: Vec<Value> = server.posts.iter().rev().map(post).collect();
        return paged(&newest, request, 100, false);
    }
    let target = path.strip_prefix("/rest/socialActions/").unwrap().strip_suffix("/comments").unwrap();
    assert!(!request.url.path().contains("urn:"), "a URN in an address is encoded");
    if request.method == "GET" {
        return if server.lacks.contains(&"read") { not_permitted() } else { comments(server, request, target) };
    }
    if server.lacks.contains(&"reply") {
        return not_permitted();
    }
    let body: Value = request.body_json().unwrap();
    assert_eq!((body["parentComment"].as_str(), &body["actor"]), (Some(target), &json!(PAGE)));
    let Some(parent) = server.comments.iter().find(|one| one["commentUrn"] == target).cloned() else {
        return rejected(404, Some(0), "Could not find entity");
    };
    assert_eq!(body["object"], parent["object"]);
    let number = 900 + server.comments.len();
    let urn = format!("urn:li:comment:({},{number})", parent["object"].as_str().unwrap());
    let made = json!({ "actor": PAGE, "commentUrn": urn, "id": number.to_string(), "object": parent["object"],
        "parentComment": target, "message": { "attributes": [], "text": body["message"]["text"] },
        "created": { "actor": VERA, "time": server.now.timestamp_millis() } });
    server.comments.push(made);
    ResponseTemplate::new(201).insert_header("x-restli-id", number.to_string())
}

fn secrets(token: &str) -> Value {
    json!({ "access_token": token, "client_id": "id", "client_secret": "secret" })
}

type Test = InboxTest<Server>;

async fn start(s: TestStore) -> Test {
    let api = FakeApi::start(Server::default(), respond).await;
    let t = InboxTest::new(s, Platform::Linkedin, PAGE, secrets("access-0"), api).await;
    set_time(&t);
    t
}

fn set_time(t: &Test) -> DateTime<Utc> {
    let now = t.w.now();
    t.api.with(|server| server.now = now);
    now
}

fn add_post(t: &Test, number: u32) {
    let now = set_time(t);
    t.api.with(|server| server.posts.push((number, now)));
}

fn comment_of(t: &Test, post: u32, number: u32, parent: Option<u32>, text: &str) -> Value {
    let at = set_time(t).timestamp_millis();
    let mut made = json!({
        "actor": VERA, "commentUrn": urn(post, number), "id": number.to_string(), "object": activity(post),
        "message": { "attributes": [], "text": text }, "created": { "actor": VERA, "time": at },
        "lastModified": { "actor": VERA, "time": at },
    });
    if let Some(parent) = parent {
        made["parentComment"] = json!(urn(post, parent));
    }
    made
}

fn comment(t: &Test, post: u32, number: u32, parent: Option<u32>, text: &str) {
    let made = comment_of(t, post, number, parent, text);
    // The newest is sometimes first and sometimes last.
    t.api.with(|server| match number % 2 {
        0 => server.comments.push(made),
        _ => server.comments.insert(0, made),
    });
}

/// Syncs when the account is due again.
async fn sync_inbox_later(t: &Test) {
    t.w.advance(2_000);
    set_time(t);
    t.look().await;
}

async fn comments_and_their_replies_become_threads(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    t.w.advance(1);
    comment(&t, 1, 11, Some(10), "Yes.");
    t.w.advance(1);
    comment(&t, 1, 12, Some(10), "Thanks");
    comment(&t, 1, 13, None, "From an author who is not shown");
    t.api.with(|server| {
        for one in &mut server.comments {
            match one["id"].as_str() {
                Some("11") => one["actor"] = json!(PAGE),
                // An older application gets no author and no URN.
                Some("13") => {
                    one.as_object_mut().unwrap().retain(|name, _| name != "actor" && name != "commentUrn");
                }
                _ => {}
            }
        }
        let unreadable = json!({ "object": activity(1), "id": 5, "message": ["?"] });
        let unsafe_urn = json!({ "object": activity(1), "commentUrn": "urn:li:comment:(urn:li:activity:1,2)/../x",
            "id": "a/b", "message": { "text": "?" }, "created": { "time": 1 } });
        server.comments.extend([unreadable, unsafe_urn]);
    });
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(threads, [("comment", urn(1, 10).as_str(), 2), ("comment", urn(1, 13).as_str(), 1)]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "outbound: Yes.", "inbound: Thanks"]);
    assert_eq!(found[0].subject_external_id.as_deref(), Some("urn:li:share:1"));
    assert_eq!(found[0].subject_url.as_deref(), Some("https://www.linkedin.com/feed/update/urn:li:share:1"));
    assert_eq!((found[0].participant_external_id.as_deref(), &found[0].participant_name), (Some(VERA), &None));
    assert_eq!((&found[1].participant_external_id, t.error().await.as_str()), (&None, ""));
    // No replies are requested for comments that have none.
    assert!(t.api.requests_to("comment").iter().all(|request| !request.url.path().contains("%2C13")));
}

async fn all_pages_are_read_and_each_comment_once(t: Test) {
    for number in 1..=25 {
        add_post(&t, number);
    }
    for n in 0..45 {
        comment(&t, 3, 1_000 + n, None, "again");
    }
    for n in 0..25 {
        comment(&t, 3, 2_000 + n, Some(1_002), "below");
    }
    t.look().await;
    assert_eq!((t.count().await, t.api.requests_to("/rest/posts").len(), t.error().await.as_str()), (70, 3, ""));
    assert_eq!(t.w.count_rows("conversations").await, 45);
    let before = t.api.requests_to("/rest/").len();
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.api.requests_to("/rest/").len() - before), (70, 11), "now the newest posts alone");
    // A server that returns no totals, and fewer entries than requested.
    t.api.with(|server| server.is_terse = true);
    comment(&t, 25, 3_000, None, "new");
    for n in 0..12 {
        comment(&t, 25, 4_000 + n, Some(3_000), "below");
    }
    sync_inbox_later(&t).await;
    assert_eq!((t.count().await, t.error().await.as_str()), (83, ""));
}

async fn an_edit_is_followed(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Opne?");
    t.look().await;
    t.w.advance(86_400);
    let now = set_time(&t);
    t.api.with(|server| {
        server.comments[0]["message"]["text"] = json!("Open?");
        server.comments[0]["lastModified"]["time"] = json!(now.timestamp_millis());
    });
    t.look().await;
    assert_eq!(t.texts(t.only().await.id).await, ["inbound: Open?"]);
    assert_eq!(t.only().await.unread_count, 1);
}

async fn an_older_post_is_read_within_the_hour(t: Test) {
    add_post(&t, 1);
    t.w.advance(20 * 86_400);
    for number in 2..=14 {
        add_post(&t, number);
    }
    t.look().await;
    sync_inbox_later(&t).await;
    comment(&t, 1, 10, None, "Still open?");
    comment(&t, 14, 11, None, "Open?");
    t.look_after(2_000).await;
    assert_eq!(t.count().await, 2, "the hour is over");
    comment(&t, 1, 12, None, "Hello?");
    sync_inbox_later(&t).await;
    assert_eq!(t.count().await, 2);
    sync_inbox_later(&t).await;
    assert_eq!(t.count().await, 3);
    // Older posts are not read.
    t.w.advance(11 * 86_400);
    let before = t.api.requests_to("share%3A1/").len();
    t.look().await;
    assert_eq!(t.api.requests_to("share%3A1/").len(), before);
}

async fn a_comment_is_replied_to_below_the_one_that_begins_the_thread(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    comment(&t, 1, 12, Some(10), "And on Sunday?");
    t.look().await;
    assert_eq!(t.reply_result(t.only().await.id, "At seven (sharp) & <b>").await, "sent");
    let posted: Vec<Value> = t
        .api
        .requests_to("/comments")
        .iter()
        .filter(|request| request.method == "POST")
        .map(|request| request.body_json().unwrap())
        .collect();
    let text = "At seven (sharp) & <b>";
    let expected = json!({ "actor": PAGE, "object": activity(1), "parentComment": urn(1, 10),
        "message": { "text": text } });
    assert_eq!(posted, [expected], "the text is plain");
    sync_inbox_later(&t).await;
    assert_eq!(t.count().await, 3, "a reply is the comment that is read later");
}

async fn a_reply_with_a_lost_response_is_searched_and_never_sent_twice(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    t.look().await;
    let found = t.only().await.id;
    assert_eq!(t.reply_result(found, "Yes.").await, "sent");
    t.reply_with_lost_response(found, "Yes.", "/comments", 504).await;
    // It never arrived, and the same text of others is not mistaken for it.
    set_time(&t);
    t.reply_with_lost_call(found, "Yes.", "/comments", 503).await;
    assert_eq!(t.api.with(|server| server.comments.len()), 4);
}

async fn what_linkedin_rejects_is_reported(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    t.look().await;
    let found = t.only().await;
    let linkedin = connector(Platform::Linkedin, &t.api.base());
    let (inbox, thread) = (linkedin.inbox().unwrap(), ReplyThread::from(&found));
    assert!(inbox.check_text(&thread, &"x".repeat(1_250)).is_ok());
    assert!(inbox.check_text(&thread, &"x".repeat(1_251)).unwrap_err().contains("1250"));
    t.api.with(|server| server.lacks = &["reply"]);
    assert_eq!(t.reply_result(found.id, "Yes.").await, "failed: account");
    t.api.with(|server| {
        server.lacks = &[];
        server.comments.clear();
    });
    assert_eq!(t.reply_result(found.id, "Yes.").await, "failed: platform_rejected");
    assert_eq!(t.status().await, AccountStatus::Active);
}

async fn a_missing_permission_is_reported_and_requested_again(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    t.api.with(|server| server.lacks = &["read"]);
    t.look().await;
    let reported = t.error().await;
    assert!(
        reported.contains("r_organization_social_feed") && reported.contains("CRIER_LINKEDIN_PAGE_SCOPES"),
        "{reported}"
    );
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    sync_inbox_later(&t).await;
    assert_eq!((t.api.requests_to("/rest/").len(), t.error().await), (2, reported), "no request that must fail");
    t.api.with(|server| server.lacks = &[]);
    t.reconnect(secrets("access-1")).await;
    t.look().await;
    assert_eq!((t.count().await, t.error().await.as_str()), (1, ""));
}

async fn a_post_that_is_gone_or_hidden_leaves_the_others(t: Test) {
    for number in 1..=3 {
        add_post(&t, number);
        comment(&t, number, 10 * number, None, "Open?");
    }
    t.api.with(|server| (server.hidden, server.gone) = (vec![3], vec![2]));
    t.look().await;
    assert_eq!((t.count().await, t.sync().await.failures), (1, 0));
    assert!(t.error().await.contains("member is unauthorized"), "{}", t.error().await);
}

async fn of_a_person_nothing_is_read(s: TestStore) {
    let api = FakeApi::start(Server::default(), respond).await;
    let t = InboxTest::new(s, Platform::Linkedin, "782bbtaQ", secrets("access-0"), api).await;
    t.look().await;
    assert_eq!((t.sync().await.next_sync_at, t.error().await.as_str()), (None, ""));
    t.look_after(10_000).await;
    assert_eq!(t.w.count_rows("jobs WHERE kind = 'sync_inbox'").await, 1);
    assert!(t.api.requests_to("/").is_empty());
}

async fn an_ended_version_pauses_the_account(t: Test) {
    t.api.respond_once("/rest/posts", rejected(426, None, "Requested version 20260701 is not active"));
    t.look().await;
    assert!(t.error().await.contains("CRIER_LINKEDIN_API_VERSION"), "{}", t.error().await);
    let next = t.sync().await.next_sync_at.unwrap() - t.w.now();
    assert!(next >= TimeDelta::hours(6), "{next}");
}

async fn a_limit_of_the_day_is_obeyed(t: Test) {
    add_post(&t, 1);
    comment(&t, 1, 10, None, "Open?");
    t.api.respond_once("/comments", rejected(429, Some(101), "Resource level throttle APPLICATION DAY limit"));
    t.sync_under_rate_limit("/comments", 2_000, 86_400).await;
    assert_eq!((t.count().await, t.error().await.as_str()), (1, ""));
}

async fn a_dead_token_expires_the_account(t: Test) {
    t.reconnect(secrets("dead")).await;
    t.look().await;
    assert_eq!(t.status().await, AccountStatus::Expired);
}
