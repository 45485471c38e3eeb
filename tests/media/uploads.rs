//! Resumable uploads of videos by tus 1.0: pieces, replicas, locks, quota, expiry, rejected files and crashes.

use std::time::Duration;

use bytes::Bytes;
use crier_config::MediaConfig;
use crier_domain::access::KeyMode;
use crier_media::{Owner, Spooled};
use crier_scheduler::Scheduler;
use crier_scheduler::tasks::{sweep as task, uploads as finishing};
use futures::future::join_all;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::UNUSED_AFTER_SECONDS;
use crate::api::bodies::SHORT_MIN_RATE;
use crate::support::app::{BASE, MISSING_ID, Reply, Request, Tenant, TestApp, on_both_apps, on_one_app};
use crate::support::client::until;
use crate::support::console::ConsoleUser;
use crate::support::store::TestStore;
use crate::support::transport::FixedCapacityTransport;
use crate::support::videos::{VideoSpec, mp4};

on_both_apps!("unlimited" =>
    an_upload_in_parts_becomes_an_asset,
    a_broken_upload_continues_on_another_replica,
    one_request_at_a_time_writes,
    an_upload_expires,
    a_deleted_upload_releases_its_storage,
    a_rejected_file_deletes_the_upload,
    a_crash_before_the_asset_leads_to_one_asset,
    an_upload_whose_process_died_is_finished_by_the_scheduler,
    a_rejected_file_of_a_dead_process_deletes_the_upload,
    an_upload_ends_with_its_asset,
    a_lost_piece_deletes_the_upload,
    open_uploads_are_capped,
);
on_both_apps!("free" => the_whole_size_is_reserved, a_full_workspace_can_finish_an_upload);
on_both_apps!(uploads_of_others_are_not_found);
on_one_app!("unlimited" =>
    invalid_requests_are_rejected,
    responses_name_the_protocol,
    options_need_no_key,
    a_storage_outage_loses_no_upload,
    a_low_disk_accepts_no_bytes,
    a_disk_that_becomes_low_ends_the_request,
);
on_one_app!(console "unlimited" => the_console_s_script_can_upload);

const MIB: i64 = 1 << 20;
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

async fn an_upload_expires(t: Tenant<'_>) {
    let path = create(&t, 5_000_000).await;
    append_some(&t, &path, 0, &vec![7; 3_000_000]).await;
    t.app.advance(DAY_SECONDS - 1);
    sweep(t.app).await;
    assert_eq!(offset(&t, &path).await, 3_000_000);
    assert_eq!(t.app.counted_bytes().await, 5_000_000);
    t.app.advance(1);
    status(&t, &path).await.assert_status(404);
    append(&t, &path, 3_000_000, &[7]).await.expect_error(404, "not_found");
    sweep(t.app).await;
    assert_eq!((t.app.counted_bytes().await, pieces_in_storage(t.app)), (0, 2), "a write may still be in progress");
    assert_swept(t.app).await;
}

async fn a_deleted_upload_releases_its_storage(t: Tenant<'_>) {
    let path = create(&t, 5_000_000).await;
    append_some(&t, &path, 0, &vec![7; 3_000_000]).await;
    tus(&t, "DELETE", &path).send().await.expect(204);
    assert_eq!(t.app.counted_bytes().await, 0);
    tus(&t, "DELETE", &path).send().await.expect_error(404, "not_found");
    status(&t, &path).await.assert_status(404);
    append(&t, &path, 3_000_000, &[7]).await.expect_error(404, "not_found");
    assert_swept(t.app).await;
    // The asset of a finished upload is kept.
    let video = video(1_000);
    let path = create(&t, video.len()).await;
    let id = finish(&t, &path, 0, &video).await;
    tus(&t, "DELETE", &path).send().await.expect(204);
    status(&t, &path).await.assert_status(404);
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!(t.app.count_rows("media_uploads").await, 0);
    assert_asset(&t, id, &video).await;
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
}

