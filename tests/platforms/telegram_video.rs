//! Videos on Telegram, against a server that responds like the Bot API.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::TimeDelta;
use crier_domain::failure::Category;
use crier_domain::platform::Platform;
use crier_platforms::video::{ByteStream, FileBytes};
use crier_platforms::{CallError, Connector, Image, OutgoingPost, Published, ReconcileResult, Video, VideoTransfer};
use serde_json::{Value, json};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

use super::support::{ScriptStep, ScriptedServer, connector, image, now, part_of, post, shown, video};
use super::telegram::{TOKEN, rejected, respond, telegram_account};
use crate::support::forms::{FormPart, form_part, form_parts};

fn message(id: i64) -> Value {
    json!({ "message_id": id, "chat": { "id": -1_001_234, "type": "channel", "username": "news" } })
}

fn with_video(connector: &dyn Connector, text: &str) -> OutgoingPost {
    OutgoingPost { videos: vec![video("bytes of a video")], ..post(connector, text) }
}

fn cover(width: u32, bytes: Vec<u8>) -> Image {
    Image { mime_type: "image/jpeg".to_owned(), width, height: 180, bytes: Bytes::from(bytes), ..image("cover") }
}

/// Returns the parts of the only request.
async fn sent(server: &MockServer) -> Vec<FormPart> {
    let requests = server.received_requests().await.unwrap();
    assert_eq!(requests.len(), 1);
    form_parts(&requests[0])
}

#[track_caller]
fn text(parts: &[FormPart], name: &str) -> String {
    form_part(parts, name).unwrap_or_else(|| panic!("no {name} in {parts:?}")).text()
}

async fn publish_expecting_error(status: u16, body: Value) -> CallError {
    let server = MockServer::start().await;
    respond(&server, "sendVideo", status, body).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    telegram.publish(&telegram_account(), &with_video(telegram.as_ref(), "Look")).await.unwrap_err()
}

#[tokio::test]
async fn a_video_is_sent_in_one_call_with_its_caption() {
    let server = MockServer::start().await;
    respond(&server, "sendVideo", 200, json!({ "ok": true, "result": message(5) })).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    assert_eq!(telegram.video_transfer(), VideoTransfer::Inline);
    let mut outgoing = with_video(telegram.as_ref(), "Look");
    outgoing.videos[0].properties.duration_ms = 5_001;
    let published = telegram.publish(&telegram_account(), &outgoing).await.unwrap();
    assert_eq!(published, Published::new("5", Some("https://t.me/news/5".to_owned())));
    let parts = sent(&server).await;
    for (name, value) in [
        ("chat_id", "-1001234"),
        ("caption", "Look"),
        ("width", "720"),
        ("height", "1280"),
        ("duration", "6"),
        ("supports_streaming", "true"),
    ] {
        assert_eq!(text(&parts, name), value, "{name}");
    }
    let file = form_part(&parts, "video").unwrap();
    assert_eq!((file.filename.as_deref(), file.mime_type.as_deref()), (Some("clip.mp4"), Some("video/mp4")));
    assert_eq!(file.text(), "bytes of a video");
    assert!(form_part(&parts, "cover").is_none() && form_part(&parts, "thumbnail").is_none());
}

#[tokio::test]
async fn a_cover_is_also_the_thumbnail_if_it_is_small_enough() {
    for (cover, has_thumbnail) in [
        (cover(320, vec![7; 199_999]), true),
        (cover(321, vec![7; 10]), false),
        (cover(320, vec![7; 200_001]), false),
        (Image { mime_type: "image/png".to_owned(), ..cover(320, vec![7; 10]) }, false),
    ] {
        let server = MockServer::start().await;
        respond(&server, "sendVideo", 200, json!({ "ok": true, "result": message(5) })).await;
        let telegram = connector(Platform::Telegram, &server.uri());
        let mut outgoing = with_video(telegram.as_ref(), "Look");
        outgoing.videos[0].cover = Some(cover.clone());
        telegram.publish(&telegram_account(), &outgoing).await.unwrap();
        let parts = sent(&server).await;
        assert_eq!(text(&parts, "cover"), "attach://cover0");
        assert!(form_part(&parts, "cover0").unwrap().bytes == cover.bytes);
        assert_eq!(form_part(&parts, "thumbnail").is_some(), has_thumbnail, "{} {}", cover.width, cover.bytes.len());
        if has_thumbnail {
            assert_eq!(text(&parts, "thumbnail"), "attach://thumbnail0");
            assert!(form_part(&parts, "thumbnail0").unwrap().bytes == cover.bytes);
        }
    }
}

#[tokio::test]
async fn an_album_has_images_and_videos_in_the_order_of_the_post() {
    let server = MockServer::start().await;
    respond(&server, "sendMediaGroup", 200, json!({ "ok": true, "result": [message(8), message(9), message(10)] }))
        .await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let mut outgoing = with_video(telegram.as_ref(), "Three");
    outgoing.images = vec![image("cat"), image("dog")];
    outgoing.videos = vec![Video { position: 1, cover: Some(cover(400, vec![7])), ..video("bytes of a video") }];
    let published = telegram.publish(&telegram_account(), &outgoing).await.unwrap();
    assert_eq!((published.external_id.as_str(), published.other_ids), ("8", vec!["9".to_owned(), "10".to_owned()]));
    let parts = sent(&server).await;
    let media: Value = serde_json::from_str(&text(&parts, "media")).unwrap();
    let expected = json!([
        { "type": "photo", "media": "attach://file0", "caption": "Three" },
        {
            "type": "video", "media": "attach://file1", "caption": "", "width": 720, "height": 1280, "duration": 5,
            "supports_streaming": true, "cover": "attach://cover1",
        },
        { "type": "photo", "media": "attach://file2", "caption": "" },
    ]);
    assert_eq!(media, expected);
    let files = ["file0", "file1", "file2", "cover1"].map(|name| text(&parts, name));
    assert_eq!(files, ["bytes of cat", "bytes of a video", "bytes of dog", "\u{7}"]);
}

