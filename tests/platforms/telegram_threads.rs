//! Threads, first comments and unpublishing on Telegram, against a server that responds like the Bot API.

use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::{CallError, ConnectorAccount, OutgoingPost, Published, UnpublishPost};
use serde_json::{Value, json};
use wiremock::{Request, ResponseTemplate};

use super::support::{account, comment_on, connector, image, part_of, unpublish_post};
use crate::support::inbox::{FakeApi, json};

const CHANNEL: i64 = -1_001_234;
const GROUP: i64 = -1_005_678;
const BOT: i64 = 123_456;

/// A channel with a linked group.
struct Server {
    chat: Value,
    /// The status of the bot in the group.
    member: &'static str,
    pinned: Value,
    updates: Vec<Value>,
    sent: Vec<Value>,
    deleted: Vec<Value>,
}

impl Server {
    fn new() -> Self {
        Self {
            chat: json!({ "id": CHANNEL, "type": "channel", "linked_chat_id": GROUP }),
            member: "administrator",
            pinned: Value::Null,
            updates: Vec::new(),
            sent: Vec::new(),
            deleted: Vec::new(),
        }
    }
}

fn result(value: impl serde::Serialize) -> ResponseTemplate {
    json(200, json!({ "ok": true, "result": value }))
}

fn rejected(status: u16, description: &str) -> ResponseTemplate {
    json(status, json!({ "ok": false, "error_code": status, "description": description }))
}

fn respond(server: &mut Server, request: &Request) -> ResponseTemplate {
    let call = request.url.path().rsplit('/').next().unwrap();
    let body: Value = request.body_json().unwrap_or_default();
    match call {
        "getChat" if body["chat_id"] == json!(GROUP) => {
            result(json!({ "id": GROUP, "type": "supergroup", "pinned_message": server.pinned }))
        }
        "getChat" => result(&server.chat),
        "getChatMember" => {
            assert_eq!(body, json!({ "chat_id": GROUP, "user_id": BOT }));
            match server.member {
                "" => rejected(403, "Forbidden: bot is not a member of the supergroup chat"),
                status => result(json!({ "status": status })),
            }
        }
        "getUpdates" => {
            assert_eq!(body["offset"], Value::Null, "an offset deletes updates");
            assert_eq!(body["allowed_updates"], json!(["message", "edited_message"]));
            result(server.updates.iter().take(100).collect::<Vec<_>>())
        }
        "sendMessage" => {
            server.sent.push(body.clone());
            let id: i64 = body["chat_id"].to_string().trim_matches('"').parse().expect("an id");
            let chat = json!({ "id": id, "type": "supergroup", "username": "talk" });
            result(json!({ "message_id": 900 + server.sent.len(), "chat": chat }))
        }
        "sendPhoto" => {
            let chat = json!({ "id": CHANNEL, "type": "channel", "username": "news" });
            result(json!({ "message_id": 44, "chat": chat }))
        }
        "sendMediaGroup" => {
            let chat = json!({ "id": CHANNEL, "type": "channel", "username": "news" });
            result(json!([{ "message_id": 45, "chat": chat }, { "message_id": 46, "chat": chat }]))
        }
        // Messages that do not exist are skipped.
        "deleteMessages" => {
            server.deleted.push(body);
            result(true)
        }
        other => panic!("no such call: {other}"),
    }
}

async fn start() -> FakeApi<Server> {
    FakeApi::start(Server::new(), respond).await
}

fn channel_account() -> ConnectorAccount {
    let secrets = json!({ "bot_token": format!("{BOT}:AAH-secret"), "chat_id": CHANNEL.to_string() });
    account(&CHANNEL.to_string(), secrets)
}

/// Returns the forward of a post of a channel in the group.
fn forward(id: i64, channel: i64, post: i64) -> Value {
    let channel = json!({ "id": channel, "type": "channel" });
    json!({
        "message_id": id, "date": 1, "chat": { "id": GROUP, "type": "supergroup" }, "is_automatic_forward": true,
        "forward_origin": { "type": "channel", "chat": channel, "message_id": post, "date": 1 }, "text": "News",
    })
}

fn update(message: Value) -> Value {
    json!({ "update_id": 10, "message": message })
}

/// Returns a part of a thread after this message.
fn part_after(message: &str, text: &str) -> OutgoingPost {
    let telegram = connector(Platform::Telegram, "http://127.0.0.1:1");
    let mut part = part_of(telegram.as_ref(), text, "42", message);
    part.reply_to.as_mut().unwrap().parent.url = Some("https://t.me/news/42".to_owned());
    part
}

async fn comment(api: &FakeApi<Server>, post: &str) -> Result<Published, CallError> {
    let telegram = connector(Platform::Telegram, &api.base());
    let mut comment = comment_on(telegram.as_ref(), "First & <b>", post);
    comment.reply_to.as_mut().unwrap().parent.url = Some("https://t.me/news/42".to_owned());
    telegram.publish(&channel_account(), &comment).await
}

