//! Videos in the library.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bytes::Bytes;
use crier_config::MediaConfig;
use crier_domain::media::{Asset, AssetType, MediaType};
use crier_media::storage::{ByteRange, ObjectLookup};
use crier_media::{self as media, AssetDetails, IngestError, IngestedFile, Library, Owner, Rejection, Spooled};
use crier_store::media as assets;
use futures::TryStreamExt;
use image::ImageFormat;

use super::{ABANDONED_AFTER_SECONDS, TestLibrary, UNUSED_AFTER_SECONDS};
use crate::support::images;
use crate::support::store::{TestStore, on_both, on_both_storages, on_one};
use crate::support::videos::{COVER_BYTES, VideoSpec, mp4, mp4_ending_with};

on_both_storages!(
    a_video_of_several_parts_is_stored_unchanged,
    a_video_that_could_not_be_stored_leaves_nothing,
    unreferenced_videos_are_swept,
);
on_both!(TestLibrary::over =>
    equal_videos_are_stored_once,
    a_missing_video_is_stored_again,
    a_video_over_the_quota_is_not_stored,
    an_upload_without_a_cover_forgets_a_missing_one,
);
on_one!(
    a_cover_is_taken_from_the_video,
    an_unusable_cover_is_omitted,
    other_files_are_rejected,
    slow_clients_do_not_keep_others_from_an_index,
    an_index_that_nobody_awaits_holds_its_memory,
);

/// More than two parts of the storage.
const LARGE: usize = 20 << 20;

fn of(data: usize) -> Bytes {
    mp4(VideoSpec { data, ..VideoSpec::default() }).into()
}

/// Receives bytes like an upload.
async fn received(library: &Library, owner: &Owner, bytes: &Bytes) -> Spooled {
    let mut spool = library.video_spools().open(owner.workspace_id, 0).await.unwrap();
    for chunk in bytes.chunks(1 << 20) {
        spool.write(chunk).await.unwrap();
    }
    spool.finish().await.unwrap()
}

impl TestLibrary {
    async fn ingest_video(&self, owner: &Owner, bytes: &Bytes) -> Result<IngestedFile, IngestError> {
        let spooled = received(&self.library, owner, bytes).await;
        self.library.ingest_video(&self.s.store, owner, &spooled).await
    }

    /// Creates the asset of an ingested video.
    async fn create_video(&self, ingested: &IngestedFile) -> Asset {
        let details =
            AssetDetails { asset_type: AssetType::Video, filename: "a.mp4", alt_text: None, source_url: None };
        let id = self.s.write(async |tx| media::create_asset(tx, self.world.brand, ingested, &details).await).await;
        let id = id.expect("the file is stored");
        assets::find(&mut self.s.conn().await, self.world.brand, id).await.unwrap().expect("the asset exists")
    }
}

/// Replaces the library by one whose covers are taken by a program in `tests/support/programs`.
fn with_covers(p: TestLibrary, program: &str) -> TestLibrary {
    let program = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/support/programs").join(program);
    let config = MediaConfig { ffmpeg: Some(program), ..MediaConfig::default() };
    let library = Library::new(p.library.storage().clone(), &config, p.library.public_url());
    TestLibrary { library, ..p }
}

async fn a_video_of_several_parts_is_stored_unchanged(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let bytes = of(LARGE);
    let ingested = p.ingest_video(&p.owner(), &bytes).await.unwrap();
    let asset = p.create_video(&ingested).await;
    assert_eq!((asset.mime_type, asset.width, asset.height), (MediaType::Mp4, 720, 1_280));
    assert_eq!((asset.size_bytes, asset.thumbnail_key.as_deref()), (bytes.len() as i64, None));
    let video = asset.video.expect("its properties");
    assert_eq!((video.duration_ms, video.rotation, video.frame_rate), (5_000, 0, Some(30.0)));
    assert_eq!((video.video_codec.as_str(), video.audio_codec, video.index_first), ("h264", None, true));
    assert!(p.library.storage().read(&asset.key).await.unwrap().unwrap() == bytes);
    assert_eq!(p.s.stored_files(), [asset.key]);
    assert_eq!(p.used_bytes().await, bytes.len() as i64);
    assert_eq!(p.library.video_spools().held(), 0);
}

async fn a_video_that_could_not_be_stored_leaves_nothing(s: TestStore) {
    let p = TestLibrary::over(s).await;
    p.s.set_storage_unavailable(true);
    let error = p.ingest_video(&p.owner(), &of(LARGE)).await.unwrap_err();
    assert!(matches!(error, IngestError::Storage(_)), "{error}");
    p.s.set_storage_unavailable(false);
    assert_eq!((p.used_bytes().await, p.s.stored_files().len()), (0, 0));
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!(p.rows().await, 0);
    p.ingest_video(&p.owner(), &of(LARGE)).await.unwrap();
}

