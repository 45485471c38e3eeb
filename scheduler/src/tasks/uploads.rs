//! Creates the assets of resumable uploads that have received all bytes, if the process that received the last ones died
//! or could not store the file.
//!
//! A large file takes minutes, so this is not part of the tick, which the stop of the process waits for. If the process
//! stops meanwhile, the lease of the upload expires, and another tick continues. If a file cannot be stored until its
//! upload expires, the sweep deletes it.

use std::time::Duration;

use crier_media::{IngestError, UploadError};
use crier_store::Result;

use crate::Scheduler;

pub async fn run(s: &Scheduler) -> Result<Option<Duration>> {
    if let Ok(running) = s.finishing_uploads.clone().try_lock_owned() {
        let scheduler = s.clone();
        tokio::spawn(async move {
            finish_all(&scheduler).await;
            drop(running);
        });
    }
    Ok(None)
}

/// Creates all assets that no process is creating, one after another.
pub async fn finish_all(s: &Scheduler) {
    let mut after = 0;
    loop {
        match s.library.finish_next_upload(&s.store, after).await {
            Ok(None) => return,
            Ok(Some(finished)) => {
                after = finished.upload_id;
                log(finished.upload_id, finished.result.err());
            }
            Err(error) => {
                tracing::warn!(%error, "failed to find uploads to finish; retrying later");
                return;
            }
        }
    }
}

fn log(upload: i64, error: Option<UploadError>) {
    match error {
        None => tracing::info!(upload, "finished an interrupted upload"),
        Some(error @ (UploadError::Damaged | UploadError::Ingest(IngestError::Rejected(_)))) => {
            tracing::info!(upload, %error, "deleted an upload with an unusable file");
        }
        Some(error) => tracing::warn!(upload, %error, "failed to finish an upload; retrying later"),
    }
}
