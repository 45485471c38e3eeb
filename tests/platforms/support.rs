//! A registry whose clients may call loopback, posts to send, and a server that breaks connections on purpose.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, TimeZone, Utc};
use crier_base::clock::Clock;
use crier_config::PlatformsConfig;
use crier_domain::application::Application;
use crier_domain::failure::Category;
use crier_domain::media::{VideoProperties, VideoType};
use crier_domain::platform::{ConnectTarget, Platform};
use crier_domain::post::PublishedPart;
use crier_http::HttpClient;
use crier_platforms::address::UrlCheck;
use crier_platforms::oauth::{Choice, Choices, ConnectAttempt, ConnectRequest, Grant, protocol};
use crier_platforms::video::{ByteStream, FileBytes, Video, VideoStep, VideoTransfer, VideoUpload};
use crier_platforms::{
    CallError, Clients, ConnectError, Connected, Connector, ConnectorAccount, ConnectorRegistry, Image, ImageTransfer,
    Marker, MarkerSeed, OutgoingPost, Published, ReconcileResult, ReplyKind, ReplyTo, Secrets, UnpublishPost,
    UploadedImage,
};
use secrecy::SecretString;
use serde_json::{Map, Value};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use wiremock::ResponseTemplate;

use crate::support::inbox::FakeApi;
use crate::support::oauth::OAuthServer;

/// Allows every URL except those that contain `rejected`.
pub struct AnyAddress;

#[async_trait]
impl UrlCheck for AnyAddress {
    async fn check(&self, url: &str) -> Result<(), String> {
        if url.contains("rejected") { Err("must point to a public address".to_owned()) } else { Ok(()) }
    }
}

pub fn now() -> DateTime<Utc> {
    Utc.with_ymd_and_hms(2026, 3, 1, 12, 0, 0).unwrap()
}

pub fn clients() -> Clients {
    let client = HttpClient::trusted(Duration::from_secs(20), 1 << 20);
    Clients { trusted: client.clone(), guarded: client, addresses: Arc::new(AnyAddress) }
}

/// The connector of `platform` with the base URL `base`.
pub fn connector(platform: Platform, base: &str) -> Arc<dyn Connector> {
    let config = PlatformsConfig::default().with_base_url(platform, base);
    ConnectorRegistry::new(config, &clients(), &Clock::manual(now())).get(platform).unwrap()
}

/// Bluesky with a default server and a directory of accounts.
pub fn with_directory(base: &str, directory: &str) -> Arc<dyn Connector> {
    let mut config = PlatformsConfig::default().with_base_url(Platform::Bluesky, base);
    config.platforms.entry(Platform::Bluesky).or_default().plc_url = Some(directory.to_owned());
    ConnectorRegistry::new(config, &clients(), &Clock::manual(now())).get(Platform::Bluesky).unwrap()
}

pub fn secrets(fields: Value) -> Secrets {
    Secrets::from_json(fields.to_string()).unwrap()
}

/// The secrets as JSON, for comparison.
pub fn shown(secrets: &Secrets) -> Value {
    serde_json::from_str(secrets.expose_json()).unwrap()
}

pub fn account(external_id: &str, fields: Value) -> ConnectorAccount {
    ConnectorAccount {
        id: 1,
        workspace_id: 1,
        external_id: external_id.to_owned(),
        username: None,
        secrets: secrets(fields),
    }
}

pub fn marker(connector: &dyn Connector) -> Marker {
    connector.marker(MarkerSeed { target_id: 7, at: now(), random: 99, reply: None, parts: 1 })
}

pub fn post(connector: &dyn Connector, text: &str) -> OutgoingPost {
    let (images, options) = (Vec::new(), Map::new());
    OutgoingPost {
        target_id: 7,
        reply_to: None,
        text: text.to_owned(),
        images,
        videos: Vec::new(),
        card: None,
        options,
        marker: marker(connector),
        attempt: 1,
        has_earlier_attempt: false,
        called_at: Some(now()),
    }
}

/// A part of a thread that is on the platform.
pub fn published_part(external_id: &str) -> PublishedPart {
    PublishedPart {
        external_id: external_id.to_owned(),
        url: None,
        published_at: now(),
        other_ids: Vec::new(),
        is_unpublished: false,
    }
}

/// The next part of a thread that begins with `root`, after `parent`.
pub fn part_of(connector: &dyn Connector, text: &str, root: &str, parent: &str) -> OutgoingPost {
    reply(connector, text, ReplyKind::ThreadPart, root, parent)
}

/// The first comment on a post.
pub fn comment_on(connector: &dyn Connector, text: &str, post: &str) -> OutgoingPost {
    reply(connector, text, ReplyKind::Comment, post, post)
}

