//! The outcome of a call that makes something public (a post, a reply), or of the query about an earlier call.
//!
//! Shared by the kinds whose calls cannot be undone. They differ in the texts for the user ([`CallAction`]), and in
//! what they write.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{ClaimedJob, Lane};
use crier_domain::post::AttemptOutcome;
use crier_platforms::{CallError, Published};
use crier_store::jobs::lanes;
use crier_store::{Result, Tx, accounts};

use super::account_session::expired;
use super::backoff_from_table;

/// The backoff between attempts (contract, section 3, Post), each ± 20 %.
const PAUSES: [Duration; 7] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
    Duration::from_hours(2),
];

/// The maximum time for which a rate limit of a call that only reads pauses the posts of its account.
const MAX_READ_PAUSE: TimeDelta = TimeDelta::minutes(15);

/// The action of a call, for the texts of errors.
#[derive(Clone, Copy, Debug)]
pub enum CallAction {
    Publish,
    Comment,
    Reply,
    Unpublish,
}

impl CallAction {
    /// Returns the past participle of the action.
    fn past_participle(self) -> &'static str {
        match self {
            Self::Publish | Self::Comment => "published",
            Self::Reply => "sent",
            Self::Unpublish => "deleted from the platform",
        }
    }

    /// Returns the instruction to repeat the action.
    fn repeat_instruction(self) -> &'static str {
        match self {
            Self::Publish => "publish it again",
            Self::Comment => "add it there",
            Self::Reply => "reply again",
            Self::Unpublish => "unpublish it again",
        }
    }
}

