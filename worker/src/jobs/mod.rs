//! The handlers of the job kinds, one file each. [`crier_jobs`] explains how to add a kind.

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
use crier_store::{Result, Store, Tx};

use crate::engine::Run;
use crate::webhooks::sender::Sender;

mod account_session;
mod adopt;
mod call_outcome;
mod collect_analytics;
mod deliver_webhook;
mod export_report;
pub mod fetch_feed;
mod import_media;
mod noop;
mod publish_target;
mod refresh_token;
mod send_mail;
mod send_reply;
mod sync_inbox;

pub use import_media::IMPORT_TIMEOUT;

/// The handler of a job kind. `run` holds no transaction while it waits for external services; the [`RunResult`] that
/// it returns writes the result.
#[async_trait]
pub trait Job: Send + Sync {
    /// Runs the job. An error is a database error: the job is retried.
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>>;

    /// Writes the results of several runs in the transaction that settles them; returns one outcome each. A kind with
    /// many runs overrides this to use a few statements for all of them.
    async fn write_results(&self, tx: &mut Tx, runs: &[FinishedRun]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(runs.len());
        for (job, result) in runs {
            outcomes.push(result.write(tx, job).await?);
        }
        Ok(outcomes)
    }

    /// Settles runs in one statement, which is its own transaction: writes their results, and their jobs as done.
    /// Returns `false`, and writes nothing, if these results need more statements. An error means the same, or that the
    /// connection was lost. In both cases the runs are settled in a transaction of several statements.
    async fn settle_in_one_statement(&self, _store: &Store, _ends: &[FinishedRun]) -> Result<bool> {
        Ok(false)
    }

    /// Whether a run may start without a slot when a place in its lane becomes free. Must be false if only the number
    /// of slots bounds the memory of the runs.
    fn may_start_without_slot(&self) -> bool {
        false
    }

    /// The maximum number of results of this kind in one transaction. Larger for a kind whose [`Job::write_results`]
    /// uses a few statements for all results.
    fn max_results_per_transaction(&self) -> usize {
        8
    }

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

/// The result of a run, written in the transaction that settles the job. `write` may be called again if that
/// transaction fails.
#[async_trait]
pub trait RunResult: Send + Sync {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome>;

    /// Returns the result if its kind writes several results in a few statements ([`Job::write_results`]).
    fn batched(&self) -> Option<BatchedResult<'_>> {
        None
    }

    /// Returns the result without external data, for a database that rejects the whole result. `None` if there is no
    /// smaller result; then the subject fails.
    fn reduced(&self) -> Option<Arc<dyn RunResult>> {
        None
    }

    /// Returns the sort key of results that share a transaction. The same lock order in every worker prevents
    /// deadlocks.
    fn order(&self) -> i64 {
        0
    }

    /// Records metrics. Called once, after the commit.
    fn observe(&self, _outcome: &Outcome) {}
}

/// A result that its kind writes together with other results.
pub enum BatchedResult<'a> {
    Delivery(&'a deliver_webhook::DeliveryRunResult),
    Publish(&'a publish_target::PublishRunResult),
}

/// A job and the result of its run.
pub type FinishedRun = (ClaimedJob, Arc<dyn RunResult>);

/// A run that changed nothing but its job.
#[async_trait]
impl RunResult for Outcome {
    async fn write(&self, _tx: &mut Tx, _job: &ClaimedJob) -> Result<Outcome> {
        Ok(self.clone())
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
        pub fn handler(kind: JobKind, deps: &Deps) -> Arc<dyn Job> {
            match kind { $(JobKind::$kind => Arc::new($name::$kind::new(deps))),+ }
        }
    };
}

for_each_job_kind!(make_handlers);

/// The handlers of the kinds that this worker runs.
#[derive(Clone)]
pub struct Registry(Arc<BTreeMap<JobKind, Arc<dyn Job>>>);

impl Registry {
    /// Registers the handlers of these kinds.
    pub fn new(deps: &Deps, kinds: &[JobKind]) -> Self {
        Self(Arc::new(kinds.iter().map(|kind| (*kind, handler(*kind, deps))).collect()))
    }

    /// Registers only these handlers.
    pub fn of<const N: usize>(handlers: [(JobKind, Arc<dyn Job>); N]) -> Self {
        Self(Arc::new(handlers.into()))
    }

    pub fn get(&self, kind: JobKind) -> Option<Arc<dyn Job>> {
        self.0.get(&kind).cloned()
    }

    /// Writes the results of runs of one kind.
    pub async fn write_results(&self, tx: &mut Tx, runs: &[FinishedRun]) -> Result<Vec<Outcome>> {
        match runs.first().and_then(|(job, _)| self.get(job.kind)) {
            Some(kind) => kind.write_results(tx, runs).await,
            None => Ok(Vec::new()),
        }
    }

    pub fn kinds(&self) -> Vec<JobKind> {
        self.0.keys().copied().collect()
    }
}