fn post_to_delete(external_id: &str) -> UnpublishPost {
    UnpublishPost { url: Some("https://t.me/news/42".to_owned()), ..unpublish_post(external_id) }
}

async fn unpublish(api: &FakeApi<Server>, post: &UnpublishPost) -> Result<(), CallError> {
    connector(Platform::Telegram, &api.base()).unpublish(&channel_account(), post).await
}

#[tokio::test]
async fn a_part_of_a_thread_replies_to_the_part_before() {
    let api = start().await;
    let telegram = connector(Platform::Telegram, &api.base());
    telegram.publish(&channel_account(), &part_after("43", "Part 3")).await.unwrap();
    let quote = json!({ "message_id": 43, "allow_sending_without_reply": true });
    let wanted = json!({ "chat_id": CHANNEL.to_string(), "text": "Part 3", "reply_parameters": quote });
    assert_eq!(api.with(|server| server.sent.clone()), [wanted]);
}

#[tokio::test]
async fn parts_with_images_reply_too() {
    let api = start().await;
    let telegram = connector(Platform::Telegram, &api.base());
    let mut part = part_after("43", "Look");
    part.images = vec![image("cat")];
    assert_eq!(telegram.publish(&channel_account(), &part).await.unwrap().external_id, "44");
    part.images.push(image("dog"));
    let album = telegram.publish(&channel_account(), &part).await.unwrap();
    assert_eq!((album.external_id.as_str(), album.other_ids), ("45", vec!["46".to_owned()]));
    for call in ["sendPhoto", "sendMediaGroup"] {
        let body = String::from_utf8_lossy(&api.requests_to(call)[0].body).into_owned();
        let (_, quote) = body.split_once("name=\"reply_parameters\"\r\n\r\n").expect("the parameters of the reply");
        let quote: Value = serde_json::from_str(quote.lines().next().unwrap()).unwrap();
        assert_eq!(quote, json!({ "message_id": 43, "allow_sending_without_reply": true }), "{call}");
    }
}

#[tokio::test]
async fn a_part_does_not_reply_to_a_message_of_the_group_before_its_upgrade() {
    let api = start().await;
    let mut part = part_after("43", "Part 2");
    part.reply_to.as_mut().unwrap().parent.url = None;
    connector(Platform::Telegram, &api.base()).publish(&channel_account(), &part).await.unwrap();
    assert_eq!(api.with(|server| server.sent[0]["reply_parameters"].clone()), Value::Null);
}

#[tokio::test]
async fn a_comment_replies_to_the_forward_that_is_pinned_in_the_group() {
    let api = start().await;
    api.with(|server| server.pinned = forward(50, CHANNEL, 42));
    let published = comment(&api, "42").await.unwrap();
    assert_eq!(published, Published::new(format!("{GROUP}:901"), Some("https://t.me/talk/901".to_owned())));
    let wanted = json!({ "chat_id": GROUP, "text": "First & <b>", "reply_parameters": { "message_id": 50 } });
    assert_eq!(api.with(|server| server.sent.clone()), [wanted]);
    assert!(api.requests_to("getUpdates").is_empty());
}

#[tokio::test]
async fn a_comment_finds_the_forward_among_the_updates_and_deletes_none() {
    let api = start().await;
    api.with(|server| {
        server.pinned = forward(60, CHANNEL, 50);
        server.updates = [forward(48, CHANNEL, 41), forward(49, -99, 42), forward(50, CHANNEL, 42)].map(update).into();
        server.updates.push(json!({ "update_id": 11, "poll": {} }));
    });
    comment(&api, "42").await.unwrap();
    assert_eq!(api.with(|server| server.sent[0]["reply_parameters"].clone()), json!({ "message_id": 50 }));
}

#[tokio::test]
async fn a_comment_waits_for_the_forward() {
    let api = start().await;
    // Other posts, and a message of a user who forwarded the post.
    let mut by_user = forward(51, CHANNEL, 42);
    by_user["is_automatic_forward"] = Value::Null;
    api.with(|server| server.updates = [forward(48, CHANNEL, 41), forward(49, -99, 42), by_user].map(update).into());
    let error = comment(&api, "42").await.unwrap_err();
    assert!(matches!(&error, CallError::ParentMissing(f) if f.message.contains("administrator")), "{error:?}");
    assert!(api.requests_to("sendMessage").is_empty());
    // It was found, and deleted before the comment arrived.
    api.with(|server| server.pinned = forward(50, CHANNEL, 42));
    api.respond_once("sendMessage", rejected(400, "Bad Request: message to be replied not found"));
    let error = comment(&api, "42").await.unwrap_err();
    assert!(matches!(error, CallError::ParentMissing(_)), "{error:?}");
    comment(&api, "42").await.unwrap();
}

