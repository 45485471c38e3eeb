//! The inbox of Telegram, against a server that responds like the Bot API.

use crier_domain::account::AccountStatus;
use crier_domain::platform::Platform;
use crier_platforms::inbox::ReplyThread;
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::connector;
use crate::support::inbox::{FakeApi, InboxTest, json};
use crate::support::store::{TestStore, on_one};

on_one!(start =>
    private_chats_and_comments_arrive,
    updates_are_deleted_only_after_they_were_stored,
    a_full_page_is_followed_by_the_next_one,
    an_edit_is_followed,
    a_reply_quotes_what_it_replies_to,
    a_reply_with_a_lost_response_ends_unknown,
    a_rate_limit_is_obeyed_until_its_time,
    a_webhook_is_named_and_a_wrong_token_expires_the_account,
);

const CHANNEL: i64 = -1_001_234;
const GROUP: i64 = -1_005_678;
const BOT: i64 = 123_456;

#[derive(Default)]
struct Server {
    updates: Vec<Value>,
    sent: Vec<Value>,
}

fn result(value: impl serde::Serialize) -> ResponseTemplate {
    json(200, json!({ "ok": true, "result": value }))
}

fn rejected(status: u16, description: &str) -> ResponseTemplate {
    json(status, json!({ "ok": false, "error_code": status, "description": description }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    let (call, body): (_, Value) = (request.url.path().rsplit('/').next().unwrap(), request.body_json().unwrap());
    match call {
        "getUpdates" => {
            assert_eq!(body["allowed_updates"], json!(["message", "edited_message"]));
            // An offset deletes earlier updates.
            if let Some(offset) = body["offset"].as_i64() {
                server.updates.retain(|update| update["update_id"].as_i64().unwrap() >= offset);
            }
            result(server.updates.iter().take(100).collect::<Vec<_>>())
        }
        "getChat" => result(json!({ "id": CHANNEL, "type": "channel", "linked_chat_id": GROUP })),
        "sendMessage" => {
            server.sent.push(body.clone());
            let id = 900 + server.sent.len();
            result(json!({ "message_id": id, "chat": { "id": body["chat_id"], "type": "private" } }))
        }
        other => panic!("no such call: {other}"),
    }
}

async fn start(s: TestStore) -> InboxTest<Server> {
    let api = FakeApi::start(Server::default(), respond).await;
    let secrets = json!({ "bot_token": format!("{BOT}:AAH-secret"), "chat_id": CHANNEL.to_string() });
    InboxTest::new(s, Platform::Telegram, &CHANNEL.to_string(), secrets, api).await
}

/// Adds an update with a message.
fn update(t: &InboxTest<Server>, kind: &str, mut message: Value) {
    message["date"] = message["date"].as_i64().unwrap_or_else(|| t.w.now().timestamp()).into();
    t.api.with(|server| {
        let id = server.updates.last().map_or(10, |last| last["update_id"].as_i64().unwrap() + 1);
        server.updates.push(json!({ "update_id": id, kind: message }));
    });
}

fn private(id: i64, text: &str) -> Value {
    let vera = json!({ "id": 7, "first_name": "Vera", "last_name": "Vogel", "username": "vera" });
    let chat = json!({ "id": 7, "type": "private", "first_name": "Vera" });
    json!({ "message_id": id, "chat": chat, "from": vera, "text": text })
}

/// A message of a user in the discussion group.
fn in_group(id: i64, person: i64, text: &str, replied_to: Value) -> Value {
    json!({
        "message_id": id, "chat": { "id": GROUP, "type": "supergroup", "title": "Talk" },
        "from": { "id": person, "first_name": format!("P{person}") }, "text": text, "message_thread_id": 50,
        "reply_to_message": replied_to,
    })
}

fn the_post() -> Value {
    let channel = json!({ "id": CHANNEL, "type": "channel", "username": "news" });
    json!({
        "message_id": 50, "date": 1, "is_automatic_forward": true, "sender_chat": channel,
        "from": { "id": 777_000, "first_name": "Telegram" },
        "forward_origin": { "type": "channel", "chat": channel, "message_id": 42, "date": 1 },
    })
}

async fn private_chats_and_comments_arrive(t: InboxTest<Server>) {
    update(&t, "message", private(1, "Open?"));
    update(&t, "message", in_group(51, 8, "First!", the_post()));
    let ours = json!({ "message_id": 52, "from": { "id": BOT, "first_name": "Crier" } });
    update(&t, "message", in_group(53, 8, "And then?", ours));
    update(&t, "message", in_group(54, 9, "Me too", the_post()));
    // Messages between users, the post itself, another chat, and a user who joined.
    let other = json!({ "message_id": 51, "from": { "id": 8, "first_name": "P8" } });
    update(&t, "message", in_group(55, 9, "No", other.clone()));
    update(
        &t,
        "message",
        json!({ "message_id": 50, "chat": { "id": GROUP, "type": "supergroup" }, "text": "News",
        "from": { "id": 777_000, "first_name": "Telegram" }, "is_automatic_forward": true }),
    );
    let mut elsewhere = in_group(1, 8, "Hi", the_post());
    elsewhere["chat"]["id"] = json!(-99);
    update(&t, "message", elsewhere);
    let mut joined = private(2, "");
    joined.as_object_mut().unwrap().remove("text");
    update(&t, "message", joined);
    // An administrator replies as the channel.
    let mut as_channel = in_group(56, 136_817_688, "At seven.", other);
    as_channel["sender_chat"] = json!({ "id": CHANNEL, "type": "channel" });
    update(&t, "message", as_channel);
    t.api.with(|server| server.updates.push(json!({ "update_id": 99, "poll": {} })));
    t.look().await;
    let found = t.conversations_by_thread().await;
    let threads: Vec<_> = found.iter().map(|c| (c.kind.as_str(), c.thread_id.as_str(), c.unread_count)).collect();
    assert_eq!(threads, [("comment", "-1005678:50:8", 2), ("comment", "-1005678:50:9", 1), ("dm", "7", 1)]);
    assert_eq!(t.texts(found[0].id).await, ["inbound: First!", "inbound: And then?", "outbound: At seven."]);
    assert_eq!(found[0].subject_external_id.as_deref(), Some("42"));
    assert_eq!(found[0].subject_url.as_deref(), Some("https://t.me/news/42"));
    assert_eq!(found[2].participant_name.as_deref(), Some("Vera Vogel"));
}

fn offsets(t: &InboxTest<Server>) -> Vec<Value> {
    let bodies = t.api.requests_to("getUpdates").into_iter().map(|request| request.body_json::<Value>().unwrap());
    bodies.map(|body| body["offset"].clone()).collect()
}

async fn updates_are_deleted_only_after_they_were_stored(t: InboxTest<Server>) {
    update(&t, "message", private(1, "Open?"));
    t.look().await;
    t.sync_inbox_later().await;
    assert_eq!(t.api.with(|server| server.updates.len()), 1, "another account may have the same bot");
    t.look_after(600).await;
    t.sync_inbox_later().await;
    assert_eq!(offsets(&t), [Value::Null, Value::Null, Value::Null, json!(11)]);
    assert_eq!((t.api.with(|server| server.updates.len()), t.count().await), (0, 1));
}

async fn a_full_page_is_followed_by_the_next_one(t: InboxTest<Server>) {
    for n in 0..230 {
        update(&t, "message", private(n, "again"));
    }
    t.look().await;
    assert_eq!((t.count().await, t.only().await.unread_count), (230, 230));
    assert_eq!(offsets(&t), [Value::Null, json!(110), json!(210)]);
}

async fn an_edit_is_followed(t: InboxTest<Server>) {
    update(&t, "message", private(1, "Opne?"));
    t.look().await;
    let mut edited = private(1, "Open?");
    (edited["date"], edited["edit_date"]) = (json!(t.w.now().timestamp()), json!(t.w.now().timestamp() + 5));
    update(&t, "edited_message", edited);
    t.sync_inbox_later().await;
    let found = t.only().await;
    assert_eq!((t.texts(found.id).await, found.unread_count), (vec!["inbound: Open?".to_owned()], 1));
    t.sync_inbox_later().await;
    assert_eq!(t.only().await.updated_at, found.updated_at, "an overlap writes nothing");
}

async fn a_reply_quotes_what_it_replies_to(t: InboxTest<Server>) {
    update(&t, "message", in_group(51, 8, "First!", the_post()));
    t.look().await;
    let found = t.only().await;
    let id = t.reply(found.id, "Thanks & <b>").await;
    assert_eq!(t.sent(id).await, "sent");
    let quote = json!({ "message_id": 51, "allow_sending_without_reply": true });
    let wanted = json!({ "chat_id": GROUP, "text": "Thanks & <b>", "reply_parameters": quote });
    assert_eq!(t.api.with(|server| server.sent.clone()), [wanted]);
    assert_eq!(t.messages(found.id).await.pop().unwrap().external_id, Some(format!("{GROUP}:901")));

    let telegram = connector(Platform::Telegram, "http://127.0.0.1:1");
    let inbox = telegram.inbox().unwrap();
    let thread = ReplyThread::from(&found);
    assert!(inbox.check_text(&thread, &"😀".repeat(2_048)).is_ok());
    assert!(inbox.check_text(&thread, &"😀".repeat(2_049)).unwrap_err().contains("4096"));
    // A moved group has a new id; a user has blocked the bot.
    let moved = json!({ "ok": false, "error_code": 400, "parameters": { "migrate_to_chat_id": -1_009 } });
    t.api.respond_once("sendMessage", json(400, moved));
    assert_eq!(t.reply_result(found.id, "Again").await, "sent");
    assert_eq!(t.api.with(|server| server.sent[1]["chat_id"].clone()), json!(-1_009));
    t.api.respond_once("sendMessage", rejected(403, "Forbidden: bot was blocked by the user"));
    assert_eq!(t.reply_result(found.id, "Hello?").await, "failed: account");
}

async fn a_reply_with_a_lost_response_ends_unknown(t: InboxTest<Server>) {
    update(&t, "message", private(1, "Open?"));
    t.look().await;
    t.api.lose_response("sendMessage", 502);
    assert_eq!(t.reply_result(t.only().await.id, "At seven.").await, "failed: outcome_unknown");
    t.w.advance(100_000);
    t.w.run_jobs().await;
    assert_eq!(t.api.with(|server| server.sent.len()), 1);
}

async fn a_rate_limit_is_obeyed_until_its_time(t: InboxTest<Server>) {
    update(&t, "message", private(1, "Open?"));
    let limited = json!({ "ok": false, "error_code": 429, "description": "Too Many Requests: retry after 300",
        "parameters": { "retry_after": 300 } });
    t.api.respond_once("getUpdates", json(429, limited));
    t.sync_under_rate_limit("getUpdates", 70, 300).await;
    assert_eq!(t.count().await, 1);
}

async fn a_webhook_is_named_and_a_wrong_token_expires_the_account(t: InboxTest<Server>) {
    let webhook = "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete it first";
    t.api.respond_once("getUpdates", rejected(409, webhook));
    t.look().await;
    assert!(t.error().await.contains("deleteWebhook") && t.status().await == AccountStatus::Active);
    t.api.respond_once("getUpdates", rejected(409, "Conflict: terminated by other getUpdates request"));
    t.sync_inbox_later().await;
    assert!(t.error().await.contains("at the same time"));
    t.look_after(300).await;
    assert_eq!(t.error().await, "");
    t.api.respond_once("getUpdates", rejected(401, "Unauthorized"));
    t.sync_inbox_later().await;
    assert_eq!(t.status().await, AccountStatus::Expired);
}
