//! Images with the real connectors, from the library to the request, against servers that respond like the platforms.

use std::sync::{Arc, Mutex};

use crier_domain::platform::Platform;
use crier_domain::post::PostStatus;
use crier_store::accounts::NewAccount;
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::images;
use crate::support::jobs::TestWorker;
use crate::support::store::{TestStore, new_account, on_one};
use crate::support::twitter_videos::{TwitterVideos, problem};

on_one!(
    bluesky_blobs_are_uploaded_once,
    a_bluesky_token_is_refreshed_during_uploads,
    wordpress_images_are_uploaded_once,
    an_image_deleted_in_wordpress_is_uploaded_again,
    a_gif_uploaded_again_to_x_is_processed_first_and_only_once_per_attempt,
    a_gif_that_x_could_not_process_is_uploaded_again_if_the_post_is_retried,
    unsupported_bluesky_images_are_converted_and_shrunk,
);

/// A server that records its requests. It selects responses by the method and the last part of the path.
struct Server {
    mock: MockServer,
    received: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Starts the server. The response depends on the request's type and the number of earlier requests of this type.
    async fn start(response_for: impl Fn(&str, usize, &Request) -> ResponseTemplate + Send + Sync + 'static) -> Self {
        let (mock, received) = (MockServer::start().await, Arc::new(Mutex::new(Vec::<Request>::new())));
        let recorded = received.clone();
        let respond = move |request: &Request| {
            let earlier = recorded.lock().unwrap().iter().filter(|r| request_type(r) == request_type(request)).count();
            recorded.lock().unwrap().push(request.clone());
            response_for(&request_type(request), earlier, request)
        };
        Mock::given(any()).respond_with(respond).mount(&mock).await;
        Self { mock, received }
    }

    fn requests(&self, kind: &str) -> Vec<Request> {
        self.received.lock().unwrap().iter().filter(|r| request_type(r) == kind).cloned().collect()
    }

    fn bodies(&self, kind: &str) -> Vec<Value> {
        self.requests(kind).iter().map(|r| r.body_json().unwrap()).collect()
    }
}

/// Returns `POST media`, `GET posts`, `POST com.atproto.repo.putRecord`; a number at the end becomes `/…`.
fn request_type(request: &Request) -> String {
    let last = request.url.path_segments().unwrap().rfind(|part| part.parse::<i64>().is_err());
    let of_one = request.url.path().ends_with(|c: char| c.is_ascii_digit());
    format!("{} {}{}", request.method, last.unwrap_or_default(), if of_one { "/…" } else { "" })
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

fn rejected(status: u16, body: Value) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(body)
}

/// Connects an account on a platform, and returns its id.
async fn connect_account(w: &TestWorker, platform: Platform, secrets: Value) -> i64 {
    let new = NewAccount {
        platform,
        external_id: if platform == Platform::Bluesky { "did:plc:alice".into() } else { "it".into() },
        secrets: SecretString::from(secrets.to_string()),
        ..new_account("it", "")
    };
    w.store_account(w.world, &new).await.id
}

async fn bluesky(s: TestStore, server: &Server) -> (TestWorker, i64) {
    let w = TestWorker::with_base_url(s, Platform::Bluesky, &server.mock.uri()).await;
    let secrets = json!({ "identifier": "a", "app_password": "p", "access_jwt": "old", "refresh_jwt": "refresh" });
    let account = connect_account(&w, Platform::Bluesky, secrets).await;
    (w, account)
}

async fn wordpress(s: TestStore, server: &Server) -> (TestWorker, i64) {
    let w = TestWorker::over(s).await;
    let root = format!("{}/wp-json/", server.mock.uri());
    let secrets = json!({ "username": "ada", "application_password": "p", "api_root": root });
    let account = connect_account(&w, Platform::Wordpress, secrets).await;
    (w, account)
}

async fn create_images(w: &TestWorker, n: u32) -> Vec<i64> {
    let mut ids = Vec::new();
    for i in 1..=n {
        ids.push(w.image(&format!("p{i}.png"), images::png(10 + i, 20), Some(&format!("Image {i}"))).await);
    }
    ids
}

const UPLOAD: &str = "POST com.atproto.repo.uploadBlob";
const PUT: &str = "POST com.atproto.repo.putRecord";

fn blob(name: impl std::fmt::Display) -> Value {
    json!({ "$type": "blob", "ref": { "$link": format!("bafy{name}") }, "mimeType": "image/png", "size": 1 })
}

fn record_created() -> ResponseTemplate {
    ok(json!({ "uri": "at://did:plc:alice/app.bsky.feed.post/x", "cid": "bafy" }))
}

