//! Properties of every storage backend.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use crier_config as config;
use crier_media::Storage;
use crier_media::storage::{ByteRange, ObjectLookup, PART_BYTES};
use futures::{StreamExt, TryStreamExt, stream};
use tempfile::TempDir;

use crate::support::client::until_true;
use crate::support::s3::{KEY_ID, S3Server, SECRET};

const KEY: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMN.png";

/// A storage and its backend.
struct TestStorage {
    storage: Storage,
    bucket: Option<S3Server>,
    dir: TempDir,
}

impl TestStorage {
    fn directory() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::open(&config::StorageConfig::Directory(dir.path().join("made"))).unwrap();
        Self { storage, bucket: None, dir }
    }

    async fn s3() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bucket = S3Server::start(dir.path()).await;
        Self { storage: Storage::open(&bucket.storage()).unwrap(), bucket: Some(bucket), dir }
    }
}

/// Creates two tests from each function: one on a directory, and one on a bucket.
macro_rules! on_each {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            #[tokio::test]
            async fn directory() {
                super::$name(super::TestStorage::directory()).await;
            }

            #[tokio::test]
            async fn s3() {
                super::$name(super::TestStorage::s3().await).await;
            }
        }
    )+};
}

on_each!(
    stored_files_are_read_whole_and_in_ranges,
    an_absent_file_is_missing,
    deletion_is_idempotent,
    concurrent_puts_store_a_complete_file,
    streamed_files_are_stored_at_any_size,
    a_failed_or_abandoned_stream_leaves_nothing,
);

fn bytes(size: usize) -> Bytes {
    (0..size).map(|i| (i * 31 % 251) as u8).collect()
}

async fn read_range(storage: &Storage, part: &ByteRange) -> Option<(u64, std::ops::Range<u64>, Vec<u8>)> {
    match storage.get(KEY, part).await.unwrap() {
        ObjectLookup::Found(found) => {
            let chunks: Vec<Bytes> = found.body.try_collect().await.unwrap();
            Some((found.size, found.range, chunks.concat()))
        }
        ObjectLookup::Missing => None,
        ObjectLookup::OutOfRange { size } => Some((size, 0..0, Vec::new())),
    }
}

async fn stored_files_are_read_whole_and_in_ranges(backend: TestStorage) {
    let (storage, size, all) = (&backend.storage, 200_000_u64, bytes(200_000));
    storage.put(KEY, all.clone()).await.unwrap();
    assert_eq!(storage.size(KEY).await.unwrap(), Some(size));
    assert_eq!(storage.read(KEY).await.unwrap().unwrap(), all);
    for (part, range) in [
        (ByteRange::Whole, 0..size),
        (ByteRange::Between(0..1), 0..1),
        (ByteRange::Between(65_530..131_080), 65_530..131_080),
        (ByteRange::Between(199_999..u64::MAX), 199_999..size),
        (ByteRange::From(0), 0..size),
        (ByteRange::From(199_999), 199_999..size),
        (ByteRange::Last(5), 199_995..size),
    ] {
        let expected = (size, range.clone(), all.slice(range.start as usize..range.end as usize).to_vec());
        assert!(read_range(storage, &part).await == Some(expected), "{part:?}");
    }
    for part in
        [ByteRange::Between(size..size + 1), ByteRange::From(size), ByteRange::From(u64::MAX), ByteRange::Last(0)]
    {
        assert_eq!(read_range(storage, &part).await, Some((size, 0..0, Vec::new())), "{part:?}");
    }
}

async fn an_absent_file_is_missing(TestStorage { storage, bucket: _bucket, dir: _dir }: TestStorage) {
    for part in [ByteRange::Whole, ByteRange::Between(0..1), ByteRange::From(7), ByteRange::Last(0), ByteRange::Last(5)]
    {
        assert_eq!(read_range(&storage, &part).await, None, "{part:?}");
    }
    assert_eq!(storage.size(KEY).await.unwrap(), None);
    assert_eq!(storage.read(KEY).await.unwrap(), None);
}

async fn deletion_is_idempotent(TestStorage { storage, bucket: _bucket, dir: _dir }: TestStorage) {
    storage.delete(KEY).await.unwrap();
    storage.put(KEY, bytes(10)).await.unwrap();
    for _ in 0..2 {
        storage.delete(KEY).await.unwrap();
        assert_eq!(storage.read(KEY).await.unwrap(), None);
    }
}

async fn concurrent_puts_store_a_complete_file(TestStorage { storage, bucket: _bucket, dir: _dir }: TestStorage) {
    let all = bytes(300_000);
    let puts = (0..8).map(|_| storage.put(KEY, all.clone()));
    futures::future::try_join_all(puts).await.unwrap();
    assert!(storage.read(KEY).await.unwrap().unwrap() == all);
}

async fn streamed_files_are_stored_at_any_size(TestStorage { storage, bucket: _bucket, dir: _dir }: TestStorage) {
    for size in [0, 1, PART_BYTES - 1, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 5] {
        let all = bytes(size);
        let chunks: Vec<_> = all.chunks(1_000_003).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
        storage.put_stream(KEY, stream::iter(chunks)).await.unwrap();
        assert!(storage.read(KEY).await.unwrap().unwrap() == all, "{size}");
    }
}

