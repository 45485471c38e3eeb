//! The outcome of a run of `publish_target`: what posts add to [`CallOutcome`].

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};

use super::super::call_outcome::CallOutcome;
use super::deleted;

/// The maximum time that a post waits, without using up attempts, for an operator to fix a problem that makes every
/// call fail.
const MAX_OPERATOR_WAIT: TimeDelta = TimeDelta::days(7);
/// The maximum time that a post waits, without using up attempts, for the end of a daily limit. The limit may be reached
/// again before this post is published, because other posts wait too.
const MAX_LIMIT_WAIT: TimeDelta = TimeDelta::hours(36);

impl CallOutcome {
    /// Returns the outcome if an earlier call is open and the account cannot be used to query it.
    pub(super) fn unknown_without_account(failure: &Failure) -> Self {
        let message =
            format!("It is unknown whether the platform published this, and Crier cannot check. {}", failure.message);
        Self::Unknown { failure: Failure::of(Category::OutcomeUnknown, message), open: true }
    }

    /// Returns until when the run waits without using an attempt, and for how long a post may wait in this way: the
    /// operator must change something first, or a daily limit of the platform is reached.
    pub(super) fn free_wait(&self) -> Option<(DateTime<Utc>, TimeDelta)> {
        match self {
            Self::Retry { at, failure, .. } if failure.waits_for_operator() => at.zip(Some(MAX_OPERATOR_WAIT)),
            Self::Retry { at, failure, .. } if failure.is_daily_limit() => at.zip(Some(MAX_LIMIT_WAIT)),
            _ => None,
        }
    }

    /// Returns the outcome for a deleted post: a retry becomes a failure unless a call has an unknown outcome.
    pub(super) fn for_deleted_post(self) -> Self {
        match self {
            Self::Retry { open: false, .. } => Self::Failed(deleted()),
            other => other,
        }
    }
}
