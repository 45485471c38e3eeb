//! `export_report`: creates the file of a report delivery, once, and adds its emails to the outbox.
//!
//! 1. *Begin*, a short transaction: checks that the delivery is still open and that this worker holds the lease. Sets
//!    the delivery to `processing`.
//! 2. *Read*, without a transaction: reads the stored data into a document of plain values (`builder.rs`).
//! 3. *Render and store*, without a transaction: writes the file in memory, on a thread for blocking work and within a
//!    memory budget, then reserves it in the workspace's quota and adds it to the storage.
//! 4. *Settle*, in the transaction that settles the job: marks the file as stored, completes the delivery, and writes
//!    its emails and its event.
//!
//! A run has no external effect, so it can be aborted at any point and repeated; it does not count as a call. If its
//! process dies, it leaves at most a reserved file, which the sweep deletes. All emails are stored with their
//! Message-ID before any of them is sent.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use chrono::TimeDelta;
use crier_domain::job::Outcome;
use crier_domain::plan::{Plan, Plans};
use crier_domain::report::{Report, ReportDelivery, ReportError, ReportErrorCode, ReportFormat};
use crier_domain::spreadsheet::BYTE_ORDER_MARK;
use crier_jobs::reports;
use crier_mail::Mailer;
use crier_media::budget::{Budget, MemoryPermit};
use crier_media::plain_file::PlainFile;
use crier_media::{IngestError, Library, Owner};
use crier_reports::{Document, WriteError};
use crier_store::jobs::engine as rows;
use crier_store::{Result, Store, StoreError, Tx, brands, report_deliveries, reports as report_rows};
use crier_telemetry::metrics;

use self::builder::{BuiltReport, build};
use self::output::LimitedOutput;
use self::run_result::{ExportRunResult, ExportedFile};
use self::scope::ExportScope;
use super::{Deps, FinishedRun, Job, RunError, settle_each};
use crate::engine::Run;
use crate::report_mail::MailContent;

mod builder;
mod output;
mod run_result;
mod scope;
mod tables;
mod totals;

/// The memory budget, in bytes, for all files while they are written. Separate from the budget for images, so that many
/// reports of one tenant do not delay the uploads of the others.
const MEMORY: u64 = 256 << 20;
/// The memory of a file without rows, and per row of its tables, in bytes. Includes the document
/// (`crier-bench reports`).
const BASE_MEMORY: u64 = 16 << 20;
const ROW_MEMORY: u64 = 6 << 10;
/// The same values for a PDF, whose pages stay in memory until it is written.
const PDF_BASE_MEMORY: u64 = 40 << 20;
const PDF_ROW_MEMORY: u64 = 66 << 10;
/// The maximum number of rows of posts in a PDF.
const MAX_PDF_ROWS: u64 = 3_000;
const BRAND_DELETED: &str = "the brand no longer exists";

pub struct ExportReport {
    store: Store,
    library: Library,
    plans: Arc<Plans>,
    mailer: Option<Arc<Mailer>>,
    max_attachment_bytes: u64,
    budget: Budget,
}

/// Everything that a run needs.
struct PreparedExport {
    delivery: ReportDelivery,
    report: Report,
    owner: Owner,
    plan: Plan,
}

/// Why the file was not created.
pub struct ExportError {
    error: ReportError,
    is_retryable: bool,
}

