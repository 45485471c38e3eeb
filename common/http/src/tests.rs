//! Tests of the client against scripted servers on loopback.
#![allow(clippy::unwrap_used, reason = "a test's own data")]

mod authority;
mod deadline;
mod download;
mod hostile;
mod http2;
mod names;
mod pooled;
mod tls;

use std::io::Write;

use http::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::test_server::{PendingLookup, ScriptedLookup, TestServer, read_request};
use super::*;

const LONG: Duration = Duration::from_secs(30);
/// A deadline that a test waits for. Long enough to send a request and to receive the head of its response on a busy
/// machine.
const SHORT: Duration = Duration::from_secs(3);

fn client(timeout: Duration, max_body: usize) -> HttpClient {
    HttpClient::guarded(Guard::new(vec!["127.0.0.0/8".parse().unwrap()]), timeout, max_body)
}

fn named(results: &str, allowed: &str) -> HttpClient {
    HttpClient::guarded(Guard::with_lookup(vec![allowed.parse().unwrap()], ScriptedLookup::of(results)), LONG, 1024)
}

async fn get(client: &HttpClient, url: &str) -> Result<HttpResponse, HttpError> {
    client.send(client.request(Method::GET, url)).await
}

async fn post(client: &HttpClient, url: &str) -> Result<HttpResponse, HttpError> {
    client.send(client.request(Method::POST, url).body("hello")).await
}

#[tokio::test]
async fn responses_are_read_completely_and_redirects_are_returned() {
    let server = TestServer::run(|mut stream| async move {
        let request = read_request(&mut stream).await.to_ascii_lowercase();
        assert!(request.contains(&format!("user-agent: {}", USER_AGENT.to_ascii_lowercase())), "{request}");
        let head = "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 5\r\n\r\nthere";
        stream.write_all(head.as_bytes()).await.unwrap();
    })
    .await;
    let response = get(&client(LONG, 5), &server.url()).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..], response.truncated), (302, &b"there"[..], false));
    assert_eq!(response.headers["location"], "http://127.0.0.1:1/");
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn the_deadline_applies_to_a_slow_body() {
    let server = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await.unwrap();
        while stream.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let (client, started) = (client(SHORT, 1024), Instant::now());
    assert!(matches!(get(&client, &server.url()).await, Err(HttpError::Timeout { sent: true })));
    let response = client.send_for_status(client.request(Method::GET, &server.url())).await.unwrap();
    assert!(response.status == 200 && response.truncated && response.body.starts_with(b"x"), "{response:?}");
    assert!(started.elapsed() < LONG);
}

#[tokio::test]
async fn a_body_is_truncated_at_the_limit() {
    let server =
        TestServer::responding(format!("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{}", "y".repeat(100_000)))
            .await;
    let client = client(LONG, 1000);
    let response = get(&client, &server.url()).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (1000, true));
    let response = get(&client.with_limits(LONG, 100_000), &server.url()).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (100_000, false));
}

#[tokio::test]
async fn the_limit_applies_after_decompression() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..64 {
        packed.write_all(&[0; 1 << 20]).unwrap();
    }
    let packed = packed.finish().unwrap();
    assert!(packed.len() < 100_000);
    let mut response =
        format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: {}\r\n\r\n", packed.len()).into_bytes();
    response.extend(packed);
    let server = TestServer::responding(response).await;
    let response = get(&client(LONG, 100_000), &server.url()).await.unwrap();
    assert_eq!((response.body.len(), response.truncated), (100_000, true));
    assert!(response.body.iter().all(|&byte| byte == 0));
}

#[tokio::test]
async fn a_truncated_body_fails_unless_only_the_status_is_needed() {
    let server = TestServer::responding("HTTP/1.1 201 Created\r\nContent-Length: 10\r\n\r\nabc").await;
    let client = client(LONG, 1024);
    assert!(matches!(get(&client, &server.url()).await, Err(HttpError::Broken)));
    let response = client.send_for_status(client.request(Method::GET, &server.url())).await.unwrap();
    assert_eq!((response.status.as_u16(), &response.body[..], response.truncated), (201, &b"abc"[..], true));
}