fn reply(connector: &dyn Connector, text: &str, kind: ReplyKind, root: &str, parent: &str) -> OutgoingPost {
    let marker = connector.marker(MarkerSeed { target_id: 7, at: now(), random: 99, reply: Some(kind), parts: 1 });
    let reply_to = Some(ReplyTo { kind, root: published_part(root), parent: published_part(parent) });
    OutgoingPost { reply_to, marker, ..post(connector, text) }
}

pub fn unpublish_post(external_id: &str) -> UnpublishPost {
    UnpublishPost {
        external_id: external_id.to_owned(),
        url: None,
        is_comment: false,
        other_ids: Vec::new(),
        published_at: now(),
        marker: None,
        options: Map::new(),
    }
}

pub fn comment_to_delete(id: &str) -> UnpublishPost {
    UnpublishPost { is_comment: true, ..unpublish_post(id) }
}

pub fn image(name: &str) -> Image {
    Image {
        id: if name == "cat" { 1 } else { 2 },
        bytes: Bytes::from(format!("bytes of {name}")),
        mime_type: "image/png".to_owned(),
        filename: format!("{name}.png"),
        alt_text: Some(format!("a <{name}>")),
        width: 400,
        height: 300,
        url: format!("https://crier.example/media/{name}.png"),
        uploaded: None,
    }
}

/// The bytes of a file in memory.
struct BytesInMemory(Bytes);

#[async_trait]
impl FileBytes for BytesInMemory {
    async fn read(&self, range: Range<u64>) -> std::io::Result<ByteStream> {
        let part = self.0.slice(range.start as usize..range.end as usize);
        Ok(Box::pin(futures::stream::iter([Ok(part)])))
    }
}

/// A video of five seconds with these bytes.
pub fn video(bytes: impl Into<Bytes>) -> Video {
    let bytes = bytes.into();
    Video {
        id: 9,
        position: 0,
        mime_type: VideoType::Mp4,
        filename: "clip.mp4".to_owned(),
        alt_text: Some("a <clip>".to_owned()),
        size: bytes.len() as u64,
        width: 720,
        height: 1280,
        properties: VideoProperties {
            duration_ms: 5_000,
            rotation: 0,
            frame_rate: Some(30.0),
            video_codec: "h264".to_owned(),
            audio_codec: Some("aac".to_owned()),
            index_first: true,
        },
        url: "https://crier.example/media/clip.mp4".to_owned(),
        file: Arc::new(BytesInMemory(bytes)),
        cover: None,
        cover_at_ms: None,
        upload: VideoUpload::new(),
        uploaded: None,
    }
}

/// Takes one step of handing over the post's only video, and stores its result as the worker does.
pub async fn send_video_step(
    connector: &dyn Connector,
    account: &ConnectorAccount,
    outgoing: &mut OutgoingPost,
) -> Result<VideoStep, CallError> {
    let step = connector.send_video(account, outgoing, &outgoing.videos[0]).await?;
    let video = &mut outgoing.videos[0];
    match &step {
        VideoStep::Next(upload) | VideoStep::Pending(upload, _) => video.upload = upload.clone(),
        VideoStep::Ready(reference) => video.uploaded = Some(reference.clone()),
        VideoStep::Expired => video.upload = VideoUpload::new(),
    }
    Ok(step)
}

/// Publishes as the worker does: uploads the images and hands over the video first if the platform requires it. Does not
/// wait while the platform processes the video.
pub async fn publish(
    connector: &dyn Connector,
    account: &ConnectorAccount,
    outgoing: &mut OutgoingPost,
) -> Result<Published, CallError> {
    for index in 0..outgoing.images.len() {
        if connector.image_transfer() == ImageTransfer::Uploaded && outgoing.images[index].uploaded.is_none() {
            let name = connector.upload(account, outgoing, &outgoing.images[index]).await?;
            outgoing.images[index].uploaded = Some(UploadedImage { name, uploaded_in_this_run: true });
        }
    }
    while connector.video_transfer() == VideoTransfer::Uploaded
        && outgoing.videos.first().is_some_and(|video| video.uploaded.is_none())
    {
        send_video_step(connector, account, outgoing).await?;
    }
    connector.publish(account, outgoing).await
}

/// Returns whether the error rejects the content of the post.
pub fn is_invalid(error: &CallError) -> bool {
    matches!(error, CallError::Permanent(failure) if failure.category == Category::InvalidContent)
}

/// Asserts that an error names a permission and the variable that requests it.
pub fn assert_missing(error: CallError, permission: &str, variable: &str) {
    let CallError::Permanent(failure) = &error else { panic!("{error:?}") };
    assert_eq!(failure.code, "missing_permission");
    let message = &failure.message;
    assert!(message.contains(&format!("Missing: {permission}.")) && message.contains(variable), "{message}");
}

