//! The result of a run of `publish_comment`, and the writes for it.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_domain::post::{AttemptOutcome, FirstCommentStatus, Target};
use crier_jobs::comments;
use crier_store::first_comments::CommentOutcome;
use crier_store::posts::{self, LockedPost};
use crier_store::{Result, Tx, jobs};
use crier_telemetry::metrics;

use super::super::RunResult;
use super::super::call_outcome::{CallOutcome, expire_or_pause_account, next_attempt};
use super::super::publisher::Subject;
use super::ACTION;

/// The result that is written when the job is settled.
#[derive(Clone)]
pub enum CommentRunResult {
    Ended(Box<EndedComment>),
    /// The platform is processing the comment. The comment was already updated.
    Postponed {
        until: DateTime<Utc>,
        why: String,
    },
}

/// The result of a run that called the platform, or that cannot call it.
#[derive(Clone)]
pub struct EndedComment {
    target: Target,
    subject: Subject,
    outcome: CallOutcome,
    /// The version of the credentials that the call used.
    credentials_version: Option<i64>,
    /// The maximum duration of a call. A query about a call is reliable only after that.
    timeout: TimeDelta,
    jitter: f64,
}

impl CommentRunResult {
    pub(super) fn new(
        target: Target,
        subject: Subject,
        outcome: CallOutcome,
        credentials_version: Option<i64>,
        timeout: TimeDelta,
    ) -> Self {
        let jitter = crier_base::random::unit();
        Self::Ended(Box::new(EndedComment { target, subject, outcome, credentials_version, timeout, jitter }))
    }

    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        match self {
            Self::Ended(ended) => ended.write(tx, job).await,
            Self::Postponed { until, why } => {
                jobs::refund_attempt(tx, job).await?;
                Ok(Outcome::RetryAt(*until, why.clone()))
            }
        }
    }

    fn ended(&self) -> Option<&EndedComment> {
        match self {
            Self::Ended(ended) => Some(ended),
            Self::Postponed { .. } => None,
        }
    }
}

impl EndedComment {
    async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        // Always lock the posts before their targets; the fixed order prevents deadlocks.
        let Some(LockedPost { post, .. }) = posts::lock_of_target(tx, self.target.id).await? else {
            return Ok(Outcome::Cancelled("the post no longer exists".into()));
        };
        let account = (self.target.account_id, self.credentials_version);
        let mut outcome = expire_or_pause_account(tx, (ACTION, &self.outcome), account, trace).await?;
        let mut next = None;
        if let CallOutcome::Retry { open, .. } = &outcome {
            let open_until = self.subject.call_started_at.filter(|_| *open).map(|began| began + self.timeout);
            next = next_attempt(job, &outcome, open_until, self.jitter, tx.now);
            if next.is_none() {
                outcome = outcome.exhausted(ACTION);
            }
        }
        let end = comment_end(&outcome, next, tx.now);
        comments::end(tx, &post, &self.target, &end, trace).await?;
        Ok(match next {
            Some(at) => Outcome::RetryAt(at, end.error.map(|error| error.message).unwrap_or_default()),
            None => Outcome::Done,
        })
    }
}

fn comment_end(outcome: &CallOutcome, next_attempt_at: Option<DateTime<Utc>>, now: DateTime<Utc>) -> CommentOutcome {
    let published = match outcome {
        CallOutcome::Published(published) => Some(published),
        _ => None,
    };
    let error = outcome.error();
    CommentOutcome {
        status: match outcome {
            CallOutcome::Published(_) => FirstCommentStatus::Published,
            CallOutcome::Retry { .. } => FirstCommentStatus::Pending,
            CallOutcome::Failed(failure) if failure.code == "not_supported" => FirstCommentStatus::NotSupported,
            CallOutcome::Failed(_) | CallOutcome::Expired { .. } | CallOutcome::Unknown { .. } => {
                FirstCommentStatus::Failed
            }
        },
        external_id: outcome.external_id().map(str::to_owned),
        url: published.and_then(|published| published.url.clone()),
        error,
        next_attempt_at,
        published_at: published.map(|_| now),
        call_open: outcome.is_open(),
    }
}

impl RunResult for CommentRunResult {
    fn order(&self) -> i64 {
        self.ended().map_or(0, |ended| ended.target.post_id)
    }

    fn reduced(&self) -> Option<Self> {
        let ended = self.ended()?;
        let outcome = ended.outcome.without_platform_data();
        Some(Self::Ended(Box::new(EndedComment { outcome, ..ended.clone() })))
    }

    fn observe(&self, outcome: &Outcome) {
        let Some(ended) = self.ended() else { return };
        let platform = ended.target.platform.as_str();
        let outcome = match outcome {
            Outcome::RetryAt(..) => AttemptOutcome::Retried,
            _ => ended.outcome.clone().exhausted(ACTION).of_attempt(),
        };
        metrics::first_comment(platform, outcome);
        if ended.outcome.is_rate_limited() {
            metrics::platform_rate_limited(platform);
        }
    }
}
