//! Imports of videos.

use std::time::Duration;

use crier_worker::jobs::IMPORT_TIMEOUT;

use super::*;
use crate::support::images;
use crate::support::jobs::worker_on_both;
use crate::support::source::{SourceResponse, chunked, ok, response};
use crate::support::videos::{VideoSpec, mp4};

worker_on_both!(
    a_video_is_fetched_and_stored,
    a_file_of_the_other_kind_fails_the_import,
    a_video_over_the_limit_fails_the_import,
    a_stalled_video_is_retried,
    a_video_that_arrives_too_slowly_is_retried,
);

fn video(data: usize) -> Vec<u8> {
    mp4(VideoSpec { data, ..VideoSpec::default() })
}

async fn import_video(w: &TestWorker, source: &Source) -> i64 {
    import_as(w, &source.url("/loaf.mov"), AssetType::Video).await
}

/// The video is larger than an image may be.
async fn a_video_is_fetched_and_stored(w: TestWorker) {
    listen(&w).await;
    let bytes = video(26 << 20);
    let source = Source::with(chunked(&bytes)).await;
    let id = import_video(&w, &source).await;
    run(&w).await;
    let [asset] = &assets(&w).await[..] else { panic!("one asset") };
    assert_eq!(find_import(&w, id).await.media_id, Some(asset.id));
    assert_eq!((asset.asset_type, asset.mime_type.as_str()), (AssetType::Video, "video/mp4"));
    assert_eq!((asset.filename.as_str(), asset.size_bytes), ("loaf.mov", bytes.len() as i64));
    assert_eq!(asset.video.as_ref().map(|video| video.duration_ms), Some(5_000));
    assert!(library(&w).storage().read(&asset.key).await.unwrap().unwrap() == bytes);
    assert!(source.request_heads()[0].to_lowercase().contains("accept: video/*"), "{:?}", source.request_heads());
    assert_no_leftovers(&w).await;
    assert_eq!(w.stored_files().len(), 1, "without ffmpeg, there is no cover");
}

async fn a_file_of_the_other_kind_fails_the_import(w: TestWorker) {
    listen(&w).await;
    for (bytes, asset_type, hint) in [
        (video(5_000), AssetType::Image, "with the value `video`"),
        (images::png(64, 64), AssetType::Video, "omit `asset_type`"),
        (video(5_000)[..300].to_vec(), AssetType::Video, ""),
        (Vec::new(), AssetType::Video, "empty"),
    ] {
        let source = Source::with(ok(&bytes)).await;
        let id = import_as(&w, &source.url("/loaf"), asset_type).await;
        run(&w).await;
        assert_failed(&w, id, Code::UnsupportedMediaType, 1).await;
        let message = find_import(&w, id).await.error.unwrap().message;
        assert!(message.contains(hint), "{message}");
    }
    assert_eq!((w.stored_files(), w.count_rows("files").await), (Vec::new(), 0));
}

async fn a_video_over_the_limit_fails_the_import(w: TestWorker) {
    listen(&w).await;
    let announced = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 2_u64 << 30);
    let source = Source::with(announced.into_bytes()).await;
    let id = import_video(&w, &source).await;
    run(&w).await;
    assert_failed(&w, id, Code::TooLarge, 1).await;
    let message = find_import(&w, id).await.error.unwrap().message;
    assert!(message.contains("1024 MiB"), "{message}");
}

/// Asserts that a video is retried whose first response does not end in time. Waits for real time, because the time
/// limits of downloads do not use the clock.
async fn assert_retried(mut w: TestWorker, first: impl FnOnce(Vec<u8>) -> SourceResponse) {
    w.set_import_timeout(Duration::from_secs(2));
    let whole = response("200 OK", "", &video(100_000));
    let source = Source::with_responses([first(whole.clone()), SourceResponse::Send(whole)]).await;
    let id = import_video(&w, &source).await;
    run(&w).await;
    assert_eq!(import_status(&w, id).await, (Status::Pending, Some(Code::Timeout)));
    w.set_import_timeout(IMPORT_TIMEOUT);
    run_next_attempt(&w, id).await;
    assert_eq!(import_status(&w, id).await, (Status::Completed, None));
    assert_no_leftovers(&w).await;
}

async fn a_stalled_video_is_retried(w: TestWorker) {
    assert_retried(w, |whole| SourceResponse::Stall(whole[..50_000].to_vec())).await;
}

/// A server that sends a byte now and then would hold the slot of a worker for the time that the largest video may take.
async fn a_video_that_arrives_too_slowly_is_retried(w: TestWorker) {
    assert_retried(w, SourceResponse::Drip).await;
}
