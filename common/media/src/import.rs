//! The transitions of an import (`crier_domain::media` has the diagram). The event for a final status is written in the
//! same transaction. The caller must hold the lock on the import's row ([`media_jobs::lock`]).

use crier_domain::event::EventName;
use crier_domain::media::{MediaError, MediaErrorCode, MediaJob, MediaJobStatus};
use crier_store::media_jobs::{self, LockedImport, Progress};
use crier_store::{Result, StoreError, Tx, events};
use serde_json::json;

/// Records the start of a run.
pub async fn begin(tx: &mut Tx, import: &MediaJob) -> Result<()> {
    set_status(tx, &import.into(), MediaJobStatus::Processing, None, None).await
}

/// Records a failed run that will be retried. The error is kept until the next run starts.
pub async fn retry_later(tx: &mut Tx, import: &MediaJob, why: &MediaError) -> Result<()> {
    set_status(tx, &import.into(), MediaJobStatus::Pending, None, Some(why)).await
}

/// Records that the image is in the library.
pub async fn complete(tx: &mut Tx, import: &MediaJob, media_id: i64, trace: Option<&str>) -> Result<()> {
    let import = LockedImport::from(import);
    set_status(tx, &import, MediaJobStatus::Completed, Some(media_id), None).await?;
    emit_event(tx, &import, EventName::MediaCompleted, Some(media_id), None, trace).await
}

/// Records a final failure.
pub async fn fail(tx: &mut Tx, import: &MediaJob, why: &MediaError, trace: Option<&str>) -> Result<()> {
    end(tx, &import.into(), why, trace).await
}

async fn end(tx: &mut Tx, import: &LockedImport, why: &MediaError, trace: Option<&str>) -> Result<()> {
    set_status(tx, import, MediaJobStatus::Failed, None, Some(why)).await?;
    emit_event(tx, import, EventName::MediaFailed, None, Some(why), trace).await
}

/// Fails an import whose job died or was cancelled by the operator. If the last attempt failed and no run has started
/// since, its error code is kept.
pub async fn fail_without_run(tx: &mut Tx, job_id: i64, message: &str, trace: Option<&str>) -> Result<()> {
    let held = media_jobs::lock_minimal(tx, job_id).await?.filter(|i| !i.status.is_terminal());
    let Some(import) = held else { return Ok(()) };
    let last = import.error.as_deref().and_then(|error| serde_json::from_str::<MediaError>(error).ok());
    let code = last.map_or(MediaErrorCode::InternalError, |error| error.code);
    end(tx, &import, &MediaError::new(code, message), trace).await
}

/// Makes a failed import pending again, for a retry by the operator; returns `false` if it has not failed or does not
/// exist.
pub async fn retry_failed(tx: &mut Tx, job_id: i64) -> Result<bool> {
    let failed = media_jobs::lock_minimal(tx, job_id).await?.filter(|i| i.status == MediaJobStatus::Failed);
    let Some(import) = failed else { return Ok(false) };
    set_status(tx, &import, MediaJobStatus::Pending, None, None).await?;
    Ok(true)
}

async fn set_status(
    tx: &mut Tx,
    import: &LockedImport,
    to: MediaJobStatus,
    media_id: Option<i64>,
    error: Option<&MediaError>,
) -> Result<()> {
    let status = import.status.to(to).map_err(|error| StoreError::Decode(error.to_string()))?;
    media_jobs::progress(tx, import, &Progress { status, media_id, error }).await
}

async fn emit_event(
    tx: &mut Tx,
    import: &LockedImport,
    name: EventName,
    media_id: Option<i64>,
    error: Option<&MediaError>,
    trace: Option<&str>,
) -> Result<()> {
    let data = json!({ "job_id": import.id, "brand_id": import.brand_id, "media_id": media_id, "error": error });
    events::emit(tx, import.brand_id, name, &data, trace).await?;
    Ok(())
}
