//! Receiving uploads: the space for them, and the time for which the server waits for a client.

use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::upload::upload_response;
use crate::api::bodies::{SHORT_MIN_RATE, send_slowly};
use crate::support::app::{BASE, Tenant, TestApp, on_one_app};
use crate::support::client::until_true;
use crate::support::images;
use crate::support::store::TestStore;

on_one_app!(one_workspace_cannot_exhaust_the_spool);
on_one_app!("free" =>
    a_content_length_over_the_free_storage_is_rejected,
    a_chunked_body_over_the_free_storage_is_rejected,
    an_upload_is_replayed_even_if_storage_is_full,
);
on_one_app!("unlimited" =>
    an_upload_sent_again_while_the_first_is_received_creates_one_asset,
    a_disconnected_client_releases_its_spool,
);

const MIB: i64 = 1 << 20;
/// The storage of the plan `free`.
const CAP: i64 = 500 * MIB;

async fn a_content_length_over_the_free_storage_is_rejected(t: Tenant<'_>) {
    t.app.set_storage_usage(t.workspace, CAP - MIB, 0).await;
    let response = upload_response(&t, &format!("Content-Length: {}", 10 * MIB), b"").await;
    assert!(response.starts_with("HTTP/1.1 402 ") && response.contains("storage_limit_exceeded"), "{response}");
    // An upload that fits is accepted. One that no plan allows is rejected with 413.
    t.upload("a.png", &images::png(20, 20), &[]).await.expect(201);
    let response = upload_response(&t, &format!("Content-Length: {}", 2_048 * MIB), b"").await;
    assert!(response.starts_with("HTTP/1.1 413 "), "{response}");
}

async fn a_chunked_body_over_the_free_storage_is_rejected(t: Tenant<'_>) {
    t.app.set_storage_usage(t.workspace, CAP - MIB, 0).await;
    let head = "--b\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
    let mut body = format!("{:x}\r\n{head}\r\n", head.len()).into_bytes();
    for _ in 0..3 {
        body.extend_from_slice(b"100000\r\n");
        body.extend_from_slice(&vec![b'x'; 1 << 20]);
        body.extend_from_slice(b"\r\n");
    }
    let response = upload_response(&t, "Transfer-Encoding: chunked", &body).await;
    assert!(response.starts_with("HTTP/1.1 402 ") && response.contains("storage_limit_exceeded"), "{response}");
    assert_eq!(t.app.api.library.spools().held(), 0);
}

async fn an_upload_is_replayed_even_if_storage_is_full(t: Tenant<'_>) {
    let large = images::noise(300);
    assert!(large.len() > 128 << 10);
    let send =
        || t.request("POST", &t.path("/media")).idempotency_key("once").form(Some(("a.png", &large)), &[]).send();
    send().await.expect(201);
    t.app.set_storage_usage(t.workspace, CAP, 0).await;
    let again = send().await;
    assert!(again.replayed(), "{again:?}");
    t.upload("b.png", &large, &[]).await.expect_error(402, "storage_limit_exceeded");
}

async fn one_workspace_cannot_exhaust_the_spool(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let spools = app.api.library.spools();
    let half = spools.open(t.workspace, 256 << 20).await.expect("all of its half");
    let png = images::png(20, 20);
    let (rejected, accepted) = tokio::join!(t.upload("a.png", &png, &[]), other.upload("a.png", &png, &[]));
    accepted.expect(201);
    rejected.expect_error(503, "service_unavailable");
    assert_eq!(rejected.header("retry-after"), Some("5"));
    let release_half = async {
        tokio::task::yield_now().await;
        drop(half);
    };
    let (accepted, ()) = tokio::join!(t.upload("a.png", &png, &[]), release_half);
    accepted.expect(201);
    assert_eq!(spools.held(), 0);
}

/// The head of an upload form with the boundary `b`.
const FORM: &str = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.png\"\r\n\r\n";

/// Starts an upload with a body of this length, and sends its first bytes.
pub async fn start_upload(t: &Tenant<'_>, key: &str, length: usize, first: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(t.app.address).await.unwrap();
    let head = format!(
        "POST {BASE}{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\nIdempotency-Key: {key}\r\nContent-Type: multipart/form-data; boundary=b\r\nContent-Length: {length}\r\n\r\n",
        t.path("/media"),
        t.key,
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(first).await.unwrap();
    stream
}

/// Starts an upload of this length, and sends a MiB of it.
async fn start_large_upload(t: &Tenant<'_>, length: usize) -> TcpStream {
    start_upload(t, &t.app.fresh_key(), length, &[FORM.as_bytes(), &vec![7; 1 << 20]].concat()).await
}

/// The key of an upload is not in use while the upload is received, so the request that is complete first is carried
/// out.
async fn an_upload_sent_again_while_the_first_is_received_creates_one_asset(t: Tenant<'_>) {
    let spools = t.app.api.library.spools();
    let png = images::png(64, 64);
    let body = [FORM.as_bytes(), &png, b"\r\n--b--\r\n"].concat();
    let (half, rest) = body.split_at(body.len() / 2);
    let mut first = start_upload(&t, "once", body.len(), half).await;
    until_true("the first one is being received", || spools.held() > 0).await;
    let again = t.request("POST", &t.path("/media")).idempotency_key("once").raw(body.as_slice());
    let again = again.header("content-type", "multipart/form-data; boundary=b").send().await;
    assert!(!again.replayed());
    let created = again.data(201);

    first.write_all(rest).await.unwrap();
    let mut response = String::new();
    first.read_to_string(&mut response).await.unwrap();
    assert!(response.starts_with("HTTP/1.1 201 "), "{response}");
    assert!(response.to_lowercase().contains("idempotent-replayed: true"), "{response}");
    let (_, replayed) = response.split_once("\r\n\r\n").unwrap();
    assert_eq!(serde_json::from_str::<Value>(replayed).unwrap()["data"], created);
    assert_eq!(t.app.count_rows("media").await, 1);
    assert_eq!(t.app.count_rows("files").await, 1);
    until_true("nothing is held", || spools.held() == 0).await;
}

async fn a_disconnected_client_releases_its_spool(t: Tenant<'_>) {
    let spools = t.app.api.library.spools();
    let uploads = futures::future::join_all((0..8).map(|_| start_large_upload(&t, 20 << 20))).await;
    until_true("eight uploads are being received", || spools.held() == 8 * (20 << 20)).await;
    // Four of these fit into the workspace's half. The others wait.
    let more = futures::future::join_all((0..8).map(|_| start_large_upload(&t, 20 << 20))).await;
    until_true("as many as there is room for", || spools.held() == 12 * (20 << 20)).await;
    drop((uploads, more));
    until_true("nothing is held", || spools.held() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_upload_is_aborted_and_releases_its_spool() {
    let app = TestApp::start_with_min_rate(TestStore::sqlite().await, SHORT_MIN_RATE).await;
    let t = app.tenant("unlimited").await;
    let mut stream = start_large_upload(&t, 20 << 20).await;
    let response =
        tokio::time::timeout(Duration::from_secs(60), send_slowly(&mut stream)).await.expect("the upload is aborted");
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("too slowly"), "{response}");
    until_true("nothing is held", || app.api.library.spools().held() == 0).await;
}