#[tokio::test]
async fn a_part_of_a_thread_with_a_video_replies_to_the_part_before() {
    let server = MockServer::start().await;
    respond(&server, "sendVideo", 200, json!({ "ok": true, "result": message(6) })).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let mut outgoing = part_of(telegram.as_ref(), "Two", "5", "5");
    if let Some(reply_to) = &mut outgoing.reply_to {
        reply_to.parent.url = Some("https://t.me/news/5".to_owned());
    }
    outgoing.videos = vec![video("bytes of a video")];
    telegram.publish(&telegram_account(), &outgoing).await.unwrap();
    let reply: Value = serde_json::from_str(&text(&sent(&server).await, "reply_parameters")).unwrap();
    assert_eq!(reply, json!({ "message_id": 5, "allow_sending_without_reply": true }));
}

#[tokio::test]
async fn a_moved_chat_gets_the_whole_video() {
    let server = MockServer::start().await;
    let mut moved = rejected(400, "Bad Request: group chat was upgraded to a supergroup chat");
    moved["parameters"] = json!({ "migrate_to_chat_id": -1_009_999_i64 });
    Mock::given(path(format!("/bot{TOKEN}/sendVideo")))
        .respond_with(ResponseTemplate::new(400).set_body_json(moved))
        .up_to_n_times(1)
        .mount(&server)
        .await;
    respond(&server, "sendVideo", 200, json!({ "ok": true, "result": message(1) })).await;
    let telegram = connector(Platform::Telegram, &server.uri());
    let published = telegram.publish(&telegram_account(), &with_video(telegram.as_ref(), "Look")).await.unwrap();
    assert_eq!(shown(&published.secrets.unwrap())["chat_id"], "-1009999");
    let requests = server.received_requests().await.unwrap();
    for (request, chat) in requests.iter().zip(["-1001234", "-1009999"]) {
        let parts = form_parts(request);
        assert_eq!((text(&parts, "chat_id").as_str(), text(&parts, "video").as_str()), (chat, "bytes of a video"));
    }
    assert_eq!(requests.len(), 2);
}

#[tokio::test]
async fn a_rejected_file_is_invalid_content() {
    for (status, description) in [
        (400, "Bad Request: VIDEO_CONTENT_TYPE_INVALID"),
        (400, "Bad Request: file is too big"),
        (413, "Request Entity Too Large"),
    ] {
        let error = publish_expecting_error(status, rejected(status, description)).await;
        let is_right = matches!(&error, CallError::Permanent(f) if f.category == Category::InvalidContent);
        assert!(is_right, "{description}: {error:?}");
    }
    let error = publish_expecting_error(400, rejected(400, "Bad Request: not enough rights to send videos")).await;
    assert!(matches!(&error, CallError::Permanent(f) if f.category == Category::Account), "{error:?}");
}

#[tokio::test]
async fn a_rate_limit_returns_its_retry_time() {
    let mut body = rejected(429, "Too Many Requests: retry after 35");
    body["parameters"] = json!({ "retry_after": 35 });
    let error = publish_expecting_error(429, body).await;
    let until = now() + TimeDelta::seconds(35);
    assert!(matches!(&error, CallError::RateLimited { until: Some(at), .. } if *at == until), "{error:?}");
}

#[tokio::test]
async fn a_revoked_token_requires_a_new_connection() {
    let error = publish_expecting_error(401, rejected(401, "Unauthorized")).await;
    assert!(matches!(error, CallError::Reauth(_)), "{error:?}");
}

#[tokio::test]
async fn a_cut_response_and_a_server_error_leave_the_outcome_unknown() {
    for status in [500, 502, 504] {
        let error = publish_expecting_error(status, rejected(status, "Internal Server Error")).await;
        assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    }
    let script = ScriptedServer::start(vec![ScriptStep::HangUp]).await;
    let telegram = connector(Platform::Telegram, &script.base);
    let outgoing = with_video(telegram.as_ref(), "Look");
    let error = telegram.publish(&telegram_account(), &outgoing).await.unwrap_err();
    assert!(matches!(error, CallError::Unknown(_)), "{error:?}");
    assert!(script.requests()[0].contains("bytes of a video"), "all of it arrived");
    assert_eq!(telegram.reconcile(&telegram_account(), &outgoing).await.unwrap(), ReconcileResult::Unsupported);
}

/// A storage that does not respond.
struct Unreadable;

#[async_trait]
impl FileBytes for Unreadable {
    async fn read(&self, _range: Range<u64>) -> std::io::Result<ByteStream> {
        Err(std::io::Error::other("the storage does not respond"))
    }
}

#[tokio::test]
async fn nothing_is_sent_if_the_video_cannot_be_read() {
    let server = MockServer::start().await;
    let telegram = connector(Platform::Telegram, &server.uri());
    for images in [vec![], vec![image("cat")]] {
        let mut outgoing = OutgoingPost { images, ..with_video(telegram.as_ref(), "Look") };
        outgoing.videos[0].file = Arc::new(Unreadable);
        let error = telegram.publish(&telegram_account(), &outgoing).await.unwrap_err();
        assert!(matches!(&error, CallError::Transient(f) if f.category == Category::Media), "{error:?}");
    }
    assert!(server.received_requests().await.unwrap().is_empty());
}
