//! More clients than the process may open files, which connect and send nothing, or read nothing of a file. Invariant:
//! other clients are served, posts are published once, and the log stays quiet.

use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::client::texts;
use crate::support::images;
use crate::support::process::Installation;

/// The maximum number of open files of the process.
const DESCRIPTORS: u32 = 256;
const IDLE: usize = 600;
const POSTS: usize = 20;

#[tokio::test]
async fn idle_connections_block_no_requests() {
    let crier = Installation::embedded_with_descriptors(DESCRIPTORS).await;
    let handle = "idle";
    let (brand, account) = crier.sandbox(handle).await;
    let address = crier.url.trim_start_matches("http://").to_owned();
    let mut idle = Vec::new();
    let mut posts = Vec::new();
    let texts = texts("post", POSTS);
    for (n, batch) in texts.chunks(2).enumerate() {
        for _ in 0..IDLE / (POSTS / 2) {
            let mut client = TcpStream::connect(&address).await.expect("the listener takes it");
            // Some send nothing, others stop in the middle of the request head.
            if n % 2 == 0 {
                let _ = client.write_all(b"GET / HTTP/1.1\r\nhost: ").await;
            }
            idle.push(client);
        }
        for text in batch {
            posts.push(crier.post(brand, account, text).await);
        }
    }
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    let page = crier.page(handle).await;
    for text in &texts {
        assert_eq!(page.matches(text).count(), 1, "{text} on the page");
    }
    let evicted = crier.metric("crier", "crier_http_connections_evicted_total").await;
    assert!(evicted.is_some_and(|evicted| evicted > 100.0), "{evicted:?}");
    let open = crier.metric("crier", "crier_http_connections").await;
    assert!(open.is_some_and(|open| open <= f64::from(DESCRIPTORS / 2)), "{open:?}");
    let log = crier.log("crier");
    let lines = log.lines().filter(|line| line.starts_with('{')).count();
    // A busy machine adds a few about slow statements.
    assert!(lines < IDLE / 10, "{log}");
}

/// Each unread response holds a file open, in addition to its connection.
#[tokio::test]
async fn unread_files_block_no_requests() {
    let crier = Installation::embedded_with_descriptors(DESCRIPTORS).await;
    let (brand, account) = crier.sandbox("unread").await;
    let image = crier.upload(brand, &images::noise(1_800)).await.expect("it is stored");
    let image = crier.read(&format!("/brands/{brand}/media")).await.expect("a list")["data"]
        .as_array()
        .and_then(|all| all.iter().find(|found| found["id"] == image).cloned())
        .expect("the image");
    let path = image["url"].as_str().expect("a URL").trim_start_matches(&crier.url).to_owned();
    let address = crier.url.trim_start_matches("http://").parse().expect("an address");
    let mut unread = Vec::new();
    for _ in 0..DESCRIPTORS / 2 {
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4 << 10).expect("a small buffer");
        let mut client = socket.connect(address).await.expect("the listener takes it");
        client.write_all(format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes()).await.expect("it is read");
        unread.push(client);
    }
    let texts = texts("beside", POSTS);
    let posts = crier.post_all(brand, &[account], &texts).await;
    for target in crier.all_published(brand, &posts).await {
        assert_eq!(target["attempts"], 1, "{target}");
    }
    let held = crier.metric("crier", "crier_http_response_bytes").await;
    assert!(held.is_some_and(|held| held > 0.0 && held <= f64::from(32 << 20)), "{held:?}");
    drop(unread);
}
