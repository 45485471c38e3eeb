//! How resumable uploads end: with an asset, a rejected file, a lost piece, by deletion and by expiry, also after a crash.

use std::time::Duration;

use bytes::Bytes;
use crier_config::MediaConfig;
use crier_media::{IngestError, Owner, Spooled, UploadError};
use crier_scheduler::tasks::uploads as finishing;

use super::super::UNUSED_AFTER_SECONDS;
use super::{
    DAY_SECONDS, LEASE_SECONDS, append, append_some, assert_asset, assert_swept, assert_swept_after_a_day, create,
    finish, number, offset, pieces_in_storage, received_upload, scheduler, status, sweep, tus, video,
};
use crate::support::app::{Tenant, TestApp, on_both_apps};
use crate::support::client::until;
use crate::support::store::TestStore;

on_both_apps!("unlimited" =>
    an_upload_expires,
    a_deleted_upload_releases_its_storage,
    a_rejected_file_ends_the_upload,
    a_crash_before_the_asset_leads_to_one_asset,
    an_upload_whose_process_died_is_finished_by_the_scheduler,
    a_rejected_file_of_a_dead_process_ends_the_upload,
    a_low_disk_copies_no_pieces,
    an_upload_ends_with_its_asset,
    a_lost_piece_deletes_the_upload,
    a_piece_that_cannot_be_deleted_keeps_no_others,
);

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
    // Before the outage, because a process that starts creates the directory of the storage.
    let scheduler = scheduler(t.app);
    let path = received_upload(&t, &video).await;
    let until = t.app.later(30).to_rfc3339();
    t.app.sql(format!("UPDATE media_uploads SET writer = 'dead', writer_until = '{until}'")).await;
    assert_eq!(offset(&t, &path).await, video.len());
    finishing::finish_all(&scheduler).await;
    assert_eq!(t.app.count_rows("media").await, 0, "the process may still be alive");
    t.app.advance(LEASE_SECONDS);
    t.app.set_storage_unavailable(true);
    finishing::finish_all(&scheduler).await;
    t.app.set_storage_unavailable(false);
    // A request has nothing to add.
    append_some(&t, &path, video.len(), &[]).await;
    finishing::finish_all(&scheduler).await;
    let id = number(&status(&t, &path).await, "crier-media-id").expect("an asset");
    assert_asset(&t, id, &video).await;
    finishing::finish_all(&scheduler).await;
    assert_eq!((t.app.count_rows("media").await, t.app.counted_bytes().await), (1, t.app.file_bytes().await));
}

async fn a_rejected_file_of_a_dead_process_ends_the_upload(t: Tenant<'_>) {
    let path = received_upload(&t, &[7; 1_000]).await;
    let video = video(1_000);
    let next = create(&t, video.len()).await;
    finishing::finish_all(&scheduler(t.app)).await;
    status(&t, &path).await.assert_status(415);
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
    // An upload that has not received all bytes is not affected.
    let id = finish(&t, &next, 0, &video).await;
    assert_asset(&t, id, &video).await;
}

/// The copy would use the space that is left, again every half minute.
async fn a_low_disk_copies_no_pieces(t: Tenant<'_>) {
    let video = video(3_000_000);
    let path = received_upload(&t, &video).await;
    let key = t.app.value::<String>("SELECT key FROM media_upload_pieces WHERE number = 1").await;
    let library = t.app.library(&t.app.url);
    let piece = library.storage().read(&key).await.unwrap().unwrap();
    // A copy would notice that it is missing.
    library.storage().delete(&key).await.unwrap();
    library.disk().set_low(true);
    let finished = library.finish_next_upload(&t.app.store.store, 0).await.unwrap().expect("an upload");
    assert!(matches!(finished.result, Err(UploadError::Ingest(IngestError::Storage(_)))), "{finished:?}");
    library.storage().put(&key, piece).await.unwrap();
    library.disk().set_low(false);
    library.finish_next_upload(&t.app.store.store, 0).await.unwrap().expect("an upload").result.unwrap();
    let id = number(&status(&t, &path).await, "crier-media-id").expect("an asset");
    assert_asset(&t, id, &video).await;
}

