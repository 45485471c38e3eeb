//! The transitions of a report delivery (see the diagram in `domain::report`). The events for a final state are written
//! in the same transaction. The caller must hold the lock on the delivery's row ([`report_deliveries::lock`]).

use crier_domain::event::EventName;
use crier_domain::job::{JobKind, Lane, NewJob};
use crier_domain::report::{ReportDelivery, ReportDeliveryStatus, ReportError, ReportErrorCode};
use crier_store::report_deliveries::{self, DeliveredFile, DeliveryProgress, NewDelivery};
use crier_store::{Result, StoreError, Tx, events, jobs};
use serde_json::json;

pub mod links;

/// Stores a delivery with the job that creates its file. Returns the delivery's id. The caller has locked the report or
/// the schedule.
pub async fn enqueue(
    tx: &mut Tx,
    workspace_id: i64,
    new: &NewDelivery,
    recipients: &[String],
    trace: Option<&str>,
) -> Result<i64> {
    let id = report_deliveries::create(tx, new).await?;
    report_deliveries::add_recipients(tx, id, recipients).await?;
    let job = NewJob::new(JobKind::ExportReport, id, tx.now).lane(Lane::Reports(new.brand_id)).workspace(workspace_id);
    jobs::enqueue(tx, &job.trace(trace.map(str::to_owned))).await?;
    Ok(id)
}

/// Records the start of a run.
pub async fn begin(tx: &mut Tx, delivery: &ReportDelivery) -> Result<()> {
    set_status(tx, delivery, ReportDeliveryStatus::Processing, None, None).await
}

/// Records a failed run that will be retried; the error is kept until the next run starts.
pub async fn retry_later(tx: &mut Tx, delivery: &ReportDelivery, why: &ReportError) -> Result<()> {
    set_status(tx, delivery, ReportDeliveryStatus::Pending, None, Some(why)).await
}

/// Records that the file was created.
pub async fn complete(tx: &mut Tx, delivery: &ReportDelivery, file: DeliveredFile, trace: Option<&str>) -> Result<()> {
    set_status(tx, delivery, ReportDeliveryStatus::Sent, Some(file), None).await?;
    emit_event(tx, delivery, EventName::ReportSent, None, trace).await
}

/// Records a final failure. No emails are sent.
pub async fn fail(tx: &mut Tx, delivery: &ReportDelivery, why: &ReportError, trace: Option<&str>) -> Result<()> {
    set_status(tx, delivery, ReportDeliveryStatus::Failed, None, Some(why)).await?;
    let error = ReportError::new(ReportErrorCode::ReportFailed, "The report file could not be created.");
    report_deliveries::fail_recipients(tx, delivery.id, &error).await?;
    emit_event(tx, delivery, EventName::ReportFailed, Some(why), trace).await
}

/// Fails a delivery whose run did not end it, because its job is dead or the operator cancelled the job. If an earlier
/// attempt failed and no run has started since, its error code is kept.
pub async fn fail_without_run(tx: &mut Tx, delivery_id: i64, message: &str, trace: Option<&str>) -> Result<()> {
    let held = report_deliveries::lock(tx, delivery_id).await?.filter(|delivery| !delivery.status.is_terminal());
    let Some(delivery) = held else { return Ok(()) };
    let code = delivery.error.as_ref().map_or(ReportErrorCode::InternalError, |error| error.code);
    fail(tx, &delivery, &ReportError::new(code, message), trace).await
}

/// Makes a failed delivery pending again, for a retry by the operator. Returns `false` if the delivery has not failed
/// or does not exist.
pub async fn retry_failed(tx: &mut Tx, delivery_id: i64) -> Result<bool> {
    let held = report_deliveries::lock(tx, delivery_id).await?;
    let Some(delivery) = held.filter(|delivery| delivery.status == ReportDeliveryStatus::Failed) else {
        return Ok(false);
    };
    set_status(tx, &delivery, ReportDeliveryStatus::Pending, None, None).await?;
    report_deliveries::retry_recipients(tx, delivery_id).await?;
    Ok(true)
}

async fn set_status(
    tx: &mut Tx,
    delivery: &ReportDelivery,
    to: ReportDeliveryStatus,
    file: Option<DeliveredFile>,
    error: Option<&ReportError>,
) -> Result<()> {
    let status = delivery.status.to(to).map_err(|error| StoreError::Decode(error.to_string()))?;
    report_deliveries::progress(tx, delivery.id, &DeliveryProgress { status, file, error }).await
}

async fn emit_event(
    tx: &mut Tx,
    delivery: &ReportDelivery,
    name: EventName,
    error: Option<&ReportError>,
    trace: Option<&str>,
) -> Result<()> {
    let data = json!({
        "delivery_id": delivery.id, "report_id": delivery.report_id, "brand_id": delivery.brand_id,
        "format": delivery.format, "error": error,
    });
    events::emit(tx, delivery.brand_id, name, &data, trace).await?;
    Ok(())
}
