//! `publish_target`: publishes one post on one account, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock, which runs that come together share: checks that the post is
//!    still wanted and the account can be used, then stores the marker and the start time of the call before it is made.
//!    If the platform has a daily cap, a call over it is postponed.
//! 2. *Reconcile.* If the outcome of an earlier call is unknown (its process died, the connection broke), asks the
//!    platform first: if the post is there, the target is done; if it is not, and the earlier call's deadline is over,
//!    calls again; if the platform does not know, the target ends as `outcome_unknown` and a user decides.
//! 3. *Bring.* Loads and uploads pictures that the platform does not have yet, and makes what else it needs first
//!    (`stage.rs`); only then does the call start.
//! 4. *Call.* A platform may accept the post and publish it later: then it is asked again, as after an unknown outcome.
//! 5. *End*, in the transaction that settles the job, which runs that end together share: writes target, attempt, post,
//!    account, lane, event.
//!
//! A step ends the run early with a [`Stop`].
//!
//! Only the call itself can have an unknown outcome: a run that is aborted before it (at shutdown) is released and uses
//! up no attempt.
//!
//! Each step checks the lease: a worker that lost it while frozen between two steps makes no call.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_domain::media::Asset;
use crier_domain::post::Target;
use crier_media::Library;
use crier_media::budget::MemoryPermit;
use crier_platforms::{CallError, ConnectorRegistry, OutgoingPost};
use crier_store::jobs::engine as rows;
use crier_store::{Batcher, Result, Store, StoreError, Tx, posts, targets};

pub use self::ending::PublishEnd;
use self::pacing::PostponedRun;
use self::prepare::{Preparation, SkippedRun};
use super::account_session::{AccountSession, RefreshError};
use super::call_outcome::{self, CallAction, CallOutcome};
use super::{Deps, FinishedRun, Job, RunResult};
use crate::engine::Run;

mod call;
mod ending;
mod outcome;
mod pacing;
mod pictures;
mod prepare;
mod stage;

const ACTION: CallAction = CallAction::Publish;
/// A publish may be several requests (pictures, lookups), each with the platform's timeout; all of them must end within
/// this many timeouts.
const PUBLISH_CALLS: i32 = 2;
/// How many results share a transaction at most: each may send an event, and on SQLite all other writers wait for it.
const MAX_RESULTS: usize = 32;

pub struct PublishTarget {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    library: Library,
    prepares: Batcher<Run, Option<Step<Prepared>>>,
    preparation: Preparation,
    /// The maximum duration of a whole publish: a post that is not there after that never will be.
    publish_timeout: TimeDelta,
}

/// Everything that the call needs.
struct Prepared {
    /// `call_started_at` is the start of the current call, or of one that an earlier run left open; `None` if pictures
    /// come first.
    target: Target,
    started_at: DateTime<Utc>,
    session: AccountSession,
    outgoing: OutgoingPost,
    /// Its pictures in the library.
    assets: Vec<Asset>,
    /// The memory budget of their bytes, if they are part of the call.
    share: Option<MemoryPermit>,
    /// Whether the outcome of an earlier call is unknown.
    has_open_call: bool,
    /// Why it must not be published (any more): the result of the run unless the earlier call succeeded.
    skip_reason: Option<Failure>,
}

/// Why a run makes no (further) call: the error of every step. [`PublishTarget::run`] maps it to the result to write.
enum Stop {
    /// Another worker has the job by now.
    LeaseLost,
    /// The post is not to be published now.
    Skipped(&'static str),
    /// To be continued later, without an attempt being used: the account's daily cap is reached, or the platform is at
    /// work.
    Postponed(PostponedRun),
    /// The outcome is known.
    Ended(Box<PublishEnd>),
    Database(StoreError),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Database(error)
    }
}

type Step<T> = std::result::Result<T, Stop>;

