//! The storage that resumable uploads reserve, and how many a workspace may have.

use crier_scheduler::tasks::uploads as finishing;
use crier_store::files::NewFile;
use crier_store::media_uploads;
use futures::future::join_all;
use sha2::{Digest, Sha256};

use super::super::{ABANDONED_AFTER_SECONDS, UNUSED_AFTER_SECONDS};
use super::{
    LEASE_SECONDS, assert_asset, assert_swept, create, finish, new_upload, number, received_upload, scheduler, status,
    sweep, tus, video,
};
use crate::support::app::{BASE, Tenant, on_both_apps};

const MIB: i64 = 1 << 20;

on_both_apps!("unlimited" =>
    open_uploads_are_capped,
    a_file_takes_over_the_space_of_its_upload,
    a_cover_that_only_a_dead_process_had_is_left_out,
    a_dead_process_keeps_the_space_of_a_deleted_upload_for_an_hour,
);
on_both_apps!("free" => the_whole_size_is_reserved, a_full_workspace_can_finish_an_upload);

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

/// Reserves the file of an upload that has received these bytes, as a process that dies then. Returns the path.
async fn reserve_and_die(t: &Tenant<'_>, video: &[u8], thumbnail_key: Option<String>) -> String {
    let path = received_upload(t, video).await;
    let upload_id: i64 = path.rsplit('/').next().unwrap().parse().unwrap();
    let size_bytes = i64::try_from(video.len()).unwrap();
    let file = NewFile {
        workspace_id: t.workspace,
        brand_id: t.brand,
        key: format!("{}.mp4", "a".repeat(40)),
        thumbnail_key,
        sha256: Sha256::digest(video).into(),
        mime_type: "video/mp4",
        size_bytes,
        width: 720,
        height: 1_280,
        video: None,
    };
    let reserved = t.app.store.write(async |tx| {
        media_uploads::acquire(tx, t.brand, upload_id, size_bytes, "dead").await?.expect("the upload is free");
        media_uploads::reserve_file(tx, upload_id, "dead", &file).await
    });
    reserved.await.expect("the file is reserved");
    path
}

/// Otherwise, another upload might be rejected although there is space.
async fn a_file_takes_over_the_space_of_its_upload(t: Tenant<'_>) {
    let video = video(3_000_000);
    // Before the outage, because a process that starts creates the directory of the storage.
    let scheduler = scheduler(t.app);
    reserve_and_die(&t, &video, None).await;
    let size = i64::try_from(video.len()).unwrap();
    assert_eq!(t.app.counted_bytes().await, size);
    // The sweep leaves it to the upload.
    t.app.advance(ABANDONED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!((t.app.counted_bytes().await, t.app.file_bytes().await), (size, size));
    // An outage changes nothing either.
    t.app.set_storage_unavailable(true);
    finishing::finish_all(&scheduler).await;
    t.app.set_storage_unavailable(false);
    assert_eq!((t.app.counted_bytes().await, t.app.file_bytes().await), (size, size));
    finishing::finish_all(&scheduler).await;
    assert_eq!((t.app.count_rows("media").await, t.app.count_rows("files").await), (1, 1));
    assert_eq!((t.app.counted_bytes().await, t.app.file_bytes().await), (size, size));
}

/// ffmpeg may be installed only for the processes that receive uploads. Without this, the upload could not be finished.
async fn a_cover_that_only_a_dead_process_had_is_left_out(t: Tenant<'_>) {
    let video = video(3_000_000);
    let path = reserve_and_die(&t, &video, Some(format!("{}-thumb.jpg", "a".repeat(40)))).await;
    t.app.advance(LEASE_SECONDS);
    finishing::finish_all(&scheduler(t.app)).await;
    let id = number(&status(&t, &path).await, "crier-media-id").expect("an asset");
    assert_asset(&t, id, &video).await;
    let asset = t.get(&t.path(&format!("/media/{id}"))).await.data(200);
    assert!(asset["thumbnail_url"].is_null() && asset["cover_url"].is_null(), "{asset}");
    t.app.advance(UNUSED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_eq!(t.app.stored_files().len(), 1, "only the video");
}

/// Nobody knows whether the process is writing the file.
async fn a_dead_process_keeps_the_space_of_a_deleted_upload_for_an_hour(t: Tenant<'_>) {
    let video = video(1_000);
    let path = reserve_and_die(&t, &video, None).await;
    tus(&t, "DELETE", &path).send().await.expect(204);
    assert_eq!(t.app.counted_bytes().await, i64::try_from(video.len()).unwrap());
    t.app.advance(ABANDONED_AFTER_SECONDS);
    sweep(t.app).await;
    assert_swept(t.app).await;
}
