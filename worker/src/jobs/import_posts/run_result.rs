//! The result of a run of `import_posts`, and the writes for it.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::post_import::{PostImport, PostImportStatus};
use crier_store::{Result, Tx, jobs, post_imports};

use super::super::{RunResult, backoff_from_table};

/// The backoff between attempts, each ± 20 %.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(5), Duration::from_secs(30), Duration::from_mins(2), Duration::from_mins(10)];
/// The shortest and the longest pause between two checks of files that are being downloaded.
const MIN_WAIT: TimeDelta = TimeDelta::seconds(3);
const MAX_WAIT: TimeDelta = TimeDelta::minutes(5);
/// The next pause is the time waited so far, divided by this.
const WAIT_SHARE: i32 = 4;

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

/// How a run ended.
#[derive(Clone, Debug)]
pub enum ImportEnd {
    /// There are more rows.
    Continue,
    /// Files of the next rows are not yet in the library.
    Waiting {
        since: Option<DateTime<Utc>>,
    },
    Completed,
    /// The other rows are not imported. The text is a sentence for the user.
    Failed(String),
}

impl ImportEnd {
    pub const fn wait(import: &PostImport) -> Self {
        Self::Waiting { since: import.waiting_since }
    }
}

/// The result that is written when the job is settled.
pub struct ImportPostsResult {
    pub import_id: i64,
    pub end: ImportEnd,
}

impl ImportPostsResult {
    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let open = post_imports::lock(tx, self.import_id).await?.filter(|import| !import.status.is_terminal());
        let Some(import) = open else {
            return Ok(Outcome::Cancelled("the import no longer exists or has ended".to_owned()));
        };
        match &self.end {
            ImportEnd::Continue => {
                jobs::refund_attempt(tx, job).await?;
                Ok(Outcome::RetryAt(tx.now, "there are more rows".to_owned()))
            }
            ImportEnd::Waiting { since } => {
                jobs::refund_attempt(tx, job).await?;
                let waited = since.map_or(TimeDelta::zero(), |since| tx.now - since);
                let pause = (waited / WAIT_SHARE).clamp(MIN_WAIT, MAX_WAIT);
                Ok(Outcome::RetryAt(tx.now + pause, "files of the posts are being downloaded".to_owned()))
            }
            ImportEnd::Completed => {
                // The file of a dry run is kept, so that its posts can be imported.
                if !import.dry_run {
                    post_imports::delete_file(tx, import.id).await?;
                }
                post_imports::end(tx, import.id, PostImportStatus::Completed, None).await?;
                Ok(Outcome::Done)
            }
            ImportEnd::Failed(error) => {
                post_imports::delete_file(tx, import.id).await?;
                post_imports::end(tx, import.id, PostImportStatus::Failed, Some(error)).await?;
                Ok(Outcome::Done)
            }
        }
    }
}

impl RunResult for ImportPostsResult {}
