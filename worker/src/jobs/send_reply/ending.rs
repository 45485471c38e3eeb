//! The result of a run of `send_reply`, and what is written for it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::account::AccountError;
use crier_domain::conversation::{Conversation, Message, MessageStatus};
use crier_domain::failure::{Category, Failure};
use crier_domain::job::{Claimed, Lane, Outcome};
use crier_jobs::replies;
use crier_platforms::{CallError, Published};
use crier_store::conversations::replies::ReplyEnd;
use crier_store::jobs::lanes;
use crier_store::{Result, Tx, accounts, conversations, inbox_syncs};
use crier_telemetry::metrics::{self, ReplyResult};

use super::super::{RunResult, backoff_from_table};
use super::Prepared;

/// The backoff between attempts, that of a post's target, each ± 20 %.
const PAUSES: [Duration; 7] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(1),
    Duration::from_hours(2),
];

/// The outcome of a run. `open`: the outcome of a call is unknown, so the next run reconciles first.
#[derive(Clone, Debug)]
pub enum ReplyOutcome {
    Sent(Published),
    /// Final.
    Failed(Failure),
    /// Final; the account's access was rejected.
    Expired {
        failure: Failure,
        open: bool,
    },
    /// Final; it may have been sent. Not `open` if only a user can find out.
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

impl ReplyOutcome {
    /// Converts an error of a call. With an open call it is one of the query about that call, which stays open.
    pub fn of(error: CallError, open: bool, can_reconcile: bool) -> Self {
        match error {
            CallError::RateLimited { until, failure } => Self::Retry { at: until, failure, open },
            CallError::AuthExpired(failure) | CallError::Reauth(failure) => Self::Expired { failure, open },
            CallError::Permanent(failure) if !open => Self::Failed(failure),
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } if !open && !can_reconcile => {
                Self::unknown(&failure, false)
            }
            CallError::Unknown(failure) | CallError::Accepted { failure, .. } => {
                Self::Retry { at: None, failure, open: true }
            }
            CallError::Permanent(failure) | CallError::Transient(failure) | CallError::UploadsMissing(failure) => {
                Self::Retry { at: None, failure, open }
            }
        }
    }

    /// The platform cannot be asked about earlier calls.
    pub fn reconcile_unsupported() -> Self {
        let message = "It is not known whether the platform took this reply, and it offers no way to find out. Look \
             there, and reply again only if it is missing.";
        Self::Unknown { failure: Failure::of(Category::OutcomeUnknown, message), open: false }
    }

    fn unknown(failure: &Failure, open: bool) -> Self {
        let message = format!(
            "{} It may have been sent all the same: look at the platform, and reply again only if it is missing.",
            failure.message
        );
        let platform_code = failure.platform_code.clone();
        Self::Unknown { failure: Failure { platform_code, ..Failure::of(Category::OutcomeUnknown, message) }, open }
    }

    /// Returns the outcome if an earlier call is open that cannot be asked about now.
    pub fn with_open_call(self) -> Self {
        match self {
            Self::Failed(failure) => Self::unknown(&failure, true),
            Self::Retry { at, failure, .. } => Self::Retry { at, failure, open: true },
            other => other,
        }
    }

    /// Returns the outcome when no attempt is left.
    fn exhausted(self) -> Self {
        match self {
            Self::Retry { failure, open: true, .. } => Self::unknown(&failure, true),
            Self::Retry { failure, .. } => Self::Failed(failure),
            other => other,
        }
    }

    /// Returns the outcome when the rejected credentials were replaced meanwhile: retries with the new ones.
    fn with_new_credentials(self, now: DateTime<Utc>) -> Self {
        match self {
            Self::Expired { open, .. } => {
                let message =
                    "The account was connected anew while this was being sent; it is tried with the new credentials.";
                let failure = Failure::with_code(Category::PlatformError, "credentials_replaced", message);
                Self::Retry { at: Some(now), failure, open }
            }
            other => other,
        }
    }

    /// Returns the same outcome without data from the platform.
    fn without_platform_data(&self) -> Self {
        match self {
            Self::Sent(sent) => Self::Sent(sent.minimal()),
            Self::Failed(failure) => Self::Failed(failure.without_details()),
            Self::Expired { failure, open } => Self::Expired { failure: failure.without_details(), open: *open },
            Self::Unknown { failure, open } => Self::Unknown { failure: failure.without_details(), open: *open },
            Self::Retry { at, failure, open } => {
                Self::Retry { at: *at, failure: failure.without_details(), open: *open }
            }
        }
    }

    fn result(&self) -> ReplyResult {
        match self {
            Self::Sent(_) => ReplyResult::Sent,
            Self::Failed(_) | Self::Expired { .. } => ReplyResult::Failed,
            Self::Unknown { .. } => ReplyResult::Unknown,
            Self::Retry { .. } => ReplyResult::Retried,
        }
    }
}

/// The result that is written when the job is settled.
#[derive(Clone)]
pub struct ReplyEnding {
    conversation: Conversation,
    message: Message,
    outcome: ReplyOutcome,
    /// The version of the credentials that the call used, and the account's workspace.
    account: Option<(i64, i64)>,
    /// The maximum duration of a call; a lookup is reliable only after that.
    timeout: TimeDelta,
    jitter: f64,
}

impl ReplyEnding {
    pub(super) fn of(p: &Prepared, outcome: ReplyOutcome, timeout: TimeDelta) -> Self {
        let account = Some((p.session.account.credentials_version, p.session.account.workspace_id));
        Self { account, timeout, ..Self::without_call(&p.conversation, p.message.clone(), outcome) }
    }