async fn a_rejected_file_ends_the_upload(t: Tenant<'_>) {
    let text = b"not a video ".repeat(300_000);
    let path = create(&t, text.len()).await;
    append_some(&t, &path, 0, &text[..3_000_000]).await;
    let error = append(&t, &path, 3_000_000, &text[3_000_000..]).await.expect_error(415, "unsupported_media_type");
    assert_eq!(t.app.counted_bytes().await, 0);
    // The reason is kept, but not the bytes.
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!((pieces_in_storage(t.app), t.app.count_rows("media_uploads").await), (0, 1));
    status(&t, &path).await.assert_status(415);
    let repeated = append(&t, &path, text.len(), &[]).await.expect_error(415, "unsupported_media_type");
    assert_eq!(repeated["message"], error["message"]);
    finishing::finish_all(&scheduler(t.app)).await;
    assert_swept_after_a_day(t.app).await;
    status(&t, &path).await.assert_status(404);
    // The client may delete it.
    let path = create(&t, 1_000).await;
    append(&t, &path, 0, &[7; 1_000]).await.expect_error(415, "unsupported_media_type");
    tus(&t, "DELETE", &path).send().await.expect(204);
    status(&t, &path).await.assert_status(404);
    assert_swept(t.app).await;
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

/// For example, because its file belongs to another user.
async fn a_piece_that_cannot_be_deleted_keeps_no_others(t: Tenant<'_>) {
    for _ in 0..2 {
        let path = create(&t, 5_000_000).await;
        append_some(&t, &path, 0, &[7; 1_000]).await;
        tus(&t, "DELETE", &path).send().await.expect(204);
    }
    let key = t.app.value::<String>("SELECT key FROM media_upload_pieces ORDER BY id LIMIT 1").await;
    let file = t.app.store.files().join("media").join(&key[..2]).join(&key);
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!((t.app.count_rows("media_uploads").await, t.app.count_rows("media_upload_pieces").await), (1, 1));
    std::fs::remove_dir(&file).unwrap();
    assert_swept(t.app).await;
}

/// The client requests the asset, and gets the reason.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_rejected_after_the_response_tells_why() {
    let app = TestApp::start_with_asset_wait(TestStore::sqlite().await, Duration::ZERO).await;
    let t = app.tenant("unlimited").await;
    let path = create(&t, 1_000).await;
    let half = MediaConfig::default().video_spool_bytes / 2;
    let space = app.api.library.video_spools().open(t.workspace, half).await.unwrap();
    append(&t, &path, 0, &[7; 1_000]).await.expect(204);
    until("the bytes are stored", || async { (offset(&t, &path).await == 1_000).then_some(()) }).await;
    drop(space);
    until("the file is rejected", || async { (status(&t, &path).await.status == 415).then_some(()) }).await;
    let error = append(&t, &path, 1_000, &[]).await.expect_error(415, "unsupported_media_type");
    assert!(error["message"].as_str().unwrap().contains("file type"), "{error}");
    assert_eq!(app.counted_bytes().await, 0);
}

/// The client was told that all bytes were received, so it does not send them again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_with_all_bytes_does_not_expire_before_its_asset_exists() {
    let app = TestApp::start_with_asset_wait(TestStore::sqlite().await, Duration::ZERO).await;
    let t = app.tenant("unlimited").await;
    let video = video(1_000);
    let path = create(&t, video.len()).await;
    let half = MediaConfig::default().video_spool_bytes / 2;
    let space = app.api.library.video_spools().open(t.workspace, half).await.unwrap();
    app.advance(DAY_SECONDS - 10);
    append(&t, &path, 0, &video).await.expect(204);
    until("the bytes are stored", || async { (offset(&t, &path).await == video.len()).then_some(()) }).await;
    app.advance(20);
    sweep(&app).await;
    drop(space);
    let id = until("the asset exists", || async { number(&status(&t, &path).await, "crier-media-id") }).await;
    assert_asset(&t, id, &video).await;
}