async fn bluesky_blobs_are_uploaded_once(s: TestStore) {
    let server = Server::start(|kind, earlier, _| match (kind, earlier) {
        (UPLOAD, n) => ok(json!({ "blob": blob(n) })),
        // The call fails, and the platform has not accepted the post.
        (PUT, 0) => ResponseTemplate::new(502),
        (PUT, _) => record_created(),
        _ => rejected(400, json!({ "error": "RecordNotFound", "message": "Could not locate record" })),
    })
    .await;
    let (w, account) = bluesky(s, &server).await;
    let ids = create_images(&w, 4).await;
    let (post, _) = w.publish_images(account, &ids).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let sent = server.requests(UPLOAD);
    assert_eq!(sent.len(), 4);
    assert!(
        sent.iter().all(|r| r.headers["content-type"] == "image/png" && r.headers["authorization"] == "Bearer old")
    );
    let records = server.bodies(PUT);
    assert_eq!(records[0], records[1], "the same record is sent again");
    let image = |n: u32| {
        let ratio = json!({ "width": 11 + n, "height": 20 });
        json!({ "image": blob(n), "alt": format!("Image {}", n + 1), "aspectRatio": ratio })
    };
    let images: Vec<Value> = (0..4).map(image).collect();
    assert_eq!(records[0]["record"]["embed"], json!({ "$type": "app.bsky.embed.images", "images": images }));
}

async fn a_bluesky_token_is_refreshed_during_uploads(s: TestStore) {
    let server = Server::start(|kind, earlier, request| match kind {
        // The old token expires after the first upload.
        UPLOAD if earlier > 0 && request.headers["authorization"] == "Bearer old" => {
            rejected(400, json!({ "error": "ExpiredToken", "message": "Token has expired" }))
        }
        UPLOAD => ok(json!({ "blob": blob(request.body.len()) })),
        "POST com.atproto.server.refreshSession" => {
            ok(json!({ "did": "did:plc:alice", "handle": "a", "accessJwt": "new", "refreshJwt": "refresh-2" }))
        }
        _ => record_created(),
    })
    .await;
    let (w, account) = bluesky(s, &server).await;
    let ids = create_images(&w, 3).await;
    let (post, target) = w.publish_images(account, &ids).await;
    w.run_jobs().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((server.requests(UPLOAD).len(), w.target(target).await.attempts), (4, 1));
    assert_eq!(server.requests("POST com.atproto.server.refreshSession").len(), 1);
    assert_eq!(server.requests(PUT)[0].headers["authorization"], "Bearer new");
}

/// Responds like WordPress: the n-th upload has the id 100 + n, and `exists` selects the ids that exist.
fn wordpress_response(kind: &str, earlier: usize, request: &Request, exists: impl Fn(i64) -> bool) -> ResponseTemplate {
    let parameter = |name: &str| {
        let found = request.url.query_pairs().find(|(key, _)| key == name).map(|(_, value)| value.into_owned());
        found.unwrap_or_default()
    };
    match kind {
        "POST media" => {
            let id = 101 + earlier;
            ResponseTemplate::new(201)
                .set_body_json(json!({ "id": id, "source_url": format!("https://b/{id}.png"), "slug": "x" }))
        }
        "POST media/…" => ok(json!({ "id": 1 })),
        "GET media" => {
            let ids = parameter("include");
            let ids = ids.split(',').filter_map(|id| id.parse().ok()).filter(|id| exists(*id));
            ok(ids.map(|id| json!({ "id": id })).collect())
        }
        "GET posts" => ok(json!([])),
        // The first post is rejected.
        _ if earlier == 0 => rejected(429, json!({ "code": "x" })),
        _ => ResponseTemplate::new(201).set_body_json(json!({ "id": 11, "link": "https://b/x/", "slug": "x" })),
    }
}

async fn wordpress_images_are_uploaded_once(s: TestStore) {
    let server = Server::start(|kind, earlier, request| wordpress_response(kind, earlier, request, |_| true)).await;
    let (w, account) = wordpress(s, &server).await;
    let ids = create_images(&w, 20).await;
    let (post, target) = w.publish_images(account, &ids).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let marker = w.target(target).await.marker.unwrap();
    let names: Vec<String> = server
        .requests("POST media")
        .iter()
        .map(|r| r.headers["content-disposition"].to_str().unwrap().to_owned())
        .collect();
    let slug = marker["slug"].as_str().unwrap();
    let expected: Vec<String> = ids.iter().map(|id| format!("attachment; filename=\"{slug}-{id}.png\"")).collect();
    assert_eq!(names, expected, "each once, in order");
    let alt_texts: Vec<Value> = server.bodies("POST media/…").iter().map(|b| b["alt_text"].clone()).collect();
    assert_eq!(alt_texts, (1..=20).map(|n| json!(format!("Image {n}"))).collect::<Vec<_>>());
    let body = server.bodies("POST posts").pop().unwrap();
    assert_eq!(body["featured_media"], json!(101));
    let content = body["content"].as_str().unwrap();
    let places: Vec<_> = (102..=120).map(|id| content.find(&format!("https://b/{id}.png")).unwrap()).collect();
    assert!(places.is_sorted() && !content.contains("101.png"), "{content}");
}