    /// For a run that had no account to call.
    pub fn without_call(conversation: &Conversation, message: Message, outcome: ReplyOutcome) -> Self {
        let (timeout, jitter) = (TimeDelta::zero(), crier_base::random::unit());
        Self { conversation: conversation.clone(), message, outcome, account: None, timeout, jitter }
    }

    /// Returns the time of the next attempt; `None` if no attempt is left.
    fn next(&self, job: &Claimed, at: Option<DateTime<Utc>>, open: bool, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if job.attempt >= job.max_attempts {
            return None;
        }
        let next = at.map_or(now + pause(job.attempt, self.jitter), |at| at.max(now));
        // Reconcile an open call only after its deadline: before that "not there" would mean nothing.
        let over = self.message.call_started_at.filter(|_| open).map(|began| began + self.timeout);
        Some(over.map_or(next, |over| over.max(next)))
    }

    /// Marks the account as expired if its access was rejected; pauses its lane if it is rate limited; reads the
    /// account soon after a reply was sent. Returns the outcome in view of the account's current state.
    async fn touch_account(&self, tx: &mut Tx, trace: Option<&str>) -> Result<ReplyOutcome> {
        let account_id = self.conversation.account_id;
        match (&self.outcome, self.account) {
            (ReplyOutcome::Expired { failure, .. }, Some((version, _))) => {
                let error = AccountError { code: "account_expired".into(), message: failure.message.clone() };
                if !crier_jobs::accounts::expire(tx, account_id, version, &error, trace).await?
                    && accounts::has_newer(tx, account_id, version).await?
                {
                    return Ok(self.outcome.clone().with_new_credentials(tx.now));
                }
            }
            (ReplyOutcome::Retry { failure, at: Some(until), .. }, _) if failure.category == Category::RateLimited => {
                lanes::pause_lane(tx, &Lane::Account(account_id).to_string(), *until).await?;
            }
            (ReplyOutcome::Sent(_), Some((_, workspace_id))) => {
                inbox_syncs::request(tx, account_id, workspace_id, trace).await?;
            }
            _ => {}
        }
        Ok(self.outcome.clone())
    }

    fn ended(&self, outcome: ReplyOutcome, next_attempt_at: Option<DateTime<Utc>>) -> ReplyEnd {
        let (status, error, call_open) = match &outcome {
            ReplyOutcome::Sent(_) => (MessageStatus::Sent, None, false),
            ReplyOutcome::Failed(failure) => (MessageStatus::Failed, Some(failure.clone()), false),
            ReplyOutcome::Expired { failure, open } => {
                let expired = Failure::with_code(Category::AuthExpired, "account_expired", &failure.message);
                let platform_code = failure.platform_code.clone();
                (MessageStatus::Failed, Some(Failure { platform_code, ..expired }), *open)
            }
            ReplyOutcome::Unknown { failure, open } => (MessageStatus::Failed, Some(failure.clone()), *open),
            ReplyOutcome::Retry { failure, open, .. } => (MessageStatus::Pending, Some(failure.clone()), *open),
        };
        let external_id = match outcome {
            ReplyOutcome::Sent(sent) => Some(sent.external_id).filter(|id| !id.is_empty()),
            _ => None,
        };
        ReplyEnd { status, external_id, error, next_attempt_at, call_open }
    }
}

/// Returns the backoff after an attempt (from 1), ± 20 %; `jitter` in `[0, 1)`.
pub fn pause(attempt: i32, jitter: f64) -> TimeDelta {
    backoff_from_table(&PAUSES, attempt, jitter)
}

#[async_trait]
impl RunResult for ReplyEnding {
    async fn write(&self, tx: &mut Tx, job: &Claimed) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        // Account, sync, conversation: the order of every transaction that locks more than one of them. Results that
        // share a transaction come in the order of their accounts, and the sync's row is locked for each of them.
        let mut outcome = self.touch_account(tx, trace).await?;
        inbox_syncs::lock(tx, self.conversation.account_id).await?;
        let Some(conversation) = conversations::lock_of_message(tx, self.message.id).await? else {
            return Ok(Outcome::Cancelled("the conversation is gone".into()));
        };
        let mut next = None;
        if let ReplyOutcome::Retry { at, open, .. } = &outcome {
            next = self.next(job, *at, *open, tx.now);
            if next.is_none() {
                outcome = outcome.exhausted();
            }
        }
        let ended = self.ended(outcome, next);
        replies::end(tx, &conversation, self.message.id, &ended, trace).await?;
        Ok(match next {
            Some(at) => Outcome::RetryAt(at, ended.error.map(|error| error.message).unwrap_or_default()),
            None => Outcome::Done,
        })
    }

    fn order(&self) -> i64 {
        self.conversation.account_id
    }

    fn reduced(&self) -> Option<Arc<dyn RunResult>> {
        Some(Arc::new(Self { outcome: self.outcome.without_platform_data(), ..self.clone() }))
    }

    fn observe(&self, outcome: &Outcome) {
        let platform = self.conversation.platform.as_str();
        let result = match outcome {
            Outcome::RetryAt(..) => ReplyResult::Retried,
            _ => self.outcome.clone().exhausted().result(),
        };
        metrics::reply(platform, result);
        if matches!(&self.outcome, ReplyOutcome::Retry { failure, .. } if failure.category == Category::RateLimited) {
            metrics::platform_rate_limited(platform);
        }
    }
}
