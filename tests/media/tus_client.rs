//! `tus-js-client`, which browsers and Uppy use, uploads a video while its server is replaced.

use std::net::SocketAddr;
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::app::{BASE, TestApp};
use crate::support::store::TestStore;
use crate::support::videos::{VideoSpec, mp4};

const SCRIPT: &str = include_str!("tus_client.mjs");
/// The number of bytes after which the first server is gone.
const BYTES_BEFORE_STOP: u64 = 5 << 20;

/// Forwards connections to the first server until a client has sent this number of bytes. Then it closes that
/// connection, and forwards all later ones to the second server.
async fn replace_server(listener: TcpListener, first: SocketAddr, second: SocketAddr) {
    let stopped = tokio_util::sync::CancellationToken::new();
    while let Ok((client, _)) = listener.accept().await {
        let (target, limit) = if stopped.is_cancelled() { (second, u64::MAX) } else { (first, BYTES_BEFORE_STOP) };
        let stopped = stopped.clone();
        tokio::spawn(async move {
            if forward(client, target, limit).await.is_ok_and(|sent| sent == limit) {
                stopped.cancel();
            }
        });
    }
}

/// Forwards a connection until one side closes it, or the client has sent `limit` bytes. Returns how many it has sent.
async fn forward(mut client: TcpStream, target: SocketAddr, limit: u64) -> std::io::Result<u64> {
    let mut server = TcpStream::connect(target).await?;
    let ((from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let mut from_client = from_client.take(limit);
    tokio::select! {
        sent = tokio::io::copy(&mut from_client, &mut to_server) => {
            to_server.flush().await?;
            sent
        }
        received = tokio::io::copy(&mut from_server, &mut to_client) => received.map(|_| 0),
    }
}

#[expect(clippy::print_stderr, reason = "the person who runs the tests must see what was not tested")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tus_js_client_continues_after_its_server_is_replaced() {
    let Some(packages) = std::env::var_os("CRIER_TEST_TUS") else {
        eprintln!("\n*** NOT TESTED: CRIER_TEST_TUS names no tus-js-client (scripts/test installs it from npm) ***\n");
        return;
    };
    let app = TestApp::start(TestStore::sqlite().await).await;
    let t = app.tenant("unlimited").await;
    let replica = app.replica().await;
    let second = replica.strip_prefix("http://").unwrap().parse().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let proxy = tokio::spawn(replace_server(listener, app.address, second));

    let video = mp4(VideoSpec { data: 12_000_000, ..VideoSpec::default() });
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &video).unwrap();
    let output = tokio::process::Command::new("node")
        .args(["--input-type=module", "--eval", SCRIPT])
        .current_dir(packages)
        .env("UPLOAD_ENDPOINT", format!("{url}{BASE}{}", t.path("/media/uploads")))
        .env("UPLOAD_KEY", &t.key)
        .env("UPLOAD_FILE", file.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("node runs");
    proxy.abort();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["retries"].as_i64() > Some(0), "the connection was cut: {result}");
    assert!(result["resumedAt"].as_u64() > Some(0), "it did not begin again: {result}");
    let asset = t.get(&t.path(&format!("/media/{}", result["mediaId"].as_str().unwrap()))).await.data(200);
    assert_eq!((&asset["filename"], &asset["alt_text"]), (&json!("bread.mp4"), &json!("Fresh bread")), "{asset}");
    let served = app.visit("GET", asset["url"].as_str().unwrap()).send().await;
    assert!(served.body == video, "{} of {} bytes", served.body.len(), video.len());
    assert_eq!(app.count_rows("media").await, 1);
}
