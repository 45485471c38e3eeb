//! The inbox of Mastodon, against a server that responds as its documentation specifies.

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use crier_domain::account::AccountStatus;
use crier_domain::limits::AccountLimits;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json, parameter};
use crate::support::store::{TestStore, on_one};

on_one!(a_reply_sent_in_the_app_appears_in_its_thread);
on_one!(start =>
    mentions_become_threads_and_private_ones_a_conversation,
    a_nested_reply_belongs_to_the_thread_of_its_first_reply,
    pages_are_read_forwards_and_each_message_once,
    a_reply_has_the_visibility_and_the_person_of_what_it_replies_to,
    a_reply_with_a_lost_response_is_looked_up,
    a_reply_is_found_although_the_thread_has_a_newer_message,
    replies_with_one_text_are_told_apart,
    a_rate_limit_is_obeyed_until_its_time,
    a_failing_stream_leaves_the_other,
    a_missing_scope_is_reported_and_a_revoked_token_expires_the_account,
);

const OWN: &str = "1";

#[derive(Default)]
struct Server {
    /// Oldest first.
    notifications: Vec<Value>,
    statuses: Vec<Value>,
    sources: Vec<(String, String)>,
    keys: Vec<(String, String)>,
    is_revoked: bool,
    now: String,
}

fn person(id: &str) -> Value {
    let acct = if id == OWN { "ann".to_owned() } else { format!("vera{id}@b.example") };
    let name = if id == "2" { "Vera Vogel" } else { "" };
    json!({ "id": id, "acct": acct, "display_name": name, "avatar": "https://a.example/x.png" })
}

/// A status. `parent` contains the ids of its parent and of the parent's author.
fn status(id: &str, author: &str, text: &str, visibility: &str, parent: Option<(&str, &str)>) -> Value {
    let mentioned: Vec<Value> = parent.map(|(_, of)| person(of)).into_iter().collect();
    json!({
        "id": id, "url": format!("https://b.example/{id}"), "content": format!("<p>{text}</p>"),
        "visibility": visibility, "account": person(author), "in_reply_to_id": parent.map(|(id, _)| id),
        "in_reply_to_account_id": parent.map(|(_, of)| of), "created_at": "2026-06-09T00:00:00.000Z",
        "mentions": mentioned,
    })
}

/// Responds with the entries right after `min_id`, or the newest ones; newest first.
fn listed(all: &[Value], request: &Request) -> ResponseTemplate {
    let number = |entry: &Value| entry["id"].as_str().unwrap().parse::<i64>().unwrap();
    let limit: usize = parameter(request, "limit").unwrap().parse().unwrap();
    let mut page: Vec<&Value> = match parameter(request, "min_id") {
        Some(min) => all.iter().filter(|e| number(e) > min.parse().unwrap()).take(limit).collect(),
        None => all.iter().skip(all.len().saturating_sub(limit)).collect(),
    };
    page.reverse();
    json(200, page)
}

