//! Telegram, against a server that responds like the Bot API.

use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::{AccountKind, Platform};
use crier_platforms::{CallError, ConnectError, ConnectorAccount, ImageTransfer, Published, ReconcileResult};
use serde_json::{Value, json};
use wiremock::matchers::{body_json, method, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{
    ScriptStep, ScriptedServer, account, connector, image, now, post, secrets, shown, unused_address,
};

pub const TOKEN: &str = "123456:AAH-secret_token";

pub fn telegram_account() -> ConnectorAccount {
    account("-1001234", json!({ "bot_token": TOKEN, "chat_id": "-1001234" }))
}

pub async fn respond(server: &MockServer, call: &str, status: u16, body: Value) {
    Mock::given(method("POST"))
        .and(path(format!("/bot{TOKEN}/{call}")))
        .respond_with(ResponseTemplate::new(status).set_body_json(body))
        .mount(server)
        .await;
}

pub fn rejected(status: u16, description: &str) -> Value {
    json!({ "ok": false, "error_code": status, "description": description })
}

/// A server on which `member` is the bot's membership of a channel.
async fn channel(member: Value) -> MockServer {
    let server = MockServer::start().await;
    let bot = json!({ "id": 123_456, "is_bot": true, "first_name": "Crier", "username": "crier_bot" });
    respond(&server, "getMe", 200, json!({ "ok": true, "result": bot })).await;
    let chat = json!({ "id": -1_001_234, "type": "channel", "title": "News", "username": "news" });
    respond(&server, "getChat", 200, json!({ "ok": true, "result": chat })).await;
    Mock::given(path(format!("/bot{TOKEN}/getChatMember")))
        .and(body_json(json!({ "chat_id": -1_001_234, "user_id": 123_456 })))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({ "ok": true, "result": member })))
        .mount(&server)
        .await;
    server
}

async fn connect(server: &MockServer) -> Result<crier_platforms::Connected, ConnectError> {
    let credentials = secrets(json!({ "bot_token": TOKEN, "chat_id": "@news" }));
    connector(Platform::Telegram, &server.uri()).connect(1, &credentials).await
}

async fn publish_expecting_error(status: u16, body: Value) -> CallError {
    let server = MockServer::start().await;
    respond(&server, "sendMessage", status, body).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    telegram.publish(&telegram_account(), &post(telegram.as_ref(), "Hello")).await.unwrap_err()
}

#[tokio::test]
async fn connecting_checks_bot_chat_and_permission() {
    let server = channel(json!({ "status": "administrator", "can_post_messages": true })).await;
    let connected = connect(&server).await.unwrap();
    assert_eq!((connected.external_id.as_str(), connected.name.as_str()), ("-1001234", "News"));
    assert_eq!(connected.username.as_deref(), Some("news"));
    assert_eq!(connected.profile_url.as_deref(), Some("https://t.me/news"));
    assert_eq!(connected.kind, AccountKind::Channel);
    assert_eq!(shown(&connected.secrets), json!({ "bot_token": TOKEN, "chat_id": "-1001234" }));
}

#[tokio::test]
async fn a_bot_without_permission_is_rejected_with_a_remedy() {
    for (member, remedy) in [
        (json!({ "status": "administrator", "can_post_messages": false }), "right to post messages"),
        (json!({ "status": "member" }), "administrator"),
        (json!({ "status": "left" }), "add it there first"),
        (json!({ "status": "kicked" }), "add it there first"),
    ] {
        let server = channel(member).await;
        let ConnectError::Rejected(message) = connect(&server).await.unwrap_err() else { panic!("not rejected") };
        assert!(message.contains("News") && message.contains(remedy), "{message}");
    }
}

#[tokio::test]
async fn a_wrong_token_and_an_unknown_chat_are_rejected() {
    for (call, status, description) in
        [("getMe", 401, "Unauthorized"), ("getMe", 404, "Not Found"), ("getChat", 400, "Bad Request: chat not found")]
    {
        let server = MockServer::start().await;
        respond(&server, call, status, rejected(status, description)).await;
        respond(&server, "getMe", 200, json!({ "ok": true, "result": { "id": 1 } })).await;
        assert!(matches!(connect(&server).await, Err(ConnectError::Rejected(_))), "{description}");
    }
}

#[tokio::test]
async fn a_malformed_token_is_percent_encoded() {
    let server = MockServer::start().await;
    let credentials = secrets(json!({ "bot_token": "../x?y#z/é", "chat_id": "1" }));
    let rejection = connector(Platform::Telegram, &server.uri()).connect(1, &credentials).await;
    assert!(matches!(rejection, Err(ConnectError::Rejected(_))));
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests[0].url.path(), "/bot%2E%2E%2Fx%3Fy%23z%2F%C3%A9/getMe");
}

