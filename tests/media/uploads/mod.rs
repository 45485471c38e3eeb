//! Resumable uploads of videos by tus 1.0. Here: pieces, replicas, locks, outages and slow clients.

mod ends;
mod requests;
mod space;

use std::time::Duration;

use crier_api::MinRate;
use crier_config::MediaConfig;
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::sweep as task;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::UNUSED_AFTER_SECONDS;
use crate::support::app::{BASE, Reply, Request, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::client::until;
use crate::support::store::TestStore;
use crate::support::transport::FixedCapacityTransport;
use crate::support::videos::{VideoSpec, mp4};

on_both_apps!("unlimited" =>
    an_upload_in_parts_becomes_an_asset,
    a_broken_upload_continues_on_another_replica,
    one_request_at_a_time_writes,
);
on_one_app!("unlimited" =>
    a_storage_outage_loses_no_upload,
    a_low_disk_accepts_no_bytes,
    a_disk_that_becomes_low_ends_the_request,
);

const PIECE: usize = 2 << 20;
const BYTES: &str = "application/offset+octet-stream";
const DAY_SECONDS: i64 = 86_400;
/// Seconds after which a request that died no longer locks its upload.
const LEASE_SECONDS: i64 = 31;
/// `filename bread.mp4, asset_type video, alt_text Bread`
const METADATA: &str = "filename YnJlYWQubXA0,asset_type dmlkZW8=,alt_text QnJlYWQ=";

/// Returns a video of more than this number of bytes.
fn video(bytes: usize) -> Vec<u8> {
    mp4(VideoSpec { data: bytes, ..VideoSpec::default() })
}

/// Builds a request of the protocol; the path is relative to the API's base.
fn tus<'a>(t: &Tenant<'a>, method: &str, path: &str) -> Request<'a> {
    t.app.request(method, path).key(&t.key).header("tus-resumable", "1.0.0")
}

fn new_upload<'a>(t: &Tenant<'a>, size: i64) -> Request<'a> {
    tus(t, "POST", &t.path("/media/uploads")).header("upload-length", &size.to_string())
}

/// Creates an upload, and returns its path.
async fn create(t: &Tenant<'_>, size: usize) -> String {
    let reply = new_upload(t, i64::try_from(size).unwrap()).header("upload-metadata", METADATA).send().await;
    reply.expect(201);
    reply.header("location").unwrap().strip_prefix(BASE).unwrap().to_owned()
}

fn part<'a>(t: &Tenant<'a>, path: &str, offset: usize, bytes: &[u8]) -> Request<'a> {
    let request = tus(t, "PATCH", path).header("upload-offset", &offset.to_string());
    request.raw(bytes).header("content-type", BYTES)
}

async fn append(t: &Tenant<'_>, path: &str, offset: usize, bytes: &[u8]) -> Reply {
    part(t, path, offset, bytes).send().await
}

/// Sends bytes that do not finish the upload.
async fn append_some(t: &Tenant<'_>, path: &str, offset: usize, bytes: &[u8]) {
    let reply = append(t, path, offset, bytes).await;
    reply.expect(204);
    assert_eq!(number(&reply, "upload-offset"), Some(i64::try_from(offset + bytes.len()).unwrap()));
    assert_eq!(reply.header("crier-media-id"), None);
}

/// Sends the last bytes, and returns the ID of the asset.
async fn finish(t: &Tenant<'_>, path: &str, offset: usize, bytes: &[u8]) -> i64 {
    let reply = append(t, path, offset, bytes).await;
    reply.expect(204);
    assert_eq!(number(&reply, "upload-offset"), Some(i64::try_from(offset + bytes.len()).unwrap()));
    number(&reply, "crier-media-id").expect("an asset")
}

async fn status(t: &Tenant<'_>, path: &str) -> Reply {
    tus(t, "HEAD", path).send().await
}