#[tokio::test]
async fn only_channels_with_a_group_that_the_bot_is_in_have_comments() {
    let group = json!({ "id": CHANNEL, "type": "supergroup", "linked_chat_id": GROUP });
    let chats = [json!({ "id": CHANNEL, "type": "channel" }), group, json!({ "id": 7, "type": "private" })];
    let linked = json!({ "id": CHANNEL, "type": "channel", "linked_chat_id": GROUP });
    let cases = chats.map(|chat| (chat, "administrator"));
    for (chat, member) in cases.into_iter().chain(["left", "kicked", ""].map(|member| (linked.clone(), member))) {
        let api = start().await;
        api.with(|server| (server.chat, server.member) = (chat.clone(), member));
        let error = comment(&api, "42").await.unwrap_err();
        let CallError::Permanent(failure) = &error else { panic!("{chat} {member}: {error:?}") };
        assert_eq!(failure.code, "not_supported", "{chat} {member}");
        assert!(api.requests_to("sendMessage").is_empty());
    }
}

#[tokio::test]
async fn a_failed_lookup_of_the_forward_publishes_nothing() {
    for call in ["getChat", "getChatMember", "getUpdates"] {
        let api = start().await;
        api.respond_once(call, rejected(502, "Bad Gateway"));
        let error = comment(&api, "42").await.unwrap_err();
        assert!(matches!(error, CallError::Transient(_)), "{call}: {error:?}");
    }
    let api = start().await;
    api.respond_once("getUpdates", rejected(409, "Conflict: terminated by other getUpdates request"));
    assert!(matches!(comment(&api, "42").await.unwrap_err(), CallError::Transient(_)));
    let api = start().await;
    api.with(|server| server.pinned = forward(50, CHANNEL, 42));
    api.lose_response("sendMessage", 502);
    assert!(matches!(comment(&api, "42").await.unwrap_err(), CallError::Unknown(_)));
}

#[tokio::test]
async fn unpublishing_deletes_all_messages_of_a_post() {
    let api = start().await;
    let album = UnpublishPost { other_ids: vec!["9".to_owned()], ..post_to_delete("8") };
    for post in [post_to_delete("42"), album] {
        unpublish(&api, &post).await.unwrap();
        unpublish(&api, &post).await.unwrap();
    }
    let comment = UnpublishPost { is_comment: true, url: None, ..post_to_delete(&format!("{GROUP}:901")) };
    unpublish(&api, &comment).await.unwrap();
    let of = |chat: i64, messages: Value| json!({ "chat_id": chat.to_string(), "message_ids": messages });
    let (one, two) = (of(CHANNEL, json!([42])), of(CHANNEL, json!([8, 9])));
    let wanted = [one.clone(), one, two.clone(), two, of(GROUP, json!([901]))];
    assert_eq!(api.with(|server| server.deleted.clone()), wanted);
    // The response of servers that do not skip it.
    api.respond_once("deleteMessages", rejected(400, "Bad Request: message to delete not found"));
    unpublish(&api, &post_to_delete("42")).await.unwrap();
}

#[tokio::test]
async fn unpublishing_reports_a_missing_right_and_temporary_errors() {
    let api = start().await;
    for description in ["message can't be deleted for everyone", "not enough rights to delete a message"] {
        api.respond_once("deleteMessages", rejected(400, &format!("Bad Request: {description}")));
        let error = unpublish(&api, &post_to_delete("42")).await.unwrap_err();
        let CallError::Permanent(failure) = &error else { panic!("{error:?}") };
        assert_eq!((failure.code.as_str(), failure.category), ("missing_permission", Category::Account));
        assert!(failure.message.contains("48 hours"), "{failure:?}");
    }
    api.respond_once("deleteMessages", rejected(403, "Forbidden: bot was kicked from the channel chat"));
    assert!(matches!(unpublish(&api, &post_to_delete("42")).await.unwrap_err(), CallError::Permanent(_)));
    api.lose_response("deleteMessages", 502);
    assert!(matches!(unpublish(&api, &post_to_delete("42")).await.unwrap_err(), CallError::Transient(_)));
    let mut limited = json!({ "ok": false, "error_code": 429, "description": "Too Many Requests: retry after 35" });
    limited["parameters"] = json!({ "retry_after": 35 });
    api.respond_once("deleteMessages", json(429, limited));
    assert!(matches!(unpublish(&api, &post_to_delete("42")).await.unwrap_err(), CallError::RateLimited { .. }));
}

#[tokio::test]
async fn unpublishing_never_deletes_a_message_with_the_same_id_in_an_upgraded_group() {
    let api = start().await;
    let error = unpublish(&api, &UnpublishPost { url: None, ..post_to_delete("42") }).await.unwrap_err();
    assert!(matches!(&error, CallError::Permanent(f) if f.code == "not_supported"), "{error:?}");
    let moved = json!({ "ok": false, "error_code": 400, "parameters": { "migrate_to_chat_id": -1_009 } });
    api.respond_once("deleteMessages", json(400, moved));
    assert!(matches!(unpublish(&api, &post_to_delete("42")).await.unwrap_err(), CallError::Permanent(_)));
    assert!(api.with(|server| server.deleted.is_empty()));
}