#[tokio::test]
async fn an_unreachable_server_is_unavailable() {
    let base = unused_address().await;
    let credentials = secrets(json!({ "bot_token": TOKEN, "chat_id": "1" }));
    let error = connector(Platform::Telegram, &base).connect(1, &credentials).await.unwrap_err();
    let ConnectError::Unavailable(message) = error else { panic!("{error:?}") };
    assert!(!message.contains(TOKEN));
}

#[tokio::test]
async fn a_text_is_sent_as_a_message() {
    let server = MockServer::start().await;
    Mock::given(path(format!("/bot{TOKEN}/sendMessage")))
        .and(body_json(json!({ "chat_id": "-1001234", "text": "Hello & <bye>" })))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({
            "ok": true,
            "result": { "message_id": 42, "chat": { "id": -1_001_234, "type": "channel", "username": "news" } },
        })))
        .expect(1)
        .mount(&server)
        .await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let published = telegram.publish(&telegram_account(), &post(telegram.as_ref(), "Hello & <bye>")).await.unwrap();
    assert_eq!(published, Published::new("42", Some("https://t.me/news/42".to_owned())));
}

#[tokio::test]
async fn one_image_is_a_photo_with_a_caption() {
    let server = MockServer::start().await;
    let result = json!({ "message_id": 5, "chat": { "id": -1_001_234, "type": "channel" } });
    respond(&server, "sendPhoto", 200, json!({ "ok": true, "result": result })).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let mut outgoing = post(telegram.as_ref(), "Look");
    outgoing.images = vec![image("cat")];
    let published = telegram.publish(&telegram_account(), &outgoing).await.unwrap();
    assert_eq!(published.url.as_deref(), Some("https://t.me/c/1234/5"));
    let body = String::from_utf8_lossy(&server.received_requests().await.unwrap()[0].body).into_owned();
    for part in [
        "name=\"chat_id\"\r\n\r\n-1001234",
        "name=\"caption\"\r\n\r\nLook",
        "name=\"photo\"; filename=\"cat.png\"\r\nContent-Type: image/png",
        "bytes of cat",
    ] {
        assert!(body.contains(part), "{part} is not in {body}");
    }
}

#[tokio::test]
async fn several_images_become_an_album_with_the_id_of_its_first_message() {
    let server = MockServer::start().await;
    let chat = json!({ "id": -1_001_234, "type": "channel", "username": "news" });
    let result = json!([{ "message_id": 8, "chat": chat }, { "message_id": 9, "chat": chat }]);
    respond(&server, "sendMediaGroup", 200, json!({ "ok": true, "result": result })).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let mut outgoing = post(telegram.as_ref(), "Two");
    outgoing.images = vec![image("cat"), image("dog")];
    assert_eq!(telegram.image_transfer(), ImageTransfer::Inline);
    let published = telegram.publish(&telegram_account(), &outgoing).await.unwrap();
    let album = Published::new("8", Some("https://t.me/news/8".to_owned()));
    assert_eq!(published, Published { other_ids: vec!["9".to_owned()], ..album });
    let body = String::from_utf8_lossy(&server.received_requests().await.unwrap()[0].body).into_owned();
    let media = body.lines().find(|line| line.starts_with('[')).expect("the list of media");
    let media: serde_json::Value = serde_json::from_str(media).expect("JSON");
    let photo =
        |caption: &str, n: u8| json!({ "type": "photo", "media": format!("attach://file{n}"), "caption": caption });
    assert_eq!(media, json!([photo("Two", 0), photo("", 1)]));
    assert!(body.contains("name=\"file1\"; filename=\"dog.png\"") && body.contains("bytes of dog"));
}

#[tokio::test]
async fn a_migrated_chat_id_is_used_and_stored() {
    let server = MockServer::start().await;
    let moved = json!({
        "ok": false,
        "error_code": 400,
        "description": "Bad Request: group chat was upgraded to a supergroup chat",
        "parameters": { "migrate_to_chat_id": -1_009_999_i64 },
    });
    for (chat, status, response) in [
        ("-1001234", 400, moved),
        (
            "-1009999",
            200,
            json!({ "ok": true, "result": { "message_id": 1, "chat": { "id": -1_009_999_i64, "type": "supergroup" } } }),
        ),
    ] {
        Mock::given(path(format!("/bot{TOKEN}/sendMessage")))
            .and(body_json(json!({ "chat_id": chat, "text": "Hi" })))
            .respond_with(ResponseTemplate::new(status).set_body_json(response))
            .expect(1)
            .mount(&server)
            .await;
    }
    let telegram = connector(Platform::Telegram, &server.uri());
    let published = telegram.publish(&telegram_account(), &post(telegram.as_ref(), "Hi")).await.unwrap();
    assert_eq!(published.external_id, "1");
    assert_eq!(shown(&published.secrets.unwrap()), json!({ "bot_token": TOKEN, "chat_id": "-1009999" }));
}

