//! Where files are: a directory, or a bucket of S3's kind. The only place that knows `object_store`.
//!
//! A file is written whole or not at all, is on the disk when [`Storage::put`] returns, and never changes. Names are ours
//! ([`crate::media::Library`] makes them), so none can lead out of the directory. What a bucket does not answer is asked
//! again a few times; then whoever asked is told, and nobody holds a connection open for it.

use std::ops::Range;
use std::path::Path as FsPath;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{GetOptions, GetRange, GetResultPayload, ObjectStore, ObjectStoreExt};

use crate::config;
use crate::telemetry::metrics::{self, StorageCall};

mod bucket;
mod directory;
mod error;

pub use error::StorageError;

/// The directory, or the first part of the name, that everything is in.
const TOP: &str = "media";
/// More than any file has, and no more than a bucket can count to.
const MOST: u64 = 1 << 62;

/// A part of a file, on its way.
pub struct Found {
    /// Of the whole file.
    pub size: u64,
    /// Which of its bytes these are.
    pub range: Range<u64>,
    pub body: BoxStream<'static, Result<Bytes, StorageError>>,
}

/// What is asked of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    Whole,
    /// Both ends within the file, or cut to it.
    Between(Range<u64>),
    From(u64),
    Last(u64),
}

/// What a look for a file found.
pub enum Looked {
    Found(Found),
    /// There is no such file.
    Missing,
    /// There is, but it has no such part.
    OutOfRange {
        size: u64,
    },
}

#[derive(Clone, Debug)]
pub struct Storage {
    files: Arc<dyn ObjectStore>,
    /// Where the files are in a directory.
    root: Option<Arc<FsPath>>,
}

impl Storage {
    /// The storage of a configuration. A directory is made where it is missing, and must take files; a bucket is not asked
    /// for anything yet, so that it may come later than we do.
    pub fn open(config: &config::Storage) -> Result<Self, StorageError> {
        match config {
            config::Storage::Directory(dir) => {
                Ok(Self { files: Arc::new(directory::open(dir)?), root: Some(dir.as_path().into()) })
            }
            config::Storage::S3(s3) => Ok(Self { files: bucket::open(s3)?, root: None }),
        }
    }

    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StorageError> {
        let put = match self.is_there().await {
            // Into the place where a disk is to be mounted nothing is written: it would be hidden behind the disk.
            Err(error) => Err(error),
            Ok(()) => self.files.put(&path(key), bytes.into()).await.map(drop).map_err(StorageError::of),
        };
        counted(StorageCall::Put, put)
    }

    /// A file, or a part of it, piece by piece: no more of it is in memory than the reader takes at once.
    pub async fn get(&self, key: &str, part: &Part) -> Result<Looked, StorageError> {
        let range = match part {
            Part::Whole => None,
            Part::Between(range) => Some(GetRange::Bounded(range.start.min(MOST)..range.end.min(MOST))),
            Part::From(first) => Some(GetRange::Offset(*first.min(&MOST))),
            // The libraries take the last none of a file for a part of it.
            Part::Last(0) => {
                return Ok(self.size(key).await?.map_or(Looked::Missing, |size| Looked::OutOfRange { size }));
            }
            Part::Last(count) => Some(GetRange::Suffix(*count.min(&MOST))),
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
                Ok(Looked::Found(Found { size, range, body }))
            }
            Err(error) if error::is_missing(&error) => self.none(Looked::Missing).await,
            Err(error) if ranged => match self.size(key).await? {
                None => Ok(Looked::Missing),
                Some(size) if !part.fits(size) => Ok(Looked::OutOfRange { size }),
                Some(_) => counted(StorageCall::Get, Err(StorageError::of(error))),
            },
            Err(error) => counted(StorageCall::Get, Err(StorageError::of(error))),
        }
    }

    /// The whole file; `None` where there is none.
    pub async fn read(&self, key: &str) -> Result<Option<Bytes>, StorageError> {
        match self.files.get(&path(key)).await {
            Ok(found) => counted(StorageCall::Get, found.bytes().await.map_err(StorageError::of)).map(Some),
            Err(error) if error::is_missing(&error) => self.none(None).await,
            Err(error) => counted(StorageCall::Get, Err(StorageError::of(error))),
        }
    }

    /// How large a file is; `None` where there is none.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StorageError> {
        match self.files.head(&path(key)).await {
            Err(error) if error::is_missing(&error) => self.none(None).await,
            found => counted(StorageCall::Get, found.map_err(StorageError::of)).map(|meta| Some(meta.size)),
        }
    }

    /// What a look that found no file gives: nothing, or an error where nothing at all can be found.
    async fn none<T>(&self, nothing: T) -> Result<T, StorageError> {
        match self.is_there().await {
            Ok(()) => Ok(nothing),
            Err(error) => counted(StorageCall::Get, Err(error)),
        }
    }

    /// Whether the directory is there; a bucket says so itself.
    async fn is_there(&self) -> Result<(), StorageError> {
        match &self.root {
            Some(root) => directory::check(root.clone()).await.map_err(StorageError::of_disk),
            None => Ok(()),
        }
    }

    /// Takes a file away, with what a process that died left of it half written; one that is not there is as good. The
    /// caller relies on it: after `Ok` nothing is left, through a power cut too.
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

impl Part {
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

/// In folders by the first two letters: directories of a million files are slow.
fn path(key: &str) -> Path {
    Path::from_iter([TOP, folder(key), key])
}

fn folder(key: &str) -> &str {
    key.get(..2).unwrap_or("_")
}

#[cfg(test)]
mod tests;
