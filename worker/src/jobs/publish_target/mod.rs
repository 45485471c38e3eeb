//! `publish_target`: publishes one post on one account, at most once.
//!
//! 1. *Prepare*, one transaction under the post's lock, shared by runs that begin together: checks that the post should
//!    still be published and that the account can be used, then stores the marker and the start time of the call. If
//!    the platform has a daily cap, a call over it is postponed.
//! 2. *Publish*, by the steps of [`publisher`](super::publisher).
//! 3. *Settle*, in the transaction that settles the job, shared by runs that end together: writes the target, the
//!    attempt, the post, the account, the lane and the event.
//!
//! A run publishes one part of a thread: the next one. When it is stored, the job runs again for the part after it, as
//! if it were a post of its own: with its own marker, attempts and images. So whatever happens to a run, each part is
//! published at most once, and a retry continues at the part that failed. If the platform publishes whole threads in one
//! call, one run publishes all parts.

use async_trait::async_trait;
use chrono::TimeDelta;
use crier_domain::job::Outcome;
use crier_domain::post::Target;
use crier_store::{Batcher, Result, Tx, posts, targets};

use self::prepare::Preparation;
use self::run_result::{PublishRunResult, write_all};
use super::call_outcome::{self, CallAction};
use super::publisher::{PublishCall, Publisher, deleted};
use super::{Deps, FinishedRun, Job, RunError, Stop};
use crate::engine::Run;

mod outcome;
mod parts;
mod prepare;
mod run_result;

const ACTION: CallAction = CallAction::Publish;

pub struct PublishTarget {
    publisher: Publisher,
    prepares: Batcher<Run, Option<Step<Prepared>>>,
    preparation: Preparation,
}

/// A target whose run may make its call.
struct Prepared {
    target: Target,
    started_at: chrono::DateTime<chrono::Utc>,
    call: PublishCall,
}

/// The result of a step.
type Step<T> = std::result::Result<T, Stop<PublishRunResult>>;

impl PublishTarget {
    pub fn new(deps: &Deps) -> Self {
        let publisher = Publisher::new(deps);
        let preparation = Preparation::new(publisher.clone(), deps.latest_publish);
        Self { publisher, prepares: preparation.start_batches(), preparation }
    }

    async fn publish_target(&self, run: &Run) -> Step<PublishRunResult> {
        let mut p = self.prepare(run).await?;
        let ending = self.publisher.run(run, &mut p.call).await?;
        let timeout = self.publisher.call_duration(&p.call);
        Ok(PublishRunResult::of(p, ending, timeout))
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
