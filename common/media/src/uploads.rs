//! Resumable uploads: receives the bytes of a video in several requests, through any process.
//!
//! The bytes are stored in pieces. Only the piece that is being received is in memory. When a request ends, even early,
//! everything that it received is stored; if the process dies, at most one piece is lost. After the last piece, the whole
//! file is copied to a spool, checked and stored like every video. It uses the storage that the upload has reserved. If
//! it is rejected, the upload ends and keeps the reason. The transaction that creates the asset also ends the upload, so
//! there is exactly one asset. Until then, the upload has all bytes and no asset. If the process dies or the storage
//! fails in this state, the scheduler continues ([`Library::finish_next_upload`]): the client may know that all bytes
//! were received, and never send another request.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use crier_domain::media::UploadErrorCode;
use crier_store::media_uploads::{self, Upload};
use crier_store::{Store, StoreError};
use futures::StreamExt;
use tokio::sync::mpsc;

use super::storage::{ByteRange, ObjectLookup};
use super::{
    AssetDetails, IngestError, IngestedFile, Library, NAME, Owner, Rejection, SpoolError, Spooled, StorageError,
    UploadLease, create_asset, filename, random_name,
};

/// The size of a piece, in bytes.
pub const PIECE: usize = 2 << 20;
/// The maximum number of pieces of an upload that are shorter than that, because the request ended.
const MAX_SHORT_PIECES: i64 = 4_096;
/// The extension of a piece. It is not that of a type, so a piece is never served.
const EXTENSION: &str = "piece";
/// The number of random characters that identify a request that writes.
const WRITER: usize = 20;
/// How often the lease is extended while the whole file is processed. Shorter than [`media_uploads::LEASE`].
const RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// Why bytes were not added to an upload.
#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the upload does not exist, or has expired")]
    Missing,
    /// The upload has received this number of bytes.
    #[error("the upload has {0} bytes")]
    WrongOffset(i64),
    #[error("another request is writing to the upload")]
    Locked,
    #[error("the request has more bytes than the rest of the upload")]
    TooLong,
    #[error("the upload has too many short pieces")]
    TooManyPieces,
    /// Bytes that were received are no longer in the storage.
    #[error("a piece of the upload is missing")]
    Damaged,
    #[error(transparent)]
    Spool(#[from] SpoolError),
    #[error(transparent)]
    Ingest(#[from] IngestError),
}

impl From<StoreError> for UploadError {
    fn from(error: StoreError) -> Self {
        Self::Ingest(error.into())
    }
}

impl From<StorageError> for UploadError {
    fn from(error: StorageError) -> Self {
        Self::Ingest(error.into())
    }
}

/// Returns the error of a rejected upload; `None` for any other.
pub fn rejection(upload: &Upload) -> Option<UploadError> {
    let error = upload.error.clone().unwrap_or_default();
    let rejection = match upload.error_code? {
        UploadErrorCode::Unsupported => Rejection::Unsupported(error),
        UploadErrorCode::TooLarge => Rejection::TooLarge(error),
    };
    Some(IngestError::Rejected(rejection).into())
}

/// The progress of an upload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UploadProgress {
    /// The number of received bytes.
    pub offset: i64,
    /// The asset of a finished upload.
    pub media_id: Option<i64>,
}

/// The result of [`Library::finish_next_upload`].
#[derive(Debug)]
pub struct FinishedUpload {
    pub upload_id: i64,
    pub result: Result<UploadProgress, UploadError>,
}

/// A request that writes to an upload. No other one can until it ends.
#[derive(Debug)]
pub struct UploadWriter {
    library: Library,
    store: Store,
    owner: Owner,
    upload: Upload,
    /// The random name under which this request has its lease.
    writer: String,
    /// The received bytes that are in no piece yet.
    pending: Vec<u8>,
}

impl Library {
    /// Lets a request write to an open upload that has received exactly `offset` bytes.
    pub async fn write_upload(
        &self,
        store: &Store,
        owner: Owner,
        upload_id: i64,
        offset: i64,
    ) -> Result<UploadWriter, UploadError> {
        self.check_disk()?;
        let writer = random_name(WRITER)?;
        let mut tx = store.begin().await?;
        let acquired = media_uploads::acquire(&mut tx, owner.brand_id, upload_id, offset, &writer).await?;
        let Some(upload) = acquired else {
            tx.rollback().await?;
            return Err(why_not_acquired(store, &owner, upload_id, offset).await?);
        };
        tx.commit().await?;
        Ok(UploadWriter { library: self.clone(), store: store.clone(), owner, upload, writer, pending: Vec::new() })
    }

    /// Creates the asset of an upload that has received all bytes, if no request is doing that: the first one after the
    /// ID `after`. `None` if there is no such upload.
    pub async fn finish_next_upload(&self, store: &Store, after: i64) -> Result<Option<FinishedUpload>, UploadError> {
        let writer = random_name(WRITER)?;
        let mut tx = store.begin().await?;
        let Some((workspace_id, brand_id, upload)) = media_uploads::acquire_received(&mut tx, after, &writer).await?
        else {
            tx.rollback().await?;
            return Ok(None);
        };
        tx.commit().await?;
        let (owner, upload_id) = (Owner { workspace_id, brand_id, cap: None }, upload.id);
        let mut writer =
            UploadWriter { library: self.clone(), store: store.clone(), owner, upload, writer, pending: Vec::new() };
        let result = writer.complete().await;
        writer.release().await;
        Ok(Some(FinishedUpload { upload_id, result }))
    }
}

