//! The file storage: a directory, or an S3-compatible bucket. Only this module uses `object_store`.
//!
//! A file is written atomically, is durable when [`Storage::put`] or [`Storage::put_stream`] returns, and never changes. [`crate::Library`]
//! creates the names, so none can escape the directory. Failed requests to a bucket are retried only a few times, so
//! that no client has to wait long.

use std::io;
use std::ops::Range;
use std::path::Path as FsPath;
use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use crier_config as config;
use crier_telemetry::metrics::{self, StorageCall};
use futures::stream::BoxStream;
use futures::{Stream, StreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore, ObjectStoreExt};

mod bucket;
mod directory;
mod error;
pub mod marker;
mod parts;

pub use error::StorageError;
pub use parts::PART_BYTES;

/// The top-level directory, or prefix, of all files.
const TOP: &str = "media";
/// The maximum offset, which is larger than any file and accepted by buckets.
const MAX_OFFSET: u64 = 1 << 62;

/// A file, or a part of it, as a stream.
pub struct StoredObject {
    /// The size of the whole file.
    pub size: u64,
    /// The range of the returned bytes.
    pub range: Range<u64>,
    pub body: BoxStream<'static, Result<Bytes, StorageError>>,
}

/// The requested part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ByteRange {
    Whole,
    /// Limited to the file's size.
    Between(Range<u64>),
    From(u64),
    Last(u64),
}

