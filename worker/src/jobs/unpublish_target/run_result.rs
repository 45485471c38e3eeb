//! The result of a run of `unpublish_target`, and the writes for it.

use crier_domain::failure::Failure;
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::post::Target;
use crier_jobs::unpublishing::{self, UnpublishOutcome};
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Tx};
use crier_telemetry::metrics;

use super::super::RunResult;
use super::super::call_outcome::{CallOutcome, expire_or_pause_account, next_attempt};
use super::{ACTION, Prepared};

/// The result that is written when the job is settled.
#[derive(Clone)]
pub struct UnpublishRunResult {
    /// With the parts that were deleted.
    target: Target,
    /// Why the post, or a part of it, remains on the platform. `None` if nothing remains.
    failure: Option<CallOutcome>,
    /// The version of the credentials that the call used.
    credentials_version: Option<i64>,
    jitter: f64,
}

impl UnpublishRunResult {
    pub(super) fn of(p: &Prepared, failure: Option<CallOutcome>) -> Self {
        let credentials_version = Some(p.session.account.credentials_version);
        Self { target: p.target.clone(), failure, credentials_version, jitter: crier_base::random::unit() }
    }

    /// Returns the result of a run that made no call.
    pub(super) fn without_call(target: Target, outcome: CallOutcome) -> Self {
        Self { target, failure: Some(outcome), credentials_version: None, jitter: crier_base::random::unit() }
    }

    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        let Some(LockedPost { post, .. }) = posts::lock_of_target(tx, self.target.id).await? else {
            return Ok(Outcome::Cancelled("the post no longer exists".into()));
        };
        let account = (self.target.account_id, self.credentials_version);
        let failure = match &self.failure {
            Some(failure) => Some(expire_or_pause_account(tx, (ACTION, failure), account, trace).await?),
            None => None,
        };
        let next = failure.as_ref().and_then(|failure| next_attempt(job, failure, None, self.jitter, tx.now));
        let end = match (failure.and_then(|failure| failure.error()), next) {
            (None, _) => UnpublishOutcome::Unpublished,
            (Some(error), Some(next_attempt_at)) => UnpublishOutcome::Waiting { error, next_attempt_at },
            (Some(error), None) => UnpublishOutcome::Failed(self.with_rest(error)),
        };
        unpublishing::end(tx, &post, &self.target, &end, trace).await?;
        Ok(match end {
            UnpublishOutcome::Waiting { error, next_attempt_at } => Outcome::RetryAt(next_attempt_at, error.message),
            UnpublishOutcome::Unpublished | UnpublishOutcome::Failed(_) => Outcome::Done,
        })
    }

    /// Adds to an error how many parts of the thread remain, if some were deleted.
    fn with_rest(&self, error: Failure) -> Failure {
        let parts = &self.target.published_parts;
        let rest = parts.iter().filter(|part| !part.is_unpublished).count();
        if rest == parts.len() {
            return error;
        }
        let message =
            format!("{} Parts of the thread that remain on the platform: {rest} of {}.", error.message, parts.len());
        Failure { message, ..error }.checked()
    }
}

impl RunResult for UnpublishRunResult {
    fn reduced(&self) -> Option<Self> {
        let failure = self.failure.as_ref().map(CallOutcome::without_platform_data);
        Some(Self { failure, ..self.clone() })
    }

    fn observe(&self, _outcome: &Outcome) {
        if self.failure.as_ref().is_some_and(CallOutcome::is_rate_limited) {
            metrics::platform_rate_limited(self.target.platform.as_str());
        }
    }
}
