//! The outcome of a run of `publish_target`: what posts add to [`CallOutcome`].

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};

use super::super::call_outcome::CallOutcome;
use super::deleted;

impl CallOutcome {
    /// Returns the outcome if an earlier call is open and the account cannot be used to query it.
    pub(super) fn unknown_without_account(failure: &Failure) -> Self {
        let message =
            format!("It is unknown whether the platform published this, and Crier cannot check. {}", failure.message);
        Self::Unknown { failure: Failure::of(Category::OutcomeUnknown, message), open: true }
    }

    /// Returns until when the run waits if the operator must change something first.
    pub(super) fn operator_wait(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Retry { at, failure, .. } if failure.waits_for_operator() => *at,
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
