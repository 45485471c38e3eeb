//! The outcome of a run of `publish_target`: of its call, or of the query about an earlier one.

use chrono::{DateTime, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::post::AttemptOutcome;
use crier_platforms::{CallError, Published};

use super::{deleted, expired};

/// The outcome of a run. `open`: the outcome of a call is unknown, so the next run (a retry, or one that a user
/// requests) reconciles first.
#[derive(Debug, Clone)]
pub enum PublishOutcome {
    Published(Published),
    /// Final.
    Failed(Failure),
    /// Final; the account's access was rejected.
    Expired {
        failure: Failure,
        open: bool,
    },
    /// Final; it may have been published. Not `open` if only a user can find out.
    Unknown {
        failure: Failure,
        open: bool,
    },
    /// Retry at the time given by the platform, else after a backoff.
    Retry {
        at: Option<DateTime<Utc>>,
        failure: Failure,
        open: bool,
    },
}

impl PublishOutcome {
    /// Converts an error of a publish.
    pub(super) fn of(error: CallError, can_reconcile: bool) -> Self {
        match error {
            CallError::RateLimited { until, failure } => Self::Retry { at: until, failure, open: false },
            CallError::AuthExpired(failure) | CallError::Reauth(failure) => Self::Expired { failure, open: false },
            CallError::Permanent(failure) => Self::Failed(failure),
            CallError::Transient(failure) | CallError::UploadsMissing(failure) => {
                Self::Retry { at: None, failure, open: false }
            }
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } if can_reconcile => {
                Self::Retry { at: None, failure, open: true }
            }
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } => Self::unknown(&failure, false),
        }
    }

    /// Converts an error of a query about an earlier call: that call is as open as before.
    pub(super) fn from_reconcile_error(error: CallError) -> Self {
        match error {
            CallError::AuthExpired(failure) | CallError::Reauth(failure) => Self::Expired { failure, open: true },
            CallError::RateLimited { until, failure } => Self::Retry { at: until, failure, open: true },
            CallError::Permanent(failure)
            | CallError::Transient(failure)
            | CallError::UploadsMissing(failure)
            | CallError::Accepted { failure, .. }
            | CallError::Unknown(failure) => Self::Retry { at: None, failure, open: true },
        }
    }

    /// The platform cannot be asked about earlier calls.
    pub(super) fn reconcile_unsupported() -> Self {
        Self::Unknown {
            failure: Failure::of(
                Category::OutcomeUnknown,
                "It is not known whether the platform published this, and it offers no way to find out. Look there, \
                 and publish it again only if it is missing.",
            ),
            open: false,
        }
    }

    /// The account cannot be used to ask about an earlier call.
    pub(super) fn unknown_without_account(failure: &Failure) -> Self {
        Self::Unknown {
            failure: Failure::of(
                Category::OutcomeUnknown,
                format!(
                    "It is not known whether the platform published this, and it cannot be asked. {}",
                    failure.message
                ),
            ),
            open: true,
        }
    }

    fn unknown(failure: &Failure, open: bool) -> Self {
        let message = format!(
            "{} It may have been published all the same: look at the platform, and publish it again only if it is \
             missing.",
            failure.message
        );
        let platform_code = failure.platform_code.clone();
        Self::Unknown { failure: Failure { platform_code, ..Failure::of(Category::OutcomeUnknown, message) }, open }
    }

    /// Returns until when the run waits, if the operator has to change something first.
    pub(super) fn operator_wait(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Retry { at, failure, .. } if failure.waits_for_operator() => *at,
            _ => None,
        }
    }

    /// Returns the outcome when no attempt is left.
    pub(super) fn exhausted(&self) -> Self {
        match self {
            Self::Retry { failure, open: true, .. } => Self::unknown(failure, true),
            Self::Retry { failure, .. } => Self::Failed(failure.clone()),
            other => other.clone(),
        }
    }

    /// Returns the outcome when the rejected credentials were replaced meanwhile: retries with the new ones.
    pub(super) fn with_new_credentials(&self, now: DateTime<Utc>) -> Self {
        match self {
            Self::Expired { open, .. } => Self::Retry {
                at: Some(now),
                failure: Failure::with_code(
                    Category::PlatformError,
                    "credentials_replaced",
                    "The account was connected anew while this was being published with its earlier credentials; it \
                     is tried with the new ones.",
                ),
                open: *open,
            },
            other => other.clone(),
        }
    }

    /// Returns the outcome for a deleted post: no call has an unknown outcome, so a retry becomes a failure.
    pub(super) fn for_deleted_post(&self) -> Self {
        match self {
            Self::Retry { open: false, .. } => Self::Failed(deleted()),
            other => other.clone(),
        }
    }

    /// Returns the same outcome without data from the platform.
    pub(super) fn without_platform_data(&self) -> Self {
        match self {
            Self::Published(published) => Self::Published(published.minimal()),
            Self::Failed(failure) => Self::Failed(failure.without_details()),
            Self::Expired { failure, open } => Self::Expired { failure: failure.without_details(), open: *open },
            Self::Unknown { failure, open } => Self::Unknown { failure: failure.without_details(), open: *open },
            Self::Retry { at, failure, open } => {
                Self::Retry { at: *at, failure: failure.without_details(), open: *open }
            }
        }
    }

    /// Returns the attempt's outcome and error.
    pub(super) fn outcome_and_error(&self) -> (AttemptOutcome, Option<Failure>) {
        match self {
            Self::Published(_) => (AttemptOutcome::Published, None),
            Self::Failed(failure) => (AttemptOutcome::Failed, Some(failure.clone())),
            Self::Expired { failure, .. } => {
                let expired_error =
                    Failure { platform_code: failure.platform_code.clone(), ..expired(&failure.message) };
                (AttemptOutcome::Failed, Some(expired_error))
            }
            Self::Unknown { failure, .. } => (AttemptOutcome::Unknown, Some(failure.clone())),
            Self::Retry { failure, .. } => (AttemptOutcome::Retried, Some(failure.clone())),
        }
    }
}
