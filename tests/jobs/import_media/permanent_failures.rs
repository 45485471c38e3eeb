//! Permanent failures: the import fails in its first attempt, with the matching error code.

use super::*;
use crate::support::images;
use crate::support::jobs::worker_on_both;
use crate::support::source::{SourceResponse, chunked, gzipped, ok, redirect, response, status};

worker_on_both!(
    a_4xx_response_fails_the_import,
    a_redirect_without_target_fails_the_import,
    private_addresses_are_not_requested,
    a_file_that_is_not_an_image_fails_the_import,
    an_oversized_file_fails_the_import,
    an_exceeded_storage_quota_fails_the_import,
);

/// Imports from a source with this response. Asserts that the import fails in its first run, and returns its id.
async fn assert_response_fails(w: &TestWorker, response: Vec<u8>, code: Code) -> i64 {
    assert_source_fails(w, &Source::with(response).await, code).await
}

async fn assert_source_fails(w: &TestWorker, source: &Source, code: Code) -> i64 {
    let id = import_from(w, source).await;
    run(w).await;
    assert_failed(w, id, code, 1).await;
    assert_eq!(job(w, id).await.state, JobState::Done, "the job is not dead");
    assert_eq!((w.stored_files(), w.count_rows("files").await), (Vec::new(), 0));
    id
}

async fn a_4xx_response_fails_the_import(w: TestWorker) {
    listen(&w).await;
    for status_line in
        ["400 Bad Request", "401 Unauthorized", "403 Forbidden", "404 Not Found", "410 Gone", "429 Too Many"]
    {
        let source = Source::with(status(status_line)).await;
        let id = assert_source_fails(&w, &source, Code::HttpError).await;
        let message = find_import(&w, id).await.error.unwrap().message;
        assert!(message.contains(&status_line[..3]), "{message}");
        assert_eq!(source.paths().len(), 1);
    }
    for status_line in ["304 Not Modified", "300 Multiple Choices"] {
        assert_response_fails(&w, response(status_line, "", b""), Code::HttpError).await;
    }
}

async fn a_redirect_without_target_fails_the_import(w: TestWorker) {
    listen(&w).await;
    let looping = Source::with(redirect("/again")).await;
    assert_source_fails(&w, &looping, Code::HttpError).await;
    assert_eq!(looping.paths().len(), 6);
    for to in ["ftp://127.0.0.1/a.png", "http://ann:hush@127.0.0.1/", "javascript:alert(1)", "http://["] {
        let id = assert_response_fails(&w, redirect(to), Code::HttpError).await;
        let message = find_import(&w, id).await.error.unwrap().message;
        assert!(!message.contains("hush"), "{message}");
    }
    assert_response_fails(&w, response("301 Moved", "", b""), Code::HttpError).await;
}

async fn private_addresses_are_not_requested(w: TestWorker) {
    listen(&w).await;
    for to in ["http://169.254.169.254/latest/meta-data", "http://10.0.0.1/a.png", "https://[fd00::1]/", "//0xa000001/"]
    {
        let source = Source::with(redirect(to)).await;
        let id = assert_source_fails(&w, &source, Code::BlockedAddress).await;
        let message = find_import(&w, id).await.error.unwrap().message;
        assert!(!message.contains("169.254") && !message.contains("10.0.0.1"), "{message}");
    }
    // The network was disallowed after the import was created.
    let id = import(&w, "http://192.168.0.1/a.png").await;
    run(&w).await;
    assert_failed(&w, id, Code::BlockedAddress, 1).await;
}

async fn a_file_that_is_not_an_image_fails_the_import(w: TestWorker) {
    listen(&w).await;
    let png = images::png(64, 64);
    for body in [
        b"<!doctype html><p>no".to_vec(),
        b"<svg xmlns='http://www.w3.org/2000/svg'/>".to_vec(),
        Vec::new(),
        png[..png.len() / 2].to_vec(),
        b"\x89PNG\r\n\x1a\n and no more".to_vec(),
    ] {
        assert_response_fails(&w, ok(&body), Code::UnsupportedMediaType).await;
    }
    // The declared content type is ignored.
    let source = Source::with(response("200 OK", "Content-Type: text/html\r\n", &png)).await;
    let id = import_from(&w, &source).await;
    run(&w).await;
    assert_eq!(find_import(&w, id).await.status, Status::Completed);
}

async fn an_oversized_file_fails_the_import(w: TestWorker) {
    listen(&w).await;
    let max_bytes = library(&w).limits().max_bytes as usize;
    let announced = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", max_bytes + 1).into_bytes();
    assert_source_fails(&w, &Source::with_responses([SourceResponse::Stall(announced)]).await, Code::TooLarge).await;
    let body = vec![0; max_bytes + 1];
    assert_response_fails(&w, chunked(&body), Code::TooLarge).await;
    assert_response_fails(&w, gzipped(&body), Code::TooLarge).await;
    // The file is small enough, but its dimensions are too large.
    let mut png = images::png(8, 8);
    png[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x40, 0]);
    let crc = crc32(&png[12..29]);
    png[29..33].copy_from_slice(&crc.to_be_bytes());
    assert_response_fails(&w, ok(&png), Code::TooLarge).await;
}

/// Returns the checksum of a chunk's type and data.
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

async fn an_exceeded_storage_quota_fails_the_import(w: TestWorker) {
    listen(&w).await;
    let plan = 20_480_i64 << 20;
    let almost = plan - 10;
    w.set_storage_usage(w.world.workspace, almost, 0).await;
    let id = assert_response_fails(&w, ok(&images::png(64, 64)), Code::StorageLimitExceeded).await;
    let message = find_import(&w, id).await.error.unwrap().message;
    assert!(message.contains("20480 MiB"), "{message}");
    assert_eq!(
        files::usage(&mut w.conn().await, w.world.workspace).await.unwrap().files,
        almost,
        "no storage usage was counted"
    );
}