async fn unreferenced_videos_are_swept(s: TestStore) {
    let p = TestLibrary::over(s).await;
    p.ingest_video(&p.owner(), &of(1_000)).await.unwrap();
    let deleted = p.ingest_video(&p.owner(), &of(LARGE)).await.unwrap();
    let deleted = p.create_video(&deleted).await;
    p.delete(deleted.id).await;
    p.s.advance(ABANDONED_AFTER_SECONDS);
    p.sweep().await;
    p.s.advance(UNUSED_AFTER_SECONDS);
    p.sweep().await;
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
}

async fn equal_videos_are_stored_once(p: TestLibrary) {
    let bytes = of(5_000);
    let (one, two) =
        (p.ingest_video(&p.owner(), &bytes).await.unwrap(), p.ingest_video(&p.owner(), &bytes).await.unwrap());
    let (one, two) = (p.create_video(&one).await, p.create_video(&two).await);
    assert_eq!((one.id == two.id, one.key == two.key), (false, true));
    assert_eq!((p.s.stored_files().len(), p.used_bytes().await), (1, bytes.len() as i64));
}

/// Otherwise, the new asset would have no bytes, and nobody could repair the old one.
async fn a_missing_video_is_stored_again(p: TestLibrary) {
    let bytes = of(5_000);
    let first = p.ingest_video(&p.owner(), &bytes).await.unwrap();
    let first = p.create_video(&first).await;
    p.library.storage().delete(&first.key).await.unwrap();
    let second = p.ingest_video(&p.owner(), &bytes).await.unwrap();
    let second = p.create_video(&second).await;
    assert_eq!(first.key, second.key);
    assert!(p.library.storage().read(&first.key).await.unwrap().unwrap() == bytes);
    assert_eq!((p.rows().await, p.used_bytes().await), (1, bytes.len() as i64));
}

async fn a_video_over_the_quota_is_not_stored(p: TestLibrary) {
    let bytes = of(5_000);
    let owner = Owner { cap: Some(bytes.len() as u64 - 1), ..p.owner() };
    let error = p.ingest_video(&owner, &bytes).await.unwrap_err();
    assert!(matches!(error, IngestError::Full), "{error}");
    assert_eq!((p.rows().await, p.s.stored_files().len(), p.used_bytes().await), (0, 0, 0));
    let owner = Owner { cap: Some(bytes.len() as u64), ..owner };
    p.ingest_video(&owner, &bytes).await.unwrap();
}

/// Two uploads of one video share a row. The one that created it has a cover, and has died before it wrote it.
async fn an_upload_without_a_cover_forgets_a_missing_one(p: TestLibrary) {
    let p = with_covers(p, "cover");
    let bytes: Bytes = mp4_ending_with(&images::jpeg(16, 9)).into();
    p.ingest_video(&p.owner(), &bytes).await.unwrap();
    let thumbnail = p.s.stored_files().into_iter().find(|name| name.contains("-thumb")).expect("a cover");
    let without = TestLibrary { library: p.s.library("http://crier.example"), ..p };
    without.ingest_video(&without.owner(), &bytes).await.unwrap();
    without.library.storage().delete(&thumbnail).await.unwrap();
    let ingested = without.ingest_video(&without.owner(), &bytes).await.unwrap();
    assert_eq!(without.create_video(&ingested).await.thumbnail_key, None);
    assert_eq!(without.s.stored_files().len(), 1);
}

async fn a_cover_is_taken_from_the_video(s: TestStore) {
    let p = with_covers(TestLibrary::over(s).await, "cover");
    let image = images::encoded(&images::pixels(24, 12, 3), ImageFormat::Jpeg);
    assert!(image.len() <= COVER_BYTES, "{}", image.len());
    let ingested = p.ingest_video(&p.owner(), &mp4_ending_with(&image).into()).await.unwrap();
    let asset = p.create_video(&ingested).await;
    let key = asset.thumbnail_key.expect("a cover");
    assert_eq!(media::kind_of(&key), Some(MediaType::Jpeg));
    let stored = p.library.storage().read(&key).await.unwrap().unwrap();
    let cover = image::load_from_memory(&stored).unwrap();
    assert_eq!((cover.width(), cover.height()), (24, 12));
    assert_eq!(p.s.stored_files().len(), 2);
}