/// The outcome of a run. `open`: the outcome of a call is unknown, so the next run (a retry, or one that a user
/// requests) reconciles first.
#[derive(Clone, Debug)]
pub enum CallOutcome {
    Published(Published),
    /// Final.
    Failed(Failure),
    /// Final; the account's access was rejected.
    Expired {
        failure: Failure,
        open: bool,
    },
    /// Final; the call may have succeeded. Not `open` if only a user can find out.
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

impl CallOutcome {
    /// Converts the error of a call. If `open`, it is the error of a query about an earlier call, which stays open.
    pub fn of(action: CallAction, error: CallError, open: bool, can_reconcile: bool) -> Self {
        match error {
            CallError::RateLimited { until, failure } => Self::Retry { at: until, failure, open },
            CallError::AuthExpired(failure) | CallError::Reauth(failure) => Self::Expired { failure, open },
            CallError::Permanent(failure) | CallError::Duplicate { failure, .. } if !open => Self::Failed(failure),
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } if !open && !can_reconcile => {
                Self::unknown(action, &failure, false)
            }
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } => {
                Self::Retry { at: None, failure, open: true }
            }
            CallError::Permanent(failure)
            | CallError::Duplicate { failure, .. }
            | CallError::Transient(failure)
            | CallError::ParentMissing(failure)
            | CallError::UploadsMissing(failure) => Self::Retry { at: None, failure, open },
        }
    }

    /// Returns the outcome if the platform cannot look up earlier calls.
    pub fn reconcile_unsupported(action: CallAction) -> Self {
        let message = format!(
            "It is unknown whether this was {}, and the platform offers no way to find out. Check the platform, and \
             {} only if it is missing.",
            action.past_participle(),
            action.repeat_instruction()
        );
        Self::Unknown { failure: Failure::of(Category::OutcomeUnknown, message), open: false }
    }

    /// Returns the outcome if several items on the platform may be the result of the call.
    pub fn ambiguous(action: CallAction) -> Self {
        let message = format!(
            "It is unknown whether this was {}: the platform shows several items with the same text from that time. \
             Check the platform, and {} only if it is missing.",
            action.past_participle(),
            action.repeat_instruction()
        );
        Self::Unknown { failure: Failure::of(Category::OutcomeUnknown, message), open: false }
    }

    /// Returns the outcome if the last error does not tell whether an earlier call succeeded.
    pub fn unknown(action: CallAction, failure: &Failure, open: bool) -> Self {
        let message = format!(
            "{} It may have been {} nevertheless. Check the platform, and {} only if it is missing.",
            failure.message,
            action.past_participle(),
            action.repeat_instruction()
        );
        let platform_code = failure.platform_code.clone();
        Self::Unknown { failure: Failure { platform_code, ..Failure::of(Category::OutcomeUnknown, message) }, open }
    }

    /// Returns the outcome if an earlier call is open and cannot be looked up now.
    pub fn with_open_call(self, action: CallAction) -> Self {
        match self {
            Self::Failed(failure) => Self::unknown(action, &failure, true),
            Self::Retry { at, failure, .. } => Self::Retry { at, failure, open: true },
            other => other,
        }
    }

    /// Returns the outcome when no attempts are left.
    pub fn exhausted(self, action: CallAction) -> Self {
        match self {
            Self::Retry { failure, open: true, .. } => Self::unknown(action, &failure, true),
            Self::Retry { failure, .. } => Self::Failed(failure),
            other => other,
        }
    }

    /// Returns the outcome if the rejected credentials were replaced meanwhile: a retry with the new ones.
    pub fn with_new_credentials(self, action: CallAction, now: DateTime<Utc>) -> Self {
        match self {
            Self::Expired { open, .. } => {
                let message = format!(
                    "The account was reconnected while this was being {} with the previous credentials. Crier retries \
                     with the new ones.",
                    action.past_participle()
                );
                let failure = Failure::with_code(Category::PlatformError, "credentials_replaced", message);
                Self::Retry { at: Some(now), failure, open }
            }
            other => other,
        }
    }

    /// Returns the same outcome without data from the platform.
    pub fn without_platform_data(&self) -> Self {
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

    /// Returns the error for the user.
    pub fn error(&self) -> Option<Failure> {
        match self {
            Self::Published(_) => None,
            Self::Expired { failure, .. } => {
                Some(Failure { platform_code: failure.platform_code.clone(), ..expired(&failure.message) })
            }
            Self::Failed(failure) | Self::Unknown { failure, .. } | Self::Retry { failure, .. } => {
                Some(failure.clone())
            }
        }
    }

    /// Whether the outcome of a call stays unknown.
    pub fn is_open(&self) -> bool {
        match self {
            Self::Published(_) | Self::Failed(_) => false,
            Self::Expired { open, .. } | Self::Unknown { open, .. } | Self::Retry { open, .. } => *open,
        }
    }

    pub fn is_rate_limited(&self) -> bool {
        matches!(self, Self::Retry { failure, .. } if failure.category == Category::RateLimited)
    }

    /// Returns until when the whole account waits. A daily limit may be that of videos, and delays only its post.
    fn account_pause(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::Retry { at, failure, .. } if self.is_rate_limited() && !failure.is_daily_limit() => *at,
            _ => None,
        }
    }

    /// Returns the outcome of the attempt.
    pub fn of_attempt(&self) -> AttemptOutcome {
        match self {
            Self::Published(_) => AttemptOutcome::Published,
            Self::Failed(_) | Self::Expired { .. } => AttemptOutcome::Failed,
            Self::Unknown { .. } => AttemptOutcome::Unknown,
            Self::Retry { .. } => AttemptOutcome::Retried,
        }
    }

    /// Returns the platform's id of the published post or reply.
    pub fn external_id(&self) -> Option<&str> {
        match self {
            Self::Published(published) => Some(published.external_id.as_str()).filter(|id| !id.is_empty()),
            _ => None,
        }
    }
}

/// Marks the account as expired if its access was rejected; pauses its lane in all replicas if it is rate limited.
/// `version` is the version of the credentials of the call, `None` if there was no call. Returns the outcome for the
/// account's current state.
pub async fn expire_or_pause_account(
    tx: &mut Tx,
    (action, outcome): (CallAction, &CallOutcome),
    (account_id, version): (i64, Option<i64>),
    trace: Option<&str>,
) -> Result<CallOutcome> {
    if let (CallOutcome::Expired { failure, .. }, Some(version)) = (outcome, version) {
        let is_current = crier_jobs::accounts::expire(tx, account_id, version, &failure.message, trace).await?;
        if !is_current && accounts::has_newer(tx, account_id, version).await? {
            return Ok(outcome.clone().with_new_credentials(action, tx.now));
        }
    }
    if let Some(until) = outcome.account_pause() {
        lanes::pause_lane(tx, &Lane::Account(account_id).to_string(), until).await?;
    }
    Ok(outcome.clone())
}