async fn a_rejected_file_deletes_the_upload(t: Tenant<'_>) {
    let text = b"not a video ".repeat(300_000);
    let path = create(&t, text.len()).await;
    append_some(&t, &path, 0, &text[..3_000_000]).await;
    append(&t, &path, 3_000_000, &text[3_000_000..]).await.expect_error(415, "unsupported_media_type");
    assert_eq!(t.app.counted_bytes().await, 0);
    status(&t, &path).await.assert_status(404);
    assert_swept(t.app).await;
}

/// The process died after it had stored the file, and before the transaction that creates the asset.
async fn a_crash_before_the_asset_leads_to_one_asset(t: Tenant<'_>) {
    let video = video(3_000_000);
    let (first, last) = video.split_at(video.len() - 10);
    let path = create(&t, video.len()).await;
    append_some(&t, &path, 0, first).await;
    let owner = Owner { workspace_id: t.workspace, brand_id: t.brand, cap: None };
    let spooled = Spooled::from(Bytes::from(video.clone()));
    t.app.library(&t.app.url).ingest_video(&t.app.store.store, &owner, &spooled).await.unwrap();
    let until = t.app.later(30).to_rfc3339();
    t.app.sql(format!("UPDATE media_uploads SET writer = 'dead', writer_until = '{until}'")).await;
    assert_eq!(offset(&t, &path).await, first.len(), "the last bytes do not count");
    append(&t, &path, first.len(), last).await.expect_error(423, "upload_locked");
    t.app.advance(LEASE_SECONDS);
    let id = finish(&t, &path, first.len(), last).await;
    assert_asset(&t, id, &video).await;
    assert_eq!((t.app.count_rows("media").await, t.app.count_rows("files").await), (1, 1));
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
}

async fn an_upload_whose_process_died_is_finished_by_the_scheduler(t: Tenant<'_>) {
    let video = video(3_000_000);
    let path = received_upload(&t, &video).await;
    let until = t.app.later(30).to_rfc3339();
    t.app.sql(format!("UPDATE media_uploads SET writer = 'dead', writer_until = '{until}'")).await;
    assert_eq!(offset(&t, &path).await, video.len());
    finishing::finish_all(&scheduler(t.app)).await;
    assert_eq!(t.app.count_rows("media").await, 0, "the process may still be alive");
    t.app.advance(LEASE_SECONDS);
    t.app.set_storage_unavailable(true);
    finishing::finish_all(&scheduler(t.app)).await;
    t.app.set_storage_unavailable(false);
    // A request has nothing to add.
    append_some(&t, &path, video.len(), &[]).await;
    finishing::finish_all(&scheduler(t.app)).await;
    let id = number(&status(&t, &path).await, "crier-media-id").expect("an asset");
    assert_asset(&t, id, &video).await;
    finishing::finish_all(&scheduler(t.app)).await;
    assert_eq!((t.app.count_rows("media").await, t.app.counted_bytes().await), (1, t.app.file_bytes().await));
}

async fn a_rejected_file_of_a_dead_process_deletes_the_upload(t: Tenant<'_>) {
    let path = received_upload(&t, &[7; 1_000]).await;
    let video = video(1_000);
    let next = create(&t, video.len()).await;
    finishing::finish_all(&scheduler(t.app)).await;
    status(&t, &path).await.assert_status(404);
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
    // An upload that has not received all bytes is not affected.
    let id = finish(&t, &next, 0, &video).await;
    assert_asset(&t, id, &video).await;
}

/// Otherwise, a client would wait for an asset that never comes.
async fn an_upload_ends_with_its_asset(t: Tenant<'_>) {
    let video = video(1_000);
    let path = create(&t, video.len()).await;
    let id = finish(&t, &path, 0, &video).await;
    t.delete(&t.path(&format!("/media/{id}"))).await.expect(204);
    status(&t, &path).await.assert_status(404);
    append(&t, &path, video.len(), &[]).await.expect_error(404, "not_found");
    assert_swept_after_a_day(t.app).await;
}

