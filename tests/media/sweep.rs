//! The sweep deletes unreferenced files, and only those.

use bytes::Bytes;
use crier_media::plain_file::PlainFile;
use crier_media::{IngestError, Spooled};
use crier_store::files;

use super::{ABANDONED_AFTER_SECONDS, TestLibrary, UNUSED_AFTER_SECONDS};
use crate::support::images;
use crate::support::store::{TestStore, on_both, on_both_storages, run_concurrently};

on_both_storages!(
    only_unreferenced_files_are_swept,
    abandoned_uploads_are_swept_after_an_hour,
    a_sweep_resumes_after_a_storage_outage,
    bytes_stored_after_the_sweep_are_deleted,
    just_abandoned_files_are_not_swept_yet,
);
on_both!(TestLibrary::over =>
    concurrent_sweeps_delete_all_files,
    files_of_a_deleted_brand_are_swept,
    an_interrupted_sweep_is_resumed,
    files_are_counted_by_state,
    a_low_disk_accepts_no_files,
);
on_both!(on_bucket => a_write_for_which_nobody_waits_releases_its_storage);

async fn on_bucket(s: TestStore) -> TestLibrary {
    TestLibrary::over(s.on_s3().await).await
}

async fn only_unreferenced_files_are_swept(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let (deleted, duplicate, kept) = (p.asset(5).await, p.asset(5).await, p.asset(6).await);
    assert_eq!((p.rows().await, p.s.stored_files().len()), (2, 4));
    let both = p.used_bytes().await;
    p.delete(deleted).await;
    assert_eq!(p.used_bytes().await, both, "the other asset has the same bytes");
    p.delete(duplicate).await;
    let left = p.used_bytes().await;
    assert!(0 < left && left < both);
    p.sweep().await;
    assert_eq!(p.s.stored_files().len(), 4, "a process may still be working on the file");
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len()), (1, 2));
    p.delete(kept).await;
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
}

async fn abandoned_uploads_are_swept_after_an_hour(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let ingested = p.ingest(5).await;
    p.s.advance(ABANDONED_AFTER_SECONDS - 5);
    p.sweep().await;
    assert_eq!(p.s.stored_files().len(), 2);
    assert!(p.used_bytes().await > 0);
    p.s.advance(10);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
    assert_eq!(p.create_asset(&ingested).await, None, "no asset without bytes");
    let again = p.ingest(5).await;
    assert!(p.create_asset(&again).await.is_some());
}

async fn a_sweep_resumes_after_a_storage_outage(s: TestStore) {
    let p = TestLibrary::over(s).await;
    for width in 1..5 {
        let asset = p.asset(width).await;
        p.delete(asset).await;
    }
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.s.set_storage_unavailable(true);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (4, 8, 0));
    p.s.set_storage_unavailable(false);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len()), (0, 0));
}

/// An upload stalls for so long that its row is deleted before its bytes arrive.
async fn bytes_stored_after_the_sweep_are_deleted(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let Some(bucket) = p.s.bucket() else {
        // A directory cannot stall. Here the file is abandoned after its bytes are stored.
        let ingested = p.ingest(5).await;
        p.library.abandon(&p.s.store, &ingested).await;
        p.s.advance(UNUSED_AFTER_SECONDS);
        p.sweep().await;
        return assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
    };
    bucket.hold_puts(true);
    let (library, store, owner) = (p.library.clone(), p.s.store.clone(), p.owner());
    let bytes = bytes::Bytes::from(images::png(5, 2)).into();
    let upload = tokio::spawn(async move { library.ingest(&store, &owner, &bytes).await });
    bucket.until_held().await;
    p.s.advance(ABANDONED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!(p.rows().await, 0);
    bucket.hold_puts(false);
    let error = upload.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("abandoned"), "{error}");
    assert_eq!(p.s.stored_files(), [""; 0]);
}

