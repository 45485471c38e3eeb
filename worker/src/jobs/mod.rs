//! The kinds of jobs, one file or folder each.
//!
//! A job acts on its *subject*: its payload is the id of a row. A kind is a type that implements [`Job`]:
//!
//! - [`Job::run`] does the work. It holds no transaction while it waits for external services. It returns a
//!   [`Job::Result`], which says what happened to the subject, or a [`RunError`] if there is nothing to write.
//! - [`Job::settle`] writes results, in the transaction that settles the jobs, and returns one [`Outcome`] per result,
//!   which has the outcome of the job. The engine stores the outcomes in the same transaction, and rolls it back if a
//!   lease was lost. So a result is written once, with its job.
//!
//! These two types are all that describes the end of a run. The result also says how it shares a transaction
//! ([`RunResult::order`]), what remains of it if the database rejects it ([`RunResult::reduced`]), and what is counted
//! after the commit ([`RunResult::observe`]).
//!
//! Results of several runs share a transaction, because one large transaction costs less than several small ones.
//! `settle` always receives a batch, often of one. A kind with few runs writes one result after the other
//! (`settle_each`). A kind with many runs writes all of them in a few statements (`publish_target`,
//! `deliver_webhook`). A kind that needs only the database implements [`TransactionJob`] instead.
//!
//! The engine knows no kinds and no results. Its [`Registry`] contains the kinds as [`AnyJob`], which every [`Job`]
//! implements.
//!
//! A new kind `ping` (`CONTRIBUTING.md` has the recipe) is a `pub struct Ping` of what its runs need, with a
//! `Ping::new(&Deps)`. Most results have an `async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome>`,
//! which `settle` calls with `settle_each(tx, runs, …)`. If a run makes a call with an external effect, pass the call
//! to [`Run::call`], and store its marker before. If database errors must not use the default backoff, or a run stores
//! something before its call that an interruption must undo, override `backoff`, `undo_failed` and `undo_aborted`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_base::backoff;
use crier_domain::for_each_job_kind;
use crier_domain::job::{ClaimedJob, JobKind, Outcome};
use crier_domain::plan::Plans;
use crier_http::Guard;
use crier_mail::Mailer;
use crier_media::Library;
use crier_platforms::ConnectorRegistry as Platforms;
use crier_store::{Result, Store, StoreError, Tx};
use futures::future::BoxFuture;

use crate::engine::Run;
use crate::webhooks::sender::Sender;

mod account_session;
mod adopt;
mod any;
mod call_outcome;
mod collect_analytics;
mod deliver_webhook;
mod export_report;
pub mod fetch_feed;
mod import_media;
mod import_posts;
mod make_occurrences;
mod noop;
mod post_article;
mod publish_comment;
mod publish_target;
mod publisher;
mod refresh_token;
mod send_digest;
mod send_mail;
mod send_reply;
mod storage;
mod sync_inbox;
mod unpublish_target;

pub use any::{AnyJob, AnyResult};
pub use import_media::IMPORT_TIMEOUT;

/// A job kind.
#[async_trait]
pub trait Job: Send + Sync + 'static {
    /// What a run reports.
    type Result: RunResult;

    /// The maximum number of results of this kind in one transaction. Larger for a kind that writes all of them in a
    /// few statements.
    const SETTLES_TOGETHER: usize = 8;

    /// Whether a run may start without a slot when a place in its lane becomes free. Must be false if only the number
    /// of slots bounds the memory of the runs.
    const STARTS_WITHOUT_SLOT: bool = false;

    /// Runs the job.
    async fn run(&self, run: &Run) -> std::result::Result<Self::Result, RunError>;

    /// Writes the results of runs; returns one outcome each, in their order. Called again, possibly with other runs, if
    /// the transaction fails.
    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, Self::Result>]) -> Result<Vec<Outcome>>;

    /// Undoes the counts of a run that was aborted outside a call, in the transaction that releases its job.
    async fn undo_aborted(&self, _tx: &mut Tx, _run: &Run) -> Result<()> {
        Ok(())
    }

    /// Undoes the marker of a run that ended with an error or a panic, in the transaction that settles it.
    async fn undo_failed(&self, _tx: &mut Tx, _run: &Run) -> Result<()> {
        Ok(())
    }

    /// Returns the backoff after an error or a panic; `attempt` starts at 1.
    fn backoff(&self, attempt: i32) -> TimeDelta {
        backoff::pause_after(attempt, backoff::linear(Duration::from_secs(10), Duration::from_mins(10)))
    }
}

/// Returns the backoff after an attempt (from 1) from a kind's table, ± 20 %; `random` in `[0, 1)`.
fn backoff_from_table(pauses: &'static [Duration], attempt: i32, random: f64) -> TimeDelta {
    backoff::jitter(backoff::pause_after(attempt, backoff::table(pauses)), 0.2, random)
}