impl ExportReport {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            library: deps.library.clone(),
            plans: deps.plans.clone(),
            mailer: deps.mailer.clone(),
            max_attachment_bytes: deps.max_attachment_bytes,
            budget: Budget::new(MEMORY),
        }
    }

    async fn begin(&self, run: &Run) -> std::result::Result<PreparedExport, RunError> {
        // A power failure may undo this commit, like that of the claim; the next run writes it again.
        let mut tx = self.store.begin_async_commit().await?;
        let Some(delivery) = report_deliveries::lock(&mut tx, run.job.subject_id).await? else {
            return Err(RunError::cancelled("the delivery no longer exists"));
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost());
        }
        if delivery.status.is_terminal() {
            return Err(RunError::cancelled("the delivery has ended"));
        }
        let Some(report) = report_rows::find(&mut tx, delivery.brand_id, delivery.report_id).await? else {
            return Err(RunError::cancelled("the report no longer exists"));
        };
        let Some((workspace_id, plan)) = brands::plan_of(&mut tx, delivery.brand_id).await? else {
            return Err(RunError::cancelled(BRAND_DELETED));
        };
        reports::begin(&mut tx, &delivery).await?;
        tx.commit().await?;
        let unknown = || StoreError::Decode(format!("the plans file has no plan `{plan}`"));
        let plan = self.plans.get(&plan).ok_or_else(unknown)?.clone();
        let owner = Owner { workspace_id, brand_id: delivery.brand_id, cap: plan.storage_bytes() };
        Ok(PreparedExport { delivery, report, owner, plan })
    }

    /// Waits for memory for the document and its file, then reads the document. Holds no database connection while it
    /// waits.
    async fn read(&self, prepared: &PreparedExport) -> Result<Option<(BuiltReport, MemoryPermit)>> {
        let mut conn = self.store.read().await?;
        let Some(brand) = brands::find(&mut conn, prepared.delivery.brand_id).await? else { return Ok(None) };
        let Some(names) = report_deliveries::names_of(&mut conn, &prepared.delivery).await? else { return Ok(None) };
        let scope = ExportScope::new(&prepared.delivery, &brand, prepared.plan.analytics_days, self.store.now());
        let rows = builder::max_rows(&mut conn, &scope, &prepared.report).await?;
        drop(conn);
        let permit = self.budget.share(memory(prepared.delivery.format, rows)).await;
        let built = build(&mut self.store.read().await?, &scope, &prepared.report, &names).await?;
        Ok(Some((built, permit)))
    }

    /// Writes the document in memory. The memory permit is released with the document, because the file is much
    /// smaller.
    async fn render(
        &self,
        document: Document,
        permit: MemoryPermit,
        prepared: &PreparedExport,
    ) -> std::result::Result<Bytes, ExportError> {
        let format = prepared.delivery.format;
        let mark = if format == ReportFormat::Csv && prepared.delivery.has_bom { BYTE_ORDER_MARK } else { "" };
        let work = move || {
            let (mut out, began) = (LimitedOutput::default(), Instant::now());
            let written = out.write_all(mark.as_bytes()).map_err(WriteError::from);
            let written = written.and_then(|()| crier_reports::write(&document, format, &mut out));
            metrics::report_written(format, written.is_ok(), began.elapsed());
            drop(document);
            drop(permit);
            written.map(|()| Bytes::from(out.into_bytes()))
        };
        let failed = |why: String| {
            tracing::error!(delivery = prepared.delivery.id, %format, error = why, "failed to create a report file");
            let error = ReportError::new(ReportErrorCode::InternalError, "Crier could not create this file.");
            ExportError { error, is_retryable: false }
        };
        match self.budget.run(work).await {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(WriteError::Io(_))) => {
                let message = "The file would be too large. Choose fewer days or fewer widgets.";
                Err(ExportError {
                    error: ReportError::new(ReportErrorCode::ReportFailed, message),
                    is_retryable: false,
                })
            }
            Some(Err(error)) => Err(failed(error.to_string())),
            None => Err(failed("it panicked".to_owned())),
        }
    }

    async fn store_file(&self, bytes: Bytes, prepared: &PreparedExport) -> std::result::Result<i64, ExportError> {
        let format = prepared.delivery.format;
        let file = PlainFile { extension: format.as_str(), media_type: format.media_type(), bytes };
        self.library.store_file(&self.store, &prepared.owner, &file).await.map_err(|error| match error {
            IngestError::Full => {
                let message = "The workspace's storage is full. Delete files, or ask the operator for a larger plan.";
                let error = ReportError::new(ReportErrorCode::StorageLimitExceeded, message);
                ExportError { error, is_retryable: false }
            }
            error => {
                tracing::warn!(delivery = prepared.delivery.id, %error, "failed to store a report file");
                let error = ReportError::new(ReportErrorCode::InternalError, "Crier could not store this file.");
                ExportError { error, is_retryable: true }
            }
        })
    }

    async fn export(
        &self,
        built: BuiltReport,
        permit: MemoryPermit,
        prepared: &PreparedExport,
    ) -> std::result::Result<ExportedFile, ExportError> {
        let BuiltReport { document, headlines } = built;
        let (brand, workspace) = (document.brand.clone(), document.workspace.clone());
        let bytes = self.render(document, permit, prepared).await?;
        let size_bytes = bytes.len() as u64;
        let file_id = self.store_file(bytes, prepared).await?;
        let mail = MailContent {
            report: prepared.report.name.clone(),
            brand,
            workspace,
            headlines,
            is_attached: size_bytes <= self.max_attachment_bytes,
        };
        Ok(ExportedFile {
            file_id,
            size_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
            lifetime: prepared.plan.analytics_days.and_then(|days| TimeDelta::try_days(i64::try_from(days).ok()?)),
            workspace_id: prepared.owner.workspace_id,
            mails_per_day: prepared.plan.report_mails_per_day,
            mail,
            mailer: self.mailer.clone(),
            public_url: self.library.public_url().to_owned(),
        })
    }
}

/// Returns the memory that a document with this number of rows takes until its file is written, in bytes.
fn memory(format: ReportFormat, rows: usize) -> u64 {
    let rows = rows as u64;
    match format {
        ReportFormat::Pdf => PDF_BASE_MEMORY + PDF_ROW_MEMORY * rows.min(MAX_PDF_ROWS) + ROW_MEMORY * rows,
        ReportFormat::Csv | ReportFormat::Json | ReportFormat::Pptx | ReportFormat::Xlsx => {
            BASE_MEMORY + ROW_MEMORY * rows
        }
    }
}

#[async_trait]
impl Job for ExportReport {
    type Result = ExportRunResult;

    /// Each result counts emails in a row of its workspace, so transactions with several workspaces could deadlock.
    const SETTLES_TOGETHER: usize = 1;

    async fn run(&self, run: &Run) -> std::result::Result<ExportRunResult, RunError> {
        let prepared = self.begin(run).await?;
        let read = self.read(&prepared).await?;
        let (built, permit) = read.ok_or_else(|| RunError::cancelled(BRAND_DELETED))?;
        let outcome = self.export(built, permit, &prepared).await;
        Ok(ExportRunResult::new(prepared.delivery.id, outcome))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, ExportRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        run_result::pause(attempt, crier_base::random::unit())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_pdfs_are_written_alone() {
        let fits = |number: u64, format, rows| number * memory(format, rows) <= MEMORY;
        assert!(fits(5, ReportFormat::Pdf, 100) && fits(2, ReportFormat::Pdf, 1_000));
        assert!(fits(1, ReportFormat::Pdf, 3_000) && !fits(2, ReportFormat::Pdf, 2_000));
        assert!(fits(3, ReportFormat::Xlsx, 10_000));
    }
}