/// Returns an error response of a storage such as S3.
pub fn storage_error(status: u16, code: &str) -> ResponseTemplate {
    let body = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>No.</Message></Error>");
    ResponseTemplate::new(status).set_body_string(body)
}

/// Moves the URLs of an upload to another server.
pub fn moved(upload: &VideoUpload, from: &str, to: &str) -> VideoUpload {
    serde_json::from_str(&serde_json::to_string(upload).unwrap().replace(from, to)).unwrap()
}

/// A fake API with a post, and the account that comments on it.
pub struct CommentTest<S> {
    pub api: FakeApi<S>,
    pub connector: Arc<dyn Connector>,
    pub account: ConnectorAccount,
    pub post: &'static str,
}

impl<S> CommentTest<S> {
    pub fn comment(&self, text: &str) -> OutgoingPost {
        comment_on(self.connector.as_ref(), text, self.post)
    }

    pub async fn publish(&self, comment: &OutgoingPost) -> Result<Published, CallError> {
        self.connector.publish(&self.account, comment).await
    }

    pub async fn reconcile(&self, comment: &OutgoingPost) -> ReconcileResult {
        self.connector.reconcile(&self.account, comment).await.unwrap()
    }

    pub async fn unpublish(&self, post: &UnpublishPost) -> Result<(), CallError> {
        self.connector.unpublish(&self.account, post).await
    }
}

/// How a [`ScriptedServer`] handles a request after reading it completely.
pub enum ScriptStep {
    Respond(u16, Value),
    /// Closes the connection without a response.
    HangUp,
}

/// A server that accepts one request per connection and handles each as its script specifies.
pub struct ScriptedServer {
    pub base: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedServer {
    pub async fn start(steps: Vec<ScriptStep>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            for step in steps {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read_request(&mut stream).await;
                seen.lock().unwrap().push(request);
                if let ScriptStep::Respond(status, body) = step {
                    let body = body.to_string();
                    let head = format!(
                        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close",
                        body.len()
                    );
                    stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
                }
                stream.shutdown().await.ok();
            }
        });
        Self { base, requests }
    }

    /// The requests so far, head and body.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
            });
            if body.len() >= length.unwrap_or(0) {
                return text;
            }
        }
        let read = stream.read(&mut buffer).await.unwrap();
        assert!(read > 0, "the client hung up in the middle of a request");
        bytes.extend_from_slice(&buffer[..read]);
    }
}

/// A URL where no server listens.
pub async fn unused_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

/// Begins to connect as the pages do: the user agrees at the server, and the code is exchanged. The application is `id`
/// with `secret`.
async fn authorize(
    connector: &dyn Connector,
    server: &OAuthServer,
    request: ConnectRequest<'_>,
) -> Result<(ConnectAttempt, Grant), ConnectError> {
    let oauth = connector.oauth().unwrap();
    let (state, verifier) = (SecretString::from("s".repeat(43)), SecretString::from("v".repeat(43)));
    let application = Application::new("id", "secret");
    let redirect = "https://crier.example/connect/callback/x".to_owned();
    let attempt = ConnectAttempt::new(request, oauth.server(request).await?, &application, redirect, &verifier);
    let back = server.agree(&protocol::authorize_url(&attempt, &state)?);
    let code = back.query_pairs().find(|(name, _)| name == "code").unwrap().1.into_owned();
    let grant = oauth.exchange(&attempt, &code).await?;
    assert!(grant.missing(&attempt.server).is_empty(), "{grant:?}");
    Ok((attempt, grant))
}

/// Connects as the pages do, with a choice. Returns the choices and the account.
pub async fn connect_choosing(
    connector: &dyn Connector,
    server: &OAuthServer,
    request: ConnectRequest<'_>,
    choice: &str,
) -> Result<(ConnectAttempt, Vec<Choice>, Connected), ConnectError> {
    let (attempt, grant) = authorize(connector, server, request).await?;
    let oauth = connector.oauth().unwrap();
    let Choices::Of(choices) = oauth.choices(&grant).await? else { panic!("there is a choice") };
    let chosen = choices.iter().find(|one| one.id == choice).cloned();
    let connected = oauth.finish(&grant, chosen.as_ref()).await?;
    Ok((attempt, choices, connected))
}

/// Connects as the pages do, without a choice.
pub async fn connect_in_browser(
    connector: &dyn Connector,
    server: &OAuthServer,
) -> Result<(ConnectAttempt, Connected), ConnectError> {
    let request = ConnectRequest { target: ConnectTarget::Default, instance: "" };
    let (attempt, grant) = authorize(connector, server, request).await?;
    let oauth = connector.oauth().unwrap();
    assert_eq!(oauth.choices(&grant).await?, Choices::NotNeeded);
    Ok((attempt, oauth.finish(&grant, None).await?))
}
