//! Public access to images.

use std::time::Duration;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::app::{Reply, TestApp, on_one_app};
use crate::support::images;
use crate::support::store::{TestStore, on_both_storages};

on_one_app!(
    images_are_served_with_their_headers,
    range_requests_return_partial_content,
    a_matching_etag_returns_304,
    invalid_file_names_return_not_found,
);
on_both_storages!(
    every_replica_serves_every_upload,
    a_deleted_image_is_swept,
    unavailable_storage_returns_503_until_it_recovers,
);

async fn uploaded(app: &TestApp) -> (String, String, Vec<u8>) {
    let t = app.tenant("unlimited").await;
    let asset = t.upload("a.png", &images::png(900, 20), &[]).await.data(201);
    let text = |name: &str| asset[name].as_str().unwrap().to_owned();
    let reply = app.visit("GET", &text("url")).send().await;
    assert_eq!(reply.status, 200);
    assert_eq!(asset["size_bytes"].as_u64(), Some(reply.body.len() as u64));
    (text("url"), text("thumbnail_url"), reply.body)
}

#[track_caller]
fn assert_headers(reply: &Reply, url: &str) {
    let key = url.rsplit('/').next().unwrap();
    for (name, value) in [
        ("content-type", if key.ends_with(".jpg") { "image/jpeg" } else { "image/png" }),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "public, max-age=31536000, immutable"),
        ("accept-ranges", "bytes"),
        ("content-security-policy", "default-src 'none'; media-src 'self'; sandbox"),
        ("cross-origin-resource-policy", "cross-origin"),
        ("content-disposition", "inline"),
        ("referrer-policy", "no-referrer"),
        ("etag", format!("\"{key}\"").as_str()),
    ] {
        assert_eq!(reply.header(name), Some(value), "{name} of a {}", reply.status);
    }
}

async fn images_are_served_with_their_headers(app: TestApp) {
    let (url, thumbnail, body) = uploaded(&app).await;
    for (url, width) in [(&url, 900), (&thumbnail, 400)] {
        let reply = app.visit("GET", url).send().await;
        assert_eq!(reply.status, 200);
        assert_headers(&reply, url);
        assert_eq!(image::load_from_memory(&reply.body).unwrap().width(), width);
        assert_eq!(reply.header("content-length"), Some(reply.body.len().to_string().as_str()));
        let head = app.visit("HEAD", url).send().await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_headers(&head, url);
        assert_eq!(head.header("content-length"), reply.header("content-length"));
    }
    assert_eq!(app.visit("HEAD", &url).header("range", "bytes=0-1").send().await.status, 200);
    app.visit("POST", &url).send().await.assert_uncached_error(405);
    assert!(body.starts_with(b"\x89PNG"));
}

trait Plain {
    fn assert_uncached_error(&self, status: u16);
}

impl Plain for Reply {
    #[track_caller]
    fn assert_uncached_error(&self, status: u16) {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        assert!(!self.body.is_empty() && self.header("cache-control") != Some("public, max-age=31536000, immutable"));
    }
}

async fn range_requests_return_partial_content(app: TestApp) {
    let (url, _, body) = uploaded(&app).await;
    let size = body.len();
    let get = async |range: &str| app.visit("GET", &url).header("range", range).send().await;
    for (range, part) in [
        ("bytes=0-0", 0..1),
        ("bytes=7-99", 7..100),
        ("bytes=50-", 50..size),
        ("bytes=-10", size - 10..size),
        ("bytes=5-99999999999999999999", 5..size),
    ] {
        let reply = get(range).await;
        assert_eq!(reply.status, 206, "{range}");
        assert_headers(&reply, &url);
        assert!(reply.body == body[part.clone()], "{range}");
        let expected = format!("bytes {}-{}/{size}", part.start, part.end - 1);
        assert_eq!(reply.header("content-range"), Some(expected.as_str()), "{range}");
    }
    for range in ["bytes=0-1,3-4", "bytes=5-2", "bytes=x-", "lines=1-2", "bytes=-", "bytes"] {
        let reply = get(range).await;
        assert!(reply.status == 200 && reply.body == body, "{range}: {}", reply.status);
    }
    let twice = app.visit("GET", &url).header("range", "bytes=0-1").append_header("range", "bytes=3-4").send().await;
    assert!(twice.status == 200 && twice.body == body, "{}", twice.status);
    for range in [format!("bytes={size}-"), format!("bytes={size}-{}", size + 5), "bytes=-0".to_owned()] {
        let reply = get(&range).await;
        reply.assert_uncached_error(416);
        assert_eq!(reply.header("content-range"), Some(format!("bytes */{size}").as_str()), "{range}");
    }
    let tag = format!("\"{}\"", url.rsplit('/').next().unwrap());
    for (known, status) in [(tag.as_str(), 206), ("\"other\"", 200), (&format!("W/{tag}"), 200)] {
        let reply = app.visit("GET", &url).header("range", "bytes=0-1").header("if-range", known).send().await;
        assert_eq!(reply.status, status, "{known}");
    }
}