/// Returns the reason why an upload cannot be written at this offset. It may have changed since, so the last reason
/// is the one that passes.
async fn why_not_acquired(
    store: &Store,
    owner: &Owner,
    upload_id: i64,
    offset: i64,
) -> Result<UploadError, UploadError> {
    let found = media_uploads::find(&mut store.read().await?, owner.brand_id, upload_id, store.now()).await?;
    let Some(upload) = found else { return Ok(UploadError::Missing) };
    Ok(match rejection(&upload) {
        Some(rejection) => rejection,
        None if upload.received != offset => UploadError::WrongOffset(upload.received),
        None => UploadError::Locked,
    })
}

impl UploadWriter {
    /// Returns the number of bytes that the upload has not received.
    pub fn missing(&self) -> u64 {
        let pending = i64::try_from(self.pending.len()).unwrap_or(i64::MAX);
        u64::try_from(self.upload.size_bytes - self.upload.received - pending).unwrap_or_default()
    }

    /// Receives bytes until the other end of the channel is dropped, and stores them. If these are the last ones of the
    /// file, creates its asset. Run this as a task, so that the bytes are stored even if the client disconnects.
    pub async fn receive(mut self, mut bytes: mpsc::Receiver<Bytes>) -> Result<UploadProgress, UploadError> {
        let received = async {
            while let Some(chunk) = bytes.recv().await {
                self.write(&chunk).await?;
            }
            self.finish().await
        };
        let received = received.await;
        self.release().await;
        received
    }

