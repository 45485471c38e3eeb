//! `publish_target`: publishes one post on one account, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock, shared by runs that begin together: checks that the post should
//!    still be published and that the account can be used, then stores the marker and the start time of the call. If
//!    the platform has a daily cap, a call over it is postponed.
//! 2. *Reconcile.* If the outcome of an earlier call is unknown (its process died, the connection broke), queries the
//!    platform first. If the post exists, the target is published. If it does not exist, and the earlier call's
//!    deadline has passed, calls again. If the platform cannot tell, the target ends as `outcome_unknown` and a user
//!    decides.
//! 3. *Stage.* Loads and uploads images that the platform does not have yet, makes the link card (`card.rs`), and
//!    creates other objects that the platform needs before the call (`stage.rs`).
//! 4. *Call.* If the platform accepts the post and publishes it later, the run is postponed, and a later run queries
//!    the platform as after an unknown outcome.
//! 5. *Settle*, in the transaction that settles the job, shared by runs that end together: writes the target, the
//!    attempt, the post, the account, the lane and the event.
//!
//! A step ends the run early with a [`Stop`].
//!
//! Only the call itself can have an unknown outcome: a run that is aborted before it (at shutdown) is released and uses
//! up no attempt.
//!
//! Each step checks the lease, so a worker that lost it while frozen between two steps makes no call.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::Outcome;
use crier_domain::media::Asset;
use crier_domain::post::Target;
use crier_media::Library;
use crier_media::budget::MemoryPermit;
use crier_platforms::link_card::{CardReader, CardRequest};
use crier_platforms::{CallError, ConnectorRegistry, OutgoingPost};
use crier_store::jobs::engine as rows;
use crier_store::{Batcher, Result, Store, Tx, posts, targets};

use self::prepare::Preparation;
use self::run_result::{PublishRunResult, TargetResult, write_all};
use super::account_session::{AccountSession, RefreshError};
use super::call_outcome::{self, CallAction, CallOutcome};
use super::{Deps, FinishedRun, Job, RunError, Stop};
use crate::engine::Run;

mod call;
mod card;
mod daily_cap;
mod images;
mod outcome;
mod prepare;
mod run_result;
mod stage;

const ACTION: CallAction = CallAction::Publish;
/// Publishing may take several requests (images, lookups), each with the platform's timeout. All of them must end
/// within this many timeouts.
const PUBLISH_CALLS: i32 = 2;

pub struct PublishTarget {
    store: Store,
    platforms: Arc<ConnectorRegistry>,
    library: Library,
    cards: CardReader,
    prepares: Batcher<Run, Option<Step<Prepared>>>,
    preparation: Preparation,
    /// The maximum duration of all requests of a call. A post that does not exist after that will not be published.
    publish_timeout: TimeDelta,
}

/// Everything that the call needs.
struct Prepared {
    /// `call_started_at` is the start of the current call, or of a call that an earlier run left open; `None` if images
    /// must be uploaded or a link card made first.
    target: Target,
    started_at: DateTime<Utc>,
    session: AccountSession,
    outgoing: OutgoingPost,
    /// The post's images in the media library.
    assets: Vec<Asset>,
    /// The link card to make, and its image if that is from the media library.
    card: Option<CardRequest>,
    card_image: Option<Asset>,
    /// The permit for the memory of the images, if they are part of the call.
    memory: Option<MemoryPermit>,
    /// Whether the outcome of an earlier call is unknown.
    has_open_call: bool,
    /// Why the post must not be published any more: the result of the run unless the earlier call succeeded.
    skip_reason: Option<Failure>,
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<PublishRunResult>>;

impl PublishTarget {
    pub fn new(deps: &Deps) -> Self {
        let preparation = Preparation::new(deps);
        Self {
            store: deps.store.clone(),
            platforms: deps.platforms.clone(),
            library: deps.library.clone(),
            cards: CardReader::new(deps.guard.clone()),
            prepares: preparation.start_batches(),
            publish_timeout: deps.platform_timeout * PUBLISH_CALLS,
            preparation,
        }
    }

    /// Runs all steps.
    async fn publish_target(&self, run: &Run) -> Step<PublishRunResult> {
        let mut p = self.prepare(run).await?;
        if p.has_open_call {
            self.reconcile(run, &mut p).await?;
        }
        if p.target.call_started_at.is_none() {
            self.prepare_images(run, &mut p).await?;
            self.prepare_card(run, &mut p).await?;
            self.stage(run, &mut p).await?;
            self.store_call_marker(run, &mut p, true).await?;
        }
        let published = self.publish(run, &mut p).await?;
        Ok(self.result(&p, CallOutcome::Published(published)))
    }

    fn result(&self, p: &Prepared, outcome: CallOutcome) -> PublishRunResult {
        TargetResult::of(p, outcome, self.publish_timeout).into()
    }

    /// Returns the stop for a platform's error.
    fn fail(&self, p: &Prepared, error: CallError) -> Stop<PublishRunResult> {
        let can_reconcile = p.session.connector.can_reconcile();
        Stop::Ended(self.result(p, CallOutcome::of(ACTION, error, p.has_open_call, can_reconcile)))
    }

    /// Renews the account's tokens; `rejection` is the platform's error for the old ones.
    async fn refresh(&self, run: &Run, p: &mut Prepared, rejection: Failure) -> Step<()> {
        p.session.refresh(run, rejection).await.map_err(|error| match error {
            RefreshError::Database(error) => Stop::from(error),
            RefreshError::Call(error) => self.fail(p, error),
        })
    }

    /// Begins a transaction. Stops if the lease was lost.
    async fn begin_held(&self, run: &Run) -> Step<Tx> {
        let mut tx = self.store.begin().await?;
        if rows::still_held(&mut tx, &run.job).await? { Ok(tx) } else { Err(RunError::lease_lost().into()) }
    }

    /// Returns the deadline of a call that started at `began`, whatever its outcome.
    fn call_deadline(&self, began: DateTime<Utc>) -> DateTime<Utc> {
        began + self.publish_timeout
    }
}

#[async_trait]
impl Job for PublishTarget {
    type Result = PublishRunResult;

    /// Each result may emit an event, and on SQLite all other writers wait.
    const SETTLES_TOGETHER: usize = 32;

    const STARTS_WITHOUT_SLOT: bool = true;

    async fn run(&self, run: &Run) -> std::result::Result<PublishRunResult, RunError> {
        match self.publish_target(run).await {
            Ok(result) | Err(Stop::Ended(result)) => Ok(result),
            Err(Stop::Failed(error)) => Err(error),
        }
    }

    async fn settle(&self, tx: &mut Tx, runs: &[FinishedRun<'_, PublishRunResult>]) -> Result<Vec<Outcome>> {
        write_all(tx, runs).await
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