async fn an_image_deleted_in_wordpress_is_uploaded_again(s: TestStore) {
    let server =
        Server::start(|kind, earlier, request| wordpress_response(kind, earlier, request, |id| id != 102)).await;
    let (w, account) = wordpress(s, &server).await;
    let ids = create_images(&w, 2).await;
    let (post, target) = w.publish_images(account, &ids).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    assert_eq!((server.requests("POST media").len(), w.target(target).await.attempts), (4, 2));
    assert_eq!(server.bodies("POST posts")[1]["featured_media"], json!(103));
}

async fn a_gif_uploaded_again_to_x_is_processed_first_and_only_once_per_attempt(s: TestStore) {
    let (x, server) = TwitterVideos::start().await;
    let w = TestWorker::with_base_url(s, Platform::Twitter, &server.uri()).await;
    let account = connect_account(&w, Platform::Twitter, json!({ "access_token": "access-0" })).await;
    let gif = w.image("moving.gif", images::animated_gif(40, 30), None).await;
    // The first attempt is rejected after the upload. The second one uploads the GIF again.
    let expired = || problem(400, "Your media IDs are invalid.");
    let rejected = [problem(429, "Too Many Requests"), expired(), expired()];
    x.state().rejected.extend(rejected.map(|response| ("/tweets", response)));
    let processed = || json!({ "state": "succeeded" });
    let in_progress = || json!({ "state": "in_progress", "check_after_secs": 2 });
    x.state().states.extend([processed(), processed(), in_progress(), in_progress()]);
    let (post, target) = w.publish_images(account, &[gif]).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let attempts = w.target(target).await.attempts;
    assert_eq!((x.state().uploads.len(), attempts), (2, 3));
    assert!(x.state().states.is_empty(), "Crier waits until X has processed the second upload");
    assert_eq!(x.state().tweets.len(), 1);
}

async fn a_gif_that_x_could_not_process_is_uploaded_again_if_the_post_is_retried(s: TestStore) {
    let (x, server) = TwitterVideos::start().await;
    let w = TestWorker::with_base_url(s, Platform::Twitter, &server.uri()).await;
    let account = connect_account(&w, Platform::Twitter, json!({ "access_token": "access-0" })).await;
    let gif = w.image("moving.gif", images::animated_gif(40, 30), None).await;
    x.state().states.push_back(json!({ "state": "failed" }));
    let (post, _) = w.publish_images(account, &[gif]).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, x.state().uploads.len()), (PostStatus::Failed, 1));
    w.publish_again(post).await;
    w.run_until_idle().await;
    assert_eq!((w.post_status(post).await, x.state().uploads.len()), (PostStatus::Published, 2));
}

async fn unsupported_bluesky_images_are_converted_and_shrunk(s: TestStore) {
    let server = Server::start(|kind, earlier, _| match kind {
        UPLOAD => ok(json!({ "blob": blob(earlier) })),
        _ => record_created(),
    })
    .await;
    let (w, account) = bluesky(s, &server).await;
    // Every pixel differs: the file is as large as possible for its dimensions.
    let noise = image::RgbImage::from_fn(900, 800, |x, y| {
        let n = x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b).rotate_left(13);
        image::Rgb(n.wrapping_mul(0xc2b2_ae35).to_be_bytes()[..3].try_into().unwrap())
    });
    let large = images::encoded(&noise.into(), image::ImageFormat::Png);
    assert!(large.len() > 2_000_000);
    let ids = [
        w.image("large.png", large, Some("Noise")).await,
        w.image("moving.gif", images::gif(40, 30), Some("A still")).await,
    ];
    let (post, _) = w.publish_images(account, &ids).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let sent = server.requests(UPLOAD);
    assert_eq!(sent.len(), 2);
    assert!(
        sent[0].headers["content-type"] == "image/jpeg" && sent[0].body.len() <= 1_000_000,
        "{}",
        sent[0].body.len()
    );
    assert!(sent[1].headers["content-type"] != "image/gif");
    for (upload, sides) in sent.iter().zip([(900, 800), (40, 30)]) {
        let shown = image::load_from_memory(&upload.body).unwrap();
        assert!(shown.width() <= sides.0 && shown.height() <= sides.1, "{sides:?}");
    }
    let images = server.bodies(PUT)[0]["record"]["embed"]["images"].clone();
    assert_eq!(images[0]["aspectRatio"], json!({ "width": 900, "height": 800 }));
    assert_eq!((&images[0]["alt"], &images[1]["alt"]), (&json!("Noise"), &json!("A still")));
}