async fn an_unusable_cover_is_omitted(s: TestStore) {
    let p = with_covers(TestLibrary::over(s).await, "cover");
    let mut script = images::jpeg(16, 9);
    script.extend_from_slice(b"<script>alert(1)</script>");
    for end in [&b"no image"[..], b"<svg>", &script] {
        let ingested = p.ingest_video(&p.owner(), &mp4_ending_with(end).into()).await.unwrap();
        assert_eq!(p.create_video(&ingested).await.thumbnail_key, None);
    }
    let p = with_covers(p, "missing");
    let ingested = p.ingest_video(&p.owner(), &mp4_ending_with(&images::jpeg(16, 9)).into()).await.unwrap();
    assert_eq!(p.create_video(&ingested).await.thumbnail_key, None);
}

async fn other_files_are_rejected(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let mut truncated = of(5_000).to_vec();
    truncated.truncate(500);
    for bytes in [Bytes::new(), Bytes::from_static(b"no video"), images::png(9, 9).into(), truncated.into()] {
        let error = p.ingest_video(&p.owner(), &bytes).await.unwrap_err();
        assert!(matches!(error, IngestError::Rejected(_)), "{error}");
    }
    let config = MediaConfig { max_video_bytes: 1 << 20, ..MediaConfig::default() };
    let library = Library::new(p.library.storage().clone(), &config, "http://crier.example");
    let spooled = received(&library, &p.owner(), &of(1 << 20)).await;
    let error = library.ingest_video(&p.s.store, &p.owner(), &spooled).await.unwrap_err();
    assert!(matches!(error, IngestError::Rejected(Rejection::TooLarge(_))), "{error}");
    assert_eq!((p.rows().await, p.s.stored_files().len()), (0, 0));
}

/// Each response is taken, and nothing of it is read.
async fn slow_clients_do_not_keep_others_from_an_index(s: TestStore) {
    const CLIENTS: usize = 20;
    let p = TestLibrary::over(s).await;
    let stored = mp4(VideoSpec { index_first: false, data: 200_000, ..VideoSpec::default() });
    let ingested = p.ingest_video(&p.owner(), &stored.clone().into()).await.unwrap();
    let key = p.create_video(&ingested).await.key;
    let whole = ByteRange::Between(0..stored.len() as u64);
    let mut open = Vec::new();
    for client in 0..CLIENTS {
        let found = tokio::time::timeout(Duration::from_secs(60), p.library.get_index_first(&key, &whole));
        let found = found.await.unwrap_or_else(|_| panic!("client {client} waits for the others")).unwrap();
        let ObjectLookup::Found(object) = found else { panic!("client {client} finds no file") };
        open.push(object.body);
    }
    for body in open {
        let received: Vec<Bytes> = body.try_collect().await.unwrap();
        let place = |kind: &[u8]| received.concat().windows(4).position(|window| window == kind).unwrap();
        assert!(received.concat().len() == stored.len() && place(b"moov") < place(b"mdat"));
    }
}

/// The client disconnects while its index waits for a core.
async fn an_index_that_nobody_awaits_holds_its_memory(s: TestStore) {
    let p = TestLibrary::over(s).await;
    let stored = mp4(VideoSpec { index_first: false, ..VideoSpec::default() });
    let ingested = p.ingest_video(&p.owner(), &stored.into()).await.unwrap();
    let key = p.create_video(&ingested).await.key;
    let (release, released) = mpsc::channel::<()>();
    let (released, (busy, mut started)) = (Arc::new(Mutex::new(released)), tokio::sync::mpsc::unbounded_channel());
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..cores {
        let (budget, released, busy) = (p.library.budget().clone(), released.clone(), busy.clone());
        let work = move || {
            busy.send(()).unwrap();
            assert!(released.lock().unwrap().recv().is_err());
        };
        tokio::spawn(async move { budget.run(work).await });
    }
    for _ in 0..cores {
        started.recv().await.unwrap();
    }
    let all_memory = || tokio::time::timeout(Duration::from_millis(10), p.library.budget().share(u64::MAX));
    let library = p.library.clone();
    let request = tokio::spawn(async move { library.get_index_first(&key, &ByteRange::Whole).await });
    while all_memory().await.is_ok() {
        tokio::task::yield_now().await;
    }
    request.abort();
    assert!(request.await.is_err_and(|error| error.is_cancelled()));
    assert!(all_memory().await.is_err(), "the work still waits, with its blocks");
    drop(release);
    let all_memory = tokio::time::timeout(Duration::from_secs(60), p.library.budget().share(u64::MAX));
    drop(all_memory.await.expect("the memory is released"));
}
