//! `export_report`: creates the file of a report delivery, and adds its emails to the outbox.

use crier_store::{Conn, Result, Tx, report_deliveries};

use super::{JobDefinition, SubjectDescription};
use crate::reports;

pub struct ExportReport;

impl JobDefinition for ExportReport {
    async fn lock(tx: &mut Tx, delivery_id: i64) -> Result<()> {
        report_deliveries::lock(tx, delivery_id).await.map(drop)
    }

    async fn describe(conn: &mut Conn, delivery_id: i64) -> Result<Option<SubjectDescription>> {
        let Some(d) = report_deliveries::find_any(conn, delivery_id).await? else { return Ok(None) };
        let words =
            format!("delivery {} of report {} in brand {}, {}, {}", d.id, d.report_id, d.brand_id, d.format, d.status);
        Ok(Some(SubjectDescription::new(words)))
    }

    async fn on_dead(tx: &mut Tx, delivery_id: i64, trace: Option<&str>) -> Result<()> {
        let message = "Crier could not create this file within the maximum number of attempts. Export it again.";
        reports::fail_without_run(tx, delivery_id, message, trace).await
    }

    async fn on_cancelled(tx: &mut Tx, delivery_id: i64) -> Result<()> {
        let message = "The operator canceled this export. Export the report again if you still need it.";
        reports::fail_without_run(tx, delivery_id, message, None).await
    }

    async fn on_retry(tx: &mut Tx, delivery_id: i64) -> Result<bool> {
        reports::retry_failed(tx, delivery_id).await
    }
}