/// Returns all files of the backend whose bytes are those of a part, or of a stored file.
fn large_files(dir: &Path) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.metadata() {
                Ok(entry) if entry.is_dir() => folders.push(path),
                Ok(entry) if entry.len() > 100_000 => found.push(path),
                // Deleted meanwhile, or metadata of the bucket.
                _ => {}
            }
        }
    }
    found
}

async fn a_failed_or_abandoned_stream_leaves_nothing(TestStorage { storage, bucket: _bucket, dir }: TestStorage) {
    let part = || Ok(bytes(PART_BYTES));
    let broken = stream::iter([part(), part(), Err(std::io::Error::other("the source is broken"))]);
    let error = storage.put_stream(KEY, broken).await.unwrap_err().to_string();
    assert!(error.contains("the source is broken"), "{error}");
    assert_eq!((storage.read(KEY).await.unwrap(), large_files(dir.path())), (None, Vec::new()));
    // The third part never arrives, and the caller stops waiting.
    let (waits, is_waiting) = tokio::sync::oneshot::channel();
    let third = stream::once(async move {
        waits.send(()).unwrap();
        std::future::pending().await
    });
    tokio::select! {
        ended = storage.put_stream(KEY, stream::iter([part(), part()]).chain(third)) => panic!("{ended:?}"),
        waiting = is_waiting => waiting.unwrap(),
    }
    until_true("the parts are deleted", || large_files(dir.path()).is_empty()).await;
    assert_eq!(storage.read(KEY).await.unwrap(), None);
}

#[tokio::test]
async fn deleting_a_file_deletes_its_partial_writes() {
    let backend = TestStorage::directory();
    backend.storage.put(KEY, bytes(10)).await.unwrap();
    let folder = backend.dir.path().join("made/media/ab");
    for left in ["#1", "#2", "#17"] {
        std::fs::write(folder.join(format!("{KEY}{left}")), b"half").unwrap();
    }
    let other = folder.join(KEY.replace(".png", "-thumb.png"));
    std::fs::write(&other, b"another's").unwrap();
    backend.storage.delete(KEY).await.unwrap();
    let left: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    assert_eq!(left, [other]);
}

#[tokio::test]
async fn deletion_fails_while_the_disk_is_not_mounted() {
    let backend = TestStorage::directory();
    backend.storage.put(KEY, bytes(10)).await.unwrap();
    let (root, moved) = (backend.dir.path().join("made"), backend.dir.path().join("away"));
    std::fs::rename(&root, &moved).unwrap();
    for _ in 0..2 {
        let error = backend.storage.delete(KEY).await.unwrap_err().to_string();
        assert!(error.contains("check that its disk is mounted"), "{error}");
        // The next deletion finds an empty directory, as with a disk that is not mounted.
        let _ = std::fs::create_dir(&root);
    }
    std::fs::remove_dir(&root).unwrap();
    std::fs::rename(&moved, &root).unwrap();
    backend.storage.delete(KEY).await.unwrap();
}

#[tokio::test]
async fn wrong_credentials_are_reported_by_variable_name() {
    let backend = TestStorage::s3().await;
    let mut config = backend.bucket.as_ref().unwrap().config();
    config.secret_access_key = "another-secret".to_owned().into();
    let storage = Storage::open(&config::StorageConfig::S3(config)).unwrap();
    for error in [
        storage.put(KEY, bytes(10)).await.unwrap_err().to_string(),
        storage.get(KEY, &ByteRange::Whole).await.err().unwrap().to_string(),
        storage.delete(KEY).await.unwrap_err().to_string(),
    ] {
        assert!(error.contains("AWS_SECRET_ACCESS_KEY") && error.contains("SignatureDoesNotMatch"), "{error}");
        assert!(![KEY_ID, SECRET, "another-secret", "Signature="].iter().any(|s| error.contains(s)), "{error}");
    }
}

#[tokio::test]
async fn an_unreachable_bucket_does_not_prevent_startup() {
    let backend = TestStorage::s3().await;
    let bucket = backend.bucket.as_ref().unwrap();
    bucket.set_unavailable(true);
    let storage = Storage::open(&bucket.storage()).unwrap();
    let error = storage.put(KEY, bytes(10)).await.unwrap_err().to_string();
    assert!(error.contains("127.0.0.1") && !error.contains(KEY_ID), "{error}");
    assert!(storage.get(KEY, &ByteRange::Whole).await.is_err() && storage.delete(KEY).await.is_err());
    bucket.set_unavailable(false);
    storage.put(KEY, bytes(10)).await.unwrap();
    assert_eq!(storage.read(KEY).await.unwrap().unwrap(), bytes(10));
}

#[tokio::test]
async fn an_unwritable_directory_is_rejected_at_startup() {
    // No user can create files there, whatever their permissions.
    let error = Storage::open(&config::StorageConfig::Directory("/proc/self".into())).unwrap_err().to_string();
    assert!(error.contains("cannot store files in /proc/self"), "{error}");
}