/// Returns the number of bytes that an upload has received.
async fn offset(t: &Tenant<'_>, path: &str) -> usize {
    let reply = status(t, path).await;
    reply.assert_status(200);
    usize::try_from(number(&reply, "upload-offset").unwrap()).unwrap()
}

fn number(reply: &Reply, name: &str) -> Option<i64> {
    reply.header(name).map(|text| text.parse().unwrap())
}

/// Asserts that the asset has these bytes.
async fn assert_asset(t: &Tenant<'_>, id: i64, bytes: &[u8]) {
    let asset = t.get(&t.path(&format!("/media/{id}"))).await.data(200);
    assert_eq!((&asset["filename"], &asset["alt_text"]), (&json!("bread.mp4"), &json!("Bread")), "{asset}");
    assert_eq!((&asset["asset_type"], &asset["mime_type"]), (&json!("video"), &json!("video/mp4")), "{asset}");
    assert_eq!(asset["size_bytes"], bytes.len(), "{asset}");
    let served = t.app.visit("GET", asset["url"].as_str().unwrap()).send().await;
    assert!(served.body == bytes, "{} of {} bytes", served.body.len(), bytes.len());
}

fn scheduler(app: &TestApp) -> Scheduler {
    Scheduler::new(app.store.store.clone(), FixedCapacityTransport::with_room(100), app.library(&app.url))
}

async fn sweep(app: &TestApp) {
    task::run(&scheduler(app)).await.unwrap();
}

/// Creates an upload of all these bytes, whose process died after it had stored the last ones. Returns its path.
async fn received_upload(t: &Tenant<'_>, bytes: &[u8]) -> String {
    let path = create(t, bytes.len() + 1).await;
    append_some(t, &path, 0, bytes).await;
    t.app.sql("UPDATE media_uploads SET size_bytes = size_bytes - 1, reserved = reserved - 1".to_owned()).await;
    t.app.sql("UPDATE storage_usage SET bytes = bytes - 1".to_owned()).await;
    path
}

fn pieces_in_storage(app: &TestApp) -> usize {
    app.stored_files().iter().filter(|name| name.contains(".piece")).count()
}

/// Asserts that there is no asset, no upload, no piece and no counted byte, after the sweep has had time.
async fn assert_swept(app: &TestApp) {
    app.advance(UNUSED_AFTER_SECONDS);
    sweep(app).await;
    assert_eq!(app.stored_files(), Vec::<String>::new());
    for table in ["media", "files", "media_uploads", "media_upload_pieces"] {
        assert_eq!(app.count_rows(table).await, 0, "{table}");
    }
    assert_eq!(app.counted_bytes().await, 0);
}

/// Asserts that nothing is left when the upload has expired.
async fn assert_swept_after_a_day(app: &TestApp) {
    app.advance(DAY_SECONDS);
    sweep(app).await;
    assert_swept(app).await;
}

/// Waits until no request writes to an upload, and the only upload has this number of bytes.
async fn until_released(app: &TestApp, received: usize) {
    let rows = format!("media_uploads WHERE writer IS NULL AND received = {received}");
    until(&format!("{received} bytes are stored"), || async { (app.count_rows(&rows).await == 1).then_some(()) }).await;
}

