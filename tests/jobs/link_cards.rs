//! Link cards on Bluesky, from the page to the request. One server is the page's site and the personal data server.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crier_domain::platform::Platform;
use crier_domain::post::{PostStatus, ThreadPart};
use crier_store::accounts::NewAccount;
use secrecy::SecretString;
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, ResponseTemplate};

use crate::support::images;
use crate::support::jobs::TestWorker;
use crate::support::store::{TestStore, new_account, on_both, on_one};

on_one!(
    the_first_link_becomes_a_card_with_the_image_of_its_page,
    a_post_is_published_without_a_card_if_the_page_cannot_be_read,
    the_option_switches_the_card_off,
    the_option_replaces_the_page,
    each_part_of_a_thread_has_its_card,
    an_unusable_image_is_left_out,
    a_failed_upload_leaves_the_image_out,
    a_token_is_refreshed_during_the_upload,
);
on_both!(a_page_that_changes_between_two_calls_does_not_double_the_post);

const UPLOAD: &str = "com.atproto.repo.uploadBlob";
const PUT: &str = "com.atproto.repo.putRecord";
const GET: &str = "com.atproto.repo.getRecord";
const WRITES: &str = "com.atproto.repo.applyWrites";

struct Server {
    mock: MockServer,
}

impl Server {
    /// Starts the server. The response depends on the last part of the path and the number of earlier requests for it.
    async fn start(response_for: impl Fn(&str, usize, &Request) -> ResponseTemplate + Send + Sync + 'static) -> Self {
        let counts: Mutex<HashMap<String, usize>> = Mutex::default();
        let respond = move |request: &Request| {
            let name = name(request);
            let earlier = {
                let mut counts = counts.lock().unwrap();
                let count = counts.entry(name.clone()).or_default();
                *count += 1;
                *count - 1
            };
            response_for(&name, earlier, request)
        };
        let mock = MockServer::start().await;
        Mock::given(any()).respond_with(respond).mount(&mock).await;
        Self { mock }
    }

    fn page(&self) -> String {
        format!("{}/page", self.mock.uri())
    }

    async fn requests(&self, wanted: &str) -> Vec<Request> {
        let mut all = self.mock.received_requests().await.unwrap();
        all.retain(|request| name(request) == wanted);
        all
    }

    /// Returns the `embed` of each record that was sent.
    async fn embeds(&self) -> Vec<Value> {
        let puts = self.requests(PUT).await;
        puts.iter().map(|put| put.body_json::<Value>().unwrap()["record"]["embed"].clone()).collect()
    }
}

/// Returns the last part of the path.
fn name(request: &Request) -> String {
    request.url.path().rsplit('/').next().unwrap_or_default().to_owned()
}

fn page(title: &str) -> ResponseTemplate {
    let head = format!(
        "<meta property='og:title' content='{title}'><meta property='og:description' content='About'>\
         <meta property='og:image' content='cat.png'>"
    );
    ResponseTemplate::new(200).set_body_raw(head, "text/html")
}

fn png(bytes: Vec<u8>) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_raw(bytes, "image/png")
}

fn blob() -> Value {
    json!({ "$type": "blob", "ref": { "$link": "bafy" }, "mimeType": "image/png", "size": 1 })
}

fn error(status: u16, name: &str) -> ResponseTemplate {
    ResponseTemplate::new(status).set_body_json(json!({ "error": name, "message": "x" }))
}

/// Responds like a site with a page and a personal data server without problems.
fn good_response(name: &str) -> ResponseTemplate {
    match name {
        "page" => page("Fish &amp; Chips"),
        "cat.png" => png(images::png(40, 30)),
        UPLOAD => ResponseTemplate::new(200).set_body_json(json!({ "blob": blob() })),
        PUT => ResponseTemplate::new(200).set_body_json(json!({ "uri": "at://did:plc:alice/app.bsky.feed.post/x" })),
        _ => error(400, "RecordNotFound"),
    }
}

fn external(url: &str, title: &str, description: &str, thumb: Option<Value>) -> Value {
    let mut external = json!({ "uri": url, "title": title, "description": description });
    if let Some(thumb) = thumb {
        external["thumb"] = thumb;
    }
    json!({ "$type": "app.bsky.embed.external", "external": external })
}

