//! `import_posts`: imports the posts of a file, or only checks them (a dry run).
//!
//! 1. *Begin*, a short transaction: checks that the import is still open and that this worker holds the lease.
//! 2. *Read*, without a transaction: parses the file within a memory budget (`crier_imports`).
//! 3. *Media*: requests the files of the next rows with the job that imports from URLs, and waits for them without using
//!    attempts of this job. A file is requested once per import, in the transaction that records it.
//! 4. *Batches*: a transaction for a few rows each, which locks the import, creates the posts, and stores how many rows
//!    are done. A crash therefore repeats nothing, even without `external_ref`. Each post has a savepoint: a rejected
//!    row is a problem of the import and does not undo the others.
//! 5. *Settle*: the next run continues after the rows that are done, or the import ends.
//!
//! A run processes a bounded number of rows. The file is parsed again by each run, which takes less than storing its rows.

use std::collections::HashMap;
use std::sync::Arc;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::job::Outcome;
use crier_domain::plan::Plans;
use crier_domain::post_import::{PostImport, PostImportError};
use crier_http::Guard;
use crier_imports::{PostFile, ReadOptions, Row};
use crier_media::Library;
use crier_media::budget::Budget;
use crier_platforms::ConnectorRegistry as Platforms;
use crier_posts::{Member, PostContext, PostError};
use crier_store::jobs::engine as rows;
use crier_store::{Result, Store, StoreError, Tx, post_imports};

use self::accounts::BrandAccounts;
use self::row::{RowContext, RowOutcome};
use self::run_result::{ImportEnd, ImportPostsResult};
use super::storage::storage_problem;
use super::{Deps, FinishedRun, Job, RunError, settle_each};
use crate::engine::Run;

mod accounts;
mod media;
mod row;
mod run_result;

/// The maximum number of rows of a run. Each run parses the file once.
const ROWS_PER_RUN: usize = 500;
/// The number of rows whose files are requested together.
const ROWS_PER_WAIT: usize = 200;
/// The memory budget, in bytes, for all files while they are parsed and imported, and the part of one file: its bytes,
/// its text, its cells and its posts.
const MEMORY: u64 = 512 << 20;
const FILE_MEMORY: u64 = 256 << 20;

pub struct ImportPosts {
    store: Store,
    platforms: Arc<Platforms>,
    library: Library,
    plans: Arc<Plans>,
    guard: Guard,
    budget: Budget,
}

