//! Writes large files in parts, so that only one part of them is in memory.

use std::io;

use bytes::Bytes;
use futures::{Stream, StreamExt};
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};

use super::StorageError;

/// The size of each part but the last. Buckets accept at least 5 MiB and at most 10,000 parts, and some require equal
/// sizes.
pub const PART_BYTES: usize = 8 << 20;

/// Writes a file from a stream. It exists only after it was written completely.
pub async fn put(
    files: &dyn ObjectStore,
    path: &Path,
    body: impl Stream<Item = io::Result<Bytes>> + Send + Unpin,
) -> Result<(), StorageError> {
    let mut parts = Parts { body, rest: Bytes::new() };
    let first = parts.next().await?;
    if first.content_length() < PART_BYTES {
        return files.put(path, first).await.map(drop).map_err(StorageError::of);
    }
    let mut upload = PartialUpload(Some(files.put_multipart(path).await.map_err(StorageError::of)?));
    let written = upload.write(first, &mut parts).await;
    match &written {
        Ok(()) => drop(upload.0.take()),
        Err(_) => upload.abort().await,
    }
    written
}

/// The parts of a stream.
struct Parts<S> {
    body: S,
    /// The received bytes that are not in a part yet.
    rest: Bytes,
}

impl<S: Stream<Item = io::Result<Bytes>> + Unpin> Parts<S> {
    /// Returns the next part. It is smaller than [`PART_BYTES`] only at the end of the stream, and empty after it.
    async fn next(&mut self) -> Result<PutPayload, StorageError> {
        let (mut part, mut missing) = (Vec::new(), PART_BYTES);
        while missing > 0 {
            if self.rest.is_empty() {
                match self.body.next().await {
                    Some(chunk) => self.rest = chunk.map_err(StorageError::of_disk)?,
                    None => break,
                }
            }
            let chunk = self.rest.split_to(self.rest.len().min(missing));
            missing -= chunk.len();
            if !chunk.is_empty() {
                part.push(chunk);
            }
        }
        Ok(part.into_iter().collect())
    }
}

/// An upload that is aborted unless it was completed, so that no parts remain: a bucket keeps them, and charges for
/// them.
struct PartialUpload(Option<Box<dyn MultipartUpload>>);

impl PartialUpload {
    async fn write<S>(&mut self, first: PutPayload, parts: &mut Parts<S>) -> Result<(), StorageError>
    where
        S: Stream<Item = io::Result<Bytes>> + Unpin,
    {
        let Some(upload) = &mut self.0 else { return Ok(()) };
        let mut part = first;
        while part.content_length() > 0 {
            upload.put_part(part).await.map_err(StorageError::of)?;
            part = parts.next().await?;
        }
        upload.complete().await.map(drop).map_err(StorageError::of)
    }

    async fn abort(&mut self) {
        if let Some(upload) = self.0.take() {
            abort(upload).await;
        }
    }
}

impl Drop for PartialUpload {
    fn drop(&mut self) {
        if let Some(upload) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(abort(upload));
        }
    }
}

async fn abort(mut upload: Box<dyn MultipartUpload>) {
    if let Err(error) = upload.abort().await {
        let error = StorageError::of(error);
        tracing::warn!(%error, "failed to delete the parts of an incomplete file from the storage");
    }
}