async fn worker(s: TestStore, server: &Server) -> (TestWorker, i64) {
    let w = TestWorker::with_base_url(s, Platform::Bluesky, &server.mock.uri()).await;
    let secrets = json!({ "identifier": "a", "app_password": "p", "access_jwt": "old", "refresh_jwt": "refresh" });
    let new = NewAccount {
        platform: Platform::Bluesky,
        external_id: "did:plc:alice".to_owned(),
        secrets: SecretString::from(secrets.to_string()),
        ..new_account("it", "")
    };
    let account = w.store_account(w.world, &new).await.id;
    (w, account)
}

/// Publishes a text with this option, and returns the ids of the post and its target.
async fn publish(w: &TestWorker, account: i64, text: &str, option: Value) -> (i64, i64) {
    let (post, created) = w.publish(&[account]).await;
    w.change_post(post, |post| post.content = text.to_owned()).await;
    w.set_options(created[0], json!({ "link_card": option })).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    (post, created[0])
}

async fn the_first_link_becomes_a_card_with_the_image_of_its_page(s: TestStore) {
    let server = Server::start(|name, _, _| good_response(name)).await;
    let (w, account) = worker(s, &server).await;
    let (_, target) = publish(&w, account, &format!("See {} #fish", server.page()), Value::Null).await;
    let card = external(&server.page(), "Fish & Chips", "About", Some(blob()));
    assert_eq!((server.embeds().await, w.target(target).await.attempts), (vec![card], 1));
    let uploads = server.requests(UPLOAD).await;
    assert!(uploads.len() == 1 && uploads[0].headers["content-type"] == "image/png");
    assert!(image::load_from_memory(&uploads[0].body).is_ok_and(|image| image.width() == 40));
}