fn rejected(status: u16, text: &str) -> ResponseTemplate {
    json(status, json!({ "error": text }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    if server.is_revoked {
        return rejected(401, "The access token was revoked");
    }
    let path = request.url.path().to_owned();
    let id = path.trim_start_matches("/api/v1/statuses/").trim_end_matches("/source").to_owned();
    match path.as_str() {
        "/api/v1/notifications" => {
            assert_eq!(parameter(request, "types[]").as_deref(), Some("mention"));
            listed(&server.notifications, request)
        }
        "/api/v1/accounts/1/statuses" => {
            let own: Vec<Value> = server.statuses.iter().filter(|s| s["account"]["id"] == OWN).cloned().collect();
            listed(&own, request)
        }
        "/api/v1/statuses" => {
            let key = request.headers["idempotency-key"].to_str().unwrap().to_owned();
            let body: Value = request.body_json().unwrap();
            let known = server.keys.iter().find(|(of, _)| *of == key).map(|(_, id)| id.clone());
            let id = known.unwrap_or_else(|| {
                let id = (9_000 + server.keys.len()).to_string();
                let (parent, text) = (body["in_reply_to_id"].as_str().unwrap(), body["status"].as_str().unwrap());
                let mut made = status(&id, OWN, text, body["visibility"].as_str().unwrap(), Some((parent, "2")));
                made["created_at"] = json!(server.now);
                server.statuses.push(made);
                server.sources.push((id.clone(), text.to_owned()));
                server.keys.push((key, id.clone()));
                id
            });
            let made = server.statuses.iter().find(|s| s["id"] == id.as_str()).unwrap();
            json(200, made)
        }
        path if path.ends_with("/source") => {
            let text = &server.sources.iter().find(|(of, _)| *of == id).unwrap().1;
            json(200, json!({ "id": id, "text": text }))
        }
        _ => match server.statuses.iter().find(|s| s["id"] == id.as_str()) {
            Some(found) => json(200, found),
            None => rejected(404, "Record not found"),
        },
    }
}

fn text(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

async fn start(s: TestStore) -> InboxTest<Server> {
    let statuses = vec![status("100", OWN, "News", "public", None)];
    let api = FakeApi::start(Server { statuses, ..Server::default() }, respond).await;
    let secrets = json!({
        "instance": api.base(), "access_token": "token", "account_id": OWN, "client_id": "c", "client_secret": "s",
    });
    InboxTest::new(s, Platform::Mastodon, "ann@b.example", secrets, api).await
}

/// A user's status that mentions the account.
fn mention(t: &InboxTest<Server>, mut made: Value) {
    let now = text(t.w.now());
    made["created_at"] = json!(now);
    t.api.with(|server| {
        let id = (server.notifications.len() + 1).to_string();
        server.notifications.push(json!({ "id": id, "type": "mention", "created_at": now, "status": made }));
        server.statuses.push(made);
        server.now = now;
    });
}

async fn mentions_become_threads_and_private_ones_a_conversation(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "@ann Open &amp; <br>free?", "public", Some(("100", OWN))));
    mention(&t, status("102", "3", "Try @ann", "unlisted", None));
    mention(&t, status("103", "2", "psst", "direct", None));
    mention(&t, status("104", "2", "psst again", "direct", Some(("999", OWN))));
    t.api.with(|server| server.notifications.push(json!({ "id": "5", "type": "mention", "odd": true })));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let shown: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(shown, [("comment", "101", 1), ("mention", "102", 1), ("dm", "2", 2)]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: @ann Open &\nfree?"]);
    assert_eq!(
        (found[0].subject_external_id.as_deref(), found[0].participant_name.as_deref()),
        (Some("100"), Some("Vera Vogel"))
    );
    assert_eq!(
        (found[1].participant_name.as_deref(), found[2].subject_external_id.as_deref()),
        (Some("vera3@b.example"), None)
    );
}

async fn a_nested_reply_belongs_to_the_thread_of_its_first_reply(t: InboxTest<Server>) {
    t.api.with(|server| {
        server.statuses.push(status("101", "2", "first", "public", Some(("100", OWN))));
        server.statuses.push(status("102", OWN, "ours", "public", Some(("101", "2"))));
    });
    mention(&t, status("103", "2", "and then?", "public", Some(("102", OWN))));
    mention(&t, status("104", "3", "above is gone", "public", Some(("98", "4"))));
    t.look().await;
    let mut threads: Vec<_> = t.conversations().await.into_iter().map(|c| (c.thread_id, c.kind.as_str())).collect();
    threads.sort();
    assert_eq!(threads, [("101".to_owned(), "comment"), ("98".to_owned(), "mention")]);
}

async fn pages_are_read_forwards_and_each_message_once(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "first", "public", None));
    t.look().await;
    for n in 200..240 {
        mention(&t, status(&n.to_string(), "2", "again", "public", None));
    }
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, t.api.requests_to("notifications").len()), (41, 1 + 3));
    // They are older than the overlap, so they are not read again.
    t.look_after(120).await;
    let before = t.api.requests_to("notifications").len();
    t.sync_inbox_later().await;
    let last = t.api.requests_to("notifications").pop().unwrap();
    assert_eq!(t.api.requests_to("notifications").len() - before, 1);
    assert_eq!(parameter(&last, "min_id").as_deref(), Some("41"));
    assert_eq!(t.conversations().await.iter().map(|found| found.unread_count).sum::<i32>(), 41);
}

async fn a_reply_sent_in_the_app_appears_in_its_thread(s: TestStore) {
    let t = start(s).await;
    mention(&t, status("101", "2", "Open?", "public", Some(("100", OWN))));
    mention(&t, status("102", "2", "psst", "direct", None));
    let now = text(t.w.now() + TimeDelta::seconds(1));
    t.w.advance(2);
    t.api.with(|server| {
        for mut own in [
            status("103", OWN, "At seven.", "public", Some(("101", "2"))),
            status("104", OWN, "Yes?", "direct", Some(("102", "2"))),
            // A continuation of its own thread, and a status in another user's.
            status("105", OWN, "2/2", "public", Some(("100", OWN))),
            status("106", OWN, "Nice", "public", Some(("97", "4"))),
        ] {
            own["created_at"] = json!(now);
            server.statuses.push(own);
        }
    });
    t.look().await;
    let found = t.conversations_by_thread().await;
    assert_eq!(found.len(), 2);
    assert_eq!(t.texts(found[0].id).await, ["inbound: Open?", "outbound: At seven."]);
    assert_eq!(t.texts(found[1].id).await, ["inbound: psst", "outbound: Yes?"]);
    assert_eq!(found[1].reply_context["acct"], "vera2@b.example");
}