impl PublishTarget {
    pub fn new(deps: &Deps) -> Self {
        let preparation = Preparation::new(deps);
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            prepares: preparation.start_batches(),
            publish_timeout: deps.platform_timeout * PUBLISH_CALLS,
            preparation,
        }
    }

    /// The steps of a run.
    async fn publish_target(&self, run: &Run) -> Step<Box<PublishEnd>> {
        let mut p = self.prepare(run).await?;
        if p.has_open_call {
            self.reconcile(run, &mut p).await?;
        }
        if p.target.call_started_at.is_none() {
            self.prepare_images(run, &mut p).await?;
            self.stage(run, &mut p).await?;
            self.store_call_marker(run, &mut p, true).await?;
        }
        let published = self.publish(run, &mut p).await?;
        Ok(self.end(&p, CallOutcome::Published(published)))
    }

    fn end(&self, p: &Prepared, outcome: CallOutcome) -> Box<PublishEnd> {
        Box::new(PublishEnd::of(p, outcome, self.publish_timeout))
    }

    /// Stops a run because of a platform's error.
    fn fail(&self, p: &Prepared, error: CallError) -> Stop {
        let can_reconcile = p.session.connector.can_reconcile();
        Stop::Ended(self.end(p, CallOutcome::of(ACTION, error, p.has_open_call, can_reconcile)))
    }

    /// Renews the account's tokens; `rejection` is the platform's error for the old ones.
    async fn refresh(&self, run: &Run, p: &mut Prepared, rejection: Failure) -> Step<()> {
        p.session.refresh(run, rejection).await.map_err(|error| match error {
            RefreshError::Database(error) => Stop::Database(error),
            RefreshError::Call(error) => self.fail(p, error),
        })
    }

    /// Begins a transaction; stops if the lease was lost.
    async fn begin_held(&self, run: &Run) -> Step<Tx> {
        let mut tx = self.store.begin().await?;
        if rows::still_held(&mut tx, &run.job).await? { Ok(tx) } else { Err(Stop::LeaseLost) }
    }

    /// Returns the deadline of a call that started at `began`, whatever its outcome.
    fn call_deadline(&self, began: DateTime<Utc>) -> DateTime<Utc> {
        began + self.publish_timeout
    }
}

#[async_trait]
impl Job for PublishTarget {
    async fn run(&self, run: &Run) -> Result<Box<dyn RunResult>> {
        Ok(match self.publish_target(run).await {
            Ok(end) | Err(Stop::Ended(end)) => end,
            Err(Stop::Skipped(why)) => Box::new(SkippedRun { why }),
            Err(Stop::Postponed(postponed)) => Box::new(postponed),
            // The result is discarded, so this reason is never stored.
            Err(Stop::LeaseLost) => Box::new(Outcome::Cancelled("the lease was lost".to_owned())),
            Err(Stop::Database(error)) => return Err(error),
        })
    }

    async fn write_results(&self, tx: &mut Tx, ends: &[FinishedRun]) -> Result<Vec<Outcome>> {
        ending::write_results(tx, ends).await
    }

    fn max_results_per_transaction(&self) -> usize {
        MAX_RESULTS
    }

    fn may_start_without_slot(&self) -> bool {
        true
    }

    async fn undo_aborted(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        self.undo_failed(tx, run).await?;
        if run.is_counted() { targets::refund_attempt(tx, run.job.subject_id).await } else { Ok(()) }
    }

    async fn undo_failed(&self, tx: &mut Tx, run: &Run) -> Result<()> {
        if !run.has_unused_marker() || posts::lock_of_target(tx, run.job.subject_id).await?.is_none() {
            return Ok(());
        }
        targets::clear_call(tx, run.job.subject_id).await
    }

    fn backoff(&self, attempt: i32) -> TimeDelta {
        call_outcome::pause(attempt, crier_base::random::unit())
    }
}

fn deleted() -> Failure {
    Failure::with_code(Category::Missed, "post_deleted", "The post was deleted before it was published here.")
}
