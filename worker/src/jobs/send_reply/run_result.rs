//! The result of a run of `send_reply`, and the writes for it.

use chrono::{DateTime, TimeDelta, Utc};
use crier_domain::conversation::{Conversation, Message, MessageStatus};
use crier_domain::job::{ClaimedJob, Outcome};
use crier_jobs::replies;
use crier_platforms::InboxConnector;
use crier_store::conversations::replies::ReplyOutcome;
use crier_store::{Result, Tx, conversations, inbox_syncs};
use crier_telemetry::metrics::{self, ReplyResult};

use super::super::RunResult;
use super::super::call_outcome::{CallOutcome, expire_or_pause_account, next_attempt};
use super::{ACTION, Prepared};

/// The result that is written when the job is settled.
#[derive(Clone)]
pub struct ReplyRunResult {
    conversation: Conversation,
    message: Message,
    outcome: CallOutcome,
    /// The version of the credentials that the call used, and the account's workspace.
    account: Option<(i64, i64)>,
    /// The interval of the account's syncs.
    interval: TimeDelta,
    /// The maximum duration of a call. A query about a call is reliable only after that.
    timeout: TimeDelta,
    jitter: f64,
}

impl ReplyRunResult {
    pub(super) async fn write(&self, tx: &mut Tx, job: &ClaimedJob) -> Result<Outcome> {
        let trace = job.trace.as_deref();
        // Every transaction locks in this order: account, sync, conversation. Results that share a transaction are
        // sorted by account, and the sync's row is locked for each of them.
        let (account_id, version) = (self.conversation.account_id, self.account.map(|(version, _)| version));
        let mut outcome = expire_or_pause_account(tx, (ACTION, &self.outcome), (account_id, version), trace).await?;
        if let (CallOutcome::Published(_), Some((_, workspace_id))) = (&outcome, self.account) {
            // Syncs the account soon, so that the reply appears in its conversation.
            inbox_syncs::request(tx, account_id, workspace_id, self.interval, trace).await?;
        }
        inbox_syncs::lock(tx, account_id).await?;
        let Some(conversation) = conversations::lock_of_message(tx, self.message.id).await? else {
            return Ok(Outcome::Cancelled("the conversation no longer exists".into()));
        };
        let mut next = None;
        if let CallOutcome::Retry { open, .. } = &outcome {
            next = next_attempt(job, &outcome, self.open_until(*open), self.jitter, tx.now);
            if next.is_none() {
                outcome = outcome.exhausted(ACTION);
            }
        }
        let end = reply_end(&outcome, next);
        replies::end(tx, &conversation, self.message.id, &end, trace).await?;
        Ok(match next {
            Some(at) => Outcome::RetryAt(at, end.error.map(|error| error.message).unwrap_or_default()),
            None => Outcome::Done,
        })
    }

    pub(super) fn of(p: &Prepared, outcome: CallOutcome, timeout: TimeDelta) -> Self {
        let account = Some((p.session.account.credentials_version, p.session.account.workspace_id));
        let interval = p.session.connector.inbox().map_or(TimeDelta::zero(), InboxConnector::interval);
        Self { account, interval, timeout, ..Self::without_call(&p.conversation, p.message.clone(), outcome) }
    }

    /// Returns the result of a run that had no account to call.
    pub fn without_call(conversation: &Conversation, message: Message, outcome: CallOutcome) -> Self {
        let (zero, jitter) = (TimeDelta::zero(), crier_base::random::unit());
        let conversation = conversation.clone();
        Self { conversation, message, outcome, account: None, interval: zero, timeout: zero, jitter }
    }

    /// Returns when a call with an unknown outcome must have ended.
    fn open_until(&self, open: bool) -> Option<DateTime<Utc>> {
        self.message.call_started_at.filter(|_| open).map(|began| began + self.timeout)
    }
}

fn reply_end(outcome: &CallOutcome, next_attempt_at: Option<DateTime<Utc>>) -> ReplyOutcome {
    ReplyOutcome {
        status: match outcome {
            CallOutcome::Published(_) => MessageStatus::Sent,
            CallOutcome::Retry { .. } => MessageStatus::Pending,
            CallOutcome::Failed(_) | CallOutcome::Expired { .. } | CallOutcome::Unknown { .. } => MessageStatus::Failed,
        },
        external_id: outcome.external_id().map(str::to_owned),
        error: outcome.error(),
        next_attempt_at,
        call_open: outcome.is_open(),
    }
}

fn reply_result(outcome: &CallOutcome) -> ReplyResult {
    match outcome {
        CallOutcome::Published(_) => ReplyResult::Sent,
        CallOutcome::Failed(_) | CallOutcome::Expired { .. } => ReplyResult::Failed,
        CallOutcome::Unknown { .. } => ReplyResult::Unknown,
        CallOutcome::Retry { .. } => ReplyResult::Retried,
    }
}

impl RunResult for ReplyRunResult {
    fn order(&self) -> i64 {
        self.conversation.account_id
    }

    fn reduced(&self) -> Option<Self> {
        Some(Self { outcome: self.outcome.without_platform_data(), ..self.clone() })
    }

    fn observe(&self, outcome: &Outcome) {
        let platform = self.conversation.platform.as_str();
        let result = match outcome {
            Outcome::RetryAt(..) => ReplyResult::Retried,
            _ => reply_result(&self.outcome.clone().exhausted(ACTION)),
        };
        metrics::reply(platform, result);
        if self.outcome.is_rate_limited() {
            metrics::platform_rate_limited(platform);
        }
    }
}
