//! `import_media`: imports an image or a video from a URL into the media library, once.
//!
//! 1. *Begin*, a short transaction: checks that the import is still open and that this worker holds the lease. Sets the
//!    import to `processing`.
//! 2. *Ingest*, without a transaction: downloads into a spool, checks the file, and adds it to the storage
//!    ([`Library`]).
//! 3. *Settle*, in the transaction that settles the job: writes the asset and `completed`, or the error; and the event.
//!
//! A run has no external effect, so it can be aborted at any point and repeated; it does not count as a call. If its
//! process dies, it leaves a reserved file without an asset. The next run reuses the file, because the bytes are the
//! same; if there is no next run, the sweep deletes it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::job::Outcome;
use crier_domain::media::MediaJob;
use crier_domain::plan::{Plan, Plans};
use crier_http::HttpClient;
use crier_media::{Library, Owner, import};
use crier_store::jobs::engine as rows;
use crier_store::{Result, Store, StoreError, Tx, brands, media_jobs};

use self::run_result::{ImportOutcome, ImportRunResult};
use super::{Deps, FinishedRun, Job, RunError, settle_each};
use crate::engine::Run;

mod fetch;
mod run_result;

/// The maximum duration of the download of an image, including redirects: about 3 Mbit/s at the default maximum size.
pub const IMPORT_TIMEOUT: Duration = Duration::from_secs(60);
/// The rate at which the largest video is downloaded in the additional time for it, in bytes per second: 8 Mbit/s.
const VIDEO_RATE: u64 = 1_000_000;

pub struct ImportMedia {
    store: Store,
    library: Library,
    plans: Arc<Plans>,
    client: HttpClient,
    /// Has the time for the largest video.
    video_client: HttpClient,
    max_wait: Duration,
}

/// Everything that a run needs.
struct PreparedImport {
    import: MediaJob,
    owner: Owner,
    plan: Plan,
}

impl ImportMedia {
    pub fn new(deps: &Deps) -> Self {
        let largest = usize::try_from(deps.library.limits().max_bytes).unwrap_or(usize::MAX);
        let client = HttpClient::guarded(deps.guard.clone(), deps.import_timeout, largest);
        let video_time = Duration::from_secs(deps.library.max_video_bytes() / VIDEO_RATE);
        Self {
            store: deps.store.clone(),
            library: deps.library.clone(),
            plans: deps.plans.clone(),
            video_client: client.with_more_time(video_time),
            client,
            max_wait: deps.import_timeout,
        }
    }

    async fn begin(&self, run: &Run) -> std::result::Result<PreparedImport, RunError> {
        // A power failure may undo this commit, like that of the claim; the next run writes it again.
        let mut tx = self.store.begin_async_commit().await?;
        let Some(import) = media_jobs::lock(&mut tx, run.job.subject_id).await? else {
            return Err(RunError::cancelled("the import no longer exists"));
        };
        if !rows::still_held(&mut tx, &run.job).await? {
            return Err(RunError::lease_lost());
        }
        if import.status.is_terminal() {
            return Err(RunError::cancelled("the import has ended"));
        }
        let Some((workspace_id, plan)) = brands::plan_of(&mut tx, import.brand_id).await? else {
            return Err(RunError::cancelled("the brand no longer exists"));
        };
        import::begin(&mut tx, &import).await?;
        tx.commit().await?;
        let unknown = || StoreError::Decode(format!("the plans file has no plan `{plan}`"));
        let plan = self.plans.get(&plan).ok_or_else(unknown)?.clone();
        let owner = Owner { workspace_id, brand_id: import.brand_id, cap: plan.storage_bytes() };
        Ok(PreparedImport { import, owner, plan })
    }
}

#[async_trait]
impl Job for ImportMedia {
    type Result = ImportRunResult;

    async fn run(&self, run: &Run) -> std::result::Result<ImportRunResult, RunError> {
        let prepared = self.begin(run).await?;
        let outcome = match self.download_and_ingest(&prepared).await {
            Ok(imported) => ImportOutcome::Imported(imported),
            Err(failure) => ImportOutcome::Failed(failure),
        };
        Ok(ImportRunResult::new(prepared.import.id, outcome))
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, ImportRunResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        run_result::pause(attempt, crier_base::random::unit())
    }
}