/// For example, because the operator deleted it.
async fn a_lost_piece_deletes_the_upload(t: Tenant<'_>) {
    let video = video(5_000_000);
    let path = create(&t, video.len()).await;
    append_some(&t, &path, 0, &video[..3_000_000]).await;
    let key = t.app.value::<String>("SELECT key FROM media_upload_pieces WHERE number = 1").await;
    t.app.library(&t.app.url).storage().delete(&key).await.unwrap();
    let error = append(&t, &path, 3_000_000, &video[3_000_000..]).await.expect_error(404, "not_found");
    assert!(error["message"].as_str().unwrap().contains("Upload the file again"), "{error}");
    assert_swept(t.app).await;
}

async fn open_uploads_are_capped(t: Tenant<'_>) {
    let mut paths = Vec::new();
    for _ in 0..17 {
        paths.push(create(&t, 1_000).await);
    }
    let replies = join_all((0..6).map(|_| new_upload(&t, 1_000).send())).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 201).count(), 3);
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        let error = reply.expect_error(429, "rate_limited");
        assert!(error["message"].as_str().unwrap().contains("20 unfinished uploads"), "{error}");
        assert_eq!(reply.header("retry-after"), Some("60"));
    }
    assert_eq!(t.app.counted_bytes().await, 20_000, "a rejected upload reserves nothing");
    tus(&t, "DELETE", &paths[0]).send().await.expect(204);
    create(&t, 1_000).await;
    // A finished upload does not count.
    let video = video(1_000);
    tus(&t, "DELETE", &paths[1]).send().await.expect(204);
    let path = create(&t, video.len()).await;
    finish(&t, &path, 0, &video).await;
    create(&t, 1_000).await;
}

/// The plan `free` has 500 MiB.
async fn the_whole_size_is_reserved(t: Tenant<'_>) {
    let (large, small) = (300 * MIB, 200 * MIB);
    let replies = join_all((0..3).map(|_| new_upload(&t, large).send())).await;
    let mut created = replies.iter().filter(|reply| reply.status == 201);
    let first = created.next().unwrap().header("location").unwrap().strip_prefix(BASE).unwrap().to_owned();
    assert!(created.next().is_none(), "two would exceed the storage");
    for reply in replies.iter().filter(|reply| reply.status != 201) {
        let error = reply.expect_error(402, "storage_limit_exceeded");
        assert!(error["message"].as_str().unwrap().contains("500 MiB"), "{error}");
    }
    new_upload(&t, small).send().await.expect(201);
    assert_eq!(t.app.counted_bytes().await, 500 * MIB);
    new_upload(&t, 1).send().await.expect_error(402, "storage_limit_exceeded");
    tus(&t, "DELETE", &first).send().await.expect(204);
    assert_eq!(t.app.counted_bytes().await, small);
    new_upload(&t, large).send().await.expect(201);
}

/// The space of an upload is that of its file, so it is not counted twice at the end.
async fn a_full_workspace_can_finish_an_upload(t: Tenant<'_>) {
    let (one, two) = (video(3_000_000), video(3_000_001));
    let all = i64::try_from(one.len() + two.len()).unwrap();
    t.app.set_storage_usage(t.workspace, 500 * MIB - all, 0).await;
    let paths = [create(&t, one.len()).await, create(&t, two.len()).await];
    new_upload(&t, 1).send().await.expect_error(402, "storage_limit_exceeded");
    let ids = tokio::join!(finish(&t, &paths[0], 0, &one), finish(&t, &paths[1], 0, &two));
    assert_asset(&t, ids.0, &one).await;
    assert_asset(&t, ids.1, &two).await;
    assert_eq!(t.app.counted_bytes().await, 500 * MIB);
    new_upload(&t, 1).send().await.expect_error(402, "storage_limit_exceeded");
}