async fn a_post_is_published_without_a_card_if_the_page_cannot_be_read(s: TestStore) {
    let server = Server::start(|name, _, _| match name {
        "page" => ResponseTemplate::new(503),
        name => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    for link in [server.page().as_str(), "http://127.0.0.1:1/page", "http://192.168.1.1/page"] {
        let (_, target) = publish(&w, account, &format!("See {link}"), Value::Null).await;
        assert_eq!(w.target(target).await.attempts, 1, "{link}");
    }
    assert_eq!((server.embeds().await, server.requests(UPLOAD).await.len()), (vec![Value::Null; 3], 0));
}

async fn the_option_switches_the_card_off(s: TestStore) {
    let server = Server::start(|name, _, _| good_response(name)).await;
    let (w, account) = worker(s, &server).await;
    publish(&w, account, &server.page(), json!(false)).await;
    publish(&w, account, "No link", Value::Null).await;
    assert_eq!((server.embeds().await, server.requests("page").await.len()), (vec![Value::Null; 2], 0));
}

async fn the_option_replaces_the_page(s: TestStore) {
    let server = Server::start(|name, _, _| good_response(name)).await;
    let (w, account) = worker(s, &server).await;
    let id = w.image("mine.png", images::png(7, 5), None).await;
    let url = "https://other.example/a";
    let whole = json!({ "url": url, "title": "Mine", "description": "By me", "media_id": id });
    publish(&w, account, "No link", whole).await;
    assert_eq!(server.requests("page").await.len(), 0, "everything is set");
    publish(&w, account, &server.page(), json!({ "title": "Mine", "media_id": id })).await;
    publish(&w, account, &server.page(), json!({ "description": "", "media_id": 999 })).await;
    let cards = [
        external(url, "Mine", "By me", Some(blob())),
        external(&server.page(), "Mine", "About", Some(blob())),
        external(&server.page(), "Fish & Chips", "", None),
    ];
    assert_eq!(server.embeds().await, cards);
    let uploads = server.requests(UPLOAD).await;
    assert!(uploads.len() == 2 && server.requests("cat.png").await.is_empty());
    assert!(image::load_from_memory(&uploads[0].body).is_ok_and(|image| image.width() == 7));
}

/// The option describes the card of the post itself. The parts after it have cards of their own links.
async fn each_part_of_a_thread_has_its_card(s: TestStore) {
    let server = Server::start(|name, _, _| match name {
        WRITES => ResponseTemplate::new(200).set_body_json(json!({})),
        name => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    let (post, created) = w.publish(&[account]).await;
    let part = |content: &str| ThreadPart { content: content.to_owned(), media: Vec::new() };
    let (page, thread) = (server.page(), vec![part("No link"), part(&server.page())]);
    w.change_post(post, |post| {
        post.content.clone_from(&page);
        post.thread = thread;
    })
    .await;
    w.set_options(created[0], json!({ "link_card": { "title": "Mine" } })).await;
    w.run_until_idle().await;
    assert_eq!(w.post_status(post).await, PostStatus::Published);
    let calls = server.requests(WRITES).await;
    assert_eq!(calls.len(), 1);
    let body: Value = calls[0].body_json().unwrap();
    let embeds: Vec<&Value> = body["writes"].as_array().unwrap().iter().map(|write| &write["value"]["embed"]).collect();
    let card = |title: &str| external(&page, title, "About", Some(blob()));
    assert_eq!(embeds, [&card("Mine"), &Value::Null, &card("Fish & Chips")]);
}

async fn an_unusable_image_is_left_out(s: TestStore) {
    // A few kilobytes that become 36 megapixels, a text, a truncated image, and an error.
    let bomb = images::encoded(&image::DynamicImage::new_luma8(6_000, 6_000), image::ImageFormat::Png);
    let mut truncated = images::png(40, 30);
    truncated.truncate(truncated.len() / 2);
    let server = Server::start(move |name, earlier, _| match (name, earlier) {
        ("cat.png", 0) => png(bomb.clone()),
        ("cat.png", 1) => png(b"<svg>".to_vec()),
        ("cat.png", 2) => png(truncated.clone()),
        ("cat.png", _) => ResponseTemplate::new(404),
        _ => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    for _ in 0..4 {
        publish(&w, account, &server.page(), Value::Null).await;
    }
    let card = external(&server.page(), "Fish & Chips", "About", None);
    assert_eq!((server.embeds().await, server.requests("cat.png").await.len()), (vec![card; 4], 4));
    assert!(server.requests(UPLOAD).await.is_empty());
}

async fn a_failed_upload_leaves_the_image_out(s: TestStore) {
    let server = Server::start(|name, _, _| match name {
        UPLOAD => error(500, "InternalServerError"),
        name => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    let (_, target) = publish(&w, account, &server.page(), Value::Null).await;
    let card = external(&server.page(), "Fish & Chips", "About", None);
    assert_eq!((server.embeds().await, w.target(target).await.attempts), (vec![card], 1));
}

async fn a_token_is_refreshed_during_the_upload(s: TestStore) {
    let server = Server::start(|name, _, request| match name {
        UPLOAD if request.headers["authorization"] == "Bearer old" => error(400, "ExpiredToken"),
        "com.atproto.server.refreshSession" => {
            let session =
                json!({ "did": "did:plc:alice", "handle": "a", "accessJwt": "new", "refreshJwt": "refresh-2" });
            ResponseTemplate::new(200).set_body_json(session)
        }
        name => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    publish(&w, account, &server.page(), Value::Null).await;
    assert_eq!(server.embeds().await, [external(&server.page(), "Fish & Chips", "About", Some(blob()))]);
    assert_eq!(server.requests(PUT).await[0].headers["authorization"], "Bearer new");
}

/// The first call succeeds, but its response is lost, and the server does not find the record at first.
async fn a_page_that_changes_between_two_calls_does_not_double_the_post(s: TestStore) {
    let puts: Arc<Mutex<Vec<Value>>> = Arc::default();
    let stored = puts.clone();
    let server = Server::start(move |name, earlier, request| match name {
        "page" => page(&format!("Title {earlier}")),
        PUT => {
            let mut stored = stored.lock().unwrap();
            stored.push(request.body_json::<Value>().unwrap()["record"].clone());
            if stored.len() == 1 { error(502, "UpstreamFailure") } else { error(400, "InvalidSwap") }
        }
        GET => match &stored.lock().unwrap()[..] {
            [first, _, ..] => {
                let uri = "at://did:plc:alice/app.bsky.feed.post/x";
                ResponseTemplate::new(200).set_body_json(json!({ "uri": uri, "value": first }))
            }
            _ => error(400, "RecordNotFound"),
        },
        name => good_response(name),
    })
    .await;
    let (w, account) = worker(s, &server).await;
    let (_, target) = publish(&w, account, &server.page(), Value::Null).await;
    let records = puts.lock().unwrap().clone();
    let titles: Vec<_> = records.iter().map(|record| &record["embed"]["external"]["title"]).collect();
    assert_eq!(titles, ["Title 0", "Title 1"]);
    assert_eq!(records[0]["createdAt"], records[1]["createdAt"]);
    let external_id = w.target(target).await.external_id;
    assert_eq!(external_id.as_deref(), Some("at://did:plc:alice/app.bsky.feed.post/x"));
}