/// Pauses the lane of an account after a rate limit of a call that only reads. Platforms may limit reading separately and
/// per day, and an API that an operator must enable may be one for reading only. So posts wait for a short time, and not
/// for an operator.
pub async fn pause_after_read(tx: &mut Tx, account_id: i64, until: DateTime<Utc>, failure: &Failure) -> Result<()> {
    if failure.waits_for_operator() {
        return Ok(());
    }
    let until = until.min(tx.now + MAX_READ_PAUSE);
    lanes::pause_lane(tx, &Lane::Account(account_id).to_string(), until).await
}

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

/// Returns the time of the next attempt; `None` if the outcome is final, or if no attempts are left. `open_until` is
/// when a call with an unknown outcome must have ended; a query before that would not be conclusive.
pub fn next_attempt(
    job: &ClaimedJob,
    outcome: &CallOutcome,
    open_until: Option<DateTime<Utc>>,
    jitter: f64,
    now: DateTime<Utc>,
) -> Option<DateTime<Utc>> {
    let CallOutcome::Retry { at, .. } = outcome else { return None };
    if job.attempt >= job.max_attempts {
        return None;
    }
    let next = match at {
        // A platform that requests a second each time would use up all attempts within seconds.
        Some(at) if outcome.is_rate_limited() && job.attempt > 1 => (*at).max(now + pause(job.attempt - 1, jitter)),
        Some(at) => (*at).max(now),
        None => now + pause(job.attempt, jitter),
    };
    Some(open_until.map_or(next, |until| until.max(next)))
}

#[cfg(test)]
mod tests {
    use crier_domain::job::JobKind;

    use super::*;

    /// Returns the seconds until the next attempt after this one, for which the platform requested `requested` seconds.
    fn wait(attempt: i32, category: Category, requested: i64) -> Option<i64> {
        let now = DateTime::UNIX_EPOCH;
        let job = ClaimedJob {
            id: 1,
            kind: JobKind::PublishTarget,
            subject_id: 1,
            lane: None,
            workspace_lane: None,
            attempt,
            max_attempts: 8,
            crashes: 0,
            fence: 1,
            worker: "w".to_owned(),
            run_at: now,
            trace: None,
        };
        let (at, failure) = (Some(now + TimeDelta::seconds(requested)), Failure::of(category, "Wait."));
        let outcome = CallOutcome::Retry { at, failure, open: false };
        next_attempt(&job, &outcome, None, 0.5, now).map(|at| (at - now).num_seconds())
    }

    #[test]
    fn short_pauses_of_a_platform_do_not_use_up_the_attempts() {
        let limited = |attempt, requested| wait(attempt, Category::RateLimited, requested);
        let waits: Vec<_> = (1..=8).map(|attempt| limited(attempt, 1)).collect();
        assert_eq!(waits, [Some(1), Some(10), Some(30), Some(120), Some(600), Some(1_800), Some(3_600), None]);
        assert_eq!([limited(1, -60), limited(2, 900), limited(7, 7_200)], [Some(0), Some(900), Some(7_200)]);
        assert_eq!(wait(5, Category::Network, 1), Some(1), "the end of a call is not a rate limit");
    }

    #[test]
    fn retry_delays_have_jitter_of_a_fifth_and_end_at_two_hours() {
        for (attempt, promised) in (1..).zip(PAUSES) {
            let seconds = i64::try_from(promised.as_secs()).unwrap();
            assert_eq!(pause(attempt, 0.0), TimeDelta::milliseconds(seconds * 800));
            assert_eq!(pause(attempt, 0.5), TimeDelta::seconds(seconds));
            assert!(pause(attempt, 0.999_999) < TimeDelta::milliseconds(seconds * 1_200));
        }
        assert_eq!(pause(99, 0.5), TimeDelta::hours(2));
    }
}