async fn a_reply_has_the_visibility_and_the_person_of_what_it_replies_to(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "psst", "direct", None));
    t.look().await;
    let found = t.only().await;
    assert_eq!(t.reply_result(found.id, "Yes?").await, "sent");
    let made: Value = t.api.requests_to("/api/v1/statuses").pop().unwrap().body_json().unwrap();
    assert_eq!(made, json!({ "status": "@vera2@b.example Yes?", "in_reply_to_id": "101", "visibility": "direct" }));
    t.sync_inbox_later().await;
    assert_eq!(t.messages(found.id).await.len(), 2, "it is not there twice");

    let mastodon = connector(Platform::Mastodon, "");
    let inbox = mastodon.inbox().unwrap();
    let thread = ReplyThread::from(&found);
    // "@vera2 " counts; the server does not.
    assert!(inbox.check_text(&thread, &"x".repeat(493)).is_ok());
    assert!(inbox.check_text(&thread, &"x".repeat(494)).unwrap_err().contains("500"));
    let limits = AccountLimits {
        software: Some("gotosocial".to_owned()),
        max_characters: Some(600),
        ..AccountLimits::default()
    };
    let thread = ReplyThread { limits: Some(limits), ..thread };
    assert!(inbox.check_text(&thread, &"x".repeat(600 - "@vera2@b.example ".len())).is_ok());
    assert!(inbox.check_text(&thread, &"x".repeat(601 - "@vera2@b.example ".len())).unwrap_err().contains("600"));
}

async fn a_reply_with_a_lost_response_is_looked_up(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "Open?", "public", Some(("100", OWN))));
    t.look().await;
    let found = t.only().await.id;
    assert_eq!(t.reply_result(found, "Yes.").await, "sent");
    t.reply_with_lost_response(found, "Yes.", "/api/v1/statuses", 503).await;
    assert_eq!(t.api.with(|server| server.keys.len()), 2, "each once");
    let ids: Vec<_> = t.messages(found).await.into_iter().filter_map(|message| message.external_id).collect();
    assert_eq!(ids, ["101", "9000", "9001"]);
    // It never arrived, and the same text of others is not mistaken for it.
    t.reply_with_lost_call(found, "Yes.", "/api/v1/statuses", 502).await;
    assert_eq!(t.api.with(|server| server.keys.len()), 3);
    // A rejection is final.
    t.api.respond_once("/api/v1/statuses", rejected(422, "Validation failed: Text character limit of 500 exceeded"));
    assert_eq!(t.reply_result(found, "No.").await, "failed: invalid_content");
}

async fn a_reply_is_found_although_the_thread_has_a_newer_message(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "Open?", "public", Some(("100", OWN))));
    t.look().await;
    let found = t.only().await.id;
    t.api.lose_response("/api/v1/statuses", 503);
    let id = t.reply(found, "Yes.").await;
    // The conversation has the context of its newest message.
    let context = json!({ "id": "102", "acct": "vera2@b.example", "visibility": "public" });
    t.w.sql(format!("UPDATE conversations SET reply_context = '{context}' WHERE id = {found}")).await;
    t.run_reply_after_timeout(id).await;
    assert_eq!((t.sent(id).await.as_str(), t.api.with(|server| server.keys.len())), ("sent", 1));
}

async fn replies_with_one_text_are_told_apart(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "Open?", "public", Some(("100", OWN))));
    mention(&t, status("102", "3", "Closed?", "public", Some(("100", OWN))));
    t.look().await;
    t.send_one_text_to_two(t.two_conversations().await, "/api/v1/statuses").await;
    let own = |status: &&Value| status["account"]["id"] == OWN && status["id"] != "100";
    let parent = |status: &Value| status["in_reply_to_id"].clone();
    let parents: Vec<Value> = t.api.with(|server| server.statuses.iter().filter(own).map(parent).collect());
    assert_eq!(parents, ["102", "101"]);
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "Open?", "public", None));
    let until = text(t.w.now() + TimeDelta::seconds(300));
    t.api.respond_once("notifications", rejected(429, "Too many").insert_header("x-ratelimit-reset", until));
    t.sync_under_rate_limit("/api", 70, 300).await;
    assert_eq!(t.count().await, 1);
}

async fn a_failing_stream_leaves_the_other(t: InboxTest<Server>) {
    mention(&t, status("101", "2", "Open?", "public", None));
    t.api.respond_once("notifications", ResponseTemplate::new(200).set_body_string("<html>"));
    t.look().await;
    assert_eq!((t.count().await, t.sync().await.failures, t.api.requests_to("accounts/1").len()), (0, 1, 1));
    t.sync_inbox_later().await;
    assert_eq!((t.count().await, t.error().await.as_str()), (1, ""));
}

async fn a_missing_scope_is_reported_and_a_revoked_token_expires_the_account(t: InboxTest<Server>) {
    t.api.respond_once("notifications", rejected(403, "This action is outside the authorized scopes"));
    t.look().await;
    assert!(t.error().await.contains("Connect it again"), "{}", t.error().await);
    assert_eq!((t.sync().await.failures, t.status().await), (0, AccountStatus::Active));
    t.api.with(|server| server.is_revoked = true);
    t.sync_inbox_later().await;
    assert_eq!(t.status().await, AccountStatus::Expired);
}