async fn uploads_of_others_are_not_found(app: TestApp) {
    let (t, other) = (app.tenant("unlimited").await, app.tenant("unlimited").await);
    let theirs = create(&t, 1_000).await;
    let upload = theirs.rsplit('/').next().unwrap();
    let below_own = other.path(&format!("/media/uploads/{upload}"));
    for method in ["HEAD", "PATCH", "DELETE"] {
        let send = async |path: &str| tus(&other, method, path).header("upload-offset", "0").send().await.status;
        assert_eq!((send(&theirs).await, send(&below_own).await), (403, 404), "{method}");
    }
    let below_theirs = tus(&other, "POST", &t.path("/media/uploads")).header("upload-length", "5").send().await;
    below_theirs.expect_error(403, "brand_forbidden");
    assert_eq!(offset(&t, &theirs).await, 0);
    // A test key cannot write.
    let test_key = app.key_of(t.user, KeyMode::Test, "all").await;
    let reply = new_upload(&t, 5).key(&test_key).send().await;
    reply.expect_error(403, "test_mode_write_forbidden");
    let reader = app.key_of(t.user, KeyMode::Live, "media:read").await;
    new_upload(&t, 5).key(&reader).send().await.expect_error(403, "insufficient_scope");
}

async fn invalid_requests_are_rejected(t: Tenant<'_>) {
    let uploads = t.path("/media/uploads");
    for (header, value, words) in [
        ("upload-defer-length", "1", "Upload-Length"),
        ("upload-concat", "partial", "Upload-Concat"),
        ("upload-length", "0", "Upload-Length"),
        ("upload-length", "-1", "Upload-Length"),
        ("upload-length", "5.5", "Upload-Length"),
        ("upload-metadata", "filename ???", "base64"),
        ("upload-metadata", "filename YQ==,filename YQ==", "only once"),
    ] {
        let error = new_upload(&t, 5).header(header, value).send().await.expect_error(400, "invalid_upload");
        assert!(error["message"].as_str().unwrap().contains(words), "{header}: {value}: {error}");
    }
    tus(&t, "POST", &uploads).send().await.expect_error(400, "invalid_upload");
    new_upload(&t, 5).raw("bytes").send().await.expect_error(400, "invalid_upload");
    new_upload(&t, 1_025 * MIB).send().await.expect_error(413, "payload_too_large");
    new_upload(&t, i64::MAX).send().await.expect_error(413, "payload_too_large");
    // The words `image` and `x`.
    for metadata in ["asset_type aW1hZ2U=", "asset_type eA=="] {
        let reply = new_upload(&t, 5).header("upload-metadata", metadata).send().await;
        assert_eq!(reply.invalid_fields(), ["asset_type"], "{metadata}");
    }
    assert_eq!((t.app.count_rows("media_uploads").await, t.app.counted_bytes().await), (0, 0));

    let path = create(&t, 1_000).await;
    append_some(&t, &path, 0, &[1; 10]).await;
    append(&t, &path, 10, &[1]).await.expect(204);
    for wrong in [0, 10, 12, 2_000] {
        let error = append(&t, &path, wrong, &[1]).await.expect_error(409, "upload_offset_mismatch");
        assert!(error["message"].as_str().unwrap().contains("`Upload-Offset: 11`"), "{error}");
    }
    append(&t, &path, 11, &[1; 990]).await.expect_error(413, "payload_too_large");
    tus(&t, "PATCH", &path).raw("x").send().await.expect_error(415, "unsupported_media_type");
    let without_offset = tus(&t, "PATCH", &path).raw("x").header("content-type", BYTES).send().await;
    without_offset.expect_error(400, "invalid_upload");
    assert_eq!(offset(&t, &path).await, 11, "nothing was added");
    until_released(t.app, 11).await;
    let nowhere = t.path(&format!("/media/uploads/{MISSING_ID}"));
    append(&t, &nowhere, 0, &[1]).await.expect_error(404, "not_found");
}