/// The result of a lookup.
pub enum ObjectLookup {
    Found(StoredObject),
    /// The file does not exist.
    Missing,
    /// The file exists, but does not contain the requested part.
    OutOfRange {
        size: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Storage {
    files: Arc<dyn ObjectStore>,
    /// The directory, if the storage is one.
    root: Option<Arc<FsPath>>,
}

impl Storage {
    /// Opens the configured storage. A directory is created if it is missing, and must be writable. A bucket is not
    /// contacted yet, so it need not be available.
    pub fn open(config: &config::StorageConfig) -> Result<Self, StorageError> {
        match config {
            config::StorageConfig::Directory(dir) => {
                Ok(Self { files: Arc::new(directory::open(dir)?), root: Some(dir.as_path().into()) })
            }
            config::StorageConfig::S3(s3) => Ok(Self { files: bucket::open(s3)?, root: None }),
        }
    }

    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StorageError> {
        let put = match self.check_root().await {
            // Never write to an empty mount point: mounting the disk would hide the file.
            Err(error) => Err(error),
            Ok(()) => self.files.put(&path(key), bytes.into()).await.map(drop).map_err(StorageError::of),
        };
        counted(StorageCall::Put, put)
    }

    /// Writes a file from a stream, as atomically and durably as [`Storage::put`]. At most [`PART_BYTES`] and a chunk of
    /// the stream are in memory. If the stream or the storage fails, or the caller stops waiting, nothing of the file
    /// remains.
    pub async fn put_stream(
        &self,
        key: &str,
        body: impl Stream<Item = io::Result<Bytes>> + Send,
    ) -> Result<(), StorageError> {
        let body = pin!(body);
        let put = match self.check_root().await {
            Err(error) => Err(error),
            Ok(()) => parts::put(&*self.files, &path(key), body).await,
        };
        counted(StorageCall::Put, put)
    }

    /// Streams a file or a part of it. Only one chunk at a time is in memory.
    pub async fn get(&self, key: &str, part: &ByteRange) -> Result<ObjectLookup, StorageError> {
        let range = match part {
            ByteRange::Whole => None,
            ByteRange::Between(range) => {
                Some(GetRange::Bounded(range.start.min(MAX_OFFSET)..range.end.min(MAX_OFFSET)))
            }
            ByteRange::From(first) => Some(GetRange::Offset(*first.min(&MAX_OFFSET))),
            // The library treats a suffix of length 0 as a valid range.
            ByteRange::Last(0) => {
                return Ok(self
                    .size(key)
                    .await?
                    .map_or(ObjectLookup::Missing, |size| ObjectLookup::OutOfRange { size }));
            }
            ByteRange::Last(count) => Some(GetRange::Suffix(*count.min(&MAX_OFFSET))),
        };
        let ranged = range.is_some();
        match self.files.get_opts(&path(key), GetOptions { range, ..GetOptions::default() }).await {
            Ok(result) => {
                metrics::storage_call(StorageCall::Get, true);
                let (size, range) = (result.meta.size, result.range.clone());
                let body = match result.payload {
                    GetResultPayload::File(file, _) => directory::read(file, range.clone()),
                    GetResultPayload::Stream(body) => body.map(|chunk| chunk.map_err(StorageError::of)).boxed(),
                };
                Ok(ObjectLookup::Found(StoredObject { size, range, body }))
            }
            Err(error) if error::is_missing(&error) => self.missing_or_error(ObjectLookup::Missing).await,
            Err(error) if ranged => match self.size(key).await? {
                None => Ok(ObjectLookup::Missing),
                Some(size) if !part.fits(size) => Ok(ObjectLookup::OutOfRange { size }),
                Some(_) => counted(StorageCall::Get, Err(StorageError::of(error))),
            },
            Err(error) => counted(StorageCall::Get, Err(StorageError::of(error))),
        }
    }

    /// Reads the whole file; `None` if it does not exist.
    pub async fn read(&self, key: &str) -> Result<Option<Bytes>, StorageError> {
        match self.files.get(&path(key)).await {
            Ok(found) => counted(StorageCall::Get, found.bytes().await.map_err(StorageError::of)).map(Some),
            Err(error) if error::is_missing(&error) => self.missing_or_error(None).await,
            Err(error) => counted(StorageCall::Get, Err(StorageError::of(error))),
        }
    }

    /// Returns the size of a file; `None` if it does not exist.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StorageError> {
        match self.files.head(&path(key)).await {
            Err(error) if error::is_missing(&error) => self.missing_or_error(None).await,
            found => counted(StorageCall::Get, found.map_err(StorageError::of)).map(|meta| Some(meta.size)),
        }
    }

    /// Returns `nothing` for a missing file, or an error if the directory of the storage is missing.
    async fn missing_or_error<T>(&self, nothing: T) -> Result<T, StorageError> {
        match self.check_root().await {
            Ok(()) => Ok(nothing),
            Err(error) => counted(StorageCall::Get, Err(error)),
        }
    }

    /// Checks that the directory of the storage exists. A missing bucket is reported by its responses.
    async fn check_root(&self) -> Result<(), StorageError> {
        match &self.root {
            Some(root) => directory::check(root.clone()).await.map_err(StorageError::of_disk),
            None => Ok(()),
        }
    }

    /// Deletes a file, and partial writes of it by processes that crashed. A missing file is not an error. After `Ok`,
    /// nothing is left, even after a power failure; callers rely on that.
    pub async fn delete(&self, key: &str) -> Result<(), StorageError> {
        let deleted = match &self.root {
            Some(root) => directory::delete(root.clone(), key.to_owned()).await.map_err(StorageError::of_disk),
            None => match self.files.delete(&path(key)).await {
                Err(error) if error::is_missing(&error) => Ok(()),
                deleted => deleted.map_err(StorageError::of),
            },
        };
        counted(StorageCall::Delete, deleted)
    }
}

impl ByteRange {
    /// Returns the range in a file of this size. `None` if the file does not contain the requested part.
    pub(super) fn within(&self, size: u64) -> Option<Range<u64>> {
        let range = match self {
            Self::Whole => 0..size,
            Self::Between(range) => range.start..range.end.min(size),
            Self::From(first) => *first..size,
            Self::Last(count) => size.saturating_sub(*count)..size,
        };
        self.fits(size).then_some(range)
    }

    fn fits(&self, size: u64) -> bool {
        match self {
            Self::Whole => true,
            Self::Between(range) => range.start < size && range.start < range.end,
            Self::From(first) => *first < size,
            Self::Last(count) => *count > 0 && size > 0,
        }
    }
}

fn counted<T>(call: StorageCall, result: Result<T, StorageError>) -> Result<T, StorageError> {
    metrics::storage_call(call, result.is_ok());
    result
}

/// Returns the path of a file. Files are in folders by the first two letters of their names, because directories with a
/// million entries are slow.
fn path(key: &str) -> Path {
    Path::from_iter([TOP, folder(key), key])
}

fn folder(key: &str) -> &str {
    key.get(..2).unwrap_or("_")
}

#[cfg(test)]
mod tests;
