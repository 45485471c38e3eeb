//! Creates the objects that a platform needs before the call (containers), step by step, and waits while the platform
//! processes them.
//!
//! The result of each step is in the marker, which is stored before the next step: a retry, or another worker,
//! continues where the last one stopped and creates nothing twice. A wait uses no slot and no attempt. It ends when the
//! platform reports a result. Before the call, the connector limits it; after the call, [`MAX_WAIT`] does.

use chrono::TimeDelta;
use crier_domain::failure::{Category, Failure};
use crier_platforms::{CallError, StageResult};

use super::super::account_session::unknown_to_transient;
use super::super::call_outcome::CallOutcome;
use super::{Ending, PublishCall, Publisher, Step, Stop, published, stop};
use crate::engine::Run;

/// The maximum number of steps in one run: the images and videos of the largest post (20, on Threads), and the post.
const MAX_STEPS: usize = 50;
/// The maximum time for which a platform may process a post that it has accepted.
const MAX_WAIT: TimeDelta = TimeDelta::hours(24);

impl Publisher {
    /// Creates the objects that the platform needs before the call. Stops if an earlier call published the post after
    /// all, or while the platform is processing.
    pub(super) async fn stage(&self, run: &Run, p: &mut PublishCall) -> Step<()> {
        if !p.session.connector.has_stages(p.post()) {
            return Ok(());
        }
        for _ in 0..MAX_STEPS {
            let mut staged = self.stage_once(run, p).await;
            if let Err(CallError::AuthExpired(failure)) = staged {
                self.refresh(run, p, failure).await?;
                staged = self.stage_once(run, p).await;
            }
            if matches!(staged, Err(CallError::Permanent(_) | CallError::UploadsMissing(_))) {
                self.forget_images(run, p).await?;
            }
            match staged.map_err(|error| self.fail(p, unknown_to_transient(error)))? {
                StageResult::Ready => return Ok(()),
                StageResult::Created(marker) => {
                    p.set_marker(&marker);
                    let mut tx = self.begin_held(run).await?;
                    p.subject.set_marker(&mut tx, &marker).await?;
                    tx.commit().await?;
                }
                StageResult::Pending(pause) => self.wait_for_platform(run, p, pause).await?,
                StageResult::Published(found) => {
                    return Err(published(self.adopt_published(run, p, found).await?));
                }
            }
        }
        let message = "The platform requires too many steps for this post.";
        Err(self.fail(p, CallError::Transient(Failure::of(Category::PlatformError, message))))
    }

    async fn stage_once(&self, run: &Run, p: &PublishCall) -> Result<StageResult, CallError> {
        let deadline = self.timeout.to_std().unwrap_or_default();
        let staged = p.session.connector.stage(&p.session.connector_account, p.post());
        let staged = tokio::time::timeout(deadline, staged);
        match run.wait_without_slot(staged).await {
            Ok(result) => result,
            Err(_) => Err(CallError::network("The platform did not respond in time.")),
        }
    }

    /// Postpones the run while the platform processes the post. Always stops.
    pub(super) async fn wait_for_platform(&self, run: &Run, p: &PublishCall, pause: TimeDelta) -> Step<()> {
        let name = p.session.connector.descriptor().name;
        let mut tx = self.begin_held(run).await?;
        let began = p.subject.call_started_at;
        if began.is_some_and(|began| tx.now - began > MAX_WAIT) {
            let message = format!("{name} accepted this post a day ago but has not reported the result.");
            let failure = Failure::of(Category::OutcomeUnknown, message);
            return Err(stop(CallOutcome::Unknown { failure, open: true }));
        }
        let until = tx.now + pause;
        let failure = Failure::of(Category::PlatformError, format!("{name} is processing this post."));
        p.subject.await_platform(&mut tx, &p.post().marker, &failure, until).await?;
        tx.commit().await?;
        Err(Stop::Ended(Ending::Postponed { until, why: failure.message }))
    }
}
