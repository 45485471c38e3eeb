//! The result of a run of `export_report`, and the writes for it.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::report::{ReportDelivery, ReportError, ReportErrorCode};
use crier_jobs::reports;
use crier_mail::Mailer;
use crier_store::report_deliveries::{self, DeliveredFile};
use crier_store::{Result, Tx, brands, files};

use super::super::{RunResult, backoff_from_table};
use super::ExportError;
use crate::report_mail as mail;
use crate::report_mail::{MailContent, MailContext};

/// The backoff between attempts, each ± 20 %.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_mins(2), Duration::from_mins(10)];

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

/// A stored file, and the content of its emails.
#[derive(Clone)]
pub struct ExportedFile {
    pub file_id: i64,
    pub size_bytes: i64,
    /// The time for which the file is kept; `None` if it is kept as long as its report.
    pub lifetime: Option<TimeDelta>,
    pub workspace_id: i64,
    /// The plan's limit for the workspace; `None` if there is no limit.
    pub mails_per_day: Option<u64>,
    pub mail: MailContent,
    pub mailer: Option<Arc<Mailer>>,
    pub public_url: String,
}

/// The result that is written when the job is settled.
pub struct ExportRunResult {
    delivery_id: i64,
    outcome: std::result::Result<ExportedFile, ExportError>,
    jitter: f64,
}

impl ExportRunResult {
    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let delivery = report_deliveries::lock(tx, self.delivery_id).await?;
        match (delivery.filter(|delivery| !delivery.status.is_terminal()), &self.outcome) {
            (Some(delivery), Ok(exported)) => self.complete(tx, job, &delivery, exported).await,
            (Some(delivery), Err(failure)) => self.fail(tx, job, &delivery, failure).await,
            (None, outcome) => {
                if let Ok(exported) = outcome {
                    files::abandon(tx, exported.file_id).await?;
                }
                Ok(Outcome::Cancelled("the delivery no longer exists or has ended".to_owned()))
            }
        }
    }

    pub fn new(delivery_id: i64, outcome: std::result::Result<ExportedFile, ExportError>) -> Self {
        Self { delivery_id, outcome, jitter: crier_base::random::unit() }
    }

    async fn complete(
        &self,
        tx: &mut Tx,
        job: &ClaimedJob,
        delivery: &ReportDelivery,
        exported: &ExportedFile,
    ) -> Result<Outcome> {
        if !files::mark_stored(tx, exported.file_id).await? {
            let error = ReportError::new(ReportErrorCode::InternalError, "Storing the file took too long.");
            return self.fail(tx, job, delivery, &ExportError { error, is_retryable: true }).await;
        }
        let expires_at = exported.lifetime.map(|lifetime| tx.now + lifetime);
        let file = DeliveredFile { id: exported.file_id, size_bytes: exported.size_bytes, expires_at };
        reports::complete(tx, delivery, file, job.trace.as_deref()).await?;
        if let Some(owner) = brands::owner(tx, delivery.brand_id).await? {
            let cx = MailContext {
                mailer: exported.mailer.as_deref(),
                public_url: &exported.public_url,
                workspace_id: exported.workspace_id,
                mails_per_day: exported.mails_per_day,
                user_id: owner,
                trace: job.trace.as_deref(),
            };
            mail::enqueue(tx, &cx, delivery, &exported.mail).await?;
        }
        Ok(Outcome::Done)
    }

    /// Retries or fails the export. A rejection is an expected result: the job is done. After an internal error the job
    /// is dead, so that an operator sees it and can run it again.
    async fn fail(
        &self,
        tx: &mut Tx,
        job: &ClaimedJob,
        delivery: &ReportDelivery,
        failure: &ExportError,
    ) -> Result<Outcome> {
        let (error, message) = (&failure.error, failure.error.message.clone());
        if failure.is_retryable && job.attempt < job.max_attempts {
            reports::retry_later(tx, delivery, error).await?;
            return Ok(Outcome::RetryAt(tx.now + pause(job.attempt, self.jitter), message));
        }
        reports::fail(tx, delivery, error, job.trace.as_deref()).await?;
        Ok(match error.code {
            ReportErrorCode::InternalError => Outcome::Abort(message),
            _ => Outcome::Done,
        })
    }
}

impl RunResult for ExportRunResult {
    fn order(&self) -> i64 {
        self.outcome.as_ref().map_or(0, |exported| exported.file_id)
    }
}
