//! Reading the pages of link cards, from servers that are hostile.

use std::time::Duration;

use crier_domain::platform::Platform;
use crier_http::Guard;
use crier_platforms::link_card::{CardReader, CardRequest, MAX_TITLE, ReadError};
use serde_json::Map;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wiremock::matchers::{any, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

/// The network that the reader may call, besides public addresses.
fn guard() -> Guard {
    Guard::new(vec!["127.0.0.1/32".parse().unwrap()])
}

fn reader() -> CardReader {
    CardReader::new(guard())
}

fn html(body: impl Into<Vec<u8>>) -> ResponseTemplate {
    let body: Vec<u8> = body.into();
    ResponseTemplate::new(200).set_body_raw(body, "text/html; charset=utf-8")
}

async fn respond(server: &MockServer, at: &str, response: ResponseTemplate) {
    Mock::given(path(at)).respond_with(response).mount(server).await;
}

/// Starts a server that returns this head, and then this chunk again and again. Returns its URL.
async fn endless(head: &'static str, chunk: &'static [u8], pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let is_request = stream.read(&mut [0; 4096]).await.is_ok();
                let mut is_open = is_request && stream.write_all(head.as_bytes()).await.is_ok();
                while is_open {
                    is_open = stream.write_all(chunk).await.is_ok();
                    tokio::time::sleep(pause).await;
                }
            });
        }
    });
    url
}

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<title>Endless</title>";

#[tokio::test]
async fn a_page_is_read_after_its_redirects() {
    let server = MockServer::start().await;
    respond(&server, "/short", ResponseTemplate::new(301).insert_header("location", "/blog/post")).await;
    let page = "<title>T</title><meta property='og:title' content='Fish &amp; Chips'>\
                <meta property='og:image' content='../cat.png'><meta name=description content='About'>";
    respond(&server, "/blog/post", html(page)).await;
    let found = reader().page(&format!("{}/short", server.uri())).await.unwrap();
    assert_eq!((found.title.as_deref(), found.description.as_deref()), (Some("Fish & Chips"), Some("About")));
    let image = found.image.unwrap();
    assert_eq!(image, format!("{}/cat.png", server.uri()));
    respond(&server, "/cat.png", ResponseTemplate::new(200).set_body_raw(b"bytes".to_vec(), "image/png")).await;
    assert_eq!(&reader().image(&image).await.unwrap().bytes[..], b"bytes");
}

#[tokio::test]
async fn a_page_without_open_graph_has_its_title() {
    let server = MockServer::start().await;
    respond(&server, "/", html("<html><head><title>Fresh\n bread</title></head>")).await;
    let found = reader().page(&server.uri()).await.unwrap();
    let request = CardRequest::of(Platform::Bluesky, "https://a.example", false, &Map::new()).unwrap();
    let card = request.card(Some(&found)).unwrap();
    assert_eq!(
        (card.url.as_str(), card.title.as_str(), card.description.as_str()),
        ("https://a.example", "Fresh bread", "")
    );
}

#[tokio::test]
async fn only_html_is_a_page() {
    for kind in ["application/pdf", "image/png", "text/plain", "text/htmlx"] {
        let server = MockServer::start().await;
        respond(&server, "/", ResponseTemplate::new(200).set_body_raw(b"<title>x</title>".to_vec(), kind)).await;
        assert_eq!(reader().page(&server.uri()).await, None, "{kind}");
    }
    for status in [204, 302, 404, 500] {
        let server = MockServer::start().await;
        respond(&server, "/", ResponseTemplate::new(status)).await;
        assert_eq!(reader().page(&server.uri()).await, None, "{status}");
    }
}

#[tokio::test]
async fn redirects_do_not_lead_to_private_addresses() {
    let listener = std::net::TcpListener::bind("127.0.0.2:0").unwrap();
    let other = MockServer::builder().listener(listener).start().await;
    Mock::given(any()).respond_with(html("<title>secret</title>")).mount(&other).await;
    let port = other.address().port();
    for target in [
        format!("http://127.0.0.2:{port}/"),
        format!("http://[::ffff:127.0.0.2]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let server = MockServer::start().await;
        respond(&server, "/", ResponseTemplate::new(302).insert_header("location", target.as_str())).await;
        assert_eq!(reader().page(&server.uri()).await, None, "{target}");
        assert_eq!(reader().image(&server.uri()).await.err(), Some(ReadError::Failed), "{target}");
    }
    assert_eq!(reader().page(&other.uri()).await, None);
    assert!(other.received_requests().await.unwrap().is_empty());
}

#[tokio::test]
async fn endless_redirects_end() {
    let server = MockServer::start().await;
    respond(&server, "/", ResponseTemplate::new(302).insert_header("location", "/")).await;
    assert_eq!(reader().page(&server.uri()).await, None);
    assert_eq!(server.received_requests().await.unwrap().len(), 6);
}

#[tokio::test]
async fn only_the_beginning_of_an_endless_page_is_read() {
    let url = endless(HEAD, &[b'x'; 64 << 10], Duration::ZERO).await;
    assert_eq!(reader().page(&url).await.unwrap().title.as_deref(), Some("Endless"));
    assert!(reader().image(&url).await.is_err(), "an image is read completely or not at all");
}

/// Waits for real time, because the deadline is that of the HTTP client.
#[tokio::test]
async fn a_slow_page_is_abandoned() {
    let url = endless(HEAD, b"x", Duration::from_millis(20)).await;
    let reader = CardReader::with_timeout(guard(), Duration::from_millis(400));
    let abandoned = async {
        assert_eq!(reader.page(&url).await, None);
        assert_eq!(reader.image(&url).await.err(), Some(ReadError::Failed));
    };
    tokio::time::timeout(Duration::from_secs(60), abandoned).await.expect("the page never ends");
}

#[tokio::test]
async fn a_long_title_is_cut() {
    // 10 MB each, of which 1 MiB is read.
    for title in ["lorem ".repeat(1_700_000), "ü".repeat(5_000_000)] {
        let server = MockServer::start().await;
        respond(&server, "/", html(format!("<title>{title}</title>"))).await;
        let found = reader().page(&server.uri()).await.unwrap();
        let request = CardRequest::of(Platform::Bluesky, "https://a.example", false, &Map::new()).unwrap();
        let card = request.card(Some(&found)).unwrap();
        assert!(card.title.ends_with('…') && card.title.chars().count() <= MAX_TITLE, "{}", card.title);
    }
}

#[tokio::test]
async fn large_images_are_not_read() {
    let server = MockServer::start().await;
    let large = vec![0_u8; (5 << 20) + 1];
    respond(&server, "/large.png", ResponseTemplate::new(200).set_body_raw(large, "image/png")).await;
    assert!(reader().image(&format!("{}/large.png", server.uri())).await.is_err());
}

#[tokio::test]
async fn the_reads_of_a_workspace_leave_room_for_others() {
    let server = MockServer::start().await;
    respond(&server, "/image.png", ResponseTemplate::new(200).set_body_raw("x", "image/png")).await;
    let url = format!("{}/image.png", server.uri());
    let reader = reader();
    let (own, other) = (reader.of_workspace(1), reader.of_workspace(2));
    // An image counts as a read until it is dropped.
    let mut held = Vec::new();
    for _ in 0..8 {
        held.push(own.image(&url).await.unwrap());
    }
    let no_more = reader.of_workspace(1).image(&url).await.err();
    assert_eq!(no_more, Some(ReadError::Busy), "the workspace has no more reads");
    assert!(other.image(&url).await.is_ok());
    held.pop();
    assert!(own.image(&url).await.is_ok());
}