/// A time limit ends while the bucket does not respond.
async fn a_write_for_which_nobody_waits_releases_its_storage(p: TestLibrary) {
    let bucket = p.s.bucket().unwrap();
    bucket.hold_puts(true);
    let (bytes, owner) = (Spooled::from(Bytes::from(images::png(5, 2))), p.owner());
    tokio::select! {
        result = p.library.ingest(&p.s.store, &owner, &bytes) => panic!("the bucket does not respond: {result:?}"),
        () = bucket.until_held() => {}
    }
    while p.used_bytes().await > 0 {
        tokio::task::yield_now().await;
    }
    bucket.hold_puts(false);
    assert_eq!(p.rows().await, 1, "its bytes may still arrive");
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.used_bytes().await), (0, 0));
}

async fn concurrent_sweeps_delete_all_files(p: TestLibrary) {
    for width in 1..20 {
        let ingested = p.ingest(width).await;
        if width % 2 == 0 {
            let asset = p.create_asset(&ingested).await.unwrap();
            p.delete(asset).await;
        }
    }
    p.s.advance(ABANDONED_AFTER_SECONDS);
    let scheduler = p.scheduler();
    let swept = run_concurrently(4, |_| {
        let scheduler = scheduler.clone();
        async move { super::task::run(&scheduler).await }
    });
    for done in swept.await {
        done.unwrap();
    }
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
}

async fn files_of_a_deleted_brand_are_swept(p: TestLibrary) {
    p.asset(5).await;
    let abandoned = p.ingest(6).await;
    p.s.delete_brand(p.world.brand).await;
    assert_eq!(p.create_asset(&abandoned).await, None, "the brand is deleted");
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
}

async fn an_interrupted_sweep_is_resumed(p: TestLibrary) {
    for step in 0..3 {
        p.ingest(5).await;
        p.s.advance(ABANDONED_AFTER_SECONDS);
        let before = p.s.later(-UNUSED_AFTER_SECONDS);
        p.s.write(async |tx| files::mark_abandoned_for_deletion(tx, before, 10).await).await;
        let marked = files::marked_for_deletion(&mut p.s.conn().await, 0, before, 10).await.unwrap();
        assert_eq!((marked.len(), p.used_bytes().await), (1, 0));
        let names = [&marked[0].key, marked[0].thumbnail_key.as_ref().unwrap()];
        for name in &names[..step] {
            p.library.storage().delete(name).await.unwrap();
        }
        p.sweep().await;
        assert_eq!((p.rows().await, p.s.stored_files().len()), (0, 0), "after {step} steps");
    }
}

async fn files_are_counted_by_state(p: TestLibrary) {
    let counted = async || {
        let totals = files::totals(&mut p.s.conn().await).await.unwrap();
        (totals.reserved, totals.stored, totals.deleting, totals.bytes)
    };
    assert_eq!(counted().await, (0, 0, 0, 0));
    let (deleted, _) = (p.asset(5).await, p.asset(6).await);
    p.ingest(7).await;
    let all = p.used_bytes().await;
    assert_eq!(counted().await, (1, 2, 0, all));
    p.delete(deleted).await;
    assert_eq!(counted().await, (1, 1, 1, p.used_bytes().await));
    p.s.advance(ABANDONED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!(counted().await, (0, 1, 0, p.used_bytes().await));
}

/// A slow bucket may still be storing a file that was just abandoned, however long ago the upload began.
async fn just_abandoned_files_are_not_swept_yet(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let ingested = p.ingest(5).await;
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.library.abandon(&p.s.store, &ingested).await;
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (1, 2, 0));
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len()), (0, 0));
}

/// The sweep continues, because it frees space.
async fn a_low_disk_accepts_no_files(p: TestLibrary) {
    let asset = p.asset(5).await;
    p.library.disk().set_low(true);
    let spooled = Spooled::from(Bytes::from(images::png(6, 2)));
    let ingested = p.library.ingest(&p.s.store, &p.owner(), &spooled).await;
    assert!(matches!(ingested, Err(IngestError::Storage(_))), "{ingested:?}");
    let file = PlainFile { extension: "csv", media_type: "text/csv", bytes: Bytes::from_static(b"1,2") };
    let stored = p.library.store_file(&p.s.store, &p.owner(), &file).await;
    assert!(matches!(stored, Err(IngestError::Storage(_))), "{stored:?}");
    assert_eq!(p.rows().await, 1);
    p.delete(asset).await;
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.used_bytes().await), (0, 0));
    p.library.disk().set_low(false);
    p.asset(6).await;
}
