//! Where files are: a directory, or a bucket of S3's kind. The only place that knows `object_store`.
//!
//! A file is written whole or not at all, is on the disk when [`Storage::put`] returns, and never changes. Names are ours
//! ([`crate::media::Library`] makes them), so none can lead out of the directory.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::aws::AmazonS3Builder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, GetOptions, GetRange, ObjectStore, ObjectStoreExt, RetryConfig};
use secrecy::ExposeSecret;

use crate::config;
use crate::telemetry::metrics::{self, StorageCall};

/// How long one request to a bucket may take, and how long it is tried again.
const REQUEST: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(5);
const TRIES: usize = 3;
const TRY_FOR: Duration = Duration::from_secs(20);

/// The storage cannot be reached, is full, or refuses us.
#[derive(Debug, thiserror::Error)]
#[error("the storage of files: {0}")]
pub struct StorageError(String);

impl StorageError {
    fn of(error: impl std::fmt::Display) -> Self {
        Self(error.to_string())
    }
}

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
pub struct Storage(Arc<dyn ObjectStore>);

impl Storage {
    /// The storage of a configuration. A directory is made where it is missing; a bucket is not asked for anything yet.
    pub fn open(config: &config::Storage) -> Result<Self, StorageError> {
        match config {
            config::Storage::Directory(dir) => {
                std::fs::create_dir_all(dir).map_err(|e| StorageError(format!("{}: {e}", dir.display())))?;
                let files = LocalFileSystem::new_with_prefix(dir).map_err(StorageError::of)?;
                Ok(Self(Arc::new(files.with_fsync(true).with_automatic_cleanup(true))))
            }
            config::Storage::S3(s3) => bucket(s3),
        }
    }

    pub async fn put(&self, key: &str, bytes: Bytes) -> Result<(), StorageError> {
        let put = self.0.put(&path(key), bytes.into()).await;
        counted(StorageCall::Put, put.map(drop))
    }

    pub async fn get(&self, key: &str, part: &Part) -> Result<Looked, StorageError> {
        let range = match part {
            Part::Whole => None,
            Part::Between(range) => Some(GetRange::Bounded(range.clone())),
            Part::From(first) => Some(GetRange::Offset(*first)),
            Part::Last(count) => Some(GetRange::Suffix(*count)),
        };
        let ranged = range.is_some();
        match self.0.get_opts(&path(key), GetOptions { range, ..GetOptions::default() }).await {
            Ok(result) => {
                metrics::storage_call(StorageCall::Get, true);
                let (size, range) = (result.meta.size, result.range.clone());
                let body = result.into_stream().map(|chunk| chunk.map_err(StorageError::of)).boxed();
                Ok(Looked::Found(Found { size, range, body }))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(Looked::Missing),
            Err(error) if ranged => match self.size(key).await? {
                None => Ok(Looked::Missing),
                Some(size) if !part.fits(size) => Ok(Looked::OutOfRange { size }),
                Some(_) => counted(StorageCall::Get, Err(error)),
            },
            Err(error) => counted(StorageCall::Get, Err(error)),
        }
    }

    /// The whole file; `None` where there is none.
    pub async fn read(&self, key: &str) -> Result<Option<Bytes>, StorageError> {
        match self.0.get(&path(key)).await {
            Ok(found) => counted(StorageCall::Get, found.bytes().await).map(Some),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => counted(StorageCall::Get, Err(error)),
        }
    }

    /// How large a file is; `None` where there is none.
    pub async fn size(&self, key: &str) -> Result<Option<u64>, StorageError> {
        match self.0.head(&path(key)).await {
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            found => counted(StorageCall::Get, found).map(|meta| Some(meta.size)),
        }
    }

    /// Takes a file away; one that is not there is as good.
    pub async fn delete(&self, key: &str) -> Result<(), StorageError> {
        match self.0.delete(&path(key)).await {
            Err(object_store::Error::NotFound { .. }) => counted(StorageCall::Delete, Ok(())),
            deleted => counted(StorageCall::Delete, deleted),
        }
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

fn counted<T>(call: StorageCall, result: Result<T, object_store::Error>) -> Result<T, StorageError> {
    metrics::storage_call(call, result.is_ok());
    result.map_err(StorageError::of)
}

/// In folders by the first two letters: directories of a million files are slow.
fn path(key: &str) -> Path {
    let folder = key.get(..2).unwrap_or("_");
    Path::from_iter(["media", folder, key])
}

fn bucket(s3: &config::S3Config) -> Result<Storage, StorageError> {
    crate::http::install_tls();
    let retry = RetryConfig { max_retries: TRIES, retry_timeout: TRY_FOR, ..RetryConfig::default() };
    let options =
        ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(CONNECT).with_allow_http(s3.endpoint.is_some());
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(&s3.bucket)
        .with_region(&s3.region)
        .with_access_key_id(&s3.access_key_id)
        .with_secret_access_key(s3.secret_access_key.expose_secret())
        .with_retry(retry)
        .with_client_options(options);
    if let Some(token) = &s3.session_token {
        builder = builder.with_token(token.expose_secret());
    }
    // In the path by default; in the host's name with Amazon itself.
    builder = match &s3.endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder.with_virtual_hosted_style_request(true),
    };
    let bucket = builder.build().map_err(StorageError::of)?;
    Ok(Storage(match s3.prefix.as_str() {
        "" => Arc::new(bucket),
        prefix => Arc::new(PrefixStore::new(bucket, prefix)),
    }))
}
