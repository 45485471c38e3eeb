//! The result of a run of `import_media`, and the writes for it.

use std::time::Duration;

use chrono::TimeDelta;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::media::{MediaError, MediaErrorCode, MediaJob};
use crier_media::{self as media, AssetDetails, import};
use crier_store::{Result, Tx, jobs, media_jobs};

use super::super::{RunResult, backoff_from_table};
use super::fetch::{ImportError, ImportedFile};

/// The backoff between attempts (contract, section 3, Media job), each ± 20 %.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_mins(2), Duration::from_mins(10)];

/// The maximum time that an import waits, without using attempts, for the space that other files use. A video of the default
/// maximum size may arrive for four and a half hours.
const MAX_SPACE_WAIT: TimeDelta = TimeDelta::hours(6);
/// The attempt whose backoff is the pause of an import that waits for space.
const SPACE_BACKOFF: i32 = 2;

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

pub enum ImportOutcome {
    Imported(ImportedFile),
    Failed(ImportError),
}

/// The result that is written when the job is settled.
pub struct ImportRunResult {
    import_id: i64,
    outcome: ImportOutcome,
    jitter: f64,
}

impl ImportRunResult {
    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let open = media_jobs::lock(tx, self.import_id).await?.filter(|import| !import.status.is_terminal());
        match (open, &self.outcome) {
            (Some(import), ImportOutcome::Imported(imported)) => self.store_asset(tx, job, &import, imported).await,
            (Some(import), ImportOutcome::Failed(failure)) => self.fail(tx, job, &import, failure).await,
            (None, outcome) => {
                if let ImportOutcome::Imported(imported) = outcome {
                    media::abandon(tx, &imported.file).await?;
                }
                Ok(Outcome::Cancelled("the import no longer exists or has ended".to_owned()))
            }
        }
    }

    pub fn new(import_id: i64, outcome: ImportOutcome) -> Self {
        Self { import_id, outcome, jitter: crier_base::random::unit() }
    }

    async fn store_asset(
        &self,
        tx: &mut Tx,
        job: &ClaimedJob,
        import: &MediaJob,
        imported: &ImportedFile,
    ) -> Result<Outcome> {
        let described = AssetDetails {
            asset_type: import.asset_type,
            filename: &imported.filename,
            alt_text: import.alt_text.as_deref(),
            source_url: Some(&import.source_url),
        };
        match media::create_asset(tx, import.brand_id, &imported.file, &described).await? {
            Some(media_id) => {
                import::complete(tx, import, media_id, job.trace.as_deref()).await?;
                Ok(Outcome::Done)
            }
            None => {
                let message = "Storing the file took too long. Crier downloads it again.";
                let error = MediaError::new(MediaErrorCode::InternalError, message);
                let failure = ImportError { error, is_retryable: true, waits_for_space: false };
                self.fail(tx, job, import, &failure).await
            }
        }
    }

    /// Retries or fails the import. An error of the URL or the file is an expected result: the job is done. After an
    /// internal error the job is dead, so that an operator sees it and can run it again.
    async fn fail(&self, tx: &mut Tx, job: &ClaimedJob, import: &MediaJob, failure: &ImportError) -> Result<Outcome> {
        let (error, message) = (&failure.error, failure.error.message.clone());
        if failure.waits_for_space && tx.now - import.created_at < MAX_SPACE_WAIT {
            jobs::refund_attempt(tx, job).await?;
            import::retry_later(tx, import, error).await?;
            return Ok(Outcome::RetryAt(tx.now + pause(SPACE_BACKOFF, self.jitter), message));
        }
        if failure.is_retryable && job.attempt < job.max_attempts {
            import::retry_later(tx, import, error).await?;
            return Ok(Outcome::RetryAt(tx.now + pause(job.attempt, self.jitter), message));
        }
        import::fail(tx, import, error, job.trace.as_deref()).await?;
        Ok(match error.code {
            MediaErrorCode::InternalError => Outcome::Abort(message),
            _ => Outcome::Done,
        })
    }
}

impl RunResult for ImportRunResult {
    fn reduced(&self) -> Option<Self> {
        let outcome = match &self.outcome {
            ImportOutcome::Imported(imported) => {
                let filename = media::filename(None, imported.file.kind);
                ImportOutcome::Imported(ImportedFile { file: imported.file.clone(), filename })
            }
            ImportOutcome::Failed(failure) => {
                let error = MediaError::new(failure.error.code, "The server's response could not be stored.");
                ImportOutcome::Failed(ImportError { error, ..failure.clone() })
            }
        };
        Some(Self { import_id: self.import_id, outcome, jitter: self.jitter })
    }

    fn order(&self) -> i64 {
        match &self.outcome {
            ImportOutcome::Imported(imported) => imported.file.order(),
            ImportOutcome::Failed(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_delays_have_jitter_of_a_fifth_and_end_at_ten_minutes() {
        for (attempt, promised) in (1..).zip(PAUSES) {
            let seconds = i64::try_from(promised.as_secs()).unwrap();
            assert_eq!(pause(attempt, 0.0), TimeDelta::milliseconds(seconds * 800));
            assert_eq!(pause(attempt, 0.5), TimeDelta::seconds(seconds));
            assert!(pause(attempt, 0.999_999) < TimeDelta::milliseconds(seconds * 1_200));
        }
        assert_eq!(pause(99, 0.5), TimeDelta::minutes(10));
    }
}