async fn a_matching_etag_returns_304(app: TestApp) {
    let (url, _, _) = uploaded(&app).await;
    let tag = format!("\"{}\"", url.rsplit('/').next().unwrap());
    for (known, status) in
        [(tag.clone(), 304), (format!("\"other\", W/{tag}"), 304), ("*".to_owned(), 304), ("\"other\"".to_owned(), 200)]
    {
        let reply = app.visit("GET", &url).header("if-none-match", &known).send().await;
        assert_eq!(reply.status, status, "{known}");
        assert_headers(&reply, &url);
        assert_eq!(reply.body.is_empty(), status == 304);
    }
    let nothing = format!("{}/media/{}.png", app.url, "a".repeat(40));
    app.visit("GET", &nothing).header("if-none-match", "*").send().await.assert_uncached_error(404);
}

async fn invalid_file_names_return_not_found(app: TestApp) {
    let (url, _, _) = uploaded(&app).await;
    let key = url.rsplit('/').next().unwrap();
    let secret = app.files().join("media/secret.png");
    std::fs::write(&secret, b"secret").unwrap();
    let a = "a".repeat(40);
    for name in [
        format!("{a}.png"),
        format!("{a}.svg"),
        format!("{a}.html"),
        format!("{a}png"),
        format!("{}.png", "a".repeat(39)),
        format!("{}.png", "a".repeat(41)),
        format!("{key}%00"),
        format!("{key}%231"),
        format!("{key}.png"),
        format!("..%2f{key}"),
        format!("%2e%2e%2fsecret.png{}", "a".repeat(26)),
        "..%2fsecret.png".to_owned(),
        "secret.png".to_owned(),
        key.replace(".png", ".jpg"),
        key.replace(".png", "-thumb-thumb.png"),
        "%ff%fe.png".to_owned(),
    ] {
        app.visit("GET", &format!("{}/media/{name}", app.url)).send().await.assert_uncached_error(404);
    }
}

async fn every_replica_serves_every_upload(s: TestStore) {
    let app = TestApp::start(s).await;
    let (url, thumbnail, body) = uploaded(&app).await;
    let other = app.replica().await;
    let there = url.replace(&app.url, &other);
    assert!(app.visit("GET", &there).send().await.body == body);
    let part = app.visit("GET", &there).header("range", "bytes=3-6").send().await;
    assert!(part.status == 206 && part.body == body[3..7]);
    assert_eq!(app.visit("GET", &thumbnail.replace(&app.url, &other)).send().await.status, 200);
}

async fn a_deleted_image_is_swept(s: TestStore) {
    let app = TestApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let asset = t.upload("a.jpg", &images::jpeg(30, 20), &[]).await.data(201);
    let url = asset["url"].as_str().unwrap();
    assert_eq!(app.visit("GET", url).send().await.header("content-type"), Some("image/jpeg"));
    assert_eq!(app.stored_files().len(), 2);
    t.delete(&t.path(&format!("/media/{}", asset["id"]))).await.expect(204);
    app.advance(301);
    let transport = crate::support::transport::FixedCapacityTransport::with_room(1);
    let (store, library) = (app.store.store.clone(), app.library(&app.url));
    let scheduler = crier_scheduler::Scheduler::new(store, transport, library);
    crier_scheduler::tasks::sweep::run(&scheduler).await.unwrap();
    assert_eq!(app.stored_files().len(), 0);
    app.visit("GET", url).send().await.assert_uncached_error(404);
}

async fn unavailable_storage_returns_503_until_it_recovers(s: TestStore) {
    let app = TestApp::start(s).await;
    let t = app.tenant("unlimited").await;
    let (url, _, body) = uploaded(&app).await;
    app.set_storage_unavailable(true);
    let reply = app.visit("GET", &url).send().await;
    reply.assert_uncached_error(503);
    assert_eq!(reply.header("retry-after"), Some("5"));
    let rejected = t.upload("b.png", &images::png(8, 8), &[]).await;
    rejected.expect_error(503, "service_unavailable");
    assert!(rejected.header("retry-after").is_some());
    assert_eq!(app.count_rows("media WHERE filename = 'b.png'").await, 0);
    let room = t.get(&t.path("/media")).await.expect(200);
    assert_eq!(room["meta"]["total"], 0, "the library itself does not need the storage");
    app.set_storage_unavailable(false);
    assert!(app.visit("GET", &url).send().await.body == body);
    t.upload("b.png", &images::png(8, 8), &[]).await.expect(201);
    assert_eq!(app.counted_bytes().await, app.file_bytes().await, "rejected uploads use no storage");
}

/// The connection is aborted, so that no client mistakes a partial file for the complete file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_truncated_file_aborts_the_connection() {
    let app = TestApp::start(TestStore::sqlite().await.on_s3().await).await;
    let (key, size) = (format!("{}.png", "b".repeat(40)), 24 << 20);
    app.library(&app.url).storage().put(&key, Bytes::from(vec![7; size])).await.unwrap();
    let mut socket = tokio::net::TcpStream::connect(app.address).await.unwrap();
    socket.write_all(format!("GET /media/{key} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut first = vec![0; 100_000];
    socket.read_exact(&mut first).await.unwrap();
    assert!(String::from_utf8_lossy(&first).contains(&format!("content-length: {size}\r\n")));
    app.bucket().unwrap().set_unavailable(true);
    let mut rest = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(30), socket.read_to_end(&mut rest)).await;
    assert!(read.is_ok(), "the connection hangs");
    assert!(first.len() + rest.len() < size, "{} bytes received", first.len() + rest.len());
}