#[tokio::test]
async fn errors_after_the_request_may_have_arrived() {
    let closed = TestServer::run(|mut stream| async move {
        read_request(&mut stream).await;
    })
    .await;
    // Closing with bytes unread makes the kernel send a reset.
    let reset = TestServer::run(|mut stream| async move {
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    let nonsense = TestServer::responding("This is not HTTP\r\n\r\n").await;
    for server in [closed, reset, nonsense] {
        let error = post(&client(LONG, 1024), &server.url()).await.unwrap_err();
        assert!(matches!(error, HttpError::Broken) && error.may_have_arrived(), "{error:?}");
    }
    let silent = TestServer::run(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let error = post(&client(SHORT, 1024), &silent.url()).await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { sent: true }) && error.may_have_arrived(), "{error:?}");
}

#[tokio::test]
async fn errors_before_the_request_have_not_arrived() {
    let plain = TestServer::run(|mut stream| async move {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        let _ = stream.read(&mut [0; 4096]).await;
    })
    .await;
    let hangs_up = TestServer::run(|stream| async move { drop(stream) }).await;
    let silent = TestServer::run(|stream| async move {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    let client = client(SHORT, 1024);
    type Expected = fn(&HttpError) -> bool;
    let cases: [(String, Expected); 6] = [
        ("http://127.0.0.1:1/".to_owned(), |e| matches!(e, HttpError::Connect)),
        ("https://127.0.0.1:1/".to_owned(), |e| matches!(e, HttpError::Connect)),
        (format!("https://127.0.0.1:{}/", plain.port), |e| matches!(e, HttpError::Tls(why) if !why.is_empty())),
        (format!("https://127.0.0.1:{}/", hangs_up.port), |e| matches!(e, HttpError::Tls(_))),
        (format!("https://127.0.0.1:{}/", silent.port), |e| matches!(e, HttpError::Timeout { sent: false })),
        ("not a url".to_owned(), |e| matches!(e, HttpError::Invalid(_))),
    ];
    for (url, expected) in cases {
        let error = post(&client, &url).await.unwrap_err();
        assert!(expected(&error) && !error.may_have_arrived(), "{url}: {error:?}");
    }
}

#[tokio::test]
async fn a_request_on_a_closed_idle_connection_has_not_arrived() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_request(&mut stream).await;
        stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    });
    let client = client(LONG, 1024);
    assert_eq!(post(&client, &url).await.unwrap().status, 204);
    // The connection and the listener are closed, so the client can only open a new connection.
    server.await.unwrap();
    let error = post(&client, &url).await.unwrap_err();
    assert!(matches!(error, HttpError::Connect) && !error.may_have_arrived(), "{error:?}");
}

#[tokio::test]
async fn connections_are_kept_and_reused() {
    let server = TestServer::run(|mut stream: TcpStream| async move {
        while !read_request(&mut stream).await.is_empty() {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
        }
    })
    .await;
    let client = client(LONG, 1024);
    for _ in 0..3 {
        assert_eq!(post(&client, &server.url()).await.unwrap().body, "ok");
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn blocked_addresses_are_never_connected() {
    let server = TestServer::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let (url, port) = (server.url(), server.port);
    let public = HttpClient::guarded(Guard::new(Vec::new()), LONG, 1024);
    for host in ["127.0.0.1", "0x7f.1", "2130706433", "[::ffff:127.0.0.1]", "localhost", "a.localhost"] {
        let error = get(&public, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert!(matches!(error, HttpError::Blocked(_)) && !error.may_have_arrived(), "{host}: {error:?}");
    }
    // The client that sends a request checks it, even if another client started it.
    let started = HttpClient::trusted(LONG, 1024).request(Method::GET, &url);
    assert!(matches!(public.send(started).await, Err(HttpError::Blocked(_))));
    // The name resolves to the server, but also to a blocked address.
    let mixed = named("127.0.0.1,10.0.0.1", "127.0.0.0/8");
    assert!(
        matches!(get(&mixed, &format!("http://example.com:{port}/")).await, Err(HttpError::Blocked(name)) if name == "example.com")
    );
    assert_eq!(server.connections(), 0);
}

#[tokio::test]
async fn dns_rebinding_is_ineffective() {
    let server = TestServer::responding("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await;
    let url = format!("http://rebind.example:{}/", server.port);
    let client = named("127.0.0.1 127.0.0.1 127.0.0.2", "127.0.0.1/32");
    let guard = client.guard.clone().unwrap();
    assert!(guard.check_resolved(&url, SchemePolicy::HttpsOnly).await.is_ok());
    assert_eq!(get(&client, &url).await.unwrap().status, 200);
    assert!(matches!(get(&client, &url).await, Err(HttpError::Blocked(_))));
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn unknown_names_and_slow_lookups_are_distinguished() {
    let error = get(&named("-", "127.0.0.1/32"), "https://unknown.example/").await.unwrap_err();
    assert!(matches!(error, HttpError::Dns) && !error.may_have_arrived(), "{error:?}");
    let client = HttpClient::guarded(Guard::with_lookup(Vec::new(), Arc::new(PendingLookup)), SHORT, 1024);
    let error = get(&client, "https://slow.example/").await.unwrap_err();
    assert!(matches!(error, HttpError::Timeout { sent: false }) && !error.may_have_arrived(), "{error:?}");
}