#[tokio::test]
async fn a_rate_limit_returns_its_retry_time() {
    let mut body = rejected(429, "Too Many Requests: retry after 35");
    body["parameters"] = json!({ "retry_after": 35 });
    let CallError::RateLimited { until, failure } = publish_expecting_error(429, body).await else {
        panic!("no rate limit")
    };
    assert_eq!(until, Some(now() + TimeDelta::seconds(35)));
    assert_eq!(failure.category, Category::RateLimited);
}

#[tokio::test]
async fn rejections_are_permanent_and_categorized() {
    for (status, description, category) in [
        (403, "Forbidden: bot was kicked from the channel chat", Category::Account),
        (400, "Bad Request: chat not found", Category::Account),
        (400, "Bad Request: need administrator rights in the channel chat", Category::Account),
        (400, "Bad Request: message is too long", Category::InvalidContent),
        (400, "Bad Request: something new", Category::PlatformRejected),
    ] {
        let error = publish_expecting_error(status, rejected(status, description)).await;
        assert!(matches!(&error, CallError::Permanent(f) if f.category == category), "{description}: {error:?}");
        let quoted = description.split_once(": ").unwrap().1;
        assert!(error.failure().message.contains(quoted), "{error}");
        assert_eq!(error.failure().platform_code.as_deref(), Some(status.to_string().as_str()));
    }
    let error = publish_expecting_error(401, rejected(401, "Unauthorized")).await;
    assert!(matches!(error, CallError::Reauth(_)));
}

#[tokio::test]
async fn server_errors_and_disconnects_have_an_unknown_outcome() {
    for status in [500, 502, 504] {
        let error = publish_expecting_error(status, rejected(status, "Internal Server Error")).await;
        assert!(matches!(&error, CallError::Unknown(f) if f.category == Category::OutcomeUnknown), "{error:?}");
    }
    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let telegram = connector(Platform::Telegram, &script.base);
    let (account, outgoing) = (telegram_account(), post(telegram.as_ref(), "Hi"));
    assert!(matches!(telegram.publish(&account, &outgoing).await, Err(CallError::Unknown(_))));
    assert_eq!(script.requests().len(), 1);
    assert!(!telegram.can_reconcile());
    assert_eq!(telegram.reconcile(&account, &outgoing).await.unwrap(), ReconcileResult::Unsupported);
}

#[tokio::test]
async fn a_refused_connection_is_transient() {
    let telegram = connector(Platform::Telegram, &unused_address().await);
    let error = telegram.publish(&telegram_account(), &post(telegram.as_ref(), "Hi")).await.unwrap_err();
    assert!(matches!(&error, CallError::Transient(f) if f.category == Category::Network), "{error:?}");
}

#[tokio::test]
async fn errors_never_contain_the_token() {
    let echo = format!("Bad Request: no method /bot{TOKEN}/sendMessage");
    let mut errors = vec![
        publish_expecting_error(400, rejected(400, &echo)).await,
        publish_expecting_error(400, json!("no object")).await,
    ];
    let telegram = connector(Platform::Telegram, &unused_address().await);
    errors.push(telegram.publish(&telegram_account(), &post(telegram.as_ref(), "Hi")).await.unwrap_err());
    for error in errors {
        let text = format!("{error} {error:?}");
        assert!(!text.contains("secret_token"), "{text}");
    }
}

#[tokio::test]
async fn a_refresh_checks_the_token() {
    let server = MockServer::start().await;
    respond(&server, "getMe", 200, json!({ "ok": true, "result": { "id": 1 } })).await;
    let refreshed = connector(Platform::Telegram, &server.uri()).refresh(&telegram_account()).await.unwrap();
    assert!(refreshed.secrets.is_none() && refreshed.token_expires_at.is_none());

    let server = MockServer::start().await;
    respond(&server, "getMe", 401, rejected(401, "Unauthorized")).await;
    let error = connector(Platform::Telegram, &server.uri()).refresh(&telegram_account()).await.unwrap_err();
    assert!(matches!(error, CallError::Reauth(_)));

    let error = connector(Platform::Telegram, &unused_address().await).refresh(&telegram_account()).await.unwrap_err();
    assert!(matches!(error, CallError::Transient(_)), "a temporary failure never expires an account");
}
