//! Files that Crier creates, such as reports. They are stored like images, with a row before their bytes and within the
//! workspace's quota, but are never served at `/media/` and never shared by two owners.

use bytes::Bytes;
use crier_store::files::{self, NewFile};
use crier_store::{Store, Tx};
use sha2::{Digest, Sha256};

use super::{IngestError, Library, NAME, Owner, random_name};

/// A file to store.
#[derive(Clone, Debug)]
pub struct PlainFile {
    /// The extension of its name in the storage.
    pub extension: &'static str,
    pub media_type: &'static str,
    pub bytes: Bytes,
}

impl Library {
    /// Writes a file to the storage and returns the id of its row. Confirm it with `files::mark_stored`. If something
    /// fails before that, call [`Library::abandon_file`]; otherwise the sweep deletes the file.
    pub async fn store_file(&self, store: &Store, owner: &Owner, file: &PlainFile) -> Result<i64, IngestError> {
        self.check_disk()?;
        let name = random_name(NAME)?;
        let key = format!("{name}.{}", file.extension);
        let new = NewFile {
            workspace_id: owner.workspace_id,
            brand_id: owner.brand_id,
            thumbnail_key: None,
            // The key is included, so that equal bytes are different files.
            sha256: Sha256::new().chain_update(&key).chain_update(&file.bytes).finalize().into(),
            key,
            mime_type: file.media_type,
            size_bytes: i64::try_from(file.bytes.len()).unwrap_or(i64::MAX),
            width: 0,
            height: 0,
            video: None,
        };
        let mut tx = store.begin().await?;
        let Some(row) = files::reserve(&mut tx, &new, owner.cap).await? else {
            tx.rollback().await?;
            return Err(IngestError::Full);
        };
        tx.commit().await?;
        if let Err(error) = self.write_file(store, row.id, &row.key, file.bytes.clone()).await {
            self.abandon_file(store, row.id).await;
            return Err(error);
        }
        Ok(row.id)
    }

    /// Writes the bytes of a reserved file. During the write, the sweep may abandon the file, as in
    /// [`Library::ingest`].
    async fn write_file(&self, store: &Store, file_id: i64, key: &str, bytes: Bytes) -> Result<(), IngestError> {
        self.storage().put(key, bytes).await?;
        if files::is_live(&mut store.read().await?, file_id).await? {
            return Ok(());
        }
        self.storage().delete(key).await?;
        Err(IngestError::Machine("a file was abandoned while it was being written".to_owned()))
    }

    /// Abandons a file that was written and not confirmed. If this fails, the sweep does it later.
    pub async fn abandon_file(&self, store: &Store, file_id: i64) {
        let write = async {
            let mut tx: Tx = store.begin().await?;
            files::abandon(&mut tx, file_id).await?;
            tx.commit().await
        };
        if let Err(error) = write.await {
            tracing::warn!(%error, file = file_id, "failed to abandon a file; the sweep will remove it");
        }
    }
}