impl ImportPosts {
    pub fn new(deps: &Deps) -> Self {
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            plans: deps.plans.clone(),
            guard: deps.guard.clone(),
            budget: Budget::new(MEMORY),
        }
    }

    async fn begin(&self, run: &Run) -> std::result::Result<PostImport, RunError> {
        // A power failure may undo this commit, like that of the claim; the next run writes it again.
        let mut tx = self.store.begin_async_commit().await?;
        let import = lock_held(&mut tx, run).await?;
        post_imports::progress(&mut tx, &import).await?;
        tx.commit().await?;
        Ok(import)
    }

    /// Parses the file. The error is the reason why the import fails.
    async fn parse(&self, import: &PostImport) -> Result<std::result::Result<PostFile, String>> {
        let Some(bytes) = post_imports::file(&mut self.store.read().await?, import.id).await? else {
            return Ok(Err("The file no longer exists. Upload it again.".to_owned()));
        };
        let Ok(zone) = import.timezone.parse() else {
            return Ok(Err("The time zone is unknown to this version of Crier. Choose another one.".to_owned()));
        };
        let options = ReadOptions { zone, date_format: import.date_format };
        Ok(match self.budget.run(move || crier_imports::read(&bytes, &options)).await {
            Some(file) => file.map_err(|error| error.to_string()),
            None => Err("The file could not be read. Save it as CSV in UTF-8 and upload it again.".to_owned()),
        })
    }

    async fn import(&self, run: &Run) -> std::result::Result<ImportEnd, RunError> {
        let mut import = self.begin(run).await?;
        // This does not parse the file, because an import may wait for a long time.
        if media::awaits(&mut self.store.read().await?, &import, self.store.now()).await? {
            return Ok(ImportEnd::wait(&import));
        }
        let _permit = self.budget.share(FILE_MEMORY).await;
        let file = match self.parse(&import).await? {
            Ok(file) => file,
            Err(error) => return Ok(ImportEnd::Failed(error)),
        };
        if import.rows_done == 0 {
            import = self.store_headings(run, &file).await?;
        }
        let Some(user_id) = import.user_id else { return Ok(ImportEnd::Failed(NO_MEMBER.to_owned())) };
        let mut conn = self.store.read().await?;
        let member = Member::find(&mut conn, &self.plans, import.brand_id, user_id).await.map_err(to_run_error)?;
        let Some(member) = member else { return Ok(ImportEnd::Failed(NO_MEMBER.to_owned())) };
        let mut accounts = BrandAccounts::load(&mut conn, import.brand_id).await?;
        drop(conn);
        let done = usize::try_from(import.rows_done).unwrap_or_default();
        let left = file.rows.get(done..).unwrap_or_default();
        let rows = left.get(..ROWS_PER_RUN).unwrap_or(left);
        for window in rows.chunks(ROWS_PER_WAIT) {
            let Some(media) = media::of_rows(self, run, &mut import, &member, window).await? else {
                return Ok(ImportEnd::wait(&import));
            };
            let mut conn = self.store.read().await?;
            accounts.load_named(&mut conn, import.brand_id, window, &import.accounts).await?;
            drop(conn);
            let mut rest = window;
            while let Some((batch, after)) = row::next_batch(rest, import.accounts.len()) {
                rest = after;
                if let Some(problem) = self.storage_problem(&import).await? {
                    return Ok(stopped_at(&problem, batch));
                }
                let cx = RowContext {
                    import: &import,
                    file: &file,
                    accounts: &accounts,
                    media: &media,
                    guard: &self.guard,
                    now: self.store.now(),
                };
                if let Some(end) = self.process(run, &cx, &member, batch).await? {
                    return Ok(end);
                }
            }
        }
        Ok(if left.len() > rows.len() { ImportEnd::Continue } else { ImportEnd::Completed })
    }

    /// Returns why no more posts can be created. In a dry run, none are.
    async fn storage_problem(&self, import: &PostImport) -> Result<Option<String>> {
        if import.dry_run {
            return Ok(None);
        }
        storage_problem(&mut self.store.read().await?, &self.plans, import.brand_id).await
    }

    /// Stores the number of rows and the problems of the headings, once.
    async fn store_headings(&self, run: &Run, file: &PostFile) -> std::result::Result<PostImport, RunError> {
        let mut tx = self.store.begin().await?;
        let mut import = lock_held(&mut tx, run).await?;
        if import.rows_total == 0 && import.rows_done == 0 {
            import.rows_total = i32::try_from(file.rows.len()).unwrap_or(i32::MAX);
            post_imports::progress(&mut tx, &import).await?;
            post_imports::add_errors(&mut tx, import.id, &row::stored(&file.problems)).await?;
        }
        tx.commit().await?;
        Ok(import)
    }

    /// Processes a few rows. Returns the end of the import if the others are not processed.
    async fn process(
        &self,
        run: &Run,
        cx: &RowContext<'_>,
        member: &Member,
        batch: &[Row],
    ) -> std::result::Result<Option<ImportEnd>, RunError> {
        let post_cx = |now| PostContext {
            trace: run.job.trace.as_deref(),
            ..member.context(cx.import.brand_id, &self.platforms, &self.library, now)
        };
        let checked = if cx.import.dry_run {
            // The checks hold no transaction.
            let mut conn = self.store.read().await?;
            row::check_all(cx, &post_cx(self.store.now()), &mut conn, batch).await.map_err(to_run_error)?
        } else {
            Vec::new()
        };
        // Before the transaction, because the names of accounts are searched for.
        let changes = row::changes(cx, batch);
        let mut tx = self.store.begin().await?;
        let mut import = lock_held(&mut tx, run).await?;
        let outcomes = if import.dry_run {
            checked
        } else {
            let now = tx.now;
            row::create_all(cx, &post_cx(now), &mut tx, batch, changes).await.map_err(to_run_error)?
        };
        let mut errors: Vec<PostImportError> = Vec::new();
        let mut end = None;
        for (outcome, row) in outcomes.into_iter().zip(batch) {
            // A row that ends the import is not done: if this run is not settled, the next one begins with it.
            import.rows_done += i32::from(!matches!(outcome, RowOutcome::Stopped(_)));
            if matches!(outcome, RowOutcome::Valid | RowOutcome::Imported) {
                import.rows_queued += i32::from(row::is_queued(row));
            }
            match outcome {
                RowOutcome::Valid => import.rows_valid += 1,
                RowOutcome::Imported => {
                    import.rows_valid += 1;
                    import.rows_imported += 1;
                }
                RowOutcome::Skipped => {
                    import.rows_valid += 1;
                    import.rows_skipped += 1;
                }
                RowOutcome::Rejected(problems) => errors.extend(problems),
                RowOutcome::Stopped(problem) => {
                    end = Some(stopped_at(&problem, std::slice::from_ref(row)));
                }
            }
        }
        import.waiting_since = None;
        post_imports::progress(&mut tx, &import).await?;
        post_imports::add_errors(&mut tx, import.id, &errors).await?;
        tx.commit().await?;
        Ok(end)
    }
}

/// Ends an import before these rows.
fn stopped_at(problem: &str, rows: &[Row]) -> ImportEnd {
    let first = rows.first().map_or(0, |row| row.number);
    ImportEnd::Failed(format!("{problem} Row {first} and those after it were not imported."))
}

const NO_MEMBER: &str = "The user who started this import is no longer a member of the brand. Import the file again.";

/// Locks the import of a run. Fails if another worker has the job, or the import has ended.
async fn lock_held(tx: &mut Tx, run: &Run) -> std::result::Result<PostImport, RunError> {
    let Some(import) = post_imports::lock(tx, run.job.subject_id).await? else {
        return Err(RunError::cancelled("the import no longer exists"));
    };
    if !rows::still_held(tx, &run.job).await? {
        return Err(RunError::lease_lost());
    }
    if import.status.is_terminal() {
        return Err(RunError::cancelled("the import has ended"));
    }
    Ok(import)
}

/// Converts an error that does not reject the post.
fn to_run_error(error: PostError) -> RunError {
    RunError::Database(match error {
        PostError::Store(error) => error,
        error => StoreError::Decode(error.to_string()),
    })
}

/// The files of posts that are in the library, or why they are not, by URL.
type MediaByUrl = HashMap<String, std::result::Result<i64, String>>;

#[async_trait]
impl Job for ImportPosts {
    type Result = ImportPostsResult;

    const SETTLES_TOGETHER: usize = 1;

    async fn run(&self, run: &Run) -> std::result::Result<ImportPostsResult, RunError> {
        let end = self.import(run).await?;
        Ok(ImportPostsResult { import_id: run.job.subject_id, end })
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, ImportPostsResult>]) -> Result<Vec<Outcome>> {
        settle_each(tx, runs, |tx, job, result| Box::pin(result.write(tx, job))).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        run_result::pause(attempt, crier_base::random::unit())
    }
}