/// Begins to send a part of this length, of which only `bytes` are sent, and returns the connection.
async fn begin_part(t: &Tenant<'_>, path: &str, length: usize, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(t.app.address).await.unwrap();
    let head = format!(
        "PATCH {BASE}{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {}\r\n\
         Tus-Resumable: 1.0.0\r\nUpload-Offset: 0\r\nContent-Type: {BYTES}\r\nContent-Length: {length}\r\n\r\n",
        t.key,
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

async fn response(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.unwrap();
    String::from_utf8_lossy(&response).to_lowercase()
}

async fn an_upload_in_parts_becomes_an_asset(t: Tenant<'_>) {
    let video = video(5_000_000);
    let path = create(&t, video.len()).await;
    assert_eq!(offset(&t, &path).await, 0);
    append_some(&t, &path, 0, &video[..PIECE + 5]).await;
    assert_eq!((pieces_in_storage(t.app), t.app.count_rows("media_upload_pieces").await), (2, 2));
    append_some(&t, &path, PIECE + 5, &video[PIECE + 5..PIECE + 6]).await;
    append_some(&t, &path, PIECE + 6, &[]).await;
    let shown = status(&t, &path).await;
    assert_eq!(number(&shown, "upload-length"), Some(i64::try_from(video.len()).unwrap()));
    assert_eq!((shown.header("upload-metadata"), shown.header("cache-control")), (Some(METADATA), Some("no-store")));
    assert_eq!(shown.header("upload-expires"), Some("Wed, 10 Jun 2026 10:13:20 GMT"));
    assert_eq!(t.app.count_rows("media").await, 0);
    let id = finish(&t, &path, PIECE + 6, &video[PIECE + 6..]).await;
    assert_asset(&t, id, &video).await;
    // A repeated request changes nothing.
    assert_eq!(finish(&t, &path, PIECE + 6, &video[PIECE + 6..]).await, id);
    let shown = status(&t, &path).await;
    assert_eq!((number(&shown, "crier-media-id"), offset(&t, &path).await), (Some(id), video.len()));
    assert_eq!((t.app.count_rows("media").await, t.app.counted_bytes().await), (1, t.app.file_bytes().await));
    // The pieces are deleted, and later the upload. The asset is kept.
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!((pieces_in_storage(t.app), t.app.count_rows("media_upload_pieces").await), (0, 0));
    assert_eq!(number(&status(&t, &path).await, "crier-media-id"), Some(id));
    t.app.advance(DAY_SECONDS);
    sweep(t.app).await;
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!(t.app.count_rows("media_uploads").await, 0);
    assert_asset(&t, id, &video).await;
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
}

/// A connection breaks in the middle. What had arrived is stored, and another process continues.
async fn a_broken_upload_continues_on_another_replica(t: Tenant<'_>) {
    let video = video(7_000_000);
    let path = create(&t, video.len()).await;
    drop(begin_part(&t, &path, video.len(), &video[..5_000_000]).await);
    until_released(t.app, 5_000_000).await;
    assert_eq!(t.app.count_rows("media_upload_pieces WHERE number IS NOT NULL").await, 3);
    let replica = t.app.replica().await;
    let there = format!("{replica}{BASE}{path}");
    let shown = tus(&t, "HEAD", &path).to(there.clone()).send().await;
    assert_eq!(number(&shown, "upload-offset"), Some(5_000_000));
    let reply = part(&t, &path, 5_000_000, &video[5_000_000..]).to(there).send().await;
    reply.expect(204);
    assert_asset(&t, number(&reply, "crier-media-id").unwrap(), &video).await;
    assert_eq!(number(&status(&t, &path).await, "crier-media-id"), number(&reply, "crier-media-id"));
}

async fn one_request_at_a_time_writes(t: Tenant<'_>) {
    let video = video(3_000_000);
    let path = create(&t, video.len()).await;
    let mut first = begin_part(&t, &path, video.len(), &video[..1_000]).await;
    until("the first request writes", || async {
        (t.app.count_rows("media_uploads WHERE writer IS NOT NULL").await == 1).then_some(())
    })
    .await;
    let locked = append(&t, &path, 0, &video).await;
    locked.expect_error(423, "upload_locked");
    assert_eq!(locked.header("retry-after"), Some("5"));
    assert_eq!(offset(&t, &path).await, 0, "its status can be read");
    // The first request seems to be dead, so another one continues. Then the first one wakes up.
    t.app.advance(LEASE_SECONDS);
    let id = finish(&t, &path, 0, &video).await;
    first.write_all(&video[1_000..]).await.unwrap();
    let response = response(&mut first).await;
    assert!(response.starts_with("http/1.1 423 ") && response.contains("upload_locked"), "{response}");
    assert_asset(&t, id, &video).await;
    assert_eq!((t.app.count_rows("media").await, t.app.counted_bytes().await), (1, t.app.file_bytes().await));
}

async fn a_storage_outage_loses_no_upload(t: Tenant<'_>) {
    let video = video(5_000_000);
    let path = create(&t, video.len()).await;
    append_some(&t, &path, 0, &video[..3_000_000]).await;
    t.app.set_storage_unavailable(true);
    for rest in [&video[3_000_000..4_000_000], &video[3_000_000..]] {
        let reply = append(&t, &path, 3_000_000, rest).await;
        reply.expect_error(503, "service_unavailable");
        assert_eq!(reply.header("retry-after"), Some("5"));
        until_released(t.app, 3_000_000).await;
    }
    t.app.set_storage_unavailable(false);
    let id = finish(&t, &path, 3_000_000, &video[3_000_000..]).await;
    assert_asset(&t, id, &video).await;
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!((pieces_in_storage(t.app), t.app.count_rows("media_upload_pieces").await), (0, 0));
}

async fn a_low_disk_accepts_no_bytes(t: Tenant<'_>) {
    let path = create(&t, 1_000).await;
    t.app.api.library.disk().set_low(true);
    new_upload(&t, 5).send().await.expect_error(503, "service_unavailable");
    append(&t, &path, 0, &[1]).await.expect_error(503, "service_unavailable");
    t.app.api.library.disk().set_low(false);
    append_some(&t, &path, 0, &[1]).await;
}

async fn a_disk_that_becomes_low_ends_the_request(t: Tenant<'_>) {
    let video = video(7_000_000);
    let path = create(&t, video.len()).await;
    let mut stream = begin_part(&t, &path, video.len(), &video[..PIECE + 1]).await;
    until("a piece is stored", || async {
        (t.app.count_rows(&format!("media_uploads WHERE received = {PIECE}")).await == 1).then_some(())
    })
    .await;
    t.app.api.library.disk().set_low(true);
    // The response may come, and the connection end, before all bytes are sent.
    let _ = stream.write_all(&video[PIECE + 1..]).await;
    until_released(t.app, PIECE).await;
    t.app.api.library.disk().set_low(false);
    let id = finish(&t, &path, PIECE, &video[PIECE..]).await;
    assert_asset(&t, id, &video).await;
}

/// Storing a large file may take longer than a connection may be idle. Here, it waits for space.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_response_does_not_wait_for_the_asset() {
    let app = TestApp::start_with_asset_wait(TestStore::sqlite().await, Duration::ZERO).await;
    let t = app.tenant("unlimited").await;
    let video = video(3_000_000);
    let path = create(&t, video.len()).await;
    let half = MediaConfig::default().video_spool_bytes / 2;
    let space = app.api.library.video_spools().open(t.workspace, half).await.unwrap();
    let reply = append(&t, &path, 0, &video).await;
    reply.expect(204);
    assert_eq!(reply.header("crier-media-id"), None);
    drop(space);
    let id = until("the asset is created", || async { number(&status(&t, &path).await, "crier-media-id") }).await;
    assert_asset(&t, id, &video).await;
}

/// A client that sends too slowly gets the number of stored bytes, and continues there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_client_keeps_what_it_has_sent() {
    // Long enough to send each half on a busy machine.
    let rate = MinRate { grace: Duration::from_secs(5), bytes_per_second: 64 << 10 };
    let app = TestApp::start_with_min_rate(TestStore::sqlite().await, rate).await;
    let t = app.tenant("unlimited").await;
    let video = video(100_000);
    let path = create(&t, video.len()).await;
    let mut stream = begin_part(&t, &path, video.len(), &video[..50_000]).await;
    let response = response(&mut stream).await;
    assert!(response.starts_with("http/1.1 204 ") && response.contains("upload-offset: 50000\r\n"), "{response}");
    let id = finish(&t, &path, 50_000, &video[50_000..]).await;
    assert_asset(&t, id, &video).await;
}
