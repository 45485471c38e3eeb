//! Clients that request large responses and do not read them.

use std::pin::pin;
use std::time::Duration;

use crier_api::MinRate;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::app::{BASE, Tenant, TestApp, on_one_app, on_sqlite_app};
use crate::support::client::until_soon;
use crate::support::store::TestStore;

on_one_app!(unread_responses_are_bounded, lists_of_a_workspace_take_turns);
on_sqlite_app!(http2_is_not_supported, visits_are_limited_per_address);

/// Sends a request on a connection with a small receive buffer.
async fn send(app: &TestApp, head: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(4 << 10).expect("a small buffer");
    let mut client = socket.connect(app.address).await.expect("a connection");
    client.write_all(head.as_bytes()).await.expect("it is read");
    client
}

/// Requests posts of about 393 KB each, and returns when their response has begun.
async fn request_posts(t: &Tenant<'_>, count: usize) -> TcpStream {
    let (path, key) = (t.path(&format!("/posts?per_page={count}")), &t.key);
    let head = format!("GET {BASE}{path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n\r\n");
    let mut client = send(t.app, &head).await;
    client.read_u8().await.expect("a response");
    client
}

/// Requests posts until no other post fits into the key's share of the budget.
async fn use_up_share(t: &Tenant<'_>) -> Vec<TcpStream> {
    let mut clients = Vec::new();
    for count in [1, 1, 5, 5, 5, 5, 5, 5, 5, 5] {
        clients.push(request_posts(t, count).await);
    }
    clients
}

async fn fill(t: &Tenant<'_>) {
    for _ in 0..5 {
        t.post(&t.path("/posts"), json!({ "content": "x" })).await.expect(201);
    }
    t.app.sql(format!("UPDATE posts SET content = '{}'", "\u{1}".repeat(65_535))).await;
}

async fn unread_responses_are_bounded(app: TestApp) {
    let t = app.tenant("unlimited").await;
    fill(&t).await;
    t.get(&t.path("/posts?per_page=5")).await.expect(200);
    // A small page is rejected as well, because the size of a list is unknown until it is read.
    let path = t.path("/posts?per_page=1");
    let unread = use_up_share(&t).await;
    let rejected = t.get(&path).await;
    rejected.expect_error(429, "rate_limited");
    assert_eq!(rejected.header("retry-after"), Some("1"));
    // Small responses are still sent.
    t.get("/brands").await.expect(200);
    // A write is carried out, but its large response is not sent, and the connection is closed.
    let body = json!({ "content": "\u{1}".repeat(65_535) }).to_string();
    let (posts, key, length) = (t.path("/posts"), &t.key, body.len());
    let head = format!(
        "POST {BASE}{posts} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nidempotency-key: unread\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    let mut client = send(&app, &head).await;
    let mut response = Vec::new();
    let _ = client.read_to_end(&mut response).await;
    assert!(response.is_empty(), "{}", String::from_utf8_lossy(&response));
    drop(unread);
    until_soon("the share is free again", async || Some(t.get(&path).await).filter(|reply| reply.status == 200)).await;
    let again = t.request("POST", &posts).idempotency_key("unread").raw(body).send().await;
    again.expect(201);
    assert_eq!(again.header("idempotent-replayed"), Some("true"));
    assert_eq!(app.count_rows("posts").await, 6);
}

async fn lists_of_a_workspace_take_turns(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let turns = app.api.list_turns.of(t.workspace, 2);
    let both = turns.acquire_many(2).await.expect("it is never closed");
    let path = t.path("/posts");
    let mut waiting = pin!(t.get(&path));
    let others = async {
        for _ in 0..5 {
            other.get(&other.path("/posts")).await.expect(200);
            t.get(&t.path("")).await.expect(200);
        }
    };
    tokio::select! {
        _ = &mut waiting => panic!("it waits for its turn"),
        () = others => {}
    }
    drop(both);
    waiting.await.expect(200);
}

async fn http2_is_not_supported(app: TestApp) {
    let mut client = send(&app, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    let mut response = Vec::new();
    let _ = client.read_to_end(&mut response).await;
    // An HTTP/2 server would begin with a SETTINGS frame.
    assert!(response.is_empty() || response.starts_with(b"HTTP/1.1 4"), "{response:?}");
    assert_eq!(app.page("/robots.txt").await.status, 200);
}

async fn visits_are_limited_per_address(app: TestApp) {
    let visit = async |from: &'static str| {
        let request = app.request_at_root("GET", &app.url, "/media/nothing.png");
        if from.is_empty() { request } else { request.header("x-forwarded-for", from) }.send().await
    };
    for _ in 0..1_200 {
        assert_eq!(visit("198.51.100.7").await.status, 404);
    }
    let rejected = visit("198.51.100.7").await;
    assert_eq!((rejected.status, rejected.header("retry-after")), (429, Some("1")));
    // Other addresses are not affected. Private addresses have no limit, because one may be that of an untrusted proxy.
    for from in ["198.51.100.8", "10.0.0.1", ""] {
        assert_eq!(visit(from).await.status, 404, "{from}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_readers_are_disconnected() {
    // Long enough for all responses to begin on a busy machine.
    let rate = MinRate { grace: Duration::from_secs(10), bytes_per_second: 64 << 10 };
    let app = TestApp::start_with_min_rate(TestStore::sqlite().await, rate).await;
    let t = app.tenant("unlimited").await;
    fill(&t).await;
    let path = t.path("/media");
    let mut clients = use_up_share(&t).await;
    t.get(&path).await.expect_error(429, "rate_limited");
    // A byte every few milliseconds of real time never stalls, and is far below the minimum rate.
    let mut pause = tokio::time::interval(Duration::from_millis(20));
    let disconnected = async {
        while t.get(&path).await.status == 429 {
            for client in &mut clients {
                // A closed connection is not an error here.
                let _ = client.read(&mut [0]).await;
            }
            pause.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), disconnected).await.expect("a client is disconnected");
    // A disconnected client receives only the bytes that were already in the buffers of the system. The first two
    // responses may fit into these.
    let mut received = Vec::new();
    for mut client in clients.split_off(2) {
        let mut rest = Vec::new();
        let _ = client.read_to_end(&mut rest).await;
        received.push(rest.len());
    }
    assert!(received.iter().any(|bytes| *bytes < 1_500_000), "{received:?}");
    t.get("/brands").await.expect(200);
}
