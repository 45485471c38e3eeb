//! One file a kind: what a job does when it runs.
//!
//! **To add a kind:** its line in `domain::job::Kind` (with its rules) and in `common::subjects`, a file here with a [`Job`],
//! one line in [`Registry::new`], and its tests in `tests/jobs/`.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_common::domain::job::{Claimed, Kind, Outcome};
use crier_common::domain::plan::Plans;
use crier_common::http::Guard;
use crier_common::mail::Mailer;
use crier_common::media::Library;
use crier_common::platforms::Registry as Platforms;
use crier_common::store::{Result, Store, Tx};
use crier_common::webhooks::sender::Sender;

use crate::engine::Run;

mod deliver_webhook;
pub mod fetch_feed;
mod import_media;
mod noop;
mod publish_target;
mod send_mail;

pub use import_media::IMPORT_TIMEOUT;

/// What a kind does. `run` holds no transaction while it waits for others; what it brought about is written by the
/// [`Ending`] that it gives.
#[async_trait]
pub trait Job: Send + Sync {
    fn kind(&self) -> Kind;

    /// An error is one of the database: the job is tried again.
    async fn run(&self, run: &Run) -> Result<Box<dyn Ending>>;

    /// Writes the ends of several runs, in the transaction that settles them; one outcome each. A kind that ends often
    /// does so in a few statements for all of them.
    async fn end(&self, tx: &mut Tx, ends: &[End]) -> Result<Vec<Outcome>> {
        let mut outcomes = Vec::with_capacity(ends.len());
        for (job, ending) in ends {
            outcomes.push(ending.write(tx, job).await?);
        }
        Ok(outcomes)
    }

    /// How many ends of this kind share a transaction at most; more where [`Job::end`] takes a few statements for all.
    fn ends_at_once(&self) -> usize {
        12
    }

    /// Takes back what a run counted that a stop broke off outside of a call, in the transaction that hands its job back.
    async fn hand_back(&self, _tx: &mut Tx, _run: &Run) -> Result<()> {
        Ok(())
    }

    /// Takes back what a run marked that ended in an error or a panic, in the transaction that settles it.
    async fn take_back(&self, _tx: &mut Tx, _run: &Run) -> Result<()> {
        Ok(())
    }

    /// After how long a run is tried again that ended in an error or a panic; `attempt` from 1.
    fn pause(&self, attempt: i32) -> TimeDelta {
        TimeDelta::seconds(10) * attempt.clamp(1, 60)
    }
}

/// The pause after an attempt (from 1) by a kind's table of seconds, whose last one holds for all that follow; ± 20 %, by a
/// `jitter` in `[0, 1)`.
fn pause_of(seconds: &[i64], attempt: i32, jitter: f64) -> TimeDelta {
    let index = usize::try_from(attempt - 1).unwrap_or(0).min(seconds.len().saturating_sub(1));
    let pause = seconds.get(index).copied().unwrap_or_default();
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, reason = "a few million milliseconds")]
    let millis = (pause as f64 * 1_000.0 * (0.8 + 0.4 * jitter)) as i64;
    TimeDelta::milliseconds(millis)
}

/// How a run ends, as a value: it is written in the transaction that settles the job, and may be written again when that
/// transaction failed.
#[async_trait]
pub trait Ending: Any + Send + Sync {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome>;

    /// The same end without what came from outside, for a database that refuses the whole. `None`: nothing of the kind's own
    /// is left then, and its subject is told that it could not be finished.
    fn reduced(&self) -> Option<Arc<dyn Ending>> {
        None
    }

    /// What is locked first: ends that share a transaction are written in this order, in every worker.
    fn order(&self) -> i64 {
        0
    }

    /// Called once, after the commit: for metrics.
    fn observe(&self, _outcome: &Outcome) {}
}

/// A run and how it ended.
pub type End = (Claimed, Arc<dyn Ending>);

/// A run that changed nothing but its job.
#[async_trait]
impl Ending for Outcome {
    async fn write(&self, _tx: &mut Tx, _job: &Claimed) -> Result<Outcome> {
        Ok(self.clone())
    }
}

/// What the kinds need.
#[derive(Clone)]
pub struct Deps {
    pub store: Store,
    pub platforms: Arc<Platforms>,
    pub library: Library,
    pub plans: Arc<Plans>,
    /// Judges the addresses that users choose.
    pub guard: Guard,
    pub webhooks: Arc<Sender>,
    pub feeds: Arc<fetch_feed::Fetcher>,
    /// `None`: no mail is sent.
    pub mailer: Option<Arc<Mailer>>,
    /// A post that is later than this is not published any more.
    pub latest_publish: TimeDelta,
    /// The longest that a call to a platform takes.
    pub platform_timeout: TimeDelta,
    /// The longest that the download of an import takes.
    pub import_timeout: Duration,
}

/// The kinds that this worker takes.
#[derive(Clone)]
pub struct Registry(Arc<Vec<Arc<dyn Job>>>);

impl Registry {
    /// Every kind, one line each; `only` narrows it to the kinds named.
    pub fn new(deps: &Deps, only: &[Kind]) -> Self {
        let all: Vec<Arc<dyn Job>> = vec![
            Arc::new(publish_target::PublishTarget::new(deps)),
            Arc::new(deliver_webhook::DeliverWebhook::new(deps)),
            Arc::new(send_mail::SendMail::new(deps)),
            Arc::new(fetch_feed::FetchFeed::new(deps)),
            Arc::new(import_media::ImportMedia::new(deps)),
            Arc::new(noop::Noop),
        ];
        Self::of(all.into_iter().filter(|job| only.contains(&job.kind())))
    }

    /// These kinds, and no others.
    pub fn of(jobs: impl IntoIterator<Item = Arc<dyn Job>>) -> Self {
        Self(Arc::new(jobs.into_iter().collect()))
    }

    pub fn get(&self, kind: Kind) -> Option<Arc<dyn Job>> {
        self.0.iter().find(|job| job.kind() == kind).cloned()
    }

    /// Writes the ends of runs of one kind.
    pub async fn end(&self, tx: &mut Tx, ends: &[End]) -> Result<Vec<Outcome>> {
        match ends.first().and_then(|(job, _)| self.get(job.kind)) {
            Some(kind) => kind.end(tx, ends).await,
            None => Ok(Vec::new()),
        }
    }

    pub fn kinds(&self) -> Vec<Kind> {
        self.0.iter().map(|job| job.kind()).collect()
    }
}