    async fn write(&mut self, mut bytes: &[u8]) -> Result<(), UploadError> {
        if bytes.len() as u64 > self.missing() {
            return Err(UploadError::TooLong);
        }
        while !bytes.is_empty() {
            if self.pending.len() >= PIECE {
                self.store_piece().await?;
            }
            // Without this, the buffer would grow to twice the size of a piece.
            let missing = usize::try_from(self.missing()).unwrap_or(usize::MAX).saturating_add(self.pending.len());
            self.pending.reserve_exact(missing.min(PIECE).saturating_sub(self.pending.len()));
            let (now, later) = bytes.split_at(bytes.len().min(PIECE.saturating_sub(self.pending.len())));
            self.pending.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    async fn finish(&mut self) -> Result<UploadProgress, UploadError> {
        if !self.pending.is_empty() {
            self.store_piece().await?;
        }
        if self.missing() == 0 {
            return self.complete().await;
        }
        Ok(UploadProgress { offset: self.upload.received, media_id: None })
    }

    /// Stores the pending bytes as the next piece.
    async fn store_piece(&mut self) -> Result<(), UploadError> {
        // The disk may have become full since the request began.
        self.library.check_disk()?;
        let piece_size = i64::try_from(PIECE).unwrap_or(i64::MAX);
        if i64::from(self.upload.pieces) >= self.upload.size_bytes / piece_size + MAX_SHORT_PIECES {
            return Err(UploadError::TooManyPieces);
        }
        let key = format!("{}.{EXTENSION}", random_name(NAME)?);
        let mut tx = self.store.begin().await?;
        let Some(piece_id) = media_uploads::add_piece(&mut tx, self.upload.id, &self.writer, &key).await? else {
            tx.rollback().await?;
            return Err(self.why_lost().await?);
        };
        tx.commit().await?;
        let bytes = Bytes::from(std::mem::take(&mut self.pending));
        let size = i64::try_from(bytes.len()).unwrap_or(i64::MAX);
        self.library.storage().put(&key, bytes).await?;
        let mut tx = self.store.begin().await?;
        if !media_uploads::count_piece(&mut tx, self.upload.id, &self.writer, piece_id, size).await? {
            tx.rollback().await?;
            return Err(self.why_lost().await?);
        }
        tx.commit().await?;
        self.upload.received += size;
        self.upload.pieces += 1;
        Ok(())
    }

    /// Returns the reason why this request no longer writes to the upload.
    async fn why_lost(&self) -> Result<UploadError, UploadError> {
        let mut conn = self.store.read().await?;
        let found = media_uploads::find(&mut conn, self.owner.brand_id, self.upload.id, self.store.now()).await?;
        let Some(upload) = found else { return Ok(UploadError::Missing) };
        Ok(rejection(&upload).unwrap_or(UploadError::Locked))
    }

    /// Creates the asset of a file whose bytes are all here.
    async fn complete(&mut self) -> Result<UploadProgress, UploadError> {
        let completed = tokio::select! {
            completed = self.create_asset() => completed,
            never = self.keep_lease() => match never {},
        };
        match &completed {
            Err(UploadError::Ingest(IngestError::Rejected(rejection))) => self.reject(rejection).await,
            Err(UploadError::Damaged) => self.discard().await,
            _ => {}
        }
        completed
    }

    async fn create_asset(&self) -> Result<UploadProgress, UploadError> {
        let spooled = self.assemble().await?;
        let lease = UploadLease { upload_id: self.upload.id, writer: &self.writer };
        let ingested = self.library.ingest_upload(&self.store, &self.owner, &spooled, lease).await?;
        drop(spooled);
        let created = self.insert_asset(&ingested).await;
        if created.is_err() {
            self.library.abandon_of_upload(&self.store, self.upload.id, &ingested).await;
        }
        Ok(UploadProgress { offset: self.upload.size_bytes, media_id: Some(created?) })
    }

    /// Copies the pieces to a spool.
    async fn assemble(&self) -> Result<Spooled, UploadError> {
        self.library.check_disk()?;
        let size = u64::try_from(self.upload.size_bytes).unwrap_or_default();
        let keys = media_uploads::piece_keys(&mut self.store.read().await?, self.upload.id).await?;
        let mut spool = self.library.video_spools().open(self.owner.workspace_id, size).await?;
        for key in keys {
            let ObjectLookup::Found(mut piece) = self.library.storage().get(&key, &ByteRange::Whole).await? else {
                return Err(UploadError::Damaged);
            };
            while let Some(chunk) = piece.body.next().await {
                spool.write(&chunk?).await?;
            }
        }
        if spool.size() != size {
            return Err(UploadError::Damaged);
        }
        Ok(spool.finish().await.map_err(SpoolError::from)?)
    }

    /// Creates the asset, and ends the upload, in one transaction. Returns the ID of the asset.
    async fn insert_asset(&self, ingested: &IngestedFile) -> Result<i64, UploadError> {
        let name = filename(Some(&self.upload.filename), ingested.kind);
        let details = AssetDetails {
            asset_type: self.upload.asset_type,
            filename: &name,
            alt_text: self.upload.alt_text.as_deref(),
            source_url: None,
        };
        let mut tx = self.store.begin().await?;
        // Locks the upload before its file.
        if !media_uploads::renew(&mut tx, self.upload.id, &self.writer).await? {
            tx.rollback().await?;
            return Err(self.why_lost().await?);
        }
        let Some(media_id) = create_asset(&mut tx, self.owner.brand_id, ingested, &details).await? else {
            tx.rollback().await?;
            let message = "a file was deleted before its asset was created".to_owned();
            return Err(IngestError::Machine(message).into());
        };
        if !media_uploads::complete(&mut tx, self.upload.id, &self.writer, media_id).await? {
            tx.rollback().await?;
            return Err(self.why_lost().await?);
        }
        tx.commit().await?;
        Ok(media_id)
    }

    /// Extends the lease until this is dropped. If that fails, the transaction that creates the asset notices it.
    async fn keep_lease(&self) -> Infallible {
        loop {
            tokio::time::sleep(RENEWAL_INTERVAL).await;
            let renewed = async {
                let mut tx = self.store.begin().await?;
                media_uploads::renew(&mut tx, self.upload.id, &self.writer).await?;
                tx.commit().await
            };
            if let Err(error) = renewed.await {
                tracing::warn!(%error, upload = self.upload.id, "failed to extend the lease of an upload");
            }
        }
    }

    /// Lets other requests write to the upload. If this fails, the lease expires.
    async fn release(&self) {
        let released = async {
            let mut tx = self.store.begin().await?;
            media_uploads::release(&mut tx, self.upload.id, &self.writer).await?;
            tx.commit().await
        };
        if let Err(error) = released.await {
            tracing::warn!(%error, upload = self.upload.id, "failed to release an upload; its lease will expire");
        }
    }

    /// Ends the upload, because sending it again would not help, and keeps the reason. If this fails, the scheduler
    /// checks the file again.
    async fn reject(&self, rejection: &Rejection) {
        let code = match rejection {
            Rejection::TooLarge(_) => UploadErrorCode::TooLarge,
            Rejection::Empty | Rejection::Unsupported(_) => UploadErrorCode::Unsupported,
        };
        let rejected = async {
            let mut tx = self.store.begin().await?;
            media_uploads::reject(&mut tx, self.upload.id, &self.writer, code, &rejection.to_string()).await?;
            tx.commit().await
        };
        if let Err(error) = rejected.await {
            tracing::warn!(%error, upload = self.upload.id, "failed to reject an upload; its file is checked again later");
        }
    }

    /// Deletes the upload, because its bytes are lost. If this fails, it expires.
    async fn discard(&self) {
        let discarded = async {
            let mut tx = self.store.begin().await?;
            media_uploads::discard(&mut tx, self.upload.id, &self.writer).await?;
            tx.commit().await
        };
        if let Err(error) = discarded.await {
            tracing::warn!(%error, upload = self.upload.id, "failed to delete a damaged upload; it will expire");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_never_served() {
        let key = format!("{}.{EXTENSION}", random_name(NAME).unwrap());
        assert_eq!(crate::kind_of(&key), None, "{key}");
    }
}