/// What a run reports: what happened to its subject.
pub trait RunResult: Sized + Send + Sync + 'static {
    /// Returns the sort key of results that share a transaction. The same lock order in every worker prevents
    /// deadlocks.
    fn order(&self) -> i64 {
        0
    }

    /// Returns the result without external data, for a database that rejects the whole result. `None` if there is no
    /// smaller result; then the subject fails.
    fn reduced(&self) -> Option<Self> {
        None
    }

    /// Records metrics. Called once, after the commit, with the outcome of the job.
    fn observe(&self, _outcome: &Outcome) {}
}

/// The result of a kind whose runs write nothing.
impl RunResult for () {}

/// A job, and the result of its run.
pub struct FinishedRun<'a, R: ?Sized> {
    pub job: &'a ClaimedJob,
    pub result: &'a R,
}

/// Writes results one after the other; returns one outcome each.
async fn settle_each<R>(
    tx: &mut Tx,
    runs: &[FinishedRun<'_, R>],
    write: impl for<'a> Fn(&'a mut Tx, &'a ClaimedJob, &'a R) -> BoxFuture<'a, Result<Outcome>>,
) -> Result<Vec<Outcome>> {
    let mut outcomes = Vec::with_capacity(runs.len());
    for run in runs {
        outcomes.push(write(&mut *tx, run.job, run.result).await?);
    }
    Ok(outcomes)
}

/// A job kind whose run does nothing: all of its work is in the transaction that settles the job, so it is done once.
#[async_trait]
pub trait TransactionJob: Send + Sync + 'static {
    /// Does the work. Returns the outcome of the job.
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome>;
}

#[async_trait]
impl<T: TransactionJob> Job for T {
    type Result = ();

    /// The work is several statements and locks. On SQLite, the transaction blocks all other writers.
    const SETTLES_TOGETHER: usize = 1;

    async fn run(&self, _run: &Run) -> std::result::Result<(), RunError> {
        Ok(())
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, ()>]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(runs.len());
        for run in runs {
            outcomes.push(self.write(tx, run.job).await?);
        }
        Ok(outcomes)
    }
}

/// Why a run has no result.
#[derive(Debug)]
pub enum RunError {
    /// There is nothing to write: only the job ends.
    Ended(Outcome),
    /// A database error: the job is retried.
    Database(StoreError),
}

impl RunError {
    /// Cancels the job; `why` is the reason, for the operator.
    pub fn cancelled(why: impl Into<String>) -> Self {
        Self::Ended(Outcome::Cancelled(why.into()))
    }

    /// Ends a run whose job another worker has. This outcome is discarded, so its reason is never stored.
    pub fn lease_lost() -> Self {
        Self::cancelled("the lease was lost")
    }
}

impl From<StoreError> for RunError {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

/// Why a run of several steps stops before its last step.
enum Stop<R> {
    /// The result is known.
    Ended(R),
    /// There is no result.
    Failed(RunError),
}

impl<R> From<RunError> for Stop<R> {
    fn from(error: RunError) -> Self {
        Self::Failed(error)
    }
}

impl<R> From<StoreError> for Stop<R> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// The dependencies of the kinds.
#[derive(Clone)]
pub struct Deps {
    pub store: Store,
    pub platforms: Arc<Platforms>,
    pub library: Library,
    pub plans: Arc<Plans>,
    /// Checks the URLs that users enter.
    pub guard: Guard,
    pub webhooks: Arc<Sender>,
    pub feeds: Arc<fetch_feed::Fetcher>,
    /// `None` if no emails are sent.
    pub mailer: Option<Arc<Mailer>>,
    /// The maximum size, in bytes, of a report file that is attached to its emails.
    pub max_attachment_bytes: u64,
    /// The maximum lateness of a post that is still published.
    pub latest_publish: TimeDelta,
    /// The maximum duration of a call to a platform.
    pub platform_timeout: TimeDelta,
    /// The maximum duration of an import's download.
    pub import_timeout: Duration,
}

/// Generates [`handler`]: the handler of `Ping = ping` is `ping::Ping`, made by its `new`.
macro_rules! make_handlers {
    ($($kind:ident = $name:ident $limits:tt),+ $(,)?) => {
        /// Returns the handler of a kind.
        pub fn handler(kind: JobKind, deps: &Deps) -> Arc<dyn AnyJob> {
            match kind { $(JobKind::$kind => Arc::new($name::$kind::new(deps))),+ }
        }
    };
}

for_each_job_kind!(make_handlers);

/// The handlers of the kinds that this worker runs.
#[derive(Clone)]
pub struct Registry(Arc<BTreeMap<JobKind, Arc<dyn AnyJob>>>);

impl Registry {
    /// Registers the handlers of these kinds.
    pub fn new(deps: &Deps, kinds: &[JobKind]) -> Self {
        Self(Arc::new(kinds.iter().map(|kind| (*kind, handler(*kind, deps))).collect()))
    }

    /// Registers only these handlers.
    pub fn of<const N: usize>(handlers: [(JobKind, Arc<dyn AnyJob>); N]) -> Self {
        Self(Arc::new(handlers.into()))
    }

    pub fn get(&self, kind: JobKind) -> Option<Arc<dyn AnyJob>> {
        self.0.get(&kind).cloned()
    }

    pub fn kinds(&self) -> Vec<JobKind> {
        self.0.keys().copied().collect()
    }
}