async fn responses_name_the_protocol(t: Tenant<'_>) {
    let path = create(&t, 1_000).await;
    for reply in [
        new_upload(&t, 5).send().await,
        status(&t, &path).await,
        append(&t, &path, 0, &[1]).await,
        append(&t, &path, 0, &[1]).await,
        tus(&t, "DELETE", &path).send().await,
        tus(&t, "DELETE", &path).send().await,
    ] {
        assert_eq!(reply.header("tus-resumable"), Some("1.0.0"), "{reply:?}");
    }
    for version in [None, Some("0.2.2")] {
        let request = new_upload(&t, 5).without("tus-resumable");
        let request = if let Some(version) = version { request.header("tus-resumable", version) } else { request };
        let reply = request.send().await;
        reply.expect_error(412, "upload_version_unsupported");
        assert_eq!((reply.header("tus-version"), reply.header("tus-resumable")), (Some("1.0.0"), Some("1.0.0")));
    }
    new_upload(&t, 5).without("authorization").send().await.expect_error(401, "unauthorized");
}

async fn options_need_no_key(t: Tenant<'_>) {
    let uploads = t.path("/media/uploads");
    for path in [uploads.clone(), format!("{uploads}/1")] {
        let reply = t.app.request("OPTIONS", &path).send().await;
        reply.expect(204);
        for (name, value) in [
            ("tus-resumable", "1.0.0"),
            ("tus-version", "1.0.0"),
            ("tus-extension", "creation,expiration,termination"),
            ("tus-max-size", "1073741824"),
        ] {
            assert_eq!(reply.header(name), Some(value), "{name}");
        }
    }
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
    let app = TestApp::start_with_min_rate(TestStore::sqlite().await, SHORT_MIN_RATE).await;
    let t = app.tenant("unlimited").await;
    let video = video(100_000);
    let path = create(&t, video.len()).await;
    let mut stream = begin_part(&t, &path, video.len(), &video[..50_000]).await;
    let response = response(&mut stream).await;
    assert!(response.starts_with("http/1.1 204 ") && response.contains("upload-offset: 50000\r\n"), "{response}");
    let id = finish(&t, &path, 50_000, &video[50_000..]).await;
    assert_asset(&t, id, &video).await;
}

/// The script of the console uses the session and its CSRF token in place of an API key.
async fn the_console_s_script_can_upload(t: Tenant<'_>, person: ConsoleUser<'_>) {
    let hidden = person.get(&t.path("")).await.hidden_fields("/sign-out");
    let csrf = hidden.into_iter().find(|(name, _)| name == "_csrf").expect("a token").1;
    let uploads = format!("/console{}", t.path("/media/uploads"));
    let request = |method: &str, path: &str| {
        let request = t.app.visit(method, &format!("{}{path}", t.app.url)).header("tus-resumable", "1.0.0");
        request.header("cookie", &person.cookie).header("x-csrf-token", &csrf)
    };
    let video = video(1_000);
    let new = || request("POST", &uploads).header("upload-length", &video.len().to_string());
    for (name, value) in [("x-csrf-token", ""), ("x-csrf-token", "00"), ("sec-fetch-site", "cross-site")] {
        new().header(name, value).send().await.assert_status(403);
    }
    new().without("cookie").send().await.assert_status(401);
    new().without("tus-resumable").send().await.assert_status(412);
    assert_eq!(t.app.count_rows("media_uploads").await, 0);
    let created = new().header("upload-metadata", METADATA).send().await;
    created.assert_status(201);
    let path = created.header("location").unwrap().to_owned();
    assert!(path.starts_with(&uploads), "{path}");
    let shown = request("HEAD", &path).send().await;
    assert_eq!((shown.status, number(&shown, "upload-offset")), (200, Some(0)));
    let send = |offset: &str| request("PATCH", &path).header("upload-offset", offset).raw(video.as_slice());
    let wrong = send("5").header("content-type", BYTES).send().await;
    assert_eq!((wrong.status, &wrong.json()["error"]["code"]), (409, &json!("upload_offset_mismatch")));
    let reply = send("0").header("content-type", BYTES).send().await;
    reply.assert_status(204);
    assert_asset(&t, number(&reply, "crier-media-id").unwrap(), &video).await;
    request("DELETE", &path).send().await.assert_status(204);
}
